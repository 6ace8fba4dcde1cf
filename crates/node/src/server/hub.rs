//! Task of the daemon: requests of all clients, links to other daemons, timers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faircast_base::{Cx, NodeId, Purpose, Rng, Time, fresh};
use faircast_hop::DaemonNode;
use faircast_net::Datagrams;
use faircast_overlay::{
    ClientId, Daemon, DaemonRun, GROUP_BYTES_MAX, GROUPS_MAX, MESSAGE_BYTES_MAX, Outgoing,
    SendError, WaitReason,
};
use smallvec::SmallVec;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ToHub;
use super::connection::{Hello, Requests};
use super::outbox::{Outbox, ROOM_BYTES};
use super::report::ServerCounters;
use faircast_overlay::protocol::{Frame, ReasonCode, Welcome};

const SESSIONS_MAX: usize = 65_536;
const TURN_MAX: usize = 64;
/// Maximum bytes of requests in a turn: more could outrun the writes and cut off a client.
const TURN_BYTES: usize = ROOM_BYTES / 2;
/// Maximum number of consecutive turns that only fill outboxes, with at most 2 MB per client.
const FILLS_MAX: u32 = 8;
/// Maximum interval between two reads of the clock: 100 ms.
const TICK: faircast_base::Duration = faircast_base::Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) name: Bytes,
    pub(super) outbox: Option<Arc<Outbox>>,
    pending: VecDeque<Requests>,
    pub(super) taken: u64,
    pub(super) waiting: Option<WaitReason>,
    /// True if the client is queued for a turn, or waits for a retry or a slow member.
    is_stalled: bool,
    /// True if the client has said goodbye: the session ends with its last request.
    is_leaving: bool,
}

#[derive(Debug, Default)]
struct Turns {
    queue: VecDeque<ClientId>,
    /// True if the queue waits only for the next turn of the task.
    is_over: bool,
    /// Clients that wait for slow members of groups, until [`Daemon::releases`] grows.
    held: Vec<ClientId>,
    releases: u64,
}

pub(super) struct Hub {
    pub(super) node: DaemonNode,
    pub(super) socket: Datagrams,
    /// Second handle of `socket`, which tells when datagrams have arrived.
    arrivals: UdpSocket,
    pub(super) me: DaemonRun,
    pub(super) name: String,
    pub(super) peers: usize,
    rng: Rng,
    /// Time of this turn, and its delay after the time that was due.
    pub(super) now: Time,
    late: faircast_base::Duration,
    pub(super) sessions: BTreeMap<ClientId, Session>,
    by_name: BTreeMap<Bytes, ClientId>,
    turns: Turns,
    last_id: u32,
    /// Time at which the socket has room for more datagrams.
    send_at: Option<Time>,
    peers_at: Time,
    pub(super) counters: ServerCounters,
}

impl Hub {
    pub(super) fn new(
        node: DaemonNode,
        (socket, arrivals): (Datagrams, UdpSocket),
        (me, name, peers): (DaemonRun, String, usize),
        seed: u64,
    ) -> Self {
        let rng = Rng::new(seed, NodeId(0), Purpose::Machine(0));
        fresh! {
            Self { node, socket, arrivals, me, name, peers, rng, }
            now, late, sessions, by_name, turns, last_id, send_at, peers_at, counters
        }
    }

