//! The register limit of a specialization. Without one ptxas decides by how many threads fit on a multiprocessor; it
//! knows neither what they wait for nor how many there are.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use tile_ir::ir::{Block, Func, Op, Value, backward_slice};
use tile_ir::ops::{Kind, Load, MemAccess};

use crate::gpu::layout::{Distributed, Layout, dot};
use crate::gpu::schedule::software_pipeline::plan::prefetched_values;
use crate::gpu::schedule::warp_specialize::registers::registers_of_each;
use crate::mlir::Limit;

/// Bytes of a register.
const REGISTER_BYTES: u32 = 4;

/// The most registers that a thread can have. Given to ptxas, it is a limit like any other and changes what ptxas does.
pub const NO_LIMIT: u32 = 255;

/// The limit of a specialization with this `maxnreg`, whose blocks have so many threads; [`NO_LIMIT`] is none.
pub fn registers(maxnreg: Option<u32>, distributed: &Distributed, threads: u32) -> Option<Limit> {
    let most = match maxnreg {
        Some(most) if most < NO_LIMIT => Some(most),
        Some(_) => for_unaligned_rows(distributed).or_else(|| for_loads_before_arithmetic(distributed)),
        None => for_unaligned_rows(distributed)
            .or_else(|| for_two_blocks(distributed))
            .or_else(|| for_loads_among_stores(distributed))
            .or_else(|| for_loads_before_arithmetic(distributed)),
    };
    most.map(|most| block_limit(most, threads))
}

/// A limit of so many registers for blocks of so many threads. It replaces what ptxas knows of the block's size: a
/// block with more could not be launched.
pub fn block_limit(most: u32, threads: u32) -> Limit {
    Limit::Registers(most.min(registers_of_each(threads)))
}

/// The limit that leaves room for sixteen warps on a multiprocessor.
const REGISTERS_FOR_SIXTEEN_WARPS: u32 = 128;

/// For reductions of unaligned rows. ptxas has as many loads in flight as there are registers, and one more block on a
/// multiprocessor hides more of their latency: the limit that leaves room for one, where what is live in a thread fits
/// but for a few words. Between these ranges ptxas does better by itself.
fn for_unaligned_rows(distributed: &Distributed) -> Option<u32> {
    type Limits = &'static [(RangeInclusive<u32>, u32)];
    /// By the live registers of a thread, for five, four, three and two blocks. A long row spills, and two blocks of it
    /// are faster than one.
    const EIGHT_WARPS: Limits =
        &[(40..=53, 48), (54..=71, 64), (72..=107, 80), (112..=190, REGISTERS_FOR_SIXTEEN_WARPS)];
    /// For six and five blocks.
    const FOUR_WARPS: Limits = &[(76..=80, 80), (84..=106, 96)];
    /// For sixteen, fourteen and ten blocks, where elements are upcast: rows of 32-bit ones are as fast as a copy
    /// without.
    const TWO_WARPS: Limits = &[(44..=54, 64), (55..=82, 72), (83..=96, 96)];
    /// For addresses and scalars.
    const OTHER_REGISTERS: u32 = 28;
    let (mut unaligned, mut words, mut reduced, mut stores) = (false, false, false, 0);
    distributed.func.body.walk(&mut |op| match &op.kind {
        Kind::Load(Load { access, .. }) if access.shift.is_some() => {
            unaligned = true;
            words |= distributed.func.slice(access.param).0.bytes() >= REGISTER_BYTES;
        }
        Kind::Store(store) => {
            stores += usize::from(distributed.func.ty(store.access.offset).shape.elements() > 1)
        }
        kind => reduced |= matches!(kind, Kind::Reduce(_)),
    });
    let limits = match distributed.warps_per_cta() {
        8 => EIGHT_WARPS,
        4 => FOUR_WARPS,
        2 if !words => TWO_WARPS,
        _ => return None,
    };
    // Other stores wait for the row.
    if !unaligned || !reduced || stores > 1 {
        return None;
    }
    let needed = OTHER_REGISTERS + live_words(distributed, &distributed.func.body);
    limits.iter().find(|(range, _)| range.contains(&needed)).map(|&(_, limit)| limit)
}

/// The words that are live in a thread: unaligned rows as they were loaded, and a quarter of a row's elements besides
/// for those around a vector; a word for each element of other tiles, which are loaded one by one; and loop-carried
/// values, before and after an iteration.
fn live_words(distributed: &Distributed, block: &Block) -> u32 {
    let count = |value: Value| distributed.layouts.get(&value).map_or(0, Layout::register_count) as u32;
    let (mut loaded, mut most, mut nested) = (0, 0, 0);
    for op in &block.ops {
        if let Kind::Load(Load { access, .. }) = &op.kind {
            let bytes = if access.shift.is_some() {
                distributed.func.slice(access.param).0.bytes()
            } else {
                REGISTER_BYTES
            };
            loaded += (count(access.offset) * bytes).div_ceil(REGISTER_BYTES);
            most = most.max(count(access.offset) / 4);
        }
        for block in op.kind.operation().blocks() {
            let carried: u32 = block.args.iter().map(|&arg| count(arg)).sum();
            nested = nested.max(2 * carried + live_words(distributed, block));
        }
    }
    loaded + most + nested
}

