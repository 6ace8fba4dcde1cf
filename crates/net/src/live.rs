//! What a driver holds: sessions, sockets, time. Applications reach it from callbacks.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;

use faircast_base::{
    Cx, Duration, Event, FlowId, GroupId, NodeId, NullTrace, Purpose, Rng, Seq, Time, Trace,
};
use faircast_proto::pgm::SpmOrder;
use faircast_proto::pgm::wire::Tsi;
use faircast_proto::{Destination, Machine, Transmit};
use faircast_trace::{Sink, Subject, Tagged};

use crate::book::{native, own_choice};
use crate::clock::Clock;
use crate::transmit::{Flushed, Outbox, Route};
use crate::{AddressBook, Buffers, Counters, DriverSettings, Envelope, SessionId, Sockets};

/// What a driver holds, as its application sees it.
pub struct Live<M> {
    pub(crate) sessions: Vec<Session<M>>,
    pub(crate) sockets: Sockets,
    pub(crate) settings: DriverSettings,
    pub(crate) clock: Clock,
    pub(crate) book: AddressBook,
    pub(crate) counters: Counters,
    pub(crate) envelope: Option<Box<dyn Envelope>>,
    pub(crate) sink: Option<Box<dyn Sink>>,
    pub(crate) outbox: Outbox,
    /// Why the outbox cannot be emptied now.
    pub(crate) blocked: Flushed,
    pub(crate) node: NodeId,
    pub(crate) closed_at: Option<Time>,
    pub(crate) stopped: bool,
    seed: u64,
    next_id: u32,
    packet: Vec<u8>,
}

/// A machine and what belongs to it.
pub(crate) struct Session<M> {
    pub(crate) id: SessionId,
    pub(crate) machine: M,
    rng: Rng,
    subject: Subject,
    pub(crate) tsi: Option<Tsi>,
    /// At a receiver: where the session's packets come from.
    pub(crate) source: Option<Peer>,
    /// At a receiver: the SPMs of the source, and since when there is no newer one.
    pub(crate) spms: SpmOrder,
    pub(crate) newest_at: Time,
    /// When it was added.
    pub(crate) since: Time,
    /// At a receiver: whether the source has answered from where it is heard.
    pub(crate) confirmed: bool,
    /// Whether it may have something to send or to tell.
    pub(crate) dirty: bool,
    pub(crate) gone: bool,
}

impl<M: Machine> Session<M> {
    /// Whether it has anything left to do.
    pub(crate) fn is_busy(&self) -> bool {
        self.dirty || self.machine.next_timeout().is_some()
    }
}

impl<M> Session<M> {
    /// Who sends this from the address `from`: the SPM of number `spm`, or another packet.
    ///
    /// A session is where it was first heard. Its source may have moved, and whoever was heard
    /// first may only have repeated what it had heard; so a source that has sent no new SPM for
    /// `moves_after`, or has never answered, is where a newer one comes from. Nobody gets there by
    /// repeating old ones, and who repeats new ones loses it again to the source, which is ahead.
    pub(crate) fn speaker(
        &mut self,
        now: Time,
        from: SocketAddr,
        spm: Option<Seq>,
        settings: &DriverSettings,
    ) -> Speaker {
        let newer = spm.is_some_and(|spm| self.spms.is_newer(now, spm));
        let other = self.source.is_some_and(|source| source.address.ip() != from.ip());
        if other {
            let silent = now.since(self.newest_at) >= settings.moves_after;
            if !newer || self.confirmed && !silent {
                return Speaker::Other;
            }
            self.source = None;
            self.confirmed = !settings.confirms;
        }
        if spm.is_some_and(|spm| self.spms.take(now, spm)) || self.source.is_none() {
            self.newest_at = now;
        }
        Speaker::Source
    }
}

/// Who has sent a packet of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    Source,
    Other,
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) node: NodeId,
}

/// What a driver is told about a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionOptions {
    /// The session that the machine takes part in. `None` takes every packet at a source, and at a
    /// receiver those of the first session that is heard. Needed where there are several.
    pub tsi: Option<Tsi>,
    /// Who it is in the trace. `None` makes it an end of the flow that has the session's number.
    pub subject: Option<Subject>,
}

