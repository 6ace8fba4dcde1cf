//! What a source learns from its receivers' packets: requests, reports, acknowledgements.

use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Event, NodeId, Time};

use super::confirmations::Confirmation;
use super::{MISMATCHED_MAX, Phase, SourceSession};
use crate::AppEvent;
use crate::congestion::{AckVector, Carrier, Told};
use crate::pgm::RepairTimers;
use crate::pgm::negotiation::SchemeAnnouncement;
use crate::pgm::session::Received;
use crate::pgm::wire::{Nak, OptionType, Packet};

impl SourceSession {
    /// The control's state goes to the trace where it has changed: after each packet that was taken.
    pub(crate) fn observe(&mut self, cx: &mut Cx<'_>) {
        self.gauges.observe(cx, &self.control.gauges());
    }

    /// A request for an SPM.
    pub(crate) fn take_request(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
    ) -> Result<(), BadInput> {
        if let Some(option) = packet.options.find(OptionType::SCHEME) {
            return self.take_mismatched(packet.from, option.value);
        }
        self.control.on_heard(cx);
        self.spm.on_request(&mut self.timers, cx.now);
        Ok(())
    }

    /// A receiver says that it speaks another scheme, and takes nothing. It says so several times.
    fn take_mismatched(&mut self, from: NodeId, value: &[u8]) -> Result<(), BadInput> {
        let other = SchemeAnnouncement::decode(value).ok_or(BadInput::Malformed)?;
        if self.mismatched.contains(&from) {
            return Err(BadInput::Duplicate);
        }
        if self.mismatched.len() >= MISMATCHED_MAX {
            return Err(BadInput::TableFull);
        }
        self.mismatched.push(from);
        let (sender, receiver) = (self.scheme.to_string(), other.scheme);
        self.events.push_back(AppEvent::OtherScheme { node: from, sender, receiver });
        Err(BadInput::OtherScheme)
    }

    /// A NAK: its report is the control's. With `asks` false it asks for nothing. Returns the round trip
    /// of its sender, where it is known; `None` for what is not meant for this node.
    pub(crate) fn take_nak(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        nak: Nak,
        asks: bool,
    ) -> Result<Option<Told>, BadInput> {
        // A copy for the neighbours of its sender; the NAK itself comes to this node.
        if packet.is_for_group() {
            return Ok(None);
        }
        if !self.is_named_by(&nak) {
            return Err(BadInput::Foreign);
        }
        let first = self.index(nak.first).ok_or(BadInput::OutOfWindow)?;
        let unsent = |index: u64| index >= self.next;
        if packet.nak_sequence().any(|seq| self.index(seq).is_none_or(unsent)) {
            return Err(BadInput::Absurd);
        }
        let told = self.read_report(cx.now, packet)?;
        if told.is_some() {
            let carrier = match asks {
                true => Carrier::Nak { first: nak.first },
                false => Carrier::NullNak { latest: nak.first },
            };
            self.control.on_report(cx, packet.from, carrier);
        } else {
            self.control.on_heard(cx);
        }
        let count = if asks { packet.nak_sequence().count() as u32 } else { 0 };
        cx.emit(Event::NakReceived { seq: self.traced(first), count, from: packet.from });
        Ok(Some(told.unwrap_or_default()))
    }

    /// Confirms a NAK whose sender has the round trip `rtt`, where it is known. Returns whether there
    /// was room for that.
    pub(crate) fn confirm(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        nak: Nak,
        rtt: Option<Duration>,
    ) -> Result<bool, BadInput> {
        let trail = self.trail;
        let mut wanted = packet.nak_sequence().filter_map(|seq| self.index(seq));
        if !wanted.any(|index| index >= trail) {
            // The receiver does not know the trail yet; an SPM tells it.
            self.spm.on_request(&mut self.timers, now);
            return Err(BadInput::OutOfWindow);
        }
        if let Phase::Lingering { busy, .. } = &mut self.phase {
            *busy = now;
            self.arm_linger();
        }
        let list: Vec<_> = packet.options.nak_list().iter().collect();
        let what = Confirmation { first: nak.first, list };
        let interval = self.confirm_interval(now, rtt);
        Ok(self.confirmations.ask(now, interval, what))
    }

    /// The least time between confirmations that are alike. Receivers judge by the number of
    /// confirmations how many of them ask for the same, so there must be some in a round trip.
    pub(crate) fn confirm_interval(&self, now: Time, rtt: Option<Duration>) -> Duration {
        let interval = self.config.confirm_interval;
        match rtt.max(self.farthest.get(now)) {
            Some(rtt) if self.config.repair_timers == RepairTimers::Adaptive => {
                interval.min(rtt / CONFIRMATIONS_PER_ROUND_TRIP)
            }
            _ => interval,
        }
    }

    /// How long after a repair a NAK for the same packet must have crossed it on its way: the
    /// round trip of who sends the NAK. One that comes later is from somebody who would have the
    /// repair if it had not been lost, or kept by an element that did not know of him.
    pub(crate) fn crossing_time(&mut self, now: Time, rtt: Option<Duration>) -> Duration {
        if self.config.repair_timers == RepairTimers::Fixed {
            return self.config.repair_interval;
        }
        if let Some(rtt) = rtt {
            self.farthest.note(now, rtt);
            // The repair may meet a queue that has grown since the packet that the round trip was
            // measured with, and reports count in milliseconds.
            return (rtt + rtt / 8 + REPORT_RESOLUTION).max(self.config.confirm_interval);
        }
        let others = [self.control.gauges().rtt, self.farthest.get(now)];
        others.into_iter().flatten().fold(self.config.repair_interval, Duration::max)
    }

    /// The longest round trip of those who asked lately, or that to the representative.
    pub(crate) fn longest_round_trip(&self, now: Time) -> Option<Duration> {
        self.farthest.get(now).max(self.control.gauges().rtt)
    }

    /// Reads the scheme's report on `packet`, where it carries one.
    pub(crate) fn read_report(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
    ) -> Result<Option<Told>, BadInput> {
        let option = packet.options.find(self.control.options().report);
        option.map(|option| self.control.read_report(now, option.value)).transpose()
    }

    /// A positive acknowledgement; packet `i` has `len(i)` bytes of payload.
    pub(crate) fn take_ack(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Received<'_>,
        vector: AckVector,
        len: impl Fn(u64) -> u32,
    ) -> Result<(), BadInput> {
        let highest = self.index(vector.highest).ok_or(BadInput::OutOfWindow)?;
        if highest >= self.next {
            return Err(BadInput::Absurd);
        }
        let fresh: u64 =
            self.acked.mark(highest, vector.bitmap).map(|index| u64::from(len(index))).sum();
        // At most 32 payloads of less than 2^16 bytes.
        let (seq, bytes) = (self.traced(highest), fresh as u32);
        cx.emit(Event::AckReceived { seq, bytes, from: packet.from });
        let told = self.read_report(cx.now, packet)?;
        if told.is_some() {
            self.control.on_report(cx, packet.from, Carrier::Ack(vector));
        }
        if packet.options.has(OptionType::ACKER_LEAVING) {
            // A receiver on a real network may be known to schemes by another number than its
            // address is to the driver; reports name the one that was heard all along.
            let reporter = told.and_then(|told| told.reporter);
            self.control.on_leave(cx, reporter.unwrap_or(packet.from));
        }
        Ok(())
    }
}

/// At least so many confirmations of one loss can fit into a round trip.
const CONFIRMATIONS_PER_ROUND_TRIP: u64 = 16;

/// Round trips in reports are this exact at both ends.
const REPORT_RESOLUTION: Duration = Duration::from_millis(2);
