//! Control of the source's rate by a scheme's sender half.

use alloc::vec::Vec;

use faircast_base::{BadInput, Bitrate, Checked, Cx, Event, NodeId, Time};

use super::{CLOSED_INTERVAL, Controller, Progress, SentPacket, Window};
use crate::congestion::{AckVector, Bounds, BoxControl, Carrier, GaugeTrace, Pace, Permit};
use crate::tram::seq;
use crate::tram::settings::TramSettings;
use crate::tram::window::JUMP_MAX;
use crate::tram::wire::{Report, ReportKind};

/// Repairs in a row after which a scheme no longer paces them, for lack of feedback; chosen.
const REPAIRS_WITHOUT_FEEDBACK: u32 = 32;

/// Repairs between two measurements of lost repairs. A quarter of them lost (L_th) halves the rate.
const REPAIRS_PER_MEASUREMENT: u32 = 32;

/// Weight of the latest packet in the average of the rates that a scheme allowed; chosen.
const ALLOWED_GAIN: f64 = 1.0 / 32.0;

/// Pace of repairs while no new data leaves: at the end of a stream, or with a closed window. The
/// scheme gets no feedback then and would fall to its least rate. The pace starts at half its rate.
#[derive(Debug)]
struct RepairPace {
    pace: Pace,
    sent: u32,
    repeated: u32,
}

impl RepairPace {
    fn on_sent(&mut self, now: Time, len: u32, (least, most): (f64, f64)) {
        self.pace.spend(now, len);
        self.sent += 1;
        if self.sent >= REPAIRS_PER_MEASUREMENT {
            let factor = if 4 * self.repeated >= self.sent { 0.5 } else { 1.1 };
            self.pace.set(now, (self.pace.bits_per_s() * factor).clamp(least, most));
            (self.sent, self.repeated) = (0, 0);
        }
    }
}

fn bits_per_s(bound: Option<Bitrate>) -> f64 {
    bound.map_or(f64::INFINITY, |bound| bound.bits_per_s() as f64)
}

/// Sender's half of a scheme. With a closed window one packet a second keeps forgotten members.
pub(crate) struct Steered {
    control: BoxControl,
    gauges: GaugeTrace,
    is_idle: bool,
    data_sent_at: Option<Time>,
    len: u32,
    bits_per_s: f64,
    /// Average rate that the scheme allowed for new data, in bits per second.
    allowed: f64,
    /// Rate bounds of the operator, and the limit of receivers, in bits per second.
    least: f64,
    most: f64,
    limit: f64,
    repairs_in_row: u32,
    repair_pace: Option<RepairPace>,
}

impl Steered {
    pub(crate) fn new(control: BoxControl, settings: &TramSettings, bounds: Bounds) -> Self {
        let rate = settings.rate_initial.bits_per_s() + settings.rate_min.bits_per_s();
        fresh! {
            Self {
                control,
                bits_per_s: rate as f64,
                allowed: rate as f64,
                least: bounds.floor.map_or(0.0, |least| least.bits_per_s() as f64),
                most: bits_per_s(bounds.cap),
                limit: f64::INFINITY,
            }
            gauges, is_idle, data_sent_at, len, repairs_in_row, repair_pace
        }
    }

    /// Returns the least (closed window) and greatest rate of repairs alone, in bits per second.
    fn repair_bounds(&self, len: u32) -> (f64, f64) {
        let closed = f64::from(len) * 8.0 / CLOSED_INTERVAL.as_secs_f64();
        let cap = self.limit.min(self.most);
        let least = self.least.max(closed).min(cap);
        (least, (self.allowed / 2.0).min(cap).max(least))
    }

    fn observe(&mut self, cx: &mut Cx<'_>) {
        self.gauges.observe(cx, &self.control.gauges());
    }
}

impl Controller for Steered {
    fn permit(&mut self, cx: &mut Cx<'_>, window: Window, len: u32, repair: bool) -> Permit {
        // A scheme without a rate allows everything: credits hold data back.
        let has_rate = self.control.gauges().allowed_bits_per_s(len).is_some();
        if repair && has_rate && self.repairs_in_row >= REPAIRS_WITHOUT_FEEDBACK {
            self.on_idle(cx);
            let pace = Pace::new(self.repair_bounds(len).1, Pace::BURST);
            let repair_pace = RepairPace { pace, sent: 0, repeated: 0 };
            return self.repair_pace.get_or_insert(repair_pace).pace.permit(cx.now);
        }
        let own = self.control.permit(cx, len, repair);
        self.observe(cx);
        let closed = window < 0 && !repair;
        let until = self.data_sent_at.filter(|_| closed).map(|at| at + CLOSED_INTERVAL);
        match until.filter(|until| *until > cx.now) {
            Some(until) => {
                if own == Permit::Now {
                    // A rate that was never tried must not be granted.
                    self.control.on_idle(cx);
                }
                own.max(Permit::At(until))
            }
            None => own,
        }
    }

