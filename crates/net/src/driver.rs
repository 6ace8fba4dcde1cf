//! Gives machines time and packets.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use faircast_base::{Duration, GroupId, NodeId, Time};
use faircast_proto::pgm::wire::{Body, Packet, PacketType, Spm, Tsi, peek};
use faircast_proto::{Datagram, Destination, Machine};
use faircast_trace::Sink;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;

use crate::live::{Peer, Session, Speaker};
use crate::receive::Inbox;
use crate::transmit::Flushed;
use crate::waker::{Orders, pair};
use crate::{
    AddressBook, App, DriverSettings, Envelope, Heard, Live, NetError, SessionOptions, Sockets,
    Upstream, Waker,
};

/// Drives machines of one kind over one set of sockets, in the thread that calls
/// [`run`](Self::run).
///
/// It keeps to the law of [`Machine`]: after every call it takes what the machine has to send, then
/// what it has to tell. What is sent leaves in batches, at the latest before the thread sleeps.
pub struct Driver<M> {
    live: Live<M>,
    inbox: Inbox,
    orders: Orders<M>,
    waker: Waker<M>,
    /// Drops that the two sockets have counted.
    overflowed: [u32; 2],
    /// Whether there is something to read: at the node's socket, and at the group's.
    readable: [bool; 2],
    /// Sessions that the application left alone, and when.
    declined: Vec<(Tsi, Time)>,
    tick_at: Time,
    maintain_at: Time,
}

/// Why a driver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No machine had anything left to do.
    Idle,
    /// The application stopped it.
    Stopped,
    /// It was closed, and machines that went on for longer than its patience were left.
    Impatient,
}

impl<M: Machine> Driver<M> {
    /// A driver without machines, which learns addresses as it hears them.
    ///
    /// # Errors
    /// The system gives no more descriptors.
    pub fn new(sockets: Sockets, settings: DriverSettings) -> Result<Self, NetError> {
        Self::with_book(sockets, AddressBook::native(), settings)
    }

    /// A driver without machines, with this address book.
    ///
    /// # Errors
    /// The system gives no more descriptors.
    pub fn with_book(
        sockets: Sockets,
        book: AddressBook,
        settings: DriverSettings,
    ) -> Result<Self, NetError> {
        let (waker, orders) = pair()?;
        Ok(Self {
            live: Live::new(sockets, book, settings),
            inbox: Inbox::new(),
            orders,
            waker,
            overflowed: [0; 2],
            readable: [false; 2],
            declined: Vec::new(),
            tick_at: Time::ZERO,
            maintain_at: Time::ZERO + MAINTENANCE,
        })
    }

    /// Wraps all datagrams.
    pub fn set_envelope(&mut self, envelope: Box<dyn Envelope>) {
        self.live.envelope = Some(envelope);
    }

    /// Records what machines say of themselves, with the driver's time.
    pub fn set_trace(&mut self, sink: Box<dyn Sink>) {
        self.live.sink = Some(sink);
    }

    /// By which other threads reach it.
    pub fn waker(&self) -> Waker<M> {
        self.waker.clone()
    }

    /// What it holds: machines, counters, addresses.
    pub fn live(&mut self) -> &mut Live<M> {
        &mut self.live
    }

    /// Drives until there is nothing left to do, or until it is told to end. May be called again.
    ///
    /// # Errors
    /// The system refuses to wait for packets. A network that is down is no error.
    pub fn run(&mut self, app: &mut dyn App<M>) -> Result<Ended, NetError> {
        let slack = prctl::get_timerslack();
        // Timers of a thread may by default be 50 us late, so that they can be handled together.
        let _ = prctl::set_timerslack(1);
        let ended = self.run_until_ended(app);
        if let Some(slack) = slack.ok().and_then(|slack| u64::try_from(slack).ok()) {
            let _ = prctl::set_timerslack(slack);
        }
        ended
    }

    fn run_until_ended(&mut self, app: &mut dyn App<M>) -> Result<Ended, NetError> {
        self.live.stopped = false;
        loop {
            while let Some(order) = self.orders.next() {
                order(&mut self.live);
            }
            let now = self.live.now();
            if self.tick_at <= now {
                self.tick_at = now + self.live.settings.tick.max(TICK_MIN);
                app.tick(&mut self.live);
            }
            if self.maintain_at <= now {
                self.maintain_at = now + MAINTENANCE;
                self.live.sockets.maintain();
            }
            // What could not leave before goes first, and makes room.
            self.live.flush();
            self.run_timers(app);
            self.settle_all(app);
            self.live.flush();
            self.live.sessions.retain(|session| !session.gone);
            if let Some(ended) = self.ended() {
                return Ok(ended);
            }
            self.wait()?;
            self.receive_all(app)?;
        }
    }

