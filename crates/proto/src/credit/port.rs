//! A port of the relay of credits: whose turn it is, what waits there, and what a slow host has to do.

use alloc::collections::{BTreeMap, VecDeque};

use faircast_base::{Bitrate, Duration, FlowId, Time};

use super::branch::TAG_TIMEOUT;
use super::drr::RoundRobin;
use crate::relay::PacketKey;

/// Time of unused rate that a port may use later.
const BURST: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    Session(u64),
    Other(FlowId),
}

#[derive(Debug, Default)]
pub(super) struct Port {
    /// Time since which the link has had no room; `None` while it takes packets.
    pub(super) busy: Option<Time>,
    /// True if that is long ago.
    pub(super) stuck: bool,
    pub(super) turns: RoundRobin<Turn>,
    /// What a slow host has to do before more leaves, once nothing leaves, and until when it does that.
    pub(super) work: Duration,
    pub(super) works_until: Option<Time>,
    /// Time at which the highest rate allows the next packet.
    paced_until: Time,
    /// Packets of flows that are not under credits.
    pub(super) others: BTreeMap<FlowId, VecDeque<(PacketKey, u32)>>,
}

impl Port {
    /// A packet under no credits waits for its turn.
    pub(super) fn queue(&mut self, flow: FlowId, key: PacketKey, bytes: u32) {
        self.others.entry(flow).or_default().push_back((key, bytes));
        self.turns.join(Turn::Other(flow));
    }

    pub(super) fn is_idle(&self) -> bool {
        let works = self.work > Duration::ZERO || self.works_until.is_some();
        self.busy.is_none() && !works && self.turns.is_empty() && self.others.is_empty()
    }

    /// When the port is stuck, if it is not and stays busy.
    pub(super) fn stuck_at(&self) -> Option<Time> {
        self.busy.filter(|_| !self.stuck).map(|since| since + TAG_TIMEOUT)
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.works_until.unwrap_or(Time::MAX).min(self.stuck_at().unwrap_or(Time::MAX))
    }

    /// Counts a packet that leaves at no more than this rate. Up to 5 ms that were not used count.
    pub(super) fn pace(&mut self, now: Time, bytes: u32, rate: Bitrate) {
        let free_at = (self.paced_until + BURST).max(now);
        self.paced_until = free_at + rate.time_for(bytes.into()) - BURST;
    }

    /// Work of a slow host begins, once nothing leaves, and the wait for the highest rate: a port
    /// that waits for its rate is not busy, and never stuck.
    pub(super) fn begin_work(&mut self, now: Time) {
        if self.busy.is_none() && (self.work > Duration::ZERO || self.paced_until > now) {
            let begins = self.works_until.map_or(now, |at| at.max(now));
            let done = begins + core::mem::take(&mut self.work);
            self.works_until = Some(done.max(self.paced_until));
        }
    }
}
