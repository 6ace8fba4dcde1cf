//! The event queue: a monotone radix heap with 64 slots a level.
//!
//! Every event sits at the level of the highest base-64 digit in which its time differs from the
//! time of the last event taken, in the slot of that digit. Taking the earliest event means
//! spreading one slot over the levels below it, so an event moves a few times at most, in
//! sequential memory. Events of equal time come out in the order in which they went in: slots are
//! first in, first out, and a slot is spread before anything younger can enter the levels below.

use faircast_base::Time;

const BITS: u32 = 6;
const SLOTS: usize = 1 << BITS;
/// Enough for 64-bit times: 11 x 6 = 66 bits.
const LEVELS: usize = 11;
/// Events that an empty slot keeps memory for.
const KEPT_MAX: usize = 64;
/// Pieces of memory for more than [`KEPT_MAX`] events that wait for the next crowded slot. Each
/// slot has its great day in a long run; were all to keep what they needed then, the queue would
/// grow to hundreds of times what it holds.
const SPARES_MAX: usize = 8;

struct Level<T> {
    /// Bit i: whether slot i holds events.
    occupied: u64,
    slots: [Vec<(u64, T)>; SLOTS],
}

/// A queue of events ordered by time, then by insertion.
pub struct Wheel<T> {
    levels: Box<[Level<T>]>,
    /// Bit i: whether level i holds events.
    occupied: u32,
    /// Time of the last event taken; nothing may be scheduled before it.
    last: u64,
    /// Events already taken from the slot of `last` at level 0.
    head: usize,
    len: usize,
    /// Memory of slots that were crowded.
    spares: Vec<Vec<(u64, T)>>,
}

/// An empty queue at time zero.
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
    /// How many events wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Schedules an event. A time before that of the last event taken is taken as that.
    #[inline]
    pub fn push(&mut self, at: Time, event: T) {
        self.len += 1;
        self.place(at.as_nanos().max(self.last), event);
    }

    /// The time of the earliest event. Looks at the events of one slot, and takes none: what is
    /// scheduled afterwards may be earlier.
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
                // The only event of the lowest slot is the earliest of all.
                self.vacate(level_index, slot_index);
                self.last = time;
                return Some((Time::from_nanos(time), event));
            }
            self.spread_slot(level_index, slot_index);
        }
    }

    /// Takes the first event of the lowest slot of level 0: all its events have one time.
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

    /// Moves the events of a slot to the levels below, in order.
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

    /// Empties a slot, all of whose events have been taken.
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

    /// Keeps empty memory for the slot that it came from, or for another crowded one.
    fn keep(&mut self, level_index: usize, slot_index: usize, memory: Vec<(u64, T)>) {
        if memory.capacity() <= KEPT_MAX {
            self.levels[level_index].slots[slot_index] = memory;
        } else if self.spares.len() < SPARES_MAX {
            self.spares.push(memory);
        }
    }

    /// Events that there is memory for.
    #[cfg(test)]
    fn capacity(&self) -> usize {
        let slots = self.levels.iter().flat_map(|level| &level.slots);
        slots.chain(&self.spares).map(Vec::capacity).sum()
    }
}

/// Moves a slot that becomes crowded to memory that another one has left.
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
        // A thousand events that meet at one moment, over and over: each slot of each level is
        // crowded at some time.
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
        /// Against a sorted map, with pushes between the pops, as a simulation does.
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
