//! Store of a receiver: the trait by which an object is written.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::task::Poll;

use super::{Announcement, Part};

/// Result of an operation of a supply or a store.
pub type ObjectResult<T = ()> = Result<T, ObjectError>;

/// Destination of an object at a receiver. No method blocks: a long operation is started by one
/// call and polled by later ones.
///
/// Order of calls:
/// 1. [`begin`](Self::begin), once.
/// 2. [`write`](Self::write) of the manifest.
/// 3. [`open`](Self::open) until ready, then [`window_end`](Self::window_end) and
///    [`identity`](Self::identity).
/// 4. [`write`](Self::write) of content and digests in any order, up to `window_end`.
/// 5. [`verify`](Self::verify) until ready. After damage, step 4 again.
///
/// [`read`](Self::read) comes between writes, for repair by parity, and [`grow`](Self::grow) any
/// time after step 1. [`poll_delivered`](Self::poll_delivered) and [`discard`](Self::discard) come
/// at any time. After an error only these two are called.
pub trait Store: Send {
    /// Begins an announced object. The store may find parts of it from an earlier run.
    ///
    /// # Errors
    /// The object is not wanted or cannot be kept.
    fn begin(&mut self, announcement: &Announcement) -> ObjectResult;

    /// Updates the lengths of growing content.
    ///
    /// # Errors
    /// Content of this length is not wanted or cannot be kept.
    fn grow(&mut self, _announcement: &Announcement) -> ObjectResult {
        Err(ObjectError::unknown_length())
    }

    /// Returns the end offset of the content that can be taken now, which never decreases. Content
    /// beyond is not requested, and is written in whole blocks once covered. Default: all content.
    ///
    /// # Errors
    /// Earlier content cannot be kept after all.
    fn window_end(&mut self) -> ObjectResult<u64> {
        Ok(u64::MAX)
    }

    /// Takes bytes of a part at `offset`: `bytes`, then `zeros` zero bytes. Packets carry only the
    /// number of zeros at their end, which sparse files need not store. Ranges come in any order,
    /// and again only after damage or a mismatch. Symbols partly covered by content found at
    /// the start come whole. Content comes only after [`open`](Self::open) has returned its result.
    ///
    /// # Errors
    /// The bytes cannot be kept.
    fn write(&mut self, part: Part, offset: u64, bytes: &[u8], zeros: u32) -> ObjectResult;

    /// Appends `len` bytes that were written before to `out`, for repair by parity.
    ///
    /// # Errors
    /// The bytes cannot be read back.
    fn read(&mut self, part: Part, offset: u64, len: u32, out: &mut Vec<u8>) -> ObjectResult;

    /// Opens the object, whose manifest is complete and matches its announcement. Returns the
    /// ranges of content that are present already, ascending and disjoint. Polled until ready.
    ///
    /// # Errors
    /// The manifest asks for something that is forbidden or cannot be made.
    fn open(&mut self) -> ObjectResult<Poll<Vec<Range<u64>>>>;

    /// Compares complete content with complete digests. Polled until ready. With
    /// [`Verdict::Intact`] the object is in its final place.
    ///
    /// # Errors
    /// The content cannot be read, or cannot be put in its place.
    fn verify(&mut self) -> ObjectResult<Poll<Verdict>>;

    /// Returns the receiver's identity across restarts, once open. `None` if nothing is kept.
    fn identity(&self) -> Option<u64> {
        None
    }

    /// Discards the object, which need not be kept for a later run. No other call follows.
    fn discard(&mut self) {}

    /// Returns the next content in order, as bytes and then a number of zeros. `None` if no more is
    /// ready yet, and always for a store that keeps the content itself, as by default.
    fn poll_delivered(&mut self) -> Option<(Vec<u8>, u32)> {
        None
    }
}

/// Result of the comparison of content with its digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Content as it was sent.
    Intact,
    /// Damaged ranges of content, to be received again; ascending and disjoint.
    Damaged(Vec<Range<u64>>),
}

/// Error after which a supply or a store cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError {
    /// Message for people: what, where, what to do. The sender gets the message's last
    /// [`REPORTED_BYTES_MAX`](Self::REPORTED_BYTES_MAX) bytes.
    pub reason: String,
}

impl ObjectError {
    /// Longest end of a reason that a receiver reports to the sender.
    pub const REPORTED_BYTES_MAX: usize = 120;

    /// Creates an error with a message for people.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }

    /// Returns the error of a store that takes no content of unknown length.
    pub fn unknown_length() -> Self {
        Self::new("content whose length is not known beforehand cannot be taken here")
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl core::error::Error for ObjectError {}
