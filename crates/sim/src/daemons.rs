//! Daemons of the overlay with scripted clients.

use std::collections::{BTreeSet, VecDeque};

use faircast_base::{ClientAct, ClientNote, Cx, Duration, LinkNote, NodeId, Time};
use faircast_hop::{DaemonNode, Endpoint};
use faircast_overlay::{
    ClientEvent, ClientId, ClientTrace, Daemon, DaemonId, DaemonRun, DaemonSettings, MemberId,
    Outgoing, PriceProfile, SendError,
};
use faircast_proto::{Datagram, Destination, FlowEvent, Machine, Transmit};
use faircast_scenario::{ClientSpec, DaemonSpec};

/// Pause after a refusal that passes by itself: 5 ms.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Most messages of a client before a pause of [`BURST_PAUSE`]: those to empty groups never block.
const BURST_MAX: u32 = 64;
const BURST_PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Debug)]
enum Step {
    Connect,
    Join(String),
    Leave(String),
    Stop,
}

#[derive(Debug)]
struct Client {
    spec: ClientSpec,
    trace: ClientTrace,
    steps: VecDeque<(Time, Step)>,
    is_connected: bool,
    sent: u64,
    /// Time at which the next message is due; `None` after the last one.
    send_at: Option<Time>,
    /// Least time of the next attempt after a refusal.
    retry_at: Time,
    /// Time of the client among the program's alarms.
    alarm: Option<Time>,
}

impl Client {
    fn new(spec: &ClientSpec, me: DaemonRun, start: Time) -> Self {
        let member =
            MemberId { daemon: me.id, name: spec.name.clone().into(), incarnation: me.incarnation };
        let mut steps = vec![(spec.start, Step::Connect)];
        steps.extend(spec.stop.map(|at| (at, Step::Stop)));
        for stay in &spec.stays {
            steps.push((stay.at.max(spec.start), Step::Join(stay.group.clone())));
            steps.extend(stay.leave.map(|at| (at, Step::Leave(stay.group.clone()))));
        }
        steps.sort_by_key(|(at, _)| *at);
        Self {
            trace: ClientTrace::new(&member),
            steps: steps.into(),
            is_connected: false,
            sent: 0,
            send_at: spec.send.as_ref().map(|it| it.start.max(spec.start).max(start)),
            retry_at: Time::ZERO,
            alarm: None,
            spec: spec.clone(),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        let due = self.send_at.filter(|_| self.is_connected).map(|due| due.max(self.retry_at));
        self.steps.front().map(|(at, _)| *at).into_iter().chain(due).min()
    }
}

#[derive(Debug)]
pub(crate) struct DaemonProgram {
    node: DaemonNode,
    me: DaemonRun,
    clients: Vec<Client>,
    alarms: BTreeSet<(Time, u32)>,
    notes: VecDeque<ClientNote>,
    link_notes: VecDeque<LinkNote>,
    /// Time of the next note of links' prices; `None` without prices.
    sample_at: Option<Time>,
    update: Duration,
}

impl DaemonProgram {
    pub(crate) fn new(spec: &DaemonSpec, endpoint: Endpoint, start: Time) -> Self {
        let incarnation = start.as_nanos() / 1_000_000 + 1;
        let me = DaemonRun { id: DaemonId(u64::from(spec.node.0) + 1), incarnation };
        let name = format!("node {}", spec.node.0);
        let daemon = Daemon::new(
            start,
            me,
            &name,
            DaemonSettings { flow_control: spec.flow_control, ..DaemonSettings::default() },
        );
        let mut clients: Vec<Client> =
            spec.clients.iter().map(|client| Client::new(client, me, start)).collect();
        // Clients that have stopped by `start` do not restart with their daemon.
        clients.retain(|it| it.spec.stop.is_none_or(|stop| stop > start));
        let node = DaemonNode::new(endpoint, daemon, spec.peers.clone());
        let update = spec.flow_control.update;
        let has_prices = spec.flow_control.kind != PriceProfile::Off;
        let mut program = Self {
            node,
            me,
            clients,
            alarms: BTreeSet::new(),
            notes: VecDeque::new(),
            link_notes: VecDeque::new(),
            sample_at: has_prices.then_some(start + update),
            update,
        };
        (0..program.clients.len()).for_each(|index| program.set_alarm(index));
        program
    }

