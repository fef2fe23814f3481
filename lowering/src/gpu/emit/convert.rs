//! Elements moved to other threads, the way `layout::plan` found.

use crate::gpu::emit::emit::GpuEmit;
use crate::gpu::emit::reduce::{load, store};
use crate::gpu::emit::{Builder, Gpu, ShuffleMode};
use crate::gpu::layout::conversion::Shuffle;
use crate::gpu::layout::linear::LANE_BITS;
use crate::gpu::layout::{Conversion, Coord, Distributed, Layout, conversion};
use crate::ir::{Op, Shape, Value};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use crate::ops::{Convert, Reshape};
use crate::support::dtype::DType;
use crate::support::limits::MAX_ACCESS_BYTES;

/// A tile in shared memory: the distance between neighbours along each axis, in elements.
pub(crate) struct SmemTile {
    pub(crate) strides: Vec<u32>,
    pub(crate) elements: u32,
    /// The axis along which neighbours in the tile are neighbours in memory.
    pub(super) fast: usize,
    skew: Option<Padding>,
    /// Whether the two elements of each pair along `fast` have changed places.
    pub(super) swapped: bool,
    distances: Option<SmemOffsets>,
}

/// So many elements more for every `1 << shift` along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Padding {
    axis: usize,
    shift: u32,
    elements: u32,
}

/// Bytes that shared memory moves at once: a word of each of 32 banks.
const WAVEFRONT: u32 = 128;
const WORD: u32 = 4;

impl SmemTile {
    /// Rows one after the other, each longer by 16 bytes so that a column meets different banks.
    pub(crate) fn padded(shape: &Shape, dtype: DType) -> SmemTile {
        SmemTile::along(shape, dtype, shape.rank() - 1)
    }

    /// The same of lines along another axis.
    pub(super) fn along(shape: &Shape, dtype: DType, fast: usize) -> SmemTile {
        let padding = if shape.rank() > 1 { 16 / dtype.bytes() } else { 0 };
        SmemTile::new(shape, padding, fast, None)
    }

    /// Row-major without gaps, so that another shape finds the same elements in order.
    pub(crate) fn dense(shape: &Shape) -> SmemTile {
        SmemTile::new(shape, 0, shape.rank() - 1, None)
    }

    /// Rows one after the other so that a tile which lies as `from` is written, and read as `to` lies, with few conflicts of banks. Rows
    /// that a warp writes at once may be a power of two apart, so that no length of a row keeps them from the same bank: then some
    /// more elements follow after every few rows.
    pub(crate) fn between(from: &Layout, to: &Layout, dtype: DType) -> SmemTile {
        let shape = from.shape();
        let padded = SmemTile::padded(shape, dtype);
        let Some(axis) = shape.rank().checked_sub(2) else { return padded };
        let fast = shape.rank() - 1;
        let cost = |staging: &SmemTile| {
            let written = staging.wavefronts(from, dtype, vector_along(from, dtype, fast));
            written + staging.wavefronts(to, dtype, vector(to, dtype))
        };
        let vector = MAX_ACCESS_BYTES / dtype.bytes();
        let skewed =
            |shift: u32| SmemTile::new(shape, 0, fast, Some(Padding { axis, shift, elements: vector }));
        let shifts = 1..shape[axis].ilog2().max(1);
        let best = shifts.map(skewed).map(|staging| (cost(&staging), staging)).min_by_key(|(cost, _)| *cost);
        best.filter(|(least, _)| 4 * least < 3 * cost(&padded)).map_or(padded, |(_, staging)| staging)
    }

