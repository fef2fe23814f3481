//! Emission of layout conversions, by the method that `layout::conversion` chose: registers, shuffles or shared memory.

use tile_ir::ir::{Op, Shape, Value};
use tile_ir::ops::{Convert, Reshape};
use tile_ir::support::dtype::DType;
use tile_ir::support::limits::MAX_ACCESS_BYTES;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::{load, store};
use crate::gpu::emit::{Builder, Gpu, ShuffleMode};
use crate::gpu::layout::conversion::Shuffle;
use crate::gpu::layout::linear::LANE_BITS;
use crate::gpu::layout::{Conversion, Coord, Distributed, Layout, conversion};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// A tile in shared memory: the stride along each axis, in elements.
pub(crate) struct SmemTile {
    pub(crate) strides: Vec<u32>,
    pub(crate) elements: u32,
    /// The axis along which the elements of the tile are contiguous in memory.
    pub(super) fast: usize,
    padding: Option<Padding>,
    /// Whether the two elements of each pair along `fast` are swapped.
    pub(super) swapped: bool,
    offsets: Option<SmemOffsets>,
}

/// `elements` of padding after every `1 << shift` along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Padding {
    axis: usize,
    shift: u32,
    elements: u32,
}

/// Bytes of one shared-memory transaction: a word of each of 32 banks.
const WAVEFRONT: u32 = 128;
const WORD: u32 = 4;

impl SmemTile {
    /// Rows one after the other, each padded by 16 bytes so that a column is spread over different banks.
    pub(crate) fn padded(shape: &Shape, dtype: DType) -> SmemTile {
        SmemTile::along(shape, dtype, shape.rank() - 1)
    }

    /// The same with contiguous lines along another axis.
    pub(super) fn along(shape: &Shape, dtype: DType, fast: usize) -> SmemTile {
        let padding = if shape.rank() > 1 { 16 / dtype.bytes() } else { 0 };
        SmemTile::new(shape, padding, fast, None)
    }

    /// Row-major without padding, so that another shape reads the same elements in order.
    pub(crate) fn dense(shape: &Shape) -> SmemTile {
        SmemTile::new(shape, 0, shape.rank() - 1, None)
    }

    /// Rows one after the other, so that writing a tile in layout `from` and reading it in layout `to` has few bank conflicts.
    /// Rows that a warp writes at once may be a power of two apart, so that no padding of each row keeps them from the same
    /// bank: then padding follows every few rows instead.
    pub(crate) fn between(from: &Layout, to: &Layout, dtype: DType) -> SmemTile {
        let shape = from.shape();
        let padded = SmemTile::padded(shape, dtype);
        let Some(axis) = shape.rank().checked_sub(2) else { return padded };
        let fast = shape.rank() - 1;
        let cost = |tile: &SmemTile| {
            let writes = tile.wavefronts(from, dtype, vector_along(from, dtype, fast));
            writes + tile.wavefronts(to, dtype, vector(to, dtype))
        };
        let vector = MAX_ACCESS_BYTES / dtype.bytes();
        let padded_by =
            |shift: u32| SmemTile::new(shape, 0, fast, Some(Padding { axis, shift, elements: vector }));
        let shifts = 1..shape[axis].ilog2().max(1);
        let best = shifts.map(padded_by).map(|tile| (cost(&tile), tile)).min_by_key(|(cost, _)| *cost);
        best.filter(|(least, _)| 4 * least < 3 * cost(&padded)).map_or(padded, |(_, tile)| tile)
    }

    /// Wavefronts of a warp's accesses to the whole tile, `run` registers with one instruction.
    pub(crate) fn wavefronts(&self, layout: &Layout, dtype: DType, run: usize) -> u32 {
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
        let mut strides = vec![1; shape.rank()];
        let mut stride = shape[fast] + row_padding;
        for axis in (0..shape.rank()).rev().filter(|&axis| axis != fast) {
            strides[axis] = stride;
            stride *= shape[axis];
            if let Some(padding) = padding.filter(|padding| padding.axis == axis) {
                stride += ((shape[axis] - 1) >> padding.shift) * padding.elements;
            }
        }
        SmemTile { strides, elements: stride, fast, padding, swapped: false, offsets: None }
    }