    fn on_sent(
        &mut self,
        cx: &mut Cx<'_>,
        packet: SentPacket,
        announce: &mut Vec<u8>,
    ) -> Option<u8> {
        let SentPacket { sequence, bytes: len, repair, .. } = packet;
        let seq = seq(sequence);
        let bounds = self.repair_bounds(len);
        if repair && let Some(repair_pace) = &mut self.repair_pace {
            repair_pace.on_sent(cx.now, len, bounds);
            return None;
        }
        let announces = if repair {
            self.repairs_in_row = self.repairs_in_row.saturating_add(1);
            self.control.on_repair_sent(cx, seq, len, announce)
        } else {
            (self.data_sent_at, self.len, self.is_idle) = (Some(cx.now), len, false);
            (self.repairs_in_row, self.repair_pace) = (0, None);
            let allowed = self.control.gauges().allowed_bits_per_s(len);
            self.allowed += allowed.map_or(0.0, |rate| ALLOWED_GAIN * (rate - self.allowed));
            self.control.on_sent(cx, seq, len, announce);
            true
        };
        self.observe(cx);
        announces.then(|| self.control.options().announce)
    }

    fn on_progress(&mut self, cx: &mut Cx<'_>, progress: Progress) {
        if let Some(repair_pace) = &mut self.repair_pace {
            repair_pace.repeated = repair_pace.repeated.saturating_add(progress.repeated);
        }
        self.control.on_unreached_receiver(cx);
    }

    fn takes_turns(&self) -> bool {
        // Schemes learn from new data alone; ORMCC distrusts its rate while only repairs leave.
        true
    }

    fn on_idle(&mut self, cx: &mut Cx<'_>) {
        if !core::mem::replace(&mut self.is_idle, true) {
            self.control.on_idle(cx);
        }
    }

    fn bits_per_s(&self) -> f64 {
        if let Some(repair_pace) = &self.repair_pace {
            return repair_pace.pace.bits_per_s();
        }
        self.control.gauges().allowed_bits_per_s(self.len).unwrap_or(self.bits_per_s)
    }

    fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) {
        self.limit = bits_per_s(limit);
        self.control.set_limit(now, limit);
    }

    fn take_report(
        &mut self,
        cx: &mut Cx<'_>,
        from: NodeId,
        end: u64,
        report: &Report<'_>,
    ) -> Checked {
        let Report { kind, sequence, leaves, option, value } = *report;
        if option != self.control.options().report {
            return Err(BadInput::OtherScheme);
        }
        // A receiver deceived by forged data names packets that do not exist yet. Its report counts
        // for packets that do.
        let last = end.saturating_sub(1);
        let (kind, sequence) = limit_to_sent(kind, sequence, last).ok_or(BadInput::Absurd)?;
        // Sequence numbers of a scheme are ambiguous beyond half their range.
        if end - sequence > u64::from(u32::MAX / 2) {
            return Err(BadInput::OutOfWindow);
        }
        let named = seq(sequence);
        let carrier = match kind {
            ReportKind::Ack { bitmap } => Carrier::Ack(AckVector { highest: named, bitmap }),
            ReportKind::Nak => Carrier::Nak { first: named },
            ReportKind::NullNak => Carrier::NullNak { latest: named },
        };
        let decoded = match value {
            [] => None,
            _ => Some(self.control.read_report(cx.now, value)?),
        };
        // Bytes that all have are counted from acknowledgements of members, not from a report.
        cx.emit(match kind {
            ReportKind::Ack { .. } => Event::AckReceived { seq: sequence, bytes: 0, from },
            ReportKind::Nak => Event::NakReceived { seq: sequence, count: 1, from },
            ReportKind::NullNak => Event::NakReceived { seq: sequence, count: 0, from },
        });
        if decoded.is_some() {
            self.control.on_report(cx, from, carrier);
        }
        if leaves {
            self.control.on_leave(cx, decoded.and_then(|decoded| decoded.reporter).unwrap_or(from));
        }
        self.observe(cx);
        Ok(())
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.control.next_timeout().is_some_and(|at| at <= cx.now) {
            self.control.on_timeout(cx);
            self.observe(cx);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.control.next_timeout()
    }
}

