//! Reductions: within the thread, then across lanes by shuffles, then across warps through shared memory with one
//! barrier, after which every thread reads all partial results. The result is the same in every thread that holds it.

use super::emit::Emit;
use super::memory::{pack, unpack};
use super::{Builder, Exchange, Gpu, IntPredicate};
use crate::dtype::DType;
use crate::layout::{Distributed, Layout};
use crate::mlir::builder::{Access, Val};
use crate::mlir::shared::Element;
use crate::mlir::types::{Elem, Ty};
use crate::ops::Reduce;
use crate::tile::Op;

/// Chains that a thread folds its registers in: enough to hide the latency of one addition.
const CHAINS: usize = 4;

/// Warp bits along folded axes: these partial results meet in shared memory.
fn folded_warps(layout: &Layout, folded: &Layout) -> u32 {
    folded.idle_warps() & !layout.idle_warps()
}

fn layout_of<'a>(distributed: &'a Distributed, reduce: &Reduce) -> &'a Layout {
    &distributed.layouts[&reduce.combination.inputs[0]]
}

/// Bytes that the partial results of one input take.
fn partial_bytes(distributed: &Distributed, reduce: &Reduce, input: usize) -> u32 {
    let layout = layout_of(distributed, reduce);
    let folded = layout.without(&reduce.axes);
    let partials = 1 << folded_warps(layout, &folded).count_ones();
    let size = distributed.func.ty(reduce.combination.inputs[input]).dtype.bytes();
    (folded.shape().elements() as u32 * partials * size).next_multiple_of(16)
}

impl Emit for Reduce {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        let layout = layout_of(distributed, self);
        if folded_warps(layout, &layout.without(&self.axes)) == 0 {
            return 0;
        }
        (0..self.combination.inputs.len()).map(|input| partial_bytes(distributed, self, input)).sum()
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(self.combination.inputs[0]).clone();
        let folded = layout.without(&self.axes);
        // What a user wrote is computed as written.
        b.accumulating = self.combination.symmetric();
        let mut results = self.fold_registers(gpu, b, &layout, &folded);
        let lanes = folded.idle_lanes() & !layout.idle_lanes();
        for bit in (0..5).filter(|bit| lanes >> bit & 1 == 1) {
            let distance = b.int(Ty::I32, 1 << bit);
            for element in &mut results {
                let others: Vec<Val> = element
                    .iter()
                    .map(|&value| gpu.shuffle(b, value, Exchange::Butterfly, distance))
                    .collect();
                *element = self.exchanged(gpu, b, 1 << bit, element, &others);
            }
        }
        if folded_warps(&layout, &folded) != 0 {
            results = self.fold_warps(gpu, b, op, &layout, &folded, results);
        }
        b.accumulating = false;
        for (input, &result) in op.results.iter().enumerate() {
            gpu.define(result, results.iter().map(|element| element[input]).collect());
        }
    }
}

impl Reduce {
    /// An element of this thread and the one that it exchanged with the lane at `distance`. A combination that does not
    /// give the same bits either way round takes the lower lane's first, so that both lanes hold the same.
    fn exchanged(&self, gpu: &Gpu, b: &mut Builder, distance: i64, own: &[Val], other: &[Val]) -> Element {
        if self.combination.symmetric() {
            return self.combination.apply(gpu.func, b, own, other);
        }
        let distance = b.int(Ty::I32, distance);
        let bit = b.and(gpu.lane, distance);
        let zero = b.int(Ty::I32, 0);
        let lower = b.icmp(IntPredicate::Eq, bit, zero);
        let left: Element = own.iter().zip(other).map(|(&own, &other)| b.select(lower, own, other)).collect();
        let right: Element =
            own.iter().zip(other).map(|(&own, &other)| b.select(lower, other, own)).collect();
        self.combination.apply(gpu.func, b, &left, &right)
    }

    /// Each result register folded from the registers of this thread that belong to it.
    fn fold_registers(&self, gpu: &Gpu, b: &mut Builder, layout: &Layout, folded: &Layout) -> Vec<Element> {
        let inputs: Vec<_> = self.combination.inputs.iter().map(|&input| gpu.registers(input)).collect();
        let places = folded.registers_by_coord();
        let mut members: Vec<Vec<usize>> = vec![vec![]; folded.register_count()];
        for register in 0..layout.register_count() {
            let coord =
                self.axes.iter().rev().fold(layout.register(register), |coord, &axis| coord.remove(axis));
            members[places[&coord]].push(register);
        }
        members
            .iter()
            .map(|registers| {
                let element =
                    |register: usize| inputs.iter().map(|input| input[register]).collect::<Element>();
                let mut chains: Vec<Element> = vec![];
                for (i, &register) in registers.iter().enumerate() {
                    let next = element(register);
                    match chains.get(i % CHAINS) {
                        Some(chain) => chains[i % CHAINS] = self.combination.apply(gpu.func, b, chain, &next),
                        None => chains.push(next),
                    }
                }
                self.combination.folded(gpu.func, b, chains)
            })
            .collect()
    }

