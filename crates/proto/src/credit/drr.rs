//! Deficit round robin between the flows that are queued at a port (src: drr).

use alloc::collections::VecDeque;

/// Quantum of a flow per round, in bytes: a packet of usual size.
const QUANTUM: u32 = 1500;

#[derive(Debug)]
pub(super) struct RoundRobin<K> {
    ring: VecDeque<(K, u32)>,
    begun: bool,
}

impl<K> Default for RoundRobin<K> {
    fn default() -> Self {
        Self { ring: VecDeque::new(), begun: false }
    }
}

impl<K: Copy + PartialEq> RoundRobin<K> {
    pub(super) fn join(&mut self, flow: K) {
        if !self.ring.iter().any(|(known, _)| *known == flow) {
            self.ring.push_back((flow, 0));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns the flow that sends now. `bytes` gives a flow's next length; without one, it leaves.
    pub(super) fn next(&mut self, mut bytes: impl FnMut(K) -> Option<u32>) -> Option<K> {
        while let Some((flow, left)) = self.ring.front_mut() {
            let flow = *flow;
            let Some(bytes) = bytes(flow) else {
                self.ring.pop_front();
                self.begun = false;
                continue;
            };
            if !core::mem::replace(&mut self.begun, true) {
                *left = left.saturating_add(QUANTUM);
            }
            if *left >= bytes {
                *left -= bytes;
                return Some(flow);
            }
            self.ring.rotate_left(1);
            self.begun = false;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn flows_that_wait_send_as_many_bytes_whatever_their_packets_are() {
        let mut turns = RoundRobin::default();
        let lens = [1500, 500, 9000];
        (0..3).for_each(|flow| turns.join(flow));
        let mut sent = [0u32; 3];
        for _ in 0..6000 {
            let flow: usize = turns.next(|flow: usize| Some(lens[flow])).unwrap();
            sent[flow] += lens[flow];
        }
        let [least, most] = [sent.iter().min().unwrap(), sent.iter().max().unwrap()];
        assert!(most - least <= 9000, "{sent:?}");
    }

    #[test]
    fn who_has_nothing_to_send_leaves() {
        let mut turns = RoundRobin::default();
        [1, 2, 1].into_iter().for_each(|flow| turns.join(flow));
        let order: Vec<_> = core::iter::from_fn(|| turns.next(|flow| (flow == 2).then_some(1500)))
            .take(3)
            .collect();
        assert_eq!(order, [2, 2, 2]);
        assert_eq!(turns.next(|_| None), None);
        assert_eq!(turns.next(|_: i32| Some(1)), None, "both have left");
    }
}
