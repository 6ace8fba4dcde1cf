//! Replays the committed corpora of the fuzz targets, so that what fuzzing once found stays found
//! without a fuzzer at hand.

#[path = "fuzz/endpoints.rs"]
mod endpoints;

use std::fs;
use std::path::Path;

use faircast_proto::wire::pgm::Packet;

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.expect("the directory can be listed").path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            (path.display().to_string(), fs::read(&path).expect("a corpus file can be read"))
        })
        .collect()
}

#[test]
fn every_packet_of_the_corpus_is_read_or_refused_and_survives_being_written() {
    let corpus = corpus("pgm_packet");
    let mut read = 0;
    for (file, bytes) in &corpus {
        let Ok(packet) = Packet::decode(bytes, 0) else { continue };
        read += 1;
        let mut again = Vec::new();
        packet.encode(&mut again);
        assert_eq!(Packet::decode(&again, 0), Ok(packet), "{file}");
    }
    // The corpus holds valid packets of every type and broken ones.
    assert!(read >= 10 && read < corpus.len(), "{read} of {} are packets", corpus.len());
}

#[test]
fn every_conversation_of_the_corpus_comes_to_rest() {
    let corpus = corpus("pgm_endpoints");
    assert!(corpus.len() >= 5);
    for (_, steps) in &corpus {
        endpoints::run(steps);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// What a fuzzer would do first, for want of one.
    #[test]
    fn no_damage_to_a_conversation_keeps_it_from_coming_to_rest(
        file: proptest::sample::Index,
        damage: Vec<(proptest::sample::Index, u8)>,
        tail: Vec<u8>,
    ) {
        let corpus = corpus("pgm_endpoints");
        let (_, mut steps) = corpus[file.index(corpus.len())].clone();
        for (at, value) in damage {
            if !steps.is_empty() {
                let at = at.index(steps.len());
                steps[at] = value;
            }
        }
        steps.extend(tail);
        endpoints::run(&steps);
    }
}
