//! Replays the committed corpus of the fuzz target of programs.

#[path = "fuzz/programs.rs"]
mod programs;

use std::path::Path;

#[test]
fn every_program_of_the_corpus_is_refused_or_ends() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/programs");
    let files = std::fs::read_dir(&folder).expect("the corpus is there");
    let files: Vec<Vec<u8>> = files
        .map(|file| std::fs::read(file.expect("it can be listed").path()).expect("it can be read"))
        .collect();
    let sound = files.iter().filter(|code| programs::program(code)).count();
    assert!(sound >= 5 && sound < files.len(), "{sound} of {} are programs", files.len());
}
