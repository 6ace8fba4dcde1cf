//! The table of settings against the configuration that it makes.

use std::string::{String, ToString};

use faircast_base::Duration;

use crate::congestion::common::table;
use crate::congestion::pgmcc::{
    Accounting, BitmapScope, Model, OPTIONS, PgmccConfig, Profile, RttMethod, TimeoutMode,
};
use crate::options::{OptionValue, Options};

fn config(raw: &[(&str, OptionValue)]) -> PgmccConfig {
    let raw = raw.iter().map(|(key, value)| (key.to_string(), value.clone()));
    PgmccConfig::from_options(&Options::checked(raw, OPTIONS).expect("the settings are allowed"))
}

fn text(word: &str) -> OptionValue {
    OptionValue::Text(String::from(word))
}

#[test]
fn the_defaults_of_the_table_are_those_of_the_improved_profile() {
    table::check(OPTIONS, PgmccConfig::from_options);
}

#[test]
fn profiles_are_starting_points() {
    let paper = config(&[("profile", text("paper"))]);
    assert_eq!(paper, PgmccConfig::profile(Profile::Paper));
    assert_eq!(paper.timeout, Duration::from_secs(4));
    assert_eq!((paper.timeout_mode, paper.model), (TimeoutMode::Fixed, Model::Simple));
    assert_eq!((paper.acker_bias, paper.rtt_method), (0.6666, RttMethod::Sequence));
    assert_eq!((paper.accounting, paper.bitmap_scope), (Accounting::Realign, BitmapScope::Own));
    let mixed = config(&[("profile", text("paper")), ("timeout_mode", text("reno"))]);
    assert_eq!(mixed, PgmccConfig { timeout_mode: TimeoutMode::Reno, ..paper });
    assert_eq!(config(&[("profile", text("draft"))]), PgmccConfig::profile(Profile::Draft));
}
