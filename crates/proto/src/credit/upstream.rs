//! Upstream side of a flow-control node: capsules of the upstream node, and credits for them.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::wire::{Capsule, Credit, Packet, ahead};
use crate::pgm::session::dissent::Dissent;
use crate::relay::PortId;

/// Shortest and longest interval. Chosen: in the paper, a lost credit stops a session.
pub(crate) const REFRESH: Duration = Duration::from_millis(100);
pub(crate) const REFRESH_MAX: Duration = Duration::from_secs(1);

/// Refresh interval: twice the mean interval of rare packets, to avoid a repetition after each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refresh {
    last_news_at: Option<Time>,
    gap: Duration,
    pub(super) interval: Duration,
}

impl Default for Refresh {
    fn default() -> Self {
        Self { last_news_at: None, gap: REFRESH / 2, interval: REFRESH }
    }
}

impl Refresh {
    pub(super) fn on_news(&mut self, now: Time) {
        if let Some(last) = self.last_news_at.replace(now) {
            let gap = now.since(last).min(REFRESH_MAX / 2);
            self.gap = (self.gap * 3 + gap) / 4;
        }
        self.interval = (self.gap * 2).clamp(REFRESH, REFRESH_MAX);
    }

    pub(super) fn back_off(&mut self) {
        self.interval = (self.interval * 2).min(REFRESH_MAX);
    }
}

/// Greatest distance between successive capsules of a run; chosen.
const RUN_GAP_MAX: i64 = 64;

#[derive(Debug, Default)]
pub(crate) struct Upstream {
    session: u64,
    tag: u64,
    pub(crate) node: NodeId,
    branch: u32,
    pub(crate) port: PortId,
    /// Capsules that the upstream node has sent to this branch, as far as known.
    pub(crate) received: u32,
    /// FC of the last credit, and number of packets up to it since the first.
    reported: u32,
    pub(crate) total_reported: i64,
    /// Last credit: B, FC and the number of receivers below.
    last_credit: (u32, u32, u32),
    credit_due: bool,
    pub(crate) refresh_at: Time,
    refresh: Refresh,
    last_capsule_at: Time,
    /// Claim of lower counts than `received`.
    restart: Dissent<u32>,
    reroute: Dissent<(NodeId, u32)>,
}

impl Upstream {
    pub(crate) fn new(now: Time, tag: u64, capsule: &Capsule, port: PortId) -> Self {
        // A probe carries no packet: its count includes packets that may all be lost.
        let before = if capsule.probe { capsule.count } else { capsule.count.wrapping_sub(1) };
        Self {
            session: capsule.session,
            tag,
            node: capsule.node,
            branch: capsule.branch,
            port,
            received: capsule.count,
            reported: before,
            last_credit: (capsule.buffer.into(), before, 1),
            credit_due: true,
            refresh_at: now + Refresh::default().interval,
            last_capsule_at: now,
            ..Self::default()
        }
    }

    /// Handles a capsule. Returns true if counts restart: the capsule is from another branch, or a
    /// run of capsules contradicts `received`, as after a forged count: the upstream node refuses
    /// each credit, sends the packets that it still may, and then probes.
    pub(crate) fn on_capsule(&mut self, now: Time, capsule: &Capsule, port: PortId) -> bool {
        let count = capsule.count;
        let sender = (capsule.node, capsule.branch);
        let other = (self.node, self.branch) != sender;
        // Otherwise one forged capsule would direct a credit to another branch, for a wait of 3 s.
        let is_silent = now.since(self.last_capsule_at) >= REFRESH_MAX;
        let is_same = |it: &(NodeId, u32)| *it == sender;
        if other && !is_silent && !self.reroute.claim(now, sender, Duration::ZERO, is_same) {
            return false;
        }
        self.reroute.contradict();
        self.last_capsule_at = now;
        let is_behind = ahead(count, self.received) < 0;
        let goes_on = |before: &u32| (0..=RUN_GAP_MAX).contains(&ahead(count, *before));
        let restarts =
            other || is_behind && self.restart.claim(now, count, Duration::ZERO, goes_on);
        if restarts {
            *self = Self::new(now, self.tag, capsule, port);
        } else {
            if !is_behind {
                self.received = count;
                self.restart.contradict();
            }
            self.port = port;
            // A probe means that the last credit was lost.
            self.credit_due |= capsule.probe;
            self.refresh.on_news(now);
            self.refresh_at = now + self.refresh.interval;
        }
        restarts
    }

    pub(crate) const fn since_reported(&self, done: u32) -> i64 {
        ahead(done, self.reported)
    }

    pub(crate) fn grant(&mut self, now: Time, buffer: u16, count: u32, weight: u32) {
        self.total_reported += self.since_reported(count);
        (self.reported, self.last_credit) = (count, (buffer.into(), count, weight));
        (self.credit_due, self.refresh_at) = (true, now + self.refresh.interval);
    }

    pub(crate) fn grant_again(&mut self, now: Time) {
        let (buffer, _, weight) = self.last_credit;
        self.grant(now, buffer as u16, self.received, weight);
    }

    pub(crate) fn on_timeout(&mut self, now: Time, has_branches: bool) {
        self.credit_due &= has_branches;
        if self.refresh_at <= now {
            self.credit_due = has_branches;
            self.refresh.back_off();
            self.refresh_at = now + self.refresh.interval;
        }
    }

    pub(crate) fn poll(&mut self, buf: &mut Vec<u8>) -> bool {
        let due = core::mem::take(&mut self.credit_due);
        if due {
            let (buffer, count, weight) = self.last_credit;
            let Self { session, tag, branch, .. } = *self;
            Packet::Credit(Credit { session, tag, branch, buffer, count, weight }).encode(buf);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_packets_are_rare_nothing_is_said_again_between_them() {
        for (gap_ms, want_ms) in
            [(1, 100..=100), (90, 170..=180), (400, 700..=800), (5000, 900..=1000)]
        {
            let mut refresh = Refresh::default();
            for i in 0..20 {
                refresh.on_news(Time::ZERO + Duration::from_millis(gap_ms) * i);
            }
            let interval_ms = refresh.interval.as_millis();
            assert!(want_ms.contains(&interval_ms), "{gap_ms} ms: {interval_ms} ms");
            (0..9).for_each(|_| refresh.back_off());
            assert_eq!(refresh.interval, REFRESH_MAX);
        }
    }
}
