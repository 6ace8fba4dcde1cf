//! Tests of limited target file systems: simulated FAT, and others that this machine can mount.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;

use super::super::abilities::Calls;
use super::*;
use crate::store::StoreHandle;
use crate::testing::{as_user, chmod, touch, tree};

fn on_fat(case: &Case) -> FilesStore {
    FilesStore::new(StoreOptions { calls: Calls { fat: true }, ..case.options() })
}

fn left_out(handle: &StoreHandle) -> String {
    handle.left_out().map(|(lines, reason)| lines.join("; ") + ": " + &reason).unwrap_or_default()
}

#[test]
fn on_fat_times_and_modes_are_as_near_as_can_be_and_nothing_comes_twice() {
    let mut case = Case::new(&[("d/a", 2 * MIB + 5), ("b", 10), ("old", 7)]);
    chmod(&case.from.join("b"), 0o755);
    // Before 1980, where FAT's times begin.
    touch(&case.from.join("old"), 1000);
    case.object = Object::of(&case.from);
    let handle = case.receive(on_fat(&case));
    assert_eq!(fs::read(case.target("d/a")).unwrap(), noise(0, 2 * MIB + 5));
    let stat = fs::metadata(case.target("old")).unwrap();
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (315_532_800, 0));
    assert!(handle.remarks()[0].contains("another mode"), "{:?}", handle.remarks());
    assert_eq!(handle.left_out(), None);
    let len = case.object.content().len() as u64;
    let mut store = on_fat(&case);
    assert_eq!(case.object.open(&mut store), Ok(vec![0..len]));
    assert_eq!(case.object.verify(&mut store), Ok(0));
}

#[test]
fn names_and_links_that_fat_has_not_are_left_out_and_all_else_arrives() {
    let mut case = Case::new(&[("good", 5), ("c:/in", 3), ("dot.", 4), ("by\\x2did", 6)]);
    put(&case.from.join(OsStr::from_bytes(b"no\xffutf8")), b"x");
    symlink("good", case.from.join("link")).unwrap();
    fs::hard_link(case.from.join("good"), case.from.join("second")).unwrap();
    fs::hard_link(case.from.join("dot."), case.from.join("named")).unwrap();
    case.object = Object::of(&case.from);
    let handle = case.receive(on_fat(&case));
    let there: Vec<String> = tree(&case.to).into_keys().collect();
    assert_eq!(there, ["from", "from/good", "from/named", "from/second"]);
    assert_eq!(fs::read(case.target("second")).unwrap(), noise(0, 5));
    assert_eq!(fs::read(case.target("named")).unwrap(), noise(2, 4));
    let said = left_out(&handle);
    for want in
        ["c: (", "dot. (", "by\\x2did (", "no\\xffutf8 (", "link (its file system has no sym"]
    {
        assert!(said.contains(want), "{want}: {said}");
    }
    assert!(
        said.ends_with("left out 4 files, 1 link, 1 folder, which its file system cannot hold")
    );
    assert!(handle.remarks()[0].contains("2 hard links are copies"), "{:?}", handle.remarks());
    fs::remove_dir_all(&case.to).unwrap();
    let handle = case.receive(case.store());
    case.assert_same();
    assert_eq!(handle.left_out(), None);
    let inode = |name: &str| fs::metadata(case.target(name)).unwrap().ino();
    assert_eq!(inode("good"), inode("second"));
    assert_eq!(inode("dot."), inode("named"));
}

#[test]
fn hard_links_replace_equal_copies_and_nothing_else() {
    let mut case = Case::new(&[("a", 10)]);
    fs::hard_link(case.from.join("a"), case.from.join("b")).unwrap();
    case.object = Object::of(&case.from);
    put(&case.target("b"), &noise(0, 10));
    assert_eq!(case.object.receive(&mut case.store()), Ok(0));
    let inode = |name: &str| fs::metadata(case.target(name)).unwrap().ino();
    assert_eq!(inode("a"), inode("b"));
    let len = case.object.content().len() as u64;
    assert_eq!(case.object.open(&mut case.store()), Ok(vec![0..len]));
    crate::testing::tamper(&case.target("a"), b"damage", 2);
    assert_eq!(case.object.receive(&mut case.store()), Ok(1));
    assert_eq!(inode("a"), inode("b"));
    assert_eq!(fs::read(case.target("b")).unwrap(), noise(0, 10));
    fs::remove_file(case.target("b")).unwrap();
    put(&case.target("b"), &noise(9, 10));
    assert_fails(case.object.receive(&mut case.store()), "/b: is there already and differs");
    assert_eq!(fs::read(case.target("b")).unwrap(), noise(9, 10));
}

