//! Journal of complete groups, by which an interrupted transfer resumes.
//!
//! Incomplete records are ignored. The journal is trusted until digests verify the content.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fixedbitset::FixedBitSet;

use super::Counters;
use crate::error::{At as _, Result};
use crate::layout::Group;

/// Interval of writes, or bytes of content between them.
pub(super) const EVERY: Duration = Duration::from_secs(1);
const CONTENT_BYTES: u64 = 64 << 20;
const MAGIC: [u8; 4] = *b"FCJ\x01";
const HEAD_BYTES: usize = 36;
const RECORD_BYTES: usize = 16;
/// Flag in a record's count: the groups are no longer complete.
const GONE: u32 = 1 << 31;

#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    object: [u8; 32],
    counters: Arc<Counters>,
    interval: Duration,
    /// Complete groups that are not in the file yet, and their bytes.
    pending: Vec<u32>,
    pending_bytes: u64,
    pending_since: Option<Instant>,
}

impl Journal {
    pub(crate) fn may_be(mut file: &File) -> io::Result<bool> {
        let mut magic = [0; 3];
        let empty = file.metadata()?.len() == 0;
        let begins = read_whole(&mut file, &mut magic)? && MAGIC.starts_with(&magic);
        std::io::Seek::rewind(&mut file)?;
        Ok(empty || begins)
    }

    pub(crate) fn read(file: File, object: &[u8; 32], groups: u32) -> io::Result<FixedBitSet> {
        let mut have = FixedBitSet::with_capacity(groups as usize);
        let mut input = io::BufReader::new(file);
        let mut head = [0; HEAD_BYTES];
        if read_whole(&mut input, &mut head)? && head == Self::head(object) {
            let mut record = [0; RECORD_BYTES];
            while read_whole(&mut input, &mut record)? {
                let [a, b, c, d, e, f, g, h, check @ ..] = record;
                let first = u32::from_be_bytes([a, b, c, d]);
                let count = u32::from_be_bytes([e, f, g, h]);
                let end = first.checked_add(count & !GONE).filter(|end| *end <= groups);
                if check == checksum(object, first, count)
                    && let Some(end) = end
                {
                    (first..end).for_each(|group| have.set(group as usize, count & GONE == 0));
                }
            }
        }
        Ok(have)
    }

    pub(crate) fn new(
        file: File,
        path: &Path,
        object: [u8; 32],
        (counters, interval): (Arc<Counters>, Duration),
    ) -> Self {
        let (path, pending) = (path.to_path_buf(), Vec::new());
        let (pending_bytes, pending_since) = (0, None);
        Self { file, path, object, counters, interval, pending, pending_bytes, pending_since }
    }

    /// Writes the head of an empty file, and the groups that are complete already.
    pub(crate) fn begin(&mut self, have: &FixedBitSet, groups: u32) -> io::Result<()> {
        self.file.write_all(&Self::head(&self.object))?;
        let mut complete = Vec::new();
        for group in (0..groups).filter(|group| have.contains(*group as usize)) {
            complete.push(group);
            // Pieces limit the memory of a long list.
            if complete.len() == 1 << 16 {
                self.write(std::mem::take(&mut complete), true)?;
            }
        }
        self.write(complete, true)?;
        Ok(())
    }

    fn write(&mut self, mut groups: Vec<u32>, complete: bool) -> io::Result<u64> {
        groups.sort_unstable();
        groups.dedup();
        let mut out = Vec::new();
        let mut rest = groups.as_slice();
        while let Some(&first) = rest.first() {
            let same = rest.iter().zip(first..).take_while(|(group, want)| **group == *want);
            let len = same.count();
            let count = u32::try_from(len).expect("fewer than groups");
            let count = if complete { count } else { count | GONE };
            out.extend_from_slice(&first.to_be_bytes());
            out.extend_from_slice(&count.to_be_bytes());
            out.extend_from_slice(&checksum(&self.object, first, count));
            rest = &rest[len..];
        }
        self.file.write_all(&out)?;
        Ok(out.len() as u64)
    }

    fn head(object: &[u8; 32]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        head[4..].copy_from_slice(object);
        head
    }

    pub(crate) fn complete(&mut self, group: &Group) {
        self.pending.push(group.index);
        self.pending_bytes += u64::from(group.len);
        self.pending_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn retract(&mut self, groups: &[u32]) -> Result<()> {
        self.flush()?;
        self.append(groups.to_vec(), false)
    }

    pub(crate) fn due_in(&self) -> Option<Duration> {
        let rest = self.interval.saturating_sub(self.pending_since?.elapsed());
        Some(if self.pending_bytes >= CONTENT_BYTES { Duration::ZERO } else { rest })
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        (self.pending_bytes, self.pending_since) = (0, None);
        let pending = std::mem::take(&mut self.pending);
        self.append(pending, true)
    }

    fn append(&mut self, groups: Vec<u32>, complete: bool) -> Result<()> {
        let bytes = self.write(groups, complete).at(&self.path, "cannot be written")?;
        self.counters.update(|counts| {
            counts.journal_writes += 1;
            counts.journal_bytes += bytes;
        });
        Ok(())
    }
}

fn checksum(object: &[u8; 32], first: u32, count: u32) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(object).update(&first.to_be_bytes()).update(&count.to_be_bytes());
    let mut check = [0; 8];
    check.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    check
}

fn read_whole(input: &mut impl io::Read, out: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(out) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom};
    use std::os::unix::fs::FileExt as _;

    use super::*;

    const OBJECT: [u8; 32] = [9; 32];

    fn groups(file: &File, object: &[u8; 32], count: u32) -> Vec<u32> {
        let mut file = file.try_clone().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let have = Journal::read(file, object, count).unwrap();
        (0..count).filter(|group| have.contains(*group as usize)).collect()
    }

    fn journal() -> File {
        let file = tempfile::tempfile().unwrap();
        let mut have = FixedBitSet::with_capacity(100);
        have.insert(50);
        let copy = file.try_clone().unwrap();
        let mut journal = Journal::new(copy, Path::new("j"), OBJECT, (Arc::default(), EVERY));
        journal.begin(&have, 100).unwrap();
        assert_eq!(journal.write(vec![3, 1, 2, 7], true).unwrap(), 32);
        assert_eq!(journal.write(vec![2], false).unwrap(), 16);
        assert_eq!(journal.write(Vec::new(), true).unwrap(), 0);
        file
    }

    #[test]
    fn what_is_appended_is_read_back() {
        let file = journal();
        assert_eq!(groups(&file, &OBJECT, 100), [1, 3, 7, 50]);
        // Another object, or fewer groups: impossible records are ignored.
        assert_eq!(groups(&file, &[8; 32], 100), []);
        assert_eq!(groups(&file, &OBJECT, 8), [1, 3, 7]);
    }

    #[test]
    fn whatever_is_torn_is_not_there_and_the_rest_is() {
        let whole = journal().metadata().unwrap().len();
        for len in 0..whole {
            let file = journal();
            file.set_len(len).unwrap();
            let found = groups(&file, &OBJECT, 100);
            assert!(found.iter().all(|group| [1, 2, 3, 7, 50].contains(group)), "{len}: {found:?}");
        }
        for at in 0..whole {
            let file = journal();
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            let found = groups(&file, &OBJECT, 100);
            assert!(found.len() < 6 && found.iter().all(|g| [1, 2, 3, 7, 50].contains(g)), "{at}");
        }
    }
}
