//! Tables of digests: in memory where they are small, in a file without a name where not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::layout::DIGEST_BYTES;

/// Bytes up to which a table stays in memory: the digests of 256 GiB.
const IN_MEMORY_MAX: u64 = 8 << 20;

/// So many bytes, zero at first.
#[derive(Debug)]
pub(crate) enum Table {
    Memory(Vec<u8>),
    Spilled { file: File, len: u64 },
}

impl Table {
    /// A table of `len` bytes; if it is large, on the file system of `folder`.
    pub(crate) fn new(len: u64, folder: &Path) -> io::Result<Self> {
        if let Some(small) = usize::try_from(len).ok().filter(|_| len <= IN_MEMORY_MAX) {
            return Ok(Self::Memory(vec![0; small]));
        }
        let file = tempfile::tempfile_in(folder)?;
        file.set_len(len)?;
        Ok(Self::Spilled { file, len })
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Spilled { len, .. } => *len,
        }
    }

    /// The range must be within the table.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(all) => {
                let start = usize::try_from(offset).expect("within what is in memory");
                all[start..start + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Self::Spilled { file, .. } => file.write_all_at(bytes, offset),
        }
    }

    /// Appends `len` bytes to `out`. The range must be within the table.
    pub(crate) fn read(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Memory(all) => {
                let start = usize::try_from(offset).expect("within what is in memory");
                out.extend_from_slice(&all[start..start + len]);
                Ok(())
            }
            Self::Spilled { file, .. } => {
                let start = out.len();
                out.resize(start + len, 0);
                file.read_exact_at(&mut out[start..], offset)
            }
        }
    }

    /// The digest of a group.
    pub(crate) fn digest(&self, group: u32) -> io::Result<[u8; 32]> {
        let mut digest = Vec::with_capacity(32);
        self.read(u64::from(group) * DIGEST_BYTES, 32, &mut digest)?;
        Ok(digest.try_into().expect("32 bytes were read"))
    }

    pub(crate) fn set_digest(&mut self, group: u32, digest: &[u8; 32]) -> io::Result<()> {
        self.write(u64::from(group) * DIGEST_BYTES, digest)
    }

    /// BLAKE3 of all of it.
    pub(crate) fn hash(&self) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        let mut piece = Vec::new();
        let mut offset = 0;
        while offset < self.len() {
            let len = (self.len() - offset).min(1 << 16);
            piece.clear();
            self.read(offset, usize::try_from(len).expect("a small piece"), &mut piece)?;
            hasher.update(&piece);
            offset += len;
        }
        Ok(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_is_the_same_as_a_small_one() {
        for len in [0, 320, IN_MEMORY_MAX + 32] {
            let mut table = Table::new(len, &std::env::temp_dir()).unwrap();
            let mut want = vec![0; len as usize];
            if len > 0 {
                let last = (len / 32 - 1) as u32;
                table.set_digest(last, &[7; 32]).unwrap();
                assert_eq!(table.digest(last).unwrap(), [7; 32]);
                want[len as usize - 32..].fill(7);
            }
            let mut out = Vec::new();
            table.read(0, len as usize, &mut out).unwrap();
            assert_eq!(out, want);
            assert_eq!(table.hash().unwrap(), *blake3::hash(&want).as_bytes());
        }
    }
}
