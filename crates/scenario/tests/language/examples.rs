//! The scenario files of the repository and the examples of its documentation are accepted.

use std::path::{Path, PathBuf};

use faircast_scenario::{Overrides, Scenario};

use crate::{catalog, parse};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_scenario_file_is_accepted_and_asks_a_question() {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(repository().join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let scenario = Scenario::load(&path, &Overrides::default(), &catalog())
                .unwrap_or_else(|error| panic!("{error}"));
            assert!(scenario.title.ends_with('?'), "{}: {}", path.display(), scenario.title);
            names.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    names.sort();
    for name in [
        "changing-bandwidth.toml",
        "joins-and-leaves.toml",
        "lossy-links.toml",
        "pgmcc-beside-tcp.toml",
        "red-queue.toml",
        "tcp-flavours.toml",
        "thousand-receivers.toml",
    ] {
        assert!(names.iter().any(|have| have == name), "{name} is not in {names:?}");
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
