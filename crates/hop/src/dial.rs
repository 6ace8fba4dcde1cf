//! Keeping a connection to one of several nodes.

use faircast_base::{Duration, NodeId, Time};

use crate::endpoint::{ConnectionHandle, Endpoint};

/// Longest silence on a connection before another one is tried beside it, and before nodes heard
/// there may be elsewhere: answers to keep-alive packets come each second and a round trip. QUIC
/// alone waits ever longer for a peer that was stopped, and does not find one that has another
/// address.
pub(crate) const SILENCE_MAX: Duration = Duration::from_millis(1500);
/// Longest round trip, as estimated, of a connection that is kept when a new one is there.
const RTT_MAX: Duration = Duration::from_secs(4);
/// Time of an attempt before the next node is tried, and that of the first attempts without a
/// connection: some of the nodes may be gone.
const ATTEMPT: Duration = Duration::from_secs(2);
const ATTEMPT_FIRST: Duration = Duration::from_secs(1);

/// Time for which a node that is not the first of the list serves before those before it are tried.
/// Each return to one of them doubles the time, [`DOUBLINGS_MAX`] times.
const BETTER: Duration = Duration::from_secs(30);
const DOUBLINGS_MAX: u32 = 6;

/// Keeps one connection to the first node of a list that answers.
#[derive(Debug)]
pub struct Dialer {
    to: Vec<NodeId>,
    next: usize,
    /// Place of the node of the connection in use.
    used: usize,
    /// The connection in use.
    connection: Option<ConnectionHandle>,
    /// The connection that is tried, and since when.
    attempt: Option<(ConnectionHandle, Time)>,
    /// When the next attempt may begin.
    next_at: Time,
    /// When nodes before the one in use are tried next.
    better_at: Time,
    /// Returns to a node before the one in use.
    returns: u32,
}

impl Dialer {
    /// A dialer of these nodes that begins at `start`. Without nodes the dialer tries nothing.
    pub fn new(to: Vec<NodeId>, start: Time) -> Self {
        fresh! {
            Self {
                to,
                next_at: start,
                better_at: start,
            }
            next, used, connection, attempt, returns
        }
    }

    /// Replaces the nodes to try. The connection in use stays.
    pub fn set_nodes(&mut self, to: Vec<NodeId>) {
        if self.to != to {
            (self.to, self.next, self.used) = (to, 0, 0);
        }
    }

    /// True if there is a node to try.
    pub const fn has_nodes(&self) -> bool {
        !self.to.is_empty()
    }

    /// True if a connection is the one in use, or the one that is tried.
    pub fn is_own(&self, connection: ConnectionHandle) -> bool {
        let attempt = self.attempt.map(|(attempt, _)| attempt);
        [self.connection, attempt].contains(&Some(connection))
    }

    /// The connection in use.
    pub const fn connection(&self) -> Option<ConnectionHandle> {
        self.connection
    }

    /// True if there is no connection, or another one is tried beside a silent one.
    pub const fn is_searching(&self) -> bool {
        self.connection.is_none() || self.attempt.is_some()
    }

    /// A connection is established. Returns true if it is the one to use from now on; the one
    /// before is closed. Else the caller closes the new one.
    pub fn on_up(&mut self, now: Time, endpoint: &mut Endpoint, up: ConnectionHandle) -> bool {
        let Some((_, since)) = self.attempt.take_if(|(attempt, _)| *attempt == up) else {
            return false;
        };
        // The connection in use has come back meanwhile, and still has what is on its way. After a
        // long pause, which its estimate of the round trip contains, losses would be hidden for
        // twice as long as that estimate.
        let is_back = |before| {
            let heard_at = endpoint.heard_at(before);
            heard_at.is_some_and(|at| at > since)
                && endpoint.stats(before).is_some_and(|stats| stats.rtt < RTT_MAX)
        };
        self.next %= self.to.len().max(1);
        if self.connection.is_some() && self.next < self.used {
            self.returns += 1;
        } else if self.connection.is_some_and(is_back) {
            return false;
        }
        self.used = self.next;
        self.better_at = now + self.better();
        if let Some(before) = self.connection.replace(up) {
            endpoint.close(now, before, "replaced");
        }
        true
    }

    /// A connection has ended. Returns true if it was the one in use: its node, which may have said
    /// that it knows the connection no more, is the first to be tried, at once.
    pub fn on_down(&mut self, now: Time, endpoint: &mut Endpoint, down: ConnectionHandle) -> bool {
        if self.attempt.take_if(|(attempt, _)| *attempt == down).is_some() {
            self.next += 1;
            // The last of the list has refused: a pause, and all again.
            let is_last = self.next.is_multiple_of(self.to.len());
            self.next_at = if is_last { now + ATTEMPT } else { now };
        }
        let was_used = self.connection.take_if(|connection| *connection == down).is_some();
        if was_used {
            // The packets of an attempt that began earlier may wait for seconds to be repeated.
            if let Some((attempt, _)) = self.attempt.take() {
                endpoint.close(now, attempt, "");
            }
            (self.next, self.next_at) = (self.used, now);
        }
        was_used
    }

    /// The node of the connection in use does not serve this one: the next of the list is tried.
    pub fn on_refused(&mut self, now: Time, connection: ConnectionHandle) {
        if self.connection.take_if(|it| *it == connection).is_some() {
            self.next += 1;
            self.next_at = now + ATTEMPT;
        }
    }

    /// Takes the passing of time: begins attempts, and gives them up.
    pub fn handle_timeout(&mut self, now: Time, endpoint: &mut Endpoint) {
        let span = self.span();
        if let Some((attempt, _)) = self.attempt.take_if(|(_, since)| *since + span <= now) {
            endpoint.close(now, attempt, "");
            self.next += 1;
            self.next_at = now;
        }
        if self.attempt.is_none() && self.wants_at(endpoint).is_some_and(|at| at <= now) {
            if self.used > 0 && self.better_at <= now {
                (self.next, self.better_at) = (0, now + self.better());
            }
            let to = self.to[self.next % self.to.len()];
            self.attempt = Some((endpoint.connect(now, to), now));
        }
    }

    /// Time until nodes before the one in use are tried.
    fn better(&self) -> Duration {
        BETTER * (1 << self.returns.min(DOUBLINGS_MAX))
    }

    /// Time of an attempt now.
    const fn span(&self) -> Duration {
        let is_first = self.connection.is_none() && self.to.len() > 1 && self.next < self.to.len();
        if is_first { ATTEMPT_FIRST } else { ATTEMPT }
    }

    /// When an attempt begins, unless something is heard before.
    fn wants_at(&self, endpoint: &Endpoint) -> Option<Time> {
        let silent_at = match self.connection.and_then(|connection| endpoint.heard_at(connection)) {
            Some(heard_at) if self.used == 0 => heard_at + SILENCE_MAX,
            Some(_) if self.next < self.used => self.next_at,
            Some(heard_at) => self.better_at.min(heard_at + SILENCE_MAX),
            None => self.next_at,
        };
        self.has_nodes().then(|| silent_at.max(self.next_at))
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    pub fn next_timeout(&self, endpoint: &Endpoint) -> Option<Time> {
        self.attempt.map(|(_, since)| since + self.span()).or_else(|| self.wants_at(endpoint))
    }
}
