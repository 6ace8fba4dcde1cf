//! Drives a relay over a UDP socket.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faircast_base::{Cx, Duration, NodeId, Purpose, Rng, Time};
use faircast_proto::hop::{Attach, Guard, HopNode, HopSettings, HopStatus, Sends, node_of};
use faircast_proto::relay::Relay;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::clock::Clock;
use crate::live::system_seed;
use crate::receive::Inbox;
use crate::transmit::{Flushed, Outbox, Route};
use crate::{Counters, Multicast, NetError, SocketSettings, Sockets};

/// How a relay is set up.
#[derive(Clone)]
pub struct RelaySettings {
    /// Where it hears.
    pub listen: SocketAddr,
    /// The relays above, of which the first that answers is taken; none for the uppermost.
    pub parents: Vec<SocketAddr>,
    /// Where it sends by multicast, for hosts that hear it there, once on each interface; nowhere for `None`.
    pub multicast: Option<Multicast>,
    /// The key of all hosts and relays, where they have one.
    pub key: Option<[u8; 32]>,
    /// How many of everything it takes.
    pub hop: HopSettings,
    /// Its socket.
    pub sockets: SocketSettings,
}

impl std::fmt::Debug for RelaySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { listen, parents, hop, .. } = self;
        f.debug_struct("RelaySettings")
            .field("listen", listen)
            .field("parents", parents)
            .field("hop", hop)
            .finish_non_exhaustive()
    }
}

/// A relay with its socket.
#[derive(Debug)]
pub struct RelayDriver {
    node: HopNode,
    sockets: Sockets,
    inbox: Inbox,
    outbox: Outbox,
    blocked: Flushed,
    clock: Clock,
    rng: Rng,
    counters: Counters,
    stop: Arc<AtomicBool>,
    /// The place of the socket by which it hears; those before it are the networks to which it sends by multicast.
    way: usize,
    group: Option<SocketAddr>,
    maintain_at: Time,
}

/// Where its frames go.
struct Out<'a> {
    outbox: &'a mut Outbox,
    sockets: &'a mut Sockets,
    counters: &'a mut Counters,
    blocked: &'a mut Flushed,
    now: Time,
    way: usize,
    group: Option<SocketAddr>,
}

impl Out<'_> {
    fn push(&mut self, route: Route, write: impl FnOnce(&mut Vec<u8>)) {
        // While nothing can leave, what comes beside data is for a few neighbours, and they ask again.
        if self.outbox.is_full() && *self.blocked != Flushed::All {
            self.counters.sent.unsent += 1;
            return;
        }
        self.counters.sent.packets += 1;
        self.outbox.push(route, 0, write);
        if self.outbox.is_full() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        *self.blocked = if self.outbox.is_empty() {
            Flushed::All
        } else {
            self.outbox.flush(self.now, self.sockets, &mut self.counters.sent)
        };
    }
}

impl Sends for Out<'_> {
    fn has_room(&self) -> bool {
        *self.blocked == Flushed::All
    }

    fn send(&mut self, to: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(Route::Address(self.way, to), write);
    }

    fn send_to_network(&mut self, network: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(group) = self.group {
            self.push(Route::Address(network, group), write);
        }
    }
}

