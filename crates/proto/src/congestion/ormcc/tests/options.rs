//! The table of settings against the configuration that it makes.

use std::string::{String, ToString};

use crate::congestion::common::table;
use crate::congestion::ormcc::{Feedback, OPTIONS, OrmccConfig, Profile};
use crate::options::{OptionValue, Options};

fn config(raw: &[(&str, OptionValue)]) -> OrmccConfig {
    let raw = raw.iter().map(|(key, value)| (key.to_string(), value.clone()));
    OrmccConfig::from_options(&Options::checked(raw, OPTIONS).expect("the settings are allowed"))
}

fn text(word: &str) -> OptionValue {
    OptionValue::Text(String::from(word))
}

#[test]
fn the_defaults_of_the_table_are_those_of_the_improved_profile() {
    table::check(OPTIONS, OrmccConfig::from_options);
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
