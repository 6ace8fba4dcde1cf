//! Tests of received symbolic links: they arrive as links, and nothing is written through them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;
use crate::manifest::{Kind, Manifest};
use crate::testing::{entry, tree};

fn hub() -> Case {
    let mut case = Case::new(&[("blobs/0abc", 3 * MIB), ("blobs/1def", 10)]);
    fs::create_dir_all(case.from.join("snapshots/main")).unwrap();
    symlink("../../blobs/0abc", case.from.join("snapshots/main/model.bin")).unwrap();
    symlink("../../blobs/1def", case.from.join("snapshots/main/config.json")).unwrap();
    symlink("main", case.from.join("snapshots/latest")).unwrap();
    symlink("nowhere", case.from.join("dangling")).unwrap();
    case.object = Object::of(&case.from);
    case
}

#[test]
fn links_arrive_as_links() {
    let case = hub();
    case.assert_received();
    let through = fs::read(case.target("snapshots/latest/model.bin")).unwrap();
    assert!(through == noise(0, 3 * MIB));
    let before = fs::symlink_metadata(case.target("snapshots/latest")).unwrap().ino();
    assert_eq!(case.object.receive(&mut case.store()), Ok(0));
    assert_eq!(fs::symlink_metadata(case.target("snapshots/latest")).unwrap().ino(), before);
    case.assert_same();
}

#[test]
fn links_are_there_once_everything_is() {
    let case = hub();
    let mut store = case.opened();
    case.object.give(&mut store, &case.object.missing(&[])[9..]).unwrap();
    drop(store);
    assert!(!case.to.join("from").exists());
    case.assert_received();
}

#[test]
fn a_link_in_the_place_of_another_is_as_a_file_is() {
    let case = hub();
    fs::create_dir_all(case.target("snapshots")).unwrap();
    symlink("old", case.target("snapshots/latest")).unwrap();
    let want = "/from/snapshots/latest: is there already and differs";
    assert_fails(case.object.open(&mut case.store()), want);
    assert!(!case.to.join(".faircast").exists(), "nothing was begun");
    let overwrite = StoreOptions { overwrite: true, ..case.options() };
    assert_eq!(case.object.receive(&mut FilesStore::new(overwrite.clone())), Ok(0));
    assert_eq!(fs::read_link(case.target("snapshots/latest")).unwrap(), Path::new("main"));
    fs::remove_file(case.target("dangling")).unwrap();
    put(&case.target("dangling"), b"mine");
    let error = case.object.open(&mut FilesStore::new(overwrite.clone())).unwrap_err().reason;
    let want = "/from/dangling: a link is to be received, and something else";
    assert!(error.contains(want), "{error}");
    fs::remove_file(case.target("dangling")).unwrap();
    fs::remove_file(case.target("blobs/1def")).unwrap();
    symlink("0abc", case.target("blobs/1def")).unwrap();
    let want = "/from/blobs/1def: a file is to be received, and something";
    assert_fails(case.object.open(&mut FilesStore::new(overwrite)), want);
}

#[test]
fn what_appears_in_the_place_of_a_link_stays() {
    for overwrite in [false, true] {
        let case = hub();
        let mut store = FilesStore::new(StoreOptions { overwrite, ..case.options() });
        case.object.fill(&mut store).unwrap();
        fs::create_dir_all(case.target("snapshots")).unwrap();
        put(&case.target("snapshots/latest"), b"mine");
        let want = "/from/snapshots/latest: a link is to be received";
        assert_fails(case.object.verify(&mut store), want);
        assert_eq!(fs::read(case.target("snapshots/latest")).unwrap(), b"mine");
        fs::remove_file(case.target("snapshots/latest")).unwrap();
        symlink("main", case.target("snapshots/latest")).unwrap();
        drop(store);
        assert_eq!(case.object.receive(&mut case.store()), Ok(0));
        assert_eq!(tree(&case.target("blobs")), tree(&case.from.join("blobs")));
    }
}

#[test]
fn nothing_is_written_through_a_link_of_a_sender() {
    let place = tempfile::tempdir().unwrap();
    let elsewhere = place.path().join("elsewhere");
    let dir = place.path().join("dir");
    fs::create_dir(&elsewhere).unwrap();
    let good = Manifest::new(
        "n",
        vec![
            entry("a", Kind::Directory, 0o755),
            entry("a/link", Kind::Link { target: crate::manifest::boxed(b"../a") }, 0),
            entry("a/none", Kind::file(0), 0o644),
        ],
    );
    let good = good.unwrap().encode();
    let replace = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = good.windows(from.len()).position(|found| found == from.as_bytes()).unwrap();
        [&good[..at], to.as_bytes(), &good[at + from.len()..]].concat()
    };
    for (manifest, want) in [
        (replace("../a", "/etc"), "it is absolute"),
        (replace("../a", "../."), "it leads out of what is sent"),
        (replace("../a", "x/.."), "it goes back from something"),
        (replace("a/none", "link/x"), "is not in the list of files"),
    ] {
        let object = Object::of_manifest(manifest);
        assert_fails(object.open(&mut FilesStore::new(StoreOptions::new(&dir))), want);
        assert_eq!((tree(&elsewhere).len(), tree(&dir).len()), (0, 0));
    }
}
