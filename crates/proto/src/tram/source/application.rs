//! A source's application: when data begins, when all is over, and what receivers tell it of themselves.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Cx, Duration, Time};

use super::{Phase, TramSource};
use crate::content::Packets;
use crate::tram::TramSetup;
use crate::tram::head::decode;
use crate::tram::wire::{Body, is_word};
use crate::{Datagram, Destination, Transmit};

/// What a source has done so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceCounts {
    /// New packets, and repairs.
    pub(crate) packets: u64,
    pub(crate) repairs: u64,
    /// The rate of an open window.
    pub(crate) bits_per_s: f64,
}

/// For applications that decide themselves when data begins, and when all is over.
impl<P: Packets> TramSource<P> {
    /// A source whose data waits for [`open_gate`](Self::open_gate), and whose end for [`release`](Self::release).
    pub(crate) fn gated(setup: &TramSetup<'_>, packets: P) -> Self {
        Self { gated: true, held: true, ..Self::new(setup, packets) }
    }

    /// Data may begin as soon as a receiver is there.
    pub(crate) fn open_gate(&mut self, cx: &mut Cx<'_>) {
        self.gated = false;
        self.check_begin(cx);
    }

    /// It may end when its last member has gone.
    pub(crate) fn release(&mut self, cx: &mut Cx<'_>) {
        self.held = false;
        self.check_end(cx.now);
    }

    pub(crate) fn packets(&self) -> &P {
        &self.packets
    }

    pub(crate) fn packets_mut(&mut self) -> &mut P {
        &mut self.packets
    }

    pub(crate) fn has_sent_all(&self) -> bool {
        self.packets.end().is_some_and(|end| self.next > end)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Done
    }

    pub(crate) fn counts(&self) -> SourceCounts {
        let (packets, repairs) = (self.next - 1, self.repairs);
        SourceCounts { packets, repairs, bits_per_s: self.controller.bits_per_s() }
    }

    /// Receivers are to speak of themselves after so long without a word.
    pub(crate) fn set_status_interval(&mut self, interval: Duration) {
        self.status_interval = interval.min(Duration::from_millis(u64::from(u16::MAX)));
    }

    /// No more payload than this, where that is less than the options say.
    pub(crate) fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) {
        self.controller.set_limit(now, limit);
    }

    /// What a receiver says of itself, where that is what a packet of this session has.
    pub(crate) fn word_of<'a>(&self, datagram: &Datagram<'a>) -> Option<&'a [u8]> {
        if !is_word(datagram.bytes) {
            return None;
        }
        match decode(datagram, self.identity.session()).ok()?.body {
            Body::Member(word) => Some(word),
            _ => None,
        }
    }

    /// Writes an answer to it.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        to: Destination,
        answer: &[u8],
        buf: &mut Vec<u8>,
    ) -> Transmit {
        self.identity.control(cx, to, u8::MAX, Body::Answer(answer), buf)
    }
}
