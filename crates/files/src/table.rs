//! Tables of digests: small ones in memory, large ones in an unnamed file.

use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use tempfile::SpooledTempFile;

use crate::layout::DIGEST_BYTES;

/// Most bytes of a table in memory: digests of 256 GiB.
const IN_MEMORY_MAX: usize = 8 << 20;

pub(crate) const LOST: &str = "lost digests";

#[derive(Debug)]
pub(crate) struct Table {
    file: SpooledTempFile,
    len: u64,
}

impl Table {
    pub(crate) fn new(len: u64, folder: &Path) -> io::Result<Self> {
        let mut file = tempfile::spooled_tempfile_in(IN_MEMORY_MAX, folder);
        file.set_len(len)?;
        Ok(Self { file, len })
    }

    pub(crate) fn empty() -> Self {
        Self { file: tempfile::spooled_tempfile(0), len: 0 }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(offset + bytes.len() as u64 <= self.len, "it would grow");
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.write_all(bytes)
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + len, 0);
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(&mut out[start..])
    }

    pub(crate) fn digest(&mut self, group: u32) -> io::Result<[u8; 32]> {
        let mut digest = Vec::with_capacity(32);
        self.read(u64::from(group) * DIGEST_BYTES, 32, &mut digest)?;
        Ok(digest.try_into().expect("32 bytes were read"))
    }

    pub(crate) fn set_digest(&mut self, group: u32, digest: &[u8; 32]) -> io::Result<()> {
        self.write(u64::from(group) * DIGEST_BYTES, digest)
    }

    pub(crate) fn hash(&mut self) -> io::Result<[u8; 32]> {
        self.file.rewind()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&mut self.file)?;
        Ok(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_table_is_the_same_as_a_small_one() {
        for len in [0, 320, IN_MEMORY_MAX as u64 + 32] {
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
