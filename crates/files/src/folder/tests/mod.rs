//! Tests of receiving: `plain` for success, `trouble` for failures, `random` for both.

#![expect(clippy::single_range_in_vec_init, reason = "ranges of content are often one")]

mod attributes;
mod holes;
mod links;
mod plain;
mod random;
mod reuse;
mod target;
mod trouble;

use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use tempfile::{TempDir, tempdir};

use super::{FilesStore, StoreOptions};
use crate::store::StoreHandle;
use crate::testing::{Object, assert_fails, noise, put};

struct Case {
    _root: TempDir,
    from: PathBuf,
    to: PathBuf,
    object: Object,
}

impl Case {
    fn new(files: &[(&str, usize)]) -> Self {
        let root = tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        for (i, (path, len)) in files.iter().enumerate() {
            put(&from.join(path), &noise(i as u64, *len));
        }
        let object = Object::of(&from);
        Self { _root: root, from, to, object }
    }

    fn options(&self) -> StoreOptions {
        let source = Some(IpAddr::from([10, 0, 0, 1]));
        StoreOptions { source, ..StoreOptions::new(&self.to) }
    }

    fn store(&self) -> FilesStore {
        FilesStore::new(self.options())
    }

    fn found(&self) -> (FilesStore, Vec<Range<u64>>) {
        let mut store = self.store();
        let found = self.object.open(&mut store).unwrap();
        (store, found)
    }

    fn opened(&self) -> FilesStore {
        self.found().0
    }

    #[track_caller]
    fn receive(&self, mut store: FilesStore) -> StoreHandle {
        let handle = store.handle();
        assert_eq!(self.object.receive(&mut store), Ok(0));
        handle
    }

    #[track_caller]
    fn complete(&self, store: &mut FilesStore, found: &[Range<u64>]) {
        self.object.give(store, &self.object.missing(found)).unwrap();
        self.finish(store);
    }

    #[track_caller]
    fn finish(&self, store: &mut FilesStore) {
        assert_eq!(self.object.verify(store), Ok(0));
        self.assert_same();
    }

    #[track_caller]
    fn assert_received(&self) {
        assert_eq!(self.object.receive(&mut self.store()), Ok(0));
        self.assert_same();
    }

    fn target(&self, path: &str) -> PathBuf {
        self.to.join("from").join(path)
    }

    fn state(&self) -> PathBuf {
        state(&self.to, &self.object)
    }

    fn assert_same(&self) {
        use crate::testing::tree;
        assert_eq!(tree(&self.to.join("from")), tree(&self.from));
        assert!(!self.to.join(".faircast").exists());
    }
}

fn state(to: &Path, object: &Object) -> PathBuf {
    let name: String = object.announcement.object[..8].iter().map(|b| format!("{b:02x}")).collect();
    to.join(".faircast").join(name)
}

const MIB: usize = 1 << 20;
