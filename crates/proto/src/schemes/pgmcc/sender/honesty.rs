//! Whether an acker's reports fit what it acknowledges (src: pgmcc-draft s5).

/// Packets that must be settled before an acker is judged: the memory of the loss filter, so that
/// what it measured before it became acker has faded.
const PACKETS: u32 = 256;

/// How many times the loss that its bitmaps show an acker may report.
const FACTOR: f64 = 4.0;

/// And how much more in addition: some losses that the sender could not see.
const SLACK: f64 = 0.03;

/// What an acker has shown and said in its time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Honesty {
    /// The receiver's filter, run by the sender over what the bitmaps show; it starts from the
    /// first report.
    shown: Option<f64>,
    said: f64,
    settled: u32,
}

impl Honesty {
    /// The acker reports this loss.
    pub(super) fn reports(&mut self, loss: f64) {
        self.said = loss;
        self.shown.get_or_insert(loss);
    }

    /// Its bitmap settles packets.
    pub(super) fn saw(&mut self, received: u32, lost: u32, gain: f64) {
        let Some(shown) = &mut self.shown else { return };
        for _ in 0..lost {
            *shown += gain * (1.0 - *shown);
        }
        for _ in 0..received {
            *shown -= gain * *shown;
        }
        self.settled = self.settled.saturating_add(received + lost);
    }

    /// Whether it reports far more loss than it shows.
    pub(super) fn is_exposed(&self) -> bool {
        let Some(shown) = self.shown else { return false };
        self.settled >= PACKETS && self.said > FACTOR * shown + SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAIN: f64 = 500.0 / 65536.0;

    #[test]
    fn an_honest_acker_is_never_exposed_whatever_its_loss_was_before() {
        for before in [0.0, 0.01, 0.1, 0.5, 1.0] {
            let mut honesty = Honesty::default();
            let mut p = before;
            for i in 0..5000 {
                let lost = i % 97 == 0;
                p += GAIN * (f64::from(u32::from(lost)) - p);
                honesty.reports(p);
                honesty.saw(u32::from(!lost), u32::from(lost), GAIN);
                assert!(!honesty.is_exposed(), "from {before} at packet {i}");
            }
        }
    }

    #[test]
    fn an_acker_that_claims_losses_it_does_not_show_is_exposed() {
        for claim in [0.1, 0.3, 1.0] {
            let mut honesty = Honesty::default();
            let exposed = (0..2000).find(|_| {
                honesty.reports(claim);
                honesty.saw(1, 0, GAIN);
                honesty.is_exposed()
            });
            assert!(exposed.is_some_and(|packets| packets < 500), "{claim}: {exposed:?}");
        }
    }
}