impl<M: Machine> Live<M> {
    pub(crate) fn new(sockets: Sockets, book: AddressBook, settings: DriverSettings) -> Self {
        let seed = settings.seed.unwrap_or_else(system_seed);
        let choice = own_choice(Rng::new(seed, NodeId(0), Purpose::Scenario).bits());
        let by_address = native(sockets.local_address().ip()).filter(|_| sockets.is_source);
        let node = settings.node.or(by_address).unwrap_or(choice);
        let mut book = book;
        book.keep_for(node);
        Self {
            sessions: Vec::new(),
            node,
            outbox: Outbox::new(&sockets),
            sockets,
            settings,
            clock: Clock::new(),
            book,
            counters: Counters::default(),
            envelope: None,
            sink: None,
            blocked: Flushed::All,
            closed_at: None,
            stopped: false,
            seed,
            next_id: 0,
            packet: Vec::new(),
        }
    }

    /// The present moment, as machines know it.
    pub fn now(&mut self) -> Time {
        self.clock.now()
    }

    /// The node that this driver is.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Its sockets.
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// The buffers that the kernel gave.
    pub fn buffers(&self) -> Buffers {
        self.sockets.buffers()
    }

    /// What it has done so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The address of a node that was heard, such as a receiver in a status or the source.
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        let mut sources = self.sessions.iter().filter_map(|session| session.source);
        let source = sources.find(|peer| peer.node == node).map(|peer| peer.address);
        source.or_else(|| self.book.address(node))
    }

    /// All sessions, oldest first.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().filter(|session| !session.gone).map(|session| session.id)
    }

    /// The machine of a session.
    pub fn machine(&self, id: SessionId) -> Option<&M> {
        self.session(id).map(|session| &session.machine)
    }

    /// The session's number on the wire, where it is known.
    pub fn tsi(&self, id: SessionId) -> Option<Tsi> {
        self.session(id)?.tsi
    }

    /// At a receiver: from where the session's packets come, where any have.
    pub fn source(&self, id: SessionId) -> Option<SocketAddr> {
        Some(self.session(id)?.source?.address)
    }

    /// At a receiver: the number of the newest SPM of the session's source.
    pub fn newest_spm(&self, id: SessionId) -> Option<Seq> {
        self.session(id)?.spms.newest()
    }

    /// At a receiver: the source of a session has just answered, so it is where it is heard. See
    /// [`DriverSettings::confirms`].
    pub fn confirm(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            session.confirmed = true;
        }
    }

    /// Adds a machine, made with a start time of now or later.
    pub fn add(&mut self, machine: M, options: SessionOptions) -> SessionId {
        let id = SessionId(self.next_id);
        self.next_id += 1;
        let (flow, node, sender) = (FlowId(id.0), self.node, self.sockets.is_source);
        let since = self.clock.now();
        let subject = options.subject.unwrap_or(Subject::Endpoint { flow, node, sender });
        self.sessions.push(Session {
            id,
            machine,
            rng: Rng::new(self.seed, node, Purpose::Machine(id.0)),
            subject,
            tsi: options.tsi,
            source: None,
            spms: SpmOrder::default(),
            newest_at: Time::ZERO,
            since,
            confirmed: !self.settings.confirms,
            dirty: true,
            gone: false,
        });
        if !sender {
            self.with(id, |_, cx| cx.emit(Event::Joined));
        }
        id
    }

    /// Works with a machine as its driver does: to begin, to give data, to ask.
    pub fn with<R>(
        &mut self,
        id: SessionId,
        f: impl FnOnce(&mut M, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let index = self.sessions.iter().position(|session| session.id == id && !session.gone)?;
        let now = self.clock.now();
        Some(self.touch(index, now, f))
    }

    /// Closes a machine: it goes on until it has nothing left to do.
    pub fn close_session(&mut self, id: SessionId) {
        self.with(id, |machine, cx| machine.handle_close(cx));
    }

    /// Closes all machines; the driver ends when they have nothing left to do, or with its patience.
    pub fn close(&mut self) {
        let now = self.clock.now();
        if self.closed_at.is_none() {
            self.closed_at = Some(now);
            for index in 0..self.sessions.len() {
                self.touch(index, now, |machine, cx| machine.handle_close(cx));
            }
        }
    }

    /// Forgets a session at once, with whatever it had still to do.
    pub fn remove(&mut self, id: SessionId) {
        if !self.sockets.is_source {
            self.with(id, |_, cx| cx.emit(Event::Left));
        }
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            session.gone = true;
        }
    }

    /// Ends the driver at once.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether there is room for a session that was heard. Those that are over make room, and else
    /// the first that nobody has answered in the time for that: anybody can invent sessions.
    pub(crate) fn has_room(&mut self, now: Time) -> bool {
        let max = self.settings.sessions_max;
        let open = |session: &&mut Session<M>| !session.gone;
        if self.sessions.iter_mut().filter(open).count() >= max {
            let over = |session: &&mut Session<M>| !session.is_busy();
            self.sessions.iter_mut().filter(over).for_each(|session| session.gone = true);
        }
        let full = self.sessions.iter_mut().filter(open).count() >= max;
        let idle = |session: &Session<M>| {
            !session.gone && !session.confirmed && now.since(session.since) >= TRIAL
        };
        if full && let Some(session) = self.sessions.iter_mut().find(|session| idle(session)) {
            session.gone = true;
        }
        self.sessions.iter_mut().filter(open).count() < max
    }

    fn session(&self, id: SessionId) -> Option<&Session<M>> {
        self.sessions.iter().find(|session| session.id == id && !session.gone)
    }

    /// Gives `f` a machine and its context, and has it looked at afterwards.
    pub(crate) fn touch<R>(
        &mut self,
        index: usize,
        now: Time,
        f: impl FnOnce(&mut M, &mut Cx<'_>) -> R,
    ) -> R {
        let session = &mut self.sessions[index];
        session.dirty = true;
        let (machine, rng) = (&mut session.machine, &mut session.rng);
        match &mut self.sink {
            None => f(machine, &mut Cx { now, rng, trace: &mut NullTrace }),
            Some(sink) => {
                let mut trace = Tagged { subject: session.subject, sink };
                let trace: &mut dyn Trace = &mut trace;
                f(machine, &mut Cx { now, rng, trace })
            }
        }
    }

    /// Collects what a machine has to send, as far as there is room.
    pub(crate) fn collect(&mut self, index: usize, mut now: Time) {
        let mut packet = std::mem::take(&mut self.packet);
        while self.blocked == Flushed::All {
            packet.clear();
            let next = self.touch(index, now, |machine, cx| machine.poll_transmit(cx, &mut packet));
            let Some(transmit) = next else {
                self.sessions[index].dirty = false;
                break;
            };
            self.post(index, &transmit, &mut packet);
            if self.outbox.is_full() {
                self.flush();
                now = self.clock.now();
            }
        }
        self.packet = packet;
    }

    /// Puts a packet into the batch.
    fn post(&mut self, index: usize, transmit: &Transmit, packet: &mut Vec<u8>) {
        self.counters.sent.packets += 1;
        let hops = transmit.time_to_live.min(self.sockets.settings.hops);
        let route = match transmit.to {
            Destination::Group(GroupId::SESSION) if self.sockets.receivers.is_empty() => None,
            Destination::Group(GroupId::SESSION) => Some(Route::Receivers),
            // Its sockets are of one group.
            Destination::Group(_) => None,
            Destination::Node(node) => self.route(index, node).map(Route::Address),
        };
        let Some(route) = route else {
            self.counters.sent.unaddressed += 1;
            return;
        };
        let zeros = transmit.zeros as usize;
        match &mut self.envelope {
            None => self.outbox.push(route, hops, |out| {
                out.extend_from_slice(packet);
                out.resize(out.len() + zeros, 0);
            }),
            Some(envelope) => {
                packet.resize(packet.len() + zeros, 0);
                self.outbox.push(route, hops, |out| envelope.seal(packet, out));
            }
        }
    }

    /// Where a packet for `node` goes. A receiver speaks with the source of its session, whatever
    /// number that goes by: what an SPM says must not make it send to third parties.
    fn route(&self, index: usize, node: NodeId) -> Option<SocketAddr> {
        if self.sockets.is_source {
            return self.book.address(node);
        }
        let source = self.sessions[index].source?;
        if !self.settings.elements || node == source.node {
            return Some(source.address);
        }
        self.book.address(node).or_else(|| {
            let [a, b, c, d] = node.0.to_be_bytes();
            let known = self.book.learns() && native([a, b, c, d].into()).is_some();
            known.then(|| SocketAddr::new([a, b, c, d].into(), source.address.port()))
        })
    }

    /// Sends the batch, as far as the system takes it.
    pub(crate) fn flush(&mut self) {
        if self.outbox.is_empty() {
            self.blocked = Flushed::All;
            return;
        }
        let now = self.clock.real();
        self.blocked = self.outbox.flush(now, &mut self.sockets, &mut self.counters.sent);
    }
}

