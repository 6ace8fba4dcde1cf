//! Open files, not more than a limit: a tree can have more files than a process may open.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Files that are open at once.
pub(crate) const HANDLES_MAX: usize = 64;

/// The files used last, the most recent at the end.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: Vec<(u32, Arc<File>)>,
    opened: u64,
}

impl Handles {
    /// The handle of `file`, opened by `open` where it is not.
    pub(crate) fn get<E>(
        &mut self,
        file: u32,
        open: impl FnOnce() -> Result<File, E>,
    ) -> Result<Arc<File>, E> {
        let found = self.open.iter().rposition(|(of, _)| *of == file);
        if let Some(at) = found {
            let handle = self.open[at].1.clone();
            self.open[at..].rotate_left(1);
            return Ok(handle);
        }
        let handle = Arc::new(open()?);
        self.opened += 1;
        if self.open.len() == HANDLES_MAX {
            self.open.remove(0);
        }
        self.open.push((file, handle.clone()));
        Ok(handle)
    }

    /// Closes one, once nobody uses it.
    pub(crate) fn forget(&mut self, file: u32) {
        self.open.retain(|(of, _)| *of != file);
    }

    /// Closes all.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    /// How many were opened so far.
    #[cfg(test)]
    pub(crate) const fn opened(&self) -> u64 {
        self.opened
    }
}

/// Fills `out` from a place in a file. Returns whether the file has so much; what lacks is zero.
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
            (handles.opened(), handles.open.len())
        };
        for file in 0..HANDLES_MAX as u32 {
            get(file);
        }
        assert_eq!(get(0), (64, 64));
        assert_eq!(get(100), (65, 64));
        assert_eq!(get(0), (65, 64));
        assert_eq!(get(1), (66, 64));
    }
}
