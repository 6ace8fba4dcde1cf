//! Hellos: signs of life of a head, with the members that must acknowledge.

use alloc::vec::Vec;

use super::ASKED_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello<'a> {
    pub(crate) resigns: bool,
    pub(crate) level: u8,
    /// First packet that the head can repair, and highest packet number that it knows.
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) done: bool,
    /// Numbers of the members that must acknowledge, eight bytes each.
    pub(super) asked: &'a [u8],
}

impl<'a> Hello<'a> {
    pub(crate) fn new(low: u64, high: u64, level: u8) -> Self {
        Self { resigns: false, level, low, high, done: false, asked: &[] }
    }

    pub(crate) fn saying(self, resigns: bool, done: bool) -> Self {
        Self { resigns, done, ..self }
    }

    pub(crate) fn asking<'b>(self, ids: &[u64], buf: &'b mut Vec<u8>) -> Hello<'b> {
        buf.extend(ids.iter().take(ASKED_MAX).flat_map(|id| id.to_be_bytes()));
        Hello { asked: buf, ..self }
    }

    pub(crate) fn asks(&self, id: u64) -> bool {
        self.asked.as_chunks().0.iter().any(|asked| u64::from_be_bytes(*asked) == id)
    }
}
