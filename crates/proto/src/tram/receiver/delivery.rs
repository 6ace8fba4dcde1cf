//! Delivery of a receiver: the next packet for the application, and how complete its data is.

use alloc::vec::Vec;

use crate::tram::window::Cache;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Retention {
    /// None: all packets are enough.
    #[default]
    UntilComplete,
    UntilReleased,
    Released,
}

#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// First packet of this receiver, and the next packet to deliver.
    pub(super) start: u64,
    pub(super) next: u64,
    pub(super) from_start: bool,
    pub(super) lost_any: bool,
    /// True once every packet was received or given up.
    pub(super) completed: bool,
    pub(super) bytes: u64,
    /// True while the application takes no data.
    pub(super) held: bool,
    pub(super) retention: Retention,
}

impl Delivery {
    pub(super) fn is_retained(&self) -> bool {
        self.retention != Retention::UntilComplete
    }

    /// True if the receiver would leave incomplete. An application that keeps it judges by itself.
    pub(super) fn is_short(&self) -> bool {
        !self.is_retained() && (self.lost_any || !self.completed)
    }

    pub(super) fn is_done(&self) -> bool {
        match self.retention {
            Retention::UntilComplete => self.completed,
            Retention::UntilReleased => false,
            Retention::Released => true,
        }
    }

    /// Takes the next packet before `end`, and its zeros. Returns true in the second place if
    /// packets were passed over.
    pub(super) fn take(
        &mut self,
        cache: &Cache,
        end: u64,
        bytes: &mut Vec<u8>,
    ) -> (Option<(u64, u32)>, bool) {
        let mut sequence = self.next;
        let found = loop {
            if sequence >= end {
                break None;
            }
            if let Some((payload, zeros)) = cache.get(sequence) {
                bytes.clear();
                bytes.extend_from_slice(payload);
                break Some((sequence, zeros));
            }
            // Skips packets that are not wanted or never come: perhaps far more than can be kept.
            sequence = cache.next_from(sequence).unwrap_or(end).min(end);
        };
        let jumped = sequence > self.next;
        self.next = sequence + u64::from(found.is_some());
        if let Some((_, zeros)) = found {
            self.bytes += bytes.len() as u64 + u64::from(zeros);
        }
        (found, jumped)
    }
}