impl RelayDriver {
    /// Opens the socket of a relay with the program that `program` makes for its node.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn new(
        settings: &RelaySettings,
        program: impl FnOnce(NodeId) -> Box<dyn Relay + Send>,
    ) -> Result<Self, NetError> {
        let other = settings.parents.iter().find(|it| it.is_ipv4() != settings.listen.is_ipv4());
        if let Some(other) = other {
            return Err(NetError::Family(settings.listen.ip(), other.ip()));
        }
        let RelaySettings { listen, multicast, .. } = settings;
        let sockets = Sockets::relay(*listen, multicast.clone(), settings.sockets.clone())?;
        let way = sockets.ways.len() - 1;
        let seed = system_seed();
        let mut secret = [0; 32];
        secret.chunks_mut(8).for_each(|part| part.copy_from_slice(&system_seed().to_be_bytes()));
        // Another one each time that it is started: who is attached finds that it has forgotten all.
        let node = node_of(system_seed());
        let parent =
            (!settings.parents.is_empty()).then(|| Attach::new(settings.parents.clone(), true));
        let guard = Guard::new(node, settings.key);
        let group = multicast.as_ref().map(|multicast| multicast.group);
        let mut hop = HopNode::new(guard, secret, parent, settings.hop, program(node));
        if let Some(group) = group {
            hop.set_multicast(group, way);
        }
        Ok(Self {
            node: hop,
            outbox: Outbox::new(&sockets),
            sockets,
            inbox: Inbox::new(),
            blocked: Flushed::All,
            clock: Clock::new(),
            rng: Rng::new(seed, node, Purpose::Relay),
            counters: Counters::default(),
            stop: Arc::default(),
            way,
            group,
            maintain_at: Time::ZERO + MAINTENANCE,
        })
    }

    /// The address that it has, with its port.
    pub fn local_address(&self) -> SocketAddr {
        self.sockets.last_address()
    }

    /// How it stands.
    pub fn status(&self) -> HopStatus {
        self.node.status()
    }

    /// Set to true, it ends soon.
    pub fn stopper(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Works until it is stopped, and tells a few times a second how it stands.
    ///
    /// # Errors
    /// The system refuses to wait for packets.
    pub fn run(&mut self, mut tell: impl FnMut(&HopStatus, &Counters)) -> Result<(), NetError> {
        let mut tell_at = Time::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            if tell_at <= now {
                tell_at = now + TELL;
                tell(&self.node.status(), &self.counters);
            }
            if self.maintain_at <= now {
                self.maintain_at = now + MAINTENANCE;
                let gone = self.sockets.changes().gone;
                self.sockets.maintain(now, &gone);
                self.outbox.allow_large();
            }
            if self.node.next_timeout() <= now {
                self.with(now, |node, cx, out| node.handle_timeout(cx, out));
            }
            self.flush(now);
            if self.node.waits_for_room() && self.blocked == Flushed::All {
                self.with(now, |node, cx, out| node.handle_writable(cx, out));
                self.flush(now);
            }
            self.wait(tell_at)?;
            self.receive()?;
        }
        let now = self.clock.now();
        self.with(now, |node, _, out| node.leave(out));
        self.flush(now);
        Ok(())
    }

    fn with(&mut self, now: Time, f: impl FnOnce(&mut HopNode, &mut Cx<'_>, &mut Out<'_>)) {
        let Self { node, sockets, outbox, blocked, counters, rng, way, group, .. } = self;
        let mut cx = Cx::untraced(now, rng);
        let (way, group) = (*way, *group);
        f(node, &mut cx, &mut Out { outbox, sockets, counters, blocked, now, way, group });
    }

    fn flush(&mut self, now: Time) {
        self.with(now, |_, _, out| out.flush());
    }

    fn wait(&mut self, until: Time) -> Result<(), NetError> {
        let real = self.clock.real();
        let until = match self.blocked {
            Flushed::At(at) => until.min(at),
            Flushed::All if self.node.waits_for_room() => real,
            _ => until.min(self.node.next_timeout()),
        };
        let full = match self.blocked {
            Flushed::WhenWritable(way) => Some(way),
            _ => None,
        };
        let ways = self.sockets.ways.iter().enumerate();
        let mut fds: Vec<PollFd<'_>> = ways
            .filter(|(way, _)| *way == self.way || full == Some(*way))
            .map(|(way, of)| {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::POLLIN, way == self.way);
                flags.set(PollFlags::POLLOUT, full == Some(way));
                PollFd::new(of.socket.as_fd(), flags)
            })
            .collect();
        let timeout = std::time::Duration::from_nanos(until.since(real).as_nanos());
        match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(NetError::socket("wait for packets", error)),
        }
    }

    fn receive(&mut self) -> Result<(), NetError> {
        for _ in 0..RECEIVE_CALLS_MAX {
            let Some((socket, overflowed, _)) = self.sockets.hearer(self.way) else {
                return Ok(());
            };
            let Counters { received, refused, .. } = &mut self.counters;
            match self.inbox.receive(socket, overflowed, received, refused) {
                Ok((count, more)) => {
                    let now = self.clock.now();
                    let mut inbox = std::mem::replace(&mut self.inbox, Inbox::none());
                    for index in 0..count {
                        let entry = inbox.entry(index);
                        for datagram in inbox.datagrams(entry) {
                            self.counters.received.packets += 1;
                            self.counters.received.bytes += datagram.len() as u64;
                            self.with(now, |node, cx, out| {
                                node.handle_datagram(cx, entry.from, datagram, out);
                            });
                        }
                    }
                    self.inbox = inbox;
                    if !more {
                        return Ok(());
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                // What an earlier packet met on its way, or memory that is short for now.
                Err(_) => {
                    self.counters.sent.failures += 1;
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// How often it tells how it stands.
const TELL: Duration = Duration::from_millis(100);

/// How often it looks whether its interfaces are still there.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Most system calls for receiving before timers are looked at.
const RECEIVE_CALLS_MAX: u32 = 16;
