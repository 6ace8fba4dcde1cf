//! Tests of the catalog: unique names and keys, defaults, checked settings, session identifiers.

use super::ends::{group, session};
use super::*;
use crate::Destination;
use crate::content::Zeros;
use crate::options::{OptionKind, OptionValue};
use crate::pgm::negotiation::SCHEME_NAME_MAX;
use crate::pgm::wire::Nla;
use crate::transport::{EndSetup, Role};
use faircast_base::{Duration, FlowId, Time};

#[test]
fn names_and_keys_are_unique_and_every_row_builds() {
    let start = Time::ZERO + Duration::from_secs(3);
    for (i, entry) in SCHEMES.iter().enumerate() {
        let same = |other: &SchemeEntry| other.view.announce_option == entry.view.announce_option;
        assert!(!SCHEMES[..i].iter().any(same), "{}", entry.name);
        assert!(entry.name.len() <= SCHEME_NAME_MAX, "{}", entry.name);
    }
    let all: Vec<Stack> = stacks().collect();
    assert_eq!(all.len(), 3 * SCHEMES.len() + 1 + 1 + TRANSPORTS.len() - 2);
    for (i, of) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|other| other.name() != of.name()), "{of}");
        assert_eq!(stack(&of.name()), Some(*of));
        let specs = of.options();
        for (j, spec) in specs.iter().enumerate() {
            let same = |other: &OptionSpec| other.name == spec.name;
            assert!(!specs[..j].iter().any(same), "{of}: {}", spec.name);
        }
        let options = Options::default();
        let setup = EndSetup::new(FlowId(0), NodeId(0), &[NodeId(0)], &options);
        for role in [Role::Source(Box::new(Zeros { len: None })), Role::Receiver] {
            let to = if of.transport.multicast { setup.to } else { Destination::Node(NodeId(1)) };
            let end = of.end(role, EndSetup { start, to, ..setup });
            assert_eq!(end.is_some(), of.is_simulated(), "{of}");
            let steered = of.scheme.is_some() && of.hop.is_none();
            assert!(!steered || end.is_some_and(|end| end.next_timeout() == Some(start)), "{of}");
        }
    }
    for (i, entry) in RELAYS.iter().enumerate() {
        assert!(RELAYS[..i].iter().all(|other| other.name != entry.name));
        let made = (entry.relay)(NodeId(1), &Options::default(), None);
        assert_eq!(made.next_timeout(), None);
    }
    assert!(scheme("nothing").is_none() && relay("nothing").is_none());
    for name in ["nothing", "", "pgm", "open", "tram-", "tram-nothing", "credit-tram", "pgm-pgmcc"]
    {
        assert_eq!(stack(name), None, "{name}");
    }
}

#[test]
fn every_default_is_allowed_by_its_own_row() {
    let of_stacks = stacks().map(|stack| (stack.name(), stack.options()));
    let relays = RELAYS.iter().map(|entry| (entry.name.to_string(), entry.options.to_vec()));
    for (name, options) in of_stacks.chain(relays) {
        for spec in &options {
            let text = spec.default.trim_matches('"');
            let value = match spec.kind {
                OptionKind::File { .. } => {
                    assert_eq!(text, "none", "no file is there by default");
                    continue;
                }
                OptionKind::Bool => OptionValue::Bool(text.parse().unwrap()),
                OptionKind::Integer { .. } => OptionValue::Integer(text.parse().unwrap()),
                OptionKind::Float { .. } => OptionValue::Float(text.parse().unwrap()),
                _ => OptionValue::Text(text.to_string()),
            };
            let checked = Options::checked([(spec.name.to_string(), value)], &options);
            assert!(checked.is_ok(), "{name}: {:?}", checked.err());
        }
    }
}

#[test]
fn settings_of_scheme_and_transport_are_checked_in_one_table() {
    let checked = |key: &str, value: OptionValue| {
        Options::checked([(key.to_string(), value)], &stack("pgmcc").unwrap().options())
    };
    assert!(checked("acker_bias", OptionValue::Float(0.6666)).is_ok());
    assert!(checked("reliable", OptionValue::Bool(false)).is_ok());
    let error = checked("acker_bais", OptionValue::Float(0.6666)).unwrap_err();
    assert!(error.to_string().contains("acker_bias"), "{error}");
}

#[test]
fn sessions_differ_by_source_and_flow() {
    let all = [(0, 0), (0, 1), (1, 0), (1, 1), (70_000, 0)];
    for (i, a) in all.iter().enumerate() {
        for b in &all[..i] {
            let session = |x: &(u32, u32)| session(FlowId(x.0), NodeId(x.1));
            assert_ne!(session(a), session(b));
        }
    }
    assert_ne!(group(FlowId(0)), group(FlowId(1)));
    assert_eq!(group(FlowId(0)), Nla::V4([239, 192, 0, 1]));
}

#[test]
fn facts_of_a_packet_are_what_its_machine_says_of_it() {
    use crate::Transmit;
    use crate::transport::PacketFacts;
    use faircast_base::{Cx, Purpose, Rng};

    for stack in stacks() {
        let name = stack.name();
        if stack.facts(&[]).is_none() {
            assert!(name.starts_with("tcp-"), "{name}");
            continue;
        }
        let known = stack.options();
        for delivery in ["stream", "object"] {
            let set = [("delivery".to_string(), OptionValue::Text(delivery.to_string()))];
            let set = set.into_iter().filter(|(key, _)| known.iter().any(|it| it.name == key));
            let options = Options::checked(set, &known).unwrap();
            let setup = EndSetup::new(FlowId(1), NodeId(0), &[NodeId(0)], &options);
            let setup = EndSetup { payload: 600, ..setup };
            let content = Box::new(Zeros { len: Some(100_000) });
            let mut source = stack.end(Role::Source(content), setup).unwrap();
            let mut rng = Rng::new(1, NodeId(0), Purpose::Machine(0));
            let (mut now, mut data) = (Time::ZERO, 0);
            for _ in 0..400 {
                let mut cx = Cx::untraced(now, &mut rng);
                source.handle_timeout(&mut cx);
                let mut packet = alloc::vec::Vec::new();
                while let Some(transmit) = source.poll_transmit(&mut cx, &mut packet) {
                    let Transmit { payload_len, router_alert, zeros, .. } = transmit;
                    packet.resize(packet.len() + zeros as usize, 0);
                    let said = PacketFacts { payload_len, router_alert };
                    assert_eq!(stack.facts(&packet), Some(said), "{name} {delivery}: {packet:?}");
                    data += u32::from(payload_len > 0);
                    packet.clear();
                }
                let Some(at) = source.next_timeout() else { break };
                now = at.max(now);
            }
            let alone = name == "cbr" || scheme(&name).is_some() && delivery == "stream";
            assert!(data > 0 || !alone, "{name} {delivery}: nothing was sent");
        }
    }
}
