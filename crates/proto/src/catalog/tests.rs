//! Tests of the catalog: unique names and keys, defaults, checked settings, session identifiers.

use super::ends::{group, session};
use super::*;
use crate::content::Zeros;
use crate::options::{OptionKind, OptionValue};
use crate::pgm::negotiation::SCHEME_NAME_MAX;
use crate::pgm::wire::Nla;
use faircast_base::{Duration, FlowId, Time};

#[test]
fn names_and_keys_are_unique_and_every_row_builds() {
    let start = Time::ZERO + Duration::from_secs(3);
    for (i, entry) in SCHEMES.iter().enumerate() {
        for other in &SCHEMES[..i] {
            assert_ne!(other.name, entry.name);
            // By it receivers know whose data it is.
            assert_ne!(other.announce_option, entry.announce_option, "{}", entry.name);
        }
        assert!(entry.name.len() <= SCHEME_NAME_MAX, "{}", entry.name);
        for (j, spec) in entry.options.iter().enumerate() {
            let same = |other: &OptionSpec| other.name == spec.name;
            assert!(!entry.options[..j].iter().any(same), "{}: {}", entry.name, spec.name);
        }
        let options = Options::default();
        let setup = EndSetup::new(FlowId(0), NodeId(0), &[NodeId(0)], &options);
        for role in [Role::Source(Box::new(Zeros { len: None })), Role::Receiver] {
            let end = end(entry.name, role, EndSetup { start, ..setup }).unwrap();
            assert_eq!(end.next_timeout(), Some(start));
        }
    }
    for (i, entry) in TRANSPORTS.iter().enumerate() {
        assert!(TRANSPORTS[..i].iter().all(|other| other.name != entry.name));
        assert!(scheme(entry.name).is_none(), "a scenario names either");
    }
    for (i, entry) in RELAYS.iter().enumerate() {
        assert!(RELAYS[..i].iter().all(|other| other.name != entry.name));
        let made = (entry.relay)(NodeId(1), &Options::default(), None);
        assert_eq!(made.next_timeout(), None);
    }
    assert!(scheme("nothing").is_none() && relay("nothing").is_none());
}

#[test]
fn every_default_is_allowed_by_its_own_row() {
    let schemes = SCHEMES.iter().map(|entry| (entry.name, entry.own_options));
    let transports = TRANSPORTS.iter().map(|entry| (entry.name, entry.options));
    let relays = RELAYS.iter().map(|entry| (entry.name, entry.options));
    for (name, options) in schemes.chain(transports).chain(relays) {
        for spec in options {
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
            let checked = Options::checked([(spec.name.to_string(), value)], options);
            assert!(checked.is_ok(), "{name}: {:?}", checked.err());
        }
    }
}

#[test]
fn settings_of_scheme_and_transport_are_checked_in_one_table() {
    let checked = |key: &str, value: OptionValue| {
        Options::checked([(key.to_string(), value)], scheme("pgmcc").unwrap().options)
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
