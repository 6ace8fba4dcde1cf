//! Claims that contradict beliefs about a source, and the rule to accept them.

use alloc::boxed::Box;

use faircast_base::{Duration, Time};

/// Claim of packets against a belief, which any host can forge: accepted after `PACKETS` packets,
/// or [`PACKETS_SLOW`] over [`SLOW`], without a denial in between. Boxed, since rare.
#[derive(Debug)]
pub(crate) struct Dissent<T, const PACKETS: u32 = MANY> {
    claim: Option<Box<Claim<T>>>,
}

#[derive(Debug)]
struct Claim<T> {
    what: T,
    since: Time,
    at: Time,
    packets: u32,
}

impl<T, const PACKETS: u32> Default for Dissent<T, PACKETS> {
    fn default() -> Self {
        Self { claim: None }
    }
}

impl<T, const PACKETS: u32> Dissent<T, PACKETS> {
    /// Takes a claim, which replaces one older than `wait`. True if `what` is accepted, and over.
    pub(crate) fn claim(
        &mut self,
        now: Time,
        what: T,
        wait: Duration,
        agrees: impl FnOnce(&T) -> bool,
    ) -> bool {
        match &mut self.claim {
            Some(claim) if agrees(&claim.what) => {
                (claim.what, claim.at) = (what, now);
                claim.packets += 1;
                let slow = claim.packets >= PACKETS_SLOW && now.since(claim.since) >= SLOW;
                if slow || claim.packets >= PACKETS {
                    self.claim = None;
                    return true;
                }
            }
            Some(claim) if now.since(claim.at) < wait => {}
            _ => self.claim = Some(Box::new(Claim { what, since: now, at: now, packets: 1 })),
        }
        false
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.claim.as_ref().map(|claim| &claim.what)
    }

    /// Voids the claim, since a packet confirms the present belief.
    pub(crate) fn contradict(&mut self) {
        // Checked first, so that most packets write nothing.
        if self.claim.is_some() {
            self.claim = None;
        }
    }
}

/// Packets that must make a claim: more than a handful of forged ones.
pub(crate) const MANY: u32 = 12;

/// Packets that must make a claim over the time [`SLOW`], since packets may be rare.
pub(crate) const PACKETS_SLOW: u32 = 3;
pub(crate) const SLOW: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    fn believed_with(gap_ms: u64) -> Option<u64> {
        let mut dissent = Dissent::<()>::default();
        (1..=12).find(|i| dissent.claim(at(gap_ms * i), (), Duration::ZERO, |()| true))
    }

    #[test]
    fn a_claim_needs_many_packets_or_a_while() {
        assert_eq!(believed_with(0), Some(12));
        assert_eq!(believed_with(100), Some(11));
        assert_eq!(believed_with(600), Some(3));
    }

    #[test]
    fn who_contradicts_ends_a_claim_and_another_one_waits_for_its_turn() {
        let mut dissent = Dissent::<u32, 2>::default();
        let wait = Duration::from_millis(50);
        let mut claim = |ms, what: u32| {
            let agrees = |before: &u32| *before == what;
            dissent.claim(at(ms), what, wait, agrees)
        };
        assert!(!claim(0, 1) && !claim(10, 2) && claim(20, 1), "2 came too soon");
        assert!(!claim(30, 1) && !claim(90, 2) && !claim(100, 1) && claim(110, 2));
        dissent.claim(at(200), 1, wait, |_| true);
        dissent.contradict();
        assert!(!dissent.claim(at(210), 1, wait, |_| true));
    }
}
