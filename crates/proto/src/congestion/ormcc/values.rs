//! Wire format of ORMCC, byte by byte in docs/schemes/ormcc.md. The paper defines none.

use alloc::vec::Vec;

use faircast_base::NodeId;

use super::config::Feedback;
use crate::congestion::Wire;
use crate::congestion::common::node::{address, node, words};
use crate::fields::Encoded;
use crate::pgm::wire::OptionType;

const ANNOUNCE_LEN: usize = 20;

const REPORT_LEN: usize = 16;

/// Maximum valid rate in bytes per second: a thousand times the fastest interface.
pub(super) const RATE_MAX: f64 = 1e14;

const ALIVE: u8 = 0x02;
const MODE_SHIFT: u8 = 4;
const CONGESTION: u8 = 0x01;
const MEASURED: u8 = 0x02;
const WITHDRAWS: u8 = 0x04;

/// Announcement on each original data packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrmccAnnounce {
    /// Send time: microseconds of the sender's clock modulo 2^32.
    pub sent_us: u32,
    /// Sender's smoothed round trip in microseconds; 0 before a sample.
    pub rtt_us: u32,
    /// Congestion representative; `None` calls for one.
    pub representative: Option<NodeId>,
    /// Representative's average rate in bytes per second: slower ones may report. `None`: all may.
    pub rate: Option<f32>,
    /// Rule of which receivers may report, and how often.
    pub feedback: Feedback,
    /// True if the representative must send keep-alives without losses too.
    pub alive: bool,
    /// Number of the source's pauses, modulo 2^8. Time across a pause does not measure the network.
    pub pauses: u8,
}

/// Report of a receiver: a congestion indication or a keep-alive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OrmccReport {
    /// Timestamp of the latest packet, plus its holding time in microseconds.
    pub echo_us: u32,
    /// Output rate in payload bytes per second; `None` before a measurement.
    pub rate: Option<f32>,
    /// Receiver that reports; `None` if the packet's source address identifies the receiver.
    pub receiver: Option<NodeId>,
    /// True if the latest packet showed a loss.
    pub congestion: bool,
    /// True if all packets of the last indication came late.
    pub withdraws: bool,
}

impl Wire for OrmccAnnounce {
    const OPTION: u8 = OptionType::ORMCC_DATA;
    const BYTES_MAX: usize = ANNOUNCE_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        let flags = (u8::from(self.alive) * ALIVE) | ((self.feedback as u8) << MODE_SHIFT);
        let tail = u32::from_be_bytes([flags, self.pauses, 0, 0]);
        let (representative, rate) = (address(self.representative), bits(self.rate));
        (self.sent_us, self.rtt_us, representative, rate, tail).put(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [sent_us, rtt_us, representative, rate, tail] = words(bytes)?;
        let [flags, pauses, ..] = tail.to_be_bytes();
        if flags & 0x0d != 0 {
            return None;
        }
        Some(Self {
            sent_us,
            rtt_us,
            representative: node(representative),
            rate: decode_rate(rate)?,
            feedback: *Feedback::ALL.get(usize::from(flags >> MODE_SHIFT))?,
            alive: flags & ALIVE != 0,
            pauses,
        })
    }
}

impl Wire for OrmccReport {
    const OPTION: u8 = OptionType::ORMCC_FEEDBACK;
    const BYTES_MAX: usize = REPORT_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        let flags = (u8::from(self.congestion) * CONGESTION)
            | (u8::from(self.rate.is_some()) * MEASURED)
            | (u8::from(self.withdraws) * WITHDRAWS);
        let tail = u32::from_be_bytes([flags, 0, 0, 0]);
        (self.echo_us, bits(self.rate), address(self.receiver), tail).put(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [echo_us, rate, receiver, tail] = words(bytes)?;
        let [flags, ..] = tail.to_be_bytes();
        let [congestion, measured, withdraws] =
            [CONGESTION, MEASURED, WITHDRAWS].map(|flag| flags & flag != 0);
        let unknown = flags & !(CONGESTION | MEASURED | WITHDRAWS) != 0;
        if unknown || congestion && withdraws || measured != (rate != 0) {
            return None;
        }
        let (rate, receiver) = (decode_rate(rate)?, node(receiver));
        Some(Self { echo_us, rate, receiver, congestion, withdraws })
    }
}

