//! Driver: the event loop that gives machines time and packets.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use faircast_base::{Duration, GroupId, NodeId, Time};
use faircast_hop::SessionPacket;
use faircast_proto::{Datagram, Destination, Machine};
use faircast_trace::Sink;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;

use crate::demux::{Demux, Found};
use crate::pgm::PgmDemux;
use crate::receive::Inbox;
use crate::socket::Gone;
use crate::transmit::{Flushed, Route};
use crate::via::{Via, address_of};
use crate::waker::Commands;
use crate::{
    AddressBook, App, DriverSettings, Envelope, Live, NetError, SessionId, SessionOptions, Sockets,
    ViaSettings, Waker,
};

/// Drives machines of one kind over one set of sockets, in the thread that calls
/// [`run`](Self::run). After every call of a [`Machine`] the driver takes its packets, then its
/// events. Packets are sent in batches, at the latest before the thread sleeps.
pub struct Driver<M, D: Demux = PgmDemux> {
    live: Live<M, D>,
    inbox: Inbox,
    commands: Commands<M, D>,
    waker: Waker<M, D>,
    readable: Vec<bool>,
    read_at: Time,
    tick_at: Time,
    maintain_at: Time,
    addresses_changed: bool,
    addresses_gone: Gone,
}

#[derive(Clone, Copy)]
enum At {
    Group(GroupId),
    Way(usize),
    Via(Destination),
}

#[derive(Clone, Copy)]
struct Came {
    at: At,
    from: SocketAddr,
    marked: bool,
}

/// Reason for the end of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No machine had anything left to do.
    Idle,
    /// The application stopped the driver.
    Stopped,
    /// The driver was closed, and its timeout passed before all machines were done.
    TimedOut,
}

impl<M: Machine> Driver<M> {
    /// Makes a driver for PGM without machines, with an address book that learns.
    pub fn new(sockets: Sockets, settings: DriverSettings) -> Result<Self, NetError> {
        Self::with_demux(sockets, AddressBook::native(), PgmDemux::default(), settings)
    }
}

impl<M: Machine, D: Demux> Driver<M, D> {
    /// Makes a driver without machines, with this address book and demultiplexer.
    pub fn with_demux(
        sockets: Sockets,
        book: AddressBook,
        demux: D,
        settings: DriverSettings,
    ) -> Result<Self, NetError> {
        let (waker, commands) = Commands::new()?;
        Ok(Self {
            live: Live::new(sockets, book, demux, settings),
            inbox: Inbox::new(),
            commands,
            waker,
            readable: Vec::new(),
            read_at: Time::ZERO,
            tick_at: Time::ZERO,
            maintain_at: Time::ZERO + MAINTENANCE,
            addresses_changed: false,
            addresses_gone: Gone::default(),
        })
    }

    /// Sets the envelope of all datagrams.
    pub fn set_envelope(&mut self, envelope: Box<dyn Envelope>) {
        self.live.envelope = Some(envelope);
    }

    /// Routes all packets through a relay. The sockets are those of [`Sockets::via`].
    pub fn set_via(&mut self, settings: &ViaSettings) {
        self.live.set_via(settings);
    }

    /// Records the machines' traces, with the driver's time.
    pub fn set_trace(&mut self, sink: Box<dyn Sink>) {
        self.live.sink = Some(sink);
    }

    /// Returns a handle for other threads.
    pub fn waker(&self) -> Waker<M, D> {
        self.waker.clone()
    }

    /// Returns the driver's state: machines, counters, addresses.
    pub fn live(&mut self) -> &mut Live<M, D> {
        &mut self.live
    }

    /// Runs until all machines are done, or until the driver is stopped. May be called again.
    ///
    /// # Errors
    /// The system cannot wait for packets. A network that is down is no error.
    pub fn run(&mut self, app: &mut dyn App<M, D>) -> Result<Ended, NetError> {
        let slack = prctl::get_timerslack();
        // By default the kernel delays timers by up to 50 us, to handle several together.
        let _ = prctl::set_timerslack(1);
        let ended = self.run_until_ended(app);
        self.live.detach();
        if let Some(slack) = slack.ok().and_then(|slack| u64::try_from(slack).ok()) {
            let _ = prctl::set_timerslack(slack);
        }
        ended
    }

