//! The memory that files of the suite lie in.
//!
//! Copies are written to memory, which is to cost all transports as little as it can: pages of 2 MiB
//! where the kernel has them, and pages that the machine has at hand. A virtual machine gives memory
//! that nobody uses back to its host within seconds, and to get a gigabyte of it again costs more
//! time than to carry a gigabyte over the network. So as much as the copies will take is held by a
//! file, the *ballast*, which shrinks as they grow.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::{Mount, PREFIX, is_leftover};

/// How long a file may be of which there are so many copies: half of the memory that is free holds them. Not known,
/// it may be as long as it is.
pub(super) fn room_for(copies: u32) -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    free.map_or(u64::MAX, |kib| kib * 1024 / 2 / u64::from(copies))
}

/// A folder in memory, removed at the end.
pub(super) struct Memory {
    /// Stands first, since it must be taken down before the folder is. A kernel without large pages,
    /// or a user without the right to mount, has memory all the same.
    _mount: Option<Mount>,
    folder: tempfile::TempDir,
}

impl Memory {
    pub(super) fn new() -> std::io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent())?;
        let mount = Mount::new(folder.path(), "huge=always,size=100%").ok();
        Ok(Self { _mount: mount, folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes what processes that are no more have left behind.
    pub(super) fn remove_leftovers() {
        let Ok(entries) = std::fs::read_dir(parent()) else { return };
        for entry in entries.flatten() {
            if is_leftover(&entry.file_name().to_string_lossy()) {
                let mut unmount = Command::new("umount");
                // Where nothing is mounted that is all right.
                let _ =
                    unmount.arg(entry.path()).stdin(Stdio::null()).stderr(Stdio::null()).status();
                // Whoever else removes it does as well.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Holds as much memory as `copies` of `bytes` each will take.
    pub(super) fn hold(&self, bytes: u64, copies: u64) -> std::io::Result<Ballast> {
        let path = self.path().join("ballast");
        let mut file = File::create(&path)?;
        let block = vec![0x5a; BLOCK];
        let len = bytes * copies + SPARE;
        for _ in 0..len.div_ceil(BLOCK as u64) {
            file.write_all(&block)?;
        }
        Ok(Ballast { file, path, len, copies })
    }
}

/// Memory that is held until copies take its place. Dropped, it is all free.
pub(super) struct Ballast {
    file: File,
    path: PathBuf,
    len: u64,
    copies: u64,
}

impl Ballast {
    /// So many bytes have gone to each of the copies.
    pub(super) fn gone(&self, bytes: u64) {
        // What comes until the next call has its place too.
        let taken = bytes.saturating_mul(self.copies).saturating_add(SPARE);
        // If it stays, there is less memory and nothing else is wrong.
        let _ = self.file.set_len(self.len.saturating_sub(taken));
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Where the system has memory as files.
fn parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}

/// Bytes that are free ahead of the copies.
const SPARE: u64 = 256 << 20;

/// The ballast is written in pieces of this size.
const BLOCK: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballast_makes_room_as_copies_grow() {
        let memory = Memory { _mount: None, folder: tempfile::tempdir().unwrap() };
        let ballast = memory.hold(100 << 20, 2).unwrap();
        let len = || ballast.file.metadata().unwrap().len();
        assert_eq!(len(), (200 << 20) + SPARE);
        for (gone, held) in [(0, 200), (30 << 20, 140), (150 << 20, 0)] {
            ballast.gone(gone);
            assert_eq!(len(), held << 20);
        }
        drop(ballast);
        assert!(!memory.path().join("ballast").exists());
    }
}