    fn drive(&mut self, cx: &mut Cx<'_>) {
        loop {
            while let Some(ClientId(index)) = self.node.daemon_mut().poll_retry() {
                self.clients[index as usize].retry_at = cx.now;
                self.set_alarm(index as usize);
            }
            let Some((_, index)) = self.alarms.first().copied().filter(|it| it.0 <= cx.now) else {
                break;
            };
            self.act(cx, index as usize);
            self.set_alarm(index as usize);
        }
        while let Some(id) = self.node.daemon_mut().poll_ready_client() {
            let Self { node, clients, notes, .. } = self;
            take_events(cx.now, node, id, &mut clients[id.0 as usize], notes);
        }
        while self.node.poll_end().is_some() {}
        if self.sample_at.is_some_and(|at| at <= cx.now) {
            self.sample_at = Some(cx.now + self.update);
            let node = |run: DaemonRun| NodeId((run.id.0 - 1) as u32);
            let from = node(self.me);
            let links = self.node.daemon().link_prices().map(|(_, it)| LinkNote {
                from,
                to: node(it.to),
                packets_max: it.packets_max as u32,
                packets_milli: (it.packets_mean * 1e3) as u32,
                price_milli: (it.price * 1e3) as u32,
            });
            self.link_notes.extend(links);
        }
    }

    fn set_alarm(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let at = client.next_timeout();
        if at == client.alarm {
            return;
        }
        let before = core::mem::replace(&mut client.alarm, at);
        before.map(|before| self.alarms.remove(&(before, index as u32)));
        at.map(|at| self.alarms.insert((at, index as u32)));
    }

