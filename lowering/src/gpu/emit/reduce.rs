//! Reductions: within the thread, then across lanes by shuffles, then across warps through shared memory with one
//! barrier, after which every thread reads all partial results. The result is the same in every thread that holds it.

use crate::gpu::emit::emit::GpuEmit;
use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::smem_alloc::{Interval, MBARRIER_BYTES, SmemAllocation};
use crate::gpu::emit::threads::lowest_lanes;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, ShuffleMode};
use crate::gpu::layout::{Distributed, Layout};
use crate::gpu::opt::batch_reductions::reduced_warps;
use crate::ir::{Op, Value};
use crate::mlir::builder::{AccessFlags, Val};
use crate::mlir::shared::CombinedElement;
use crate::mlir::types::{Elem, Ty};
use crate::ops::{Kind, Reduce};
use crate::support::dtype::DType;

/// Chains that a thread folds its registers in: enough to hide the latency of one addition.
const CHAINS: usize = 4;
/// The same in loops whose turns overlap, where other groups of warps wait for it.
const CHAINS_IN_TURNS: usize = 8;

/// Partial results that every lane reads and folds by itself. Of more than these each lane takes its share, and lanes exchange
/// what they made of it: as many instructions as a share and a tree have, not as all have.
const FOLDED_ALONE: usize = 16;
/// Such a share, where there are lanes enough: what one access reads of 32-bit elements.
const SHARE: usize = 4;

/// Whether partial results go to other blocks of a cluster by stores that count themselves in, which takes no barrier; every
/// warp has its share in that.
fn tells(distributed: &Distributed, reduce: &Reduce) -> bool {
    let layout = layout_of(distributed, reduce);
    let folded = layout.without(&reduce.axes);
    let wide = |&input: &Value| distributed.func.ty(input).dtype.bytes() >= 4;
    reduced_warps(layout, &folded) & distributed.cta_bits() != 0
        && layout.replicated_warps() == 0
        && reduce.combination.inputs.iter().all(wide)
}

fn layout_of<'a>(distributed: &'a Distributed, reduce: &Reduce) -> &'a Layout {
    &distributed.layouts[&reduce.combination.inputs[0]]
}

/// Bytes that the partial results of one input take.
fn partial_bytes(distributed: &Distributed, reduce: &Reduce, input: usize) -> u32 {
    let layout = layout_of(distributed, reduce);
    let folded = layout.without(&reduce.axes);
    let partials = 1 << reduced_warps(layout, &folded).count_ones();
    let size = distributed.func.ty(reduce.combination.inputs[input]).dtype.bytes();
    (folded.shape().elements() as u32 * partials * size).next_multiple_of(16)
}

impl GpuEmit for Reduce {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        let layout = layout_of(distributed, self);
        if reduced_warps(layout, &layout.without(&self.axes)) == 0 {
            return 0;
        }
        (0..self.combination.inputs.len()).map(|input| partial_bytes(distributed, self, input)).sum()
    }

    fn uses_remote_stores(&self, distributed: &Distributed) -> bool {
        tells(distributed, self)
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        emit(gpu, b, std::slice::from_ref(op));
    }
}

/// How many of these operations are reductions that need one barrier together; 1 if there is nothing to share.
pub(super) fn batch_size(smem: &SmemAllocation, ops: &[Op]) -> usize {
    let place = |op: &Op| {
        let reduces = matches!(op.kind, Kind::Reduce(_));
        reduces.then(|| smem.scratch_if_any(op.results[0])).flatten()
    };
    let mut places: Vec<Interval> = vec![];
    for (count, op) in ops.iter().enumerate() {
        let needs_earlier =
            |value: &Value| ops[..count].iter().any(|earlier| earlier.results.contains(value));
        match place(op) {
            Some(place)
                if !places.iter().any(|other| other.overlaps(&place))
                    && !op.kind.operation().operands().iter().any(needs_earlier) =>
            {
                places.push(place);
            }
            _ => return count.max(1),
        }
    }
    ops.len().max(1)
}

/// Emits reductions that do not need each other.
pub(super) fn emit(gpu: &mut Gpu, b: &mut Builder, ops: &[Op]) {
    let mut parts: Vec<PendingReduction> = ops
        .iter()
        .map(|op| {
            let Kind::Reduce(reduce) = &op.kind else { unreachable!("`together` counted reductions") };
            let layout = gpu.layout(reduce.combination.inputs[0]).clone();
            let folded = layout.without(&reduce.axes);
            let results = reduce.within_warps(gpu, b, &layout, &folded);
            PendingReduction { reduce, op, layout, folded, results }
        })
        .collect();
    let crosses = |part: &PendingReduction| reduced_warps(&part.layout, &part.folded) != 0;
    for part in parts.iter().filter(|part| crosses(part)) {
        let place = gpu.smem.scratch(part.op.results[0]);
        gpu.before_write(b, place);
    }
    let written: Vec<Option<PartialResults>> =
        parts.iter().map(|part| crosses(part).then(|| part.write(gpu, b))).collect();
    if written.iter().flatten().any(|written| written.turn.is_none()) {
        gpu.barrier(b);
    }
    for (signal, turn) in written.iter().flatten().filter_map(|written| written.turn) {
        gpu.await_told(b, signal, turn);
    }
    for (part, written) in parts.iter_mut().zip(written) {
        if let Some(written) = written {
            part.results = part.read(gpu, b, &written);
        }
    }
    for part in parts {
        for (input, &result) in part.op.results.iter().enumerate() {
            gpu.define(result, part.results.iter().map(|element| element[input]).collect());
        }
    }
}