    /// `rooms` yields clients whose outboxes have room again.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<ToHub>,
        mut rooms: mpsc::UnboundedReceiver<ClientId>,
    ) {
        let mut turn = Vec::with_capacity(TURN_MAX);
        let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let (mut armed, mut may_read, mut fills) = (Time::ZERO, true, 0);
        loop {
            let at = self.next_timeout();
            if at != armed {
                armed = at;
                let wait = Duration::from_nanos(at.since(self.now).as_nanos());
                sleep.as_mut().reset(Instant::now() + wait);
            }
            let is_busy = may_read || self.turns.is_over || fills > 0;
            let filled = self.counters.events;
            // Requests and datagrams alternate, so that neither starves the other.
            tokio::select! {
                count = requests.recv_many(&mut turn, TURN_MAX) => {
                    if count == 0 {
                        return self.stop();
                    }
                }
                Ok(()) = self.arrivals.readable(), if !may_read => may_read = true,
                Some(id) = rooms.recv() => self.fill(id),
                () = tokio::task::yield_now(), if is_busy => {}
                () = sleep.as_mut() => armed = Time::MAX,
            }
            (self.now, self.late) = self.socket.now();
            self.late = self.late.max(self.now.since(at));
            while let Ok(id) = rooms.try_recv() {
                self.fill(id);
            }
            let takes = self.counters.events == filled || fills == FILLS_MAX;
            fills = if takes { 0 } else { fills + 1 };
            if may_read && takes {
                may_read = self.receive();
            }
            for message in turn.drain(..) {
                match message {
                    ToHub::Open { hello, outbox, reply } => {
                        let _ = reply.send(self.open(hello, outbox));
                    }
                    ToHub::Requests(id, requests) => self.take(id, requests),
                    ToHub::Lost(id) => self.suspend(id),
                    ToHub::Gone(id) => self.leave(id),
                    ToHub::Report(reply) => _ = reply.send(self.report()),
                    ToHub::Stop => return self.stop(),
                }
            }
            self.handle_timeouts();
            if takes {
                self.retry();
            }
            while let Some(id) = self.node.poll_end() {
                self.forget(id);
            }
            while let Some(id) = self.node.daemon_mut().poll_ready_client() {
                self.fill(id);
            }
            self.transmit();
        }
    }

    fn next_timeout(&self) -> Time {
        let own = self.node.next_timeout().into_iter().chain(self.send_at).min();
        own.unwrap_or(Time::MAX).min(self.now + TICK)
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Daemon, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx { late: self.late, ..Cx::untraced(self.now, &mut self.rng) };
        self.node.with(&mut cx, act)
    }

    fn handle_timeouts(&mut self) {
        let mut cx = Cx { late: self.late, ..Cx::untraced(self.now, &mut self.rng) };
        if self.now >= self.peers_at {
            self.peers_at = self.now + TICK;
            let links = self.node.links().filter(|link| link.1.is_some()).count();
            if let Some(peers) = self.socket.poll_peers(self.now, links < self.peers) {
                self.node.set_peers(&mut cx, &peers);
            }
        }
        if self.node.next_timeout().is_some_and(|at| at <= self.now) {
            self.node.handle_timeout(&mut cx);
        }
    }

    fn receive(&mut self) -> bool {
        let Self { node, socket, arrivals, rng, now, late, .. } = self;
        let mut cx = Cx { late: *late, ..Cx::untraced(*now, rng) };
        let mut read = || {
            socket.receive(|from, marked, bytes| {
                node.handle_datagram(&mut cx, from, marked, bytes);
            })
        };
        let read = arrivals.try_io(Interest::READABLE, || match read() {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        });
        read.is_ok()
    }

    fn transmit(&mut self) {
        let Self { node, socket, now, .. } = self;
        self.send_at = socket.send(*now, |packet| node.poll_transmit(*now, packet));
    }

    fn open(
        &mut self,
        hello: Hello,
        outbox: Arc<Outbox>,
    ) -> Result<ClientId, (ReasonCode, String)> {
        let Hello { name, incarnation, next, .. } = hello;
        let old = self.by_name.get(&name).copied();
        if old.is_none() && self.sessions.len() >= SESSIONS_MAX {
            return Err((ReasonCode::TooManyClients, format!("at most {SESSIONS_MAX} sessions")));
        }
        self.last_id += 1;
        let id = ClientId(self.last_id);
        let resumes = next > 0;
        if resumes {
            let resumed = self.with(|daemon, _| daemon.resume(id, (&name, incarnation), next));
            resumed.map_err(|_| (ReasonCode::SessionOver, format!("no event {next}")))?;
            self.counters.resumed += 1;
        } else {
            let connected =
                self.with(|daemon, cx| daemon.connect(cx, id, name.clone(), incarnation));
            let text = String::from_utf8_lossy(&name);
            connected.map_err(|_| {
                (ReasonCode::NameUnavailable, format!("\"{text}\", run {incarnation}"))
            })?;
            self.counters.sessions += 1;
        }
        let old = old.and_then(|old| self.sessions.remove(&old));
        if let Some(outbox) = old.as_ref().and_then(|old| old.outbox.as_ref()) {
            outbox.close(ReasonCode::Replaced, String::new());
        }
        let taken = old.filter(|_| resumes).map_or(0, |old| old.taken);
        let welcome = Frame::Welcome(Welcome {
            daemon: self.me,
            view: self.node.daemon().view().0,
            taken,
            message_bytes: MESSAGE_BYTES_MAX as u32,
            groups: GROUPS_MAX as u8,
            group_bytes: GROUP_BYTES_MAX as u8,
            full_name: [&name[..], b"@", self.name.as_bytes()].concat().into(),
        });
        let answer = [welcome].into_iter().chain(resumes.then_some(Frame::Resumed));
        outbox.update(|it| it.frames.extend(answer));
        tracing::debug!(
            target: "faircast::session",
            name = %String::from_utf8_lossy(&name), incarnation, next, "a client is here"
        );
        self.by_name.insert(name.clone(), id);
        let session = fresh! {
            Session { name, outbox: Some(outbox), taken, } pending, waiting, is_stalled, is_leaving
        };
        self.sessions.insert(id, session);
        Ok(id)
    }

    fn take(&mut self, id: ClientId, requests: Requests) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.pending.push_back(requests);
        if !std::mem::replace(&mut session.is_stalled, true) {
            self.turns.queue.push_back(id);
        }
    }

    fn retry(&mut self) {
        let releases = self.node.daemon().releases();
        let turns = &mut self.turns;
        if std::mem::replace(&mut turns.releases, releases) != releases {
            turns.queue.extend(turns.held.drain(..));
        }
        turns.queue.extend(std::iter::from_fn(|| self.node.daemon_mut().poll_retry()));
        turns.is_over = false;
        let mut room = TURN_BYTES;
        while let Some(id) = self.turns.queue.pop_front() {
            if self.advance(id, &mut room) {
                return;
            }
            if room == 0 {
                self.turns.is_over = !self.turns.queue.is_empty();
                return;
            }
        }
    }

    /// Handles at most `room` bytes. True if none was possible for a reason common to all clients.
    fn advance(&mut self, id: ClientId, room: &mut usize) -> bool {
        let (is_done, waiting) = self.handle(id, room);
        match waiting {
            None => match self.sessions.get_mut(&id) {
                Some(session) if !session.pending.is_empty() => self.turns.queue.push_back(id),
                Some(session) => session.is_stalled = false,
                None => {}
            },
            Some(WaitReason::Held) => self.turns.held.push(id),
            // The daemon schedules the retry.
            Some(WaitReason::Price { .. }) => {}
            Some(_) if is_done => self.turns.queue.push_back(id),
            Some(_) => self.turns.queue.push_front(id),
        }
        let is_own = matches!(waiting, Some(WaitReason::Held | WaitReason::Price { .. }));
        waiting.is_some() && !is_own && !is_done
    }

    /// Returns true if any request was handled, and why the others wait, unless for `room`.
    fn handle(&mut self, id: ClientId, room: &mut usize) -> (bool, Option<WaitReason>) {
        let Some(session) = self.sessions.get_mut(&id) else { return (false, None) };
        let before = session.taken;
        let mut cx = Cx { late: self.late, ..Cx::untraced(self.now, &mut self.rng) };
        let counters = &mut self.counters;
        let waiting = self.node.with(&mut cx, |daemon, cx| {
            while let Some(requests) = session.pending.front_mut() {
                // Half a batch would become half a write.
                if *room == 0 {
                    return None;
                }
                while let Some((number, bytes, request)) = requests.queue.front() {
                    *room = room.saturating_sub(*bytes);
                    let done = match *number > session.taken {
                        true => perform(daemon, cx, id, request, counters),
                        // The client repeated the request after it was handled.
                        false => Ok(()),
                    };
                    match done {
                        Ok(()) => {}
                        Err(SendError::Price) => return Some(price_of(daemon, id, request)),
                        Err(
                            error @ (SendError::Changing | SendError::Retention | SendError::Held),
                        ) => return Some(ReasonCode::from(error).into()),
                        Err(error) => {
                            counters.refused += 1;
                            daemon.refuse_request(id, *number, error);
                        }
                    }
                    session.taken = session.taken.max(*number);
                    requests.queue.pop_front();
                }
                session.pending.pop_front();
            }
            None
        });
        let is_done = session.taken > before;
        if let Some(outbox) = &session.outbox {
            if is_done {
                outbox.update(|it| it.sent = Some(session.taken));
            }
            if session.waiting.map(ReasonCode::from) != waiting.map(ReasonCode::from) {
                outbox.update(|it| it.waiting = Some(waiting));
            }
        }
        if waiting.is_some() && session.waiting.is_none() {
            counters.waits += 1;
        }
        session.waiting = waiting;
        if waiting.is_none() && session.is_leaving {
            self.leave(id);
        }
        (is_done, waiting)
    }

    fn fill(&mut self, id: ClientId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(outbox) = &session.outbox else { return };
        if self.node.daemon().is_cut(id) {
            let (event, waiting) = self.node.daemon().client_queue(id).unwrap_or_default();
            self.counters.cuts += 1;
            tracing::warn!(
                target: "faircast::session",
                name = %String::from_utf8_lossy(&session.name), event, waiting,
                "a client is too slow and has lost events; its connection is closed"
            );
            let text = format!("{waiting} bytes wait after event {event}; the client can resume");
            outbox.close(ReasonCode::ClientTooSlow, text);
            return self.suspend(id);
        }
        self.counters.events += outbox.fill(|| self.node.daemon_mut().poll_client(id));
    }

    fn suspend(&mut self, id: ClientId) {
        let session = self.sessions.get_mut(&id).and_then(|session| session.outbox.take());
        if session.is_some() {
            let now = self.now;
            self.with(|daemon, _| daemon.suspend(now, id));
        }
    }

    fn leave(&mut self, id: ClientId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if !session.pending.is_empty() {
            (session.is_leaving, session.outbox) = (true, None);
            return;
        }
        self.forget(id);
        self.with(|daemon, cx| daemon.disconnect(cx, id));
    }

    fn forget(&mut self, id: ClientId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        if self.by_name.get(&session.name) == Some(&id) {
            self.by_name.remove(&session.name);
        }
        if let Some(outbox) = session.outbox {
            outbox.close(ReasonCode::Replaced, String::new());
        }
    }

    fn stop(mut self) {
        for outbox in self.sessions.values().filter_map(|session| session.outbox.as_ref()) {
            outbox.close(ReasonCode::Shutdown, String::new());
        }
        self.node.handle_close(self.now);
        self.transmit();
    }
}

