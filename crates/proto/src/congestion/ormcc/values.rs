//! What ORMCC puts on the wire: an option on data and one on reports, byte by byte in
//! docs/schemes/ormcc.md. The paper has no format.

use alloc::vec::Vec;

use faircast_base::NodeId;

use super::config::Feedback;
use crate::congestion::Wire;
use crate::congestion::common::node::{address, node, word};
use crate::pgm::wire::OptionType;

/// Bytes of the announcement's value, behind the option's header of 4 bytes.
const ANNOUNCE_LEN: usize = 20;

/// Bytes of the report's value.
const REPORT_LEN: usize = 16;

/// Rates above this, in bytes per second, are no rates: a thousand times the fastest interface.
pub(super) const RATE_MAX: f64 = 1e14;

const ALIVE: u8 = 0x02;
const MODE_SHIFT: u8 = 4;
const CONGESTION: u8 = 0x01;
const MEASURED: u8 = 0x02;

/// What rides on each original data packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrmccAnnounce {
    /// When the packet left: microseconds of the sender's clock modulo 2^32.
    pub sent_us: u32,
    /// The sender's smoothed round trip in microseconds; 0 while it has none.
    pub rtt_us: u32,
    /// The congestion representative; `None` calls for one.
    pub representative: Option<NodeId>,
    /// The average of the rates that the representative told, in bytes per second: receivers below it may
    /// report. `None` where it holds nobody back.
    pub rate: Option<f32>,
    /// Who may report, and how often.
    pub feedback: Feedback,
    /// Whether the representative is to show that it is alive though it loses nothing.
    pub alive: bool,
    /// Pauses of the source so far, modulo 2^8. Where it differs from that of an earlier packet, the
    /// time between the two tells nothing of the network.
    pub pauses: u8,
}

/// What a receiver tells: a congestion indication, or that it is alive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrmccReport {
    /// The timestamp of the latest packet, plus the microseconds for which the receiver held it.
    pub echo_us: u32,
    /// The rate at which packets come out of the network, in bytes of payload per second; `None` before
    /// it could be measured.
    pub rate: Option<f32>,
    /// Who reports; `None` where the address stands for nobody, and the network's word must do.
    pub receiver: Option<NodeId>,
    /// Whether a loss was found with the latest packet.
    pub congestion: bool,
}

impl Wire for OrmccAnnounce {
    const OPTION: u8 = OptionType::ORMCC_DATA;
    const BYTES_MAX: usize = ANNOUNCE_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sent_us.to_be_bytes());
        out.extend_from_slice(&self.rtt_us.to_be_bytes());
        out.extend_from_slice(&address(self.representative).to_be_bytes());
        out.extend_from_slice(&self.rate.unwrap_or(0.0).to_bits().to_be_bytes());
        let mode = match self.feedback {
            Feedback::Ci => 0,
            Feedback::CiPerRtt => 1,
            Feedback::Trac => 2,
        };
        let alive = if self.alive { ALIVE } else { 0 };
        out.extend_from_slice(&[alive | (mode << MODE_SHIFT), self.pauses, 0, 0]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ANNOUNCE_LEN] = bytes.try_into().ok()?;
        let flags = bytes[16];
        if flags & 0x0d != 0 {
            return None;
        }
        let feedback = match flags >> MODE_SHIFT {
            0 => Feedback::Ci,
            1 => Feedback::CiPerRtt,
            2 => Feedback::Trac,
            _ => return None,
        };
        Some(Self {
            sent_us: word(bytes, 0),
            rtt_us: word(bytes, 4),
            representative: node(word(bytes, 8)),
            rate: match word(bytes, 12) {
                0 => None,
                bits => Some(rate(bits)?),
            },
            feedback,
            alive: flags & ALIVE != 0,
            pauses: bytes[17],
        })
    }
}

impl Wire for OrmccReport {
    const OPTION: u8 = OptionType::ORMCC_FEEDBACK;
    const BYTES_MAX: usize = REPORT_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.echo_us.to_be_bytes());
        out.extend_from_slice(&self.rate.unwrap_or(0.0).to_bits().to_be_bytes());
        out.extend_from_slice(&address(self.receiver).to_be_bytes());
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.congestion, CONGESTION) | flag(self.rate.is_some(), MEASURED);
        out.extend_from_slice(&[flags, 0, 0, 0]);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPORT_LEN] = bytes.try_into().ok()?;
        let flags = bytes[12];
        if flags & !(CONGESTION | MEASURED) != 0 {
            return None;
        }
        let rate = match (flags & MEASURED != 0, word(bytes, 4)) {
            (false, 0) => None,
            (false, _) => return None,
            (true, bits) => Some(rate(bits)?),
        };
        Some(Self {
            echo_us: word(bytes, 0),
            rate,
            receiver: node(word(bytes, 8)),
            congestion: flags & CONGESTION != 0,
        })
    }
}