    fn ended(&mut self) -> Option<Ended> {
        let live = &mut self.live;
        if live.stopped {
            return Some(Ended::Stopped);
        }
        let busy = live.sessions.iter().any(Session::is_busy);
        let idle = live.outbox.is_empty() && !busy;
        let may = live.settings.ends_when_idle && !live.sessions.is_empty();
        if idle && (may || live.closed_at.is_some()) {
            return Some(Ended::Idle);
        }
        let closed_at = live.closed_at?;
        (live.now().since(closed_at) >= live.settings.patience).then_some(Ended::Impatient)
    }

    /// Handles the timers that are due, and those that are due within the grain with them.
    fn run_timers(&mut self, app: &mut dyn App<M>) {
        let grain = self.live.settings.grain.min(GRAIN_MAX);
        let real = self.live.clock.real();
        for index in 0..self.live.sessions.len() {
            for _ in 0..BURST_MAX {
                let Some(at) = self.live.sessions[index].machine.next_timeout() else { break };
                if at > real + grain || self.live.blocked != Flushed::All {
                    break;
                }
                if at > real {
                    self.live.counters.timers.early += 1;
                } else {
                    self.live.counters.timers.fired(real.since(at));
                }
                let now = self.live.clock.advance_to(at.max(real));
                self.live.touch(index, now, |machine, cx| machine.handle_timeout(cx));
                self.settle(app, index, now);
            }
        }
    }

    /// Looks at every machine that something was done with.
    fn settle_all(&mut self, app: &mut dyn App<M>) {
        let now = self.live.now();
        for index in 0..self.live.sessions.len() {
            if self.live.sessions[index].dirty {
                self.settle(app, index, now);
            }
        }
    }

    /// Takes what a machine has to send, and what it has to tell.
    fn settle(&mut self, app: &mut dyn App<M>, index: usize, now: Time) {
        self.live.collect(index, now);
        while let Some(event) = self.live.sessions[index].machine.poll_event() {
            let id = self.live.sessions[index].id;
            app.event(&mut self.live, id, event);
        }
    }