/// A reduction under way.
struct PendingReduction<'a> {
    reduce: &'a Reduce,
    op: &'a Op,
    layout: Layout,
    folded: Layout,
    /// An element for each register of the folded layout: of this warp, then of all.
    results: Vec<CombinedElement>,
}

/// Where the partial results of all warps lie.
struct PartialResults {
    base: Val,
    /// For each input, where they start and how far on the elements of each register are.
    offsets: Vec<(u32, Vec<Val>)>,
    /// What tells that all have come, if not a barrier.
    turn: Option<(Val, Val)>,
}

impl Reduce {
    /// Folds what the threads of a warp hold.
    fn within_warps(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        layout: &Layout,
        folded: &Layout,
    ) -> Vec<CombinedElement> {
        // What a user wrote is computed as written.
        b.accumulating = self.combination.symmetric();
        let mut results = self.fold_registers(gpu, b, layout, folded);
        self.across_lanes(gpu, b, folded.replicated_lanes() & !layout.replicated_lanes(), &mut results);
        b.accumulating = false;
        results
    }

    /// Folds what lanes hold that differ in these bits of their number: all of them then hold the same.
    fn across_lanes(&self, gpu: &Gpu, b: &mut Builder, bits: u32, results: &mut [CombinedElement]) {
        for bit in (0..5).filter(|bit| bits >> bit & 1 == 1) {
            let distance = b.int(Ty::I32, 1 << bit);
            for element in results.iter_mut() {
                let others: Vec<Val> = element
                    .iter()
                    .map(|&value| gpu.shuffle(b, value, ShuffleMode::Butterfly, distance))
                    .collect();
                *element = self.exchanged(gpu, b, 1 << bit, element, &others);
            }
        }
    }

    /// An element of this thread and the one that it exchanged with the lane at `distance`. A combination that does not
    /// give the same bits either way round takes the lower lane's first, so that both lanes hold the same.
    fn exchanged(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        distance: i64,
        own: &[Val],
        other: &[Val],
    ) -> CombinedElement {
        if self.combination.symmetric() {
            return self.combination.apply(gpu.func, b, own, other);
        }
        let distance = b.int(Ty::I32, distance);
        let bit = b.and(gpu.lane, distance);
        let zero = b.int(Ty::I32, 0);
        let lower = b.icmp(IntPredicate::Eq, bit, zero);
        let left: CombinedElement =
            own.iter().zip(other).map(|(&own, &other)| b.select(lower, own, other)).collect();
        let right: CombinedElement =
            own.iter().zip(other).map(|(&own, &other)| b.select(lower, other, own)).collect();
        self.combination.apply(gpu.func, b, &left, &right)
    }

