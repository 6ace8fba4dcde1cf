//! Sources of a supply: the paths of its files, and checks that they are unchanged.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bstr::{BStr, BString, ByteSlice as _};

use crate::error::FilesError;
use crate::layout::Layout;
use crate::manifest::Mtime;

#[derive(Debug)]
pub(crate) struct Sources {
    /// Path of each outermost entry, by its name in the object.
    pub(super) roots: BTreeMap<BString, PathBuf>,
    /// Device and inode of each file, in the layout's order.
    pub(super) identities: Vec<(u64, u64)>,
}

impl Sources {
    pub(crate) fn path(&self, layout: &Layout, file: u32) -> PathBuf {
        self.at(&layout.entry(file).path)
    }

    pub(super) fn at(&self, path: &BStr) -> PathBuf {
        match path.split_once_str("/") {
            Some((root, rest)) => self.roots[root.as_bstr()].join(OsStr::from_bytes(rest)),
            None => self.roots[path].clone(),
        }
    }

    pub(crate) fn same(&self, layout: &Layout, file: u32, now: &Metadata) -> bool {
        let entry = layout.entry(file);
        // Writes to a device do not change the times of its node.
        let changed = entry.is_file() && (entry.size() != now.len() || entry.mtime != mtime(now));
        self.identities[file as usize] == identity(now) && !changed
    }
}

pub(super) fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

pub(super) fn mtime(metadata: &Metadata) -> Mtime {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Mtime { seconds: metadata.mtime(), nanos }
}

pub(super) fn changed(path: &Path) -> FilesError {
    FilesError::refused(
        path,
        "changed while it was being sent; send again when nothing writes to it",
    )
}
