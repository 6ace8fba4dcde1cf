//! Identity of an end in its session: the numbers in each of its packets.

use alloc::vec::Vec;

use faircast_base::Cx;

use super::wire::{Body, Packet};
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

    pub(super) fn packet<'a>(&mut self, cx: &mut Cx<'_>, ttl: u8, body: Body<'a>) -> Packet<'a> {
        Packet { session: self.session, sender: self.id(cx), ttl, body }
    }

    pub(super) fn send(
        &mut self,
        cx: &mut Cx<'_>,
        to: Destination,
        body: Body<'_>,
        buf: &mut Vec<u8>,
    ) -> Transmit {
        self.packet(cx, u8::MAX, body).write(buf);
        Transmit::control(to)
    }
}
