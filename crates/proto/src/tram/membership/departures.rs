//! Receivers that left without everything, or came back, so that the source can name them at the
//! end. Each receiver counts its heads. Of two reports about it the one with the higher count is
//! later, so reports may be repeated and overtake each other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::NodeId;

use crate::ShortReceiver;
use crate::tram::wire::{DEPARTURES_MAX, Departed, Fate};

/// Most entries at the source; chosen.
pub(crate) const SOURCE_MAX: usize = 1024;

/// Most entries that one member may report: its own table, as it changes.
const OF_ONE_MAX: usize = 2 * DEPARTURES_MAX;

/// Acknowledgements that carry a change: one of them arrives.
const REPORTS: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct Entry {
    departed: Departed,
    /// Member that reported the receiver; `None` for a former member of this head.
    by: Option<NodeId>,
}

#[derive(Debug, Default)]
pub(crate) struct Departures {
    entries: BTreeMap<u64, Entry>,
    pub(super) entries_max: usize,
    /// Departed receivers without an entry, for lack of room.
    pub(crate) unlisted: u32,
    /// Acknowledgements that are still to carry the latest change.
    reports_left: u8,
}

impl Departures {
    pub(crate) fn new() -> Self {
        Self { entries: BTreeMap::new(), entries_max: DEPARTURES_MAX, unlisted: 0, reports_left: 0 }
    }

    pub(crate) fn record(&mut self, departed: Departed) {
        if !self.insert(departed, None) {
            self.count(departed.below.saturating_add(1));
        }
        self.reports_left = REPORTS;
    }

    pub(crate) fn count(&mut self, receivers: u32) {
        self.unlisted = self.unlisted.saturating_add(receivers);
    }

    fn own(&self, id: u64) -> Option<Departed> {
        self.entries.get(&id).filter(|it| it.by.is_none()).map(|it| it.departed)
    }

    pub(crate) fn amend(&mut self, id: u64, lacks: Option<Fate>) {
        let own = self.own(id).filter(|it| matches!(it.fate, Fate::Silent | Fate::Complete));
        match (own, lacks) {
            (Some(before), Some(fate)) => self.record(Departed { fate, below: 0, ..before }),
            (Some(_), None) => self.take_back(id),
            (None, _) => {}
        }
    }

    pub(crate) fn take_back(&mut self, id: u64) {
        if let Some(before) = self.own(id) {
            let joins = before.joins.saturating_add(1);
            self.record(Departed { fate: Fate::Back, joins, below: 0, ..before });
        }
    }

    /// Takes an entry from a member. Returns true if there was room, or none was needed.
    pub(crate) fn on_report(&mut self, by: NodeId, departed: Departed) -> bool {
        let of_member = || self.entries.values().filter(|it| it.by == Some(by)).count();
        match self.entries.get(&departed.id) {
            Some(entry) if !is_later(&departed, &entry.departed) => return true,
            // No honest member reports that many.
            None if of_member() >= OF_ONE_MAX => return true,
            _ => {}
        }
        let fits = self.insert(departed, Some(by));
        if fits {
            self.reports_left = REPORTS;
        }
        fits || departed.fate == Fate::Back
    }

    fn insert(&mut self, departed: Departed, by: Option<NodeId>) -> bool {
        if let Some(entry) = self.entries.get_mut(&departed.id) {
            if is_later(&departed, &entry.departed) {
                *entry = Entry { departed, by };
            }
            return true;
        }
        if self.entries.len() >= self.entries_max && departed.fate != Fate::Back {
            // Entries of returned receivers matter least.
            let back = self.iter().find(|it| it.fate == Fate::Back).map(|it| it.id);
            if let Some(id) = back {
                self.entries.remove(&id);
            }
        }
        let fits = self.entries.len() < self.entries_max;
        if fits {
            self.entries.insert(departed.id, Entry { departed, by });
        }
        fits
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unlisted == 0
    }

    pub(crate) fn is_due(&self) -> bool {
        self.reports_left > 0
    }

    pub(crate) fn on_reported(&mut self) {
        self.reports_left = self.reports_left.saturating_sub(1);
    }

    pub(crate) fn report_again(&mut self) {
        if !self.is_empty() {
            self.reports_left = REPORTS;
        }
    }

    pub(crate) fn silent(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let own = self.entries.values().filter(|it| it.by.is_none()).map(|it| it.departed);
        own.filter(|it| it.fate == Fate::Silent).filter_map(|it| Some((it.node?, it.id)))
    }

    pub(crate) fn found_by(&self, member: NodeId) -> u32 {
        let all = self.entries.values().filter(|it| it.by == Some(member));
        let found = all.map(|it| it.departed).filter(|it| it.came_from != 0);
        found.map(|it| it.below.saturating_add(1)).fold(0, u32::saturating_add)
    }

    pub(crate) fn found_from(&self, head: u64) -> u32 {
        let back = self.iter().filter(|it| it.came_from == head && it.fate == Fate::Back);
        back.map(|it| it.below.saturating_add(1)).fold(0, u32::saturating_add)
    }

    pub(crate) fn is_back(&self, id: u64) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.departed.fate == Fate::Back)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Departed> {
        self.entries.values().map(|it| &it.departed)
    }

    /// Returns the incomplete receivers, except those `here`, and the number of further ones.
    /// `below` counts receivers below members at the end, and unnamed ones.
    pub(crate) fn shortfall(
        &self,
        here: impl Fn(u64) -> bool,
        below: u64,
    ) -> (Vec<ShortReceiver>, u64) {
        let absent = || self.entries.values().filter(|it| !here(it.departed.id));
        let short = |it: &Entry| {
            let Departed { id, node, fate, .. } = it.departed;
            Some(ShortReceiver { id, node, was_member: it.by.is_none(), reason: fate.shortfall()? })
        };
        let named = absent().filter_map(short).collect();
        let abandoned = absent().filter(|it| it.departed.fate.abandons());
        let lost: u64 = abandoned.map(|it| u64::from(it.departed.below)).sum();
        // A receiver that moved from a silent head was below one of these heads, or deeper.
        let was_lost =
            |id: u64| id != 0 && self.entries.get(&id).is_none_or(|it| it.departed.fate.abandons());
        let found = self.iter().filter(|it| was_lost(it.came_from));
        let found: u64 = found.map(|it| u64::from(it.below) + 1).sum();
        (named, lost.saturating_sub(found) + below + u64::from(self.unlisted))
    }
}

fn is_later(new: &Departed, old: &Departed) -> bool {
    (new.joins, new.fate) > (old.joins, old.fate)
}

#[cfg(test)]
mod tests;
