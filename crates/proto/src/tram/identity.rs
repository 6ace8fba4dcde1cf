//! Identity of an end in its session: the numbers that each of its packets carries.

use alloc::vec::Vec;

use faircast_base::Cx;

use super::wire::{Body, Packet, seal};
use crate::{Destination, Transmit};

/// The numbers of a session and of an end in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identity {
    pub(super) session: u64,
    /// Random; drawn when it is first needed.
    id: Option<u64>,
}

impl Identity {
    pub(super) fn new(session: u64) -> Self {
        Self { session, id: None }
    }

    /// By which heads ask a member.
    pub(super) fn id(&mut self, cx: &mut Cx<'_>) -> u64 {
        *self.id.get_or_insert_with(|| cx.rng.bits())
    }

    /// The same, once it has been needed.
    pub(super) fn known_id(&self) -> u64 {
        self.id.unwrap_or(u64::MAX)
    }

    pub(super) fn write(&mut self, cx: &mut Cx<'_>, ttl: u8, body: Body<'_>, buf: &mut Vec<u8>) {
        self.write_unsealed(cx, ttl, body, buf);
        seal(buf);
    }

    /// Writes a packet to which something is still to be added.
    pub(super) fn write_unsealed(
        &mut self,
        cx: &mut Cx<'_>,
        ttl: u8,
        body: Body<'_>,
        buf: &mut Vec<u8>,
    ) {
        let (session, sender) = (self.session, self.id(cx));
        Packet { session, sender, ttl, body }.encode(buf);
    }

    /// A packet that is nothing but control, which goes so many hops.
    pub(super) fn control(
        &mut self,
        cx: &mut Cx<'_>,
        to: Destination,
        ttl: u8,
        body: Body<'_>,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        self.write(cx, ttl, body, buf);
        Transmit { time_to_live: ttl, ..Transmit::control(to) }
    }
}
