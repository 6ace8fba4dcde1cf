//! Interface of a source's application: data, the end of the session, and status of receivers.

use alloc::vec::Vec;

use faircast_base::{Bitrate, Cx, Duration, Time};

use super::{Phase, TramSource};
use crate::content::Packets;
use crate::object::TreePlace;
use crate::stack::Stack;
use crate::tram::wire::{Body, Packet, is_status};
use crate::tram::{TramSetup, announced, name_number};
use crate::{Datagram, Destination, Transmit};

/// Most names of restarted receivers that wait to be sent; chosen. Receivers repeat their reports.
const RESTARTED_MAX: usize = 16;

/// For applications that know themselves which receivers have everything.
impl<P: Packets> TramSource<P> {
    pub(crate) fn kept(setup: &TramSetup<'_>, tree: Stack, packets: P) -> Self {
        Self { is_retained: true, ..Self::announcing(setup, tree, packets) }
    }

    pub(crate) fn announcing(setup: &TramSetup<'_>, tree: Stack, packets: P) -> Self {
        // Settings too long for an announcement were refused where they were chosen.
        let settings = announced(tree, setup.options);
        let mut source = Self::new(setup, packets);
        source.beacons.settings = settings;
        source
    }

    pub(crate) fn start_anew(&mut self, now: Time, limit: Option<Bitrate>) {
        self.controller.renew(&self.settings);
        self.controller.set_limit(now, limit);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Takes the name of a restarted receiver: heads ask earlier members of the name.
    pub(crate) fn note_anew(&mut self, now: Time, name: &str) {
        let (name, restarted) = (name_number(name), &mut self.beacons.restarted);
        self.head.supersede(now, None, name);
        if restarted.len() < RESTARTED_MAX && !restarted.contains(&name) {
            restarted.push(name);
        }
    }

    pub(crate) fn bits_per_s(&self) -> f64 {
        self.controller.bits_per_s()
    }

    pub(crate) fn place(&self) -> TreePlace {
        let (number, members) = (self.identity.known_id(), self.head.members.by_node.len() as u32);
        TreePlace { number, head: 0, level: 1, members, repairs: self.repairer.sent }
    }

    pub(crate) fn set_status_interval(&mut self, interval: Duration) {
        self.beacons.status_interval = interval.min(Duration::from_millis(u64::from(u16::MAX)));
    }

    pub(crate) fn set_limit(&mut self, now: Time, limit: Option<Bitrate>) {
        self.controller.set_limit(now, limit);
    }

    pub(crate) fn word_of<'a>(&self, datagram: &Datagram<'a>) -> Option<(u64, &'a [u8])> {
        if !is_status(datagram.bytes) {
            return None;
        }
        let packet = Packet::of_datagram(datagram, self.identity.session).ok()?;
        match packet.body {
            Body::Status(word) => Some((packet.sender, word)),
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
        self.identity.send(cx, to, Body::StatusReply(answer), buf)
    }
}