fn bits(rate: Option<f32>) -> u32 {
    rate.unwrap_or(0.0).to_bits()
}

/// Decodes a rate; `Some(None)` for no rate, `None` for an invalid one.
fn decode_rate(bits: u32) -> Option<Option<f32>> {
    let rate = f32::from_bits(bits);
    let sound = rate.is_normal() && rate > 0.0 && f64::from(rate) <= RATE_MAX;
    (sound || bits == 0).then_some(Some(rate).filter(|_| sound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{check_wire, encoded};

    const ANNOUNCE: OrmccAnnounce = OrmccAnnounce {
        sent_us: 0x0102_0304,
        rtt_us: 40_000,
        representative: Some(NodeId(0x0a4d_0003)),
        rate: Some(125_000.0),
        feedback: Feedback::Trac,
        alive: true,
        pauses: 9,
    };

    #[test]
    fn values_have_the_documented_bytes() {
        let want =
            [1, 2, 3, 4, 0, 0, 0x9c, 0x40, 0x0a, 0x4d, 0, 3, 0x47, 0xf4, 0x24, 0, 0x22, 9, 0, 0];
        assert_eq!(encoded(&ANNOUNCE), want);
        let report = OrmccReport {
            echo_us: 0x0102_0304,
            rate: Some(125_000.0),
            receiver: Some(NodeId(0x0a4d_0003)),
            congestion: true,
            withdraws: false,
        };
        let want = [1, 2, 3, 4, 0x47, 0xf4, 0x24, 0, 0x0a, 0x4d, 0, 3, 3, 0, 0, 0];
        assert_eq!(encoded(&report), want);
        let bare = OrmccReport { echo_us: 7, ..OrmccReport::default() };
        assert_eq!(encoded(&bare), [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, -0.0, 1e-40, 1e15] {
            let report =
                OrmccReport { rate: Some(bad), congestion: true, ..OrmccReport::default() };
            assert_eq!(OrmccReport::decode(&encoded(&report)), None, "{bad}");
            let announce = OrmccAnnounce { rate: Some(bad), ..ANNOUNCE };
            let got = OrmccAnnounce::decode(&encoded(&announce));
            let none = (bad.to_bits() == 0).then_some(OrmccAnnounce { rate: None, ..ANNOUNCE });
            assert_eq!(got, none, "{bad}");
        }
        let mut unmeasured = encoded(&OrmccReport { congestion: true, ..OrmccReport::default() });
        unmeasured[5] = 1;
        assert_eq!(OrmccReport::decode(&unmeasured), None, "a rate that was not measured");
    }

    #[test]
    fn unknown_flags_are_refused() {
        for flags in [0x01, 0x04, 0x08, 0x30, 0xf0] {
            let mut bytes = encoded(&ANNOUNCE);
            bytes[16] = flags;
            assert_eq!(OrmccAnnounce::decode(&bytes), None, "{flags:#x}");
        }
    }

    #[test]
    fn values_come_back_as_they_went() {
        let nodes = [None, Some(NodeId(0)), Some(NodeId(1)), Some(NodeId(77))];
        for (i, &feedback) in Feedback::ALL.iter().cycle().enumerate().take(48) {
            let (node, alive) = (nodes[i % 4], i & 4 == 0);
            let rate = [None, Some(1e-3), Some(125_000.0), Some(1e13)][i / 12];
            let announce = OrmccAnnounce { representative: node, rate, alive, ..ANNOUNCE };
            check_wire(&OrmccAnnounce { feedback, pauses: i as u8, ..announce });
            let report = OrmccReport { echo_us: 7, rate, receiver: node, ..OrmccReport::default() };
            check_wire(&OrmccReport { congestion: alive, ..report });
        }
    }
}