fn price_of(daemon: &mut Daemon, id: ClientId, request: &Frame) -> WaitReason {
    let Frame::Send { service, benefit, groups, .. } = request else {
        return WaitReason::Retention;
    };
    let groups: SmallVec<[&[u8]; 4]> = groups.iter().collect();
    let message = Outgoing { benefit: *benefit, ..Outgoing::new(*service, &groups, &[]) };
    let (price, purse) = daemon.quote(id, &message).unwrap_or_default();
    let cents = |dollars: f64| (dollars * 100.0) as i32;
    WaitReason::Price { price_cents: cents(price) as u32, purse_cents: cents(purse) }
}

fn perform(
    daemon: &mut Daemon,
    cx: &mut Cx<'_>,
    id: ClientId,
    request: &Frame,
    counters: &mut ServerCounters,
) -> Result<(), SendError> {
    match request {
        // The daemon stores the names, which must not keep the connection's buffer in memory.
        Frame::Join { group, holds_senders, .. } => {
            daemon.join(cx, id, Bytes::copy_from_slice(group), *holds_senders)
        }
        Frame::Leave { group, .. } => daemon.part(cx, id, Bytes::copy_from_slice(group)),
        Frame::Send { request, service, wants_receipt, view, benefit, groups, payload } => {
            let groups: SmallVec<[&[u8]; 4]> = groups.iter().collect();
            let message = Outgoing {
                service: *service,
                groups: &groups,
                payload,
                request: *request,
                wants_receipt: *wants_receipt,
                view: *view,
                benefit: *benefit,
            };
            daemon.send(cx, id, &message)?;
            counters.messages += 1;
            counters.message_bytes += payload.len() as u64;
            Ok(())
        }
        _ => Ok(()),
    }
}
