//! A thread's place in its program: which element of a tile its register holds, and which of its replicas writes it.

use tile_ir::ir::Value;

use crate::gpu::emit::coordinates::runs;
use crate::gpu::emit::{Builder, Gpu, GpuPlan, IntPredicate, statement};
use crate::gpu::layout::Layout;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// Where this thread is in its program and its block.
#[derive(Clone, Copy)]
pub(super) struct ThreadIndices {
    pub lane: Val,
    /// This thread's warp within its program.
    pub warp: Val,
    /// This thread's warp among the program's warps in its block.
    pub block_warp: Val,
    /// The index of this program in its block.
    pub program_in_block: Val,
}

impl ThreadIndices {
    /// Where this block has all warps of a program.
    pub fn of_block(plan: &GpuPlan, b: &mut Builder) -> ThreadIndices {
        let thread = b.op("nvvm.read.ptx.sreg.tid.x", &[], Ty::I32);
        let (thirty_one, five) = (b.int(Ty::I32, 31), b.int(Ty::I32, 5));
        let lane = b.and(thread, thirty_one);
        let warp = b.lshr(thread, five);
        let zero = b.int(Ty::I32, 0);
        let num_warps = plan.schedule.distributed.num_warps;
        let (warp, program_in_block) = if plan.programs == 1 {
            (warp, zero)
        } else {
            let (mask, shift) =
                (b.int(Ty::I32, i64::from(num_warps - 1)), b.int(Ty::I32, i64::from(num_warps.ilog2())));
            (b.and(warp, mask), b.lshr(warp, shift))
        };
        let block_warp = if num_warps == 1 { zero } else { warp };
        ThreadIndices { lane, warp: block_warp, block_warp, program_in_block }
    }

    /// The same indices in registers of their own: to LLVM they have nothing to do with these.
    pub fn rematerialize(self, b: &mut Builder) -> ThreadIndices {
        let mut same = |index| statement(b, "mov.b32 $0, $1;", "=r,r", &[index], &[Ty::I32])[0];
        let [lane, warp, block_warp] = [self.lane, self.warp, self.block_warp].map(&mut same);
        ThreadIndices { lane, warp, block_warp, ..self }
    }
}

impl Gpu<'_> {
    /// The coordinate along `axis` of a register of this thread.
    pub(super) fn coord(&mut self, b: &mut Builder, layout: &Layout, register: usize, axis: usize) -> Val {
        let thread = self.thread_coord(b, layout, axis);
        if layout.is_disjoint() {
            return self.add_constant(b, thread, i64::from(layout.register(register).get(axis)));
        }
        let within = layout.within_block(register).get(axis);
        let start = layout.register(register).get(axis) - within;
        let (within, start) = (b.int(Ty::I32, i64::from(within)), b.int(Ty::I32, i64::from(start)));
        let inside = b.xor(thread, within);
        b.add_nsw(inside, start)
    }

    /// This thread's contribution to the coordinate along `axis`, an `i32`.
    pub(super) fn thread_coord(&mut self, b: &mut Builder, layout: &Layout, axis: usize) -> Val {
        let key = (layout.clone(), axis);
        if let Some(known) = self.cse.find(|scope| scope.threads.get(&key)) {
            return known;
        }
        let mut coord = b.int(Ty::I32, 0);
        for (source, bases) in
            [(self.thread.lane, layout.lane_bases()), (self.thread.warp, layout.warp_bases())]
        {
            for run in runs(bases, axis) {
                let term = run.extract(b, source);
                coord = if layout.is_disjoint() { b.add_nsw(coord, term) } else { b.xor(coord, term) };
            }
        }
        if let Some((_, stride)) = layout.set_axis().filter(|(tiled, _)| *tiled == axis) {
            let (bits, stride) = (layout.warp_bases().len() as i64, i64::from(stride));
            let [bits, stride] = [bits, stride].map(|value| b.int(Ty::I32, value));
            let set = b.lshr(self.thread.warp, bits);
            let term = b.mul_nsw(set, stride);
            coord = b.add_nsw(coord, term);
        }
        self.cse.innermost().threads.insert(key, coord);
        coord
    }

    /// Whether this thread is the one of its replicas that writes; `None` when there are no others.
    pub(super) fn writer(&self, b: &mut Builder, layout: Option<&Layout>) -> Option<Val> {
        match layout {
            Some(layout) => self.first_of(b, layout.replicated_lanes(), layout.replicated_warps()),
            None => self.first_of(b, 31, self.plan.schedule.distributed.warp_bits()),
        }
    }

    /// Whether this thread is the first of those that differ in these lane and warp bits; `None` when there are no others.
    pub(super) fn first_of(&self, b: &mut Builder, lanes: u32, warps: u32) -> Option<Val> {
        self.is_thread(b, [lanes, warps], [0, 0])
    }

    /// Whether these bits of this thread's lane and warp have these values; `None` when there are no bits.
    pub(super) fn is_thread(&self, b: &mut Builder, masks: [u32; 2], values: [u32; 2]) -> Option<Val> {
        let mut all = None;
        for ((source, mask), value) in [self.thread.lane, self.thread.warp].into_iter().zip(masks).zip(values)
        {
            if mask != 0 {
                let (mask, value) = (b.int(Ty::I32, i64::from(mask)), b.int(Ty::I32, i64::from(value)));
                let bits = b.and(source, mask);
                let is_own = b.icmp(IntPredicate::Eq, bits, value);
                all = b.both(all, Some(is_own));
            }
        }
        all
    }

    /// How many consecutive registers of `value` hold equal elements.
    pub(super) fn repeats(&self, value: Value) -> usize {
        let layout = self.layout(value);
        let info = self.info(value);
        let along = (0..info.axes.len()).find(|&axis| layout.thread_contiguity(axis) > 1);
        along.map_or(1, |axis| {
            u64::from(layout.thread_contiguity(axis)).min(info.axes[axis].constancy) as usize
        })
    }
}

/// The lowest `count` of these lane bits, if there are so many.
pub(super) fn lowest_lanes(bits: u32, count: u32) -> Option<u32> {
    let lowest: u32 = (0..5).map(|bit| 1 << bit).filter(|bit| bits & bit != 0).take(count as usize).sum();
    (lowest.count_ones() == count).then_some(lowest)
}

/// So many bits of an integer, from one on.
pub(super) fn bits(b: &mut Builder, of: Val, from: u32, count: u32) -> Val {
    let [shift, mask] = [from, (1 << count) - 1].map(|number| b.int(Ty::I32, i64::from(number)));
    let shifted = b.lshr(of, shift);
    b.and(shifted, mask)
}
