//! Tests of failures: interruptions, obstacles, races, crafted objects, full disks.

use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::process::Command;
use std::time::Duration;

use faircast_proto::object::{Part, Store as _};

use super::*;
use crate::manifest::{Entry, Kind, Manifest};
use crate::testing::{SYMBOL, entry, tree, wait};

fn interrupt(case: &Case, share: usize) {
    let (mut store, found) = case.found();
    let missing = case.object.missing(&found);
    case.object.give(&mut store, &missing[..missing.len() * share / 100]).unwrap();
    drop(store);
}

#[test]
fn an_interrupted_transfer_goes_on_where_it_was() {
    let case = Case::new(&[("a", 20 * MIB), ("b", 10), ("c", 3 * MIB)]);
    interrupt(&case, 50);
    assert!(!case.target("a").exists());
    let (mut store, found) = case.found();
    assert_eq!(found, [0..11 << 20]);
    assert_eq!(store.handle().counts().bytes_found, 11 << 20);
    case.complete(&mut store, &found);
}

#[test]
fn content_in_pieces_of_two_bytes_with_gaps_between_them_arrives_all_the_same() {
    let case = Case::new(&[("a", 100_000)]);
    let mut store = case.opened();
    let content = case.object.content();
    for first in [0, 2] {
        for at in (first..content.len()).step_by(4) {
            let piece = &content[at..content.len().min(at + 2)];
            store.write(Part::Content, at as u64, piece, 0).unwrap();
        }
    }
    case.finish(&mut store);
}

#[test]
fn what_got_lost_on_the_disk_is_found_and_received_again() {
    type Damage = fn(&Path);
    let table: [(&str, Damage, u32); 8] = [
        ("page", |s| file(s, "0.part").write_all_at(&[0; 4096], 5 << 20).unwrap(), 1),
        ("cut off", |s| file(s, "0.part").set_len(3 << 20).unwrap(), 0),
        (
            "cut off and grown",
            |s| {
                file(s, "0.part").set_len(3 << 20).unwrap();
                file(s, "0.part").set_len(20 << 20).unwrap();
            },
            1,
        ),
        ("part gone", |s| fs::remove_file(s.join("0.part")).unwrap(), 0),
        (
            "part exchanged",
            |s| {
                fs::remove_file(s.join("0.part")).unwrap();
                symlink("/etc/passwd", s.join("0.part")).unwrap();
            },
            0,
        ),
        ("journal torn", |s| file(s, "journal").set_len(40).unwrap(), 0),
        ("journal garbled", |s| file(s, "journal").write_all_at(&[255; 30], 20).unwrap(), 0),
        ("journal gone", |s| fs::remove_file(s.join("journal")).unwrap(), 0),
    ];
    fn file(state: &Path, name: &str) -> fs::File {
        fs::File::options().write(true).open(state.join(name)).unwrap()
    }
    let passwd = fs::read("/etc/passwd").unwrap();
    for (name, damage, rounds) in table {
        let case = Case::new(&[("a", 20 * MIB)]);
        interrupt(&case, 60);
        damage(&case.state());
        assert_eq!(case.object.receive(&mut case.store()), Ok(rounds), "{name}");
        case.assert_same();
    }
    assert_eq!(passwd, fs::read("/etc/passwd").unwrap());
}

fn link(target: &str, at: &Path) {
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    symlink(target, at).unwrap();
}

