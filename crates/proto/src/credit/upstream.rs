//! Upstream side of a flow-control node: capsules of the upstream node, and credits for them.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::refresh::{REFRESH_MAX, Refresh};
use super::wire::{Capsule, Credit, ahead};
use crate::pgm::session::dissent::Dissent;
use crate::relay::PortId;

/// Greatest distance between successive capsules of a run; chosen.
const RUN_GAP_MAX: i64 = 64;

#[derive(Debug)]
pub(crate) struct Upstream {
    session: u64,
    tag: u64,
    pub(crate) node: NodeId,
    branch: u32,
    pub(crate) port: PortId,
    /// Capsules that the upstream node has sent to this branch, as far as known.
    received: u32,
    /// FC of the last credit, and number of packets up to it since the first.
    reported: u32,
    total_reported: i64,
    /// Last credit: B, FC and the number of receivers below.
    last_credit: (u32, u32, u32),
    credit_due: bool,
    /// Time at which the last credit is repeated.
    refresh_at: Time,
    refresh: Refresh,
    last_capsule_at: Time,
    /// Claim of lower counts than `received`.
    restart: Dissent<u32>,
    /// Claim of another upstream node or branch.
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
            total_reported: 0,
            last_credit: (capsule.buffer.into(), before, 1),
            credit_due: true,
            refresh_at: now + Refresh::default().interval(),
            refresh: Refresh::default(),
            last_capsule_at: now,
            restart: Dissent::default(),
            reroute: Dissent::default(),
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
        if other
            && !is_silent
            && !self.reroute.claim(now, sender, Duration::ZERO, |it| *it == sender)
        {
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
            self.refresh_at = now + self.refresh.interval();
        }
        restarts
    }

    pub(crate) const fn received(&self) -> u32 {
        self.received
    }

    pub(crate) const fn since_reported(&self, done: u32) -> i64 {
        ahead(done, self.reported)
    }

    pub(crate) const fn total_reported(&self) -> i64 {
        self.total_reported
    }

    pub(crate) fn grant(&mut self, now: Time, buffer: u16, count: u32, weight: u32) {
        self.total_reported += self.since_reported(count);
        (self.reported, self.last_credit) = (count, (buffer.into(), count, weight));
        (self.credit_due, self.refresh_at) = (true, now + self.refresh.interval());
    }

    pub(crate) fn grant_again(&mut self, now: Time, count: u32) {
        let (buffer, _, weight) = self.last_credit;
        self.grant(now, buffer as u16, count, weight);
    }

    pub(crate) fn on_timeout(&mut self, now: Time, has_branches: bool) {
        self.credit_due &= has_branches;
        if self.refresh_at <= now {
            self.credit_due = has_branches;
            self.refresh.back_off();
            self.refresh_at = now + self.refresh.interval();
        }
    }

    pub(crate) const fn next_timeout(&self) -> Time {
        self.refresh_at
    }

    pub(crate) fn poll(&mut self, buf: &mut Vec<u8>) -> bool {
        let due = core::mem::take(&mut self.credit_due);
        if due {
            let (buffer, count, weight) = self.last_credit;
            let Self { session, tag, branch, .. } = *self;
            Credit { session, tag, branch, buffer, count, weight }.encode(buf);
        }
        due
    }
}
