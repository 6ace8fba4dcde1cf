//! Claims that contradict what is believed of a source, and when they are believed instead.

use alloc::boxed::Box;

use faircast_base::{Duration, Time};

/// A claim that packets make against what is known, and how many have made it.
///
/// Without a key anybody can send packets in the name of the source, and a network may damage some.
/// What contradicts earlier packets is believed once several packets have said it and, by its owner's
/// rule, none has contradicted it in between. A source that still sends does that with its next packet.
///
/// `PACKETS` packets are enough in any time, or [`PACKETS_SLOW`] over [`SLOW`]. Every packet looks here
/// and hardly any claims anything, so a claim has memory of its own.
#[derive(Debug)]
pub(crate) struct Dissent<T, const PACKETS: u32 = MANY> {
    claim: Option<Box<Claim<T>>>,
}

#[derive(Debug)]
struct Claim<T> {
    what: T,
    since: Time,
    /// When it was last made.
    at: Time,
    packets: u32,
}

impl<T, const PACKETS: u32> Default for Dissent<T, PACKETS> {
    fn default() -> Self {
        Self { claim: None }
    }
}

impl<T, const PACKETS: u32> Dissent<T, PACKETS> {
    /// A packet claims `what`. Where it does not go on from the claim before, by `agrees`, it takes
    /// its place if that was last made `wait` ago or earlier. Returns whether `what` is believed
    /// now; then there is no claim left.
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

    /// A packet says what is believed already: the claim is void.
    pub(crate) fn contradict(&mut self) {
        // What is not there is not written either, since that is what every packet finds.
        if self.claim.is_some() {
            self.claim = None;
        }
    }
}

/// More packets than a handful of forged ones.
pub(crate) const MANY: u32 = 12;

/// Fewer are enough where packets are rare and nothing has contradicted them for so long.
pub(crate) const PACKETS_SLOW: u32 = 3;
pub(crate) const SLOW: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    /// The packet of a series with which the claim is believed; packets `gap_ms` apart.
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
