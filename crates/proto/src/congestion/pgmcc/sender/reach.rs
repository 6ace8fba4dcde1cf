//! What a report measures, and whether it can be true.

use faircast_base::{BadInput, Duration, Time};

use super::PgmccSender;
use crate::congestion::Carrier;
use crate::congestion::common::stamp::{RTT_MAX, elapsed, milliseconds};
use crate::congestion::pgmcc::PgmccReport;
use crate::congestion::pgmcc::receivers::RttSample;

/// Clocks that count milliseconds may disagree by one.
const CLOCK_TOLERANCE_MS: i32 = 1;

impl PgmccSender {
    /// The round trip that a report tells of. `Err` where the report is absurd.
    pub(super) fn measure(
        &self,
        now: Time,
        carrier: Carrier,
        report: &PgmccReport,
    ) -> Result<Option<RttSample>, ()> {
        let coarse = echoed_round_trip(now, report).ok_or(())?;
        let Carrier::Ack(vector) = carrier else {
            let packets = self.ledger.sent_after(now - coarse) + 1;
            return Ok(Some(RttSample { time: coarse, packets }));
        };
        // The acknowledged packet's own record is finer than milliseconds: what the echo exceeds
        // its timestamp by is the time for which the receiver held it.
        let Some(sent) = self.ledger.get(vector.highest) else { return Ok(None) };
        let held_ms = report.echo_ms.wrapping_sub(milliseconds(sent.at)) as i32;
        if held_ms < 0 {
            return Ok(None); // A stale timestamp, as a repair may carry.
        }
        let held = Duration::from_millis(held_ms as u64);
        let time = now.since(sent.at).saturating_sub(held);
        let packets = self.ledger.next().distance(vector.highest).max(1) as u32;
        Ok(Some(RttSample { time, packets }))
    }

    /// Whether a report speaks of packets that were never sent, or too long ago.
    pub(super) fn check_reach(&self, carrier: Carrier) -> Result<(), BadInput> {
        let seq = match carrier {
            Carrier::Ack(vector) => vector.highest,
            Carrier::Nak { first: seq } | Carrier::NullNak { latest: seq } => seq,
        };
        if self.ledger.is_empty() || !seq.before(self.ledger.next()) {
            return Err(BadInput::Absurd);
        }
        // Repairs may be asked for as long as the endpoint keeps them; acknowledgements not.
        if matches!(carrier, Carrier::Ack(_)) && seq.before(self.ledger.oldest()) {
            return Err(BadInput::OutOfWindow);
        }
        Ok(())
    }
}

/// The time since the packet left whose timestamp `report` echoes, without the time for which the
/// receiver held it. `None` where that is absurd.
pub(super) fn echoed_round_trip(now: Time, report: &PgmccReport) -> Option<Duration> {
    let max_ms = RTT_MAX.as_millis() as u32;
    let elapsed_ms = elapsed(milliseconds(now), report.echo_ms, CLOCK_TOLERANCE_MS, max_ms)?;
    Some(Duration::from_millis(u64::from(elapsed_ms)).min(now.since(Time::ZERO)))
}
