//! Round trips to heads, which measure distance where the time to live does not.

use alloc::collections::VecDeque;

use faircast_base::{Duration, NodeId, Time};

use super::SOLICIT_INTERVAL;
use crate::keep_last;

const REMEMBERED_MAX: usize = 32;

/// Upper bound of the first class; each further class is twice as long. Chosen: a LAN is one class.
const FIRST_CLASS: Duration = Duration::from_micros(500);

#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    requests: VecDeque<(Target, Time)>,
    pub(super) due: VecDeque<NodeId>,
    pub(super) next_probe_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Node(NodeId),
    Ring(u8),
}

impl RoundTrips {
    pub(super) fn on_solicit(&mut self, now: Time, ttl: u8) {
        self.remember(now, Target::Ring(ttl));
    }

    pub(super) fn probe(&mut self, now: Time, node: NodeId) {
        self.next_probe_at = now + SOLICIT_INTERVAL;
        self.remember(now, Target::Node(node));
        if self.due.len() < REMEMBERED_MAX {
            self.due.push_back(node);
        }
    }

    fn remember(&mut self, now: Time, asked: Target) {
        self.requests.retain(|(other, _)| *other != asked);
        keep_last(&mut self.requests, REMEMBERED_MAX, (asked, now));
    }

    /// Returns the class of the round trip of an answer, which repeats its request's time to live.
    pub(super) fn on_answer(&mut self, now: Time, node: NodeId, ttl: u8) -> Option<u8> {
        let at = |wanted| self.requests.iter().find(|(asked, _)| *asked == wanted).map(|it| it.1);
        // Requests to one head have the largest time to live.
        let alone = at(Target::Node(node)).filter(|_| ttl == u8::MAX);
        let requested_at = alone.or_else(|| at(Target::Ring(ttl)))?;
        Some(class(now.since(requested_at)))
    }
}

/// Returns the class of a round trip: 1 for the shortest, one more each time it doubles.
fn class(round_trip: Duration) -> u8 {
    let halves = round_trip.as_nanos() / FIRST_CLASS.as_nanos();
    1 + (u64::BITS - halves.leading_zeros()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{at, ms};

    #[test]
    fn classes_double() {
        for (micros, want) in
            [(0, 1), (499, 1), (500, 2), (999, 2), (1000, 3), (2000, 4), (250_000, 10)]
        {
            assert_eq!(class(Duration::from_micros(micros)), want, "{micros} us");
        }
        assert_eq!(class(Duration::MAX), 47, "it fits");
    }

    #[test]
    fn an_answer_is_measured_from_the_question_that_it_repeats() {
        let mut trips = RoundTrips::default();
        trips.on_solicit(at(0), 1);
        trips.on_solicit(at(500), 2);
        assert_eq!(trips.on_answer(at(503), NodeId(1), 2), Some(class(ms(3))));
        assert_eq!(trips.on_answer(at(503), NodeId(1), 1), Some(class(ms(503))));
        assert_eq!(trips.on_answer(at(503), NodeId(1), 3), None, "nobody was asked so");
        trips.probe(at(600), NodeId(7));
        assert_eq!(trips.next_probe_at, at(1100));
        assert_eq!((trips.due.pop_front(), trips.due.pop_front()), (Some(NodeId(7)), None));
        assert_eq!(trips.on_answer(at(640), NodeId(7), u8::MAX), Some(class(ms(40))));
        assert_eq!(trips.on_answer(at(640), NodeId(8), u8::MAX), None, "it was not asked");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut trips = RoundTrips::default();
        (0..1000).for_each(|node| trips.probe(at(1), NodeId(node)));
        assert_eq!((trips.requests.len(), trips.due.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }
}
