//! Reports in transit: routers compare their severity and correct their echoes for holding time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::{Duration, Time};

use super::{Reported, RouterView};

/// Most timestamps remembered. Older echoes are measured from the oldest one left.
const STAMPS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RelayedReport {
    pub(crate) view: &'static RouterView,
    /// Option value; the first `len` bytes count.
    bytes: [u8; RouterView::REPORT_BYTES_MAX],
    len: usize,
    at: Time,
}

impl RelayedReport {
    pub(crate) fn new(now: Time, view: &'static RouterView, value: &[u8]) -> Option<Self> {
        let mut bytes = [0; RouterView::REPORT_BYTES_MAX];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self { view, bytes, len: value.len(), at: now })
    }

    fn value(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the severity for a receiver whose round trip is `beyond` longer than the router's.
    pub(crate) fn reported(&self, stamps: &Stamps, beyond: Duration) -> Option<Reported> {
        let echo = (self.view.echo)(self.value())?;
        let round_trip = stamps.round_trip(self.at, echo, self.view.tick);
        (self.view.reported)(self.value(), round_trip + beyond)
    }

    /// Returns the option value with the holding time until `now` added to its echo.
    pub(crate) fn held_until(&self, now: Time) -> Vec<u8> {
        let held = now.since(self.at).as_nanos() / self.view.tick.as_nanos();
        // Timestamps wrap at 32 bits.
        (self.view.held)(self.value(), held as u32).unwrap_or_else(|| self.value().to_vec())
    }
}

/// Passing times of data by timestamp: echoes give round trips without a common clock.
#[derive(Debug, Default)]
pub(crate) struct Stamps(VecDeque<(u32, Time)>);

impl Stamps {
    pub(crate) fn note(&mut self, now: Time, sent: u32) {
        let newest = self.0.back().map(|&(newest, _)| sent.wrapping_sub(newest) as i32);
        match newest {
            Some(..=0) => return, // Same tick, or out of order.
            _ if self.0.len() == STAMPS_MAX => {
                self.0.pop_front();
            }
            _ => {}
        }
        self.0.push_back((sent, now));
    }

    fn round_trip(&self, now: Time, echo: u32, tick: Duration) -> Duration {
        let age = |sent: u32| echo.wrapping_sub(sent) as i32;
        let index = self.0.partition_point(|&(sent, _)| age(sent) >= 0);
        let Some(&(sent, at)) = self.0.get(index.saturating_sub(1)) else {
            return Duration::ZERO;
        };
        let held = tick * age(sent).max(0) as u64;
        now.since(at).saturating_sub(held)
    }
}

#[cfg(test)]
impl Stamps {
    pub(crate) fn example() -> Self {
        let mut stamps = Self::default();
        for i in 0..50 {
            stamps.note(crate::world::at(i * 100 + 20), 7000 + i as u32 * 100);
        }
        stamps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::at;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_round_trip_needs_no_common_clock() {
        let stamps = Stamps::example();
        // Timestamp 8000 passed at 1020 ms and was held for 30 ms; the NAK is here at 1130 ms.
        assert_eq!(stamps.round_trip(at(1130), 8030, MS), Duration::from_millis(80));
        assert_eq!(Stamps::default().round_trip(at(1130), 8030, MS), Duration::ZERO);
    }

    #[test]
    fn memory_is_bounded_and_survives_the_wrap_of_the_clock() {
        let mut stamps = Stamps::default();
        for i in 0..5000u32 {
            let sent_ms = (u32::MAX - 2500).wrapping_add(i);
            stamps.note(at(u64::from(i)), sent_ms);
            stamps.note(at(u64::from(i)), sent_ms.wrapping_sub(7));
        }
        assert_eq!(stamps.0.len(), STAMPS_MAX);
        let echo = (u32::MAX - 2500).wrapping_add(4990);
        assert_eq!(stamps.round_trip(at(5050), echo, MS), Duration::from_millis(60));
    }
}
