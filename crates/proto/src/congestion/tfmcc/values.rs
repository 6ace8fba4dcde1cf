//! Wire format of TFMCC. The RFC fixes no format; this one is described byte by byte in
//! docs/schemes/tfmcc.md.

use alloc::vec::Vec;

use faircast_base::NodeId;

use crate::congestion::Wire;
use crate::congestion::common::node::{address, node, put_words, words};
use crate::pgm::wire::OptionType;

/// Bytes of the value on data, behind the option's header of 4 bytes.
const ANNOUNCE_LEN: usize = 28;

const REPORT_LEN: usize = 20;

const IS_CLR: u8 = 1;
const HAVE_RTT: u8 = 1;
const HAVE_LOSS: u8 = 2;
const LEAVING: u8 = 4;
const RIDES: u8 = 8;

/// Announcement on each original data packet (src: RFC 4654 s2.2.1).
///
/// deviates: timestamps count microseconds and not milliseconds, so that round trips on LANs are
/// seen, and rates are IEEE 754 numbers and not the RFC's 12 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TfmccAnnounce {
    /// When the packet left: microseconds of the sender's clock modulo 2^32 (ts_i).
    pub sent_us: u32,
    /// Echo of a report; `None` if there is none.
    pub echo: Option<Echo>,
    /// Number of the feedback round modulo 256 (fb_nr).
    pub round: u8,
    /// The largest round trip of any receiver in microseconds (R_max).
    pub rtt_max_us: u32,
    /// Receivers whose rate is above this many bits per second need not report (X_supp); positive
    /// and finite, the largest number for none.
    pub suppress_above: f32,
}

/// A receiver's own timestamp, on its way back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Receiver that reported (r).
    pub receiver: NodeId,
    /// Whether that one is the CLR.
    pub is_clr: bool,
    /// The timestamp as it came (tr_r).
    pub stamp_us: u32,
    /// For how long the sender held it, in microseconds.
    pub held_us: u32,
}

/// Report of a receiver (src: RFC 4654 s2.2.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TfmccReport {
    /// Receiver that reports; `None` if the address names none, so that the network's address counts.
    pub receiver: Option<NodeId>,
    /// Whether it has measured its round trip, or took R_max for it.
    pub have_rtt: bool,
    /// Whether it has had a loss, or knows its receive rate alone.
    pub have_loss: bool,
    /// Whether it leaves.
    pub leaving: bool,
    /// Whether it rides on a NAK, for the round trip alone: its rate does not count, or whoever loses
    /// would be heard without regard to feedback rounds.
    pub rides: bool,
    /// The feedback round that it answers, modulo 256.
    pub round: u8,
    /// When the report left: microseconds of the receiver's clock modulo 2^32 (tr_r).
    pub sent_us: u32,
    /// The latest [`sent_us`](TfmccAnnounce::sent_us) that it saw, plus the microseconds for which
    /// it held it (ts_i').
    pub echo_us: u32,
    /// The rate that it could take in bits per second, headers counted (X_r). Any 32 bits can come:
    /// the sender refuses what is no positive number.
    pub bits_per_s: f32,
}

impl Wire for TfmccAnnounce {
    const OPTION: u8 = OptionType::TFMCC_DATA;
    const BYTES_MAX: usize = ANNOUNCE_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        let echo = self.echo;
        let flags = if echo.is_some_and(|echo| echo.is_clr) { IS_CLR } else { 0 };
        let words = [
            u32::from_be_bytes([flags, self.round, 0, 0]),
            self.sent_us,
            address(echo.map(|echo| echo.receiver)),
            echo.map_or(0, |echo| echo.stamp_us),
            echo.map_or(0, |echo| echo.held_us),
            self.rtt_max_us,
            self.suppress_above.to_bits(),
        ];
        put_words(out, words);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [head, sent_us, receiver, stamp_us, held_us, rtt_max_us, limit] = words(bytes)?;
        let [flags, round, ..] = head.to_be_bytes();
        let is_clr = flags & IS_CLR != 0;
        let echo = node(receiver).map(|receiver| Echo { receiver, is_clr, stamp_us, held_us });
        let suppress_above = f32::from_bits(limit);
        let sound = suppress_above.is_finite() && suppress_above > 0.0 && rtt_max_us > 0;
        sound.then_some(Self { sent_us, echo, round, rtt_max_us, suppress_above })
    }
}