    /// Every warp writes its partial results, all threads read them back.
    fn fold_warps(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        op: &Op,
        layout: &Layout,
        folded: &Layout,
        results: Vec<Element>,
    ) -> Vec<Element> {
        let place = gpu.shared.place(op.results[0]);
        let warps = folded_warps(layout, folded);
        let partials = 1u32 << warps.count_ones();
        let partial = compress(b, gpu.warp, warps);
        let base = gpu.scratch();
        let dtypes: Vec<DType> =
            self.combination.inputs.iter().map(|&input| gpu.func.ty(input).dtype).collect();
        // Byte offsets of the partial results of each element, for each input.
        let mut offsets = vec![];
        let mut start = place.start;
        for (input, dtype) in dtypes.iter().enumerate() {
            let pitch = dtype.bytes() * partials;
            let elements: Vec<Val> =
                (0..results.len()).map(|register| element_offset(gpu, b, folded, register, pitch)).collect();
            offsets.push((start, elements));
            start += partial_bytes(&gpu.plan.distributed, self, input);
        }
        gpu.before_write(b, place);
        // Lanes that were folded hold the same; warps that were folded hold partial results of their own.
        let writer = gpu.first_of(b, folded.idle_lanes(), layout.idle_warps());
        let write = |b: &mut Builder| {
            for (register, element) in results.iter().enumerate() {
                for (input, &value) in element.iter().enumerate() {
                    let size = dtypes[input].bytes();
                    let scale = b.int(Ty::I32, i64::from(size));
                    let within = b.mul(partial, scale);
                    let offset = b.add(offsets[input].1[register], within);
                    let pointer = b.offset(base, offset, 1);
                    let pointer = b.offset_bytes(pointer, offsets[input].0 as i32);
                    store(b, &[value], dtypes[input], pointer, size);
                }
            }
        };
        b.guarded(writer, write);
        gpu.barrier(b);
        gpu.shared.read(place);
        (0..results.len())
            .map(|register| {
                let columns: Vec<Vec<Val>> = dtypes
                    .iter()
                    .enumerate()
                    .map(|(input, &dtype)| {
                        let pointer = b.offset(base, offsets[input].1[register], 1);
                        let pointer = b.offset_bytes(pointer, offsets[input].0 as i32);
                        load(b, pointer, dtype, partials as usize)
                    })
                    .collect();
                let rows = (0..partials as usize)
                    .map(|i| columns.iter().map(|column| column[i]).collect())
                    .collect();
                self.combination.folded(gpu.func, b, rows)
            })
            .collect()
    }
}

/// The bits of `source` under `mask`, moved together.
pub(super) fn compress(b: &mut Builder, source: Val, mask: u32) -> Val {
    let mut sum = b.int(Ty::I32, 0);
    let one = b.int(Ty::I32, 1);
    for (to, from) in (0..32).filter(|bit| mask >> bit & 1 == 1).enumerate() {
        let from = b.int(Ty::I32, i64::from(from));
        let bit = b.lshr(source, from);
        let bit = b.and(bit, one);
        let to = b.int(Ty::I32, to as i64);
        let bit = b.shl(bit, to);
        sum = b.or(sum, bit);
    }
    sum
}

/// Where the element of a register lies when elements of the tile follow each other in row-major order, `pitch` bytes
/// apart.
fn element_offset(gpu: &mut Gpu, b: &mut Builder, layout: &Layout, register: usize, pitch: u32) -> Val {
    let mut offset = b.int(Ty::I32, 0);
    let mut stride = pitch;
    for axis in (0..layout.shape().rank()).rev() {
        let coord = gpu.coord(b, layout, register, axis);
        let scale = b.int(Ty::I32, i64::from(stride));
        let part = b.mul(coord, scale);
        offset = b.add(offset, part);
        stride *= layout.shape()[axis];
    }
    offset
}

/// Stores elements that follow each other.
pub(super) fn store(b: &mut Builder, values: &[Val], dtype: DType, pointer: Val, align: u32) {
    let words = pack(b, values, dtype);
    let value = if words.len() == 1 { words[0] } else { b.pack(&words) };
    b.store(value, pointer, Access::aligned(align));
}

/// Loads `count` elements that follow each other, aligned to their size up to 16 bytes.
pub(super) fn load(b: &mut Builder, pointer: Val, dtype: DType, count: usize) -> Vec<Val> {
    let total = count as u32 * dtype.bytes();
    let step = total.min(16);
    let mut values = vec![];
    for start in (0..total).step_by(step as usize) {
        let pointer = b.offset_bytes(pointer, start as i32);
        let ty = match step {
            1 => Ty::I8,
            2 => Ty::I16,
            4 => Ty::I32,
            bytes => Ty::vector(Elem::I32, (bytes / 4) as u16),
        };
        let words = b.load(pointer, ty, Access::aligned(step));
        let words = b.unpack(words);
        values.extend(unpack(b, &words, dtype, (step / dtype.bytes()) as usize));
    }
    values
}