    /// Each result register folded from the registers of this thread that belong to it.
    fn fold_registers(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        layout: &Layout,
        folded: &Layout,
    ) -> Vec<CombinedElement> {
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
                let elements = registers
                    .iter()
                    .map(|&register| inputs.iter().map(|input| input[register]).collect())
                    .collect();
                self.fold_elements(gpu, b, elements)
            })
            .collect()
    }

    /// The elements by their masks, if those are few; else all in one run as they are.
    fn runs(&self, gpu: &Gpu, elements: Vec<CombinedElement>) -> Vec<MaskedRun> {
        let mut runs: Vec<MaskedRun> = vec![];
        for element in &elements {
            let masked = match element[..] {
                // Any such combination of zeros is 0.
                [value] if self.combination.symmetric() => gpu.mask_of(value),
                _ => None,
            };
            let (mask, element) = match masked {
                Some((mask, value)) => (Some(mask), vec![value]),
                None => (None, element.clone()),
            };
            match runs.last_mut() {
                Some(run) if run.mask.map(|mask| mask.id()) == mask.map(|mask| mask.id()) => {
                    run.elements.push(element);
                }
                _ => runs.push(MaskedRun { mask, elements: vec![element] }),
            }
        }
        if 2 * runs.len() > elements.len() { vec![MaskedRun { mask: None, elements }] } else { runs }
    }

    /// All of a thread's elements that belong to one result. Elements that one mask makes 0 are folded as they are without it,
    /// and 0 is selected once for all of them.
    fn fold_elements(&self, gpu: &Gpu, b: &mut Builder, elements: Vec<CombinedElement>) -> CombinedElement {
        let chains = if gpu.iterations_overlap { CHAINS_IN_TURNS } else { CHAINS };
        let runs = self.runs(gpu, elements);
        let sides = chains.div_ceil(runs.len());
        let mut folded = vec![];
        for runs in runs.chunks(chains) {
            let mut sums: Vec<Vec<CombinedElement>> = vec![vec![]; runs.len()];
            // Side by side, so that the additions of one run hide the latency of another's.
            for i in 0..runs.iter().map(|run| run.elements.len()).max().unwrap_or(0) {
                for (run, sums) in runs.iter().zip(&mut sums) {
                    let Some(next) = run.elements.get(i) else { continue };
                    match sums.get_mut(i % sides) {
                        Some(sum) => *sum = self.combination.apply(gpu.func, b, sum, next),
                        None => sums.push(next.clone()),
                    }
                }
            }
            for (run, sums) in runs.iter().zip(sums) {
                let sum = self.combination.folded(gpu.func, b, sums);
                folded.push(match run.mask {
                    Some(mask) => {
                        let zero = b.zero(sum[0].ty);
                        vec![b.select(mask, sum[0], zero)]
                    }
                    None => sum,
                });
            }
        }
        self.combination.folded(gpu.func, b, folded)
    }
}

/// Elements of a thread that one mask makes 0, as they are where it holds; or any, without a mask.
struct MaskedRun {
    mask: Option<Val>,
    elements: Vec<CombinedElement>,
}