impl<M> std::fmt::Debug for Live<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live")
            .field("node", &self.node)
            .field("sockets", &self.sockets)
            .field("sessions", &self.sessions.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// After so long without an answer a session loses its place where others want one.
const TRIAL: Duration = Duration::from_secs(1);

/// 64 bits that nobody can guess: the standard library seeds its hashers from the system.
fn system_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When, from which of two addresses, with which SPM, and whether it has answered by then.
    type Heard = (u64, u8, Option<u32>, bool);

    /// Whose packets are taken for those of the session's source.
    fn taken(confirms: bool, heard: &[Heard]) -> Vec<bool> {
        let moves_after = Duration::from_secs(5);
        let settings = DriverSettings { confirms, moves_after, ..DriverSettings::default() };
        let mut session = Session {
            id: SessionId(0),
            machine: (),
            rng: Rng::new(0, NodeId(0), Purpose::Machine(0)),
            subject: Subject::Node(NodeId(0)),
            tsi: None,
            source: None,
            spms: SpmOrder::default(),
            newest_at: Time::ZERO,
            since: Time::ZERO,
            confirmed: !confirms,
            dirty: false,
            gone: false,
        };
        let take = |&(s, host, spm, answered): &Heard| {
            session.confirmed |= answered;
            let now = Time::ZERO + Duration::from_secs(s);
            let address = SocketAddr::from(([10, 0, 0, host], 7500));
            let speaker = session.speaker(now, address, spm.map(Seq::new), &settings);
            if speaker == Speaker::Source {
                session.source.get_or_insert(Peer { address, node: NodeId(1) });
            }
            speaker == Speaker::Source
        };
        heard.iter().map(take).collect()
    }

    #[test]
    fn a_session_follows_the_newest_word_until_its_source_has_answered() {
        let (source, repeater) = (1, 2);
        let heard = [
            ((0, repeater, Some(5), false), true),
            ((1, source, None, false), false),
            ((1, source, Some(9), false), true),
            ((2, repeater, Some(7), false), false),
            ((2, repeater, Some(9), false), false),
            // What the source has sent, and was lost here.
            ((3, repeater, Some(10), false), true),
            ((4, source, Some(11), false), true),
            ((5, repeater, Some(12), true), false),
            ((8, repeater, Some(12), false), false),
            ((9, repeater, Some(12), false), true),
            // The answer had come from elsewhere.
            ((10, source, Some(13), false), true),
        ];
        let want: Vec<bool> = heard.iter().map(|(_, want)| *want).collect();
        assert_eq!(taken(true, &heard.map(|(heard, _)| heard)), want);
    }

    #[test]
    fn a_session_whose_sources_do_not_answer_stays_where_it_is_heard() {
        let heard = [
            (0, 2, Some(5), false),
            (1, 1, Some(9), false),
            (4, 1, Some(10), false),
            (5, 1, Some(11), false),
            (6, 2, Some(12), false),
        ];
        assert_eq!(taken(false, &heard), [true, false, false, true, false]);
    }

    /// A machine that always has something to do.
    struct Busy;

    impl Machine for Busy {
        fn handle_datagram(&mut self, _: &mut Cx<'_>, _: faircast_proto::Datagram<'_>) {}
        fn handle_timeout(&mut self, _: &mut Cx<'_>) {}
        fn handle_close(&mut self, _: &mut Cx<'_>) {}
        fn poll_transmit(&mut self, _: &mut Cx<'_>, _: &mut Vec<u8>) -> Option<Transmit> {
            None
        }
        fn poll_event(&mut self) -> Option<faircast_proto::AppEvent> {
            None
        }
        fn next_timeout(&self) -> Option<Time> {
            Some(Time::MAX)
        }
    }

    #[test]
    fn sessions_that_nobody_answers_make_room_and_those_in_use_do_not() {
        let settings = crate::SocketSettings::default();
        let listen = crate::Listen::Unicast("127.0.0.1:0".parse().unwrap());
        let sockets = Sockets::receiver(listen, settings).unwrap();
        let settings =
            DriverSettings { confirms: true, sessions_max: 4, ..DriverSettings::default() };
        let mut live = Live::new(sockets, AddressBook::native(), settings);
        let add = |live: &mut Live<Busy>| live.add(Busy, SessionOptions::default());
        let used = add(&mut live);
        live.confirm(used);
        let invented = add(&mut live);
        add(&mut live);
        let now = live.now();
        assert!(live.has_room(now));
        add(&mut live);
        let now = live.now();
        assert!(!live.has_room(now), "they may be answered yet");
        assert!(live.has_room(now + TRIAL), "one makes room");
        add(&mut live);
        assert!(live.machine(used).is_some() && live.machine(invented).is_none());
    }
}
