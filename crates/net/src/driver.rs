//! Driver: the event loop that gives machines time and packets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use faircast_base::{Duration, GroupId, NodeId, Time};
use faircast_hop::SessionPacket;
use faircast_proto::{Datagram, Destination, Machine};
use faircast_trace::Sink;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;

use crate::demux::{Arrival, Demux, Found};
use crate::pgm::PgmDemux;
use crate::receive::Inbox;
use crate::socket::{AddressWatch, LostInterfaces};
use crate::transmit::{Flushed, Route};
use crate::via::Via;
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
    /// Readiness of each socket at the last wake-up, in the order of [`Sockets::receiving`].
    readable: Vec<bool>,
    read_at: Time,
    tick_at: Time,
    maintain_at: Time,
    addresses_changed: bool,
    lost: LostInterfaces,
}

#[derive(Clone, Copy)]
enum Channel {
    Group(GroupId),
    Way(usize),
    Relay(Destination),
}

#[derive(Clone, Copy)]
struct Origin {
    now: Time,
    channel: Channel,
    from: SocketAddr,
    marked: bool,
    authenticated: bool,
}

struct WakeUp {
    at: Time,
    writable: Option<usize>,
    gathers: bool,
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
            lost: LostInterfaces::default(),
        })
    }

    /// Sets the envelope of all datagrams.
    pub fn set_envelope(&mut self, envelope: Box<dyn Envelope>) {
        self.live.envelope = Some(envelope);
    }

    /// Routes all packets through a relay. The sockets are those of [`Sockets::via`].
    pub fn set_via(&mut self, settings: &ViaSettings) {
        self.live.via = Some(Via::new(self.live.clock.now(), settings));
    }

    /// Records the machines' traces, with the driver's time.
    pub fn set_trace(&mut self, sink: Box<dyn Sink>) {
        self.live.sessions.sink = Some(sink);
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
                let watch = self.live.sockets.watch.as_ref();
                let changes = watch.map(AddressWatch::take).unwrap_or_default();
                if changes.any_change {
                    self.maintain_at = self.maintain_at.min(now + SETTLING);
                }
                self.lost.add(changes);
            }
            if self.maintain_at <= now {
                self.maintain_at = now + MAINTENANCE;
                let lost = std::mem::take(&mut self.lost);
                self.live.sockets.maintain(now, &lost);
                self.live.outbox.allow_large();
            }
            self.live.attach();
            self.take_relayed(app, now, false);
            self.live.flush();
            let now = self.live.now();
            for id in self.live.sessions.pending.clone() {
                // Events of earlier sessions may have woken this one.
                if self.live.sessions.may_send(id) {
                    self.settle(app, id, now);
                }
            }
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
        live.sessions.arm();
        let is_done = live.sessions.pending.is_empty() && live.sessions.timeouts.first().is_none();
        let is_idle = live.outbox.is_empty() && is_done;
        let ends_when_idle = live.settings.ends_when_idle && !live.sessions.by_id.is_empty();
        if is_idle && (ends_when_idle || live.closed_at.is_some()) {
            return Some(Ended::Idle);
        }
        let closed_at = live.closed_at?;
        (live.now().since(closed_at) >= live.settings.close_timeout).then_some(Ended::TimedOut)
    }

    fn run_timers(&mut self, app: &mut dyn App<M, D>) {
        let grain = self.live.settings.grain.min(GRAIN_MAX);
        let real = self.live.clock.real();
        let skipped = self.live.clock.take_skipped();
        self.live.sessions.lateness += skipped;
        for _ in 0..BURST_MAX * self.live.sessions.by_id.len() {
            self.live.sessions.arm();
            let Some((at, id)) = self.live.sessions.timeouts.first() else { break };
            if at > real + grain || !self.live.may_send() {
                break;
            }
            let timers = &mut self.live.counters.timers;
            if at > real {
                timers.early += 1;
            } else {
                timers.fired += 1;
                timers.late_over_1ms += u64::from(real.since(at) > Duration::from_millis(1));
            }
            let now = self.live.clock.advance_to(at.max(real));
            self.live.sessions.expire(id, now, real.since(at) + skipped);
            self.settle(app, id, now);
        }
    }

    fn settle(&mut self, app: &mut dyn App<M, D>, id: SessionId, now: Time) {
        let live = &mut self.live;
        live.collect(id, now);
        while let Some(event) = live.sessions.poll_event(id) {
            app.event(live, id, event);
        }
    }

    fn wake_up(&self, now: Time) -> WakeUp {
        let live = &self.live;
        let mut at = self.tick_at.min(self.maintain_at);
        // While the relay accepts no packets, timers for sending would expire in vain.
        let has_room = live.has_room_above();
        if let Some((timeout, _)) = live.sessions.timeouts.first().filter(|_| has_room) {
            at = at.min(timeout);
        }
        if let Some(timeout) = live.via.as_ref().and_then(|via| via.host.next_timeout()) {
            at = at.min(timeout);
        }
        let mut writable = None;
        match live.flushed {
            Flushed::All if !live.sessions.pending.is_empty() && has_room => at = now,
            Flushed::All => {}
            Flushed::WhenWritable(way) => {
                writable = Some(way);
                at = at.max(now + BLOCKED_PAUSE);
            }
            Flushed::At(retry) => at = retry.max(now),
        }
        let gather = live.settings.gather.min(GATHER_MAX);
        let read_from = self.read_at + gather;
        let gathers = gather > Duration::ZERO && read_from > now && live.flushed == Flushed::All;
        WakeUp { at: if gathers { at.min(read_from) } else { at }, writable, gathers }
    }

    fn wait(&mut self) -> Result<(), NetError> {
        let real = self.live.clock.real();
        let WakeUp { at, writable, gathers } = self.wake_up(real);
        let live = &mut self.live;
        let wake_up = PollFd::new(self.commands.wake_up.as_fd(), PollFlags::POLLIN);
        let flags = |index| match writable == Some(index) {
            true => PollFlags::POLLIN | PollFlags::POLLOUT,
            false => PollFlags::POLLIN,
        };
        let polled = if gathers { 0 } else { usize::MAX };
        let sockets = live.sockets.receiving().take(polled).enumerate();
        let sockets = sockets.map(|(index, socket)| PollFd::new(socket.as_fd(), flags(index)));
        let watch = live.sockets.watch.as_ref();
        let watch = watch.map(|watch| PollFd::new(watch.fd(), PollFlags::POLLIN));
        let first = 1 + usize::from(watch.is_some());
        let mut all: Vec<_> = [wake_up].into_iter().chain(watch).chain(sockets).collect();
        let timeout = std::time::Duration::from_nanos(at.since(real).as_nanos());
        match ppoll(&mut all, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(NetError::doing("wait for packets")(error)),
        }
        let woke = live.clock.real();
        live.sessions.lateness = woke.since(at.max(real)) + live.clock.take_skipped();
        let slept = woke.since(real);
        match live.may_send() {
            true => live.counters.asleep += slept,
            false => live.counters.sent.waited += slept,
        }
        // Errors are fetched by reading, too.
        let events = PollFlags::POLLIN | PollFlags::POLLERR | PollFlags::POLLHUP;
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|any| any.intersects(events));
        self.readable.clear();
        self.readable.extend(all[first..].iter().map(is_ready));
        self.addresses_changed = all[1..first].iter().any(is_ready);
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
        for turn in 0..sockets {
            let index = if relayed { turn } else { sockets - 1 - turn };
            if !self.readable[index] {
                continue;
            }
            for _ in 0..RECEIVE_CALLS_MAX {
                let Live { sockets, counters, .. } = &mut self.live;
                let is_source = sockets.is_source;
                let Some((socket, overflowed, group)) = sockets.receiving_at(index) else { break };
                let (received, refused) = (&mut counters.received, &mut counters.refused);
                match self.inbox.receive(socket, overflowed, received, refused) {
                    Ok(more) => {
                        // An overloaded host marks packets before it loses any, like any hop.
                        let crowded = !is_source && Sockets::is_crowded(socket);
                        received.crowded += u64::from(crowded);
                        let channel = group.map_or(Channel::Way(index), Channel::Group);
                        self.handle_batch(app, channel, crowded);
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
    fn handle_batch(&mut self, app: &mut dyn App<M, D>, channel: Channel, mut crowded: bool) {
        let now = self.live.now();
        let mut inbox = std::mem::take(&mut self.inbox);
        inbox.for_each(|arrived, datagram| {
            let marked = std::mem::take(&mut crowded) || arrived.marked;
            let from = arrived.from;
            let origin = Origin { now, channel, from, marked, authenticated: false };
            self.handle_datagram(app, origin, datagram);
        });
        self.inbox = inbox;
        self.live.flush();
    }

    fn handle_datagram(&mut self, app: &mut dyn App<M, D>, origin: Origin, datagram: &mut [u8]) {
        let (live, Origin { now, channel, from, marked, .. }) = (&mut self.live, origin);
        if datagram.len() > live.sockets.settings.datagram_max {
            live.counters.refused.oversized += 1;
            return;
        }
        if let Some(via) = &mut live.via {
            let from = (!matches!(channel, Channel::Group(_))).then_some(from);
            live.counters.refused.foreign += u64::from(!via.open(now, from, marked, datagram));
            return self.take_relayed(app, now, marked);
        }
        if matches!(channel, Channel::Group(group) if live.sockets.is_own(group, from)) {
            return;
        }
        if live.sockets.settings.only_from.is_some_and(|only| only != from.ip()) {
            live.counters.refused.foreign += 1;
            return;
        }
        self.open(app, origin, datagram);
    }

    fn take_relayed(&mut self, app: &mut dyn App<M, D>, now: Time, marked: bool) {
        while let Some(packet) = self.live.via.as_mut().and_then(|via| via.host.take(now)) {
            let SessionPacket { origin: node, to, bytes } = packet;
            // No packet is sent to this placeholder of a node behind relays.
            let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(node.0)), 0);
            let channel = Channel::Relay(to);
            let origin = Origin { now, channel, from, marked, authenticated: false };
            self.open(app, origin, &mut Vec::from(bytes));
        }
        if self.live.via.as_mut().is_some_and(|via| via.host.take_new_path()) {
            self.live.for_each(|live, id| {
                live.sessions.call(id, now, |machine, cx| machine.handle_new_path(cx));
            });
        }
    }

    fn open(&mut self, app: &mut dyn App<M, D>, mut origin: Origin, datagram: &mut [u8]) {
        let (live, Origin { now, channel, from, .. }) = (&mut self.live, origin);
        let len = datagram.len();
        let mut envelope = live.envelope.take();
        origin.authenticated = envelope.as_ref().is_some_and(|envelope| envelope.authenticates());
        let plain = match &mut envelope {
            Some(envelope) => envelope.open(now, from, datagram),
            None => Some(&*datagram),
        };
        live.envelope = envelope;
        let Some(plain) = plain else {
            match (live.envelope.as_mut().and_then(|envelope| envelope.answer()), channel) {
                (Some(answer), Channel::Way(way)) => {
                    let route = Route::Address(way, from);
                    live.outbox.push(route, 0, |out| out.extend_from_slice(&answer));
                }
                _ => live.counters.refused.sealed += 1,
            }
            return;
        };
        let Some((id, node)) = self.session_of(app, origin, plain) else { return };
        let Some(to) = self.destination(id, origin) else {
            self.live.counters.refused.foreign += 1;
            return;
        };
        let received = &mut self.live.counters.received;
        received.packets += 1;
        received.bytes += len as u64;
        received.marked += u64::from(origin.marked);
        let datagram = Datagram {
            congestion_experienced: origin.marked,
            authenticated: origin.authenticated,
            ..Datagram::new(node, to, plain)
        };
        self.live.sessions.call(id, now, |machine, cx| machine.handle_datagram(cx, datagram));
        self.settle(app, id, now);
    }

    /// Returns session and sender of a packet, after the application has accepted a new session.
    /// Passes packets without a session to all machines.
    fn session_of(
        &mut self,
        app: &mut dyn App<M, D>,
        origin: Origin,
        plain: &[u8],
    ) -> Option<(SessionId, NodeId)> {
        let now = origin.now;
        let new = match self.find(origin, plain)? {
            Found::Session(id, node) => return Some((id, node)),
            Found::Any(node) => {
                let to = Destination::Node(self.live.node());
                for id in self.live.sessions().collect::<Vec<_>>() {
                    let packet = Datagram::new(node, to, plain);
                    self.live.sessions.call(id, now, |end, cx| end.handle_datagram(cx, packet));
                    self.settle(app, id, now);
                }
                return None;
            }
            Found::New(new) => new,
        };
        if matches!(origin.channel, Channel::Group(group) if group != GroupId::SESSION) {
            self.live.counters.refused.foreign += 1;
            return None;
        }
        if !self.admit(app, now, &new) {
            return None;
        }
        match self.find(origin, plain)? {
            Found::Session(id, node) => Some((id, node)),
            Found::Any(_) | Found::New(_) => None,
        }
    }

    fn find<'a>(&mut self, origin: Origin, plain: &'a [u8]) -> Option<Found<D::NewSession<'a>>> {
        let Origin { now, from, authenticated, .. } = origin;
        let Live { sockets, book, counters, demux, .. } = &mut self.live;
        let (mut moved, refused) = (None, &mut counters.refused);
        let arrival =
            Arrival { now, from, authenticated, sockets, book, refused, moved: &mut moved };
        let found = demux.find(arrival, plain);
        if let Some((old, new)) = moved {
            self.live.retarget(old, new);
        }
        found
    }

    fn destination(&mut self, id: SessionId, origin: Origin) -> Option<Destination> {
        let live = &mut self.live;
        match origin.channel {
            Channel::Group(group) if !live.sockets.is_member(group, id) => None,
            Channel::Group(group) | Channel::Relay(Destination::Group(group)) => {
                Some(Destination::Group(group))
            }
            Channel::Relay(Destination::Node(_)) => Some(Destination::Node(live.node())),
            Channel::Way(way) => {
                // Answers leave by the socket that received the request.
                if live.sockets.ways.len() > 1 {
                    live.book.set_way(origin.from, way);
                }
                Some(Destination::Node(live.node()))
            }
        }
    }

    fn admit(&mut self, app: &mut dyn App<M, D>, now: Time, new: &D::NewSession<'_>) -> bool {
        let live = &mut self.live;
        if live.closed_at.is_some() {
            live.counters.refused.foreign += 1;
            return false;
        }
        if !live.has_room(now) {
            live.counters.refused.sessions += 1;
            return false;
        }
        let Some(machine) = app.accept(live, new) else {
            live.counters.refused.foreign += 1;
            live.demux.decline(new);
            return false;
        };
        let key = live.demux.key(new);
        let id = live.add(machine, SessionOptions { key, subject: None });
        live.sessions.call(id, now, |machine, cx| machine.handle_timeout(cx));
        self.settle(app, id, now);
        true
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

/// Least wait for room in a full socket buffer, so that several packets leave together.
const BLOCKED_PAUSE: Duration = Duration::from_millis(1);

const RECEIVE_CALLS_MAX: u32 = 16;
