//! Properties of the parser: no text makes it panic, and each mistake has a place.

use faircast_scenario::ErrorPlace;
use proptest::prelude::*;

use crate::{GOOD, parse, parse_with};

fn well_formed(text: &str, set: &[&str]) -> Result<(), TestCaseError> {
    if let Err(error) = parse_with(text, set) {
        let line = error.to_string();
        prop_assert!(line.starts_with("t.toml:"), "{line}");
        prop_assert!(!line.contains(char::is_control) && line.chars().count() < 2000, "{line}");
        match error.place {
            ErrorPlace::Line(number) => {
                let lines = text.split('\n').count();
                prop_assert!((1..=lines).contains(&(number as usize)), "{line} of {lines}");
            }
            ErrorPlace::Set(_) => prop_assert!(!set.is_empty()),
            ErrorPlace::File => prop_assert!(false, "{line}"),
        }
    }
    Ok(())
}

fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\"0 s\"".to_string()),
        Just("\"99999999999 h\"".to_string()),
        Just("\"18446744073709551615 ns\"".to_string()),
        Just("-1".to_string()),
        Just("9223372036854775807".to_string()),
        Just("inf".to_string()),
        Just("nan".to_string()),
        Just("[]".to_string()),
        Just("{}".to_string()),
        Just("[[[[1]]]]".to_string()),
        Just("\"a{1..99999}\"".to_string()),
        Just("\"mr{3..1}\"".to_string()),
        Just("\"\"".to_string()),
        Just("true".to_string()),
        Just("2026-01-01".to_string()),
        "\"[a-z0-9 {}.]{0,12}\"",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_is_judged(text in "(?s).{0,300}") {
        well_formed(&text, &[])?;
    }

    #[test]
    fn a_scenario_with_a_character_changed_is_judged(
        at in 0..GOOD.len(), old in 0..4usize, new in "(?s).{0,3}",
    ) {
        let end = (at + old).min(GOOD.len());
        well_formed(&format!("{}{new}{}", &GOOD[..at], &GOOD[end..]), &[])?;
    }

    #[test]
    fn a_scenario_with_a_value_changed_is_judged(line in 0..51usize, value in token()) {
        let changed = |(i, text): (usize, &str)| match text.split_once(" = ") {
            Some((key, _)) if i == line => format!("{key} = {value}\n"),
            _ => format!("{text}\n"),
        };
        let text: String = GOOD.lines().enumerate().map(changed).collect();
        well_formed(&text, &[])?;
    }

    #[test]
    fn a_scenario_with_a_line_moved_is_judged(from in 0..51usize, to in 0..51usize) {
        let mut lines: Vec<&str> = GOOD.lines().collect();
        let moved = lines.remove(from.min(lines.len() - 1));
        lines.insert(to.min(lines.len()), moved);
        well_formed(&lines.join("\n"), &[])?;
    }

    #[test]
    fn any_set_is_judged(
        key in "(link|flow|node|duration|x)(\\.(0|1|mcc|rate|to|options|changes|queue)){0,4}",
        value in token(),
        any in ".{0,30}",
    ) {
        well_formed(GOOD, &[&format!("{key}={value}")])?;
        well_formed(GOOD, &[&any])?;
    }
}

#[test]
fn the_mutations_start_from_something_that_is_accepted() {
    assert_eq!(GOOD.lines().count(), 50);
    parse(GOOD).unwrap();
}
