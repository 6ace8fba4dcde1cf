//! Wire format of TFMCC, byte by byte in docs/schemes/tfmcc.md. The RFC defines none.

use alloc::vec::Vec;

use faircast_base::NodeId;

use crate::congestion::Wire;
use crate::congestion::common::node::{address, node, words};
use crate::fields::Encoded;
use crate::pgm::wire::OptionType;

/// Length of the value on data, without the option's 4-byte header.
const ANNOUNCE_LEN: usize = 28;

const REPORT_LEN: usize = 20;

const IS_CLR: u8 = 1;
const HAVE_RTT: u8 = 1;
const HAVE_LOSS: u8 = 2;
const LEAVING: u8 = 4;
const ON_NAK: u8 = 8;

/// Announcement on each original data packet (src: RFC 4654 s2.2.1). deviates: timestamps in
/// microseconds, for LAN round trips, and rates as IEEE 754 numbers instead of 12 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TfmccAnnounce {
    /// Send time: microseconds of the sender's clock modulo 2^32 (ts_i).
    pub sent_us: u32,
    /// Echo of a report, if any.
    pub echo: Option<Echo>,
    /// Feedback round modulo 256 (fb_nr).
    pub round: u8,
    /// Largest round trip of any receiver, in microseconds (R_max).
    pub rtt_max_us: u32,
    /// Rate in bits per second above which receivers need not report (X_supp); `f32::MAX` for none.
    pub suppress_above: f32,
}

/// Echo of a receiver's timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Receiver that reported (r).
    pub receiver: NodeId,
    /// True if the receiver is the CLR.
    pub is_clr: bool,
    /// Timestamp as received (tr_r).
    pub stamp_us: u32,
    /// Holding time at the sender, in microseconds.
    pub held_us: u32,
}

/// Report of a receiver (src: RFC 4654 s2.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TfmccReport {
    /// Receiver that reports; `None` if the packet's source address identifies the receiver.
    pub receiver: Option<NodeId>,
    /// True if the round trip is measured; otherwise the receiver assumed R_max.
    pub have_rtt: bool,
    /// True after a loss; otherwise only the receive rate is known.
    pub have_loss: bool,
    /// True if the receiver leaves.
    pub leaving: bool,
    /// True if a NAK carries the report: its rate bypasses feedback rounds and does not count.
    pub on_nak: bool,
    /// Feedback round of the report, modulo 256.
    pub round: u8,
    /// Send time: microseconds of the receiver's clock modulo 2^32 (tr_r).
    pub sent_us: u32,
    /// Latest [`sent_us`](TfmccAnnounce::sent_us), plus its holding time in microseconds (ts_i').
    pub echo_us: u32,
    /// Acceptable rate in bits per second, with headers (X_r); valid if positive and finite.
    pub bits_per_s: f32,
}

impl Wire for TfmccAnnounce {
    const OPTION: u8 = OptionType::TFMCC_DATA;
    const BYTES_MAX: usize = ANNOUNCE_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        let echo = self.echo;
        let flags = if echo.is_some_and(|echo| echo.is_clr) { IS_CLR } else { 0 };
        let words = (
            [flags, self.round, 0, 0],
            self.sent_us,
            address(echo.map(|echo| echo.receiver)),
            echo.map_or(0, |echo| echo.stamp_us),
            echo.map_or(0, |echo| echo.held_us),
            self.rtt_max_us,
            self.suppress_above.to_bits(),
        );
        words.put(out);
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
        let flags = (u8::from(self.have_rtt) * HAVE_RTT)
            | (u8::from(self.have_loss) * HAVE_LOSS)
            | (u8::from(self.leaving) * LEAVING)
            | (u8::from(self.on_nak) * ON_NAK);
        let head = u32::from_be_bytes([flags, self.round, 0, 0]);
        let (rate, receiver) = (self.bits_per_s.to_bits(), address(self.receiver));
        (head, self.sent_us, self.echo_us, rate, receiver).put(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [head, sent_us, echo_us, rate, receiver] = words(bytes)?;
        let [flags, round, ..] = head.to_be_bytes();
        Some(Self {
            receiver: node(receiver),
            have_rtt: flags & HAVE_RTT != 0,
            have_loss: flags & HAVE_LOSS != 0,
            leaving: flags & LEAVING != 0,
            on_nak: flags & ON_NAK != 0,
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
            round: 255,
            sent_us: 1,
            echo_us: 2,
            bits_per_s: 1.5e6,
            ..TfmccReport::default()
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
