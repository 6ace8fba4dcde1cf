//! Specimens: one packet of each kind, from which tests and attacks forge others.

use alloc::vec::Vec;

use super::{
    Accept, Ack, Advertisement, Bind, Body, Data, HeadState, Hello, Packet, RejectReason, Report,
    ReportKind, Solicitation, SourceState,
};
use crate::tram::settings::HeadRole;

/// Returns one packet of each kind from end `sender` in `session`, after packets up to `last`.
pub fn specimens(session: u64, sender: u64, last: u64) -> Vec<Vec<u8>> {
    let state = SourceState { sequence: last.max(1), ack_window: 32, ..SourceState::default() };
    let (role, level) = (HeadRole::Eager, 1);
    let low = last.saturating_sub(8).max(1);
    let (head_state, members, members_max) = (HeadState::Accepting, 0, 32);
    let (lan, name) = (false, 0);
    let advertisement =
        Advertisement { state: head_state, role, level, members, members_max, low, lan, name };
    let ack = Ack { first_missing: last + 1, allowed: last + 64, highest: last, ..Ack::default() };
    let (kind, value) = (ReportKind::NullNak, &[0; 4][..]);
    let report = Report { kind, sequence: state.sequence, leaves: false, option: 0, value };
    let all = [
        Body::Beacon(state),
        Body::Data(Data { state, announce: None, payload: &[0; 16] }),
        Body::Advertisement(advertisement),
        Body::Solicitation(Solicitation { role, name: 0 }),
        Body::Bind(Bind { role, distance: 1, joins: 0, first_missing: low, name: 0 }),
        Body::Accept(Accept { start: low, level }),
        Body::Reject(RejectReason::Full),
        Body::Hello(Hello { low, high: last, level, ..Hello::default() }),
        Body::Ack(ack),
        Body::Status(&[0; 48]),
        Body::StatusReply(&[0; 16]),
        Body::Report(report),
        Body::Settings(b"\x01\x07another"),
    ];
    let write = |body: &Body<'_>| {
        let mut bytes = Vec::new();
        Packet { session, sender, ttl: u8::MAX, body: *body }.write(&mut bytes);
        bytes
    };
    all.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use crate::fields::Fields;

    #[test]
    fn each_kind_that_decodes_has_a_specimen() {
        let all = specimens(5, 6, 100);
        let kinds: BTreeSet<u8> = all.iter().map(|bytes| bytes[3]).collect();
        for bytes in &all {
            let packet = Packet::decode(bytes).expect("specimens decode");
            assert_eq!((packet.session, packet.sender), (5, 6));
        }
        let decodes = |kind, len, byte| {
            let bytes: Vec<u8> = core::iter::repeat_n(byte, len).collect();
            Body::decode(kind, 0, Fields(&bytes)).is_some()
        };
        for kind in 0..=u8::MAX {
            let known = (0..80).any(|len| [0, 1].iter().any(|byte| decodes(kind, len, *byte)));
            assert_eq!(known, kinds.contains(&kind), "kind {kind}");
        }
    }
}