/// For a dot by FMA, if it fits in the registers that leave room for sixteen warps on a multiprocessor: one block
/// computes while another one waits for its operands.
fn for_two_blocks(distributed: &Distributed) -> Option<u32> {
    /// For addresses, and the operands of a step.
    const OTHER_REGISTERS: u32 = 48;
    let needed = dot::fma_registers(distributed)? + OTHER_REGISTERS;
    (needed <= REGISTERS_FOR_SIXTEEN_WARPS).then_some(REGISTERS_FOR_SIXTEEN_WARPS)
}

/// For a loop that loads and stores in each iteration. Without a limit ptxas saves registers, for more threads at once,
/// by moving a load after the arithmetic and the store of the one before: an iteration then waits for memory as often.
fn for_loads_among_stores(distributed: &Distributed) -> Option<u32> {
    (loads_among_stores(distributed) > 1).then_some(NO_LIMIT)
}

/// For straight-line code that computes an element from several streaming loads. Without a limit ptxas saves registers,
/// for more threads than memory can serve, by moving a load after arithmetic that does not need it: a thread then waits
/// for memory twice. The limit has room for all that is loaded. What programs share, a bias, is served by caches.
fn for_loads_before_arithmetic(distributed: &Distributed) -> Option<u32> {
    /// For five and four blocks of eight warps.
    const LIMITS: [u32; 2] = [48, 64];
    /// For addresses, scalars and arithmetic.
    const OTHER_REGISTERS: u32 = 32;
    /// For the offsets of vectors of unaligned rows.
    const FOR_UNALIGNED_ROWS: u32 = 8;
    let func = &distributed.func;
    let (mut straight, mut unaligned, mut words, mut loaded) = (true, false, 0, vec![]);
    let (mut most_loaded, mut most) = (0, 0);
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        let elements = op.results.iter().filter_map(|result| distributed.layouts.get(result));
        most = elements.map(Layout::register_count).fold(most, usize::max);
        straight &= operation.blocks().is_empty() && !matches!(op.kind, Kind::Reduce(_) | Kind::Scan(_));
        // Bounds checks take as many registers again.
        straight &= operation.access().is_none_or(|access| !access.bounded);
        if let Kind::Load(Load { access, .. }) = &op.kind
            && let Some(layout) = distributed.layouts.get(&access.offset)
        {
            let each = if access.vector > 1 { func.slice(access.param).0.bytes() } else { REGISTER_BYTES };
            let own = (layout.register_count() as u32 * each).div_ceil(REGISTER_BYTES);
            words += if access.shift.is_some() { 2 * own } else { own };
            unaligned |= access.shift.is_some();
            loaded.push(access);
            most_loaded = most_loaded.max(layout.register_count());
        }
    });
    // All pairs of what is loaded are more than that.
    straight &= most <= most_loaded;
    let needed = words + OTHER_REGISTERS + if unaligned { FOR_UNALIGNED_ROWS } else { 0 };
    let limit = LIMITS.into_iter().find(|&limit| needed <= limit)?;
    (straight && streaming_accesses(func, &loaded) > 1).then_some(limit)
}

/// How many of these accesses are at other places for any other program: they depend on the program's position along as many axes of the grid
/// access does.
fn streaming_accesses(func: &Func, places: &[&MemAccess]) -> usize {
    let definitions = func.definitions();
    let axes = places.iter().map(|access| {
        let at = access.base.into_iter().chain([access.offset]);
        let values = at.flat_map(|value| backward_slice(value, &definitions));
        let axes: HashSet<u8> = values
            .filter_map(|value| {
                let Kind::ProgramId(program) = &definitions.get(&value)?.kind else { return None };
                Some(program.axis)
            })
            .collect();
        axes.len()
    });
    let axes: Vec<usize> = axes.collect();
    let most = axes.iter().copied().max().unwrap_or(0);
    axes.into_iter().filter(|&own| own == most).count()
}

/// The most loads of a thread in an iteration of a loop that stores too, of tiles without async copies.
fn loads_among_stores(distributed: &Distributed) -> u32 {
    let mut most = 0;
    distributed.func.body.walk(&mut |op| {
        let Kind::For(body) = &op.kind else { return };
        let ops = &body.body.ops;
        if !ops.iter().any(|op| matches!(op.kind, Kind::Store(_))) {
            return;
        }
        let prefetched = prefetched_values(distributed, body);
        let loads = |op: &Op| {
            let (Kind::Load(load), &[result, ..]) = (&op.kind, &op.results[..]) else { return 0 };
            if distributed.func.ty(result).is_scalar() || prefetched.contains(&result) {
                return 0;
            }
            (distributed.layouts[&result].register_count() as u32).div_ceil(load.access.vector.max(1))
        };
        most = most.max(ops.iter().map(loads).sum());
    });
    most
}
