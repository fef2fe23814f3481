//! How many registers a thread of a body may have. Where nobody says, ptxas decides by how many threads fit on a multiprocessor; it knows
//! neither what they wait for nor how many there are.

use crate::layout::Layout;
use crate::layout::assign::Distributed;
use crate::layout::dot;
use crate::mlir::Limit;
use crate::mlir::gpu::ahead::copied_ahead;
use crate::mlir::gpu::registers_of_each;
use crate::ops::Kind;
use crate::tile::Op;

/// The registers that a thread can have at all. Said to ptxas they are a limit like any other, and change what it does.
pub(super) const MAX_REGISTERS: u32 = 255;

/// The limit of a body with this `maxnreg`, whose blocks have so many threads; [`MAX_REGISTERS`] is none.
pub(super) fn registers(maxnreg: Option<u32>, distributed: &Distributed, threads: u32) -> Option<Limit> {
    let most = match maxnreg {
        Some(most) if most < MAX_REGISTERS => Some(most),
        Some(_) => for_rows_read_around(distributed),
        None => for_two_blocks(distributed).or_else(|| for_loads_among_stores(distributed)),
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

/// Of long rows that begin anywhere and the columns' numbers beside them, which are read as parts of aligned vectors: ptxas has as many under
/// way as there are registers, and a block of eight warps would be alone on a multiprocessor, where nothing hides what it
/// waits for.
fn for_rows_read_around(distributed: &Distributed) -> Option<u32> {
    const LONG: usize = 48;
    const MANY: usize = 2;
    let mut found = 0;
    distributed.func.body.walk(&mut |op| {
        if let Kind::Load(load) = &op.kind {
            let elements = distributed.layouts.get(&load.place.offset).map_or(0, Layout::register_count);
            found += usize::from(load.place.misalignment().is_some() && elements >= LONG);
        }
    });
    (found >= MANY && distributed.block_warps() == 8).then_some(SIXTEEN_WARPS)
}

/// Of a product by single threads, if it does with the registers that leave room for sixteen warps on a multiprocessor: one block
/// multiplies while another one waits for its factors.
fn for_two_blocks(distributed: &Distributed) -> Option<u32> {
    /// For addresses, and what a step multiplies.
    const BESIDES: u32 = 48;
    let needed = dot::block_registers(distributed)? + BESIDES;
    (needed <= SIXTEEN_WARPS).then_some(SIXTEEN_WARPS)
}

/// Of a loop that loads and stores in each iteration. Without a limit ptxas saves registers, for more threads at once, by making a load
/// after the arithmetic and the store of the one before: an iteration waits for memory as often.
fn for_loads_among_stores(distributed: &Distributed) -> Option<u32> {
    (loads_among_stores(distributed) > 1).then_some(MAX_REGISTERS)
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
        let ahead = copied_ahead(distributed, body);
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
