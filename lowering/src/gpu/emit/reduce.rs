//! Emission of reductions: within the thread, then across lanes by shuffles, then across warps through shared memory with
//! one barrier, after which every thread reads all partial results. All threads that hold a result hold the same bits. The schedule
//! says which buffer of shared memory that is, and which barrier.

use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::PartialExchange;
use tile_ir::ops::{Kind, Reduce, ReduceBatch};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::redux::{WarpExtreme, across_warp};
use crate::gpu::emit::threads::lowest_lanes;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, ShuffleMode};
use crate::gpu::layout::Layout;
use crate::gpu::opt::batch_reductions::reduced_warps;
use crate::gpu::schedule::MBARRIER_BYTES;
use crate::gpu::schedule::scratch::partial_bytes;
use crate::mlir::builder::{AccessFlags, Val};
use crate::mlir::shared::{CombinedElement, EmitCombination};
use crate::mlir::types::{Elem, Ty};

/// The bits of a lane's index.
const ALL_LANES: u32 = 31;

/// Independent chains in which a thread reduces its registers: enough to hide the latency of one addition.
const CHAINS: usize = 4;
/// The same in loops whose iterations overlap, where other warpgroups wait for it.
const CHAINS_OVERLAPPED: usize = 8;

/// Partial results that every lane reads and reduces by itself. Of more than these each lane reduces a share, and lanes
/// combine their results in a tree: the instructions of a share and a tree, not of all.
const MAX_READ_BY_EACH_LANE: usize = 16;
/// Such a share, where there are lanes enough: the 32-bit elements of one access.
const SHARE: usize = 4;

impl GpuEmit for Reduce {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        emit(gpu, b, std::slice::from_ref(op), &[]);
    }
}

impl GpuEmit for ReduceBatch {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        emit(gpu, b, &self.body.ops, &self.exchanges);
        let registers = gpu.flatten(&self.body.yields);
        gpu.define_all(&op.results, &registers);
    }
}

/// Emits independent reductions, which share one barrier; each exchanges partial results as the schedule says, if it does.
fn emit(gpu: &mut Gpu, b: &mut Builder, ops: &[Op], exchanges: &[PartialExchange]) {
    let mut reductions: Vec<PendingReduction> = ops
        .iter()
        .enumerate()
        .map(|(index, op)| {
            let exchange = exchanges.get(index).copied().unwrap_or_default();
            let Kind::Reduce(reduce) = &op.kind else { unreachable!("a batch consists of reductions") };
            let layout = gpu.layout(reduce.combination.inputs[0]).clone();
            let folded = layout.without(&reduce.axes);
            let results = within_warps(reduce, gpu, b, &layout, &folded, &op.results);
            PendingReduction { reduce, op, exchange, layout, folded, results }
        })
        .collect();
    let crosses_warps =
        |reduction: &PendingReduction| reduced_warps(&reduction.layout, &reduction.folded) != 0;
    let written: Vec<Option<PartialResults>> = reductions
        .iter()
        .map(|reduction| crosses_warps(reduction).then(|| reduction.write(gpu, b)))
        .collect();
    if written.iter().flatten().any(|written| written.mbarrier.is_none()) {
        gpu.barrier(b);
    }
    for (mbarrier, state) in written.iter().flatten().filter_map(|written| written.mbarrier) {
        gpu.wait_remote(b, mbarrier, state);
    }
    for (reduction, written) in reductions.iter_mut().zip(written) {
        if let Some(written) = written {
            reduction.results = reduction.read(gpu, b, &written);
        }
    }
    for reduction in reductions {
        for (input, &result) in reduction.op.results.iter().enumerate() {
            gpu.define(result, reduction.results.iter().map(|element| element[input]).collect());
        }
    }
}

/// A reduction being emitted.
struct PendingReduction<'a> {
    reduce: &'a Reduce,
    op: &'a Op,
    exchange: PartialExchange,
    layout: Layout,
    folded: Layout,
    /// An element for each register of the reduced layout: of this warp, then of all.
    results: Vec<CombinedElement>,
}

