//! Compressed code: a program has all of it and needs little.

use std::borrow::Cow;
use std::iter::once;

use miniz_oxide::inflate::decompress_slice_iter_to_slice;

/// Bytes that are unpacked when they are needed: a program has the code of all variants for all architectures, and runs
/// little of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Packed {
    /// As they are.
    Plain(&'static [u8]),
    /// As DEFLATE packs them (RFC 1951).
    Deflated {
        /// What it made of them.
        bytes: &'static [u8],
        /// How many they are.
        len: usize,
    },
}

impl Packed {
    /// How many bytes [`Packed::unpack`] gives.
    pub const fn len(self) -> usize {
        match self {
            Packed::Plain(bytes) => bytes.len(),
            Packed::Deflated { len, .. } => len,
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes, or `None` if they are not `len` bytes deflated.
    pub fn unpack(self) -> Option<Cow<'static, [u8]>> {
        match self {
            Packed::Plain(bytes) => Some(Cow::Borrowed(bytes)),
            Packed::Deflated { bytes, len } => {
                let mut unpacked = vec![0; len];
                let written = decompress_slice_iter_to_slice(&mut unpacked, once(bytes), false, true);
                (written == Ok(len)).then_some(Cow::Owned(unpacked))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `0123456789` ten times.
    const DIGITS: &[u8] =
        &[0x33, 0x30, 0x34, 0x32, 0x36, 0x31, 0x35, 0x33, 0xb7, 0xb0, 0x34, 0xa0, 0x19, 0x0b, 0x00];

    #[test]
    fn deflated_bytes_are_unpacked_to_the_last_one() {
        let packed = Packed::Deflated { bytes: DIGITS, len: 100 };
        assert_eq!(packed.unpack().unwrap(), "0123456789".repeat(10).as_bytes());
        assert_eq!((packed.len(), packed.is_empty()), (100, false));
    }

    #[test]
    fn what_is_not_as_many_bytes_is_nothing() {
        for len in [99, 101] {
            assert_eq!(Packed::Deflated { bytes: DIGITS, len }.unpack(), None);
        }
        let (cut, other) = (&DIGITS[..DIGITS.len() - 2], b"\xffplain text");
        for bytes in [cut, other, b""] {
            assert_eq!(Packed::Deflated { bytes, len: 100 }.unpack(), None);
        }
    }

    #[test]
    fn plain_bytes_are_themselves() {
        let text = b".version 8.0";
        assert!(matches!(Packed::Plain(text).unpack(), Some(Cow::Borrowed(found)) if found == text));
        assert!(Packed::Plain(b"").is_empty());
    }
}
