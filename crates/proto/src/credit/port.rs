//! Port of a credit relay: order of flows, queues without credits, and pacing.

use alloc::collections::{BTreeMap, VecDeque};

use faircast_base::{Bitrate, Duration, FlowId, Time};

use super::branch::TAG_TIMEOUT;
use super::drr::RoundRobin;
use crate::relay::PacketKey;

/// Burst of a port above its highest rate: 5 ms of unused rate.
const BURST: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    Session(u64),
    Other(FlowId),
}

#[derive(Debug, Default)]
pub(super) struct Port {
    /// Time at which the present packet was handed to the port.
    pub(super) busy_since: Option<Time>,
    /// True if the port has sent nothing for [`TAG_TIMEOUT`].
    pub(super) stuck: bool,
    pub(super) turns: RoundRobin<Turn>,
    /// Processing time of a slow host before the next packet, and end of the current processing.
    pub(super) work: Duration,
    pub(super) works_until: Option<Time>,
    /// End of the packets so far at the highest rate.
    paced_until: Time,
    /// Packets of flows without credits.
    pub(super) others: BTreeMap<FlowId, VecDeque<(PacketKey, u32)>>,
}

impl Port {
    pub(super) fn queue(&mut self, flow: FlowId, key: PacketKey, bytes: u32) {
        self.others.entry(flow).or_default().push_back((key, bytes));
        self.turns.join(Turn::Other(flow));
    }

    pub(super) fn is_idle(&self) -> bool {
        let works = self.work > Duration::ZERO || self.works_until.is_some();
        self.busy_since.is_none() && !works && self.turns.is_empty() && self.others.is_empty()
    }

    pub(super) fn stuck_at(&self) -> Option<Time> {
        self.busy_since.filter(|_| !self.stuck).map(|since| since + TAG_TIMEOUT)
    }

    pub(super) fn next_timeout(&self) -> Time {
        self.works_until.unwrap_or(Time::MAX).min(self.stuck_at().unwrap_or(Time::MAX))
    }

    pub(super) fn pace(&mut self, now: Time, bytes: u32, rate: Bitrate) {
        let free_at = (self.paced_until + BURST).max(now);
        self.paced_until = free_at + rate.time_for(bytes.into()) - BURST;
    }

    /// Starts a slow host's processing and the pacing delay, if the port is not busy. A port that
    /// waits for its rate is not busy, thus never stuck.
    pub(super) fn begin_work(&mut self, now: Time) {
        if self.busy_since.is_none() && (self.work > Duration::ZERO || self.paced_until > now) {
            let begins = self.works_until.map_or(now, |at| at.max(now));
            let done = begins + core::mem::take(&mut self.work);
            self.works_until = Some(done.max(self.paced_until));
        }
    }
}
