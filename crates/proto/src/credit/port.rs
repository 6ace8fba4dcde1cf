//! Port of a credit relay: deficit round robin between the flows that are queued (src: drr), queues
//! without credits, and pacing.

use alloc::collections::{BTreeMap, VecDeque};

use faircast_base::{Bitrate, Duration, FlowId, Time};

use super::branch::TAG_TIMEOUT;
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
    pub(super) turns: RoundRobin,
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
        self.busy_since.is_none() && !works && self.turns.ring.is_empty() && self.others.is_empty()
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

/// Quantum of a flow per round, in bytes: a packet of usual size.
const QUANTUM: u32 = 1500;

#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    ring: VecDeque<(Turn, u32)>,
    begun: bool,
}

impl RoundRobin {
    pub(super) fn join(&mut self, flow: Turn) {
        if !self.ring.iter().any(|(known, _)| *known == flow) {
            self.ring.push_back((flow, 0));
        }
    }

    /// Returns the flow that sends now. `bytes` gives a flow's next length; without one, it leaves.
    pub(super) fn next(&mut self, mut bytes: impl FnMut(Turn) -> Option<u32>) -> Option<Turn> {
        while let Some((flow, left)) = self.ring.front_mut() {
            let flow = *flow;
            let Some(bytes) = bytes(flow) else {
                self.ring.pop_front();
                self.begun = false;
                continue;
            };
            if !core::mem::replace(&mut self.begun, true) {
                *left = left.saturating_add(QUANTUM);
            }
            if *left >= bytes {
                *left -= bytes;
                return Some(flow);
            }
            self.ring.rotate_left(1);
            self.begun = false;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_wait_send_as_many_bytes_whatever_their_packets_are() {
        let mut turns = RoundRobin::default();
        let lens = [1500, 500, 9000];
        let flows = [0, 1, 2].map(Turn::Session);
        flows.into_iter().for_each(|flow| turns.join(flow));
        let place = |turn| flows.iter().position(|flow| *flow == turn).unwrap();
        let mut sent = [0u32; 3];
        for _ in 0..6000 {
            let flow = turns.next(|turn| Some(lens[place(turn)])).map(place).unwrap();
            sent[flow] += lens[flow];
        }
        let [least, most] = [sent.iter().min().unwrap(), sent.iter().max().unwrap()];
        assert!(most - least <= 9000, "{sent:?}");
    }

    #[test]
    fn who_has_nothing_to_send_leaves() {
        let mut turns = RoundRobin::default();
        let [idle, sends] = [1, 2].map(Turn::Session);
        [idle, sends, idle].into_iter().for_each(|flow| turns.join(flow));
        for _ in 0..3 {
            assert_eq!(turns.next(|flow| (flow == sends).then_some(1500)), Some(sends));
        }
        assert_eq!(turns.next(|_| None), None);
        assert_eq!(turns.next(|_| Some(1)), None, "both have left");
    }
}
