//! Tests of successful reception: trees, existing files, zeros, the journal.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::task::Poll;

use faircast_proto::object::{Part, Store as _, Verdict};

use super::*;
use crate::layout::GROUP_BYTES;
use crate::manifest::Manifest;
use crate::testing::{chmod, tamper, touch, tree, wait};

const FILES: [(&str, usize); 6] = [
    ("a", 0),
    ("b/c/one group", MIB),
    ("b/small", 10),
    ("b/tiny", 1),
    ("large", 5 * MIB + 77),
    ("z", 3000),
];

#[test]
fn a_tree_arrives_as_it_was_sent() {
    let mut case = Case::new(&FILES);
    fs::create_dir(case.from.join("empty")).unwrap();
    touch(&case.from.join("empty"), 7);
    touch(&case.from.join("b"), 1_000_000_000);
    for (path, mode) in [("a", 0o444), ("z", 0o4755), ("empty", 0o1555), ("b/tiny", 0o200)] {
        chmod(&case.from.join(path), mode);
    }
    case.object = Object::of(&case.from);
    let mut store = case.store();
    let handle = store.handle();
    assert_eq!(case.object.receive(&mut store), Ok(0));
    chmod(&case.from.join("z"), 0o755);
    chmod(&case.from.join("empty"), 0o555);
    case.assert_same();
    let counts = handle.counts();
    assert_eq!((counts.files, counts.files_done), (6, 6));
    assert_eq!(counts.bytes_written, case.object.content().len() as u64);
    assert_eq!((counts.bytes_found, counts.bytes_damaged), (0, 0));
    assert_eq!(store.verify(), Ok(Poll::Ready(Verdict::Intact)));
}

#[test]
fn an_object_without_content_arrives() {
    let case = Case::new(&[("a/b/c", 0)]);
    case.assert_received();
}

#[test]
fn what_was_written_is_read_back_wherever_it_is() {
    let case = Case::new(&[("a", 40 * MIB), ("b", 100), ("c", 100)]);
    let mut store = case.opened();
    let symbols = case.object.missing(&[]);
    // Every third symbol comes later: groups are evicted, and read back from files.
    let given: Vec<_> = symbols.iter().enumerate().filter(|(i, _)| i % 3 != 1).collect();
    for (i, symbol) in &given {
        case.object.give(&mut store, std::slice::from_ref(*symbol)).unwrap();
        for back in [0, 2, 3000, 9000] {
            let Some(at) = i.checked_sub(back).filter(|at| at % 3 != 1) else { continue };
            let range = symbols[at].clone();
            let mut out = vec![7];
            let len = (range.end - range.start) as u32;
            store.read(Part::Content, range.start, len, &mut out).unwrap();
            assert!(out[1..] == case.object.content()[range.start as usize..range.end as usize]);
        }
    }
    let rest: Vec<_> = symbols.iter().skip(1).step_by(3).cloned().collect();
    case.object.give(&mut store, &rest).unwrap();
    case.finish(&mut store);
}

#[test]
fn other_parts_are_read_back_too() {
    let case = Case::new(&FILES);
    let mut store = case.opened();
    case.object.give_digests(&mut store).unwrap();
    for part in [Part::Manifest, Part::Digests] {
        let all = &case.object.parts[part as usize];
        let mut out = Vec::new();
        store.read(part, 3, all.len() as u32 - 3, &mut out).unwrap();
        assert!(out == all[3..], "{part:?}");
    }
}

#[test]
fn a_second_time_nothing_is_received_again() {
    let case = Case::new(&FILES);
    case.object.receive(&mut case.store()).unwrap();
    let before: Vec<u64> =
        ["b/small", "large"].map(|path| fs::metadata(case.target(path)).unwrap().ino()).to_vec();
    chmod(&case.target("large"), 0o600);
    let mut store = case.store();
    let handle = store.handle();
    let len = case.object.content().len() as u64;
    assert_eq!(case.object.open(&mut store), Ok(vec![0..len]));
    case.finish(&mut store);
    let after: Vec<u64> =
        ["b/small", "large"].map(|path| fs::metadata(case.target(path)).unwrap().ino()).to_vec();
    assert_eq!(before, after);
    let counts = handle.counts();
    assert_eq!((counts.bytes_found, counts.bytes_written, counts.files_done), (len, 0, 6));
}

