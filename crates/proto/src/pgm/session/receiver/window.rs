//! Receive window: packets that have come, that are held, and that are missing.

use crate::content::Held;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use faircast_base::Seq;

use crate::congestion::AckVector;

/// Position of a packet in relation to the receive window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowPosition {
    /// First missing packet.
    Next,
    /// Missing packet behind the first one.
    Ahead,
    Duplicate,
    TooLate,
    /// Packet too far ahead to be kept.
    Beyond,
}

/// Receive window. Packets are identified by their sequence number without wrap (`index`).
#[derive(Debug, Default)]
#[repr(C)] // Hot fields first: see the receiver's session.
pub(super) struct Window {
    /// Most packets from the next to deliver to the last that is kept.
    limit: u64,
    pub(super) next: u64,
    /// One past the last packet known to exist, at most [`end`](Self::end).
    pub(super) known: u64,
    pub(super) highest: Option<u64>,
    /// Packets out of order: element i is 0 if packet `next + i` has not come, else one more than
    /// the zeros of its payload. An array keeps them adjacent in memory.
    held: VecDeque<u32>,
    /// Bit i: true if packet `next - 1 - i` was received. Earlier packets count, as in OpenPGM.
    history: u64,
    pub(super) given_up: BTreeSet<u64>,
    /// Payload of held packets without the zeros after it.
    bytes: BTreeMap<u64, Vec<u8>>,
}

impl Window {
    pub(super) fn new(start: u64, limit: u32) -> Self {
        let (limit, history) = (u64::from(limit), u64::MAX);
        Self { limit, next: start, known: start, history, ..Self::default() }
    }

    /// Returns the packet with number `seq` that is nearest to the next one; `None` before index 0.
    pub(super) fn index(&self, seq: Seq) -> Option<u64> {
        self.next.checked_add_signed(i64::from(seq.distance(Seq::new(self.next as u32))))
    }

    pub(super) fn end(&self) -> u64 {
        self.next + self.limit
    }

    pub(super) fn position(&self, index: u64) -> WindowPosition {
        if index == self.next {
            WindowPosition::Next
        } else if index < self.next {
            if self.received(index) { WindowPosition::Duplicate } else { WindowPosition::TooLate }
        } else if index >= self.end() {
            WindowPosition::Beyond
        } else if self.holds(index) {
            WindowPosition::Duplicate
        } else {
            WindowPosition::Ahead
        }
    }

    /// Returns true if `index` has come. Packets delivered long ago count as received.
    pub(super) fn received(&self, index: u64) -> bool {
        if index < self.next {
            let age = self.next - 1 - index;
            age >= 64 || self.history >> age & 1 == 1
        } else {
            self.holds(index)
        }
    }

    /// Returns true if `index` is known to have come; packets passed long ago are unknown.
    pub(super) fn received_lately(&self, index: u64) -> bool {
        self.received(index) && self.next <= index.saturating_add(64)
    }

    /// Forgets packets from `to` on, which were not sent by the source; `to` is at `next` or later.
    pub(super) fn rewind(&mut self, to: u64) {
        self.known = self.known.min(to);
        self.held.truncate((to - self.next) as usize);
        while self.held.back() == Some(&ABSENT) {
            self.held.pop_back();
        }
        self.bytes.split_off(&to);
        self.given_up.split_off(&to);
        if self.highest.is_some_and(|highest| highest >= to) {
            let held = self.held.len() as u64;
            self.highest = (self.next + held).checked_sub(1);
        }
    }

    fn holds(&self, index: u64) -> bool {
        self.held.get((index - self.next) as usize).is_some_and(|&held| held != ABSENT)
    }

    pub(super) fn learn(&mut self, index: u64) {
        self.known = self.known.max((index + 1).min(self.end()));
    }

    pub(super) fn note(&mut self, index: u64) {
        self.highest = Some(self.highest.map_or(index, |highest| highest.max(index)));
        self.learn(index);
        if !self.given_up.is_empty() {
            self.given_up.remove(&index);
        }
    }

    pub(super) fn note_late(&mut self, index: u64) {
        let age = self.next.saturating_sub(1).saturating_sub(index);
        if age < 64 {
            self.history |= 1 << age;
        }
    }

    pub(super) fn hold(&mut self, index: u64, held: Held) {
        let slot = (index - self.next) as usize;
        if slot >= self.held.len() {
            self.held.resize(slot + 1, ABSENT);
        }
        self.held[slot] = 1 + held.zeros;
        if !held.bytes.is_empty() {
            self.bytes.insert(index, held.bytes);
        }
        self.check();
    }

