//! Holes of sparse files, as the file system reports them.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use super::sources::{changed, identity, mtime};
use crate::error::{FilesError, Result};
use crate::layout::{GROUP_BYTES, groups_in};
use crate::manifest::Hole;

/// Finds up to `most` holes of whole groups in a file; later holes count as content.
pub(super) fn find_holes(path: &Path, scanned: &Metadata, most: usize) -> Result<Box<[Hole]>> {
    let cannot = |error| FilesError::io(path, "cannot be read", error);
    // The path may be a pipe now, which must not block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(cannot)?;
    let holes = holes(&file, scanned.len(), most).map_err(|error| cannot(error.into()))?;
    // The check comes last, so that the holes are of the scanned file.
    let now = file.metadata().map_err(cannot)?;
    let same = identity(&now) == identity(scanned)
        && now.len() == scanned.len()
        && mtime(&now) == mtime(scanned);
    if same { Ok(holes) } else { Err(changed(path)) }
}

fn holes(file: &File, size: u64, most: usize) -> Result<Box<[Hole]>, Errno> {
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size && holes.len() < most {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            Err(Errno::NXIO) => size,
            Err(Errno::INVAL | Errno::NOTSUP) => return Ok(Box::default()),
            Err(error) => return Err(error),
        };
        let first = groups_in(at);
        let end = match data == size {
            true => groups_in(size),
            false => u32::try_from(data / GROUP_BYTES).expect("less than the groups of a file"),
        };
        if first < end {
            holes.push(Hole { first, groups: end - first });
        }
        if data == size {
            break;
        }
        at = rustix::fs::seek(file, SeekFrom::Hole(data))?;
    }
    Ok(holes.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn holes_are_found_where_nothing_was_written(
            size in prop_oneof![0..9u64, 0..9 * GROUP_BYTES],
            writes in prop::collection::vec((0..9 * GROUP_BYTES, 1..9000usize), 0..5),
        ) {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("f");
            let file = File::create(&path).unwrap();
            file.set_len(size).unwrap();
            let mut written = vec![false; groups_in(size) as usize];
            for (at, len) in writes {
                let len = len.min(size.saturating_sub(at) as usize);
                file.write_all_at(&vec![1; len], at).unwrap();
                if len > 0 {
                    let last = (at + len as u64 - 1) / GROUP_BYTES;
                    written[(at / GROUP_BYTES) as usize..=last as usize].fill(true);
                }
            }
            file.sync_all().unwrap();
            let metadata = file.metadata().unwrap();
            let holes = find_holes(&path, &metadata, 99).unwrap();
            let mut found = vec![false; written.len()];
            for hole in &holes {
                found[hole.first as usize..hole.end() as usize].fill(true);
            }
            let unwritten: Vec<bool> = written.iter().map(|written| !written).collect();
            prop_assert_eq!(found, unwritten);
            prop_assert!(find_holes(&path, &metadata, 1).unwrap().len() <= 1);
        }
    }

    #[test]
    fn a_file_that_was_changed_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let file = File::create(&path).unwrap();
        let scanned = file.metadata().unwrap();
        file.set_len(9).unwrap();
        assert!(find_holes(&path, &scanned, 9).unwrap_err().to_string().contains("changed"));
    }
}
