//! Replay of the committed corpus of the fuzz target `relay_node`, and random steps.

#[path = "fuzz/relay_node.rs"]
mod fuzz;

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[test]
fn the_corpus_attaches_neighbours_and_breaks_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/relay_node");
    let files = fs::read_dir(&folder).expect("there is a corpus");
    let files = files.map(|file| file.expect("it can be listed").path());
    let attached = files.map(|path| fuzz::relay_node(&fs::read(path).expect("it can be read")));
    assert!(attached.max() >= Some(2));
}

fn steps() -> impl Strategy<Value = Vec<u8>> {
    let step = (any::<u8>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..24));
    let step = step
        .prop_map(|(step, which, bytes)| [&[step, which, bytes.len() as u8][..], &bytes].concat());
    proptest::collection::vec(step, 0..60).prop_map(|steps| {
        let begun: [&[u8]; 4] = [&[0, 1, 0], &[0, 2, 0], &[1, 1, 1, 5], &[1, 2, 1, 4]];
        begun.into_iter().map(<[u8]>::to_vec).chain(steps).collect::<Vec<_>>().concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_steps_break_nothing(data in steps()) {
        fuzz::relay_node(&data);
    }
}
