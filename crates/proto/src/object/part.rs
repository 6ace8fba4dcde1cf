//! Parts of an object, and their announcement.

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
