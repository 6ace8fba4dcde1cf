//! The table of settings against the configuration that it makes.

use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use crate::options::{OptionKind, OptionValue, Options};
use crate::schemes::ormcc::{Feedback, OPTIONS, OrmccConfig, Profile};

fn config(raw: &[(&str, OptionValue)]) -> OrmccConfig {
    let raw = raw.iter().map(|(key, value)| (key.to_string(), value.clone()));
    OrmccConfig::from_options(&Options::checked(raw, OPTIONS).expect("the settings are allowed"))
}

fn text(word: &str) -> OptionValue {
    OptionValue::Text(String::from(word))
}

/// Reads a default as the table writes it.
fn parse(default: &str) -> OptionValue {
    if let Some(word) = default.strip_prefix('"') {
        return text(word.strip_suffix('"').expect("quotes are paired"));
    }
    match default {
        "true" | "false" => OptionValue::Bool(default == "true"),
        number if number.contains('.') => OptionValue::Float(number.parse().expect("a number")),
        number => OptionValue::Integer(number.parse().expect("a whole number")),
    }
}

#[test]
fn the_defaults_of_the_table_are_those_of_the_improved_profile() {
    let all: Vec<_> = OPTIONS.iter().map(|spec| (spec.name, parse(spec.default))).collect();
    assert_eq!(config(&all), OrmccConfig::default());
    for (name, value) in all {
        assert_eq!(config(&[(name, value)]), OrmccConfig::default(), "{name}");
    }
    assert_eq!(config(&[]), OrmccConfig::default());
}

#[test]
fn profiles_are_starting_points() {
    let paper = config(&[("profile", text("paper"))]);
    assert_eq!(paper, OrmccConfig::profile(Profile::Paper));
    assert_eq!((paper.alpha, paper.gamma, paper.beta, paper.n), (0.125, 0.5, 0.75, 4));
    assert_eq!((paper.feedback, paper.guard), (Feedback::Ci, false));
    let low = config(&[("profile", text("paper")), ("feedback", text("ci-per-rtt"))]);
    assert_eq!(low, OrmccConfig { feedback: Feedback::CiPerRtt, ..paper });
}

#[test]
fn every_setting_changes_something() {
    for spec in OPTIONS {
        let others = match spec.kind {
            OptionKind::Bool => vec![OptionValue::Bool(spec.default == "false")],
            OptionKind::Integer { min, max } => {
                vec![OptionValue::Integer(min), OptionValue::Integer(max)]
            }
            OptionKind::Float { min, max } => {
                vec![OptionValue::Float(min), OptionValue::Float(max)]
            }
            OptionKind::Duration { max_ns, .. } => {
                vec![text(&faircast_base::Duration::from_nanos(max_ns).to_string())]
            }
            OptionKind::Choice(words) => words.iter().map(|word| text(word)).collect(),
            OptionKind::Rate { .. } => panic!("ORMCC sets no rate, so {} has no case", spec.name),
        };
        let changed =
            others.into_iter().any(|value| config(&[(spec.name, value)]) != OrmccConfig::default());
        assert!(changed, "{}", spec.name);
    }
}
