//! The table of a scheme's settings against the configuration that it makes.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;

use crate::options::{OptionKind, OptionSpec, OptionValue, Options};

/// Checks that the table's defaults, read as a user would write them, are those of the type, each
/// alone and all together, and that every setting changes something.
pub(crate) fn check<C: PartialEq + Debug + Default>(
    table: &[OptionSpec],
    from_options: fn(&Options) -> C,
) {
    let config = |raw: &[(&str, OptionValue)]| {
        let raw = raw.iter().map(|(key, value)| (key.to_string(), value.clone()));
        from_options(&Options::checked(raw, table).expect("the settings are allowed"))
    };
    let all: Vec<_> = table.iter().map(|spec| (spec.name, written(spec))).collect();
    assert_eq!(config(&all), C::default());
    assert_eq!(config(&[]), C::default());
    for (spec, (name, value)) in table.iter().zip(all) {
        assert_eq!(config(&[(name, value)]), C::default(), "{name}");
        let changes = |value: OptionValue| config(&[(name, value)]) != C::default();
        assert!(others(spec).into_iter().any(changes), "{name} changes nothing");
    }
}

/// The default as a scenario has it.
fn written(spec: &OptionSpec) -> OptionValue {
    let text = spec.default.trim_matches('"');
    match spec.kind {
        OptionKind::Bool => OptionValue::Bool(text == "true"),
        OptionKind::Integer { .. } => OptionValue::Integer(text.parse().expect("a whole number")),
        OptionKind::Float { .. } => OptionValue::Float(text.parse().expect("a number")),
        _ => OptionValue::Text(text.into()),
    }
}

/// Values of which one at least is not the default.
fn others(spec: &OptionSpec) -> Vec<OptionValue> {
    match spec.kind {
        OptionKind::Bool => vec![OptionValue::Bool(spec.default == "false")],
        OptionKind::Integer { min, max } => {
            vec![OptionValue::Integer(min), OptionValue::Integer(max)]
        }
        OptionKind::Float { min, max } => vec![OptionValue::Float(min), OptionValue::Float(max)],
        OptionKind::Duration { max_ns, .. } => {
            let longest = faircast_base::Duration::from_nanos(max_ns);
            vec![OptionValue::Text(longest.to_string())]
        }
        OptionKind::Choice(words) => {
            words.iter().map(|word| OptionValue::Text((*word).into())).collect()
        }
        OptionKind::Rate { max_bits_per_s, .. } => {
            let fastest = faircast_base::Bitrate::from_bits_per_s(max_bits_per_s);
            vec![OptionValue::Text(fastest.to_string())]
        }
    }
}