/// A rate from its bits; none where it is no positive number or beyond all networks.
fn rate(bits: u32) -> Option<f32> {
    let rate = f32::from_bits(bits);
    (rate.is_normal() && rate > 0.0 && f64::from(rate) <= RATE_MAX).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded<T: Wire>(value: T) -> Vec<u8> {
        let mut out = Vec::new();
        value.encode(&mut out);
        out
    }

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
        assert_eq!(encoded(ANNOUNCE), want);
        let report = OrmccReport {
            echo_us: 0x0102_0304,
            rate: Some(125_000.0),
            receiver: Some(NodeId(0x0a4d_0003)),
            congestion: true,
        };
        let want = [1, 2, 3, 4, 0x47, 0xf4, 0x24, 0, 0x0a, 0x4d, 0, 3, 3, 0, 0, 0];
        assert_eq!(encoded(report), want);
        let bare = OrmccReport { echo_us: 7, rate: None, receiver: None, congestion: false };
        assert_eq!(encoded(bare), [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, -0.0, 1e-40, 1e15] {
            let report =
                OrmccReport { echo_us: 1, rate: Some(bad), receiver: None, congestion: true };
            assert_eq!(OrmccReport::decode(&encoded(report)), None, "{bad}");
            let announce = OrmccAnnounce { rate: Some(bad), ..ANNOUNCE };
            let got = OrmccAnnounce::decode(&encoded(announce));
            // Zero bits are how an announcement says that there is none.
            let none = (bad.to_bits() == 0).then_some(OrmccAnnounce { rate: None, ..ANNOUNCE });
            assert_eq!(got, none, "{bad}");
        }
        let mut unmeasured =
            encoded(OrmccReport { echo_us: 1, rate: None, receiver: None, congestion: true });
        unmeasured[5] = 1;
        assert_eq!(OrmccReport::decode(&unmeasured), None, "a rate that was not measured");
    }

    #[test]
    fn node_zero_is_not_nobody_and_unknown_flags_are_refused() {
        for node in [None, Some(NodeId(0)), Some(NodeId(1)), Some(NodeId(77))] {
            let announce = OrmccAnnounce { representative: node, ..ANNOUNCE };
            assert_eq!(OrmccAnnounce::decode(&encoded(announce)), Some(announce));
        }
        for flags in [0x01, 0x04, 0x08, 0x30, 0xf0] {
            let mut bytes = encoded(ANNOUNCE);
            bytes[16] = flags;
            assert_eq!(OrmccAnnounce::decode(&bytes), None, "{flags:#x}");
        }
        assert!(OrmccAnnounce::decode(&encoded(ANNOUNCE)[..19]).is_none());
        assert!(OrmccReport::decode(&[0; 17]).is_none());
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..24)
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_and_nothing_panics(bytes in bytes()) {
            if let Some(value) = OrmccAnnounce::decode(&bytes) {
                prop_assert_eq!(OrmccAnnounce::decode(&encoded(value)), Some(value));
            }
            if let Some(value) = OrmccReport::decode(&bytes) {
                prop_assert!(value.rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()));
                prop_assert_eq!(OrmccReport::decode(&encoded(value)), Some(value));
            }
        }

        #[test]
        fn values_come_back_as_they_went(
            words in any::<[u32; 3]>(), rate in 1e-3f32..1e13, mode in 0usize..3, bits in 0u8..16,
            pauses: u8,
        ) {
            let on = |bit: u8| bits & bit != 0;
            let feedback = [Feedback::Ci, Feedback::CiPerRtt, Feedback::Trac][mode];
            let announce = OrmccAnnounce {
                sent_us: words[0],
                rtt_us: words[1],
                representative: node(words[2]),
                rate: on(1).then_some(rate),
                feedback,
                alive: on(2),
                pauses,
            };
            prop_assert_eq!(OrmccAnnounce::decode(&encoded(announce)), Some(announce));
            let report = OrmccReport {
                echo_us: words[0],
                rate: on(1).then_some(rate),
                receiver: node(words[2]),
                congestion: on(8),
            };
            prop_assert_eq!(OrmccReport::decode(&encoded(report)), Some(report));
        }
    }
}
