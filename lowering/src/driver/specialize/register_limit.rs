//! How many registers a thread of a body may have. Where nobody says, ptxas decides by how many threads fit on a multiprocessor; it knows
//! neither what they wait for nor how many there are.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::gpu::emit::async_copy::prefetched_values;
use crate::gpu::emit::registers_of_each;
use crate::gpu::layout::Layout;
use crate::gpu::layout::assign::Distributed;
use crate::gpu::layout::dot;
use crate::ir::{Block, Func, Op, Value, backward_slice};
use crate::mlir::Limit;
use crate::ops::{Kind, Load, MemAccess};

/// Bytes of a register.
const WORD: u32 = 4;

/// The registers that a thread can have at all. Said to ptxas they are a limit like any other, and change what it does.
pub(super) const MAX_REGISTERS: u32 = 255;

/// The limit of a body with this `maxnreg`, whose blocks have so many threads; [`MAX_REGISTERS`] is none.
pub(super) fn registers(maxnreg: Option<u32>, distributed: &Distributed, threads: u32) -> Option<Limit> {
    let most = match maxnreg {
        Some(most) if most < MAX_REGISTERS => Some(most),
        Some(_) => for_odd_rows(distributed).or_else(|| for_loads_before_arithmetic(distributed)),
        None => for_odd_rows(distributed)
            .or_else(|| for_two_blocks(distributed))
            .or_else(|| for_loads_among_stores(distributed))
            .or_else(|| for_loads_before_arithmetic(distributed)),
    };
    most.map(|most| of_block(most, threads))
}

/// A limit of so many registers for blocks of so many threads. It takes the place of what ptxas knows of the block's size: a block with
/// more could not be launched.
pub(super) fn of_block(most: u32, threads: u32) -> Limit {
    Limit::Registers(most.min(registers_of_each(threads)))
}

/// Those that leave room for sixteen warps on a multiprocessor.
const SIXTEEN_WARPS: u32 = 128;

/// Of rows that begin anywhere and are reduced. ptxas has as many loads under way as there are registers, and a block more on a
/// multiprocessor hides more of what each waits for: the limit that leaves room for one, where what a thread has at once fits in it
/// but for a few words. Between the limits ptxas does better by itself.
fn for_odd_rows(distributed: &Distributed) -> Option<u32> {
    type Limits = &'static [(RangeInclusive<u32>, u32)];
    /// By the registers of a thread, for five, four, three and two blocks. A long row spills, and two blocks of it are faster than one.
    const OF_EIGHT_WARPS: Limits =
        &[(40..=53, 48), (54..=71, 64), (72..=107, 80), (112..=190, SIXTEEN_WARPS)];
    /// For six and five blocks.
    const OF_FOUR_WARPS: Limits = &[(76..=80, 80), (84..=106, 96)];
    /// For sixteen, fourteen and ten blocks, where elements are widened: rows of 32-bit ones are as fast as a copy without.
    const OF_TWO_WARPS: Limits = &[(44..=54, 64), (55..=82, 72), (83..=96, 96)];
    /// For addresses and numbers.
    const BESIDES: u32 = 28;
    let (mut odd, mut words, mut reduced, mut stores) = (false, false, false, 0);
    distributed.func.body.walk(&mut |op| match &op.kind {
        Kind::Load(Load { place, .. }) if place.shift.is_some() => {
            odd = true;
            words |= distributed.func.slice(place.param).0.bytes() >= WORD;
        }
        Kind::Store(store) => {
            stores += usize::from(distributed.func.ty(store.place.offset).shape.elements() > 1)
        }
        kind => reduced |= matches!(kind, Kind::Reduce(_)),
    });
    let limits = match distributed.warps_per_cta() {
        8 => OF_EIGHT_WARPS,
        4 => OF_FOUR_WARPS,
        2 if !words => OF_TWO_WARPS,
        _ => return None,
    };
    // What is stored beside a row waits for it.
    if !odd || !reduced || stores > 1 {
        return None;
    }
    let needed = BESIDES + words_at_once(distributed, &distributed.func.body);
    limits.iter().find(|(range, _)| range.contains(&needed)).map(|&(_, limit)| limit)
}

