//! Encoding of packet fields: appended one after the other, and parsed from untrusted bytes.

use alloc::string::String;
use alloc::vec::Vec;

use faircast_base::{Duration, NodeId, is_format};

/// Values with one encoding: numbers in network byte order; arrays and tuples part by part.
pub trait Encoded: Sized {
    /// Appends the encoding to `out`.
    fn put(&self, out: &mut Vec<u8>);

    /// Parses the value; `None` if bytes are missing or the value is invalid.
    fn take(fields: &mut Fields<'_>) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Encoded for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn take(fields: &mut Fields<'_>) -> Option<Self> {
                fields.read().map(Self::from_be_bytes)
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
        fields.bytes(N)?.try_into().ok()
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

/// Returns the encoding of fields.
pub fn encoded(fields: impl Encoded) -> Vec<u8> {
    let mut out = Vec::new();
    fields.put(&mut out);
    out
}

/// Parser of the fields of a received packet. Missing bytes and invalid values give `None`.
#[derive(Debug)]
pub struct Fields<'a>(
    /// Bytes not parsed yet.
    pub &'a [u8],
);

impl<'a> Fields<'a> {
    /// Parses a value.
    pub fn read<T: Encoded>(&mut self) -> Option<T> {
        T::take(self)
    }

    /// Parses a duration of 32 bits, in milliseconds.
    pub fn millis(&mut self) -> Option<Duration> {
        self.read().map(|ms: u32| Duration::from_millis(u64::from(ms)))
    }

    /// Parses a text in UTF-8 after its length byte, at most `bytes_max` bytes without that one.
    /// Replaces [format characters](is_format) by `?`.
    pub fn text(&mut self, bytes_max: usize) -> Option<String> {
        let len: u8 = self.read()?;
        let bytes = self.bytes(usize::from(len)).filter(|bytes| bytes.len() <= bytes_max)?;
        let text = core::str::from_utf8(bytes).ok()?;
        // A question mark is never longer than the character that it replaces.
        let printable = |c: char| if is_format(c) { '?' } else { c };
        Some(text.chars().map(printable).collect())
    }

    /// Takes all bytes that remain, perhaps none.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }

    /// Takes the next `len` bytes.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        self.0.split_off(..len)
    }

    /// Checks that no bytes remain.
    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