#[test]
fn what_is_in_the_way_is_refused_by_its_name_before_anything_is_received() {
    type Obstacle = fn(&Case);
    let own = "/.faircast: must be a directory of your own";
    let table: [(&str, Obstacle, &str); 9] = [
        ("directory for file", |c| put(&c.target("d/f/x"), b"x"), "/from/d/f: a file"),
        ("file for directory", |c| put(&c.target("d"), b"x"), "/from/d: a directory"),
        ("link for file", |c| link("/etc/passwd", &c.target("d/f")), "/from/d/f: a file"),
        ("link for directory", |c| link("/tmp", &c.target("d")), "/from/d: a directory"),
        ("link for all", |c| link("/tmp", &c.to.join("from")), "/from: a directory"),
        ("link for state", |c| link("/tmp", &c.to.join(".faircast")), own),
        (
            "state of all",
            |c| {
                fs::create_dir_all(c.to.join(".faircast")).unwrap();
                crate::testing::chmod(&c.to.join(".faircast"), 0o777);
            },
            own,
        ),
        ("differs", |c| put(&c.target("d/f"), b"x"), "/from/d/f: is there already and differs"),
        ("file for all", |c| put(&c.to, b"x"), "/to: cannot be made"),
    ];
    for (name, obstacle, want) in table {
        for overwrite in [false, true] {
            if name == "differs" && overwrite {
                continue;
            }
            let case = Case::new(&[("d/f", 10), ("e", 5)]);
            obstacle(&case);
            let mut store = FilesStore::new(StoreOptions { overwrite, ..case.options() });
            let error = case.object.open(&mut store).expect_err(name).reason;
            assert!(error.contains(want), "{name}: {error}");
            assert!(store.write(Part::Content, 0, &[1], 0).is_err(), "{name}");
        }
    }
}

#[test]
fn a_link_that_appears_in_between_is_not_followed() {
    let case = Case::new(&[("d/f", 10), ("e", 5)]);
    let elsewhere = tempdir().unwrap();
    for link in ["from", "from/d"] {
        let _ = fs::remove_dir_all(&case.to);
        fs::create_dir_all(case.target("d")).unwrap();
        let mut store = FilesStore::new(StoreOptions { overwrite: true, ..case.options() });
        case.object.fill(&mut store).unwrap();
        fs::remove_dir_all(case.to.join(link)).unwrap();
        symlink(elsewhere.path(), case.to.join(link)).unwrap();
        assert_fails(case.object.verify(&mut store), "must be a directory and is something else");
        assert_eq!(tree(elsewhere.path()).len(), 0);
        drop(store);
        fs::remove_file(case.to.join(link)).unwrap();
        case.assert_received();
    }
}

#[test]
fn a_file_that_appears_in_between_is_not_replaced() {
    let case = Case::new(&[("d/f", 10), ("e", 5)]);
    let mut store = case.store();
    case.object.fill(&mut store).unwrap();
    put(&case.target("e"), b"mine");
    assert_fails(case.object.verify(&mut store), "/from/e: has appeared");
    assert_eq!(fs::read(case.target("e")).unwrap(), b"mine");
    drop(store);
    fs::remove_file(case.target("e")).unwrap();
    assert_eq!(case.object.open(&mut case.store()), Ok(vec![0..15]));
    assert_eq!(case.object.receive(&mut case.store()), Ok(0));
    assert_eq!(fs::read(case.target("f").with_file_name("d/f")).unwrap(), noise(0, 10));
}

#[test]
fn a_file_that_changes_while_it_is_compared_is_an_error() {
    let case = Case::new(&[("a", 10), ("b", 5)]);
    case.object.receive(&mut case.store()).unwrap();
    let mut store = case.opened();
    // Time for the hash; then another file with the same name, size and time.
    std::thread::sleep(Duration::from_millis(100));
    fs::remove_file(case.target("a")).unwrap();
    put(&case.target("a"), &noise(9, 10));
    assert_fails(case.object.verify(&mut store), "/from/a: was changed");
}

#[test]
fn only_one_receives_an_object_into_a_directory() {
    let case = Case::new(&[("a", 10)]);
    let other = Case::new(&[("b", 20)]);
    let mut first = case.store();
    case.object.open(&mut first).unwrap();
    let want = "another faircast is receiving the same object";
    assert_fails(case.object.open(&mut case.store()), want);
    let mut second = FilesStore::new(case.options());
    let renamed = other.object.receive(&mut second);
    assert_eq!(renamed, Ok(0));
    case.object.give(&mut first, &case.object.missing(&[])).unwrap();
    assert_eq!(case.object.verify(&mut first), Ok(0));
    assert!(!case.to.join(".faircast").exists());
}