/// The words that a thread has at once: of rows that begin anywhere as they were loaded, and a quarter of a row's elements beside them for
/// those around a vector; of other tiles, whose elements come one by one, a word each; and of what loops carry, before an iteration
/// and after it.
fn words_at_once(distributed: &Distributed, block: &Block) -> u32 {
    let count = |value: Value| distributed.layouts.get(&value).map_or(0, Layout::register_count) as u32;
    let (mut loaded, mut most, mut nested) = (0, 0, 0);
    for op in &block.ops {
        if let Kind::Load(Load { place, .. }) = &op.kind {
            let bytes =
                if place.shift.is_some() { distributed.func.slice(place.param).0.bytes() } else { WORD };
            loaded += (count(place.offset) * bytes).div_ceil(WORD);
            most = most.max(count(place.offset) / 4);
        }
        for block in op.kind.operation().blocks() {
            let carried: u32 = block.args.iter().map(|&arg| count(arg)).sum();
            nested = nested.max(2 * carried + words_at_once(distributed, block));
        }
    }
    loaded + most + nested
}

/// Of a product by single threads, if it does with the registers that leave room for sixteen warps on a multiprocessor: one block
/// multiplies while another one waits for its factors.
fn for_two_blocks(distributed: &Distributed) -> Option<u32> {
    /// For addresses, and what a step multiplies.
    const BESIDES: u32 = 48;
    let needed = dot::fma_registers(distributed)? + BESIDES;
    (needed <= SIXTEEN_WARPS).then_some(SIXTEEN_WARPS)
}

/// Of a loop that loads and stores in each iteration. Without a limit ptxas saves registers, for more threads at once, by making a load
/// after the arithmetic and the store of the one before: an iteration waits for memory as often.
fn for_loads_among_stores(distributed: &Distributed) -> Option<u32> {
    (loads_among_stores(distributed) > 1).then_some(MAX_REGISTERS)
}

/// Of straight code that computes an element from several loads which no other program makes. Without a limit ptxas saves registers, for
/// more threads than memory keeps waiting, by making a load after arithmetic that does not need it: a thread waits for memory twice. The
/// limit is one that has room for all that is loaded. What programs read again, a bias, comes out of caches.
fn for_loads_before_arithmetic(distributed: &Distributed) -> Option<u32> {
    /// For five and four blocks of eight warps.
    const LIMITS: [u32; 2] = [48, 64];
    /// For addresses, numbers and arithmetic.
    const BESIDES: u32 = 32;
    /// For where vectors of rows that begin anywhere begin.
    const OF_ODD_ROWS: u32 = 8;
    let func = &distributed.func;
    let (mut straight, mut odd, mut words, mut loaded) = (true, false, 0, vec![]);
    func.body.walk(&mut |op| {
        let operation = op.kind.operation();
        straight &= operation.blocks().is_empty() && !matches!(op.kind, Kind::Reduce(_) | Kind::Scan(_));
        // What is compared with a slice's length takes as many registers again.
        straight &= operation.place().is_none_or(|place| !place.bounded);
        if let Kind::Load(Load { place, .. }) = &op.kind
            && let Some(layout) = distributed.layouts.get(&place.offset)
        {
            let each = if place.vector > 1 { func.slice(place.param).0.bytes() } else { WORD };
            let own = (layout.register_count() as u32 * each).div_ceil(WORD);
            words += if place.shift.is_some() { 2 * own } else { own };
            odd |= place.shift.is_some();
            loaded.push(place);
        }
    });
    let needed = words + BESIDES + if odd { OF_ODD_ROWS } else { 0 };
    let limit = LIMITS.into_iter().find(|&limit| needed <= limit)?;
    (straight && of_one_program(func, &loaded) > 1).then_some(limit)
}

/// How many of these accesses are at other places for any other program: they depend on the program's place along as many axes of the grid
/// as any of them does.
fn of_one_program(func: &Func, places: &[&MemAccess]) -> usize {
    let definitions = func.definitions();
    let axes = places.iter().map(|place| {
        let at = place.base.into_iter().chain([place.offset]);
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

/// The most loads that a thread makes in an iteration of a loop that stores too, of tiles that were not copied ahead.
fn loads_among_stores(distributed: &Distributed) -> u32 {
    let mut most = 0;
    distributed.func.body.walk(&mut |op| {
        let Kind::For(body) = &op.kind else { return };
        let ops = &body.body.ops;
        if !ops.iter().any(|op| matches!(op.kind, Kind::Store(_))) {
            return;
        }
        let ahead = prefetched_values(distributed, body);
        let loads = |op: &Op| {
            let (Kind::Load(load), &[result, ..]) = (&op.kind, &op.results[..]) else { return 0 };
            if distributed.func.ty(result).is_scalar() || ahead.contains(&result) {
                return 0;
            }
            (distributed.layouts[&result].register_count() as u32).div_ceil(load.place.vector.max(1))
        };
        most = most.max(ops.iter().map(loads).sum());
    });
    most
}
