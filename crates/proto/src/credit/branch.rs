//! Branch of a tree at its upper node: capsules sent, and the balance of its credits.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Duration, Time};

use super::upstream::{REFRESH, Refresh};
use super::wire::{Credit, ahead};

/// Silence after which a node counts as gone: 3 s. Chosen: three of the longest refresh intervals.
pub(super) const TAG_TIMEOUT: Duration = Duration::from_secs(3);

/// Intervals of [`REFRESH`] in which a branch without credits may send before it counts as silent.
const ALLOWANCES_MAX: u32 = (TAG_TIMEOUT.as_nanos() / REFRESH.as_nanos()) as u32;

/// Most nodes that send credits to a branch. Many can be behind routers without flow control.
const TAGS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Branch {
    /// TC: number of capsules sent.
    pub(crate) count: u32,
    tags: BTreeMap<u64, Tag>,
    /// Tags of departed nodes, with their expiry.
    departed: Vec<(u64, Time)>,
    /// Allowance without credits: last count that may be sent, and its expiry.
    allowance: (u32, Time),
    /// Allowances granted since the first capsule.
    allowances: u32,
    buffer: u32,
    /// True once only credits permit capsules.
    controlled: bool,
    /// Time of the probe for a capsule that waits for credits.
    probe_at: Option<Time>,
    refresh: Refresh,
}

#[derive(Clone, Copy, Debug)]
struct Tag {
    /// B + FC: last count for which the node has room.
    edge: u32,
    weight: u32,
    last_credit_at: Time,
}

impl Branch {
    pub(crate) fn new(now: Time, buffer: u16) -> Self {
        let buffer = u32::from(buffer);
        Self { allowance: (buffer, now + REFRESH), buffer, ..Self::default() }
    }

    pub(crate) fn weight(&self) -> u32 {
        self.tags.values().fold(0u32, |sum, tag| sum.saturating_add(tag.weight)).max(1)
    }

    /// Handles a credit. Returns true if it has news: more may be sent, or it is the first. Fails
    /// for capsules never sent, too large a buffer, or one node too many.
    pub(crate) fn on_credit(&mut self, now: Time, credit: &Credit) -> Checked<bool> {
        if ahead(credit.count, self.count) > 0 || credit.buffer > self.buffer {
            return Err(BadInput::Absurd);
        }
        if self.departed.iter().any(|(tag, until)| *tag == credit.tag && now < *until) {
            return Ok(false);
        }
        let full = self.tags.len() >= TAGS_MAX && !self.tags.contains_key(&credit.tag);
        if full {
            return Err(BadInput::TableFull);
        }
        let known = self.tags.len();
        let edge = credit.count.wrapping_add(credit.buffer);
        let tag =
            self.tags.entry(credit.tag).or_insert(Tag { edge, weight: 1, last_credit_at: now });
        let moves = ahead(edge, tag.edge) > 0;
        tag.edge = if moves { edge } else { tag.edge };
        (tag.weight, tag.last_credit_at) = (credit.weight, now);
        self.controlled = true;
        self.probe_at = None;
        self.refresh.on_news(now);
        Ok(moves || known == 0)
    }

    pub(crate) fn forget(&mut self, now: Time, tag: u64) {
        if self.tags.remove(&tag).is_some() {
            self.departed.retain(|(_, until)| now < *until);
            if self.departed.len() < TAGS_MAX {
                self.departed.push((tag, now + TAG_TIMEOUT));
            }
        }
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.controlled && self.tags.is_empty()
    }

    pub(crate) fn may_send(&self) -> bool {
        match self.tags.values().map(|tag| ahead(tag.edge, self.count)).min() {
            Some(balance) => balance > 0,
            None => !self.controlled && ahead(self.allowance.0, self.count) > 0,
        }
    }

    pub(crate) fn send(&mut self) -> u32 {
        self.count = self.count.wrapping_add(1);
        self.probe_at = None;
        self.count
    }

    /// Notes that a capsule waits for credits. Schedules a probe, as earlier capsules may be lost.
    pub(crate) fn wait(&mut self, now: Time) {
        self.probe_at.get_or_insert(now + self.refresh.interval);
    }

    pub(crate) fn on_timeout(&mut self, now: Time) -> bool {
        self.tags.retain(|_, tag| {
            now.since(tag.last_credit_at) < TAG_TIMEOUT || tag.last_credit_at > now
        });
        if self.tags.is_empty() && self.allowance.1 <= now {
            self.allowance = (self.count.wrapping_add(self.buffer), now + REFRESH);
            self.allowances += u32::from(self.count > 0);
            self.controlled |= self.allowances >= ALLOWANCES_MAX;
        }
        let probes = self.probe_at.take_if(|at| *at <= now).is_some();
        if probes {
            self.probe_at = Some(now + self.refresh.interval);
            self.refresh.back_off();
        }
        probes
    }

    /// Returns the next [`on_timeout`](Self::on_timeout): for a waiting capsule or a silent branch.
    pub(crate) fn next_timeout(&self, waits: bool) -> Option<Time> {
        if !waits && self.probe_at.is_none() {
            return None;
        }
        let expiry = self.tags.values().map(|tag| tag.last_credit_at + TAG_TIMEOUT).min();
        let expires = (!self.controlled && self.probe_at.is_some()).then_some(self.allowance.1);
        self.probe_at.into_iter().chain(expiry.or(expires)).min()
    }
}
