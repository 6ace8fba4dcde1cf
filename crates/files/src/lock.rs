//! Exclusive locks of files, released on drop.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

#[derive(Debug)]
pub(crate) struct Locked(pub(crate) File);

impl Locked {
    pub(crate) fn new(file: File) -> Result<Self, Errno> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing is not enough: a child between fork and exec has a copy of the file and its lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_though_somebody_has_a_copy_of_the_file() {
        let place = tempfile::NamedTempFile::new().unwrap();
        let open = || place.reopen().unwrap();
        let locked = Locked::new(open()).unwrap();
        let copy = locked.0.try_clone().unwrap();
        assert_eq!(Locked::new(open()).unwrap_err(), Errno::WOULDBLOCK);
        drop(locked);
        assert!(Locked::new(open()).is_ok());
        drop(copy);
    }
}
