//! NAK suppression at a network element: policies that let some repeated NAKs pass.
//!
//! An element passes the first NAK for a packet and holds back those that follow, since one repair
//! serves all. The reports on those NAKs are held back with them, and with them may go the one of
//! the slowest receiver (src: seada-helmy s4.3). These policies let more pass.

use alloc::collections::VecDeque;

use faircast_base::{Duration, Rng, Time};

use super::ElementConfig;
use crate::congestion::{Reported, RouterView};
use crate::pgm::wire::{Encoder, Packet};
use crate::settings::choices;

/// Timestamps remembered to tell round trips by. Beyond it the oldest is forgotten, and older
/// echoes are measured from the oldest that is left.
const STAMPS_MAX: usize = 1024;

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

/// What the NAKs that passed for one packet have reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    last_loss: f64,
    worst_loss: f64,
    worst_slowness_squared: f64,
}

/// A report as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    view: &'static RouterView,
    bytes: [u8; RouterView::REPORT_BYTES_MAX],
    len: usize,
    at: Time,
}

impl Report {
    /// The report on a NAK, of one of the schemes that `views` reads, that has come now.
    pub(super) fn of(now: Time, views: &'static [RouterView], pgm: &Packet<'_>) -> Option<Self> {
        let (view, value) = views
            .iter()
            .find_map(|view| Some((view, pgm.options.find(view.report_option)?.value)))?;
        let mut bytes = [0; RouterView::REPORT_BYTES_MAX];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { view, bytes, len: value.len(), at: now })
    }

    fn value(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// How bad it is.
    pub(super) fn reported(&self, stamps: &Stamps) -> Option<Reported> {
        let echo = (self.view.echo)(self.value())?;
        (self.view.reported)(self.value(), stamps.round_trip(self.at, echo, self.view.tick))
    }

    /// Its option as it goes on now: the time for which it was held here is no part of the round trip.
    pub(super) fn put(&self, now: Time, encoder: &mut Encoder<'_>) {
        let held = now.since(self.at).as_nanos() / self.view.tick.as_nanos();
        // Truncation is the wrap of timestamps.
        let value = (self.view.held)(self.value(), held as u32);
        let value = value.as_deref().unwrap_or(self.value());
        encoder.option(self.view.report_option, value);
    }
}

impl Passed {
    /// Notes a NAK that passes.
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

/// When data with which timestamp came by, so that an echo tells a round trip without any clock
/// but the element's own.
#[derive(Debug, Default)]
pub(super) struct Stamps(VecDeque<(u32, Time)>);

impl Stamps {
    /// Original data with this timestamp comes by.
    pub(super) fn note(&mut self, now: Time, sent: u32) {
        let newest = self.0.back().map(|&(newest, _)| sent.wrapping_sub(newest) as i32);
        match newest {
            Some(..=0) => return, // The same tick, or out of order.
            _ if self.0.len() == STAMPS_MAX => {
                self.0.pop_front();
            }
            _ => {}
        }
        self.0.push_back((sent, now));
    }

    /// The time from here to the receiver that echoes `echo`, in ticks of so long, and back. Zero where
    /// no data has come by.
    fn round_trip(&self, now: Time, echo: u32, tick: Duration) -> Duration {
        // The echo is a timestamp plus the time for which it was held, so what passed here with
        // that timestamp passed here that much before it.
        let age = |sent: u32| echo.wrapping_sub(sent) as i32;
        let index = self.0.partition_point(|&(sent, _)| age(sent) >= 0);
        let Some(&(sent, at)) = self.0.get(index.saturating_sub(1)) else {
            return Duration::ZERO;
        };
        let held = tick * age(sent).max(0) as u64;
        now.since(at).saturating_sub(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Scheme;
    use crate::congestion::pgmcc::{Pgmcc, PgmccReport};
    use crate::world::at;
    use faircast_base::{NodeId, Purpose};

    const MS: Duration = Duration::from_millis(1);

    fn reported(at: Time, echo_ms: u32, loss: f64, stamps: &Stamps) -> Reported {
        let report =
            PgmccReport { echo_ms, loss: (loss * 65535.0) as u16, receiver: Some(NodeId(1)) };
        Pgmcc::reported(&report, stamps.round_trip(at, echo_ms, MS)).expect("a loss rate is in it")
    }

    /// Data with timestamps 0, 100, 200 … of a clock that is 7 s ahead comes by after 20 ms each.
    fn stamps() -> Stamps {
        let mut stamps = Stamps::default();
        for i in 0..50 {
            stamps.note(at(i * 100 + 20), 7000 + i as u32 * 100);
        }
        stamps
    }

    #[test]
    fn a_round_trip_needs_no_common_clock() {
        let stamps = stamps();
        // The packet of timestamp 8000 came by at 1020; its receiver held it 30 ms, and the NAK is
        // here at 1130: 80 ms below this element.
        assert_eq!(stamps.round_trip(at(1130), 8030, MS), Duration::from_millis(80));
        assert_eq!(Stamps::default().round_trip(at(1130), 8030, MS), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_survives_the_wrap_of_the_clock() {
        let mut stamps = Stamps::default();
        for i in 0..5000u32 {
            let sent_ms = (u32::MAX - 2500).wrapping_add(i);
            stamps.note(at(u64::from(i)), sent_ms);
            stamps.note(at(u64::from(i)), sent_ms.wrapping_sub(7));
        }
        assert_eq!(stamps.0.len(), STAMPS_MAX);
        let echo = (u32::MAX - 2500).wrapping_add(4990);
        assert_eq!(stamps.round_trip(at(5050), echo, MS), Duration::from_millis(60));
    }

    fn config(suppression: Suppression, pass_probability: f64) -> ElementConfig {
        ElementConfig { suppression, pass_probability, ..ElementConfig::default() }
    }

    #[test]
    fn policies_pass_what_they_say() {
        let stamps = stamps();
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
