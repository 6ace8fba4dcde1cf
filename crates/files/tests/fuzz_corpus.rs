//! Replays the committed corpus of the fuzz target `manifest`.

#[path = "fuzz/manifest.rs"]
mod fuzz;

use std::fs;
use std::path::Path;

#[test]
fn every_manifest_of_the_corpus_is_refused_or_has_one_form() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/manifest");
    let files = fs::read_dir(&folder).expect("there is a corpus");
    let files: Vec<_> = files.map(|file| file.expect("it can be listed").path()).collect();
    let read = |path| fuzz::manifest(&fs::read(path).expect("it can be read"));
    let taken = files.iter().filter(|path| read(*path)).count();
    assert!(taken >= 2 && taken < files.len(), "{taken} of {} are manifests", files.len());
}
