//! A receiver's application: when it takes what has come, when it needs nothing more, and what it tells the source.

use alloc::vec::Vec;

use faircast_base::{Cx, Duration, Time};

use super::{Phase, Reached, TramReceiver};
use crate::tram::TramSetup;
use crate::tram::head::decode;
use crate::tram::wire::{Body, is_word};
use crate::{Datagram, Destination, Transmit};

/// For applications that say themselves when they take what has come, and when they need nothing more.
impl TramReceiver {
    /// A receiver that stays until [`release`](Self::release).
    pub(crate) fn kept(setup: &TramSetup<'_>) -> Self {
        Self { kept: true, ..Self::new(setup) }
    }

    /// Nothing is handed over for now, or again. What has been already is.
    pub(crate) fn hold(&mut self, cx: &mut Cx<'_>, held: bool) {
        if core::mem::replace(&mut self.held, held) && !held {
            self.deliver(cx);
            self.after_progress(cx);
        }
    }

    /// It may go when its last member has all.
    pub(crate) fn release(&mut self, cx: &mut Cx<'_>) {
        self.kept = false;
        self.check_end(cx);
    }

    /// Whether all that the source sends has been handed over.
    pub(crate) fn has_delivered_all(&self) -> bool {
        let delivered = |it: &Reached| self.last.is_some_and(|last| it.deliver > last);
        self.events.is_empty() && self.reached.as_ref().is_some_and(delivered)
    }

    /// Whether it has left.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Left
    }

    pub(crate) const fn is_pruned(&self) -> bool {
        self.pruned
    }

    /// How many packets were found missing.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// The share of packets that are missing, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        self.reached.as_ref().map_or(0.0, |it| it.window.loss())
    }

    /// When the source was last heard.
    pub(crate) fn heard_at(&self) -> Option<Time> {
        (self.source_heard_at > Time::ZERO).then_some(self.source_heard_at)
    }

    /// After how long without one the source wants a word; `None` where it wants none, or was not heard.
    pub(crate) fn status_interval(&self) -> Option<Duration> {
        Some(self.front.status_interval).filter(|interval| *interval > Duration::ZERO)
    }

    /// The source's answer to a word, where that is what a packet of this session has.
    pub(crate) fn answer_of<'a>(&self, datagram: &Datagram<'a>) -> Option<&'a [u8]> {
        if !is_word(datagram.bytes) {
            return None;
        }
        match decode(datagram, self.identity.session()).ok()?.body {
            Body::Answer(answer) => Some(answer),
            _ => None,
        }
    }

    /// Writes a word to the source.
    pub(crate) fn word(&mut self, cx: &mut Cx<'_>, word: &[u8], buf: &mut Vec<u8>) -> Transmit {
        let to = Destination::Node(self.source);
        self.identity.control(cx, to, u8::MAX, Body::Member(word), buf)
    }
}
