//! Tests of received owners, ACLs and extended attributes.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, lchown, symlink};

use rustix::fs::XattrFlags;

use super::*;
use crate::supply::ScanOptions;
use crate::testing::{as_user, chmod};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const UID: u32 = 3_141_592;
const GID: u32 = 2_718_281;

fn case(options: &ScanOptions) -> Case {
    let mut case = Case::new(&[("d/a", 10), ("d/b", 20), ("sealed", 5)]);
    symlink("d/a", case.from.join("link")).unwrap();
    if is_root() {
        chown(case.from.join("d"), Some(UID), Some(0)).unwrap();
        chown(case.from.join("d/a"), Some(UID), Some(GID)).unwrap();
        lchown(case.from.join("link"), Some(0), Some(GID)).unwrap();
    }
    chmod(&case.from.join("sealed"), 0o400);
    case.object = Object::with(&case.from, options);
    case
}

fn owners(root: &Path) -> Vec<(u32, u32)> {
    let paths = ["d", "d/a", "d/b", "link"];
    let stat = |path| fs::symlink_metadata(root.join(path)).unwrap();
    paths.map(stat).iter().map(|stat| (stat.uid(), stat.gid())).collect()
}

#[test]
fn owners_arrive_where_both_sides_want_them() {
    if !is_root() {
        return;
    }
    for (sent, wanted) in [(false, true), (true, false), (true, true)] {
        let case = case(&ScanOptions { owner: sent, ..ScanOptions::default() });
        let options = StoreOptions { owner: wanted, ..case.options() };
        assert_eq!(case.object.receive(&mut FilesStore::new(options.clone())), Ok(0));
        case.assert_same();
        let got = owners(&case.target(""));
        let want = match sent && wanted {
            true => vec![(UID, 0), (UID, GID), (0, 0), (0, GID)],
            false => vec![(0, 0); 4],
        };
        assert_eq!(got, want, "sent {sent}, wanted {wanted}");
        chown(case.target("d/a"), Some(7), Some(7)).unwrap();
        assert_eq!(case.object.receive(&mut FilesStore::new(options)), Ok(0));
        let owner = fs::metadata(case.target("d/a")).unwrap().uid();
        assert_eq!(owner, if sent && wanted { UID } else { 7 });
    }
}

#[test]
fn names_of_users_count_more_than_numbers() {
    use std::sync::Arc;

    use crate::manifest::{Entry, Kind, Manifest, Owner};
    let Ok(Some(nobody)) = nix::unistd::User::from_name("nobody") else { return };
    if !is_root() {
        return;
    }
    let to = tempfile::tempdir().unwrap();
    let owner = |uid, user: &str| {
        Some(Arc::new(Owner { uid, gid: 0, user: user.into(), group: "".into() }))
    };
    let entry =
        |path: &str, owner| Entry { owner, ..crate::testing::entry(path, Kind::file(0), 0o644) };
    let manifest = Manifest::new(
        "n",
        vec![
            entry("a", owner(UID, "nobody")),
            entry("b", owner(UID, "who has never been")),
            entry("c", owner(0, "nobody")),
        ],
    );
    let object = Object::of_manifest(manifest.unwrap().encode());
    let options = StoreOptions { owner: true, ..StoreOptions::new(to.path()) };
    assert_eq!(object.receive(&mut FilesStore::new(options)), Ok(0));
    let uids = ["a", "b", "c"].map(|path| fs::metadata(to.path().join(path)).unwrap().uid());
    assert_eq!(uids, [nobody.uid.as_raw(), UID, 0]);
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1000];
    let len = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// Returns `user::rw-, user:4242:r--, group::r--, mask::r--, other::---`, as in Linux.
