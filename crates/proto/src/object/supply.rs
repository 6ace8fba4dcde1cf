//! From where a source takes an object.

use alloc::vec::Vec;

use super::{ObjectResult, Part};

/// From where a source takes an object: files, memory, or zeros that stand for both. A repair may
/// ask for any part of it again, so it is read by position and never consumed.
pub trait Supply: Send {
    /// Bytes of a part. Never changes, except of a supply that is [`growing`](Self::growing).
    fn len(&self, part: Part) -> u64;

    /// Whether content may still become longer. While it may, it has no digests; when it does not any
    /// more, both have their final length. A supply whose content cannot be read any further says so
    /// in [`digests`](Self::digests).
    fn growing(&self) -> bool {
        false
    }

    /// BLAKE3 of the manifest.
    fn object(&self) -> [u8; 32];

    /// BLAKE3 of the digests; `None` while they are being computed. They may be read once it is
    /// known.
    ///
    /// # Errors
    /// The content cannot be read, or has changed.
    fn digests(&mut self) -> ObjectResult<Option<[u8; 32]>>;

    /// Appends bytes `offset .. offset + len` of a part to `out`, and returns how many zero bytes
    /// stand for the rest: either all of the range is appended and 0 returned, or none of it and
    /// `len`.
    ///
    /// # Errors
    /// The content cannot be read, or has changed.
    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult<u32>;

    /// True if a later start of the source could send the same object. False once the content has changed, and
    /// of content that comes once: receivers then keep nothing of an object that was not completed.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// Content will be asked for from `offset` on, mostly ascending: read ahead.
    fn expect(&mut self, _offset: u64) {}
}
