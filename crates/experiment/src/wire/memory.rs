//! The memory that files of the suite lie in.
//!
//! Copies are written to memory, which is to cost all transports as little as it can: pages of 2 MiB
//! where the kernel has them, and pages that the machine has at hand. A virtual machine gives memory
//! that nobody uses back to its host within seconds, and to get a gigabyte of it again costs more
//! time than to carry a gigabyte over the network. So as much as the copies will take is held by a
//! file, the *ballast*, which shrinks as they grow.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

use crate::host::{MEMORY, Mount, PREFIX};

/// Greatest length in bytes of a file whose copies fit in half of the free memory.
pub(super) fn room_for(copies: u32) -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = told.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = free.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    free.map_or(u64::MAX, |kib| kib * 1024 / 2 / u64::from(copies))
}

pub(super) struct Memory {
    /// Stands first, since it must be taken down before the folder is. A kernel without large pages,
    /// or a user without the right to mount, has memory all the same.
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

/// Memory that is held until copies take its place, by a file.
pub(super) struct Ballast {
    file: File,
    len: u64,
    copies: u64,
}

impl Ballast {
    /// Holds as much memory as `copies` of `bytes` each will take.
    pub(super) fn new(path: &Path, bytes: u64, copies: u64) -> io::Result<Self> {
        let (file, len) = (File::create(path)?, bytes * copies + SPARE);
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        io::copy(&mut io::repeat(0x5a).take(len), &mut out)?;
        out.flush()?;
        drop(out);
        Ok(Self { file, len, copies })
    }

    pub(super) fn gone(&self, bytes: u64) {
        // What comes until the next call has its place too.
        let taken = bytes.saturating_mul(self.copies).saturating_add(SPARE);
        // If it stays, there is less memory and nothing else is wrong.
        let _ = self.file.set_len(self.len.saturating_sub(taken));
    }
}

/// Bytes that are free ahead of the copies.
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
