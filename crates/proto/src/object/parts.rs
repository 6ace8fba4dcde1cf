//! Parts of an object, and the traits by which its ends read and write them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::task::Poll;

/// One of the three byte strings of which an object consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Part {
    /// Description of the object: names, sizes, modes, times. Sent first; may be empty.
    Manifest = 0,
    /// Content of the object.
    Content = 1,
    /// Hashes of the content. Sent last, since a source computes them while reading; may be empty.
    Digests = 2,
}

impl Part {
    /// All parts, in sending order.
    pub const ALL: [Self; 3] = [Self::Manifest, Self::Content, Self::Digests];
}

/// Announcement of an object, on every SPM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Bytes of each [`Part`], as far as known.
    pub lens: [u64; 3],
    /// True if content may grow: announced in whole blocks of 64 symbols, without digests.
    pub growing: bool,
    /// Payload bytes of a symbol, the unit in which content is sent; even, 2 to 65408.
    pub symbol_bytes: u16,
    /// BLAKE3 hash of the manifest: identity of the object, also across restarts.
    pub object: [u8; 32],
    /// BLAKE3 hash of the part [`Part::Digests`], once known to the source.
    pub digests: Option<[u8; 32]>,
}

impl Announcement {
    /// Returns the bytes of one part.
    pub const fn len(&self, part: Part) -> u64 {
        self.lens[part as usize]
    }

    /// Returns true if all parts are empty.
    pub const fn is_empty(&self) -> bool {
        self.lens[0] == 0 && self.lens[1] == 0 && self.lens[2] == 0
    }
}

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

/// Result of an operation of a supply or a store.
pub type ObjectResult<T = ()> = Result<T, ObjectError>;

/// Destination of an object at a receiver. No method blocks: later calls poll a long operation.
///
/// Order of calls:
/// 1. `begin`, once, and `write` of the manifest.
/// 2. `open` until ready, then `window_end` and `identity`.
/// 3. `write` of content and digests in any order, up to `window_end`.
/// 4. `verify` until ready. After damage, step 3 again.
///
/// `read` comes between writes, and `grow` any time after step 1. `poll_delivered` and `discard`
/// come at any time; after an error only these two are called.
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

    /// Discards the object, which need not be kept. Only `poll_delivered` may follow.
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
    /// Message for people: what, where, what to do. The sender gets its last 120 bytes.
    pub reason: String,
}

impl ObjectError {
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