    /// The same, written at constant offsets from one address.
    pub(super) fn with_constant_offsets(self) -> SmemTile {
        SmemTile { offsets: Some(SmemOffsets::Constant), ..self }
    }

    /// The same with the two elements of each pair along `fast` swapped.
    pub(super) fn swapped(self) -> SmemTile {
        SmemTile { swapped: true, ..self }
    }

    /// The offset of the element at this coordinate, in elements.
    pub(crate) fn offset_of(&self, coord: Coord) -> u32 {
        let padding =
            self.padding.map_or(0, |padding| (coord.get(padding.axis) >> padding.shift) * padding.elements);
        self.strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum::<u32>() + padding
    }

    /// The address of the element whose coordinate along each axis is `coord(b, axis)`.
    pub(super) fn pointer(
        &self,
        b: &mut Builder,
        base: Val,
        dtype: DType,
        mut coord: impl FnMut(&mut Builder, usize) -> Val,
    ) -> Val {
        let mut offset = b.int(Ty::I32, 0);
        for (axis, &stride) in self.strides.iter().enumerate() {
            let coord = coord(b, axis);
            let scale = b.int(Ty::I32, i64::from(stride * dtype.bytes()));
            let term = b.mul_nsw(coord, scale);
            offset = b.add_nsw(offset, term);
            if let Some(padding) = self.padding.filter(|padding| padding.axis == axis) {
                let shift = b.int(Ty::I32, i64::from(padding.shift));
                let rows = b.lshr(coord, shift);
                let bytes = b.int(Ty::I32, i64::from(padding.elements * dtype.bytes()));
                let term = b.mul_nsw(rows, bytes);
                offset = b.add_nsw(offset, term);
            }
        }
        b.offset(base, offset, 1)
    }
}

fn layouts<'a>(distributed: &'a Distributed, operand: Value, op: &Op) -> (&'a Layout, &'a Layout) {
    (&distributed.layouts[&operand], &distributed.layouts[&op.results[0]])
}

impl GpuEmit for Convert {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let (from, to) = layouts(distributed, self.value, op);
        let ty = distributed.func.ty(self.value);
        match conversion(from, to) {
            Conversion::Registers(_) | Conversion::Shuffle(_) => 0,
            Conversion::Shared => SmemTile::between(from, to, ty.dtype).elements * ty.dtype.bytes(),
        }
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (from, to) = layouts(&gpu.plan.schedule.distributed, self.value, op);
        let ty = gpu.func.ty(self.value).clone();
        let values = gpu.registers(self.value);
        let registers = match conversion(from, to) {
            Conversion::Registers(sources) => sources.into_iter().map(|source| values[source]).collect(),
            Conversion::Shuffle(shuffle) => gpu.convert_by_shuffles(b, &values, &shuffle),
            Conversion::Shared => {
                let tile = SmemTile::between(from, to, ty.dtype);
                gpu.convert_through_smem(b, op, self.value, [&tile, &tile])
            }
        };
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Reshape {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let (from, to) = layouts(distributed, self.value, op);
        let ty = distributed.func.ty(self.value);
        if from.keeps_elements_as(to) { 0 } else { ty.shape.elements() as u32 * ty.dtype.bytes() }
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (from, to) = layouts(&gpu.plan.schedule.distributed, self.value, op);
        let (old, new) = (from.shape().clone(), to.shape().clone());
        if from.reshape(&new).as_ref() == Some(to) {
            return gpu.define_reindexed(op, self.value, |coord| coord.reshape(&new, &old));
        }
        let registers =
            gpu.convert_through_smem(b, op, self.value, [&SmemTile::dense(&old), &SmemTile::dense(&new)]);
        gpu.define(op.results[0], registers);
    }
}

