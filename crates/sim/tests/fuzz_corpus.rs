//! Replays the corpora of the fuzz targets beyond PGM, and damaged copies, without a fuzzer.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

#[path = "fuzz/background.rs"]
mod background;
#[path = "fuzz/texts.rs"]
mod texts;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

fn files(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    assert!(paths.len() >= 5, "{} holds examples", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn every_conversation_of_the_corpus_leaves_background_traffic_alive() {
    files("fuzz/corpus/background").iter().for_each(|steps| background::run(steps));
}

#[test]
fn every_scenario_of_the_corpus_is_accepted_or_refused_in_a_line() {
    let accepted =
        files("fuzz/corpus/scenario").iter().filter(|text| texts::scenario(text)).count();
    assert!(accepted >= 2, "{accepted} are accepted");
    assert!(files("scenarios").iter().all(|text| texts::scenario(text)));
}

#[test]
fn every_trace_of_the_corpus_is_read_as_far_as_it_goes() {
    let records: u64 = files("fuzz/corpus/trace_file").iter().map(|b| texts::trace_file(b)).sum();
    assert!(records > 100, "{records} records");
}

fn damaged(files: &[Vec<u8>], file: Index, damage: Vec<(Index, u8)>, tail: Vec<u8>) -> Vec<u8> {
    let mut bytes = files[file.index(files.len())].clone();
    for (at, value) in damage {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
    }
    bytes.extend(tail);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_damage_breaks_background_traffic(
        file: Index, damage: Vec<(Index, u8)>, tail: Vec<u8>,
    ) {
        background::run(&damaged(&files("fuzz/corpus/background"), file, damage, tail));
    }

    #[test]
    fn no_damage_to_a_scenario_breaks_its_reader(
        file: Index, damage in prop::collection::vec(any::<(Index, u8)>(), 0..4), tail: Vec<u8>,
    ) {
        texts::scenario(&damaged(&files("fuzz/corpus/scenario"), file, damage, tail));
    }

    #[test]
    fn no_damage_to_a_trace_breaks_its_reader(
        file: Index, damage in prop::collection::vec(any::<(Index, u8)>(), 0..4), tail: Vec<u8>,
    ) {
        texts::trace_file(&damaged(&files("fuzz/corpus/trace_file"), file, damage, tail));
    }
}