impl Wire for TfmccReport {
    const OPTION: u8 = OptionType::TFMCC_FEEDBACK;
    const BYTES_MAX: usize = REPORT_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.have_rtt, HAVE_RTT)
            | flag(self.have_loss, HAVE_LOSS)
            | flag(self.leaving, LEAVING)
            | flag(self.rides, RIDES);
        let head = u32::from_be_bytes([flags, self.round, 0, 0]);
        let (rate, receiver) = (self.bits_per_s.to_bits(), address(self.receiver));
        put_words(out, [head, self.sent_us, self.echo_us, rate, receiver]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [head, sent_us, echo_us, rate, receiver] = words(bytes)?;
        let [flags, round, ..] = head.to_be_bytes();
        Some(Self {
            receiver: node(receiver),
            have_rtt: flags & HAVE_RTT != 0,
            have_loss: flags & HAVE_LOSS != 0,
            leaving: flags & LEAVING != 0,
            rides: flags & RIDES != 0,
            round,
            sent_us,
            echo_us,
            bits_per_s: f32::from_bits(rate),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{check_wire, encoded};

    #[test]
    fn values_have_the_bytes_of_the_page() {
        let announce = TfmccAnnounce {
            sent_us: 0x0102_0304,
            echo: Some(Echo {
                receiver: NodeId(0x0a4d_0003),
                is_clr: true,
                stamp_us: 0x1112_1314,
                held_us: 500,
            }),
            round: 7,
            rtt_max_us: 500_000,
            suppress_above: 1.5e6,
        };
        let bytes = [
            [1, 7, 0, 0],
            [1, 2, 3, 4],
            [0x0a, 0x4d, 0, 3],
            [0x11, 0x12, 0x13, 0x14],
            [0, 0, 1, 0xf4],
            [0, 7, 0xa1, 0x20],
            [0x49, 0xb7, 0x1b, 0],
        ];
        assert_eq!(encoded(&announce), bytes.concat());
        let report = TfmccReport {
            receiver: Some(NodeId(0)),
            have_rtt: true,
            have_loss: true,
            leaving: false,
            rides: false,
            round: 255,
            sent_us: 1,
            echo_us: 2,
            bits_per_s: 1.5e6,
        };
        let bytes = [[3, 255, 0, 0], [0, 0, 0, 1], [0, 0, 0, 2], [0x49, 0xb7, 0x1b, 0], [255; 4]];
        assert_eq!(encoded(&report), bytes.concat());
    }

    #[test]
    fn what_is_no_header_of_data_is_refused() {
        let good = TfmccAnnounce {
            sent_us: 1,
            echo: None,
            round: 1,
            rtt_max_us: 1,
            suppress_above: f32::MAX,
        };
        check_wire(&good);
        let good = encoded(&good);
        for rate in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let bytes = [&good[..24], &rate.to_bits().to_be_bytes()].concat();
            assert!(TfmccAnnounce::decode(&bytes).is_none(), "{rate}");
        }
        assert!(TfmccAnnounce::decode(&[&good[..20], &[0; 4], &good[24..]].concat()).is_none());
    }

    #[test]
    fn every_flag_and_number_of_a_report_comes_back() {
        for flags in 0..=255 {
            let bytes: Vec<u8> = [flags].into_iter().chain(200..219).collect();
            let report = TfmccReport::decode(&bytes).expect("any 20 bytes are one");
            check_wire(&report);
            let again = encoded(&report);
            assert_eq!((again[0], again[1], &again[4..]), (flags & 15, 200, &bytes[4..]));
        }
    }
}
