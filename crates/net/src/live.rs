//! State of a driver: sessions, sockets, time. Applications use it in callbacks.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;

use faircast_base::{Cx, Duration, Event, NodeId, Purpose, Rng, Time};
use faircast_proto::{Destination, Interactive, Machine, Transmit};
use faircast_trace::Subject;

use crate::book::{native, own_choice};
use crate::clock::Clock;
use crate::demux::Demux;
use crate::pgm::PgmDemux;
use crate::sessions::Sessions;
use crate::transmit::{Flushed, Outbox, Route};
use crate::via::{RelayAbove, Via};
use crate::{AddressBook, Counters, DriverSettings, Envelope, SessionId, Sockets};

/// State of a driver, as seen by its application.
pub struct Live<M, D: Demux = PgmDemux> {
    pub(crate) sessions: Sessions<M>,
    pub(crate) demux: D,
    pub(crate) sockets: Sockets,
    pub(crate) settings: DriverSettings,
    pub(crate) clock: Clock,
    pub(crate) book: AddressBook,
    pub(crate) counters: Counters,
    pub(crate) envelope: Option<Box<dyn Envelope>>,
    pub(crate) via: Option<Via>,
    pub(crate) outbox: Outbox,
    /// Result of the last flush; machines send only after [`Flushed::All`].
    pub(crate) flushed: Flushed,
    pub(crate) closed_at: Option<Time>,
    pub(crate) stopped: bool,
    /// Buffer of a machine's packet, kept to save allocations.
    packet: Vec<u8>,
}

/// Settings of a machine in a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionOptions<K = <PgmDemux as Demux>::Key> {
    /// Session of the machine. Required with several sessions.
    pub key: K,
    /// Subject in the trace. Default `None`: an end of the flow with the session's number.
    pub subject: Option<Subject>,
}

impl<M: Machine, D: Demux> Live<M, D> {
    pub(crate) fn new(
        sockets: Sockets,
        mut book: AddressBook,
        demux: D,
        settings: DriverSettings,
    ) -> Self {
        let seed = settings.seed.unwrap_or_else(random);
        let choice = own_choice(Rng::new(seed, NodeId(0), Purpose::Scenario).bits());
        let by_address = native(sockets.local_address().ip()).filter(|_| sockets.is_source);
        let node = settings.node.or(by_address).unwrap_or(choice);
        book.own_node = Some(node);
        Self {
            sessions: Sessions::new(node, seed),
            demux,
            outbox: Outbox::new(&sockets),
            sockets,
            clock: settings.zero.map_or_else(Clock::new, Clock::since),
            settings,
            book,
            counters: Counters::default(),
            envelope: None,
            via: None,
            flushed: Flushed::All,
            closed_at: None,
            stopped: false,
            packet: Vec::new(),
        }
    }

    /// Returns the machines' current time.
    pub fn now(&mut self) -> Time {
        self.clock.now()
    }

    /// Returns the driver's node.
    pub const fn node(&self) -> NodeId {
        self.sessions.node
    }

    /// Returns the driver's sockets.
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Returns the driver's counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the address of a node that has sent packets; `None` behind relays.
    pub fn address(&self, node: NodeId) -> Option<SocketAddr> {
        self.book.address(node).filter(|_| self.via.is_none())
    }