fn acl() -> Vec<u8> {
    let (mut acl, all) = (vec![2, 0, 0, 0], u32::MAX);
    let entries = [(1u16, 6u16, all), (2, 4, 4242), (4, 4, all), (16, 4, all), (32, 0, all)];
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

#[test]
fn extended_attributes_arrive_where_both_sides_want_them() {
    let place = tempfile::tempdir().unwrap();
    let probe = place.path().join("probe");
    fs::write(&probe, b"").unwrap();
    if !set(&probe, "user.x", b"1") {
        return;
    }
    let acls = set(&probe, "system.posix_acl_access", &acl());
    for (sent, wanted) in [(false, true), (true, false), (true, true)] {
        let options = ScanOptions { xattrs: sent, ..ScanOptions::default() };
        let mut case = case(&options);
        assert!(set(&case.from.join("d"), "user.of a directory", b"yes"));
        assert!(set(&case.from.join("d/a"), "user.empty", b""));
        assert!(set(&case.from.join("d/a"), "user.full", &[7; 900]));
        chmod(&case.from.join("sealed"), 0o600);
        assert!(set(&case.from.join("sealed"), "user.x", b"1"));
        chmod(&case.from.join("sealed"), 0o400);
        if acls {
            assert!(set(&case.from.join("d/b"), "system.posix_acl_access", &acl()));
        }
        // File capabilities are never sent: this one allows to bind ports below 1024.
        let rights = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        set(&case.from.join("d/a"), "security.capability", &rights);
        case.object = Object::with(&case.from, &options);
        let options = StoreOptions { xattrs: wanted, ..case.options() };
        for _ in 0..2 {
            assert_eq!(case.object.receive(&mut FilesStore::new(options.clone())), Ok(0));
            case.assert_same();
            let both = sent && wanted;
            let got = [
                get(&case.target("d"), "user.of a directory"),
                get(&case.target("d/a"), "user.empty"),
                get(&case.target("d/a"), "user.full"),
                get(&case.target("sealed"), "user.x"),
                get(&case.target("d/b"), "system.posix_acl_access").filter(|_| acls),
                get(&case.target("d/a"), "security.capability"),
            ];
            let want = [
                both.then(|| b"yes".to_vec()),
                both.then(Vec::new),
                both.then(|| vec![7; 900]),
                both.then(|| b"1".to_vec()),
                (both && acls).then(acl),
                None,
            ];
            assert_eq!(got, want, "sent {sent}, wanted {wanted}");
        }
    }
}

#[test]
fn a_default_access_control_list_of_a_directory_arrives() {
    const DEFAULT: &str = "system.posix_acl_default";
    let options = ScanOptions { xattrs: true, ..ScanOptions::default() };
    let mut case = case(&options);
    if !set(&case.from.join("d"), DEFAULT, &acl()) {
        println!("passed over: the file system has no access control lists");
        return;
    }
    case.object = Object::with(&case.from, &options);
    let options = StoreOptions { xattrs: true, ..case.options() };
    assert_eq!(case.object.receive(&mut FilesStore::new(options)), Ok(0));
    assert_eq!(get(&case.target("d"), DEFAULT), Some(acl()));
}

#[test]
fn attributes_of_files_that_are_there_are_changed_where_that_is_allowed_and_else_refused_at_once() {
    let options = ScanOptions { xattrs: true, ..ScanOptions::default() };
    let mut case = Case::new(&[("a", 10)]);
    if !is_root() || !set(&case.from.join("a"), "user.x", b"1") {
        println!("passed over: without root or extended attributes");
        return;
    }
    chmod(case.from.parent().unwrap(), 0o777);
    for (mode, had, fits) in [(0o666, "", true), (0o644, "2", false), (0o644, "1", true)] {
        chmod(&case.from.join("a"), mode);
        case.object = Object::with(&case.from, &options);
        put(&case.target("a"), &noise(0, 10));
        chmod(&case.target("a"), mode);
        if !had.is_empty() {
            assert!(set(&case.target("a"), "user.x", had.as_bytes()));
        }
        chmod(&case.to, 0o777);
        chmod(&case.to.join("from"), 0o777);
        let options = StoreOptions { xattrs: true, ..case.options() };
        let opened = as_user(|| {
            let opened = case.object.open(&mut FilesStore::new(options.clone()));
            if opened.is_ok() {
                assert_eq!(case.object.receive(&mut FilesStore::new(options)), Ok(0));
            }
            opened
        });
        assert_eq!(opened.is_ok(), fits, "{mode:o} {had} {opened:?}");
        let now = if fits { b"1" } else { b"2" };
        assert_eq!(get(&case.target("a"), "user.x"), Some(now.to_vec()), "{mode:o} {had}");
        fs::remove_dir_all(&case.to).unwrap();
    }
    chmod(&case.from.join("a"), 0o400);
    for value in [b"1", b"2"] {
        assert!(set(&case.from.join("a"), "user.x", value));
        case.object = Object::with(&case.from, &options);
        let options = StoreOptions { xattrs: true, ..case.options() };
        let received = as_user(|| case.object.receive(&mut FilesStore::new(options)));
        assert_eq!(received, Ok(0));
        assert_eq!(get(&case.target("a"), "user.x"), Some(value.to_vec()));
    }
    assert_eq!(fs::metadata(case.target("a")).unwrap().mode() & 0o777, 0o400);
}
