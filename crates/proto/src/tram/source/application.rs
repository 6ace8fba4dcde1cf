//! A source's application: what it sends, when all is over, and what receivers tell it of themselves.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Cx, Duration, Time};

use super::{Phase, TramSource};
use crate::content::Packets;
use crate::object::TreePlace;
use crate::stack::Stack;
use crate::tram::head::decode;
use crate::tram::wire::{Body, is_word};
use crate::tram::{TramSetup, announced, name_number};
use crate::{Datagram, Destination, Transmit};

/// Most names of receivers that have started again and wait to be told; chosen. Receivers repeat themselves.
const ANEW_MAX: usize = 16;

/// For applications that know themselves who has it all.
impl<P: Packets> TramSource<P> {
    /// A source that goes on, whatever has been sent, until it is closed.
    pub(crate) fn kept(setup: &TramSetup<'_>, tree: Stack, packets: P) -> Self {
        Self { kept: true, ..Self::telling(setup, tree, packets) }
    }

    /// A source that tells its receivers its settings.
    pub(crate) fn telling(setup: &TramSetup<'_>, tree: Stack, packets: P) -> Self {
        // What is too long to be told has been refused where the settings were chosen.
        let announced = announced(tree, setup.options);
        Self { announced, ..Self::new(setup, packets) }
    }

    /// What was sent until now says nothing of the path: the rate begins anew, no greater than `limit`.
    pub(crate) fn start_anew(&mut self, now: Time, limit: Option<Bitrate>) {
        self.controller.renew(&self.settings);
        self.controller.set_limit(now, limit);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Done
    }

    /// A receiver of this name has started again: heads ask earlier members of the name whether they are there.
    pub(crate) fn note_anew(&mut self, now: Time, name: &str) {
        let name = name_number(name);
        self.head.succeed(now, None, name);
        if self.anew.len() < ANEW_MAX && !self.anew.contains(&name) {
            self.anew.push(name);
        }
    }

    /// The rate of an open window.
    pub(crate) fn bits_per_s(&self) -> f64 {
        self.controller.bits_per_s()
    }

    pub(crate) fn place(&self) -> TreePlace {
        let (number, members) = (self.identity.known_id(), self.head.members.children.len() as u32);
        TreePlace { number, head: 0, level: 1, members, repairs: self.repairs }
    }

    /// Receivers are to speak of themselves after so long without a word.
    pub(crate) fn set_status_interval(&mut self, interval: Duration) {
        self.status_interval = interval.min(Duration::from_millis(u64::from(u16::MAX)));
    }

    /// No more payload than this, where that is less than the options say.
    pub(crate) fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) {
        self.controller.set_limit(now, limit);
    }

    /// What a receiver says of itself, where that is what a packet of this session has, and the receiver's number.
    pub(crate) fn word_of<'a>(&self, datagram: &Datagram<'a>) -> Option<(u64, &'a [u8])> {
        if !is_word(datagram.bytes) {
            return None;
        }
        let packet = decode(datagram, self.identity.session).ok()?;
        match packet.body {
            Body::Member(word) => Some((packet.sender, word)),
            _ => None,
        }
    }

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
