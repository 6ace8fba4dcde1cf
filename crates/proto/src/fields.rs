//! Fields of packets and options, read one after the other from bytes that nobody vouches for.

use alloc::string::String;

use faircast_base::{Duration, is_format};

/// The fields of what came, one after the other. What is too short gives `None`.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.0.split_off(..N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn millis(&mut self) -> Option<Duration> {
        self.u32().map(|ms| Duration::from_millis(u64::from(ms)))
    }

    /// A text with its length before it; [characters of format](is_format) become question marks.
    pub(crate) fn text(&mut self, max: usize) -> Option<String> {
        let [len] = self.array()?;
        let text = self.0.split_off(..usize::from(len)).filter(|text| text.len() <= max)?;
        let text = core::str::from_utf8(text).ok()?;
        // A question mark is never longer than what it stands for.
        let printable = |c: char| if is_format(c) { '?' } else { c };
        Some(text.chars().map(printable).collect())
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        self.0.split_off(..len)
    }

    /// Checks that no bytes follow.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
