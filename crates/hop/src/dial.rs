//! Maintenance of a connection to one of several nodes.

use faircast_base::{Duration, NodeId, Time};

use crate::endpoint::{ConnectionHandle, Endpoint};

/// Longest silence on a connection before a parallel attempt begins, and before nodes behind it may
/// move to other ports: 1.5 s. Keep-alive packets are answered once per second and round trip.
/// QUIC's own timeouts double for a stopped peer, and do not find a peer at a new address.
pub(crate) const SILENCE_MAX: Duration = Duration::from_millis(1500);
/// Maximum estimated round-trip time of an old connection that survives next to a new one: 4 s.
const RTT_MAX: Duration = Duration::from_secs(4);
/// Length of an attempt: 2 s. First attempts without a connection are shorter.
const ATTEMPT: Duration = Duration::from_secs(2);
const ATTEMPT_FIRST: Duration = Duration::from_secs(1);

/// Time at a later node before earlier nodes are tried again. Each return to one doubles the time.
const BETTER: Duration = Duration::from_secs(30);
const DOUBLINGS_MAX: u32 = 6;

/// Dialer that keeps one connection to the first node of a list that answers.
#[derive(Debug)]
pub(crate) struct Dialer {
    to: Vec<NodeId>,
    /// Number of the next attempt; modulo the length of `to`, the node to try.
    next: usize,
    used: usize,
    pub(crate) connection: Option<ConnectionHandle>,
    /// Connection that is being established, and its start.
    attempt: Option<(ConnectionHandle, Time)>,
    next_at: Time,
    better_at: Time,
    /// Number of returns to earlier nodes, which double the time before the next one.
    returns: u32,
}

impl Dialer {
    pub(crate) fn new(to: Vec<NodeId>, start: Time) -> Self {
        fresh! {
            Self { to, next_at: start, better_at: start, }
            next, used, connection, attempt, returns
        }
    }

    pub(crate) fn set_nodes(&mut self, to: Vec<NodeId>) {
        if self.to != to {
            (self.to, self.next, self.used) = (to, 0, 0);
        }
    }

    pub(crate) const fn has_nodes(&self) -> bool {
        !self.to.is_empty()
    }

    pub(crate) fn is_own(&self, connection: ConnectionHandle) -> bool {
        let attempt = self.attempt.map(|(attempt, _)| attempt);
        [self.connection, attempt].contains(&Some(connection))
    }

    /// True without a connection, or during an attempt parallel to a silent connection.
    pub(crate) const fn is_searching(&self) -> bool {
        self.connection.is_none() || self.attempt.is_some()
    }

    /// Handles an established connection. True if the dialer now uses it and has closed the
    /// previous one; else the caller must close the new connection.
    pub(crate) fn on_up(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        up: ConnectionHandle,
    ) -> bool {
        let Some((_, since)) = self.attempt.take_if(|(attempt, _)| *attempt == up) else {
            return false;
        };
        // The old connection has recovered. After a long pause its round-trip estimate includes the
        // pause, and losses would be detected only after twice that estimate.
        let is_back = |before| {
            let heard_at = endpoint.received_at(before);
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

    /// Handles a connection's end, as when a parent dies; true if it was in use: its node is then
    /// tried first, at once.
    pub(crate) fn on_down(
        &mut self,
        now: Time,
        endpoint: &mut Endpoint,
        down: ConnectionHandle,
    ) -> bool {
        if self.attempt.take_if(|(attempt, _)| *attempt == down).is_some() {
            self.next += 1;
            let is_last = self.next.is_multiple_of(self.to.len());
            self.next_at = if is_last { now + ATTEMPT } else { now };
        }
        let was_used = self.connection.take_if(|connection| *connection == down).is_some();
        if was_used {
            if let Some((attempt, _)) = self.attempt.take() {
                endpoint.close(now, attempt, "");
            }
            (self.next, self.next_at) = (self.used, now);
        }
        was_used
    }

    /// Handles the refusal of the node in use: the next node of the list is tried.
    pub(crate) fn on_refused(&mut self, now: Time, connection: ConnectionHandle) {
        if self.connection.take_if(|it| *it == connection).is_some() {
            self.next += 1;
            self.next_at = now + ATTEMPT;
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time, endpoint: &mut Endpoint) {
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

    fn better(&self) -> Duration {
        BETTER * (1 << self.returns.min(DOUBLINGS_MAX))
    }

    const fn span(&self) -> Duration {
        let is_first = self.connection.is_none() && self.to.len() > 1 && self.next < self.to.len();
        if is_first { ATTEMPT_FIRST } else { ATTEMPT }
    }

    /// Returns the time of the next attempt. With a parent: after its silence, or at the next trial
    /// of a node that is earlier in the list.
    fn wants_at(&self, endpoint: &Endpoint) -> Option<Time> {
        let silent_at =
            match self.connection.and_then(|connection| endpoint.received_at(connection)) {
                Some(heard_at) if self.used == 0 => heard_at + SILENCE_MAX,
                Some(_) if self.next < self.used => self.next_at,
                Some(heard_at) => self.better_at.min(heard_at + SILENCE_MAX),
                None => self.next_at,
            };
        self.has_nodes().then(|| silent_at.max(self.next_at))
    }

    pub(crate) fn next_timeout(&self, endpoint: &Endpoint) -> Option<Time> {
        self.attempt.map(|(_, since)| since + self.span()).or_else(|| self.wants_at(endpoint))
    }
}
