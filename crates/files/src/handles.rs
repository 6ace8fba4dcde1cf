//! Open files up to a limit: a tree can have more files than a process may open.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use lru::LruCache;

const HANDLES_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("it is above zero");

/// Open files by number; the least recently used one is closed.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) open: LruCache<u32, Arc<File>>,
    pub(crate) opened: u64,
}

impl Default for Handles {
    fn default() -> Self {
        Self { open: LruCache::new(HANDLES_MAX), opened: 0 }
    }
}

impl Handles {
    pub(crate) fn get<E>(
        &mut self,
        file: u32,
        open: impl FnOnce() -> Result<File, E>,
    ) -> Result<Arc<File>, E> {
        let opened = || {
            self.opened += 1;
            open().map(Arc::new)
        };
        self.open.try_get_or_insert(file, opened).cloned()
    }
}

/// Fills `out` from `at` on, with zeros beyond the end; true if the file has all the bytes.
pub(crate) fn read_or_zero(file: &File, mut at: u64, mut out: &mut [u8]) -> io::Result<bool> {
    while !out.is_empty() {
        match file.read_at(out, at) {
            Ok(0) => {
                out.fill(0);
                return Ok(false);
            }
            Ok(count) => (at, out) = (at + count as u64, &mut out[count..]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_used_last_stay_open_and_no_more_than_the_limit() {
        let mut handles = Handles::default();
        let mut get = |file: u32| {
            handles.get(file, || File::open("/dev/null")).unwrap();
            (handles.opened, handles.open.len())
        };
        for file in 0..64 {
            get(file);
        }
        assert_eq!(get(0), (64, 64));
        assert_eq!(get(100), (65, 64));
        assert_eq!(get(0), (65, 64));
        assert_eq!(get(1), (66, 64));
    }
}
