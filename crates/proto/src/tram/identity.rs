//! Identity of an end in its session: the numbers in each of its packets.

use alloc::vec::Vec;

use faircast_base::Cx;

use super::wire::{Body, Packet, seal};
use crate::{Destination, Transmit};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identity {
    pub(super) session: u64,
    id: Option<u64>,
}

impl Identity {
    pub(super) fn new(session: u64) -> Self {
        Self { session, id: None }
    }

    pub(super) fn id(&mut self, cx: &mut Cx<'_>) -> u64 {
        *self.id.get_or_insert_with(|| cx.rng.bits())
    }

    /// Returns the same number if it was drawn already, else `u64::MAX`.
    pub(super) fn known_id(&self) -> u64 {
        self.id.unwrap_or(u64::MAX)
    }

    pub(super) fn write(&mut self, cx: &mut Cx<'_>, ttl: u8, body: Body<'_>, buf: &mut Vec<u8>) {
        self.write_unsealed(cx, ttl, body, buf);
        seal(buf);
    }

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
