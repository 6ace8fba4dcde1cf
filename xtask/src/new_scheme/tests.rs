//! Tests of the template, which becomes a scheme under other names.

use super::*;

const LINES_MAX: usize = 150;

#[test]
fn the_code_of_the_guide_is_short() {
    let [code, ..] = texts();
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let count = code.lines().filter(is_code).count();
    assert!((100..=LINES_MAX).contains(&count), "{count} lines of code");
}

#[test]
fn names_are_checked() {
    let known = catalog(shell::root()).unwrap();
    for name in ["a", "mine", "mine2", "loss", "option", "sixteen0letters1"] {
        assert_eq!(objection(name, &known), None, "{name}");
    }
    let wrong = ["", "Mine", "2mine", "my-own", "my_own", "ä", "../x", "seventeen0letters"];
    for name in wrong {
        assert!(objection(name, &known).unwrap().contains("small letters"), "{name}");
    }
    assert!(objection("match", &known).unwrap().contains("module"));
}

#[test]
fn a_name_that_the_simulator_knows_is_refused() {
    let known = catalog(shell::root()).unwrap();
    for name in
        ["cbr", "tcp-reno", "tcp-newreno", "tcp-sack", "tcp-cubic", "tcp-bbr", "pgm-element"]
    {
        assert!(known.contains(name), "{name}: {known:?}");
    }
    for name in ["cbr", "tcp", "pgm", "tfmcc"] {
        assert!(objection(name, &known).unwrap().contains("something else has it"), "{name}");
    }
    assert_eq!(objection("tfm", &known), None);
    let lost = catalog(Path::new("nowhere")).unwrap_err();
    assert!(lost.starts_with(MODULES), "{lost}");
}

#[test]
fn modules_stay_in_order_and_rows_go_to_the_end() {
    let modules = "//! Words.\n\npub mod b;\npub mod d;\n";
    for (name, want) in [
        ("a", "pub mod a;\npub mod b;\npub mod d;\n"),
        ("c", "pub mod b;\npub mod c;\npub mod d;\n"),
        ("e", "pub mod b;\npub mod d;\npub mod e;\n"),
    ] {
        assert_eq!(with_module(modules, name), format!("//! Words.\n\n{want}"));
    }
    let table = |rows: &str| format!("x\n{ROWS} &[{rows}];\ny = [];\n");
    let row = "SchemeEntry::of::<crate::congestion::own::OwnScheme>()";
    for (before, after) in [
        ("one!()", format!("one!(), {row}")),
        ("one!(),\n", format!("one!(),\n{row}")),
        ("", row.to_string()),
    ] {
        assert_eq!(with_row(&table(before), "own"), Ok(table(&after)));
    }
    assert!(with_row("nothing", "own").unwrap_err().contains("catalog.rs"));
}

#[test]
fn the_template_gets_the_name_everywhere() {
    for (text, path) in texts().iter().zip(PATHS) {
        let text = renamed(text, "own", 0x55);
        for left in ["aimd", "Aimd", "0x40"] {
            assert!(!text.contains(left), "{left} in {path}");
        }
    }
    let code = renamed(&texts()[0], "own", 0x55);
    assert!(code.contains("const OPTION: u8 = 0x55;") && code.contains("impl Scheme for Own"));
}

#[test]
fn numbers_that_are_taken_are_passed_over() {
    assert_eq!(free_number(&shell::root().join("crates/proto/src/congestion")), Ok(0x40));
}
