//! Tests of reuse from other objects: interrupted versions, and files that have grown.

use std::fs;
use std::io::Write as _;
use std::task::Poll;

use faircast_proto::object::Store as _;

use super::super::state::StateFolder;
use super::*;
use crate::dir::Root;
use crate::store::Journal;
use crate::testing::touch;

fn cut_off(case: &Case, keep: usize) {
    cut_off_in(case.store(), case, keep);
}

fn cut_off_in(store: FilesStore, case: &Case, keep: usize) {
    let mut store = store.journal_at_once();
    let found = case.object.open(&mut store).unwrap();
    let missing = case.object.missing(&found);
    case.object.give(&mut store, &missing[..missing.len() - keep]).unwrap();
    let end = missing[missing.len() - keep - 1].end;
    let mut out = Vec::new();
    store.read(faircast_proto::object::Part::Content, end - 10, 10, &mut out).unwrap();
    drop(store);
}

fn grow(case: &Case, path: &str, bytes: usize) {
    let path = case.from.join(path);
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(&noise(99, bytes)).unwrap();
    touch(&path, 1_700_000_000 + bytes as u64);
}

#[test]
fn a_new_version_of_a_tree_takes_what_a_cut_one_left_and_removes_the_rest() {
    let mut case = Case::new(&[("big", 6 * MIB + 5), ("log", 3 * MIB + 100), ("small", 10)]);
    cut_off(&case, 10);
    let first = case.state();
    grow(&case, "log", 50);
    case.object = Object::of(&case.from);
    assert_ne!(first, case.state());
    let (store, found) = case.found();
    let found: u64 = found.iter().map(|range| range.end - range.start).sum();
    // All groups of the large file, and the received whole groups of the one that has grown.
    assert_eq!(found, (8 * MIB + 5) as u64);
    drop(store);
    grow(&case, "log", 60);
    case.object = Object::of(&case.from);
    let handle = case.receive(case.store());
    let written = handle.counts().bytes_written;
    assert!(written < 2 * MIB as u64, "{written}");
    case.assert_same();
}

#[test]
fn a_complete_object_removes_leftovers_of_its_own_host_alone() {
    let host = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
    for (left, came, stays) in [
        (host(1), host(1), false),
        (host(1), host(2), true),
        (None, host(1), true),
        (host(1), None, true),
    ] {
        let mut case = Case::new(&[("big", 4 * MIB)]);
        let store =
            |case: &Case, source| FilesStore::new(StoreOptions { source, ..case.options() });
        cut_off_in(store(&case, left), &case, 1);
        let old = case.state();
        put(&case.from.join("big"), &noise(77, MIB));
        touch(&case.from.join("big"), 1_700_000_000);
        case.object = Object::of(&case.from);
        assert_eq!(case.object.receive(&mut store(&case, came)), Ok(0));
        assert_eq!(old.exists(), stays, "{left:?}, then {came:?}");
    }
}

#[test]
fn a_file_of_another_name_is_known_by_its_size_and_time() {
    let mut case = Case::new(&[("big", 4 * MIB), ("other", 5)]);
    cut_off(&case, 1);
    fs::rename(case.from.join("big"), case.from.join("big.1")).unwrap();
    case.object = Object::of(&case.from);
    let found = case.object.open(&mut case.store()).unwrap();
    // The last symbol, with the end of the file, had not arrived.
    assert_eq!(found, [0..3 << 20]);
}

#[test]
fn what_another_session_receives_is_copied_and_left_to_it() {
    let mut case = Case::new(&[("big", 4 * MIB), ("other", 5)]);
    let old = Object::of(&case.from);
    let mut running = case.store().journal_at_once();
    old.open(&mut running).unwrap();
    let symbols = old.missing(&[]);
    old.give(&mut running, &symbols[..symbols.len() - 1]).unwrap();
    let mut out = Vec::new();
    running.read(faircast_proto::object::Part::Content, 0, 10, &mut out).unwrap();
    let written = || {
        let file = fs::File::open(state(&case.to, &old).join("journal")).unwrap();
        Journal::read(file, &old.announcement.object, 5).unwrap().count_ones(..)
    };
    crate::testing::wait(|| {
        Ok::<_, ()>(if written() < 3 { Poll::Pending } else { Poll::Ready(()) })
    })
    .unwrap();
    grow(&case, "other", 5);
    case.object = Object::of(&case.from);
    let (mut store, found) = case.found();
    assert_eq!(found, [0..3 << 20]);
    case.object.give(&mut store, &case.object.missing(&found)).unwrap();
    assert_eq!(case.object.verify(&mut store), Ok(0));
    drop(store);
    assert!(state(&case.to, &old).exists());
    old.give(&mut running, &symbols[symbols.len() - 1..]).unwrap();
    assert_fails(old.verify(&mut running), "has appeared");
}

#[test]
fn content_that_only_looks_the_same_is_had_again() {
    let mut case = Case::new(&[("big", 4 * MIB), ("other", 5)]);
    cut_off(&case, 1);
    // Other content of the same size and time, and another list of files.
    put(&case.from.join("big"), &noise(42, 4 * MIB));
    grow(&case, "other", 1);
    case.object = Object::of(&case.from);
    assert_eq!(case.object.receive(&mut case.store()), Ok(1));
    case.assert_same();
}

#[test]
fn of_a_file_that_is_replaced_by_a_longer_one_the_beginning_stays() {
    let mut case = Case::new(&[("log", 3 * MIB + 7)]);
    assert_eq!(case.object.receive(&mut case.store()), Ok(0));
    grow(&case, "log", MIB);
    case.object = Object::of(&case.from);
    let mut store = FilesStore::new(StoreOptions { overwrite: true, ..case.options() });
    let found = case.object.open(&mut store).unwrap();
    assert_eq!(found, [0..3 << 20]);
    case.complete(&mut store, &found);
}

#[test]
fn an_object_can_be_received_while_another_one_looks_through_its_leftovers() {
    let case = Case::new(&[("big", 2 * MIB), ("other", 5)]);
    cut_off(&case, 1);
    let root = Root::open(&case.to).unwrap();
    let other = StateFolder::open(&root, &[7; 32]).unwrap();
    let neighbour = other.neighbours().next().unwrap();
    let (_, complete) = neighbour.content().unwrap();
    assert!(complete.count_ones(..) > 0);
    let taken = StateFolder::open(&root, &case.object.announcement.object);
    assert!(taken.is_ok());
    assert!(neighbour.lock().is_none());
    neighbour.remove();
    assert!(case.state().join("journal").exists());
    drop(taken);
    assert!(neighbour.lock().is_some());
}

#[test]
fn of_a_file_that_grows_past_the_wanted_one_no_group_of_another_file_is_taken() {
    let mib = MIB as u64;
    for (there, wanted, want) in [
        (3 * mib + 7, 4 * mib, 3 * mib),
        (9 * mib, 4 * mib + 5, 4 * mib),
        (4 * mib, 4 * mib, 4 * mib),
        (u64::MAX, mib - 1, 0),
        (0, mib, 0),
    ] {
        assert_eq!(super::super::reuse::beginning(there, wanted), want, "{there} {wanted}");
    }
}
