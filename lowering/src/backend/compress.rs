//! Code as programs embed it: deflated, for most of it is never loaded.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec;
use serde::{Deserialize, Serialize};

/// The compression level that takes little of a build's time; higher ones save 1 % more (docs/decisions/0177).
const LEVEL: u8 = 6;

/// Bytes as DEFLATE packs them (RFC 1951).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Deflated {
    pub deflated: Vec<u8>,
    /// Their number when inflated.
    pub len: usize,
}

impl Deflated {
    pub fn new(bytes: &[u8]) -> Deflated {
        Deflated { deflated: compress_to_vec(bytes, LEVEL), len: bytes.len() }
    }

    pub fn unpack(&self) -> Vec<u8> {
        decompress_to_vec(&self.deflated).expect("`new` deflated it")
    }
}
