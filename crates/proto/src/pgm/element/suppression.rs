//! NAK suppression at a network element: policies that let some repeated NAKs pass.
//!
//! An element passes the first NAK for a packet and holds back those that follow, since one repair
//! serves all. The reports on those NAKs are held back with them, and with them may go the one of
//! the slowest receiver (src: seada-helmy s4.3). These policies let more pass.

use faircast_base::{Rng, Time};

use super::ElementConfig;
use crate::congestion::{RelayedReport, Reported, SchemeEntry};
use crate::pgm::wire::Packet;
use crate::settings::choices;

choices! {
    /// What decides whether a NAK for a packet that was already asked for passes.
    pub enum Suppression {
        /// Nothing: all NAKs pass.
        None = "none",
        /// It does not pass until the elimination interval is over (src: RFC 3208 s7.4).
        Rfc3208 = "rfc3208",
        /// It passes where it reports more loss than any that passed (proposed by pgmcc's first
        /// publication, src: seada-helmy s4.3).
        Loss = "loss",
        /// It passes where its report means less throughput than any that passed, by loss and by the
        /// round trip below this element (src: seada-helmy s4.3).
        Throughput = "throughput",
        /// It passes with a probability (src: seada-helmy s4.3).
        Random = "random",
    }
}

/// Reports of the NAKs that passed for one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    last_loss: f64,
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
        self.last_loss = reported.loss;
        self.worst_loss = self.worst_loss.max(reported.loss);
        self.worst_slowness_squared = self.worst_slowness_squared.max(reported.slowness_squared);
    }
}

impl Suppression {
    /// Whether echoed timestamps must be known to it.
    pub(super) fn needs_stamps(self) -> bool {
        self == Self::Throughput
    }
}

impl ElementConfig {
    /// Whether a NAK that the elimination rule holds back passes nevertheless. One without a
    /// report passes only by chance or where nothing is held back.
    pub(super) fn lets_pass(
        &self,
        rng: &mut Rng,
        passed: &Passed,
        reported: Option<Reported>,
    ) -> bool {
        let by_policy = match (self.suppression, reported) {
            (Suppression::None, _) => true,
            (Suppression::Random, _) => rng.chance(self.pass_probability),
            (Suppression::Loss, Some(reported)) => reported.loss > passed.worst_loss,
            (Suppression::Throughput, Some(reported)) => {
                reported.slowness_squared > passed.worst_slowness_squared
            }
            (Suppression::Rfc3208 | Suppression::Loss | Suppression::Throughput, _) => false,
        };
        // src: RFC 3208 appendix B s12.6.1, for congestion reports; pgmcc's are of that kind.
        let by_change = reported.is_some_and(|reported| {
            let change = reported.loss - passed.last_loss;
            let distance = if change < 0.0 { -change } else { change };
            self.loss_change > 0.0 && distance > self.loss_change * passed.last_loss
        });
        by_policy || by_change
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

    fn config(suppression: Suppression, pass_probability: f64) -> ElementConfig {
        ElementConfig { suppression, pass_probability, ..ElementConfig::default() }
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
        for (policy, pass_probability, passes_far, passes_lossy) in [
            (Suppression::None, 0.0, true, true),
            (Suppression::Rfc3208, 1.0, false, false),
            (Suppression::Loss, 1.0, false, true),
            (Suppression::Throughput, 1.0, true, true),
            (Suppression::Random, 1.0, true, true),
            (Suppression::Random, 0.0, false, false),
        ] {
            let config = config(policy, pass_probability);
            let mut lets = |reported| config.lets_pass(&mut rng, &passed, reported);
            assert_eq!(lets(Some(far)), passes_far, "{policy:?}");
            assert_eq!(lets(Some(lossy)), passes_lossy, "{policy:?}");
            let chance = policy == Suppression::Random && pass_probability > 0.0;
            let blind = policy == Suppression::None || chance;
            assert_eq!(lets(None), blind, "{policy:?} without a report");
            let same = lets(Some(near));
            assert_eq!(same, blind, "{policy:?} for the same again");
        }
        let config = ElementConfig { loss_change: 0.05, ..ElementConfig::default() };
        let mut changed = |reported| config.lets_pass(&mut rng, &passed, reported);
        assert!(changed(Some(lossy)));
        assert!(!changed(Some(far)));
    }

    #[test]
    fn chance_passes_its_share() {
        let mut rng = Rng::new(1, NodeId(0), Purpose::Relay);
        let (config, passed) = (config(Suppression::Random, 0.3), Passed::default());
        let count = (0..10_000).filter(|_| config.lets_pass(&mut rng, &passed, None)).count();
        // Standard deviation 46.
        assert!((2770..3230).contains(&count), "{count}");
    }
}
