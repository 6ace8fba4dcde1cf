//! Fixed loop with the simulator's bottlenecks, to compare timings of different machines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Consecutive words of state that an event reads and changes: four cache lines.
const WORDS: usize = 32;

/// Handles `events` events of `machines` state machines with `state_bytes` of state each, in time
/// order. Returns a digest of all states, so that the compiler keeps the loop.
pub fn calibration(machines: u32, state_bytes: u32, events: u64) -> u64 {
    let places = (state_bytes as usize / (8 * WORDS)).max(1);
    let mut seed = 0;
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

    /// A changed digest makes the ratios of all earlier timings worthless.
    #[test]
    fn the_loop_stays_what_it_is() {
        let digests = [(1, 8), (10, 512), (100, 8192)].map(|(n, b)| calibration(n, b, 1000));
        let want = [646_526_038_865_171_672, 1_280_390_404_222_023_043, 9_866_043_730_608_961_559];
        assert_eq!(digests, want);
    }
}