fn crafted(entries: Vec<Entry>) -> Object {
    let manifest = Manifest::new("crafted", entries).unwrap();
    let mut crafted = Object::of_manifest(manifest.encode());
    crafted.announcement.lens[1] = manifest.content_bytes();
    crafted.announcement.lens[2] =
        manifest.entries().iter().map(|e| e.size().div_ceil(1 << 20) * 32).sum();
    crafted
}

#[test]
fn what_has_no_room_is_refused_at_once() {
    let to = tempdir().unwrap();
    let object = crafted(vec![entry("huge", Kind::file(60 << 40), 0o644)]);
    let error = object.open(&mut FilesStore::new(StoreOptions::new(to.path()))).unwrap_err().reason;
    let wants = ["its file system has room for", "has no files that large"];
    assert!(wants.iter().any(|want| error.contains(want)), "{error}");
    assert_eq!(tree(to.path()).len(), 0);
}

#[test]
fn what_a_source_announces_must_fit_together() {
    type Lie = fn(&mut Object);
    let table: [(&str, Lie, &str); 7] = [
        ("manifest size", |o| o.announcement.lens[0] = u64::MAX, "its list of files has"),
        ("content size", |o| o.announcement.lens[1] = u64::MAX, "it announces"),
        ("digests size", |o| o.announcement.lens[2] = u64::MAX - 31, "it announces"),
        ("content", |o| o.announcement.lens[1] += 1, "its list of files makes"),
        ("digests", |o| o.announcement.lens[2] += 32, "its list of files makes"),
        ("object", |o| o.announcement.object[0] ^= 1, "is not the one it announced"),
        (
            "manifest",
            |o| {
                o.parts[0].fill(1);
                o.announcement.object = blake3::hash(&o.parts[0]).into();
            },
            "no list of files",
        ),
    ];
    for (name, lie, want) in table {
        let mut case = Case::new(&[("a", 10)]);
        lie(&mut case.object);
        let error = case.object.open(&mut case.store()).expect_err(name).reason;
        assert!(error.contains(want), "{name}: {error}");
    }
    let mut case = Case::new(&[("a", 10)]);
    case.object.announcement.digests = Some([1; 32]);
    assert_fails(case.object.receive(&mut case.store()), "the digests are not the ones");
    let case = Case::new(&[("a", 10)]);
    let mut store = case.opened();
    for part in Part::ALL {
        let end = case.object.announcement.len(part);
        let wrote = store.write(part, end, &[1], 0).is_err();
        assert_eq!(wrote, part != Part::Manifest, "{part:?}");
        assert!(store.write(part, u64::MAX, &[1], 0).is_err() == wrote, "{part:?}");
        assert!(store.read(part, end, 1, &mut Vec::new()).is_err(), "{part:?}");
        assert!(store.read(part, u64::MAX, 1, &mut Vec::new()).is_err(), "{part:?}");
    }
    let mut other = case.object.announcement;
    other.object[3] ^= 1;
    assert!(store.begin(&other).is_err());
    assert!(store.begin(&case.object.announcement).is_ok());
}

#[test]
fn a_source_whose_content_never_fits_its_digests_is_given_up() {
    let mut case = Case::new(&[("a", 10)]);
    case.object.parts[1][3] ^= 1;
    assert_fails(case.object.receive(&mut case.store()), "does not become what its digests say");
    assert!(!case.target("a").exists());
}

#[test]
fn a_symbol_that_is_damaged_is_received_again_and_no_neighbour_suffers() {
    let mut case = Case::new(&[("a", 3 * MIB)]);
    let mut store = case.opened();
    case.object.parts[1][MIB + 50_000] ^= 1;
    case.object.give(&mut store, &case.object.missing(&[])).unwrap();
    case.object.parts[1][MIB + 50_000] ^= 1;
    // The repeated symbols overlap the groups beside, with wrong bytes this time.
    case.object.give_digests(&mut store).unwrap();
    let verdict = wait(|| store.verify()).unwrap();
    let second = MIB as u64..2 * MIB as u64;
    assert_eq!(verdict, faircast_proto::object::Verdict::Damaged(vec![second.clone()]));
    let symbols = case.object.touching(&[second]);
    assert!(symbols[0].start < MIB as u64);
    let inside = case.object.parts[1][MIB - 1];
    case.object.parts[1][MIB - 1] ^= 1;
    case.object.give(&mut store, &symbols).unwrap();
    case.object.parts[1][MIB - 1] = inside;
    case.finish(&mut store);
}