    /// Checks that the last held packet has come, and that all are in the window.
    fn check(&self) {
        debug_assert!(self.next <= self.known && self.known <= self.end(), "{self:?}");
        debug_assert_ne!(self.held.back(), Some(&ABSENT), "what is held ends with what came");
        debug_assert!(self.held.len() as u64 <= self.limit, "nothing is held beyond the limit");
    }

    pub(super) fn is_tidy(&self) -> bool {
        self.held.is_empty() && self.given_up.is_empty()
    }

    pub(super) fn take_next(&mut self) -> Option<Held> {
        let zeros = core::mem::take(self.held.front_mut()?).checked_sub(1)?;
        let bytes = if self.bytes.is_empty() { None } else { self.bytes.remove(&self.next) };
        Some(Held { bytes: bytes.unwrap_or_default(), zeros })
    }

    pub(super) fn give_up(&mut self, index: u64) {
        if index >= self.next {
            self.given_up.insert(index);
        }
    }

    pub(super) fn is_given_up(&self, index: u64) -> bool {
        self.given_up.contains(&index)
    }

    pub(super) fn pass_delivered(&mut self) {
        self.history = self.history << 1 | 1;
        self.next += 1;
        if self.held.pop_front().is_some() && self.held.is_empty() {
            start_over(&mut self.held);
        }
        self.known = self.known.max(self.next);
        self.check();
    }

    /// Gives up all packets before `to`, none of which is held.
    pub(super) fn pass_lost(&mut self, to: u64) {
        let count = to - self.next;
        self.history = if count < 64 { self.history << count } else { 0 };
        self.next = to;
        let slots = usize::try_from(count).unwrap_or(usize::MAX);
        self.held.drain(..slots.min(self.held.len()));
        self.known = self.known.max(to);
        if !self.given_up.is_empty() {
            self.given_up = self.given_up.split_off(&to);
        }
        self.check();
    }

    pub(super) fn first_held(&self) -> Option<u64> {
        self.held.iter().position(|&held| held != ABSENT).map(|slot| self.next + slot as u64)
    }

    /// Returns the packet before which all gaps have been passed by at least `count` (>= 1).
    pub(super) fn passed_by(&self, count: usize) -> Option<u64> {
        let slots = self.held.iter().enumerate().rev();
        let (slot, _) = slots.filter(|(_, held)| **held != ABSENT).nth(count - 1)?;
        Some(self.next + slot as u64)
    }

    pub(super) fn has_gap(&self, from: u64, to: u64) -> bool {
        (from.max(self.next)..to).any(|index| !self.holds(index))
    }

    pub(super) fn ack_vector(&self) -> Option<AckVector> {
        let highest = self.highest?;
        let bitmap = if highest < self.next {
            // Nothing is held; given-up packets are in the history too.
            let above = self.next - 1 - highest;
            if above < 64 { (self.history >> above) as u32 } else { 0 }
        } else {
            let mut bits = 0u32;
            let first = highest.saturating_sub(31);
            for index in first.max(self.next)..=highest {
                bits |= u32::from(self.holds(index)) << (highest - index);
            }
            // Delivered packets begin `ahead` bits up.
            let ahead = highest + 1 - self.next;
            if ahead < 32 { bits | (self.history << ahead) as u32 } else { bits }
        };
        Some(AckVector { highest: Seq::new(highest as u32), bitmap })
    }
}

const ABSENT: u32 = 0;

const KEPT_MAX: usize = 16;

