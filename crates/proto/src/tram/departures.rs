//! Receivers that went without everything, and those of them that are back: what heads know and tell each other, so
//! that the source can name at the end who lacks something.
//!
//! Each receiver counts the heads that have had it. Of two words about one receiver the one with the higher count is
//! the later, whichever way it came, so words may be repeated and overtake each other.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use faircast_base::NodeId;

use super::wire::{DEPARTURES_MAX, Departed, Fate};
use crate::ShortReceiver;

/// Most that the source knows of; chosen.
pub(super) const SOURCE_MAX: usize = 1024;

/// Most that one member is believed: what its own table holds, as it changes.
const OF_ONE_MAX: usize = 2 * DEPARTURES_MAX;

/// In how many acknowledgements news is told: one of them arrives.
const TELLINGS: u8 = 3;

#[derive(Clone, Copy, Debug)]
struct Entry {
    departed: Departed,
    /// The member that told of it; `None` where it was a member itself.
    by: Option<NodeId>,
}

/// The table of a head, or of the source.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// By the numbers of the receivers.
    entries: BTreeMap<u64, Entry>,
    max: usize,
    /// Receivers of its own for which there was no room.
    pub(super) unnamed: u32,
    /// In how many acknowledgements it is still told.
    tellings: u8,
}

impl Departures {
    pub(super) fn new() -> Self {
        Self { entries: BTreeMap::new(), max: DEPARTURES_MAX, unnamed: 0, tellings: 0 }
    }

    /// The same with room for so many.
    pub(super) fn with_room(&mut self, max: usize) {
        self.max = max;
    }

    /// One that this head knows of itself.
    pub(super) fn note(&mut self, departed: Departed) {
        if !self.insert(departed, None) {
            self.count(departed.below.saturating_add(1));
        }
        self.tellings = TELLINGS;
    }

    /// So many more receivers are gone of whom no more is known.
    pub(super) fn count(&mut self, receivers: u32) {
        self.unnamed = self.unnamed.saturating_add(receivers);
    }

    /// Whoever was given up says goodbye after all.
    pub(super) fn amend(&mut self, id: u64, lacks: Option<Fate>) {
        let own = self.entries.get(&id).filter(|it| it.by.is_none());
        let Some(Entry { departed: before, .. }) = own.copied() else { return };
        let (fate, joins) = match lacks {
            Some(fate) => (fate, before.joins),
            None => (Fate::Back, before.joins.saturating_add(1)),
        };
        if matches!(before.fate, Fate::Silent | Fate::Complete) {
            self.note(Departed { fate, joins, below: 0, ..before });
        }
    }

    /// A member of its own that has left, as it seemed, is still there.
    pub(super) fn take_back(&mut self, id: u64) {
        let own = self.entries.get(&id).filter(|it| it.by.is_none());
        if let Some(Entry { departed, .. }) = own.copied() {
            let joins = departed.joins.saturating_add(1);
            self.note(Departed { fate: Fate::Back, joins, below: 0, ..departed });
        }
    }

    /// A member tells of one. Returns whether there is room.
    pub(super) fn hear(&mut self, by: NodeId, departed: Departed) -> bool {
        if let Some(entry) = self.entries.get(&departed.id)
            && !is_later(&departed, &entry.departed)
        {
            return true;
        }
        let is_new = !self.entries.contains_key(&departed.id);
        if is_new && self.entries.values().filter(|it| it.by == Some(by)).count() >= OF_ONE_MAX {
            // Nobody honest knows of so many.
            return true;
        }
        let fits = self.insert(departed, Some(by));
        if fits {
            self.tellings = TELLINGS;
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
        if self.entries.len() >= self.max && departed.fate != Fate::Back {
            // Whoever is back is missed less.
            let back = self.entries.iter().find(|(_, it)| it.departed.fate == Fate::Back);
            if let Some(id) = back.map(|(id, _)| *id) {
                self.entries.remove(&id);
            }
        }
        let fits = self.entries.len() < self.max;
        if fits {
            self.entries.insert(departed.id, Entry { departed, by });
        }
        fits
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.unnamed == 0
    }

    /// Whether the next acknowledgement is to tell of it.
    pub(super) fn is_due(&self) -> bool {
        self.tellings > 0
    }

    /// It was told once more.
    pub(super) fn on_told(&mut self) {
        self.tellings = self.tellings.saturating_sub(1);
    }

    /// There is another head, which knows nothing.
    pub(super) fn tell_again(&mut self) {
        if !self.is_empty() {
            self.tellings = TELLINGS;
        }
    }

    /// Those of its own members that fell silent.
    pub(super) fn silent(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let own = self.entries.values().filter(|it| it.by.is_none());
        let own = own.map(|it| it.departed).filter(|it| it.fate == Fate::Silent);
        own.filter_map(|it| Some((it.node?, it.id)))
    }

    /// Receivers of whom a member tells that they came from a head that fell silent, with those below them.
    pub(super) fn found_by(&self, member: NodeId) -> u32 {
        let all = self.entries.values().filter(|it| it.by == Some(member));
        let found = all.map(|it| it.departed).filter(|it| it.came_from != 0);
        found.map(|it| it.below.saturating_add(1)).fold(0, u32::saturating_add)
    }

    /// Receivers that have another head now, and were below `head` until that fell silent.
    pub(super) fn found_from(&self, head: u64) -> u32 {
        let back = self.iter().filter(|it| it.came_from == head && it.fate == Fate::Back);
        back.map(|it| it.below.saturating_add(1)).fold(0, u32::saturating_add)
    }

    /// True if this receiver fell silent and has a head again.
    pub(super) fn is_back(&self, id: u64) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.departed.fate == Fate::Back)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Departed> {
        self.entries.values().map(|it| &it.departed)
    }

    /// Who lacks something, but for those who are `here`, and how many more there may be: `below` are below members of the
    /// source that end with it, or could not be named.
    pub(super) fn shortfall(
        &self,
        here: impl Fn(u64) -> bool,
        below: u64,
    ) -> (Vec<ShortReceiver>, u64) {
        let gone = || self.entries.values().filter(|it| !here(it.departed.id));
        let short = |it: &Entry| {
            let Departed { id, node, fate, .. } = it.departed;
            Some(ShortReceiver { id, node, was_member: it.by.is_none(), reason: fate.shortfall()? })
        };
        let named = gone().filter_map(short).collect();
        let abandoned = gone().filter(|it| it.departed.fate.abandons());
        let lost: u64 = abandoned.map(|it| u64::from(it.departed.below)).sum();
        // Whoever has found another head after its own fell silent was below one of these, or deeper.
        let was_lost =
            |id: u64| id != 0 && self.entries.get(&id).is_none_or(|it| it.departed.fate.abandons());
        let found = self.iter().filter(|it| was_lost(it.came_from));
        let found: u64 = found.map(|it| u64::from(it.below) + 1).sum();
        (named, lost.saturating_sub(found) + below + u64::from(self.unnamed))
    }
}

fn is_later(new: &Departed, old: &Departed) -> bool {
    (new.joins, new.fate) > (old.joins, old.fate)
}

#[cfg(test)]
mod tests;