    /// How often shared memory moves words for all that a warp writes or reads, `run` registers with one instruction.
    pub(crate) fn wavefronts(&self, layout: &Layout, dtype: DType, run: usize) -> u32 {
        let bytes = run as u32 * dtype.bytes();
        let together = (WAVEFRONT / bytes.max(WORD)).min(1 << LANE_BITS);
        let lanes: Vec<u32> = (0..1 << LANE_BITS).collect();
        let of = |register: usize, lanes: &[u32]| {
            let mut words: Vec<u32> = lanes
                .iter()
                .flat_map(|&lane| {
                    let first = self.distance(layout.coord(register, lane, 0)) * dtype.bytes();
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
            .map(|register| lanes.chunks(together as usize).map(|lanes| of(register, lanes)).sum::<u32>())
            .sum()
    }

    fn new(shape: &Shape, padding: u32, fast: usize, skew: Option<Padding>) -> SmemTile {
        let mut strides = vec![1; shape.rank()];
        let mut stride = shape[fast] + padding;
        for axis in (0..shape.rank()).rev().filter(|&axis| axis != fast) {
            strides[axis] = stride;
            stride *= shape[axis];
            if let Some(skew) = skew.filter(|skew| skew.axis == axis) {
                stride += ((shape[axis] - 1) >> skew.shift) * skew.elements;
            }
        }
        SmemTile { strides, elements: stride, fast, skew, swapped: false, distances: None }
    }

    /// The same, written from one address on.
    pub(super) fn by_one_address(self) -> SmemTile {
        SmemTile { distances: Some(SmemOffsets::Constant), ..self }
    }

    /// The same with the two elements of each pair along `fast` in each other's place.
    pub(super) fn swapped(self) -> SmemTile {
        SmemTile { swapped: true, ..self }
    }

    /// Elements from the first one to the one at this coordinate.
    pub(crate) fn distance(&self, coord: Coord) -> u32 {
        let skew = self.skew.map_or(0, |skew| (coord.get(skew.axis) >> skew.shift) * skew.elements);
        self.strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum::<u32>() + skew
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
            let part = b.mul_nsw(coord, scale);
            offset = b.add_nsw(offset, part);
            if let Some(skew) = self.skew.filter(|skew| skew.axis == axis) {
                let shift = b.int(Ty::I32, i64::from(skew.shift));
                let rows = b.lshr(coord, shift);
                let bytes = b.int(Ty::I32, i64::from(skew.elements * dtype.bytes()));
                let part = b.mul_nsw(rows, bytes);
                offset = b.add_nsw(offset, part);
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
        let (from, to) = layouts(&gpu.plan.distributed, self.value, op);
        let ty = gpu.func.ty(self.value).clone();
        let values = gpu.registers(self.value);
        let registers = match conversion(from, to) {
            Conversion::Registers(sources) => sources.into_iter().map(|source| values[source]).collect(),
            Conversion::Shuffle(shuffle) => gpu.shuffled(b, &values, &shuffle),
            Conversion::Shared => {
                let staging = SmemTile::between(from, to, ty.dtype);
                gpu.staged(b, op, self.value, [&staging, &staging])
            }
        };
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Reshape {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let (from, to) = layouts(distributed, self.value, op);
        let ty = distributed.func.ty(self.value);
        if from.reshape(to.shape()).as_ref() == Some(to) {
            0
        } else {
            ty.shape.elements() as u32 * ty.dtype.bytes()
        }
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (from, to) = layouts(&gpu.plan.distributed, self.value, op);
        let (old, new) = (from.shape().clone(), to.shape().clone());
        if from.reshape(&new).as_ref() == Some(to) {
            return gpu.view(op, self.value, |coord| coord.reshape(&new, &old));
        }
        let registers = gpu.staged(b, op, self.value, [&SmemTile::dense(&old), &SmemTile::dense(&new)]);
        gpu.define(op.results[0], registers);
    }
}

impl Gpu<'_> {
    /// Moves within a warp.
    fn shuffled(&mut self, b: &mut Builder, values: &[Val], shuffle: &Shuffle) -> Vec<Val> {
        let one = b.int(Ty::I32, 1);
        let bits: Vec<Val> = (0..LANE_BITS)
            .map(|bit| {
                let amount = b.int(Ty::I32, bit as i64);
                let shifted = b.lshr(self.lane, amount);
                b.and(shifted, one)
            })
            .collect();
        // The part of the source lane that depends on this lane.
        let mut moving = b.int(Ty::I32, 0);
        for (bit, &(_, lane)) in shuffle.lane_bits.iter().enumerate().filter(|(_, (_, lane))| *lane != 0) {
            let lane = b.int(Ty::I32, i64::from(lane));
            let part = b.mul(bits[bit], lane);
            moving = b.xor(moving, part);
        }
        (0..shuffle.constant.len())
            .map(|register| {
                let (source, lane) = shuffle.constant[register];
                let constant = b.int(Ty::I32, i64::from(lane));
                let lane = b.xor(moving, constant);
                let flips: Vec<(usize, Val)> = shuffle
                    .lane_bits
                    .iter()
                    .enumerate()
                    .filter(|(_, (flip, _))| *flip != 0)
                    .map(|(bit, &(flip, _))| (flip, bits[bit]))
                    .collect();
                self.choose(b, values, source, &flips, lane)
            })
            .collect()
    }

    /// The value of the source register that this lane's bits choose, read from `lane`.
    fn choose(
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
                let kept = self.choose(b, values, source, rest, lane);
                let flipped = self.choose(b, values, source ^ flip, rest, lane);
                let zero = b.int(Ty::I32, 0);
                let is_zero = b.icmp(crate::gpu::emit::IntPredicate::Eq, *bit, zero);
                b.select(is_zero, kept, flipped)
            }
        }
    }

    /// Through shared memory: written as `stagings[0]` places the operand, read as `stagings[1]` places the result.
    fn staged(&mut self, b: &mut Builder, op: &Op, operand: Value, stagings: [&SmemTile; 2]) -> Vec<Val> {
        let base = self.write_staged(b, op, operand, stagings[0]);
        self.read_staged(b, op, base, stagings[1])
    }

    /// Writes a tile into the operation's scratch, for every thread to read; gives where it starts.
    pub(super) fn write_staged(
        &mut self,
        b: &mut Builder,
        op: &Op,
        operand: Value,
        staging: &SmemTile,
    ) -> Val {
        self.exchanged(b, op, |gpu, b, base| gpu.write_tile(b, operand, staging, base))
    }

    /// Writes to the operation's scratch memory, whose address this gives once all threads may read it.
    pub(super) fn exchanged(
        &mut self,
        b: &mut Builder,
        op: &Op,
        write: impl FnOnce(&mut Self, &mut Builder, Val),
    ) -> Val {
        let place = self.smem.scratch(op.results[0]);
        self.before_write(b, place);
        let base = self.smem_base();
        let base = b.offset_bytes(base, place.start as i32);
        write(self, b, base);
        self.barrier(b);
        self.membar.read(place);
        base
    }

    /// Writes a tile to shared memory from `base` on.
    pub(super) fn write_tile(&mut self, b: &mut Builder, operand: Value, staging: &SmemTile, base: Val) {
        let dtype = self.func.ty(operand).dtype;
        let from = self.layout(operand);
        let values = self.registers(operand);
        let writer = self.writer(b, Some(from));
        self.write_registers(b, (from, &values, dtype), writer, (staging, base));
    }

    /// Writes what lies so in registers where the condition holds.
    pub(super) fn write_registers(
        &mut self,
        b: &mut Builder,
        (from, values, dtype): (&Layout, &[Val], DType),
        writer: Option<Val>,
        (staging, base): (&SmemTile, Val),
    ) {
        let run = vector_along(from, dtype, staging.fast);
        let distances = staging.distances.unwrap_or_else(|| SmemOffsets::of(from, dtype, run));
        let pointers = self.staged_pointers(b, (from, run), (staging, base, dtype), distances);
        let write = |b: &mut Builder| {
            for (chunk, &pointer) in values.chunks(run).zip(&pointers) {
                let align = run as u32 * dtype.bytes();
                let mut chunk = chunk.to_vec();
                if staging.swapped {
                    chunk.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
                }
                self.everywhere(b, [pointer], |b, [place]| store(b, &chunk, dtype, place, align));
            }
        };
        b.guarded(writer, write);
    }

    /// The result's elements from where `staging` places them.
    pub(super) fn read_staged(
        &mut self,
        b: &mut Builder,
        op: &Op,
        base: Val,
        staging: &SmemTile,
    ) -> Vec<Val> {
        let to = self.layout(op.results[0]);
        let dtype = self.func.ty(op.results[0]).dtype;
        let run = vector(to, dtype);
        // What was written in pieces is read beside all the addresses that its stores need.
        let from = op.kind.operation().operands().into_iter().find(|&value| !self.func.ty(value).is_scalar());
        let distances = from.map_or(SmemOffsets::Computed, |from| {
            let from = self.layout(from);
            SmemOffsets::of(from, dtype, vector_along(from, dtype, staging.fast))
        });
        let pointers = self.staged_pointers(b, (to, run), (staging, base, dtype), distances);
        pointers.into_iter().flat_map(|pointer| load(b, pointer, dtype, run)).collect()
    }

    /// Where `staging` places a thread's elements: the address of the first of every `run` registers.
    fn staged_pointers(
        &mut self,
        b: &mut Builder,
        (layout, run): (&Layout, usize),
        (staging, base, dtype): (&SmemTile, Val, DType),
        distances: SmemOffsets,
    ) -> Vec<Val> {
        let registers = (0..layout.register_count()).step_by(run);
        let alone = staging.swapped && run == 1;
        let other_of_pair = |b: &mut Builder, coord: Val| {
            let one = b.int(Ty::I32, 1);
            b.xor(coord, one)
        };
        if distances == SmemOffsets::Computed || !layout.is_disjoint() {
            let place = |r| {
                staging.pointer(b, base, dtype, |b, axis| {
                    let coord = self.coord(b, layout, r, axis);
                    if alone && axis == staging.fast { other_of_pair(b, coord) } else { coord }
                })
            };
            return registers.map(place).collect();
        }
        let pair = Coord::along(staging.fast, 1);
        let held = layout.register_bases().contains(&pair);
        let first = staging.pointer(b, base, dtype, |b, axis| {
            let coord = self.thread_coord(b, layout, axis);
            if alone && !held && axis == staging.fast { other_of_pair(b, coord) } else { coord }
        });
        let swap = if alone && held { pair } else { Coord::ZERO };
        let distance =
            |register| (staging.distance(layout.register(register).xor(swap)) * dtype.bytes()) as i32;
        registers.map(|register| b.offset_bytes(first, distance(register))).collect()
    }
}

/// How far a thread's elements are from its first one in shared memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SmemOffsets {
    /// Each address is computed from coordinates.
    Computed,
    /// Of fragments there are many small pieces, for which addresses of their own would take registers.
    Constant,
}

impl SmemOffsets {
    /// Of a tile of which one instruction writes `run` registers.
    fn of(layout: &Layout, dtype: DType, run: usize) -> SmemOffsets {
        let pieces = run > 1 && run as u32 * dtype.bytes() < 16 && layout.is_disjoint();
        if pieces { SmemOffsets::Constant } else { SmemOffsets::Computed }
    }
}

/// Registers that one instruction moves: neighbours along the last axis, up to 16 bytes.
pub(crate) fn vector(layout: &Layout, dtype: DType) -> usize {
    vector_along(layout, dtype, layout.shape().rank() - 1)
}

/// The same along another axis.
fn vector_along(layout: &Layout, dtype: DType, axis: usize) -> usize {
    layout.thread_contiguity(axis).min(16 / dtype.bytes()) as usize
}
