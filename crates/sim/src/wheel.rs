//! Event queue: a monotone radix heap with 64 slots per level.
//!
//! An event's level is the highest base-64 digit in which its time differs from that of the last
//! event taken; its slot is that digit. Taking the earliest event spreads one slot over the levels
//! below, so an event moves a few times at most. Events of equal time leave in insertion order:
//! slots are first in, first out, and spread before a younger event can enter the levels below.

use faircast_base::Time;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Levels for 64-bit times: 11 x 6 = 66 bits.
const LEVELS: usize = 11;
const KEPT_MAX: usize = 64;
/// Spare buffers of more than [`KEPT_MAX`] events, for the next crowded slot. If every slot kept
/// its largest buffer, the queue would grow to hundreds of times its content.
const SPARES_MAX: usize = 8;

struct Level<T> {
    occupied: u64,
    slots: [Vec<(u64, T)>; SLOTS],
}

/// Queue of events ordered by time, then by insertion.
pub struct Wheel<T> {
    levels: Box<[Level<T>]>,
    occupied: u32,
    /// Time of the last event taken; no event is scheduled before it.
    last: u64,
    /// Number of events already taken from the slot of `last` at level 0.
    head: usize,
    len: usize,
    spares: Vec<Vec<(u64, T)>>,
}

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Self {
        let level = || Level { occupied: 0, slots: std::array::from_fn(|_| Vec::new()) };
        Self {
            levels: (0..LEVELS).map(|_| level()).collect(),
            occupied: 0,
            last: 0,
            head: 0,
            len: 0,
            spares: Vec::new(),
        }
    }
}

impl<T: Copy> Wheel<T> {
    /// Returns the number of queued events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Schedules an event. A time before that of the last event taken is replaced by the latter.
    #[inline]
    pub fn push(&mut self, at: Time, event: T) {
        self.len += 1;
        self.place(at.as_nanos().max(self.last), event);
    }

    /// Returns the time of the earliest event, which later pushes may precede. Scans one slot.
    pub fn next_time(&self) -> Option<Time> {
        if self.occupied == 0 {
            return None;
        }
        let level_index = self.occupied.trailing_zeros() as usize;
        let level = &self.levels[level_index];
        let slot = &level.slots[level.occupied.trailing_zeros() as usize];
        let waiting = if level_index == 0 { &slot[self.head..] } else { &slot[..] };
        waiting.iter().map(|(time, _)| Time::from_nanos(*time)).min()
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, T)> {
        if self.occupied == 0 {
            return None;
        }
        self.len -= 1;
        loop {
            let level_index = self.occupied.trailing_zeros() as usize;
            if level_index == 0 {
                return Some(self.pop_lowest());
            }
            let level = &mut self.levels[level_index];
            let slot_index = level.occupied.trailing_zeros() as usize;
            let slot = &mut level.slots[slot_index];
            if let [(time, event)] = slot[..] {
                self.vacate(level_index, slot_index);
                self.last = time;
                return Some((Time::from_nanos(time), event));
            }
            self.spread_slot(level_index, slot_index);
        }
    }

    /// Takes the first event of the lowest slot of level 0, all of whose events have one time.
    #[inline]
    fn pop_lowest(&mut self) -> (Time, T) {
        let level = &mut self.levels[0];
        let slot_index = level.occupied.trailing_zeros() as usize;
        let slot = &mut level.slots[slot_index];
        let (time, event) = slot[self.head];
        self.last = time;
        self.head += 1;
        if self.head == slot.len() {
            self.head = 0;
            self.vacate(0, slot_index);
        }
        (Time::from_nanos(time), event)
    }

    fn spread_slot(&mut self, level_index: usize, slot_index: usize) {
        let mut events = std::mem::take(&mut self.levels[level_index].slots[slot_index]);
        self.vacate(level_index, slot_index);
        self.last = events.iter().map(|(time, _)| *time).min().expect("the slot is occupied");
        for (time, event) in events.drain(..) {
            self.place(time, event);
        }
        self.keep(level_index, slot_index, events);
    }