fn read_only() -> Case {
    let mut case = Case::new(&[("d/e/a", 10), ("d/b", 10)]);
    fs::hard_link(case.from.join("d/b"), case.from.join("d/e/c")).unwrap();
    seal(&mut case);
    assert_eq!(case.object.receive(&mut case.store()), Ok(0));
    case
}

fn seal(case: &mut Case) {
    for directory in ["d/e", "d"] {
        chmod(&case.from.join(directory), 0o555);
    }
    case.object = Object::of(&case.from);
}

fn change(case: &mut Case) {
    for directory in ["d", "d/e"] {
        chmod(&case.from.join(directory), 0o755);
    }
    put(&case.from.join("d/e/a"), &noise(7, 11));
    put(&case.from.join("d/new"), &noise(8, 12));
    seal(case);
}

fn open_up(case: &Case) {
    for directory in ["d", "d/e"] {
        assert_eq!(fs::metadata(case.target(directory)).unwrap().mode() & 0o7777, 0o555);
        for root in [&case.to.join("from"), &case.from] {
            chmod(&root.join(directory), 0o755);
        }
    }
}

fn cut_off_wide(case: &Case, options: StoreOptions) {
    let mut store = FilesStore::new(options);
    case.object.fill(&mut store).unwrap();
    drop(store);
    let modes = [&[0o555u16.to_be_bytes(), 6u16.to_be_bytes()].concat()[..], b"from/d"].concat();
    fs::write(case.state().join("modes"), modes).unwrap();
    chmod(&case.target("d"), 0o755);
}

#[test]
fn a_read_only_directory_of_this_user_is_updated_and_stays_read_only() {
    as_user(|| {
        let mut case = read_only();
        change(&mut case);
        let options = StoreOptions { overwrite: true, ..case.options() };
        cut_off_wide(&case, options.clone());
        chmod(&case.target("d/e"), 0o755);
        fs::remove_file(case.target("d/e/a")).unwrap();
        fs::create_dir(case.target("d/e/a")).unwrap();
        fs::write(case.target("d/e/a/in the way"), b"").unwrap();
        chmod(&case.target("d/e"), 0o555);
        let mut store = FilesStore::new(options.clone());
        assert!(case.object.receive(&mut store).is_err());
        drop(store);
        assert_eq!(fs::metadata(case.target("d")).unwrap().mode() & 0o7777, 0o555);
        chmod(&case.target("d/e"), 0o755);
        fs::remove_dir_all(case.target("d/e/a")).unwrap();
        chmod(&case.target("d/e"), 0o555);
        assert_eq!(case.object.receive(&mut FilesStore::new(options)), Ok(0));
        assert_eq!(fs::read(case.target("d/e/a")).unwrap(), noise(7, 11));
        assert_eq!(fs::read(case.target("d/new")).unwrap(), noise(8, 12));
        open_up(&case);
    });
}

#[test]
fn a_damaged_file_in_a_read_only_directory_is_repaired_under_all_its_names() {
    as_user(|| {
        let case = read_only();
        for (damaged, named) in [("d/e/a", "d/e/a"), ("d/b", "d/e/c")] {
            crate::testing::tamper(&case.target(damaged), b"damage", 2);
            assert_eq!(case.object.receive(&mut case.store()), Ok(1), "{damaged}");
            let [here, sent] = [case.target(named), case.from.join(named)].map(fs::read);
            assert_eq!(here.unwrap(), sent.unwrap());
        }
        open_up(&case);
    });
}

#[test]
fn modes_of_a_cut_run_are_restored_by_a_newer_version_and_by_clean() {
    as_user(|| {
        for newer in [true, false] {
            let mut case = read_only();
            change(&mut case);
            let options = StoreOptions { overwrite: true, ..case.options() };
            cut_off_wide(&case, options.clone());
            if newer {
                chmod(&case.from.join("d"), 0o755);
                put(&case.from.join("d/newer"), &noise(9, 13));
                seal(&mut case);
                assert_eq!(case.object.receive(&mut FilesStore::new(options)), Ok(0));
                assert_eq!(fs::read(case.target("d/newer")).unwrap(), noise(9, 13));
            } else {
                super::super::clean(&case.to, std::time::Duration::ZERO, &mut Vec::new()).unwrap();
            }
            assert!(!case.to.join(".faircast").exists());
            open_up(&case);
        }
    });
}

