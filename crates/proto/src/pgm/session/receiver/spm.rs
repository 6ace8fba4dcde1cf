//! SPMs at a receiver: their order, the path for NAKs, the window, and the scheme.

use faircast_base::{BadInput, Checked, Cx, Duration, NodeId, Seq, Time};

use super::dissent::Dissent;
use super::{ReceiverSession, RepairLayer, SpmRequests, Timer};
use crate::pgm::negotiation::{SchemeAnnouncement, SchemeMismatch};
use crate::pgm::wire::{OptionType, Packet, Received, Spm};

impl<R: RepairLayer> ReceiverSession<R> {
    pub(crate) fn mismatch(&self) -> Option<&SchemeMismatch> {
        self.scheme.mismatch.as_deref()
    }

    pub(crate) fn restart(&mut self, cx: &mut Cx<'_>)
    where
        R: Default,
    {
        if let Some(negotiation) = self.scheme.negotiation.take() {
            *self = Self::speaking((*self.config).clone(), *negotiation, R::default());
            self.on_timeout(cx);
        }
    }

    pub(super) fn take_spm(&mut self, cx: &mut Cx<'_>, packet: &Received<'_>, spm: Spm) -> Checked {
        let order = &self.doubts.spm_order;
        if order.newest() == Some(spm.sequence) {
            return Err(BadInput::Duplicate);
        }
        if !order.is_newer(cx.now, spm.sequence) {
            self.want_spm(cx);
        }
        if spm.window().is_some_and(|(trail, lead)| trail.after(lead + 1)) {
            return Err(BadInput::Absurd);
        }
        let announced = self.read_announced(packet)?;
        if !self.doubts.spm_order.take(cx.now, spm.sequence) {
            return Err(BadInput::Duplicate);
        }
        self.note_new_packet(cx.now);
        if let Some(announced) = announced {
            match self.scheme.follow(cx.now, announced) {
                Err(mismatch) => return self.doubt_scheme(cx, mismatch),
                Ok(true) => {}
                Ok(false) => self.want_spm(cx),
            }
        }
        self.timers.disarm(Timer::SpmRequest);
        self.spm_requests_due = SpmRequests::default();
        self.take_last_hop(cx, packet.from, spm);
        let fin = packet.options.has(OptionType::FIN);
        let Some((trail, lead)) = spm.window() else { return Ok(()) };
        if self.window.is_none() {
            self.begin(cx.now, packet, lead + 1, trail);
        }
        let lead_index = self.window.as_ref().and_then(|window| window.index(lead));
        if let (Some(lead), Some(reach)) = (lead_index, &mut self.reach)
            && !reach.can_lead(cx.now, lead)
        {
            return Err(BadInput::OutOfWindow);
        }
        self.advance_trail(cx, trail);
        if let (Some(lead), Some(window)) = (lead_index, &mut self.window) {
            window.learn(lead);
            self.doubt_beyond(cx, packet, lead + 1);
            self.find_gaps(cx);
        }
        if fin {
            let Some(window) = &self.window else { return Ok(()) };
            // In an empty session the lead is just before the first packet, perhaps before 0.
            let end = window.index(lead + 1).ok_or(BadInput::OutOfWindow)?;
            if end < window.next {
                return Err(BadInput::Absurd);
            }
            self.extent.end = Some(end);
        } else if let (Some(end), Some(window)) = (self.extent.end, &self.window)
            && window.index(lead + 1) >= Some(end)
        {
            self.extent.end = None;
        }
        Ok(())
    }

    /// Takes a claim that packets from `end` on were not sent: they were forged if SPMs agree.
    fn doubt_beyond(&mut self, cx: &mut Cx<'_>, packet: &Packet<'_>, end: u64) {
        let (Some(window), Some(reach)) = (&self.window, &mut self.reach) else { return };
        // Delivered packets stay delivered.
        let end = end.max(window.next);
        if end >= window.known {
            self.doubts.beyond.contradict();
        } else if self.doubts.beyond.claim(cx.now, (), Duration::ZERO, |()| true) {
            reach.go_back(cx.now, end - 1);
            self.rewind(cx, packet, end, end);
        }
    }

    /// Sets the last hop. Another hop than before is believed once several SPMs name it.
    fn take_last_hop(&mut self, cx: &mut Cx<'_>, from: NodeId, spm: Spm) {
        let Some(source) = &mut self.source else { return };
        let last_hop = spm.path.node().unwrap_or(from);
        if source.last_hop.is_some_and(|known| known != last_hop) {
            let agrees = |other: &NodeId| *other == last_hop;
            if !self.doubts.last_hop.claim(cx.now, last_hop, Duration::ZERO, agrees) {
                return self.want_spm(cx);
            }
            source.last_hop_changed_at = Some(cx.now);
        } else {
            self.doubts.last_hop.contradict();
        }
        // Without an element the source sends SPMs itself; the first packet may be a host's replay.
        if last_hop.0 == 0 || last_hop == from {
            source.node = from;
        }
        source.last_hop = Some(last_hop);
    }

    /// Requests an SPM, to confirm the last one or to learn what was sent meanwhile.
    pub(crate) fn want_spm(&mut self, cx: &mut Cx<'_>) {
        if !self.timers.is_armed(Timer::SpmRequest) {
            let backoff = cx.rng.up_to(self.config.spm_request_backoff);
            self.timers.arm(Timer::SpmRequest, cx.now + backoff);
        }
    }

    pub(super) fn request_later(&mut self, cx: &mut Cx<'_>) {
        let least = self.config.spm_request_backoff;
        self.timers.arm(Timer::SpmRequest, cx.now + least + cx.rng.up_to(least));
    }

    /// Decodes the scheme announcement before any change: if malformed, the whole SPM is.
    pub(crate) fn read_announced(
        &self,
        packet: &Packet<'_>,
    ) -> Checked<Option<SchemeAnnouncement>> {
        let option = packet.options.find(OptionType::SCHEME);
        let option = option.filter(|_| self.scheme.negotiation.is_some());
        let decode = |value| SchemeAnnouncement::decode_or_newer(value).ok_or(BadInput::Malformed);
        option.map(|option| decode(option.value)).transpose()
    }

    pub(super) fn doubt_scheme(&mut self, cx: &mut Cx<'_>, mismatch: SchemeMismatch) -> Checked {
        if self.scheme.doubt(cx.now, mismatch) {
            self.ask_nothing();
        } else {
            self.want_spm(cx);
        }
        Err(BadInput::OtherScheme)
    }
}

/// Sequence number of the newest SPM, and SPMs that contradict it.
#[derive(Debug, Default)]
pub struct SpmOrder {
    newest: Option<(Seq, Time)>,
    ahead: Dissent<Seq>,
    behind: Dissent<Seq, BEHIND_PACKETS>,
}

impl SpmOrder {
    /// Returns the newest sequence number.
    pub fn newest(&self) -> Option<Seq> {
        self.newest.map(|(newest, _)| newest)
    }

