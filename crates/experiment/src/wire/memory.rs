//! Memory for the files of the suite.
//!
//! Copies are written to memory at the least cost. A virtual machine gets unused memory back from
//! its host more slowly than a network sends, so a file, the *ballast*, shrinks as copies grow.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use faircast_lab::lan::{PREFIX, is_leftover};

use crate::host::Mount;

const MEMORY: &str = "/dev/shm";

/// Returns the greatest length in bytes of a file whose copies fit into half of the free memory.
pub(super) fn room_for(copies: usize) -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    free.map_or(u64::MAX, |kib| kib * 1024 / 2 / copies as u64)
}

pub(super) fn remove_leftovers() {
    for entry in std::fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        if is_leftover(&entry.file_name().to_string_lossy()) {
            let _ = Command::new("umount").arg("--lazy").arg(entry.path()).output();
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

pub(super) struct Memory {
    /// Declared first, to be removed before the folder. `None` without the right to mount.
    _mount: Option<Mount>,
    folder: tempfile::TempDir,
}

impl Memory {
    pub(super) fn new() -> io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(MEMORY)?;
        let mount = Mount::new(folder.path(), "huge=always,size=100%").ok();
        Ok(Self { _mount: mount, folder })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

pub(super) struct Ballast {
    file: File,
    len: u64,
    copies: u64,
}

impl Ballast {
    pub(super) fn new(path: &Path, bytes: u64, copies: u64) -> io::Result<Self> {
        let (file, len) = (File::create(path)?, bytes * copies + SPARE);
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        io::copy(&mut io::repeat(0x5a).take(len), &mut out)?;
        out.flush()?;
        drop(out);
        Ok(Self { file, len, copies })
    }

    pub(super) fn gone(&self, bytes: u64) {
        let taken = bytes.saturating_mul(self.copies).saturating_add(SPARE);
        let _ = self.file.set_len(self.len.saturating_sub(taken));
    }
}

/// Bytes that are kept free ahead of the copies.
const SPARE: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballast_makes_room_as_copies_grow() {
        let folder = tempfile::tempdir().unwrap();
        let ballast = Ballast::new(&folder.path().join("ballast"), 100 << 20, 2).unwrap();
        for (gone, held) in [(0, 200), (30 << 20, 140), (150 << 20, 0)] {
            ballast.gone(gone);
            assert_eq!(ballast.file.metadata().unwrap().len(), held << 20);
        }
    }
}
