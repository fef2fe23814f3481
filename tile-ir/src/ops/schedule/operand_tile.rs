//! Tiles in shared memory that dots read as matrices of 16-byte rows, or as rows of elements.

use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{ParseError, TextReader, Type};

/// Bytes of a chunk: of one copy, and of a row of a matrix.
pub const CHUNK_BYTES: u32 = 16;
/// Bytes of all banks.
const BANK_ROW_BYTES: u32 = 128;

/// How the rows of a tile are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineOrder {
    /// Chunks are swizzled by the index of the row.
    Swizzled,
    /// In order.
    Plain,
    /// Elements are copied one by one from rows along another axis.
    Transposed,
}

/// The bits of an offset that are its row, by which chunks are swizzled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowBits {
    pub shift: u32,
    pub mask: u32,
}

/// A tile in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperandTile {
    /// Bytes between contiguous elements along each axis.
    pub strides: Vec<u32>,
    pub bytes: u32,
    /// None where rows have an odd number of chunks instead.
    pub rows: Option<RowBits>,
}

impl OperandTile {
    /// Alignment of a tile, within which chunks are swizzled.
    pub const ALIGNMENT: u32 = BANK_ROW_BYTES;

    /// Rows along `fast`, one after the other.
    pub fn new(Type { dtype, shape, .. }: &Type, fast: usize, order: LineOrder) -> OperandTile {
        let line = shape[fast] * dtype.bytes();
        let is_swizzled = line.is_power_of_two() && order == LineOrder::Swizzled;
        let chunks = line.div_ceil(CHUNK_BYTES);
        // With an odd number of chunks, neighbors across the rows are in different banks.
        let pitch = if is_swizzled || order == LineOrder::Plain { chunks } else { chunks | 1 } * CHUNK_BYTES;
        let mut strides = vec![dtype.bytes(); shape.rank()];
        let mut stride = pitch;
        for axis in (0..shape.rank()).rev().filter(|&axis| axis != fast) {
            strides[axis] = stride;
            stride *= shape[axis];
        }
        let rows = is_swizzled.then(|| RowBits {
            shift: line.max(BANK_ROW_BYTES).ilog2(),
            mask: (line / CHUNK_BYTES).clamp(1, BANK_ROW_BYTES / CHUNK_BYTES) - 1,
        });
        OperandTile { strides, bytes: stride.next_multiple_of(Self::ALIGNMENT), rows }
    }

    /// The same tile by the axes of a view of it; an axis that is none has extent 1.
    pub fn viewed(&self, axes: &[Option<usize>]) -> OperandTile {
        let strides = axes.iter().map(|axis| axis.map_or(0, |axis| self.strides[axis])).collect();
        OperandTile { strides, ..self.clone() }
    }

    /// The offset of the element with these coordinates: what is xored to the offset of the thread's first element, and what is
    /// added then.
    pub fn distance(&self, coord: impl Fn(usize) -> u32) -> (u32, u32) {
        let offset: u32 = self.strides.iter().enumerate().map(|(axis, stride)| coord(axis) * stride).sum();
        let Some(RowBits { shift, mask }) = self.rows else { return (0, offset) };
        let swizzled = offset ^ ((offset >> shift & mask) * CHUNK_BYTES);
        let within = mask * CHUNK_BYTES;
        (swizzled & within, swizzled & !within)
    }
}

impl FieldText for OperandTile {
    fn write(&self, out: &mut TextWriter) {
        out.attribute("strides", &self.strides);
        out.attribute("bytes", &self.bytes);
        out.attribute("swizzle", &self.rows);
    }

    fn read(input: &mut TextReader) -> Result<OperandTile, ParseError> {
        let (strides, bytes) = (input.attribute("strides")?, input.attribute("bytes")?);
        Ok(OperandTile { strides, bytes, rows: input.attribute("swizzle")? })
    }
}

impl FieldText for RowBits {
    fn write(&self, out: &mut TextWriter) {
        out.attribute("shift", &self.shift);
        out.attribute("mask", &self.mask);
    }

    fn read(input: &mut TextReader) -> Result<RowBits, ParseError> {
        Ok(RowBits { shift: input.attribute("shift")?, mask: input.attribute("mask")? })
    }
}
