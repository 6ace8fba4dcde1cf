//! Helpers for the tests of both ends: manifests, objects, sparse files, trees.

mod object;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

pub(crate) use self::object::{Object, SYMBOL, digests, noise, wait};
use crate::layout::Layout;
use crate::manifest::{Entry, Hole, Kind, Manifest, Mtime};
use crate::supply::{FilesSupply, Scan, ScanOptions};

pub(crate) fn layout(files: &[(u64, Vec<Hole>)]) -> Layout {
    let entries = files.iter().enumerate().map(|(i, (size, holes))| {
        entry(&format!("{i:03}"), Kind::File { size: *size, holes: holes.as_slice().into() }, 0)
    });
    Layout::new(Manifest::new("files", entries.collect()).unwrap())
}

pub(crate) fn holes(groups: &[bool]) -> Vec<Hole> {
    let mut holes: Vec<Hole> = Vec::new();
    for (first, _) in (0..).zip(groups).filter(|(_, hole)| **hole) {
        match holes.last_mut() {
            Some(last) if last.end() == first => last.groups += 1,
            _ => holes.push(Hole { first, groups: 1 }),
        }
    }
    holes
}

impl Object {
    pub(crate) fn of(path: &Path) -> Self {
        Self::with(path, &ScanOptions::default())
    }

    pub(crate) fn with(path: &Path, options: &ScanOptions) -> Self {
        Self::read(&mut FilesSupply::new(Scan::new(&[path], options).unwrap()).unwrap())
    }
}

#[track_caller]
pub(crate) fn assert_fails<T, E: std::fmt::Display>(result: Result<T, E>, want: &str) {
    let error = result.err().expect("a failure").to_string();
    assert!(error.contains(want), "{error}");
}

pub(crate) fn entry(path: &str, kind: Kind, mode: u16) -> Entry {
    Entry::new(path, kind, mode, Mtime { seconds: 0, nanos: 0 })
}

pub(crate) fn tamper(path: &Path, bytes: &[u8], at: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.set_modified(time).unwrap();
}

pub(crate) fn sparse(path: &Path, len: u64, writes: &[(u64, usize)]) {
    put(path, b"");
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
    for (at, len) in writes {
        file.write_all_at(&noise(*at, *len), *at).unwrap();
    }
    file.sync_all().unwrap();
    touch(path, 1_500_000_000);
}

pub(crate) fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    touch(path, 1_600_000_000 + bytes.len() as u64);
}

pub(crate) fn touch(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs `work` as a user without rights on other users' files, if this user is root.
pub(crate) fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        if rustix::process::geteuid().is_root() {
            // Linux has user ids per thread, inherited by new threads.
            rustix::thread::set_thread_res_uid(None, rustix::process::Uid::from_raw(65_534), None)
                .unwrap();
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

pub(crate) type Tree = BTreeMap<String, (u32, i64, i64, Option<blake3::Hash>)>;

pub(crate) fn tree(root: &Path) -> Tree {
    let mut all = Tree::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(at) = open.pop() {
        for found in fs::read_dir(&at).unwrap() {
            let path = found.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let hash = if metadata.is_symlink() {
                Some(blake3::hash(fs::read_link(&path).unwrap().as_os_str().as_encoded_bytes()))
            } else {
                metadata.is_file().then(|| blake3::hash(&fs::read(&path).unwrap()))
            };
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            let facts = (metadata.mode() & 0o7777, metadata.mtime(), metadata.mtime_nsec(), hash);
            all.insert(name, facts);
            if metadata.is_dir() {
                open.push(path);
            }
        }
    }
    all
}
