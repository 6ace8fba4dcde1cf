//! The store of a receiver: the trait by which an object is written.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::task::Poll;

use super::{Announcement, Part};

/// Result of an action of a supply or a store.
pub type ObjectResult<T = ()> = Result<T, ObjectError>;

/// Where a receiver puts an object. A driver of real networks gives one over files, the simulator
/// one in memory; the machine that uses it waits for nothing: what takes long is begun by one call
/// and asked for by another.
///
/// A store that has failed is not called again.
pub trait Store: Send {
    /// A source has announced this object. The store may find parts of it from an earlier run.
    ///
    /// # Errors
    /// The object is not wanted or cannot be kept.
    fn announce(&mut self, announcement: &Announcement) -> ObjectResult;

    /// Content that may still grow has become longer, or its end is known: nothing but lengths differ
    /// from what was announced before. Called at any time after [`announce`](Self::announce).
    ///
    /// # Errors
    /// So much is not wanted or cannot be kept.
    fn grow(&mut self, _announcement: &Announcement) -> ObjectResult {
        Err(ObjectError::growing())
    }

    /// Up to which byte content can be taken now. What lies beyond is not asked for, and comes to
    /// [`write`](Self::write) in whole blocks only once it lies before. Never decreases. Asked for again
    /// and again while it is not all. Default: all of it can.
    ///
    /// # Errors
    /// What came before cannot be kept after all.
    fn window(&mut self) -> ObjectResult<u64> {
        Ok(u64::MAX)
    }

    /// Takes bytes of a part, `bytes` and then `zeros` zero bytes, at `offset`. Ranges come in any
    /// order, none twice unless [`verify`](Self::verify) found it damaged, or the whole of a manifest
    /// or of digests was not what had been announced; but of content that was found at the start,
    /// symbols that reach beyond it come whole. Content is not given before [`open`](Self::open)
    /// has been answered.
    ///
    /// # Errors
    /// The bytes cannot be kept.
    fn write(&mut self, part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult;

    /// Appends `len` bytes that were written before to `out`, for repair by parity.
    ///
    /// # Errors
    /// They cannot be read back.
    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult;

    /// The whole manifest is there and is the one that was announced. The answer is the ranges of
    /// content that are there already, ascending and apart. Called again until it is there.
    ///
    /// # Errors
    /// The manifest asks for what must not be, or what it asks for cannot be made.
    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>>;

    /// All content and all digests are there. Called again until it is answered. Where the verdict is
    /// [`Verdict::Intact`] the object is in its final place.
    ///
    /// # Errors
    /// What is there cannot be read, or not be put in its place.
    fn verify(&mut self) -> ObjectResult<Poll<Verdict>>;

    /// Identity of the receiver that goes on with the kept content: unchanged after a restart at any address. Called
    /// once the store is open. `None` if the store keeps nothing.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// Discards the object: its source has given it up, or another object of its name has taken its place. The store
    /// need not keep it for a later run. Called at most once, and no other method after it.
    fn discard(&mut self) {}

    /// For applications that take content in order as it comes: the next of it, as bytes and then
    /// zeros. A store that keeps the object elsewhere has nothing to say here.
    fn poll_delivered(&mut self) -> Option<(Vec<u8>, u32)> {
        None
    }
}

/// Result of the comparison of content with its digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every byte is as it was sent.
    Intact,
    /// These ranges of content are not, and must be had again; ascending and apart.
    Damaged(Vec<Range<u64>>),
}

/// Why a supply or a store cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError {
    /// For people: what, where, and what to do. The last 120 bytes of a store's are told to the
    /// sender.
    pub reason: String,
}

impl ObjectError {
    /// Error of a store that takes no content of unknown length.
    pub fn growing() -> Self {
        let reason = "content whose length is not known beforehand cannot be taken here".into();
        Self { reason }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for ObjectError {}
