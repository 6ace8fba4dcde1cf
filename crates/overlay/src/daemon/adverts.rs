//! Advertisements: the link-state database, and the own entry in it.

use alloc::string::String;

use faircast_base::Time;

use crate::ids::DaemonRun;
use crate::topology::{ADVERT_INTERVAL, Advert, Database};
use crate::wire::NUMBER_MAX;

/// Maximum number of answers to another run with the own name; an earlier run leaves few adverts.
const ANSWERS_MAX: u32 = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct Adverts {
    pub(super) database: Database,
    /// Number of the own newest advertisement.
    number: u64,
    pub(super) renew_at: Time,
    /// Incarnation of a later run with this name, and number of answers to its advertisements.
    rival: (u64, u32),
}

impl Adverts {
    pub(super) fn new(now: Time) -> Self {
        Self { renew_at: now, ..Self::default() }
    }

    /// Returns the next own advertisement.
    pub(super) fn renew(
        &mut self,
        now: Time,
        (origin, name): (DaemonRun, String),
        links: alloc::vec::Vec<(DaemonRun, u32, u32)>,
    ) -> Advert {
        self.number += 1;
        self.renew_at = now + ADVERT_INTERVAL;
        Advert { origin, number: self.number, name, links }
    }

    /// True if an advertisement of another run with the own name, maybe forged, needs an answer
    /// with a greater number. Of two active daemons with one name the earlier run gives up.
    pub(super) fn must_answer(&mut self, me: DaemonRun, advert: &Advert) -> bool {
        let known = self.database.get(me.id);
        let is_new = known.is_none_or(|known| advert.age() >= known.age() && advert != known);
        let other = advert.origin.incarnation;
        if advert.origin.id != me.id || !is_new {
            return false;
        }
        let mut answers = true;
        if other > me.incarnation {
            let before = if self.rival.0 == other { self.rival.1 } else { 0 };
            self.rival = (other, before.saturating_add(1));
            answers = self.rival.1 <= ANSWERS_MAX;
        }
        if answers {
            self.number = advert.number.min(NUMBER_MAX - 1);
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::ids::DaemonId;

    #[test]
    fn an_earlier_run_is_always_answered_and_a_later_one_eight_times() {
        let run = |incarnation| DaemonRun { id: DaemonId(1), incarnation };
        let mut adverts = Adverts::new(Time::ZERO);
        let forged = |incarnation, number| Advert {
            origin: run(incarnation),
            number,
            name: "d".into(),
            links: Vec::new(),
        };
        let answers = |adverts: &mut Adverts, incarnation| {
            (1..20).filter(|it| adverts.must_answer(run(5), &forged(incarnation, *it))).count()
        };
        assert_eq!([4, 6, 7].map(|it| answers(&mut adverts, it)), [19, 8, 8]);
        let own = adverts.renew(Time::ZERO, (run(5), "d".into()), Vec::new());
        assert_eq!(own.number, 9, "above the number of the last answered advertisement");
    }
}