    fn run_until_ended(&mut self, app: &mut dyn App<M, D>) -> Result<Ended, NetError> {
        self.live.stopped = false;
        loop {
            while let Some(command) = self.commands.next() {
                command(&mut self.live);
            }
            let now = self.live.now();
            if self.tick_at <= now {
                self.tick_at = now + self.live.settings.tick.clamp(TICK_MIN, TICK_MAX);
                app.tick(&mut self.live);
            }
            if std::mem::take(&mut self.addresses_changed) {
                let changes = self.live.sockets.changes();
                if changes.any {
                    self.maintain_at = self.maintain_at.min(now + SETTLING);
                }
                self.addresses_gone.add(changes.gone);
            }
            if self.maintain_at <= now {
                self.maintain_at = now + MAINTENANCE;
                let gone = std::mem::take(&mut self.addresses_gone);
                self.live.sockets.maintain(now, &gone);
                self.live.outbox.allow_large();
            }
            self.live.attach();
            self.take_via(app, now, false);
            self.live.flush();
            self.settle_all(app);
            self.run_timers(app);
            self.live.flush();
            if let Some(ended) = self.ended() {
                return Ok(ended);
            }
            self.wait()?;
            self.receive_all(app);
        }
    }

    fn ended(&mut self) -> Option<Ended> {
        let live = &mut self.live;
        if live.stopped {
            return Some(Ended::Stopped);
        }
        live.arm();
        let busy = !live.touched.is_empty() || live.timeouts.first().is_some();
        let idle = live.outbox.is_empty() && !busy;
        let may = live.settings.ends_when_idle && !live.sessions.is_empty();
        if idle && (may || live.closed_at.is_some()) {
            return Some(Ended::Idle);
        }
        let closed_at = live.closed_at?;
        (live.now().since(closed_at) >= live.settings.close_timeout).then_some(Ended::TimedOut)
    }

    fn run_timers(&mut self, app: &mut dyn App<M, D>) {
        let grain = self.live.settings.grain.min(GRAIN_MAX);
        let real = self.live.clock.real();
        let skipped = self.live.clock.take_skipped();
        self.live.late += skipped;
        for _ in 0..BURST_MAX * self.live.sessions.len() {
            self.live.arm();
            let Some((at, id)) = self.live.timeouts.first() else { break };
            let may_send = self.live.blocked == Flushed::All && self.live.has_room_above();
            if at > real + grain || !may_send {
                break;
            }
            if at > real {
                self.live.counters.timers.early += 1;
            } else {
                self.live.counters.timers.fired(real.since(at));
            }
            let now = self.live.clock.advance_to(at.max(real));
            let late = self.live.late.max(real.since(at) + skipped);
            let turn = std::mem::replace(&mut self.live.late, late);
            self.live.touch(id, now, |machine, cx| machine.handle_timeout(cx));
            self.live.late = turn;
            self.settle(app, id, now);
        }
    }

    fn settle_all(&mut self, app: &mut dyn App<M, D>) {
        let now = self.live.now();
        for id in self.live.touched.clone() {
            if self.live.sessions.get(&id).is_some_and(|session| session.ready) {
                self.settle(app, id, now);
            }
        }
    }

    fn settle(&mut self, app: &mut dyn App<M, D>, id: SessionId, now: Time) {
        let live = &mut self.live;
        live.collect(id, now);
        while let Some(session) = live.sessions.get_mut(&id) {
            let Some(event) = session.machine.poll_event() else { break };
            app.event(live, id, event);
        }
    }