#[test]
fn a_file_that_is_there_and_only_looks_the_same_is_repaired_by_groups() {
    let case = Case::new(&FILES);
    case.object.receive(&mut case.store()).unwrap();
    let path = case.target("large");
    tamper(&path, b"damage", 2 * GROUP_BYTES + 5);
    let damaged = fs::read(&path).unwrap();

    let mut store = case.store();
    let handle = store.handle();
    case.object.open(&mut store).unwrap();
    case.object.give_digests(&mut store).unwrap();
    let Verdict::Damaged(ranges) = wait(|| store.verify()).unwrap() else { panic!("damaged") };
    let start = (MIB + 11) as u64 + 2 * GROUP_BYTES;
    assert_eq!(ranges, [start..start + GROUP_BYTES]);
    case.object.give(&mut store, &case.object.touching(&ranges)[..300]).unwrap();
    assert!(fs::read(&path).unwrap() == damaged);
    drop(store);
    assert!(fs::read(&path).unwrap() == damaged);

    assert_eq!(case.object.receive(&mut case.store()), Ok(1));
    case.assert_same();
    assert_eq!(handle.counts().bytes_damaged, GROUP_BYTES);
}

#[test]
fn a_file_that_differs_is_replaced_at_the_end_where_that_is_allowed() {
    let case = Case::new(&FILES);
    put(&case.target("z"), b"old");
    let error = case.object.open(&mut case.store()).unwrap_err();
    assert!(error.reason.contains("/from/z: is there already and differs"), "{error}");
    assert!(!case.to.join(".faircast").exists(), "nothing was begun");

    let mut store = FilesStore::new(StoreOptions { overwrite: true, ..case.options() });
    case.object.fill(&mut store).unwrap();
    assert_eq!(fs::read(case.target("z")).unwrap(), b"old");
    case.object.verify(&mut store).unwrap();
    case.assert_same();
}

#[test]
fn zeros_take_no_room() {
    let root = tempdir().unwrap();
    let path = root.path().join("sparse");
    fs::write(&path, vec![0; 64 << 20]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let object = Object::of(&path);
    let to = root.path().join("to");
    let mut store = FilesStore::new(StoreOptions::new(&to));
    let handle = store.handle();
    object.receive(&mut store).unwrap();
    let metadata = fs::metadata(to.join("sparse")).unwrap();
    assert_eq!((metadata.len(), handle.counts().bytes_written), (64 << 20, 0));
    assert!(metadata.blocks() * 512 < 1 << 20);
    assert_eq!(object.parts[1].len(), 64 << 20);
}

#[test]
fn the_journal_is_written_seldom() {
    let case = Case::new(&[("a", 150 * MIB)]);
    let mut store = case.store();
    let handle = store.handle();
    let start = std::time::Instant::now();
    case.object.receive(&mut store).unwrap();
    let counts = handle.counts();
    let most = 150 / 64 + 1 + start.elapsed().as_secs();
    assert!((1..=most).contains(&counts.journal_writes), "{counts:?}");
    assert!(counts.journal_bytes <= most * 16, "{counts:?}");
}

#[test]
fn a_tree_of_many_small_files_opens_each_a_few_times() {
    let count = 5000;
    let root = tempdir().unwrap();
    let from = root.path().join("from");
    for i in 0..count {
        put(&from.join(format!("{}/{i}", i % 50)), &noise(i, 10 + i as usize % 300));
    }
    let object = Object::of(&from);
    let to = root.path().join("to");
    let mut store = FilesStore::new(StoreOptions { sync: false, ..StoreOptions::new(&to) });
    object.receive(&mut store).unwrap();
    assert_eq!(tree(&to.join("from")), tree(&from));
    let opened = store.written().inner.lock().handles.opened;
    assert!((count..=2 * count).contains(&opened), "{opened}");
    let mut store = FilesStore::new(StoreOptions { sync: false, ..StoreOptions::new(&to) });
    object.receive(&mut store).unwrap();
    let opened = store.written().inner.lock().handles.opened;
    assert_eq!(opened, count);
    assert_eq!(Manifest::decode(&object.parts[0]).unwrap().entries().len(), count as usize + 51);
}
