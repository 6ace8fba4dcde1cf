//! Wire format of pgmcc: values of two options defined by OpenPGM.

use alloc::vec::Vec;

use faircast_base::NodeId;

use crate::congestion::Wire;
use crate::congestion::common::node::{address, node, words};
use crate::fields::Encoded;
use crate::pgm::wire::OptionType;

/// Length of either value with IPv4 addresses, without the option's 4-byte header.
const VALUE_LEN: usize = 12;

/// Address family of IPv4 (src: RFC 3208 s8).
const AFI_IPV4: u32 = 1;

/// Announcement on each original data packet (src: openpgm, option PGMCC_DATA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgmccAnnounce {
    /// Send time: milliseconds of the sender's clock modulo 2^32.
    pub sent_ms: u32,
    /// Acker of the packet; `None` calls for an election.
    pub acker: Option<NodeId>,
}

/// Report on acknowledgements, positive and negative (src: openpgm, option PGMCC_FEEDBACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgmccReport {
    /// Latest [`sent_ms`](PgmccAnnounce::sent_ms) received, plus its holding time in milliseconds.
    pub echo_ms: u32,
    /// Smoothed loss: 0 for none, 65535 for all.
    pub loss: u16,
    /// Receiver that reports; `None` if the packet's source address identifies the receiver.
    pub receiver: Option<NodeId>,
}

impl Wire for PgmccAnnounce {
    const OPTION: u8 = OptionType::PGMCC_DATA;
    const BYTES_MAX: usize = VALUE_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        (self.sent_ms, AFI_IPV4 << 16, address(self.acker)).put(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [sent_ms, family, acker] = words(bytes)?;
        (family >> 16 == AFI_IPV4).then(|| Self { sent_ms, acker: node(acker) })
    }
}

impl Wire for PgmccReport {
    const OPTION: u8 = OptionType::PGMCC_FEEDBACK;
    const BYTES_MAX: usize = VALUE_LEN;

    fn encode(&self, out: &mut Vec<u8>) {
        let middle = AFI_IPV4 << 16 | u32::from(self.loss);
        (self.echo_ms, middle, address(self.receiver)).put(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [echo_ms, middle, receiver] = words(bytes)?;
        let loss = middle as u16;
        (middle >> 16 == AFI_IPV4).then(|| Self { echo_ms, loss, receiver: node(receiver) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::common::bench::{check_wire, encoded};

    #[test]
    fn values_have_the_bytes_of_openpgm() {
        // Option values of the fact sheet's packets: acker 10.77.0.3, and its report of 1 % loss.
        let acker = NodeId(0x0a4d_0003);
        let announce = PgmccAnnounce { sent_ms: 101_402, acker: Some(acker) };
        assert_eq!(encoded(&announce), [0, 1, 0x8c, 0x1a, 0, 1, 0, 0, 0x0a, 0x4d, 0, 3]);
        let report = PgmccReport { echo_ms: 101_463, loss: 655, receiver: Some(acker) };
        assert_eq!(encoded(&report), [0, 1, 0x8c, 0x57, 0, 1, 2, 0x8f, 0x0a, 0x4d, 0, 3]);
        let nobody = PgmccAnnounce { sent_ms: 7, acker: None };
        assert_eq!(encoded(&nobody), [0, 0, 0, 7, 0, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn every_value_comes_back_as_it_was() {
        for node in [None, Some(NodeId(0)), Some(NodeId(1)), Some(NodeId(0x0a4d_0003))] {
            check_wire(&PgmccAnnounce { sent_ms: 1, acker: node });
            check_wire(&PgmccReport { echo_ms: 1, loss: 65535, receiver: node });
        }
        assert!(PgmccReport::decode(&[0; 12]).is_none(), "another family");
    }
}
