//! Fuzz target `background`: packets of the fuzzer's bytes at every kind of TCP and at CBR. No
//! panic, drains end, and time advances. The corpus test runs it too.

use faircast_base::{Cx, Duration, FlowId, GroupId, NodeId, NullTrace, Purpose, Rng, Time};
use faircast_proto::cbr;
use faircast_proto::content::Zeros;
use faircast_proto::options::Options;
use faircast_proto::tcp::{self, Flavour};
use faircast_proto::transport::{EndSetup, Role};
use faircast_proto::{Datagram, Destination, FlowEvent, FlowMachine, Machine};

/// Most packets, events or timeouts at one time: more than the largest default window.
const MANY: u32 = 30_000;

pub(crate) fn run(data: &[u8]) {
    for mut machine in machines() {
        let mut steps = data;
        let mut end = End { now: Time::ZERO, rng: Rng::new(1, NodeId(0), Purpose::Machine(0)) };
        end.pass(&mut *machine, Duration::from_millis(1));
        while let Some((&[operation, argument], rest)) = steps.split_first_chunk() {
            steps = rest;
            match operation % 4 {
                0 => {
                    let span = Duration::from_micros(u64::from(argument) * 400);
                    end.pass(&mut *machine, span);
                }
                1 if argument == 0 => {
                    end.with(&mut *machine, |machine, cx| machine.handle_close(cx))
                }
                _ => {
                    let (bytes, rest) = steps.split_at(usize::from(argument).min(steps.len()));
                    steps = rest;
                    let zeros = if operation % 4 == 2 { 1000 } else { 0 };
                    end.take(&mut *machine, bytes, zeros);
                }
            }
        }
        end.pass(&mut *machine, Duration::from_secs(200));
    }
}

fn machines() -> Vec<FlowMachine> {
    let options = Options::default();
    let setup = |to| EndSetup {
        flow: FlowId(0),
        node: NodeId(0),
        sources: &[NodeId(1)],
        to,
        start: Time::ZERO,
        payload: 1000,
        header: None,
        options: &options,
        head: None,
    };
    let roles = || [Role::Source(Box::new(Zeros { len: Some(50_000) })), Role::Receiver];
    let mut machines: Vec<FlowMachine> = Vec::new();
    for flavour in [Flavour::Reno, Flavour::NewReno, Flavour::Sack] {
        let setup = setup(Destination::Node(NodeId(1)));
        machines.extend(roles().map(|role| tcp::end(flavour, role, setup)));
    }
    let setup = setup(Destination::Group(GroupId::SESSION));
    machines.extend(roles().map(|role| cbr::end(role, setup)));
    machines
}

struct End {
    now: Time,
    rng: Rng,
}

impl End {
    fn with(
        &mut self,
        machine: &mut dyn Machine<Event = FlowEvent>,
        act: impl FnOnce(&mut dyn Machine<Event = FlowEvent>, &mut Cx<'_>),
    ) {
        let mut trace = NullTrace;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut trace);
        act(machine, &mut cx);
        let (mut buf, mut sent, mut said) = (Vec::new(), 0, 0);
        while machine.poll_transmit(&mut cx, &mut buf).is_some() {
            buf.clear();
            sent += 1;
            assert!(sent < MANY, "a drain does not end");
        }
        while machine.poll_event().is_some() {
            said += 1;
            assert!(said < MANY, "events do not end");
        }
    }

    fn take(&mut self, machine: &mut dyn Machine<Event = FlowEvent>, bytes: &[u8], zeros: u32) {
        let (from, to) = (NodeId(1), Destination::Node(NodeId(0)));
        let datagram = Datagram { zeros, ..Datagram::new(from, to, bytes) };
        self.with(machine, |machine, cx| machine.handle_datagram(cx, datagram));
    }

    fn pass(&mut self, machine: &mut dyn Machine<Event = FlowEvent>, span: Duration) {
        let end = self.now + span;
        let mut calls = 0;
        while let Some(at) = machine.next_timeout().filter(|at| *at <= end) {
            calls = if at > self.now { 0 } else { calls + 1 };
            assert!(calls < MANY, "time stands still");
            self.now = self.now.max(at);
            self.with(machine, |machine, cx| machine.handle_timeout(cx));
        }
        self.now = end;
    }
}
