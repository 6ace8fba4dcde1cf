//! Faults on the wire beside independent loss: bursts, outages, duplicates, flipped bits and
//! reordered packets.

use alloc::collections::VecDeque;

use faircast_base::{DropReason, Duration, NodeId, Purpose, Rng, Time};

use crate::{BurstLoss, Faults, LinkConfig, Outage, Reorder};

/// Where the random numbers of a link's faults come from: one stream for each kind of fault, so
/// that a fault more moves no draw of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    /// Seed of the run.
    pub seed: u64,
    /// Where the link starts.
    pub node: NodeId,
    /// The link.
    pub link: u32,
}

/// A packet as it comes out of a wire with faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// When it reaches the other end.
    pub at: Time,
    /// By how much more than others it was delayed; zero for most.
    pub extra: Duration,
    /// Where one bit of it is flipped: a number, uniform over all 64-bit numbers, that
    /// [`bit`](Self::bit) turns into a place.
    pub flip: Option<u64>,
}

impl Copy {
    /// Which bit is flipped of a packet that has `bytes` bytes, counted from the first byte's
    /// most significant; `None` where none is.
    pub fn bit(&self, bytes: u32) -> Option<u64> {
        let bits = u128::from(bytes) * 8;
        let place = (u128::from(self.flip?) * bits) >> 64;
        (bits > 0).then(|| u64::try_from(place).expect("below the number of bits"))
    }
}

/// The faults of a link while it runs. Links without any have none of this.
#[derive(Clone, Debug)]
pub(crate) struct FaultyWire {
    burst: BurstLoss,
    /// Whether the last packet was in a burst; `None` before the first.
    in_burst: Option<bool>,
    reorder: Reorder,
    duplicate: f64,
    corrupt: f64,
    mtu: u32,
    /// Outages that have not ended, in order of time.
    outages: VecDeque<Outage>,
    /// Outages that have not ended for packets that leave the serialiser, which is later.
    outages_behind: VecDeque<Outage>,
    burst_rng: Rng,
    reorder_rng: Rng,
    duplicate_rng: Rng,
    corrupt_rng: Rng,
}

impl FaultyWire {
    /// `None` for a link that never has a fault.
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

    /// Whether a packet may be offered at `now`, which never decreases.
    pub(crate) fn enter(&mut self, now: Time) -> Result<(), DropReason> {
        if is_down(&mut self.outages, now) { Err(DropReason::Outage) } else { Ok(()) }
    }

    /// Decides whether a packet of `bytes` bytes survives. Its transmission ends at `ends`, which never decreases.
    pub(crate) fn leave(&mut self, ends: Time, bytes: u32) -> Result<(), DropReason> {
        if bytes > self.mtu {
            return Err(DropReason::TooLong);
        }
        if is_down(&mut self.outages_behind, ends) {
            return Err(DropReason::Outage);
        }
        if self.burst.loss > 0.0 && self.bursts() { Err(DropReason::Burst) } else { Ok(()) }
    }

    /// How a packet that would arrive at `at` arrives, and its second copy where it has one.
    pub(crate) fn cross(&mut self, at: Time) -> (Copy, Option<Copy>) {
        let first = self.copy(at);
        let twice = self.duplicate > 0.0 && self.duplicate_rng.chance(self.duplicate);
        (first, twice.then(|| self.copy(at)))
    }

    /// Goes one packet on in the two-state chain and says whether the packet is lost.
    ///
    /// src: gilbert-1960: the chain, its states and the mean length of a burst, 1 / r.
    /// src: hasslinger-hohlfeld-2008: the share of bad packets, q / (q + r).
    fn bursts(&mut self) -> bool {
        let BurstLoss { loss, packets } = self.burst;
        let recovery = 1.0 / packets;
        // At `loss` 1 all is bad for ever, and the formula below divides by zero.
        let bad = match self.in_burst {
            _ if loss >= 1.0 => true,
            // The chain is met in its steady state, so that the first packets are like all others.
            None => self.burst_rng.chance(loss),
            Some(true) => !self.burst_rng.chance(recovery),
            Some(false) => self.burst_rng.chance(recovery * loss / (1.0 - loss)),
        };
        self.in_burst = Some(bad);
        bad
    }

    fn copy(&mut self, at: Time) -> Copy {
        let late = self.reorder.share > 0.0 && self.reorder_rng.chance(self.reorder.share);
        let extra = if late { self.reorder.delay } else { Duration::ZERO };
        let flip = self.corrupt > 0.0 && self.corrupt_rng.chance(self.corrupt);
        let flip = flip.then(|| self.corrupt_rng.bits());
        Copy { at: at + extra, extra, flip }
    }
}

/// Whether one of the outages holds at `at`; forgets those that have ended.
fn is_down(outages: &mut VecDeque<Outage>, at: Time) -> bool {
    while outages.front().is_some_and(|outage| outage.to <= at) {
        outages.pop_front();
    }
    outages.front().is_some_and(|outage| outage.from <= at)
}

#[cfg(test)]
mod tests;
