//! The way up from a flow-control node: how many capsules have come from the node above, and the credits for them.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::refresh::{REFRESH_MAX, Refresh};
use super::wire::{Capsule, Credit, ahead};
use crate::pgm::session::dissent::Dissent;
use crate::relay::PortId;

/// Greatest distance of a capsule from the one before that makes both one run of capsules; chosen.
const RUN_GAP_MAX: i64 = 64;

/// State of the node above, and the latest message to it.
#[derive(Debug)]
pub(crate) struct Upstream {
    session: u64,
    tag: u64,
    /// The node above, its name for this branch, and the port to it.
    pub(crate) node: NodeId,
    branch: u32,
    pub(crate) port: PortId,
    /// Capsules that the node above has sent to this branch, as far as is known.
    received: u32,
    /// FC of the last credit, and how many packets that were since the first.
    reported: u32,
    total_reported: i64,
    /// The last credit: B and FC, and the receivers below.
    last: (u32, u32, u32),
    due: bool,
    refresh_at: Time,
    refresh: Refresh,
    heard_at: Time,
    /// Counts of capsules that are behind what has come.
    behind: Dissent<u32>,
    /// Another node above, and its name for this branch.
    elsewhere: Dissent<(NodeId, u32)>,
}

impl Upstream {
    /// A node that has had its first capsule, whose tag is `tag`. It owes nothing for those before.
    pub(crate) fn new(now: Time, tag: u64, capsule: &Capsule, port: PortId) -> Self {
        // A probe is no packet that came: all before it may have been lost on the way.
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
            last: (capsule.buffer.into(), before, 1),
            due: true,
            refresh_at: now + Refresh::default().interval(),
            refresh: Refresh::default(),
            heard_at: now,
            behind: Dissent::default(),
            elsewhere: Dissent::default(),
        }
    }

    /// Takes a capsule. Returns true where counts begin anew: it is from another branch than before, or a run of capsules
    /// shows that the node above has not sent what was believed.
    ///
    /// A forged or damaged count that is too high makes each credit one for capsules that were never sent, which the node
    /// above refuses. That node sends the rest of what it may, and then probes: they are the run.
    pub(crate) fn on_capsule(&mut self, now: Time, capsule: &Capsule, port: PortId) -> bool {
        let count = capsule.count;
        let above = (capsule.node, capsule.branch);
        let other = (self.node, self.branch) != above;
        // After one forged capsule this node would send a credit elsewhere, which would wait for the
        // next credit for 3 s. A node above that is silent may have forgotten this branch.
        let is_silent = now.since(self.heard_at) >= REFRESH_MAX;
        if other
            && !is_silent
            && !self.elsewhere.claim(now, above, Duration::ZERO, |it| *it == above)
        {
            return false;
        }
        self.elsewhere.contradict();
        self.heard_at = now;
        let is_behind = ahead(count, self.received) < 0;
        let goes_on = |before: &u32| (0..=RUN_GAP_MAX).contains(&ahead(count, *before));
        let anew = other || is_behind && self.behind.claim(now, count, Duration::ZERO, goes_on);
        if anew {
            *self = Self::new(now, self.tag, capsule, port);
        } else {
            if !is_behind {
                self.received = count;
                self.behind.contradict();
            }
            // The node above may be reached by another connection than before.
            self.port = port;
            // Whoever asks has not heard the last credit.
            self.due |= capsule.probe;
            self.refresh.on_news(now);
            self.refresh_at = now + self.refresh.interval();
        }
        anew
    }

    /// Capsules that have come or were lost on the way.
    pub(crate) const fn received(&self) -> u32 {
        self.received
    }

    /// Of so many that are done with here, how many since the last credit.
    pub(crate) const fn since_reported(&self, done: u32) -> i64 {
        ahead(done, self.reported)
    }

    /// Packets up to the last credit since the first that came.
    pub(crate) const fn total_reported(&self) -> i64 {
        self.total_reported
    }

    /// A credit is to be sent: what may wait, up to where all is done with, and how many receivers are below.
    pub(crate) fn grant(&mut self, now: Time, buffer: u16, count: u32, weight: u32) {
        self.total_reported += self.since_reported(count);
        (self.reported, self.last) = (count, (buffer.into(), count, weight));
        (self.due, self.refresh_at) = (true, now + self.refresh.interval());
    }

    /// The same with what may wait, and who is below, as they were.
    pub(crate) fn grant_again(&mut self, now: Time, count: u32) {
        let (buffer, _, weight) = self.last;
        self.grant(now, buffer as u16, count, weight);
    }

    /// Takes the passing of time: the last credit may have been lost. It is said again where somebody is `there` to take
    /// more.
    pub(crate) fn on_timeout(&mut self, now: Time, there: bool) {
        self.due &= there;
        if self.refresh_at <= now {
            self.due = there;
            self.refresh.back_off();
            self.refresh_at = now + self.refresh.interval();
        }
    }

    pub(crate) const fn next_timeout(&self) -> Time {
        self.refresh_at
    }

    pub(crate) fn poll(&mut self, buf: &mut Vec<u8>) -> bool {
        let due = core::mem::take(&mut self.due);
        if due {
            let (buffer, count, weight) = self.last;
            let Self { session, tag, branch, .. } = *self;
            Credit { session, tag, branch, buffer, count, weight }.encode(buf);
        }
        due
    }
}
