//! A port of the relay of credits: whose turn it is, what waits there, and what a slow host has to do.

use alloc::collections::{BTreeMap, VecDeque};

use faircast_base::{Duration, FlowId, Time};

use super::drr::RoundRobin;
use crate::relay::PacketKey;

/// Turn at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    Session(u64),
    Other(FlowId),
}

/// One of the router's links.
#[derive(Debug, Default)]
pub(super) struct Port {
    /// Something was sent, and the link has not said yet that it is free.
    pub(super) busy: bool,
    pub(super) turns: RoundRobin<Turn>,
    /// What a slow host has to do before more leaves, once nothing leaves, and until when it does that.
    pub(super) work: Duration,
    pub(super) works_until: Option<Time>,
    /// Packets of flows that are not under credits.
    pub(super) others: BTreeMap<FlowId, VecDeque<(PacketKey, u32)>>,
}

impl Port {
    /// A packet under no credits waits for its turn.
    pub(super) fn queue(&mut self, flow: FlowId, key: PacketKey, bytes: u32) {
        self.others.entry(flow).or_default().push_back((key, bytes));
        self.turns.join(Turn::Other(flow));
    }

    /// Whether nothing waits or is done there.
    pub(super) fn is_idle(&self) -> bool {
        let works = self.work > Duration::ZERO || self.works_until.is_some();
        !self.busy && !works && self.turns.is_empty() && self.others.is_empty()
    }

    /// What a slow host has to do begins, once nothing leaves.
    pub(super) fn begin_work(&mut self, now: Time) {
        if !self.busy && self.work > Duration::ZERO {
            let begins = self.works_until.map_or(now, |at| at.max(now));
            self.works_until = Some(begins + core::mem::take(&mut self.work));
        }
    }
}