    /// Returns all sessions, oldest first.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.by_id.keys().copied()
    }

    /// Calls `f` for each session, oldest first.
    pub fn for_each(&mut self, mut f: impl FnMut(&mut Self, SessionId)) {
        let all: Vec<SessionId> = self.sessions().collect();
        all.into_iter().for_each(|id| f(self, id));
    }

    /// Changes [`DriverSettings::gather`].
    pub fn set_gather(&mut self, gather: Duration) {
        self.settings.gather = gather;
    }

    /// Returns the machine of a session.
    pub fn machine(&self, id: SessionId) -> Option<&M> {
        self.sessions.by_id.get(&id).map(|session| &session.machine)
    }

    /// Numbers sessions from `first` on (default 0): machines draw random numbers by these numbers.
    pub fn number_from(&mut self, first: u32) {
        self.sessions.next_id = self.sessions.next_id.max(first);
    }

    /// Adds a machine, made with a start time of now or later.
    pub fn add(&mut self, machine: M, options: SessionOptions<D::Key>) -> SessionId {
        let sender = self.sockets.is_source;
        let id = self.sessions.add(machine, options.subject, sender);
        self.demux.add(self.clock.now(), id, options.key);
        if !sender {
            self.with(id, |_, cx| cx.emit(Event::Joined));
        }
        id
    }

    /// Calls a machine as its driver does: to start it, to add data, to query it.
    pub fn with<R>(
        &mut self,
        id: SessionId,
        f: impl FnOnce(&mut M, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let now = self.clock.now();
        self.sessions.call(id, now, f)
    }

    /// Passes a request of the application to a machine.
    pub fn input(&mut self, id: SessionId, input: M::Input)
    where
        M: Interactive,
    {
        self.with(id, |machine, cx| machine.handle_input(cx, input));
    }

    /// Closes a machine, which continues until its work is done.
    pub fn close_session(&mut self, id: SessionId) {
        self.with(id, |machine, cx| machine.handle_close(cx));
    }

    /// Closes all machines. The driver ends when they are done, or at its timeout.
    pub fn close(&mut self) {
        let now = self.clock.now();
        if self.closed_at.is_none() {
            self.closed_at = Some(now);
            self.for_each(Self::close_session);
        }
    }

    /// Drops a session at once, with all of its remaining work.
    pub fn remove(&mut self, id: SessionId) {
        if !self.sockets.is_source {
            self.with(id, |_, cx| cx.emit(Event::Left));
        }
        self.forget(id);
    }

    fn forget(&mut self, id: SessionId) {
        self.sessions.remove(id);
        self.sockets.groups.iter_mut().for_each(|group| group.leave(id));
        self.demux.remove(id);
    }

    /// Ends the driver at once.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// True if there is room for a session. Drops an ended one, or the first that may be dropped.
    pub(crate) fn has_room(&mut self, now: Time) -> bool {
        let max = self.settings.sessions_max;
        if self.sessions.by_id.len() >= max {
            let ended = self.sessions.ended();
            let idle = self.sessions().find(|id| self.demux.may_go(now, *id));
            let dropped = if ended.is_empty() { idle.into_iter().collect() } else { ended };
            dropped.into_iter().for_each(|id| self.forget(id));
        }
        self.sessions.by_id.len() < max
    }

    /// Sends to `new` instead of the listed receiver `old`. True if `old` was listed.
    pub fn retarget(&mut self, old: SocketAddr, new: SocketAddr) -> bool {
        let listed =
            self.sockets.is_source && self.via.is_none() && self.sockets.retarget(old, new);
        if listed {
            self.outbox.retarget(old, new);
            tracing::warn!("the receiver at {old} is at {new} now: it is sent to there");
        }
        listed
    }

    /// Sends packets singly, for paths that lose joined ones, or joins them again. True if changed.
    pub fn send_singly(&mut self, singly: bool) -> bool {
        self.outbox.send_singly(singly)
    }

    /// Returns how long this host has been unable to send, with the reason; `None` if it can send.
    pub fn outage(&mut self) -> Option<(Duration, String)> {
        let (since, error) = self.sockets.down_since?;
        let reason = match error {
            Some(error) => error.to_string(),
            None => "its interface is down or has no address".to_string(),
        };
        Some((self.now().since(since), reason))
    }

    pub(crate) fn collect(&mut self, id: SessionId, mut now: Time) {
        while let Some(change) = self.sessions.poll_membership(id) {
            // Through a relay all groups of the session arrive.
            if self.via.is_none()
                && let Err(error) = self.sockets.change(id, change)
            {
                tracing::warn!("{change:?}: {error}");
            }
        }
        let mut packet = std::mem::take(&mut self.packet);
        while self.may_send() {
            packet.clear();
            let Some(transmit) = self.sessions.poll_transmit(id, now, &mut packet) else { break };
            self.post(id, &transmit, &mut packet);
            if self.outbox.is_full() {
                self.flush();
                now = self.clock.now();
            }
        }
        self.packet = packet;
    }

    pub(crate) fn may_send(&self) -> bool {
        self.flushed == Flushed::All && self.has_room_above()
    }

    fn post(&mut self, id: SessionId, transmit: &Transmit, packet: &mut Vec<u8>) {
        self.counters.sent.packets += 1;
        if self.via.is_some() {
            return self.post_via(transmit, packet);
        }
        let hops = transmit.time_to_live.min(self.sockets.settings.hops);
        let Self { demux, sockets, book, .. } = self;
        let route = match transmit.to {
            Destination::Group(group) => sockets.group(group).map(Route::Group),
            Destination::Node(node) => {
                let to = demux.route(id, node, sockets, book);
                to.map(|to| Route::Address(demux.way(to, sockets, book), to))
            }
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

    fn post_via(&mut self, transmit: &Transmit, packet: &mut Vec<u8>) {
        let Self { via: Some(via), envelope, counters, .. } = self else { return };
        packet.resize(packet.len() + transmit.zeros as usize, 0);
        let mut body = Vec::new();
        match envelope {
            Some(envelope) => envelope.seal(packet, &mut body),
            None => body.extend_from_slice(packet),
        }
        if !via.host.send(transmit.to, transmit.time_to_live, body.into()) {
            counters.sent.unaddressed += 1;
        }
    }

    pub(crate) fn has_room_above(&self) -> bool {
        self.via.as_ref().is_none_or(|via| via.host.has_room())
    }

    /// Returns the relay above; `None` for a host without relays.
    pub fn relay(&self) -> Option<RelayAbove> {
        self.via.as_ref().map(Via::above)
    }

    /// True if the group is reached through relays.
    pub const fn is_behind_relay(&self) -> bool {
        self.via.is_some()
    }

    pub(crate) fn attach(&mut self) {
        let Self { via: Some(via), clock, sockets, .. } = self else { return };
        let now = clock.now();
        via.handle_timeout(now);
        if let Some(multicast) = via.poll_multicast(now)
            && let Err(error) = sockets.join_relay(multicast)
        {
            tracing::warn!("multicast of the relay is not heard: {error}");
        }
    }

    pub(crate) fn detach(&mut self) {
        let now = self.clock.now();
        if let Some(via) = &mut self.via {
            via.host.leave(now);
            self.flush();
        }
    }

    fn collect_via(&mut self) {
        let now = self.clock.now();
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        while self.flushed == Flushed::All
            && let Some(to) = self.via.as_mut().and_then(|via| via.poll_transmit(now, &mut packet))
        {
            let Self { outbox, sockets, counters, .. } = self;
            match sockets.way_to(to) {
                Some(way) => {
                    outbox.push(Route::Address(way, to), 0, |out| out.extend_from_slice(&packet))
                }
                None => counters.sent.unaddressed += 1,
            }
            packet.clear();
            if self.outbox.is_full() {
                self.flush_batch();
            }
        }
        self.packet = packet;
    }

    pub(crate) fn flush(&mut self) {
        self.flush_batch();
        if self.via.is_some() {
            self.collect_via();
            self.flush_batch();
        }
    }

    fn flush_batch(&mut self) {
        if self.outbox.is_empty() {
            self.flushed = Flushed::All;
            return;
        }
        let now = self.clock.real();
        self.flushed = self.outbox.flush(now, &mut self.sockets, &mut self.counters.sent);
    }
}

/// Returns 64 random bits: the standard library seeds its hashers from the system.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
