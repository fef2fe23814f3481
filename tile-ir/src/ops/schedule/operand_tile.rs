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
    /// The same within panels of 128 bytes, as TMA writes a tile and `wgmma` reads it.
    Panels,
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
    /// Rows of more than 128 bytes may be in panels of 128 bytes, one panel behind the other.
    pub panels: Option<Panels>,
}

/// How an axis is cut into panels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panels {
    pub axis: usize,
    /// Elements of a panel along the axis.
    pub extent: u32,
    /// Bytes from one panel to the next.
    pub stride: u32,
}

impl OperandTile {
    /// Alignment of a tile, within which chunks are swizzled.
    pub const ALIGNMENT: u32 = BANK_ROW_BYTES;
    /// The same where `wgmma` reads it, which swizzles by bits of the address.
    pub const WGMMA_ALIGNMENT: u32 = 8 * BANK_ROW_BYTES;

    /// Rows along `fast`, one after the other.
    pub fn new(Type { dtype, shape, .. }: &Type, fast: usize, order: LineOrder) -> OperandTile {
        let line = shape[fast] * dtype.bytes();
        let (is_power, is_whole) = (line.is_power_of_two(), line.is_multiple_of(BANK_ROW_BYTES));
        let is_swizzled = match order {
            LineOrder::Swizzled => is_power,
            LineOrder::Panels => is_power || is_whole,
            LineOrder::Plain | LineOrder::Transposed => false,
        };
        let chunks = line.div_ceil(CHUNK_BYTES);
        let row_bytes = if order == LineOrder::Panels { line.min(BANK_ROW_BYTES) } else { line };
        // With an odd number of chunks, neighbors across the rows are in different banks.
        let pitch = match order {
            _ if is_swizzled => row_bytes.next_multiple_of(CHUNK_BYTES),
            LineOrder::Plain => chunks * CHUNK_BYTES,
            LineOrder::Swizzled | LineOrder::Panels | LineOrder::Transposed => (chunks | 1) * CHUNK_BYTES,
        };
        let mut strides = vec![dtype.bytes(); shape.rank()];
        let mut stride = pitch;
        for axis in (0..shape.rank()).rev().filter(|&axis| axis != fast) {
            strides[axis] = stride;
            stride *= shape[axis];
        }
        let panels = (is_swizzled && line > pitch).then_some(Panels {
            axis: fast,
            extent: BANK_ROW_BYTES / dtype.bytes(),
            stride,
        });
        let bytes = stride * panels.map_or(1, |panels| shape[fast] / panels.extent);
        OperandTile {
            strides,
            bytes: bytes.next_multiple_of(BANK_ROW_BYTES),
            rows: is_swizzled.then(|| RowBits {
                shift: row_bytes.max(BANK_ROW_BYTES).ilog2(),
                mask: (row_bytes / CHUNK_BYTES).clamp(1, BANK_ROW_BYTES / CHUNK_BYTES) - 1,
            }),
            panels,
        }
    }

    /// The same tile by the axes of a view of it; an axis that is none has extent 1.
    pub fn viewed(&self, axes: &[Option<usize>]) -> OperandTile {
        let strides = axes.iter().map(|axis| axis.map_or(0, |axis| self.strides[axis])).collect();
        let panels = self.panels.and_then(|panels| {
            let axis = axes.iter().position(|&axis| axis == Some(panels.axis))?;
            Some(Panels { axis, ..panels })
        });
        OperandTile { strides, panels, ..self.clone() }
    }

    /// The offset of the element with these coordinates: what is xored to the offset of the thread's first element, and what is
    /// added then.
    pub fn distance(&self, coord: impl Fn(usize) -> u32) -> (u32, u32) {
        let along = |(axis, stride): (usize, &u32)| match self.panels {
            Some(panels) if panels.axis == axis => {
                coord(axis) / panels.extent * panels.stride + coord(axis) % panels.extent * stride
            }
            _ => coord(axis) * stride,
        };
        let offset: u32 = self.strides.iter().enumerate().map(along).sum();
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
        out.attribute("panels", &self.panels);
    }

    fn read(input: &mut TextReader) -> Result<OperandTile, ParseError> {
        let (strides, bytes) = (input.attribute("strides")?, input.attribute("bytes")?);
        let rows = input.attribute("swizzle")?;
        Ok(OperandTile { strides, bytes, rows, panels: input.attribute("panels")? })
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

impl FieldText for Panels {
    fn write(&self, out: &mut TextWriter) {
        out.attribute("axis", &self.axis);
        out.attribute("extent", &self.extent);
        out.attribute("stride", &self.stride);
    }

    fn read(input: &mut TextReader) -> Result<Panels, ParseError> {
        let (axis, extent) = (input.attribute("axis")?, input.attribute("extent")?);
        Ok(Panels { axis, extent, stride: input.attribute("stride")? })
    }
}
