//! Members that have left by a goodbye, which anybody can forge.

use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, Time};

use super::Child;

/// Delay from a goodbye until the member is asked: packets until then predate the goodbye.
const ASKED_AFTER: Duration = Duration::from_millis(100);

/// Time after a goodbye in which a member can return; a departed member answers for as long.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Most remembered goodbyes; chosen.
const PARTED_MAX: usize = 256;

#[derive(Debug)]
struct Gone {
    node: NodeId,
    child: Child,
    at: Time,
    asked: bool,
}

#[derive(Debug, Default)]
pub(in crate::tram) struct Parted {
    gone: Vec<Gone>,
}

impl Parted {
    pub(super) fn add(&mut self, now: Time, node: NodeId, mut child: Child) {
        self.forget(now);
        self.gone.retain(|gone| (gone.node, gone.child.id) != (node, child.id));
        if self.gone.len() >= PARTED_MAX {
            self.gone.remove(0);
        }
        child.unnamed = 0;
        self.gone.push(Gone { node, child, at: now, asked: false });
    }

    fn forget(&mut self, now: Time) {
        self.gone.retain(|gone| now.since(gone.at) < REMEMBERED);
    }

    fn position(&self, now: Time, node: NodeId, id: u64) -> Option<usize> {
        let is_it = |gone: &Gone| (gone.node, gone.child.id) == (node, id);
        self.gone.iter().position(|gone| is_it(gone) && now.since(gone.at) < REMEMBERED)
    }

    pub(in crate::tram) fn has(&self, now: Time, node: NodeId, id: u64) -> bool {
        self.position(now, node, id).is_some()
    }

    /// Takes back the member with this number, unless its packet may predate the goodbye.
    pub(super) fn take_back(&mut self, now: Time, node: NodeId, id: u64) -> Option<Child> {
        let place = self.position(now, node, id)?;
        let overtaken = now.since(self.gone[place].at) < ASKED_AFTER;
        (!overtaken).then(|| self.gone.remove(place)).map(|gone| {
            let joins = gone.child.joins.saturating_add(1);
            Child {
                joins,
                heard_at: now,
                advanced_at: now,
                fruitless: 0,
                unanswered: 0,
                ..gone.child
            }
        })
    }

    pub(in crate::tram) fn ask(&mut self, now: Time) -> (Option<Time>, Vec<(NodeId, u64)>) {
        self.forget(now);
        let due = |gone: &&mut Gone| !gone.asked && gone.at + ASKED_AFTER <= now;
        let asked = self.gone.iter_mut().filter(due).map(|gone| {
            gone.asked = true;
            (gone.node, gone.child.id)
        });
        let asked = asked.collect();
        let next = self.gone.iter().filter(|gone| !gone.asked).map(|gone| gone.at + ASKED_AFTER);
        (next.min(), asked)
    }
}
