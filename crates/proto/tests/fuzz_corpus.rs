//! Replays the committed corpora of the fuzz targets, so that bugs found by fuzzing stay fixed.

#[path = "fuzz/credits.rs"]
mod credits;
#[path = "fuzz/element.rs"]
mod element;
#[path = "fuzz/endpoints.rs"]
mod endpoints;
#[path = "fuzz/ends.rs"]
mod ends;
#[path = "fuzz/packet.rs"]
mod packet;

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.expect("the directory can be listed").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{} holds examples", dir.display());
    files.iter().map(|path| fs::read(path).expect("a corpus file can be read")).collect()
}

#[test]
fn every_packet_of_the_corpus_is_read_or_refused_and_survives_being_written() {
    type Reads = fn(&[u8]) -> bool;
    for (target, reads) in
        [("pgm_packet", packet::packet as Reads), ("tram_packet", packet::tram_packet)]
    {
        let corpus = corpus(target);
        let read = corpus.iter().filter(|bytes| reads(bytes)).count();
        assert!(read >= 10 && read < corpus.len(), "{target}: {read} of {}", corpus.len());
    }
}

#[test]
fn every_session_of_the_corpus_under_credits_comes_to_rest() {
    corpus("credits").iter().for_each(|steps| credits::credits(steps));
}

#[test]
fn every_stream_of_the_corpus_comes_to_rest() {
    corpus("streams").iter().for_each(|steps| endpoints::streams(steps));
}

#[test]
fn every_object_of_the_corpus_comes_to_rest() {
    corpus("objects").iter().for_each(|steps| endpoints::objects(steps));
}

#[test]
fn every_tree_of_the_corpus_comes_to_rest() {
    corpus("tree").iter().for_each(|steps| endpoints::tree(steps));
}

#[test]
fn every_conversation_of_the_corpus_lets_an_element_come_to_rest() {
    corpus("element").iter().for_each(|steps| element::element(steps));
}

/// Returns files of a corpus with some bytes replaced and some appended.
fn damaged(target: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let files = corpus(target);
    (any::<Index>(), any::<Vec<(Index, u8)>>(), any::<Vec<u8>>()).prop_map(
        move |(file, damage, tail)| {
            let mut bytes = files[file.index(files.len())].clone();
            for (at, value) in damage {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = value;
                }
            }
            bytes.extend(tail);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_damage_keeps_a_stream_from_coming_to_rest(steps in damaged("streams")) {
        endpoints::streams(&steps);
    }

    #[test]
    fn no_damage_keeps_an_object_from_coming_to_rest(steps in damaged("objects")) {
        endpoints::objects(&steps);
    }

    #[test]
    fn no_damage_keeps_a_tree_from_coming_to_rest(steps in damaged("tree")) {
        endpoints::tree(&steps);
    }

    #[test]
    fn no_damage_keeps_a_session_under_credits_from_coming_to_rest(steps in damaged("credits")) {
        credits::credits(&steps);
    }

    #[test]
    fn no_damage_keeps_an_element_from_coming_to_rest(steps in damaged("element")) {
        element::element(&steps);
    }
}
