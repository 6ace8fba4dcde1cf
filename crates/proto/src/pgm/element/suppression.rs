//! Policies by which a network element forwards some repeated NAKs: elimination also holds back
//! reports, possibly the report of the slowest receiver (src: seada-helmy s4.3).

use faircast_base::{Rng, Time};

use super::ElementConfig;
use crate::congestion::{RelayedReport, Reported, SchemeEntry};
use crate::pgm::wire::Packet;
use crate::settings::choices;

choices! {
    /// NAKs that pass for a packet that was already requested.
    pub enum Suppression {
        /// All NAKs.
        None = "none",
        /// None until the elimination interval is over (src: RFC 3208 s7.4).
        Rfc3208 = "rfc3208",
        /// NAKs with more loss than any that passed (src: seada-helmy s4.3, from pgmcc).
        Loss = "loss",
        /// NAKs with less throughput, by loss and round trip below here (src: seada-helmy s4.3).
        Throughput = "throughput",
        /// NAKs chosen at random (src: seada-helmy s4.3).
        Random = "random",
    }
}

/// Probability for each NAK with `Suppression::Random`. The paper gives no number: at one half, the
/// NAK of the worst of a hundred receivers passes for every other loss, and the load is halved.
pub(super) const PASS_PROBABILITY: f64 = 0.5;

/// Worst values in the reports of NAKs that passed for one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    worst_loss: f64,
    worst_slowness_squared: f64,
}

pub(super) fn report_on(
    now: Time,
    schemes: &'static [SchemeEntry],
    pgm: &Packet<'_>,
) -> Option<RelayedReport> {
    let (view, value) = schemes.iter().find_map(|SchemeEntry { view, .. }| {
        Some((view, pgm.options.find(view.report_option)?.value))
    })?;
    RelayedReport::new(now, view, value)
}

impl Passed {
    pub(super) fn note(&mut self, reported: Option<Reported>) {
        let Some(reported) = reported else { return };
        self.worst_loss = self.worst_loss.max(reported.loss);
        self.worst_slowness_squared = self.worst_slowness_squared.max(reported.slowness_squared);
    }
}

impl Suppression {
    pub(super) fn needs_stamps(self) -> bool {
        self == Self::Throughput
    }
}

impl ElementConfig {
    /// Returns true if a held-back NAK passes; without a report, only by chance or under `None`.
    pub(super) fn lets_pass(
        &self,
        rng: &mut Rng,
        passed: &Passed,
        reported: Option<Reported>,
    ) -> bool {
        match (self.suppression, reported) {
            (Suppression::None, _) => true,
            (Suppression::Random, _) => rng.chance(PASS_PROBABILITY),
            (Suppression::Loss, Some(reported)) => reported.loss > passed.worst_loss,
            (Suppression::Throughput, Some(reported)) => {
                reported.slowness_squared > passed.worst_slowness_squared
            }
            (Suppression::Rfc3208 | Suppression::Loss | Suppression::Throughput, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::encoded;
    use crate::congestion::pgmcc::{Pgmcc, PgmccReport};
    use crate::congestion::{RouterView, Stamps};
    use crate::world::at;
    use faircast_base::{Duration, NodeId, Purpose};

    const VIEW: RouterView = RouterView::of::<Pgmcc>();

    fn reported(at: Time, echo_ms: u32, loss: f64, stamps: &Stamps) -> Reported {
        let report =
            PgmccReport { echo_ms, loss: (loss * 65535.0) as u16, receiver: Some(NodeId(1)) };
        let report = RelayedReport::new(at, &VIEW, &encoded(&report)).expect("it is short enough");
        report.reported(stamps, Duration::ZERO).expect("a loss rate is in it")
    }

    #[test]
    fn policies_pass_what_they_say() {
        let stamps = Stamps::example();
        let mut rng = Rng::new(1, NodeId(0), Purpose::Relay);
        let near = reported(at(1130), 8030, 0.01, &stamps);
        let far = reported(at(1430), 8030, 0.01, &stamps);
        let lossy = reported(at(1130), 8030, 0.02, &stamps);
        let mut passed = Passed::default();
        passed.note(Some(near));
        for (policy, passes_far, passes_lossy) in [
            (Suppression::None, true, true),
            (Suppression::Rfc3208, false, false),
            (Suppression::Loss, false, true),
            (Suppression::Throughput, true, true),
        ] {
            let config = ElementConfig { suppression: policy };
            let mut lets = |reported| config.lets_pass(&mut rng, &passed, reported);
            assert_eq!(lets(Some(far)), passes_far, "{policy:?}");
            assert_eq!(lets(Some(lossy)), passes_lossy, "{policy:?}");
            let blind = policy == Suppression::None;
            assert_eq!(lets(None), blind, "{policy:?} without a report");
            let same = lets(Some(near));
            assert_eq!(same, blind, "{policy:?} for the same again");
        }
    }

    #[test]
    fn chance_passes_its_share() {
        let mut rng = Rng::new(1, NodeId(0), Purpose::Relay);
        let config = ElementConfig { suppression: Suppression::Random };
        let passed = Passed::default();
        let count = (0..10_000).filter(|_| config.lets_pass(&mut rng, &passed, None)).count();
        // Standard deviation 50.
        assert!((4750..5250).contains(&count), "{count}");
    }
}
