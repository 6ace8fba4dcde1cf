//! A branch at the node above it: how many capsules were sent to it, and how many more its credits allow.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::{BadInput, Checked, Duration, Time};

use super::refresh::{REFRESH, Refresh};
use super::wire::{Credit, ahead};

/// Silence after which whoever sent credits is taken to be gone. Chosen: three of the longest refreshes.
pub(super) const TAG_TIMEOUT: Duration = Duration::from_secs(3);

/// Times [`REFRESH`] in which a branch without any credits may send, before it counts as silent.
const TIMES_FREE_MAX: u32 = (TAG_TIMEOUT.as_nanos() / REFRESH.as_nanos()) as u32;

/// Nodes of which a branch has credits at most: behind routers that are no flow-control nodes there may be many.
const TAGS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Branch {
    /// TC: capsules that were sent.
    count: u32,
    /// The next flow-control nodes below, by their tags.
    tags: BTreeMap<u64, Tag>,
    /// Tags of departed nodes, with their expiry.
    gone: Vec<(u64, Time)>,
    /// Where nobody sends credits: up to where it may send until when.
    free: (u32, Time),
    buffer: u32,
    /// True if a node below has sent credits, or has had the time to.
    controlled: bool,
    /// Times that more was free.
    times_free: u32,
    probe_at: Option<Time>,
    /// After how long it asks, once it waits for credits.
    refresh: Refresh,
}

#[derive(Clone, Copy, Debug)]
struct Tag {
    /// B + FC: up to here capsules find room.
    edge: u32,
    weight: u32,
    heard_at: Time,
}

impl Branch {
    /// A branch to which nothing was sent. Until somebody below sends credits `buffer` capsules may be under way.
    pub(crate) fn new(now: Time, buffer: u16) -> Self {
        let buffer = u32::from(buffer);
        Self { free: (buffer, now + REFRESH), buffer, ..Self::default() }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn weight(&self) -> u32 {
        self.tags.values().fold(0u32, |sum, tag| sum.saturating_add(tag.weight)).max(1)
    }

    /// A credit has come. Returns whether there is news in it.
    ///
    /// # Errors
    /// Fails if the credit is for more than was ever sent, for a larger buffer than the session has, or of one node too
    /// many.
    pub(crate) fn on_credit(&mut self, now: Time, credit: &Credit) -> Checked<bool> {
        if ahead(credit.count, self.count) > 0 || credit.buffer > self.buffer {
            return Err(BadInput::Absurd);
        }
        if self.gone.iter().any(|(tag, until)| *tag == credit.tag && now < *until) {
            return Ok(false);
        }
        let full = self.tags.len() >= TAGS_MAX && !self.tags.contains_key(&credit.tag);
        if full {
            return Err(BadInput::TableFull);
        }
        let known = self.tags.len();
        let edge = credit.count.wrapping_add(credit.buffer);
        let tag = self.tags.entry(credit.tag).or_insert(Tag { edge, weight: 1, heard_at: now });
        let moves = ahead(edge, tag.edge) > 0;
        tag.edge = if moves { edge } else { tag.edge };
        (tag.weight, tag.heard_at) = (credit.weight, now);
        self.controlled = true;
        self.probe_at = None;
        self.refresh.on_news(now);
        Ok(moves || known == 0)
    }

    /// Whose tag this is is gone: what it says of packets that have come to it late is not waited for.
    pub(crate) fn forget(&mut self, now: Time, tag: u64) {
        if self.tags.remove(&tag).is_some() {
            self.gone.retain(|(_, until)| now < *until);
            if self.gone.len() < TAGS_MAX {
                self.gone.push((tag, now + TAG_TIMEOUT));
            }
        }
    }

    /// All who sent credits are gone: nobody below waits for anything, until one is heard again.
    pub(crate) fn is_silent(&self) -> bool {
        self.controlled && self.tags.is_empty()
    }

    pub(crate) fn may_send(&self) -> bool {
        match self.tags.values().map(|tag| ahead(tag.edge, self.count)).min() {
            Some(balance) => balance > 0,
            None => !self.controlled && ahead(self.free.0, self.count) > 0,
        }
    }

    pub(crate) fn send(&mut self) -> u32 {
        self.count = self.count.wrapping_add(1);
        self.probe_at = None;
        self.count
    }

    /// Something waits that may not be sent: perhaps what was sent before was lost, of which those below have to hear.
    pub(crate) fn wait(&mut self, now: Time) {
        self.probe_at.get_or_insert(now + self.refresh.interval());
    }

    /// Takes the passing of time. Returns whether those below are to be told how many were sent.
    pub(crate) fn on_timeout(&mut self, now: Time) -> bool {
        self.tags.retain(|_, tag| now.since(tag.heard_at) < TAG_TIMEOUT || tag.heard_at > now);
        if self.tags.is_empty() && self.free.1 <= now {
            self.free = (self.count.wrapping_add(self.buffer), now + REFRESH);
            self.times_free += u32::from(self.count > 0);
            self.controlled |= self.times_free >= TIMES_FREE_MAX;
        }
        let probes = self.probe_at.take_if(|at| *at <= now).is_some();
        if probes {
            self.probe_at = Some(now + self.refresh.interval());
            self.refresh.back_off();
        }
        probes
    }

    /// When [`on_timeout`](Self::on_timeout) wants to be called. Expiry matters only if a capsule
    /// `waits`, or its branch is silent and asked again.
    pub(crate) fn next_timeout(&self, waits: bool) -> Option<Time> {
        if !waits && self.probe_at.is_none() {
            return None;
        }
        let expiry = self.tags.values().map(|tag| tag.heard_at + TAG_TIMEOUT).min();
        let free = (!self.controlled && self.probe_at.is_some()).then_some(self.free.1);
        self.probe_at.into_iter().chain(expiry.or(free)).min()
    }
}