#[test]
fn a_file_of_other_content_with_a_rounded_time_is_not_replaced() {
    let case = Case::new(&[("a", 10), ("b", 10)]);
    let round = |path: &str, bytes: &[u8]| {
        put(&case.target(path), bytes);
        let time =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_010);
        fs::File::open(case.target(path)).unwrap().set_modified(time).unwrap();
    };
    round("a", &noise(9, 10));
    round("b", &noise(1, 10));
    assert_fails(case.object.receive(&mut case.store()), "/a: is there already and differs");
    assert_eq!(fs::read(case.target("a")).unwrap(), noise(9, 10));
    round("a", &noise(0, 10));
    assert_eq!(case.object.receive(&mut case.store()), Ok(0));
    round("a", &noise(9, 10));
    let options = StoreOptions { overwrite: true, ..case.options() };
    assert_eq!(case.object.receive(&mut FilesStore::new(options)), Ok(1));
    assert_eq!(fs::read(case.target("a")).unwrap(), noise(0, 10));
}

#[test]
fn a_further_name_of_a_file_that_cannot_be_read_is_made() {
    if !rustix::process::geteuid().is_root() {
        println!("passed over: no other user can read the file");
        return;
    }
    let mut case = Case::new(&[("a", 10)]);
    fs::hard_link(case.from.join("a"), case.from.join("b")).unwrap();
    chmod(&case.from.join("a"), 0o200);
    case.object = Object::of(&case.from);
    chmod(case.from.parent().unwrap(), 0o777);
    as_user(|| assert_eq!(case.object.receive(&mut case.store()), Ok(0)));
    case.assert_same();
    let stat = |name: &str| fs::metadata(case.target(name)).unwrap();
    assert_eq!(stat("a").ino(), stat("b").ino());
    assert_eq!(stat("a").uid(), 65_534);
}

fn run(command: &str, arguments: &[&OsStr]) -> bool {
    Command::new(command).args(arguments).output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_file_that_cannot_be_replaced_is_refused_before_anything_is_received() {
    for (set, unset, want) in [("+i", "-i", "immutable"), ("+a", "-a", "append-only")] {
        let case = Case::new(&[("a", 10), ("b", 10)]);
        put(&case.target("b"), b"other");
        let target = case.target("b");
        if !run("chattr", &[set.as_ref(), target.as_os_str()]) {
            println!("passed over: no file can be made {want} here");
            continue;
        }
        let options = StoreOptions { overwrite: true, ..case.options() };
        let error = case.object.open(&mut FilesStore::new(options)).unwrap_err().reason;
        run("chattr", &[unset.as_ref(), target.as_os_str()]);
        assert!(error.contains("/b: ") && error.contains(want), "{error}");
    }
    let case = Case::new(&[("a", 10), ("b", 11)]);
    put(&case.target("b"), b"other");
    let (target, from) = (case.target("b"), case.from.join("a"));
    if !run("mount", &["--bind".as_ref(), from.as_os_str(), target.as_os_str()]) {
        println!("passed over: nothing can be mounted here");
        return;
    }
    let options = StoreOptions { overwrite: true, ..case.options() };
    let opened = case.object.open(&mut FilesStore::new(options));
    run("umount", &[target.as_os_str()]);
    assert_fails(opened, "/b: is a mount point");
}

fn on_mounted(make: &[&str], mount: &str, looped: bool) {
    let mut case = Case::new(&[("d/a", MIB + 5), ("b", 10)]);
    chmod(&case.from.join("b"), 0o777);
    case.object = Object::of(&case.from);
    let image = case.from.with_file_name("image");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    fs::create_dir(&case.to).unwrap();
    let words: Vec<&OsStr> = make[1..].iter().map(OsStr::new).chain([image.as_os_str()]).collect();
    let made = run(make[0], &words);
    let device = match looped {
        true => Command::new("losetup").args(["-f", "--show"]).arg(&image).output().ok(),
        false => None,
    };
    let device = device.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    let from = device.as_ref().map_or(image.as_os_str(), OsStr::new);
    let mounted = made && run(mount, &[from, case.to.as_os_str()]);
    // The loop device ends with its last user.
    let detach = || device.as_ref().is_some_and(|it| run("losetup", &["-d".as_ref(), it.as_ref()]));
    if !mounted {
        detach();
        println!("passed over: {mount} is not here, or cannot mount");
        return;
    }
    let received = case.object.receive(&mut case.store());
    let mut store = case.store();
    let found = case.object.open(&mut store);
    let verified = case.object.verify(&mut store);
    let content = fs::read(case.target("d/a")).ok();
    drop(store);
    run("umount", &[case.to.as_os_str()]);
    detach();
    assert_eq!(received, Ok(0), "{mount}");
    assert_eq!(found, Ok(vec![0..(MIB + 15) as u64]), "{mount}");
    assert_eq!(verified, Ok(0), "{mount}");
    assert_eq!(content, Some(noise(0, MIB + 5)), "{mount}");
}

#[test]
fn ntfs_and_exfat_take_an_object_and_find_it_again() {
    on_mounted(&["mkfs.ntfs", "-F", "-Q"], "ntfs-3g", false);
    on_mounted(&["mkfs.exfat"], "mount.exfat-fuse", true);
}