    fn wait(&mut self) -> Result<(), NetError> {
        let live = &mut self.live;
        let real = live.clock.real();
        let mut until = self.tick_at.min(self.maintain_at);
        // While the relay accepts no packets, timers for sending would expire in vain.
        let has_room = live.has_room_above();
        if let Some((at, _)) = live.timeouts.first().filter(|_| has_room) {
            until = until.min(at);
        }
        if let Some(at) = live.via.as_ref().and_then(|via| via.next_timeout()) {
            until = until.min(at);
        }
        let mut full = None;
        match live.blocked {
            Flushed::All if !live.touched.is_empty() && has_room => until = real,
            Flushed::All => {}
            Flushed::WhenWritable(way) => {
                full = Some(way);
                until = until.max(real + BLOCKED_PAUSE);
            }
            Flushed::At(at) => until = at.max(real),
        }
        // Packets that arrive during the pause do not wake the driver; only the timeout does.
        let gathers = live.settings.gather.min(GATHER_MAX);
        let read_from = self.read_at + gathers;
        let leaves = gathers > Duration::ZERO && read_from > real && live.blocked == Flushed::All;
        if leaves {
            until = until.min(read_from);
        }
        let wake_up = PollFd::new(self.commands.wake_up.as_fd(), PollFlags::POLLIN);
        let flags = |index| match full == Some(index) {
            true => PollFlags::POLLIN | PollFlags::POLLOUT,
            false => PollFlags::POLLIN,
        };
        let sockets = live.sockets.hearing().take(if leaves { 0 } else { usize::MAX }).enumerate();
        let sockets = sockets.map(|(index, socket)| PollFd::new(socket.as_fd(), flags(index)));
        let watch = live.sockets.watch().map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let first = 1 + usize::from(watch.is_some());
        let mut all: Vec<_> = [wake_up].into_iter().chain(watch).chain(sockets).collect();
        let timeout = std::time::Duration::from_nanos(until.since(real).as_nanos());
        match ppoll(&mut all, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(NetError::socket("wait for packets", error)),
        }
        let woke = live.clock.real();
        live.late = woke.since(until.max(real)) + live.clock.take_skipped();
        let slept = woke.since(real);
        match live.blocked {
            Flushed::All if has_room => live.counters.asleep += slept,
            _ => live.counters.sent.waited += slept,
        }
        // Errors are fetched by reading, too.
        let other = PollFlags::POLLIN | PollFlags::POLLERR | PollFlags::POLLHUP;
        let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| events.intersects(other));
        self.readable.clear();
        self.readable.extend(all[first..].iter().map(ready));
        self.addresses_changed = all[1..first].iter().any(ready);
        if self.readable.contains(&true) {
            self.read_at = live.clock.real();
        }
        if all[0].any().unwrap_or(false) {
            self.commands.clear();
        }
        Ok(())
    }

    /// Reads within limits, so that timers run in between: groups first. A membership change
    /// meanwhile shifts the indices; a read then finds nothing or comes a turn later.
    fn receive_all(&mut self, app: &mut dyn App<M, D>) {
        let relayed = self.live.via.is_some();
        let sockets = self.readable.len();
        for place in 0..sockets {
            let index = if relayed { place } else { sockets - 1 - place };
            if !self.readable[index] {
                continue;
            }
            for _ in 0..RECEIVE_CALLS_MAX {
                let Live { sockets, counters, .. } = &mut self.live;
                let is_source = sockets.is_source;
                let Some((socket, overflowed, group)) = sockets.hearer(index) else { break };
                let (received, refused) = (&mut counters.received, &mut counters.refused);
                match self.inbox.receive(socket, overflowed, received, refused) {
                    Ok((count, more)) => {
                        // An overloaded host marks packets before it loses any, like any hop.
                        let crowded = !is_source && Sockets::is_crowded(socket);
                        received.crowded += u64::from(crowded);
                        let at = group.map_or(At::Way(index), At::Group);
                        self.take_batch(app, count, at, crowded);
                        if !more {
                            break;
                        }
                    }
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    // ICMP error of an earlier packet, or a temporary lack of memory.
                    Err(_) => {
                        self.live.counters.sent.failures += 1;
                        break;
                    }
                }
            }
        }
    }

    /// From a crowded socket the first datagram counts as marked: one for each read.
    fn take_batch(&mut self, app: &mut dyn App<M, D>, count: usize, at: At, crowded: bool) {
        let mut crowded = crowded;
        let now = self.live.now();
        let mut inbox = std::mem::replace(&mut self.inbox, Inbox::none());
        for index in 0..count {
            let entry = inbox.entry(index);
            for datagram in inbox.datagrams(entry) {
                let marked = std::mem::take(&mut crowded) || entry.marked;
                self.take(app, now, Came { at, from: entry.from, marked }, datagram);
            }
        }
        self.inbox = inbox;
        self.live.flush();
    }

    fn take(&mut self, app: &mut dyn App<M, D>, now: Time, came: Came, datagram: &mut [u8]) {
        let (live, Came { at, from, marked }) = (&mut self.live, came);
        let len = datagram.len();
        if len > live.sockets.settings.datagram_max {
            live.counters.refused.oversized += 1;
            return;
        }
        if let Some(via) = &mut live.via {
            let from = (!matches!(at, At::Group(_))).then_some(from);
            live.counters.refused.foreign += u64::from(!via.open(now, from, marked, datagram));
            return self.take_via(app, now, marked);
        }
        if let At::Group(group) = at
            && live.sockets.is_own(group, from)
        {
            return;
        }
        if live.sockets.settings.only_from.is_some_and(|only| only != from.ip()) {
            live.counters.refused.foreign += 1;
            return;
        }
        self.open(app, now, came, datagram);
    }

    fn take_via(&mut self, app: &mut dyn App<M, D>, now: Time, marked: bool) {
        while let Some(packet) = self.live.via.as_mut().and_then(|via| via.take(now)) {
            let SessionPacket { origin, to, bytes } = packet;
            let came = Came { at: At::Via(to), from: address_of(origin), marked };
            self.open(app, now, came, &mut Vec::from(bytes));
        }
        if self.live.via.as_mut().is_some_and(Via::take_new_path) {
            for id in self.live.sessions().collect::<Vec<_>>() {
                self.live.touch(id, now, |machine, cx| machine.handle_new_path(cx));
            }
        }
    }

    fn open(&mut self, app: &mut dyn App<M, D>, now: Time, came: Came, datagram: &mut [u8]) {
        let (live, Came { at, from, marked }) = (&mut self.live, came);
        let len = datagram.len();
        let mut envelope = live.envelope.take();
        let authenticated = envelope.as_ref().is_some_and(|envelope| envelope.authenticates());
        let plain = match &mut envelope {
            Some(envelope) => envelope.open(now, from, datagram),
            None => Some(&*datagram),
        };
        live.envelope = envelope;
        let Some(plain) = plain else {
            match (live.envelope.as_mut().and_then(|envelope| envelope.answer()), at) {
                (Some(answer), At::Way(way)) => {
                    let route = Route::Address(way, from);
                    live.outbox.push(route, 0, |out| out.extend_from_slice(&answer));
                }
                _ => live.counters.refused.sealed += 1,
            }
            return;
        };
        let (id, node) = match self.live.find(now, from, authenticated, plain) {
            Some(Found::Session(id, node)) => (id, node),
            Some(Found::Any(node)) => return self.give_all(app, now, node, plain),
            Some(Found::New(_)) if matches!(at, At::Group(group) if group != GroupId::SESSION) => {
                self.live.counters.refused.foreign += 1;
                return;
            }
            Some(Found::New(heard)) => {
                if !self.admit(app, now, &heard) {
                    return;
                }
                let Some(Found::Session(id, node)) =
                    self.live.find(now, from, authenticated, plain)
                else {
                    return;
                };
                (id, node)
            }
            None => return,
        };
        let to = match at {
            At::Group(group) if !self.live.sockets.is_member(group, id) => {
                self.live.counters.refused.foreign += 1;
                return;
            }
            At::Group(group) | At::Via(Destination::Group(group)) => Destination::Group(group),
            At::Via(Destination::Node(_)) => Destination::Node(self.live.node),
            At::Way(way) => {
                // Answers leave by the socket that received the request.
                if self.live.sockets.ways.len() > 1 {
                    self.live.book.heard_by(from, way);
                }
                Destination::Node(self.live.node)
            }
        };
        let received = &mut self.live.counters.received;
        received.packets += 1;
        received.bytes += len as u64;
        received.marked += u64::from(marked);
        let datagram = Datagram {
            congestion_experienced: marked,
            authenticated,
            ..Datagram::new(node, to, plain)
        };
        self.live.touch(id, now, |machine, cx| machine.handle_datagram(cx, datagram));
        self.settle(app, id, now);
    }

    fn give_all(&mut self, app: &mut dyn App<M, D>, now: Time, node: NodeId, plain: &[u8]) {
        let to = Destination::Node(self.live.node);
        let all: Vec<SessionId> = self.live.sessions().collect();
        for id in all {
            let datagram = Datagram::new(node, to, plain);
            self.live.touch(id, now, |machine, cx| machine.handle_datagram(cx, datagram));
            self.settle(app, id, now);
        }
    }

    fn admit(&mut self, app: &mut dyn App<M, D>, now: Time, heard: &D::Heard<'_>) -> bool {
        let live = &mut self.live;
        if live.closed_at.is_some() {
            live.counters.refused.foreign += 1;
            return false;
        }
        if !live.has_room(now) {
            live.counters.refused.sessions += 1;
            return false;
        }
        let Some(machine) = app.heard(live, heard) else {
            live.counters.refused.foreign += 1;
            live.demux.decline(heard);
            return false;
        };
        let key = live.demux.key(heard);
        let id = live.add(machine, SessionOptions { key, subject: None });
        live.touch(id, now, |machine, cx| machine.handle_timeout(cx));
        self.settle(app, id, now);
        true
    }
}

impl<M, D: Demux> std::fmt::Debug for Driver<M, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("live", &self.live).finish_non_exhaustive()
    }
}

const MAINTENANCE: Duration = Duration::from_secs(1);

/// Wait after a kernel notice, since addresses are often replaced by several changes in a row.
const SETTLING: Duration = Duration::from_millis(20);

const TICK_MIN: Duration = Duration::from_millis(1);
/// Longest time between ticks: less than a step by which a clock jump is detected.
const TICK_MAX: Duration = Duration::from_millis(500);

const GRAIN_MAX: Duration = Duration::from_millis(1);

const GATHER_MAX: Duration = Duration::from_millis(2);

const BURST_MAX: usize = 64;

const BLOCKED_PAUSE: Duration = Duration::from_millis(1);

const RECEIVE_CALLS_MAX: u32 = 16;
