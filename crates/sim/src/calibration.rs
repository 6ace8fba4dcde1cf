//! A fixed loop that is bound as the simulator is, by which timings of different machines compare.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Words of a machine's state that an event reads and changes, one beside the other: four lines of memory.
const WORDS: usize = 32;

/// Handles so many events of state machines with so many bytes of state each, in order of time. Gives a
/// digest of all states, without which a compiler could leave them out.
///
/// It has what bounds the simulator, a queue of events and state that is more than caches hold where a
/// group is large, and none of its code: whatever is done to the simulator, this stays.
pub fn calibration(machines: u32, state_bytes: u32, events: u64) -> u64 {
    let places = (state_bytes as usize / (8 * WORDS)).max(1);
    let mut seed = 0;
    // SplitMix64, written out: whatever becomes of the simulator's random numbers, these stay.
    let mut random = move || {
        seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_add(seed);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut states: Vec<Vec<u64>> =
        (0..machines).map(|_| (0..places * WORDS).map(|_| random()).collect()).collect();
    let mut queue: BinaryHeap<_> =
        (0..machines).map(|machine| Reverse((random() >> 44, machine))).collect();
    let mut digest = 0_u64;
    for _ in 0..events {
        let Some(Reverse((at, machine))) = queue.pop() else { break };
        let state = &mut states[machine as usize];
        let place = random() as usize % places * WORDS;
        for word in &mut state[place..place + WORDS] {
            *word = word.rotate_left(7) ^ at;
            digest = digest.rotate_left(1).wrapping_add(*word);
        }
        queue.push(Reverse((at + (random() >> 44), machine)));
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::calibration;

    /// A change here makes the ratios of all earlier timings worthless.
    #[test]
    fn the_loop_stays_what_it_is() {
        let digests = [(1, 8), (10, 512), (100, 8192)].map(|(n, b)| calibration(n, b, 1000));
        let want = [646_526_038_865_171_672, 1_280_390_404_222_023_043, 9_866_043_730_608_961_559];
        assert_eq!(digests, want);
    }
}