impl PendingReduction<'_> {
    fn dtypes(&self, gpu: &Gpu) -> Vec<DType> {
        self.reduce.combination.inputs.iter().map(|&input| gpu.func.ty(input).dtype).collect()
    }

    /// Every warp writes its partial results.
    fn write(&self, gpu: &mut Gpu, b: &mut Builder) -> PartialResults {
        let PendingReduction { reduce, op, layout, folded, results } = self;
        let place = gpu.smem.scratch(op.results[0]);
        let warps = reduced_warps(layout, folded);
        let partials = 1u32 << warps.count_ones();
        let partial = compress(b, gpu.warp, warps);
        let dtypes = self.dtypes(gpu);
        // Every other turn of a loop has a place of its own.
        let odd = gpu.iteration.filter(|_| gpu.smem.is_double_buffered(op.results[0])).map(|turn| {
            let turn = b.trunc(turn, Elem::I32);
            let one = b.int(Ty::I32, 1);
            b.and(turn, one)
        });
        let alternately = |b: &mut Builder, first: Val, distance: u32| match odd {
            Some(odd) => {
                let distance = b.int(Ty::I32, i64::from(distance));
                let bytes = b.mul(odd, distance);
                b.offset(first, bytes, 1)
            }
            None => first,
        };
        let base = alternately(b, gpu.smem_base(), place.bytes / 2);
        let mut offsets = vec![];
        let mut start = place.start;
        for (input, dtype) in dtypes.iter().enumerate() {
            let pitch = dtype.bytes() * partials;
            let elements: Vec<Val> =
                (0..results.len()).map(|register| element_offset(gpu, b, folded, register, pitch)).collect();
            offsets.push((start, elements));
            start += partial_bytes(&gpu.plan.distributed, reduce, input);
        }
        let signal = gpu.smem.mbarrier(op.results[0]).map(|start| {
            let first = b.offset_bytes(gpu.smem_base(), start as i32);
            alternately(b, first, MBARRIER_BYTES)
        });
        let turn = signal.map(|signal| {
            // As much from each warp of the other blocks as from this one's.
            let writers = gpu.plan.blocks() * (32 >> folded.replicated_lanes().count_ones());
            let bytes: u32 = dtypes.iter().map(|dtype| dtype.bytes()).sum();
            (signal, gpu.expect(b, signal, writers * results.len() as u32 * bytes))
        });
        // Lanes that were folded hold the same; warps that were folded hold partial results of their own. In a loop each such lane
        // tells one block; where it happens once, one lane tells all as quickly (docs/performance.md).
        let tells_often = signal.is_some() && gpu.iteration.is_some();
        let tellers = if tells_often { gpu.tellers(folded.replicated_lanes()) } else { None };
        let block = tellers.map(|lanes| compress(b, gpu.lane, lanes));
        let writer = gpu.first_of(
            b,
            folded.replicated_lanes() & !tellers.unwrap_or_default(),
            layout.replicated_warps(),
        );
        // Where a block holds all that its own results are made of, it tells no other.
        let crosses = (warps | layout.replicated_warps()) & gpu.plan.distributed.cta_bits() != 0;
        let write = |b: &mut Builder| {
            for (register, element) in results.iter().enumerate() {
                for (input, &value) in element.iter().enumerate() {
                    let size = dtypes[input].bytes();
                    let scale = b.int(Ty::I32, i64::from(size));
                    let within = b.mul(partial, scale);
                    let offset = b.add(offsets[input].1[register], within);
                    let pointer = b.offset(base, offset, 1);
                    let pointer = b.offset_bytes(pointer, offsets[input].0 as i32);
                    let write =
                        |b: &mut Builder, [place]: [Val; 1]| store(b, &[value], dtypes[input], place, size);
                    match signal {
                        Some(signal) => gpu.tell(b, value, [pointer, signal], block),
                        None if crosses => gpu.everywhere(b, [pointer], write),
                        None => write(b, [pointer]),
                    }
                }
            }
        };
        b.guarded(writer, write);
        PartialResults { base, offsets, turn }
    }

    /// The bits of a lane's number that say which share of so many partial results it takes: lanes that differ in them have the
    /// same result.
    fn sharing(&self, partials: usize) -> u32 {
        let needed = if partials > FOLDED_ALONE { (partials / SHARE).ilog2().min(5) } else { 0 };
        lowest_lanes(self.folded.replicated_lanes(), needed).unwrap_or(0)
    }

    /// All threads read the partial results and fold them, each warp for itself.
    fn read(&self, gpu: &mut Gpu, b: &mut Builder, written: &PartialResults) -> Vec<CombinedElement> {
        let place = gpu.smem.scratch(self.op.results[0]);
        gpu.membar.read(place);
        let partials = 1usize << reduced_warps(&self.layout, &self.folded).count_ones();
        let lanes = self.sharing(partials);
        let share = partials >> lanes.count_ones();
        let number = (lanes != 0).then(|| compress(b, gpu.lane, lanes));
        let (base, dtypes) = (written.base, self.dtypes(gpu));
        let combination = &self.reduce.combination;
        b.accumulating = combination.symmetric();
        let mut results: Vec<CombinedElement> = (0..self.results.len())
            .map(|register| {
                let columns: Vec<Vec<Val>> = dtypes
                    .iter()
                    .zip(&written.offsets)
                    .map(|(&dtype, (start, elements))| {
                        let mut pointer = b.offset(base, elements[register], 1);
                        if let Some(number) = number {
                            let bytes = b.int(Ty::I32, i64::from(share as u32 * dtype.bytes()));
                            let first = b.mul(number, bytes);
                            pointer = b.offset(pointer, first, 1);
                        }
                        let pointer = b.offset_bytes(pointer, *start as i32);
                        load(b, pointer, dtype, share)
                    })
                    .collect();
                let rows = (0..share).map(|i| columns.iter().map(|column| column[i]).collect()).collect();
                combination.folded(gpu.func, b, rows)
            })
            .collect();
        self.reduce.across_lanes(gpu, b, lanes, &mut results);
        b.accumulating = false;
        results
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

/// Where the element of a register lies, `pitch` bytes from the next one: in row-major order first those that are first in the vector of
/// their thread, then those that are second. So lanes beside each other meet different banks.
fn element_offset(gpu: &mut Gpu, b: &mut Builder, layout: &Layout, register: usize, pitch: u32) -> Val {
    let Some(last) = layout.shape().rank().checked_sub(1) else { return b.int(Ty::I32, 0) };
    let run = if layout.is_disjoint() { layout.thread_contiguity(last) } else { 1 };
    let vectors = layout.shape().elements() as u32 / run;
    let within = layout.register(register).get(last) % run;
    let mut offset = b.int(Ty::I32, i64::from(within * vectors * pitch));
    let mut stride = pitch;
    for axis in (0..=last).rev() {
        let mut coord = gpu.coord(b, layout, register, axis);
        let mut extent = layout.shape()[axis];
        if axis == last && run > 1 {
            let bits = b.int(Ty::I32, i64::from(run.trailing_zeros()));
            coord = b.lshr(coord, bits);
            extent /= run;
        }
        let scale = b.int(Ty::I32, i64::from(stride));
        let part = b.mul(coord, scale);
        offset = b.add(offset, part);
        stride *= extent;
    }
    offset
}

/// Stores elements that follow each other.
pub(super) fn store(b: &mut Builder, values: &[Val], dtype: DType, pointer: Val, align: u32) {
    let words = pack(b, values, dtype);
    let value = if words.len() == 1 { words[0] } else { b.pack(&words) };
    b.store(value, pointer, AccessFlags::aligned(align));
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
        let words = b.load(pointer, ty, AccessFlags::aligned(step));
        let words = b.unpack(words);
        values.extend(unpack(b, &words, dtype, (step / dtype.bytes()) as usize));
    }
    values
}