#[test]
fn a_disk_that_gets_full_stops_it_and_room_lets_it_go_on() {
    let mut case = Case::new(&[("a", 6 * MIB)]);
    let disk = tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=9m", "tmpfs"])
        .arg(disk.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return;
    }
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let _unmount = Unmount(disk.path());
    case.to = disk.path().join("to");
    let mut store = case.opened();
    fs::write(disk.path().join("other"), vec![1; 5 * MIB]).unwrap();
    let given = case.object.give(&mut store, &case.object.missing(&[]));
    let error = given.and_then(|()| case.object.verify(&mut store)).unwrap_err().reason;
    assert!(error.contains("/from/a: cannot be written") && error.contains("make room"), "{error}");
    drop(store);
    fs::remove_file(disk.path().join("other")).unwrap();
    let (mut store, found) = case.found();
    assert!(found[0].end >= 2 << 20, "{found:?}");
    case.complete(&mut store, &found);
}

#[test]
fn what_is_left_over_is_cleaned_unless_it_is_in_use_or_young() {
    let clean = |dir: &Path, age| {
        let mut removed = Vec::new();
        crate::clean(dir, age, &mut removed).map(|()| removed)
    };
    let case = Case::new(&[("a", 2 * MIB)]);
    interrupt(&case, 60);
    let month = Duration::from_secs(30 * 86_400);
    assert_eq!(clean(&case.to, month).unwrap(), Vec::<PathBuf>::new());
    let mut store = case.store();
    assert_eq!(case.object.open(&mut store).unwrap(), [0..1 << 20]);
    assert_eq!(clean(&case.to, Duration::ZERO).unwrap(), Vec::<PathBuf>::new());
    drop(store);
    assert_eq!(clean(&case.to, Duration::ZERO).unwrap(), [case.state()]);
    assert!(!case.to.join(".faircast").exists());
    assert_eq!(clean(&case.to, Duration::ZERO).unwrap(), Vec::<PathBuf>::new());
    let mut store = FilesStore::new(StoreOptions { keep_partial: false, ..case.options() });
    case.object.open(&mut store).unwrap();
    case.object.give(&mut store, &case.object.missing(&[0..SYMBOL])).unwrap();
    drop(store);
    assert!(!case.to.join(".faircast").exists());
}

#[test]
fn a_folder_keeps_the_identity_of_its_receiver_until_the_object_is_done_or_discarded() {
    let case = Case::new(&[("a", 2 * MIB)]);
    let open = || {
        let (store, found) = case.found();
        let identity = store.identity().expect("it is open");
        (store, found, identity)
    };
    let (mut store, _, first) = open();
    case.object.give(&mut store, &case.object.missing(&[0..SYMBOL])).unwrap();
    store.kill();
    let (store, _, again) = open();
    assert_eq!(again, first, "after a kill");
    drop(store);
    let (mut store, ..) = open();
    store.discard();
    assert!(!case.to.join(".faircast").exists(), "discarded while the store is still there");
    drop(store);
    let (mut store, found, other) = open();
    assert!(found.is_empty() && other != first, "{found:?}");
    case.object.give(&mut store, &case.object.missing(&[])).unwrap();
    assert_eq!(case.object.verify(&mut store), Ok(0));
    assert!(!case.to.join(".faircast").exists(), "done");
    case.assert_same();
}

#[test]
fn what_was_cleaned_before_an_error_is_reported() {
    let case = Case::new(&[("a", MIB)]);
    let mut store = case.store();
    case.object.fill(&mut store).unwrap();
    drop(store);
    for name in ["0000000000000000", "ffffffffffffffff"] {
        fs::create_dir_all(case.to.join(".faircast").join(name).join("in the way")).unwrap();
    }
    let mut removed = Vec::new();
    assert_fails(crate::clean(&case.to, Duration::ZERO, &mut removed), "cannot be removed");
    assert_eq!(removed, [case.state()]);
}