    /// Returns true if SPM `sequence` is newer, and no further ahead than a source can come.
    pub fn is_newer(&self, now: Time, sequence: Seq) -> bool {
        self.newest.is_none_or(|(newest, at)| {
            let ahead = i64::from(sequence.distance(newest));
            ahead > 0 && ahead as u64 <= FREE_SPMS + PER_SECOND * now.since(at).as_millis() / 1000
        })
    }

    /// Takes an SPM. Returns true if it is newer, or if the newest proves to be forged.
    pub fn take(&mut self, now: Time, sequence: Seq) -> bool {
        let newer = self.is_newer(now, sequence);
        if !newer && let Some((newest, _)) = self.newest {
            if sequence == newest {
                return false;
            }
            let goes_on = |before: &Seq| sequence.after(*before);
            let believed = if sequence.after(newest) {
                self.ahead.claim(now, sequence, Duration::ZERO, goes_on)
            } else {
                self.behind.claim(now, sequence, Duration::ZERO, goes_on)
            };
            if !believed {
                return false;
            }
        }
        self.newest = Some((sequence, now));
        self.ahead.contradict();
        self.behind.contradict();
        true
    }
}

/// SPMs that a source can be ahead, at once and per second: each joining receiver may get one.
const FREE_SPMS: u64 = 1000;
const PER_SECOND: u64 = 10_000;

/// Ascending old numbers that show that the newest number was forged.
const BEHIND_PACKETS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_far_ahead_or_somewhat_ahead_does_not_make_real_ones_old() {
        let at = |s| Time::ZERO + Duration::from_secs(s);
        for (jump, taken, then) in [(100_000_000, false, [true, true]), (900, true, [false, true])]
        {
            let mut order = SpmOrder::default();
            assert!((0..5).all(|s| order.take(at(s), Seq::new(s as u32))));
            assert!(!order.take(at(4), Seq::new(4)) && !order.take(at(4), Seq::new(3)));
            assert_eq!(order.take(at(4), Seq::new(4 + jump)), taken);
            assert_eq!([5, 6].map(|s| order.take(at(s), Seq::new(s as u32))), then);
            assert!(order.take(at(7), Seq::new(7)));
        }
    }
}
