//! The parts of an object, and what a source says of them.

/// One of the three byte strings of which an object consists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Part {
    /// Description of the object: names, sizes, modes, times. Sent first; may be empty.
    Manifest = 0,
    /// The bytes themselves.
    Content = 1,
    /// What the content's bytes must hash to. Sent last, since a source learns it by reading; may
    /// be empty.
    Digests = 2,
}

impl Part {
    /// All of them, in the order in which they are sent.
    pub const ALL: [Self; 3] = [Self::Manifest, Self::Content, Self::Digests];
}

/// Announcement of an object, on every SPM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Bytes of each [`Part`], as far as they are known.
    pub lens: [u64; 3],
    /// Whether content may still become longer. While it may, it is announced in whole blocks of 64
    /// symbols, and there are no digests; the last announcement has its length and the digests'.
    pub growing: bool,
    /// Bytes of payload of a symbol, the unit of which content is sent; even, 2 to 65408.
    pub symbol_bytes: u16,
    /// BLAKE3 of the manifest: the name of the object, by which a receiver knows one that it has
    /// begun to receive.
    pub object: [u8; 32],
    /// BLAKE3 of the part [`Part::Digests`], once the source knows it.
    pub digests: Option<[u8; 32]>,
}

impl Announcement {
    /// Bytes of one part.
    pub const fn len(&self, part: Part) -> u64 {
        self.lens[part as usize]
    }

    /// Whether there is nothing to send.
    pub const fn is_empty(&self) -> bool {
        self.lens[0] == 0 && self.lens[1] == 0 && self.lens[2] == 0
    }
}
