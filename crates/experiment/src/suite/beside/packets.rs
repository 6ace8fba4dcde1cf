//! Congestion control in the packets of each program: who reports, and whom the sender takes
//! for the receiver that limits it.
//!
//! Formats: UFTP's protocol.txt and uftp.h, RFC 5740 and NORM's normMessage.h, docs/schemes/tfmcc.md.

use faircast_proto::congestion::Wire;
use faircast_proto::congestion::tfmcc::{TfmccAnnounce, TfmccReport};
use faircast_proto::pgm::wire::{Body, Packet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    Faircast,
    Uftp,
    Norm,
}

/// What a packet is to congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// It carries content.
    pub(super) data: bool,
    /// It is there to tell the rate of this receiver, by the number that it has for its program.
    pub(super) report: Option<u32>,
    /// The limiting receiver as the sender names it, by the same number.
    pub(super) limiting: Option<u32>,
}

impl Speaker {
    /// Reads a datagram. What is no packet of this program says nothing.
    pub(super) fn read(self, bytes: &[u8]) -> Said {
        match self {
            Self::Faircast => faircast(bytes),
            Self::Uftp => uftp(bytes).unwrap_or_default(),
            Self::Norm => norm(bytes).unwrap_or_default(),
        }
    }
}

fn faircast(bytes: &[u8]) -> Said {
    let Ok(packet) = Packet::decode(bytes, 0) else { return Said::default() };
    let value = |kind| packet.options.find(kind).map(|option| option.value);
    let announce = value(TfmccAnnounce::OPTION).and_then(TfmccAnnounce::decode);
    let report = value(TfmccReport::OPTION).and_then(TfmccReport::decode);
    let echo = announce.and_then(|announce| announce.echo).filter(|echo| echo.is_clr);
    Said {
        data: matches!(packet.body, Body::Odata(_) | Body::Rdata(_)),
        report: report.filter(|report| !report.rides).and_then(|report| Some(report.receiver?.0)),
        limiting: echo.map(|echo| echo.receiver.0),
    }
}

const FILESEG: u8 = 9;
const CONG_CTRL: u8 = 20;
const CC_ACK: u8 = 21;
/// Bytes of the header of every packet of UFTP, and of what `CONG_CTRL` has before its list.
const UFTP_HEADER: usize = 16;
const CONG_CTRL_HEADER: usize = 16;
/// The mark of the limiting receiver in the lists of both.
const CLR: u8 = 0x01;
/// Bytes of an entry in those lists: the receiver, its flags, its round trip, and more.
const ENTRY: usize = 8;

fn uftp(bytes: &[u8]) -> Option<Said> {
    let function = *bytes.get(1)?;
    let limiting = match function {
        CONG_CTRL => limiting(bytes.get(UFTP_HEADER + CONG_CTRL_HEADER..)?),
        _ => None,
    };
    let report = (function == CC_ACK).then(|| number(bytes, 4)).flatten();
    Some(Said { data: function == FILESEG, report, limiting })
}

const DATA: u8 = 2;
const CMD: u8 = 3;
const ACK: u8 = 5;
/// `NORM_CMD(CC)` and `NORM_ACK(CC)`.
const CMD_CC: u8 = 4;
const ACK_CC: u8 = 1;

fn norm(bytes: &[u8]) -> Option<Said> {
    let kind = bytes.first()? & 0x0f;
    let header = usize::from(*bytes.get(1)?) * 4;
    let limiting = match (kind, bytes.get(12)) {
        (CMD, Some(&CMD_CC)) => limiting(bytes.get(header..)?),
        _ => None,
    };
    let reports = kind == ACK && bytes.get(14) == Some(&ACK_CC);
    let report = reports.then(|| number(bytes, 4)).flatten();
    Some(Said { data: kind == DATA, report, limiting })
}

/// The receiver in a list that has the mark.
fn limiting(list: &[u8]) -> Option<u32> {
    let entry = list.chunks_exact(ENTRY).find(|entry| entry[4] & CLR != 0)?;
    number(entry, 0)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_uftp_are_told_apart() {
        let packet = |function: u8, rest: &[u8]| {
            let mut bytes = vec![0x50, function];
            bytes.resize(UFTP_HEADER, 0);
            [&bytes[..], rest].concat()
        };
        assert!(Speaker::Uftp.read(&packet(FILESEG, &[0; 30])).data);
        assert_eq!(Speaker::Uftp.read(&packet(CC_ACK, &[0; 24])).report, Some(0));
        let list = [[0, 0, 0, 2, 2, 9, 0, 0], [0, 0, 0, 3, 3, 9, 0, 0]].concat();
        let rest = [&[0; CONG_CTRL_HEADER][..], &list].concat();
        let said = Speaker::Uftp.read(&packet(CONG_CTRL, &rest));
        assert_eq!(said, Said { limiting: Some(3), ..Said::default() });
        assert_eq!(Speaker::Uftp.read(&packet(CONG_CTRL, &[0; 5])), Said::default());
    }

    #[test]
    fn packets_of_norm_are_told_apart() {
        let mut command = vec![0x10 | CMD, 7, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, CMD_CC];
        command.resize(28, 0);
        command.extend_from_slice(&[0, 0, 0, 2, CLR | 4, 9, 0, 0]);
        assert_eq!(Speaker::Norm.read(&command).limiting, Some(2));
        command[12] = 1;
        assert_eq!(Speaker::Norm.read(&command), Said::default());
        let mut ack = vec![0x10 | ACK, 6, 0, 0, 0, 0, 0, 3];
        ack.resize(24, 0);
        ack[14] = ACK_CC;
        assert_eq!(Speaker::Norm.read(&ack).report, Some(3));
        ack[14] = 2;
        assert_eq!(Speaker::Norm.read(&ack).report, None);
    }

    #[test]
    fn noise_says_nothing_and_nothing_panics() {
        for len in 0..80 {
            let bytes = vec![0xffu8; len];
            for speaker in [Speaker::Faircast, Speaker::Uftp, Speaker::Norm] {
                assert_eq!(speaker.read(&bytes), Said::default(), "{speaker:?} {len}");
            }
        }
    }
}