impl Gpu<'_> {
    /// Moves elements within each warp.
    fn convert_by_shuffles(&mut self, b: &mut Builder, values: &[Val], shuffle: &Shuffle) -> Vec<Val> {
        let one = b.int(Ty::I32, 1);
        let bits: Vec<Val> = (0..LANE_BITS)
            .map(|bit| {
                let amount = b.int(Ty::I32, bit as i64);
                let shifted = b.lshr(self.lane, amount);
                b.and(shifted, one)
            })
            .collect();
        // The bits of the source lane that depend on this lane.
        let mut varying = b.int(Ty::I32, 0);
        for (bit, &(_, lane)) in shuffle.lane_bits.iter().enumerate().filter(|(_, (_, lane))| *lane != 0) {
            let lane = b.int(Ty::I32, i64::from(lane));
            let term = b.mul(bits[bit], lane);
            varying = b.xor(varying, term);
        }
        (0..shuffle.constant.len())
            .map(|register| {
                let (source, lane) = shuffle.constant[register];
                let constant = b.int(Ty::I32, i64::from(lane));
                let lane = b.xor(varying, constant);
                let flips: Vec<(usize, Val)> = shuffle
                    .lane_bits
                    .iter()
                    .enumerate()
                    .filter(|(_, (flip, _))| *flip != 0)
                    .map(|(bit, &(flip, _))| (flip, bits[bit]))
                    .collect();
                self.shuffle_selected(b, values, source, &flips, lane)
            })
            .collect()
    }

    /// The value of the source register that this lane's bits select, read from `lane`.
    fn shuffle_selected(
        &self,
        b: &mut Builder,
        values: &[Val],
        source: usize,
        flips: &[(usize, Val)],
        lane: Val,
    ) -> Val {
        match flips {
            [] => self.shuffle(b, values[source], ShuffleMode::Index, lane),
            [(flip, bit), rest @ ..] => {
                let same = self.shuffle_selected(b, values, source, rest, lane);
                let flipped = self.shuffle_selected(b, values, source ^ flip, rest, lane);
                let zero = b.int(Ty::I32, 0);
                let is_zero = b.icmp(crate::gpu::emit::IntPredicate::Eq, *bit, zero);
                b.select(is_zero, same, flipped)
            }
        }
    }

    /// Converts through shared memory: the operand is written as `tiles[0]`, the result read as `tiles[1]`.
    fn convert_through_smem(
        &mut self,
        b: &mut Builder,
        op: &Op,
        operand: Value,
        tiles: [&SmemTile; 2],
    ) -> Vec<Val> {
        let base = self.write_to_scratch(b, op, operand, tiles[0]);
        self.read_smem_tile(b, op, base, tiles[1])
    }

    /// Writes a tile to the operation's scratch, for every thread to read; returns its address.
    pub(super) fn write_to_scratch(
        &mut self,
        b: &mut Builder,
        op: &Op,
        operand: Value,
        tile: &SmemTile,
    ) -> Val {
        self.exchange_through_scratch(b, op, |gpu, b, base| gpu.write_smem_tile(b, operand, tile, base))
    }

    /// Writes to the operation's scratch memory, and returns its address once all threads may read it.
    pub(super) fn exchange_through_scratch(
        &mut self,
        b: &mut Builder,
        op: &Op,
        write: impl FnOnce(&mut Self, &mut Builder, Val),
    ) -> Val {
        let scratch = self.smem.scratch(op.results[0]);
        self.before_write(b, scratch);
        let base = self.smem_base();
        let base = b.offset_bytes(base, scratch.start as i32);
        write(self, b, base);
        self.barrier(b);
        self.membar.read(scratch);
        base
    }

    /// Writes a tile to shared memory from `base` on.
    pub(super) fn write_smem_tile(&mut self, b: &mut Builder, operand: Value, tile: &SmemTile, base: Val) {
        let dtype = self.func.ty(operand).dtype;
        let from = self.layout(operand);
        let values = self.registers(operand);
        let writer = self.writer(b, Some(from));
        self.write_registers(b, (from, &values, dtype), writer, (tile, base));
    }

    /// Writes registers of a layout where the condition holds.
    pub(super) fn write_registers(
        &mut self,
        b: &mut Builder,
        (from, values, dtype): (&Layout, &[Val], DType),
        writer: Option<Val>,
        (tile, base): (&SmemTile, Val),
    ) {
        let run = vector_along(from, dtype, tile.fast);
        let offsets = tile.offsets.unwrap_or_else(|| SmemOffsets::of(from, dtype, run));
        let pointers = self.smem_pointers(b, (from, run), (tile, base, dtype), offsets);
        let write = |b: &mut Builder| {
            for (chunk, &pointer) in values.chunks(run).zip(&pointers) {
                let align = run as u32 * dtype.bytes();
                let mut chunk = chunk.to_vec();
                if tile.swapped {
                    chunk.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
                }
                self.for_each_cta(b, [pointer], |b, [pointer]| store(b, &chunk, dtype, pointer, align));
            }
        };
        b.guarded(writer, write);
    }

    /// The result's elements, read from a tile in shared memory.
    pub(super) fn read_smem_tile(
        &mut self,
        b: &mut Builder,
        op: &Op,
        base: Val,
        tile: &SmemTile,
    ) -> Vec<Val> {
        let to = self.layout(op.results[0]);
        let dtype = self.func.ty(op.results[0]).dtype;
        let run = vector(to, dtype);
        // A tile written in small vectors is read while the addresses of its stores are live.
        let from = op.kind.operation().operands().into_iter().find(|&value| !self.func.ty(value).is_scalar());
        let offsets = from.map_or(SmemOffsets::Computed, |from| {
            let from = self.layout(from);
            SmemOffsets::of(from, dtype, vector_along(from, dtype, tile.fast))
        });
        let pointers = self.smem_pointers(b, (to, run), (tile, base, dtype), offsets);
        pointers.into_iter().flat_map(|pointer| load(b, pointer, dtype, run)).collect()
    }

    /// The addresses of a thread's elements in shared memory: one for every `run` registers.
    fn smem_pointers(
        &mut self,
        b: &mut Builder,
        (layout, run): (&Layout, usize),
        (tile, base, dtype): (&SmemTile, Val, DType),
        offsets: SmemOffsets,
    ) -> Vec<Val> {
        let registers = (0..layout.register_count()).step_by(run);
        let swaps_lanes = tile.swapped && run == 1;
        let other_of_pair = |b: &mut Builder, coord: Val| {
            let one = b.int(Ty::I32, 1);
            b.xor(coord, one)
        };
        if offsets == SmemOffsets::Computed || !layout.is_disjoint() {
            let pointer = |r| {
                tile.pointer(b, base, dtype, |b, axis| {
                    let coord = self.coord(b, layout, r, axis);
                    if swaps_lanes && axis == tile.fast { other_of_pair(b, coord) } else { coord }
                })
            };
            return registers.map(pointer).collect();
        }
        let pair = Coord::along(tile.fast, 1);
        let in_registers = layout.register_bases().contains(&pair);
        let first = tile.pointer(b, base, dtype, |b, axis| {
            let coord = self.thread_coord(b, layout, axis);
            if swaps_lanes && !in_registers && axis == tile.fast { other_of_pair(b, coord) } else { coord }
        });
        let swap = if swaps_lanes && in_registers { pair } else { Coord::ZERO };
        let offset = |register| (tile.offset_of(layout.register(register).xor(swap)) * dtype.bytes()) as i32;
        registers.map(|register| b.offset_bytes(first, offset(register))).collect()
    }
}

/// How the addresses of a thread's elements in shared memory are formed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SmemOffsets {
    /// Each address is computed from coordinates.
    Computed,
    /// Constant offsets from the first: fragments have many small vectors, for which addresses of their own would take
    /// registers.
    Constant,
}

impl SmemOffsets {
    /// For a tile of which one instruction writes `run` registers.
    fn of(layout: &Layout, dtype: DType, run: usize) -> SmemOffsets {
        let is_fragment = run > 1 && run as u32 * dtype.bytes() < 16 && layout.is_disjoint();
        if is_fragment { SmemOffsets::Constant } else { SmemOffsets::Computed }
    }
}

/// Registers that one instruction moves: contiguous elements along the last axis, up to 16 bytes.
pub(crate) fn vector(layout: &Layout, dtype: DType) -> usize {
    vector_along(layout, dtype, layout.shape().rank() - 1)
}

/// The same along another axis.
fn vector_along(layout: &Layout, dtype: DType, axis: usize) -> usize {
    layout.thread_contiguity(axis).min(16 / dtype.bytes()) as usize
}