    fn act(&mut self, cx: &mut Cx<'_>, index: usize) {
        let Self { node, me, clients, notes, .. } = self;
        let (client, id) = (&mut clients[index], ClientId(index as u32));
        while client.steps.front().is_some_and(|(at, _)| *at <= cx.now) {
            let Some((_, step)) = client.steps.pop_front() else { break };
            match node.with(cx, |daemon, cx| take_step(daemon, cx, id, client, *me, &step)) {
                Ok(line) => {
                    let act = ClientAct::Other;
                    notes.push_back(ClientNote { client: client.spec.index, act, line });
                }
                Err(SendError::Changing | SendError::Retention | SendError::Held) => {
                    client.steps.push_front((cx.now + RETRY_INTERVAL, step));
                }
                Err(error) => unreachable!("the scenario was checked: {error}"),
            }
        }
        for _ in 0..BURST_MAX {
            let Some(note) = node.with(cx, |daemon, cx| send(daemon, cx, id, client)) else {
                return;
            };
            notes.push_back(note);
            take_events(cx.now, node, id, client, notes);
        }
        client.retry_at = cx.now + BURST_PAUSE;
    }
}

fn take_step(
    daemon: &mut Daemon,
    cx: &mut Cx<'_>,
    id: ClientId,
    client: &mut Client,
    me: DaemonRun,
    step: &Step,
) -> Result<String, SendError> {
    match step {
        Step::Connect => {
            let name = client.spec.name.clone().into();
            daemon.connect(cx, id, name, me.incarnation)?;
            client.is_connected = true;
            Ok(client.trace.start(&me, false))
        }
        Step::Join(group) => {
            daemon.join(cx, id, group.clone().into(), false)?;
            Ok(client.trace.join(group.as_bytes()))
        }
        Step::Leave(group) => {
            daemon.part(cx, id, group.clone().into())?;
            Ok(client.trace.leave(group.as_bytes()))
        }
        Step::Stop => {
            daemon.disconnect(cx, id);
            (client.is_connected, client.send_at) = (false, None);
            client.steps.clear();
            Ok(client.trace.stop())
        }
    }
}

fn send(
    daemon: &mut Daemon,
    cx: &mut Cx<'_>,
    id: ClientId,
    client: &mut Client,
) -> Option<ClientNote> {
    let of = client.spec.send.as_ref()?;
    let due = client.send_at.filter(|due| client.is_connected && *due <= cx.now)?;
    if cx.now < client.retry_at {
        return None;
    }
    if of.stop.is_some_and(|stop| due.max(cx.now) >= stop) {
        client.send_at = None;
        return None;
    }
    let mut payload = vec![0; of.size.count() as usize];
    let (index, number, now) = (client.spec.index, client.sent, cx.now.as_nanos());
    let (run, name) = (client.trace.incarnation(), name(index, client.trace.incarnation(), number));
    payload[..4].copy_from_slice(&index.to_be_bytes());
    for (bytes, value) in payload[4..28].chunks_exact_mut(8).zip([run, number, now]) {
        bytes.copy_from_slice(&value.to_be_bytes());
    }
    let groups: Vec<&[u8]> = of.groups.iter().map(|it| it.as_bytes()).collect();
    let view = daemon.view().0;
    let message = Outgoing::new(of.service, &groups, &payload);
    match daemon.send(cx, id, &Outgoing { benefit: of.benefit, ..message }) {
        Ok(()) => {
            client.sent += 1;
            client.send_at = Some(of.rate.map_or(due, |rate| due + rate.time_for(of.size.count())));
            let message = (of.service, &*groups, payload.len());
            let line = client.trace.send(Some(view), (&name, number), message);
            let act = ClientAct::Sent { bytes: payload.len() as u32 };
            Some(ClientNote { client: client.spec.index, act, line })
        }
        Err(SendError::Changing | SendError::Retention | SendError::Held) => {
            client.retry_at = cx.now + RETRY_INTERVAL;
            None
        }
        Err(SendError::Price) => {
            client.retry_at = Time::MAX;
            None
        }
        Err(error) => unreachable!("the scenario was checked: {error}"),
    }
}

fn origin(event: &ClientEvent) -> Option<(String, u32, Time)> {
    let ClientEvent::Message { parts, .. } = event else { return None };
    let bytes: usize = parts.iter().map(bytes::Bytes::len).sum();
    let (index, rest) = parts.first()?.split_first_chunk()?;
    let (run, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let [run, number, sent] = [run, number, rest.first_chunk()?].map(|it| u64::from_be_bytes(*it));
    Some((name(u32::from_be_bytes(*index), run, number), bytes as u32, Time::from_nanos(sent)))
}

fn name(client: u32, run: u64, number: u64) -> String {
    format!("{client}.{run}.{number}")
}

fn take_events(
    now: Time,
    node: &mut DaemonNode,
    id: ClientId,
    client: &mut Client,
    notes: &mut VecDeque<ClientNote>,
) {
    while let Some((n, event)) = node.daemon_mut().poll_client(id) {
        let origin = origin(&event);
        let act = match (&*event, &origin) {
            (_, Some((_, bytes, sent))) => {
                ClientAct::Delivered { bytes: *bytes, latency: now.since(*sent) }
            }
            (ClientEvent::View { members, .. }, _) => {
                ClientAct::View { daemons: members.len() as u32 }
            }
            _ => ClientAct::Other,
        };
        let line = client.trace.event(n, &event, || origin.map(|it| it.0).unwrap_or_default());
        notes.push_back(ClientNote { client: client.spec.index, act, line });
    }
}

impl Machine for DaemonProgram {
    type Event = FlowEvent;

    fn handle_datagram(&mut self, cx: &mut Cx<'_>, datagram: Datagram<'_>) {
        let Datagram { from, congestion_experienced, bytes, .. } = datagram;
        self.node.handle_datagram(cx, from, congestion_experienced, bytes);
        self.drive(cx);
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_>) {
        self.node.handle_timeout(cx);
        self.drive(cx);
    }

    fn handle_close(&mut self, cx: &mut Cx<'_>) {
        self.node.handle_close(cx.now);
    }

    fn poll_transmit(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Transmit> {
        let to: NodeId = self.node.poll_transmit(cx.now, buf)?;
        Some(Transmit::control(Destination::Node(to)))
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        let note = self.notes.pop_front().map(|note| FlowEvent::Note(Box::new(note)));
        note.or_else(|| self.link_notes.pop_front().map(|note| FlowEvent::Link(Box::new(note))))
    }

    fn next_timeout(&self) -> Option<Time> {
        let own = self.alarms.first().map(|it| it.0).into_iter().chain(self.sample_at);
        own.chain(self.node.next_timeout()).min()
    }
}
