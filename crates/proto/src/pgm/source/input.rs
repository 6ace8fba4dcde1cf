//! What a source does with packets from receivers.

use alloc::string::ToString;
use alloc::vec::Vec;

use faircast_base::{BadInput, Cx, Duration, Event, GroupId, NodeId, Time};

use super::repair::Confirmation;
use super::{PgmSource, Phase, STRANGERS_MAX};
use crate::congestion::{AckVector, Carrier, Told};
use crate::content::Packets;
use crate::pgm::Reliability;
use crate::pgm::RepairTimers;
use crate::pgm::negotiation::SchemeAnnouncement;
use crate::pgm::wire::{Body, Nak, OptionType, Packet};
use crate::{AppEvent, Datagram, Destination};

impl<P: Packets> PgmSource<P> {
    pub(super) fn take_packet(
        &mut self,
        cx: &mut Cx<'_>,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), BadInput> {
        if !self.is_ours(packet) {
            return Err(BadInput::Foreign);
        }
        match packet.body {
            Body::Nak(nak) => self.take_nak(cx, datagram, packet, nak, true),
            Body::Nnak(nak) => self.take_nak(cx, datagram, packet, nak, false),
            Body::Ack(ack) => self.take_ack(cx, datagram, packet, ack.vector),
            Body::Spmr => match packet.options.find(OptionType::SCHEME) {
                Some(option) => self.take_stranger(datagram.from, option.value),
                None => {
                    self.control.on_heard(cx);
                    self.spm.on_request(cx.now);
                    Ok(())
                }
            },
            // Our own packets, looped back, and confirmations by network elements; polls are not
            // sent by this source, so nobody can answer one.
            Body::Spm(_)
            | Body::Odata(_)
            | Body::Rdata(_)
            | Body::Ncf(_)
            | Body::Poll(_)
            | Body::Polr(_) => Ok(()),
        }
    }

    /// A receiver says that it speaks another scheme, and takes nothing. It says so several times.
    fn take_stranger(&mut self, from: NodeId, value: &[u8]) -> Result<(), BadInput> {
        let other = SchemeAnnouncement::decode(value).ok_or(BadInput::Malformed)?;
        if self.strangers.contains(&from) {
            return Err(BadInput::Duplicate);
        }
        if self.strangers.len() >= STRANGERS_MAX {
            return Err(BadInput::TableFull);
        }
        self.strangers.push(from);
        let (sender, receiver) = (self.scheme.to_string(), other.scheme);
        self.events.push_back(AppEvent::OtherScheme { node: from, sender, receiver });
        Err(BadInput::OtherScheme)
    }

    /// A NAK, or with `asks` false one that only reports.
    fn take_nak(
        &mut self,
        cx: &mut Cx<'_>,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
        nak: Nak,
        asks: bool,
    ) -> Result<(), BadInput> {
        // A copy for the neighbours of its sender; the NAK itself comes to this node.
        if datagram.to == Destination::Group(GroupId::SESSION) {
            return Ok(());
        }
        if !self.is_named_by(&nak) {
            return Err(BadInput::Foreign);
        }
        let first = self.index(nak.first).ok_or(BadInput::OutOfWindow)?;
        let unsent = |index: u64| index >= self.next;
        if packet.nak_sequence().any(|seq| self.index(seq).is_none_or(unsent)) {
            return Err(BadInput::Absurd);
        }
        let mut rtt = None;
        if let Some(told) = self.read_report(cx.now, packet)? {
            let carrier = match asks {
                true => Carrier::Nak { first: nak.first },
                false => Carrier::NullNak { latest: nak.first },
            };
            rtt = told.round_trip;
            self.control.on_report(cx, datagram.from, carrier);
        } else {
            self.control.on_heard(cx);
        }
        let count = if asks { packet.nak_sequence().count() as u32 } else { 0 };
        cx.emit(Event::NakReceived { seq: self.traced(first), count, from: datagram.from });
        if asks { self.confirm_and_repair(cx, packet, nak, rtt) } else { Ok(()) }
    }

    /// Answers a NAK whose sender has the round trip `rtt`, where it is known.
    fn confirm_and_repair(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        nak: Nak,
        rtt: Option<Duration>,
    ) -> Result<(), BadInput> {
        let trail = self.trail;
        let mut wanted = packet.nak_sequence().filter_map(|seq| self.index(seq));
        if !wanted.any(|index| index >= trail) {
            // The receiver does not know the trail yet; an SPM tells it.
            self.spm.on_request(cx.now);
            return Err(BadInput::OutOfWindow);
        }
        if let Phase::Lingering { busy, .. } = &mut self.phase {
            *busy = cx.now;
        }
        let list: Vec<_> = packet.options.nak_list().iter().collect();
        let what = Confirmation { first: nak.first, list };
        let interval = self.confirm_interval(cx.now, rtt);
        let mut room = self.confirmations.ask(cx.now, interval, what);
        if self.config.reliability == Reliability::Repaired {
            let ready = cx.now + self.config.repair_delay;
            let crossing = self.crossing_time(cx.now, rtt);
            for seq in packet.nak_sequence() {
                if let Some(index) = self.index(seq).filter(|index| *index >= trail) {
                    room &= self.repairs.ask(index, ready, cx.now, crossing);
                }
            }
        }
        if room { Ok(()) } else { Err(BadInput::TableFull) }
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

    fn take_ack(
        &mut self,
        cx: &mut Cx<'_>,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
        vector: AckVector,
    ) -> Result<(), BadInput> {
        let highest = self.index(vector.highest).ok_or(BadInput::OutOfWindow)?;
        if highest >= self.next {
            return Err(BadInput::Absurd);
        }
        let fresh: u64 = self
            .acked
            .mark(highest, vector.bitmap)
            .map(|index| u64::from(self.packets.len(index)))
            .sum();
        // At most 32 payloads of less than 2^16 bytes.
        let (seq, bytes) = (self.traced(highest), fresh as u32);
        cx.emit(Event::AckReceived { seq, bytes, from: datagram.from });
        let told = self.read_report(cx.now, packet)?;
        if told.is_some() {
            self.control.on_report(cx, datagram.from, Carrier::Ack(vector));
        }
        if packet.options.has(OptionType::ACKER_LEAVING) {
            // A receiver on a real network may be known to schemes by another number than its
            // address is to the driver; reports name the one that was heard all along.
            let reporter = told.and_then(|told| told.reporter);
            self.control.on_leave(cx, reporter.unwrap_or(datagram.from));
        }
        Ok(())
    }
}

/// At least so many confirmations of one loss can fit into a round trip.
const CONFIRMATIONS_PER_ROUND_TRIP: u64 = 16;

/// Round trips in reports are this exact at both ends.
const REPORT_RESOLUTION: Duration = Duration::from_millis(2);
