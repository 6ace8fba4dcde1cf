//! Tests of received sparse files: holes are not sent, and are holes again.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use super::*;
use crate::layout::GROUP_BYTES;
use crate::testing::{sparse, tamper, tree};

fn case() -> Case {
    let mut case = Case::new(&[("small", 10)]);
    let g = GROUP_BYTES;
    for (name, len, writes) in [
        ("all", 9 * g, &[][..]),
        ("all and a short end", 9 * g + 5, &[]),
        ("end", 9 * g, &[(0, 5)]),
        ("first", 9 * g, &[(g, 8 << 20)]),
        ("middle", 20 * g + 7, &[(0, 70_000), (20 * g, 7)]),
        ("none", 3 * g, &[(0, 1), (g + 5, 9), (2 * g, 1)]),
        ("one", g, &[]),
        ("several", 30 * g, &[(5 * g, 1), (11 * g - 1, 2), (29 * g, 1 << 20)]),
    ] {
        sparse(&case.from.join(name), len, writes);
    }
    case.object = Object::of(&case.from);
    case
}

fn room(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn holes_do_not_travel_and_are_holes_again() {
    let case = case();
    // 1 in `end`, 8 in `first`, 1 and 7 bytes in `middle`, 3 in `none`, 4 in `several`.
    assert_eq!(case.object.content().len(), 17 * MIB + 7 + 10);
    let handle = case.receive(case.store());
    case.assert_same();
    assert_eq!(handle.counts().bytes, 17 * MIB as u64 + 17);
    assert!(room(&case.target("all")) < 1 << 16);
    assert!(room(&case.target("several")) < 5 << 20);
    let entries = handle.manifest().unwrap().entries().iter().filter(|entry| entry.is_file());
    for (entry, hash) in entries.zip(handle.file_hashes().unwrap()) {
        let bytes = fs::read(case.to.join(entry.local_path())).unwrap();
        assert_eq!(*hash, Some(*blake3::hash(&bytes).as_bytes()), "{}", entry.path);
    }
    let (mut store, found) = case.found();
    assert_eq!(case.object.missing(&found), []);
    case.finish(&mut store);
}

#[test]
fn what_is_interrupted_goes_on_and_keeps_its_holes() {
    let case = case();
    for share in [30, 60, 90] {
        let (mut store, found) = case.found();
        let missing = case.object.missing(&found);
        case.object.give(&mut store, &missing[..missing.len() * share / 100]).unwrap();
        store.kill();
    }
    for part in fs::read_dir(case.state()).unwrap() {
        let path = part.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_part = name.ends_with(".part") && fs::metadata(&path).unwrap().len() > 9 << 20;
        if is_part {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"damage", 2 * GROUP_BYTES + 5).unwrap();
        }
    }
    case.assert_received();
}

#[test]
fn what_only_looks_the_same_is_found_in_holes_too() {
    let case = case();
    case.object.receive(&mut case.store()).unwrap();
    let old = fs::File::open(case.target("several")).unwrap();
    for (name, at) in [("all", 9 * GROUP_BYTES - 1), ("several", 0), ("middle", 7 * GROUP_BYTES)] {
        tamper(&case.target(name), b"x", at);
    }
    assert_ne!(tree(&case.to.join("from")), tree(&case.from));
    let (mut store, found) = case.found();
    assert_eq!(case.object.missing(&found), []);
    case.finish(&mut store);
    let mut byte = [0];
    old.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, *b"x");
    assert!(room(&case.target("several")) < 5 << 20);
}