    #[inline]
    fn place(&mut self, time: u64, event: T) {
        let difference = time ^ self.last;
        let level_index = ((63 - (difference | 1).leading_zeros()) / BITS) as usize;
        let slot_index = (time >> (BITS * level_index as u32)) as usize & (SLOTS - 1);
        let level = &mut self.levels[level_index];
        let slot = &mut level.slots[slot_index];
        if slot.len() == KEPT_MAX && slot.capacity() == KEPT_MAX {
            enlarge(slot, &mut self.spares);
        }
        slot.push((time, event));
        level.occupied |= 1 << slot_index;
        self.occupied |= 1 << level_index;
    }

    #[inline]
    fn vacate(&mut self, level_index: usize, slot_index: usize) {
        let level = &mut self.levels[level_index];
        level.occupied &= !(1 << slot_index);
        if level.occupied == 0 {
            self.occupied &= !(1 << level_index);
        }
        let slot = &mut level.slots[slot_index];
        slot.clear();
        if slot.capacity() > KEPT_MAX {
            let crowded = std::mem::take(slot);
            self.keep(level_index, slot_index, crowded);
        }
    }

    fn keep(&mut self, level_index: usize, slot_index: usize, memory: Vec<(u64, T)>) {
        if memory.capacity() <= KEPT_MAX {
            self.levels[level_index].slots[slot_index] = memory;
        } else if self.spares.len() < SPARES_MAX {
            self.spares.push(memory);
        }
    }

    #[cfg(test)]
    fn capacity(&self) -> usize {
        let slots = self.levels.iter().flat_map(|level| &level.slots);
        slots.chain(&self.spares).map(Vec::capacity).sum()
    }
}

#[cold]
fn enlarge<T>(slot: &mut Vec<T>, spares: &mut Vec<Vec<T>>) {
    if let Some(mut spare) = spares.pop() {
        spare.append(slot);
        *slot = spare;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn equal_times_come_out_in_the_order_in_which_they_went_in() {
        let mut wheel = Wheel::default();
        for i in 0..1000u32 {
            wheel.push(Time::from_nanos(u64::from(i % 7) * 1_000_003), i);
        }
        let mut last = (Time::ZERO, 0);
        for _ in 0..1000 {
            let (at, i) = wheel.pop().unwrap();
            assert!((at, i) >= last, "{at} {i} after {last:?}");
            last = (at, i);
        }
        assert!(wheel.pop().is_none() && wheel.is_empty());
    }

    #[test]
    fn memory_follows_what_waits_and_not_what_once_did() {
        let mut wheel = Wheel::default();
        let mut at = Time::ZERO;
        for i in 0..1000u32 {
            wheel.push(at, i);
        }
        for round in 0..3000u64 {
            for want in 0..1000 {
                let (now, i) = wheel.pop().unwrap();
                assert_eq!((now, i), (at, want), "equal times keep their order");
                wheel.push(now + faircast_base::Duration::from_nanos(1 + round * 997 % 100_000), i);
            }
            at += faircast_base::Duration::from_nanos(1 + round * 997 % 100_000);
        }
        let bound = LEVELS * SLOTS * KEPT_MAX + (SPARES_MAX + 2) * 2048;
        assert_eq!(wheel.len(), 1000);
        assert!(wheel.capacity() < bound, "{}", wheel.capacity());
    }

    proptest! {
        #[test]
        fn it_orders_as_a_sorted_map_does(
            steps in prop::collection::vec((0u64..5, 0u32..40, any::<bool>()), 1..400)
        ) {
            let (mut wheel, mut model, mut now) = (Wheel::default(), BTreeMap::new(), 0u64);
            for (i, (factor, shift, pop)) in steps.into_iter().enumerate() {
                let at = now + (factor << shift);
                wheel.push(Time::from_nanos(at), i);
                model.insert((at, i), ());
                if pop {
                    let ((at, i), ()) = model.pop_first().unwrap();
                    prop_assert_eq!(wheel.pop(), Some((Time::from_nanos(at), i)));
                    now = at;
                }
                prop_assert_eq!(wheel.len(), model.len());
            }
            while let Some(((at, i), ())) = model.pop_first() {
                prop_assert_eq!(wheel.pop(), Some((Time::from_nanos(at), i)));
            }
        }
    }
}
