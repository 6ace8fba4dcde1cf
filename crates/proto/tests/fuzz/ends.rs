//! Ends of a fuzzed network, and damage to its packets from the bytes of the fuzzer.

use faircast_base::{Cx, Duration, NodeId, Purpose, Rng, Time};
use faircast_proto::{FlowEvent, FlowMachine, Machine, Transmit};

/// Limit of packets in one drain, or timeouts at one time, that no valid machine reaches.
pub(crate) const MANY: usize = 100_000;
pub(crate) const FLYING_MAX: usize = 100;
/// Time in which all machines become idle after the source is closed.
pub(crate) const REST: Duration = Duration::from_secs(2000);

pub(crate) struct End {
    pub(crate) node: NodeId,
    pub(crate) machine: FlowMachine,
    rng: Rng,
}

/// Packets with their headers.
type Sent = Vec<(Transmit, Vec<u8>)>;

impl End {
    pub(crate) fn new(node: u32, machine: FlowMachine) -> Self {
        let node = NodeId(node);
        Self { node, machine, rng: Rng::new(1, node, Purpose::Machine(0)) }
    }

    /// Returns the packets that the machine sends after `act`.
    pub(crate) fn act(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut dyn Machine<Event = FlowEvent>, &mut Cx<'_>),
    ) -> Sent {
        let (mut sent, mut cx) = (Vec::new(), Cx::untraced(now, &mut self.rng));
        act(&mut *self.machine, &mut cx);
        loop {
            let mut buf = Vec::new();
            let Some(transmit) = self.machine.poll_transmit(&mut cx, &mut buf) else { break };
            sent.push((transmit, buf));
            assert!(sent.len() < MANY, "a drain does not end");
        }
        while self.machine.poll_event().is_some() {}
        sent
    }

    pub(crate) fn pass(&mut self, mut now: Time, end: Time) -> Sent {
        let (mut sent, mut calls) = (Vec::new(), 0);
        while let Some(at) = self.machine.next_timeout().filter(|at| *at <= end) {
            calls = if at > now { 0 } else { calls + 1 };
            assert!(calls < MANY, "time stands still for {:?}", self.node);
            now = now.max(at);
            sent.extend(self.act(now, |machine, cx| machine.handle_timeout(cx)));
        }
        sent
    }
}

/// Changes bytes of a packet, or of an added copy if `copy` is set, and returns the packet. A
/// change is a position, a count and as many bytes; the count's high bit truncates the packet.
pub(crate) fn damage<'p, T: Clone>(
    flying: &'p mut Vec<T>,
    bytes: impl FnOnce(&mut T) -> &mut Vec<u8>,
    (copy, argument): (bool, u8),
    data: &mut &[u8],
) -> Option<&'p mut T> {
    let place = usize::from(argument >> 2).checked_rem(flying.len())?;
    if copy {
        flying.insert(place, flying[place].clone());
    }
    let packet = &mut flying[place];
    let packet_bytes = bytes(packet);
    for _ in 0..=argument & 3 {
        let Some((&[at, len], rest)) = data.split_first_chunk() else { break };
        let (values, rest) = rest.split_at(usize::from(len & 7).min(rest.len()));
        *data = rest;
        for (byte, value) in packet_bytes.iter_mut().skip(at.into()).zip(values) {
            *byte = *value;
        }
        if len & 0x80 != 0 {
            packet_bytes.truncate(at.into());
        }
    }
    Some(packet)
}
