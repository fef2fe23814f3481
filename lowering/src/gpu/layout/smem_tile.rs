//! Tiles in shared memory: where an element is, and how many one instruction moves.

use tile_ir::ir::Shape;
use tile_ir::support::dtype::DType;
use tile_ir::support::limits::MAX_ACCESS_BYTES;

use super::linear::{Coord, LANE_BITS, Layout};

/// A tile in shared memory: the stride along each axis, in elements.
#[derive(Clone, Debug)]
pub struct SmemTile {
    pub strides: Vec<u32>,
    pub elements: u32,
    /// The axis along which the elements of the tile are contiguous in memory.
    pub fast: usize,
    pub padding: Option<Padding>,
    /// Whether the two elements of each pair along `fast` are swapped.
    pub swapped: bool,
    /// How addresses are formed, where the layout that is written does not say.
    pub offsets: Option<SmemOffsets>,
}

/// `elements` of padding after every `1 << shift` along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Padding {
    pub axis: usize,
    pub shift: u32,
    pub elements: u32,
}

/// Bytes of one shared-memory transaction: a word of each of 32 banks.
const WAVEFRONT: u32 = 128;
const WORD: u32 = 4;

impl SmemTile {
    /// Rows one after the other, each padded by 16 bytes so that a column is spread over different banks.
    pub fn padded(shape: &Shape, dtype: DType) -> SmemTile {
        SmemTile::along(shape, dtype, shape.rank() - 1)
    }

    /// The same with contiguous lines along another axis.
    pub fn along(shape: &Shape, dtype: DType, fast: usize) -> SmemTile {
        let padding = if shape.rank() > 1 { 16 / dtype.bytes() } else { 0 };
        SmemTile::new(shape, padding, fast, None)
    }

    /// Row-major without padding, so that another shape reads the same elements in order.
    pub fn dense(shape: &Shape) -> SmemTile {
        SmemTile::new(shape, 0, shape.rank() - 1, None)
    }

    /// The tile for a tile of this shape, or for a scalar.
    pub fn of_tile_or_scalar(shape: &Shape, dtype: DType) -> SmemTile {
        if shape.rank() == 0 { SmemTile::dense(&Shape::new(vec![1])) } else { SmemTile::padded(shape, dtype) }
    }

    /// Rows one after the other, so that writing a tile in layout `from` and reading it in layout `to` has few bank conflicts.
    /// Rows that a warp writes at once may be a power of two apart, so that no padding of each row keeps them from the same
    /// bank: then padding follows every few rows instead. Likewise lanes whose runs within a row are a power of two long: padding follows
    /// every transaction's bytes.
    pub fn between(from: &Layout, to: &Layout, dtype: DType) -> SmemTile {
        let shape = from.shape();
        let padded = SmemTile::padded(shape, dtype);
        let fast = shape.rank() - 1;
        let cost = |tile: &SmemTile| {
            let writes = tile.wavefronts(from, dtype, vector_along(from, dtype, fast));
            writes + tile.wavefronts(to, dtype, vector(to, dtype))
        };
        let elements = MAX_ACCESS_BYTES / dtype.bytes();
        let within_rows = Padding { axis: fast, shift: (WAVEFRONT / dtype.bytes()).ilog2(), elements };
        let rows = fast.checked_sub(1).into_iter();
        let every_few_rows = rows.flat_map(|axis| {
            (1..shape[axis].ilog2().max(1)).map(move |shift| Padding { axis, shift, elements })
        });
        let tiles =
            every_few_rows.chain([within_rows]).map(|padding| SmemTile::new(shape, 0, fast, Some(padding)));
        let best = tiles.map(|tile| (cost(&tile), tile)).min_by_key(|(cost, _)| *cost);
        best.filter(|(least, _)| 4 * least < 3 * cost(&padded)).map_or(padded, |(_, tile)| tile)
    }

    /// Wavefronts of a warp's accesses to the whole tile, `run` registers with one instruction.
    pub fn wavefronts(&self, layout: &Layout, dtype: DType, run: usize) -> u32 {
        let bytes = run as u32 * dtype.bytes();
        let lanes_per_phase = (WAVEFRONT / bytes.max(WORD)).min(1 << LANE_BITS);
        let lanes: Vec<u32> = (0..1 << LANE_BITS).collect();
        let conflicts = |register: usize, lanes: &[u32]| {
            let mut words: Vec<u32> = lanes
                .iter()
                .flat_map(|&lane| {
                    let first = self.offset_of(layout.coord(register, lane, 0)) * dtype.bytes();
                    first / WORD..(first + bytes).div_ceil(WORD)
                })
                .collect();
            words.sort_unstable();
            words.dedup();
            let mut banks = [0; (WAVEFRONT / WORD) as usize];
            words.iter().for_each(|word| banks[(word % (WAVEFRONT / WORD)) as usize] += 1);
            banks.into_iter().max().unwrap_or(0)
        };
        let registers = (0..layout.register_count()).step_by(run);
        registers
            .map(|register| {
                lanes.chunks(lanes_per_phase as usize).map(|lanes| conflicts(register, lanes)).sum::<u32>()
            })
            .sum()
    }

    fn new(shape: &Shape, row_padding: u32, fast: usize, padding: Option<Padding>) -> SmemTile {
        let padding_along = |axis: usize| {
            let padding = padding.filter(|padding| padding.axis == axis);
            padding.map_or(0, |padding| ((shape[axis] - 1) >> padding.shift) * padding.elements)
        };
        let mut strides = vec![1; shape.rank()];
        let mut stride = shape[fast] + row_padding + padding_along(fast);
        for axis in (0..shape.rank()).rev().filter(|&axis| axis != fast) {
            strides[axis] = stride;
            stride = stride * shape[axis] + padding_along(axis);
        }
        SmemTile { strides, elements: stride, fast, padding, swapped: false, offsets: None }
    }

    /// The same, written at constant offsets from one address.
    pub fn with_constant_offsets(self) -> SmemTile {
        SmemTile { offsets: Some(SmemOffsets::Constant), ..self }
    }

    /// The same with the two elements of each pair along `fast` swapped.
    pub fn swapped(self) -> SmemTile {
        SmemTile { swapped: true, ..self }
    }

    /// The offset of the element at this coordinate, in elements.
    pub fn offset_of(&self, coord: Coord) -> u32 {
        let padding =
            self.padding.map_or(0, |padding| (coord.get(padding.axis) >> padding.shift) * padding.elements);
        self.strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum::<u32>() + padding
    }
}

/// How the addresses of a thread's elements in shared memory are formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmemOffsets {
    /// Each address is computed from coordinates.
    Computed,
    /// Constant offsets from the first: fragments have many small vectors, for which addresses of their own would take
    /// registers.
    Constant,
}

impl SmemOffsets {
    /// For a tile of which one instruction writes `run` registers.
    pub fn of(layout: &Layout, dtype: DType, run: usize) -> SmemOffsets {
        let is_fragment = run > 1 && run as u32 * dtype.bytes() < 16 && layout.is_disjoint();
        if is_fragment { SmemOffsets::Constant } else { SmemOffsets::Computed }
    }
}

/// Registers that one instruction moves: contiguous elements along the last axis, up to 16 bytes.
pub fn vector(layout: &Layout, dtype: DType) -> usize {
    vector_along(layout, dtype, layout.shape().rank() - 1)
}

/// The same along another axis.
pub fn vector_along(layout: &Layout, dtype: DType, axis: usize) -> usize {
    layout.thread_contiguity(axis).min(16 / dtype.bytes()) as usize
}