fn limit_to_sent(kind: ReportKind, sequence: u64, last: u64) -> Option<(ReportKind, u64)> {
    let beyond = sequence.saturating_sub(last);
    if last == 0 || beyond > JUMP_MAX {
        return None;
    }
    let ReportKind::Ack { bitmap } = kind else {
        return Some((kind, sequence - beyond));
    };
    if beyond == 0 {
        return Some((kind, sequence));
    }
    let bitmap = bitmap.checked_shr(beyond as u32).filter(|known| *known != 0)?;
    let before = bitmap.trailing_zeros();
    let highest = last.checked_sub(before.into())?;
    Some((ReportKind::Ack { bitmap: bitmap >> before }, highest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::tram::Steering;
    use crate::tram::TramSetup;
    use crate::world::{SOURCE, TSI, at};
    use faircast_base::{NullTrace, Purpose, Rng};

    const LEN: u32 = 1000;

    fn steered(least: u64, max: Option<u64>, limit: Option<u64>) -> Steered {
        let options = Options::default();
        let setup = TramSetup::of(TSI, SOURCE, at(0), &options);
        let scheme = crate::catalog::scheme("tfmcc").expect("it is registered");
        let control = Steering { scheme, node: SOURCE }.control(&options);
        let bounds = Bounds {
            floor: Some(Bitrate::from_bits_per_s(least)),
            cap: max.map(Bitrate::from_bits_per_s),
        };
        let mut steered = Steered::new(control, &setup.settings(), bounds);
        steered.set_limit(at(0), limit.map(Bitrate::from_bits_per_s));
        (steered.allowed, steered.repairs_in_row) = (1_600_000.0, REPAIRS_WITHOUT_FEEDBACK);
        steered
    }

    fn with_cx<T>(act: impl FnOnce(&mut Cx<'_>) -> T) -> T {
        let (mut rng, mut trace) = (Rng::new(1, SOURCE, Purpose::Machine(0)), NullTrace);
        act(&mut Cx::new(at(0), &mut rng, &mut trace))
    }

    fn measure(cx: &mut Cx<'_>, steered: &mut Steered, repeated: u32) -> u64 {
        let repair = SentPacket { sequence: 1, bytes: LEN, repair: true, window: 10 };
        for packet in 0..REPAIRS_PER_MEASUREMENT {
            while let Permit::At(at) = steered.permit(cx, 10, LEN, true) {
                cx.now = at;
            }
            assert_eq!(steered.on_sent(cx, repair, &mut Vec::new()), None);
            if packet == 0 {
                let (bytes, congested, highest, allowed, flight) = (0, false, 0, 0, 0);
                let progress = Progress { bytes, congested, highest, allowed, flight, repeated };
                steered.on_progress(cx, progress);
            }
        }
        steered.bits_per_s() as u64
    }

    #[test]
    fn repairs_begin_at_half_the_rate_and_a_quarter_lost_halves_it() {
        let rates = |max, limit, looks: &[u32]| -> Vec<u64> {
            let steered = &mut steered(0, max, limit);
            with_cx(|cx| looks.iter().map(|again| measure(cx, steered, *again)).collect())
        };
        assert_eq!(rates(None, None, &[0, 8, 8, 7]), [800_000, 400_000, 200_000, 220_000]);
        assert_eq!(rates(None, Some(500_000), &[0, 8, 0]), [500_000, 250_000, 275_000]);
        assert_eq!(rates(Some(500_000), None, &[0, 8, 0]), [500_000, 250_000, 275_000]);
        assert_eq!(rates(Some(500_000), Some(900_000), &[0]), [500_000]);
    }

    #[test]
    fn repairs_that_are_asked_for_again_for_ever_keep_the_least_rate() {
        let closed = 8 * u64::from(LEN);
        for (least, max, limit, want) in [
            (0, None, None, closed),
            (200_000, None, None, 200_000),
            (200_000, None, Some(100_000), 100_000),
            (200_000, Some(100_000), None, 100_000),
            (9_000_000, None, None, 9_000_000),
        ] {
            let steered = &mut steered(least, max, limit);
            let slowest = with_cx(|cx| {
                (0..100).map(|_| measure(cx, steered, REPAIRS_PER_MEASUREMENT)).last()
            });
            assert_eq!(slowest, Some(want), "{least}, {max:?}, {limit:?}");
        }
    }

    #[test]
    fn new_data_gives_the_rate_back_to_the_scheme() {
        let steered = &mut steered(0, None, None);
        with_cx(|cx| {
            (0..9).for_each(|_| _ = measure(cx, steered, REPAIRS_PER_MEASUREMENT));
            assert!(steered.bits_per_s() < 20_000.0);
            let data = SentPacket { sequence: 2, bytes: LEN, repair: false, window: 9 };
            assert!(steered.on_sent(cx, data, &mut Vec::new()).is_some(), "it is announced");
            assert!(steered.repair_pace.is_none());
            assert!(steered.allowed > 1_500_000.0, "one packet moves the average little");
        });
    }

    #[test]
    fn of_packets_that_were_sent_the_word_of_one_that_was_deceived_holds() {
        let acks = |bitmap| ReportKind::Ack { bitmap };
        for (kind, sequence, want) in [
            (acks(0b1011), 100, Some((acks(0b1011), 100))),
            (acks(0b1011), 101, Some((acks(0b101), 100))),
            (acks(0b1011), 102, Some((acks(0b1), 99))),
            (acks(0b1011), 104, None),
            (acks(u32::MAX), 132, None),
            (acks(u32::MAX), u64::MAX, None),
            (ReportKind::Nak, 130, Some((ReportKind::Nak, 100))),
            (ReportKind::NullNak, 101 + JUMP_MAX, None),
        ] {
            assert_eq!(limit_to_sent(kind, sequence, 100), want, "{kind:?}, {sequence}");
        }
        assert_eq!(limit_to_sent(acks(1), 1, 0), None, "nothing was sent");
    }
}
