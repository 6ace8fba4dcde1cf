//! Supply of a source: the trait by which an object is read.

use alloc::vec::Vec;

use super::{ObjectResult, Part};

/// Content of an object at its source. Reads are by position and consume nothing.
pub trait Supply: Send {
    /// Returns the bytes of a part; constant unless the supply is [`growing`](Self::growing).
    fn len(&self, part: Part) -> u64;

    /// Returns true if content may still grow. Growing content has no digests yet;
    /// [`digests`](Self::digests) fails if the content cannot be read any further.
    fn growing(&self) -> bool {
        false
    }

    /// Returns the BLAKE3 hash of the manifest.
    fn object(&self) -> [u8; 32];

    /// Returns the BLAKE3 hash of the digests, which can then be read; `None` before.
    ///
    /// # Errors
    /// The content cannot be read, or has changed.
    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>>;

    /// Appends bytes `offset .. offset + len` of a part to `out` and returns 0, or appends nothing
    /// and returns `len` for a range of zeros.
    ///
    /// # Errors
    /// The content cannot be read, or has changed.
    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32>;

    /// Returns true if a later start could send the same object. If false, receivers keep nothing
    /// of an incomplete object.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// Announces reads of content from `offset` on, mostly ascending, for reading ahead.
    fn expect(&mut self, _offset: u64) {}
}
