//! Replays the committed corpora of the fuzz targets `sealed` and `key_file`.

#[path = "fuzz/sealed.rs"]
mod fuzz;

use std::fs;
use std::path::Path;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).expect("there is a corpus");
    let files = files.map(|file| file.expect("it can be listed").path());
    files.map(|path| fs::read(path).expect("it can be read")).collect()
}

#[test]
fn nothing_in_the_corpus_is_opened_that_was_not_sealed() {
    let corpus = corpus("sealed");
    assert!(corpus.len() >= 3);
    corpus.iter().for_each(|steps| fuzz::sealed(steps));
}

#[test]
fn every_key_file_of_the_corpus_is_a_key_or_refused_with_a_reason() {
    let corpus = corpus("key_file");
    let keys = corpus.iter().filter(|text| fuzz::key_file(text)).count();
    assert!(keys >= 1 && keys < corpus.len(), "{keys} of {} are keys", corpus.len());
}