/// The addresses of the partial results of all warps.
struct PartialResults {
    base: Val,
    /// For each input their start, and the offset of each register's elements.
    offsets: Vec<(u32, Vec<Val>)>,
    /// The `mbarrier` that remote stores complete, with its state to wait for; `None` where a barrier is used.
    mbarrier: Option<(Val, Val)>,
}

/// Reduces the elements of each warp.
fn within_warps(
    reduce: &Reduce,
    gpu: &Gpu,
    b: &mut Builder,
    layout: &Layout,
    folded: &Layout,
    results: &[Value],
) -> Vec<CombinedElement> {
    let elements = elements_of_results(reduce, gpu, layout, folded);
    let lanes = folded.replicated_lanes() & !layout.replicated_lanes();
    if lanes == ALL_LANES
        && let Some(extreme) = WarpExtreme::of(reduce, gpu, results)
    {
        return elements.iter().map(|elements| extreme.reduce(gpu, b, elements)).collect();
    }
    // A combination of the user's is computed as written.
    b.accumulating = reduce.combination.commutes();
    let mut results: Vec<CombinedElement> =
        elements.into_iter().map(|elements| reduce_elements(reduce, gpu, b, elements)).collect();
    across_lanes(reduce, gpu, b, lanes, &mut results);
    b.accumulating = false;
    results
}

/// Reduces across lanes that differ in these bits of their index: all of them then hold the same.
fn across_lanes(reduce: &Reduce, gpu: &Gpu, b: &mut Builder, bits: u32, results: &mut [CombinedElement]) {
    if bits == ALL_LANES {
        let reduced: Option<Vec<CombinedElement>> =
            results.iter().map(|element| Some(vec![across_warp(reduce, gpu, b, element)?])).collect();
        if let Some(reduced) = reduced {
            results.clone_from_slice(&reduced);
            return;
        }
    }
    for bit in (0..5).filter(|bit| bits >> bit & 1 == 1) {
        let distance = b.int(Ty::I32, 1 << bit);
        for element in results.iter_mut() {
            let others: Vec<Val> = element
                .iter()
                .map(|&value| gpu.shuffle(b, value, ShuffleMode::Butterfly, distance))
                .collect();
            *element = combine_exchanged(reduce, gpu, b, 1 << bit, element, &others);
        }
    }
}

/// Combines an element of this thread with that of the lane at `distance`. A combination that is not symmetric bit by bit
/// takes the lower lane's first, so that both lanes hold the same.
fn combine_exchanged(
    reduce: &Reduce,
    gpu: &Gpu,
    b: &mut Builder,
    distance: i64,
    own: &[Val],
    other: &[Val],
) -> CombinedElement {
    if reduce.combination.commutes() {
        return reduce.combination.apply(gpu.func, b, own, other);
    }
    let distance = b.int(Ty::I32, distance);
    let bit = b.and(gpu.thread.lane, distance);
    let zero = b.int(Ty::I32, 0);
    let lower = b.icmp(IntPredicate::Eq, bit, zero);
    let left: CombinedElement =
        own.iter().zip(other).map(|(&own, &other)| b.select(lower, own, other)).collect();
    let right: CombinedElement =
        own.iter().zip(other).map(|(&own, &other)| b.select(lower, other, own)).collect();
    reduce.combination.apply(gpu.func, b, &left, &right)
}

/// The elements of this thread that belong to each result register.
fn elements_of_results(
    reduce: &Reduce,
    gpu: &Gpu,
    layout: &Layout,
    folded: &Layout,
) -> Vec<Vec<CombinedElement>> {
    let inputs: Vec<_> = reduce.combination.inputs.iter().map(|&input| gpu.registers(input)).collect();
    let register_of = folded.registers_by_coord();
    let mut members: Vec<Vec<usize>> = vec![vec![]; folded.register_count()];
    for register in 0..layout.register_count() {
        let coord =
            reduce.axes.iter().rev().fold(layout.register(register), |coord, &axis| coord.remove(axis));
        members[register_of[&coord]].push(register);
    }
    let element = |&register: &usize| inputs.iter().map(|input| input[register]).collect();
    members.iter().map(|registers| registers.iter().map(element).collect()).collect()
}