/// Clears an empty queue, which one repair can fill: thousands of receivers would keep memory.
pub(crate) fn start_over<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT_MAX {
        *queue = VecDeque::new();
    } else {
        // Clearing moves an empty queue back to the front of its memory.
        queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(window: &mut Window, index: u64) {
        window.note(index);
        if window.position(index) == WindowPosition::Next {
            window.pass_delivered();
            while window.take_next().is_some() {
                window.pass_delivered();
            }
        } else {
            window.hold(index, Held { bytes: Vec::new(), zeros: 0 });
        }
    }

    #[test]
    fn ack_vectors_are_those_of_a_live_openpgm_receiver() {
        let mut window = Window::new(13, 1000);
        assert_eq!(window.ack_vector(), None);
        for (index, want) in [
            (13, 0xffff_ffff),
            (14, 0xffff_ffff),
            (15, 0xffff_ffff),
            (17, 0xffff_fffd),
            (18, 0xffff_fffb),
            (19, 0xffff_fff7),
            (20, 0xffff_ffef),
            (21, 0xffff_ffdf),
        ] {
            receive(&mut window, index);
            let vector = window.ack_vector().unwrap();
            assert_eq!((vector.highest, vector.bitmap), (Seq::new(index as u32), want), "{index}");
        }
        receive(&mut window, 16);
        let vector = window.ack_vector().unwrap();
        assert_eq!((vector.highest, vector.bitmap), (Seq::new(21), u32::MAX));
        for index in 22..26 {
            receive(&mut window, index);
        }
        receive(&mut window, 31);
        assert_eq!(window.ack_vector().unwrap().bitmap, 0xffff_ffc1);
        for index in (26..31).chain(32..80) {
            receive(&mut window, index);
        }
        receive(&mut window, 120);
        assert_eq!(window.ack_vector().unwrap().bitmap, 1);
    }

    #[test]
    fn what_was_given_up_stays_a_hole_in_the_vector() {
        let mut window = Window::new(0, 1000);
        receive(&mut window, 0);
        receive(&mut window, 2);
        window.pass_lost(2);
        assert!(window.take_next().is_some());
        window.pass_delivered();
        assert_eq!(window.ack_vector().unwrap().bitmap, 0xffff_fffd);
        assert_eq!(window.position(1), WindowPosition::TooLate);
        assert_eq!(window.position(2), WindowPosition::Duplicate);
        window.pass_lost(10);
        assert_eq!(window.ack_vector().unwrap().bitmap, 0xffff_fffd);
        assert_eq!(window.ack_vector().unwrap().highest, Seq::new(2));
    }

    #[test]
    fn indices_survive_the_wrap_of_sequence_numbers() {
        let mut window = Window::new(u64::from(u32::MAX) - 1, 10);
        assert_eq!(window.index(Seq::new(1)), Some(u64::from(u32::MAX) + 2));
        receive(&mut window, u64::from(u32::MAX) - 1);
        receive(&mut window, u64::from(u32::MAX));
        assert_eq!(window.index(Seq::new(0)), Some(1 << 32));
        assert_eq!(window.position((1 << 32) + 10), WindowPosition::Beyond);
        assert_eq!(Window::new(3, 10).index(Seq::new(u32::MAX)), None);
    }

    proptest::proptest! {
        #[test]
        fn what_is_held_is_what_came_out_of_order(
            steps in proptest::collection::vec((0u64..20, 0u8..8, 0usize..3), 1..200),
        ) {
            let mut window = Window::new(5, 16);
            let mut came = BTreeSet::new();
            for (ahead, what, len) in steps {
                let index = window.next + ahead;
                if what == 0 {
                    let first = came.range(window.next..).next().copied();
                    proptest::prop_assert_eq!(window.first_held(), first);
                    window.pass_lost(first.unwrap_or(index));
                } else if window.position(index) == WindowPosition::Ahead {
                    window.note(index);
                    came.insert(index);
                    window.hold(index, Held { bytes: alloc::vec![7; len], zeros: index as u32 });
                } else if window.position(index) == WindowPosition::Next {
                    window.note(index);
                    came.insert(index);
                    window.pass_delivered();
                }
                while let Some(held) = window.take_next() {
                    proptest::prop_assert!(came.contains(&window.next));
                    proptest::prop_assert_eq!(u64::from(held.zeros), window.next);
                    proptest::prop_assert!(held.bytes.iter().all(|&byte| byte == 7));
                    window.pass_delivered();
                }
                let (next, end) = (window.next, window.end());
                for index in next..end + 3 {
                    proptest::prop_assert_eq!(window.received(index), came.contains(&index));
                    let gap = (next..index).any(|index| !came.contains(&index));
                    proptest::prop_assert_eq!(window.has_gap(next, index), gap);
                }
                for count in 1..4 {
                    let passed = came.range(next..).rev().nth(count - 1).copied();
                    proptest::prop_assert_eq!(window.passed_by(count), passed);
                }
                proptest::prop_assert_eq!(window.is_tidy(), came.range(next..).next().is_none());
                proptest::prop_assert_eq!(window.bytes.is_empty(), window.bytes.range(next..).next().is_none());
            }
        }
    }
}
