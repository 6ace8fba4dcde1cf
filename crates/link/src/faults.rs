//! Faults on the wire beside independent loss: bursts, outages, duplicates, corruption, reordering.

use alloc::collections::VecDeque;

use faircast_base::{DropReason, Duration, NodeId, Purpose, Rng, Time};

use crate::{BurstLoss, Faults, LinkConfig, Outage, Reorder};

/// Random streams of a link's faults: one for each kind, so that kinds do not affect each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct Streams {
    pub seed: u64,
    pub node: NodeId,
    pub link: u32,
}

/// Packet at the end of a wire with faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields without a text are what their names and types say")]
pub struct FaultyCopy {
    pub at: Time,
    /// Extra delay; zero for most packets.
    pub extra: Duration,
    /// Uniform 64-bit number from which [`bit`](Self::bit) computes the flipped bit, if any.
    pub flip: Option<u64>,
}

impl FaultyCopy {
    /// Returns the flipped bit of a packet of `bytes` bytes; bit 0 is the first byte's highest.
    pub fn bit(&self, bytes: u32) -> Option<u64> {
        let bits = u128::from(bytes) * 8;
        let place = (u128::from(self.flip?) * bits) >> 64;
        (bits > 0).then(|| u64::try_from(place).expect("below the number of bits"))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FaultyWire {
    burst: BurstLoss,
    /// True if the last packet was in a burst; `None` before the first.
    in_burst: Option<bool>,
    reorder: Reorder,
    duplicate: f64,
    corrupt: f64,
    mtu: u32,
    /// Outages that have not ended at the entrance of the queue, sorted by time.
    outages: VecDeque<Outage>,
    /// Outages that have not ended for packets that leave the serialiser, which is later.
    outages_behind: VecDeque<Outage>,
    burst_rng: Rng,
    reorder_rng: Rng,
    duplicate_rng: Rng,
    corrupt_rng: Rng,
}

impl FaultyWire {
    /// Returns `None` for a link without faults during the whole run.
    pub(crate) fn new(config: &LinkConfig, streams: Streams) -> Option<Self> {
        let Faults { burst_loss, reorder, duplicate, corrupt, mtu, outages } = &config.faults;
        let changes = config.changes.iter().any(|change| change.faults.is_some());
        if config.faults == Faults::default() && !changes {
            return None;
        }
        let Streams { seed, node, link } = streams;
        let stream = |purpose: fn(u32) -> Purpose| Rng::new(seed, node, purpose(link));
        Some(Self {
            burst: *burst_loss,
            in_burst: None,
            reorder: *reorder,
            duplicate: *duplicate,
            corrupt: *corrupt,
            mtu: mtu.unwrap_or(u32::MAX),
            outages: outages.iter().copied().collect(),
            outages_behind: outages.iter().copied().collect(),
            burst_rng: stream(Purpose::Burst),
            reorder_rng: stream(Purpose::Reorder),
            duplicate_rng: stream(Purpose::Duplicate),
            corrupt_rng: stream(Purpose::Corrupt),
        })
    }

    pub(crate) fn change(&mut self, faults: &crate::FaultChange) {
        if let Some(burst) = faults.burst_loss {
            (self.burst, self.in_burst) = (burst, None);
        }
        self.reorder = faults.reorder.unwrap_or(self.reorder);
        self.duplicate = faults.duplicate.unwrap_or(self.duplicate);
        self.corrupt = faults.corrupt.unwrap_or(self.corrupt);
        self.mtu = faults.mtu.unwrap_or(self.mtu);
    }

    /// Refuses a packet that is offered during an outage. `now` never decreases.
    pub(crate) fn enter(&mut self, now: Time) -> Result<(), DropReason> {
        if is_down(&mut self.outages, now) { Err(DropReason::Outage) } else { Ok(()) }
    }

    /// Drops a packet by its length, an outage or a burst. Its end of transmission never decreases.
    pub(crate) fn leave(&mut self, ends: Time, bytes: u32) -> Result<(), DropReason> {
        if bytes > self.mtu {
            return Err(DropReason::TooLong);
        }
        if is_down(&mut self.outages_behind, ends) {
            return Err(DropReason::Outage);
        }
        if self.burst.loss > 0.0 && self.bursts() { Err(DropReason::Burst) } else { Ok(()) }
    }

    pub(crate) fn cross(&mut self, at: Time) -> (FaultyCopy, Option<FaultyCopy>) {
        let first = self.copy(at);
        let twice = self.duplicate > 0.0 && self.duplicate_rng.chance(self.duplicate);
        (first, twice.then(|| self.copy(at)))
    }

    /// Advances the two-state chain by one packet. Returns true if the packet is lost.
    /// src: gilbert-1960: the chain, its states and the mean length of a burst, 1 / r.
    /// src: hasslinger-hohlfeld-2008: the share of bad packets, q / (q + r).
    fn bursts(&mut self) -> bool {
        let BurstLoss { loss, packets } = self.burst;
        let recovery = 1.0 / packets;
        // At `loss` 1 the chain stays bad, and the formula below would divide by zero.
        let bad = match self.in_burst {
            _ if loss >= 1.0 => true,
            // The first packet finds the chain in its steady state.
            None => self.burst_rng.chance(loss),
            Some(true) => !self.burst_rng.chance(recovery),
            Some(false) => self.burst_rng.chance(recovery * loss / (1.0 - loss)),
        };
        self.in_burst = Some(bad);
        bad
    }

    fn copy(&mut self, at: Time) -> FaultyCopy {
        let late = self.reorder.share > 0.0 && self.reorder_rng.chance(self.reorder.share);
        let extra = if late { self.reorder.delay } else { Duration::ZERO };
        let flip = self.corrupt > 0.0 && self.corrupt_rng.chance(self.corrupt);
        let flip = flip.then(|| self.corrupt_rng.bits());
        FaultyCopy { at: at + extra, extra, flip }
    }
}

fn is_down(outages: &mut VecDeque<Outage>, at: Time) -> bool {
    while outages.front().is_some_and(|outage| outage.to <= at) {
        outages.pop_front();
    }
    outages.front().is_some_and(|outage| outage.from <= at)
}

#[cfg(test)]
mod tests;