/// The elements in runs by their masks, if those are few; else all in one run.
fn masked_runs(reduce: &Reduce, gpu: &Gpu, elements: Vec<CombinedElement>) -> Vec<MaskedRun> {
    let mut runs: Vec<MaskedRun> = vec![];
    for element in &elements {
        let masked = match element[..] {
            // Any such combination of zeros is 0.
            [value] if reduce.combination.commutes() => gpu.mask_of(value),
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

/// Reduces a thread's elements that belong to one result. Elements that one mask makes 0 are reduced unmasked, and 0 is
/// selected once for all of them.
fn reduce_elements(
    reduce: &Reduce,
    gpu: &Gpu,
    b: &mut Builder,
    elements: Vec<CombinedElement>,
) -> CombinedElement {
    let chains = if gpu.in_flight.iterations_overlap { CHAINS_OVERLAPPED } else { CHAINS };
    if let Some(first) = reduce_in_order(reduce, gpu, b, &elements, chains) {
        return first;
    }
    let runs = masked_runs(reduce, gpu, elements);
    let chains_per_run = chains.div_ceil(runs.len());
    let mut folded = vec![];
    for runs in runs.chunks(chains) {
        let mut partials: Vec<Vec<CombinedElement>> = vec![vec![]; runs.len()];
        // Interleaved, so that the additions of one run hide the latency of another's.
        for i in 0..runs.iter().map(|run| run.elements.len()).max().unwrap_or(0) {
            for (run, partials) in runs.iter().zip(&mut partials) {
                let Some(next) = run.elements.get(i) else { continue };
                match partials.get_mut(i % chains_per_run) {
                    Some(partial) => *partial = reduce.combination.apply(gpu.func, b, partial, next),
                    None => partials.push(next.clone()),
                }
            }
        }
        for (run, partials) in runs.iter().zip(partials) {
            let total = reduce.combination.reduce_tree(gpu.func, b, partials);
            folded.push(match run.mask {
                Some(mask) => {
                    let zero = b.zero(total[0].ty);
                    vec![b.select(mask, total[0], zero)]
                }
                None => total,
            });
        }
    }
    reduce.combination.reduce_tree(gpu.func, b, folded)
}

/// Reduces elements with their positions in the order of these, if they are constants beside one base: no comparison of positions is left,
/// and a position is an immediate until the base is added to the result's.
fn reduce_in_order(
    reduce: &Reduce,
    gpu: &Gpu,
    b: &mut Builder,
    elements: &[CombinedElement],
    chains: usize,
) -> Option<CombinedElement> {
    let inputs = &reduce.combination.inputs;
    let mut integers = (0..inputs.len()).filter(|&input| gpu.func.ty(inputs[input]).dtype == DType::I32);
    let (input, base, places) = integers.find_map(|input| {
        let positions = elements.iter().map(|element| element[input]);
        gpu.constants_beside_one_base(positions).map(|(base, places)| (input, base, places))
    })?;
    let combination = reduce.combination.in_order(input)?;
    let mut order: Vec<usize> = (0..elements.len()).collect();
    order.sort_by_key(|&i| places[i]);
    if order.windows(2).any(|pair| places[pair[0]] == places[pair[1]]) {
        return None;
    }
    let run = order.len().div_ceil(chains);
    let mut partials: Vec<CombinedElement> = vec![];
    // Interleaved, so that the comparisons of one run hide the latency of another's.
    for first in 0..run {
        for (chain, &i) in order.iter().skip(first).step_by(run).enumerate() {
            let mut next = elements[i].clone();
            next[input] = b.int(base.ty, places[i]);
            match partials.get_mut(chain) {
                Some(partial) => *partial = combination.apply(gpu.func, b, partial, &next),
                None => partials.push(next),
            }
        }
    }
    let mut total = combination.reduce_tree(gpu.func, b, partials);
    total[input] = b.add(base, total[input]);
    Some(total)
}

/// Elements of a thread that one mask makes 0, unmasked; or any, without a mask.
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
        let PendingReduction { reduce, op, exchange, layout, folded, results } = self;
        let scratch = gpu.scratch(op.results[0]);
        let warps = reduced_warps(layout, folded);
        let partials = 1u32 << warps.count_ones();
        let partial = compress(b, gpu.thread.warp, warps);
        let dtypes = self.dtypes(gpu);
        // Even and odd iterations of a loop have buffers of their own.
        let odd = exchange.parity.map(|of| {
            let iteration = b.trunc(gpu.iteration(of), Elem::I32);
            let one = b.int(Ty::I32, 1);
            b.and(iteration, one)
        });
        let buffer_of_iteration = |b: &mut Builder, first: Val, distance: u32| match odd {
            Some(odd) => {
                let distance = b.int(Ty::I32, i64::from(distance));
                let bytes = b.mul(odd, distance);
                b.offset(first, bytes, 1)
            }
            None => first,
        };
        let base = buffer_of_iteration(b, gpu.smem_base(), scratch.bytes / 2);
        let mut offsets = vec![];
        let mut start = scratch.start;
        for (input, dtype) in dtypes.iter().enumerate() {
            let pitch = dtype.bytes() * partials;
            let elements: Vec<Val> =
                (0..results.len()).map(|register| element_offset(gpu, b, folded, register, pitch)).collect();
            offsets.push((start, elements));
            start += partial_bytes(&gpu.plan.schedule.distributed, reduce, input);
        }
        let mbarrier = exchange.barrier.map(|barrier| {
            let first = b.offset_bytes(gpu.smem_base(), gpu.buffer(barrier).start as i32);
            buffer_of_iteration(b, first, MBARRIER_BYTES)
        });
        let mbarrier_state = mbarrier.map(|mbarrier| {
            // Each warp of every block of the cluster stores the same bytes.
            let writers = gpu.plan.blocks() * (32 >> folded.replicated_lanes().count_ones());
            let bytes: u32 = dtypes.iter().map(|dtype| dtype.bytes()).sum();
            (mbarrier, gpu.expect_remote(b, mbarrier, writers * results.len() as u32 * bytes))
        });
        // Lanes along the reduced axes hold equal elements; warps along them hold partial results of their own. In a loop, where
        // buffers alternate, each such lane stores to one block; outside loops one lane stores to all as quickly
        // (docs/decisions/0010).
        let alternates = exchange.barrier.and(exchange.parity).is_some();
        let lane_per_block =
            if alternates { gpu.remote_store_lanes(folded.replicated_lanes()) } else { None };
        let block = lane_per_block.map(|lanes| compress(b, gpu.thread.lane, lanes));
        let writer = gpu.first_of(
            b,
            folded.replicated_lanes() & !lane_per_block.unwrap_or_default(),
            layout.replicated_warps(),
        );
        // A block that holds all elements of its results stores to no other.
        let crosses_blocks =
            (warps | layout.replicated_warps()) & gpu.plan.schedule.distributed.cta_bits() != 0;
        let write = |b: &mut Builder| {
            for (register, element) in results.iter().enumerate() {
                for (input, &value) in element.iter().enumerate() {
                    let size = dtypes[input].bytes();
                    let scale = b.int(Ty::I32, i64::from(size));
                    let partial_offset = b.mul(partial, scale);
                    let offset = b.add(offsets[input].1[register], partial_offset);
                    let pointer = b.offset(base, offset, 1);
                    let pointer = b.offset_bytes(pointer, offsets[input].0 as i32);
                    let write = |b: &mut Builder, [pointer]: [Val; 1]| {
                        store(b, &[value], dtypes[input], pointer, size)
                    };
                    match mbarrier {
                        Some(mbarrier) => gpu.remote_store(b, value, [pointer, mbarrier], block),
                        None if crosses_blocks => gpu.for_each_cta(b, [pointer], write),
                        None => write(b, [pointer]),
                    }
                }
            }
        };
        b.guarded(writer, write);
        PartialResults { base, offsets, mbarrier: mbarrier_state }
    }

    /// The bits of a lane's index that select its share of so many partial results: lanes that differ in them hold the same
    /// result.
    fn share_bits(&self, partials: usize) -> u32 {
        let needed = if partials > MAX_READ_BY_EACH_LANE { (partials / SHARE).ilog2().min(5) } else { 0 };
        lowest_lanes(self.folded.replicated_lanes(), needed).unwrap_or(0)
    }

    /// All threads read the partial results and reduce them, each warp for itself.
    fn read(&self, gpu: &mut Gpu, b: &mut Builder, written: &PartialResults) -> Vec<CombinedElement> {
        let partials = 1usize << reduced_warps(&self.layout, &self.folded).count_ones();
        let lanes = self.share_bits(partials);
        let share = partials >> lanes.count_ones();
        let share_index = (lanes != 0).then(|| compress(b, gpu.thread.lane, lanes));
        let (base, dtypes) = (written.base, self.dtypes(gpu));
        let combination = &self.reduce.combination;
        b.accumulating = combination.commutes();
        let mut results: Vec<CombinedElement> = (0..self.results.len())
            .map(|register| {
                let columns: Vec<Vec<Val>> = dtypes
                    .iter()
                    .zip(&written.offsets)
                    .map(|(&dtype, (start, elements))| {
                        let mut pointer = b.offset(base, elements[register], 1);
                        if let Some(share_index) = share_index {
                            let bytes = b.int(Ty::I32, i64::from(share as u32 * dtype.bytes()));
                            let first = b.mul(share_index, bytes);
                            pointer = b.offset(pointer, first, 1);
                        }
                        let pointer = b.offset_bytes(pointer, *start as i32);
                        load(b, pointer, dtype, share)
                    })
                    .collect();
                let rows = (0..share).map(|i| columns.iter().map(|column| column[i]).collect()).collect();
                combination.reduce_tree(gpu.func, b, rows)
            })
            .collect();
        across_lanes(self.reduce, gpu, b, lanes, &mut results);
        b.accumulating = false;
        results
    }
}

/// The bits of `source` under `mask`, compressed to the low bits.
pub(super) fn compress(b: &mut Builder, source: Val, mask: u32) -> Val {
    let mut compressed = b.int(Ty::I32, 0);
    let one = b.int(Ty::I32, 1);
    for (to, from) in (0..32).filter(|bit| mask >> bit & 1 == 1).enumerate() {
        let from = b.int(Ty::I32, i64::from(from));
        let bit = b.lshr(source, from);
        let bit = b.and(bit, one);
        let to = b.int(Ty::I32, to as i64);
        let bit = b.shl(bit, to);
        compressed = b.or(compressed, bit);
    }
    compressed
}

/// The offset of a register's element, `pitch` bytes from the next one: in row-major order first the first elements of all
/// threads' vectors, then the second ones. So adjacent lanes access different banks.
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
        let term = b.mul(coord, scale);
        offset = b.add(offset, term);
        stride *= extent;
    }
    offset
}

/// Stores contiguous elements.
pub(super) fn store(b: &mut Builder, values: &[Val], dtype: DType, pointer: Val, align: u32) {
    let words = pack(b, values, dtype);
    let value = if words.len() == 1 { words[0] } else { b.pack(&words) };
    b.store(value, pointer, AccessFlags::aligned(align));
}

/// Loads `count` contiguous elements, aligned to their size up to 16 bytes.
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
