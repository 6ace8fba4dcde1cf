//! Fields of packets: written one after the other, and read from bytes that nobody vouches for.

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, is_format};

/// Values with one encoding: numbers in network byte order, arrays and tuples as their parts.
pub trait Encoded: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads it.
    fn take(fields: &mut Fields<'_>) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Encoded for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn take(fields: &mut Fields<'_>) -> Option<Self> {
                fields.array().map(Self::from_be_bytes)
            }
        }
    )+};
}

numbers!(u8, u16, u32, u64);

impl<const N: usize> Encoded for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        fields.array()
    }
}

impl Encoded for NodeId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        fields.read().map(Self)
    }
}

macro_rules! tuples {
    ($(($($field:ident),+))+) => {$(
        #[allow(non_snake_case, reason = "a field is named as its type is")]
        impl<$($field: Encoded),+> Encoded for ($($field,)+) {
            fn put(&self, out: &mut Vec<u8>) {
                let ($($field,)+) = self;
                $($field.put(out);)+
            }

            fn take(fields: &mut Fields<'_>) -> Option<Self> {
                Some(($($field::take(fields)?,)+))
            }
        }
    )+};
}

tuples!((A, B)(A, B, C)(A, B, C, D)(A, B, C, D, E)(A, B, C, D, E, F)(A, B, C, D, E, F, G));

/// The fields of what came, one after the other. What is too short gives `None`.
#[derive(Debug)]
pub struct Fields<'a>(
    /// The rest.
    pub &'a [u8],
);

#[expect(missing_docs, reason = "they read what they are named after")]
impl<'a> Fields<'a> {
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.0.split_off(..N)?.try_into().ok()
    }

    pub fn read<T: Encoded>(&mut self) -> Option<T> {
        T::take(self)
    }

    pub fn millis(&mut self) -> Option<Duration> {
        self.read().map(|ms: u32| Duration::from_millis(u64::from(ms)))
    }

    /// A text with its length before it; [characters of format](is_format) become question marks.
    pub fn text(&mut self, max: usize) -> Option<String> {
        let [len] = self.array()?;
        let text = self.0.split_off(..usize::from(len)).filter(|text| text.len() <= max)?;
        let text = core::str::from_utf8(text).ok()?;
        // A question mark is never longer than what it stands for.
        let printable = |c: char| if is_format(c) { '?' } else { c };
        Some(text.chars().map(printable).collect())
    }

    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        self.0.split_off(..len)
    }

    /// Checks that no bytes follow.
    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