    /// Sleeps until a packet, an order or the next timer.
    fn wait(&mut self) -> Result<(), NetError> {
        let live = &mut self.live;
        let real = live.clock.real();
        let timers = live.sessions.iter().filter_map(|session| session.machine.next_timeout());
        let mut until = timers.fold(self.tick_at.min(self.maintain_at), Time::min);
        let mut readable = PollFlags::POLLIN;
        match live.blocked {
            // There was no room for all that there is to send, and now there is.
            Flushed::All if live.sessions.iter().any(|session| session.dirty) => until = real,
            Flushed::All => {}
            // While nothing can leave, timers that would send come round in vain.
            Flushed::WhenWritable => {
                readable |= PollFlags::POLLOUT;
                until = until.max(real + BLOCKED_PAUSE);
            }
            Flushed::At(at) => until = at.max(real),
        }
        let bell = PollFd::new(self.orders.bell.as_fd(), PollFlags::POLLIN);
        let node = PollFd::new(live.sockets.node.as_fd(), readable);
        let mut all = [bell.clone(), node, bell];
        let mut count = 2;
        if let Some(group) = &live.sockets.group {
            all[2] = PollFd::new(group.as_fd(), PollFlags::POLLIN);
            count = 3;
        }
        let timeout = std::time::Duration::from_nanos(until.since(real).as_nanos());
        match ppoll(&mut all[..count], Some(TimeSpec::from_duration(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(NetError::socket("wait for packets", error)),
        }
        let slept = live.clock.real().since(real);
        match live.blocked {
            Flushed::All => live.counters.asleep += slept,
            Flushed::WhenWritable | Flushed::At(_) => live.counters.sent.waited += slept,
        }
        live.counters.wakeups += 1;
        // Errors too are fetched by reading.
        let other = PollFlags::POLLIN | PollFlags::POLLERR | PollFlags::POLLHUP;
        let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| events.intersects(other));
        self.readable = [ready(&all[1]), count == 3 && ready(&all[2])];
        if all[0].any().unwrap_or(false) {
            self.orders.hush();
        }
        Ok(())
    }

    /// Takes what has come to both sockets, within bounds, so that timers have their turn.
    fn receive_all(&mut self, app: &mut dyn App<M>) -> Result<(), NetError> {
        for group in [true, false] {
            if !self.readable[usize::from(group)] {
                continue;
            }
            for _ in 0..RECEIVE_CALLS_MAX {
                let Live { sockets, counters, .. } = &mut self.live;
                let socket = if group { sockets.group.as_ref() } else { Some(&sockets.node) };
                let Some(socket) = socket else { break };
                let (received, refused) = (&mut counters.received, &mut counters.refused);
                let overflowed = &mut self.overflowed[usize::from(group)];
                match self.inbox.receive(socket, overflowed, received, refused) {
                    Ok((count, more)) => {
                        // This host is a hop like others: where it cannot keep up, it says so before
                        // it loses anything.
                        let crowded = !sockets.is_source && Sockets::is_crowded(socket);
                        received.crowded += u64::from(crowded);
                        self.take_batch(app, count, group, crowded);
                        if !more {
                            break;
                        }
                    }
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    // What an earlier packet met on its way, or memory that is short for now.
                    Err(_) => {
                        self.live.counters.sent.failures += 1;
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Where the socket is crowded the first datagram counts as marked: one mark in a round trip is
    /// enough.
    fn take_batch(&mut self, app: &mut dyn App<M>, count: usize, group: bool, crowded: bool) {
        let mut crowded = crowded;
        let now = self.live.now();
        // Taken out, so that machines can send while datagrams are read.
        let mut inbox = std::mem::replace(&mut self.inbox, Inbox::none());
        for index in 0..count {
            let entry = inbox.entry(index);
            for datagram in inbox.datagrams(entry) {
                let marked = std::mem::take(&mut crowded) || entry.marked;
                self.take(app, now, group, entry.from, marked, datagram);
            }
        }
        self.inbox = inbox;
        self.live.flush();
    }

    /// One datagram.
    fn take(
        &mut self,
        app: &mut dyn App<M>,
        now: Time,
        group: bool,
        from: SocketAddr,
        marked: bool,
        datagram: &mut [u8],
    ) {
        let live = &mut self.live;
        let len = datagram.len();
        if len > live.sockets.settings.datagram_max {
            live.counters.refused.oversized += 1;
            return;
        }
        if live.sockets.settings.only_from.is_some_and(|only| only != from.ip()) {
            live.counters.refused.foreign += 1;
            return;
        }
        let mut envelope = live.envelope.take();
        let plain = match &mut envelope {
            Some(envelope) => envelope.open(now, from, datagram),
            None => Some(&*datagram),
        };
        live.envelope = envelope;
        let Some(plain) = plain else {
            live.counters.refused.sealed += 1;
            return;
        };
        let Some((kind, tsi)) = peek(plain) else {
            live.counters.refused.malformed += 1;
            return;
        };
        let found = if live.sockets.is_source {
            self.find_at_source(tsi, from)
        } else {
            self.find_at_receiver(app, now, kind, tsi, from, plain)
        };
        let Some((index, node)) = found else { return };
        let received = &mut self.live.counters.received;
        received.packets += 1;
        received.bytes += len as u64;
        received.marked += u64::from(marked);
        let to = if group {
            Destination::Group(GroupId::SESSION)
        } else {
            Destination::Node(self.live.node)
        };
        let datagram =
            Datagram { from: node, to, bytes: plain, zeros: 0, congestion_experienced: marked };
        self.live.touch(index, now, |machine, cx| machine.handle_datagram(cx, datagram));
        self.settle(app, index, now);
    }

    /// The machine for a packet from a receiver, and who sent it.
    fn find_at_source(&mut self, tsi: Tsi, from: SocketAddr) -> Option<(usize, NodeId)> {
        let live = &mut self.live;
        let mut sessions = live.sessions.iter();
        let ours = |wanted: Option<Tsi>| wanted.is_none_or(|wanted| wanted == tsi);
        let Some(index) = sessions.position(|session| ours(session.tsi) && !session.gone) else {
            live.counters.refused.foreign += 1;
            return None;
        };
        let Some(node) = live.book.node(from) else {
            live.counters.refused.unknown += 1;
            return None;
        };
        Some((index, node))
    }

    /// The machine for a packet that a receiver hears, and who sent it.
    fn find_at_receiver(
        &mut self,
        app: &mut dyn App<M>,
        now: Time,
        kind: PacketType,
        tsi: Tsi,
        from: SocketAddr,
        packet: &[u8],
    ) -> Option<(usize, NodeId)> {
        let begins = matches!(kind, PacketType::Spm | PacketType::Odata);
        let live = &mut self.live;
        let known = live
            .sessions
            .iter()
            .position(|session| !session.gone && session.tsi.map_or(begins, |known| known == tsi));
        if kind.is_upstream() {
            // From a neighbour.
            let Some(index) = known else {
                live.counters.refused.foreign += 1;
                return None;
            };
            let Some(node) = live.book.node(from) else {
                live.counters.refused.unknown += 1;
                return None;
            };
            return Some((index, node));
        }
        let from = match live.sockets.settings.upstream {
            Upstream::FromPacket => from,
            Upstream::Port(port) => SocketAddr::new(from.ip(), port),
        };
        // Data, which is nearly all, is left to the machine: its checksum is computed once.
        let spm =
            (kind == PacketType::Spm).then(|| Packet::decode(packet, 0).map(|packet| packet.body));
        let spm = match spm {
            Some(Ok(Body::Spm(spm))) => Some(spm),
            _ => None,
        };
        let peer = self.source(spm, from)?;
        let index = match known {
            Some(index) => index,
            None if begins => self.admit(app, now, kind, tsi, peer, packet)?,
            None => {
                self.live.counters.refused.foreign += 1;
                return None;
            }
        };
        let settings = &self.live.settings;
        let session = &mut self.live.sessions[index];
        session.tsi = Some(tsi);
        let newest = spm.map(|spm| spm.sequence);
        match session.speaker(now, from, newest, settings) {
            Speaker::Source => {
                let source = session.source.get_or_insert(peer);
                if begins {
                    source.address = from;
                }
                if kind == PacketType::Spm {
                    source.node = peer.node;
                }
            }
            Speaker::Other if settings.elements => return Some((index, peer.node)),
            Speaker::Other => {
                self.live.counters.refused.spoofed += 1;
                return None;
            }
        }
        session.source.map(|source| (index, source.node))
    }

    /// Who speaks for a source. What a source calls itself in its SPMs is its number, since that is
    /// what it wants to be called: behind address translation and with IPv6 the address does not
    /// tell it. It says nothing about where packets go.
    fn source(&mut self, spm: Option<Spm>, from: SocketAddr) -> Option<Peer> {
        let live = &mut self.live;
        let called = spm
            .filter(|_| live.book.learns() && !live.settings.elements)
            .and_then(|spm| spm.path.node());
        let node = called.filter(|node| node.0 != 0).or_else(|| live.book.node(from));
        if node.is_none() {
            live.counters.refused.unknown += 1;
        }
        node.map(|node| Peer { address: from, node })
    }

    /// Asks the application about a new session.
    fn admit(
        &mut self,
        app: &mut dyn App<M>,
        now: Time,
        kind: PacketType,
        tsi: Tsi,
        source: Peer,
        packet: &[u8],
    ) -> Option<usize> {
        let refused = &mut self.live.counters.refused;
        self.declined.retain(|(_, at)| now.since(*at) < DECLINED_FOR);
        if self.declined.iter().any(|(other, _)| *other == tsi) || self.live.closed_at.is_some() {
            refused.foreign += 1;
            return None;
        }
        let Ok(decoded) = Packet::decode(packet, 0) else {
            refused.malformed += 1;
            return None;
        };
        if !self.live.sockets.hears(source.address.ip()) {
            self.live.counters.refused.foreign += 1;
            return None;
        }
        if !self.live.has_room(now) {
            self.live.counters.refused.sessions += 1;
            return None;
        }
        let data_port = decoded.header.data_port(kind);
        let (from, source) = (source.address, source.node);
        let heard = Heard { now, tsi, data_port, from, source, kind, packet };
        let Some(machine) = app.heard(&mut self.live, &heard) else {
            if self.declined.len() >= DECLINED_MAX {
                self.declined.remove(0);
            }
            self.declined.push((tsi, now));
            self.live.counters.refused.foreign += 1;
            return None;
        };
        let id = self.live.add(machine, SessionOptions { tsi: Some(tsi), subject: None });
        let index = self.live.sessions.iter().position(|session| session.id == id)?;
        // Its start is its first timeout, and it hears nothing before.
        self.live.touch(index, now, |machine, cx| machine.handle_timeout(cx));
        self.settle(app, index, now);
        Some(index)
    }
}

impl<M> std::fmt::Debug for Driver<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("live", &self.live).finish_non_exhaustive()
    }
}

/// How often it looks whether the interface of the group is still there.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Least time between ticks.
const TICK_MIN: Duration = Duration::from_millis(1);

/// Most of the time that a timer may be handled early.
const GRAIN_MAX: Duration = Duration::from_millis(1);

/// Most timers of one machine that are handled before packets are looked for.
const BURST_MAX: u32 = 64;

/// How long it sleeps at least while nothing can be sent.
const BLOCKED_PAUSE: Duration = Duration::from_millis(1);

/// Most system calls for receiving from one socket before timers are looked at.
const RECEIVE_CALLS_MAX: u32 = 16;

/// How long a session that the application left alone is not asked about again, and how many of
/// them are remembered.
const DECLINED_FOR: Duration = Duration::from_secs(5);
const DECLINED_MAX: usize = 64;
