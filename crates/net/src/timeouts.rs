//! Timeouts of all sessions, ordered by time.

use std::collections::{BTreeMap, BTreeSet};

use faircast_base::Time;

use crate::SessionId;

#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    in_order: BTreeSet<(Time, SessionId)>,
    of: BTreeMap<SessionId, Time>,
}

impl Timeouts {
    pub(crate) fn set(&mut self, id: SessionId, at: Option<Time>) {
        let before = match at {
            Some(at) => self.of.insert(id, at),
            None => self.of.remove(&id),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.in_order.remove(&(before, id));
        }
        self.in_order.extend(at.map(|at| (at, id)));
    }

    pub(crate) fn first(&self) -> Option<(Time, SessionId)> {
        self.in_order.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use faircast_base::{NodeId, Purpose, Rng};

    use super::*;

    #[test]
    fn the_first_is_what_a_scan_over_all_finds() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed, NodeId(0), Purpose::Scenario);
            let (mut timeouts, mut scanned) = (Timeouts::default(), [None; 50]);
            for _ in 0..2000 {
                let id = rng.below(50);
                let at = rng.chance(0.7).then(|| Time::from_nanos(rng.below(40)));
                scanned[id as usize] = at;
                timeouts.set(SessionId(id as u32), at);
                let all =
                    scanned.iter().zip(0..).filter_map(|(at, id)| Some(((*at)?, SessionId(id))));
                assert_eq!(timeouts.first(), all.min(), "seed {seed}");
                assert_eq!(timeouts.in_order.len(), timeouts.of.len(), "nothing stale is kept");
            }
        }
    }
}
