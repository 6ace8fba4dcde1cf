//! Acknowledgements of packets too late for the bitmap of the highest packet. Each ends with the
//! late packet, as a SACK's first block names its cause (src: RFC 2018 s4).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use faircast_base::Seq;

use super::AckVector;
use crate::keep_last;

/// Most late packets in the queue. The oldest is dropped, and the sender counts it as lost.
const WAITING_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct LateAcks {
    waiting: VecDeque<Seq>,
    /// True if the latest packet received is the last of `waiting`.
    is_latest: bool,
    /// Report of the acknowledgements to come; empty if none is due.
    report: Vec<u8>,
}

impl LateAcks {
    /// Notes a packet that lies `behind` packets before the highest one.
    pub(crate) fn note(&mut self, seq: Seq, behind: u64) {
        self.is_latest = behind >= AckVector::PACKETS;
        if self.is_latest {
            keep_last(&mut self.waiting, WAITING_MAX, seq);
        }
    }

    /// Returns the body of an acknowledgement for a late packet; others: [`next`](Self::next).
    pub(crate) fn replace(&mut self, report: &[u8]) -> Option<AckVector> {
        let is_caused = core::mem::take(&mut self.is_latest);
        let late = if is_caused { self.waiting.pop_back() } else { None };
        if !self.waiting.is_empty() {
            self.report = report.to_vec();
        }
        late.map(alone)
    }

    pub(crate) fn next(&mut self) -> Option<(AckVector, Vec<u8>)> {
        if self.report.is_empty() {
            return None;
        }
        let late = self.waiting.pop_front();
        let last = self.waiting.is_empty();
        let report = if last { core::mem::take(&mut self.report) } else { self.report.clone() };
        Some((alone(late?), report))
    }
}

fn alone(seq: Seq) -> AckVector {
    AckVector { highest: seq, bitmap: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_packet_is_acknowledged_by_name() {
        let seq = Seq::new;
        let mut acks = LateAcks::default();
        acks.note(seq(100), 0);
        assert_eq!(acks.replace(b"r"), None);
        acks.note(seq(90), 10);
        assert_eq!(acks.replace(b"r"), None, "the bitmap shows it");
        acks.note(seq(60), 40);
        assert_eq!(acks.replace(b"r"), Some(alone(seq(60))));
        assert_eq!((acks.next(), acks.replace(b"r")), (None, None));
        acks.note(seq(61), 40);
        acks.note(seq(62), 40);
        acks.note(seq(103), 0);
        assert_eq!(
            (acks.replace(b"r"), acks.next()),
            (None, Some((alone(seq(61)), b"r".to_vec())))
        );
        assert_eq!((acks.next(), acks.next()), (Some((alone(seq(62)), b"r".to_vec())), None));
        (0..200).for_each(|n| acks.note(seq(n), 40));
        assert_eq!(acks.waiting.len(), WAITING_MAX);
    }
}
