//! The scenario files of the repository and the examples of its documentation are accepted.

use std::path::{Path, PathBuf};

use faircast_scenario::{Overrides, Scenario};

use crate::{catalog, parse};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn one_scenario_for_each_kind_of_question_is_accepted() {
    for name in [
        "changing-bandwidth",
        "joins-and-leaves",
        "lossy-links",
        "faults",
        "pgmcc-beside-tcp",
        "red-queue",
        "tcp-flavours",
        "thousand-receivers",
    ] {
        let path = repository().join(format!("scenarios/{name}.toml"));
        let scenario = Scenario::load(&path, &Overrides::default(), &catalog())
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(scenario.title.ends_with('?'), "{name}: {}", scenario.title);
    }
}

#[test]
fn the_examples_of_the_language_page_are_accepted() {
    let page = std::fs::read_to_string(repository().join("docs/scenario.md")).unwrap();
    let examples: Vec<&str> = page
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .filter(|example| example.contains("duration"))
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        parse(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}
