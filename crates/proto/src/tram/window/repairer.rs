//! Repair service of a head: packets kept for repair, requests for them, and the pace of repairs.

use faircast_base::{NodeId, Time};

use super::cache::Cache;
use super::repairs::{Repair, Repairs};
use crate::congestion::Pace;
use crate::tram::settings::TramSettings;

/// Member that requests repairs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepairRequest {
    pub(crate) from: NodeId,
    /// True if repairs for the member may alternate with new data.
    pub(crate) may_alternate: bool,
    /// True if repairs to all do not reach the member.
    pub(crate) unreached: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Repairer {
    pub(crate) cache: Cache,
    pub(crate) requests: Repairs,
    /// True if a head passes a repair on as soon as the head itself gets the packet.
    passes_on: bool,
    /// True at the source: repairs for members without progress alternate with new data.
    alternates: bool,
    /// Pace of a receiver's repairs. The source has a rate control.
    pub(crate) pace: Pace,
    /// Repairs sent.
    pub(crate) sent: u64,
}

impl Repairer {
    pub(crate) fn new(settings: &TramSettings, start: u64) -> Self {
        let packets_max = settings.cache_packets as usize;
        Self {
            cache: Cache::new(start, packets_max, settings.cache_floor()),
            requests: Repairs::new(settings),
            passes_on: settings.pass_on,
            ..Self::default()
        }
    }

    pub(crate) fn of_source(settings: &TramSettings) -> Self {
        Self { alternates: true, ..Self::new(settings, 1) }
    }

    /// Drops all packets and requests, and keeps packets from `start` on.
    pub(crate) fn restart(&mut self, settings: &TramSettings, start: u64) {
        let Self { pace, sent, alternates, .. } = core::mem::take(self);
        *self = Self { pace, sent, alternates, ..Self::new(settings, start) };
    }

    /// Takes a member's request for `missing` packets.
    pub(crate) fn on_request(
        &mut self,
        now: Time,
        missing: impl Iterator<Item = u64>,
        request: RepairRequest,
        can_repair: impl Fn(&Cache, u64) -> bool,
    ) {
        let first_kept = self.cache.first;
        let may_alternate = self.alternates && request.may_alternate;
        let request = RepairRequest { may_alternate, ..request };
        for sequence in missing {
            if can_repair(&self.cache, sequence) {
                self.requests.request(now, sequence, first_kept, request);
            } else if self.passes_on && sequence >= first_kept {
                self.requests.await_packet(now, sequence, first_kept, request.from);
            }
        }
    }

    pub(crate) fn is_queued(&self, sequence: u64, node: NodeId) -> bool {
        self.requests.is_queued(sequence, node)
    }

    /// Returns the next repair. Repairs to all have the time to live `reach`.
    pub(crate) fn next(&mut self, now: Time, reach: u8) -> Option<Repair> {
        self.requests.next(now, reach)
    }
}
