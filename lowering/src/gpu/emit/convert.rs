//! Emission of layout conversions, by the method that `layout::conversion` chose: registers, shuffles or shared memory.

use tile_ir::ir::{Op, Value};
use tile_ir::ops::{Convert, Reshape};

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::smem_tile::SmemTileAddress;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, ShuffleMode};
use crate::gpu::layout::conversion::{LaneExchange, Shuffle};
use crate::gpu::layout::linear::LANE_BITS;
use crate::gpu::layout::smem_tile::SmemTile;
use crate::gpu::layout::{Conversion, Distributed, Layout, conversion};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

fn layouts<'a>(distributed: &'a Distributed, operand: Value, op: &Op) -> (&'a Layout, &'a Layout) {
    (&distributed.layouts[&operand], &distributed.layouts[&op.results[0]])
}

impl GpuEmit for Convert {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (from, to) = layouts(&gpu.plan.schedule.distributed, self.value, op);
        let ty = gpu.func.ty(self.value).clone();
        let values = gpu.registers(self.value);
        let registers = match conversion(from, to) {
            Conversion::Registers(sources) => sources.into_iter().map(|source| values[source]).collect(),
            Conversion::Shuffle(shuffle) => gpu.convert_by_shuffles(b, &values, &shuffle),
            Conversion::Shared => {
                let tile = SmemTile::between(from, to, ty.dtype);
                gpu.convert_through_smem(b, op, self.value, [tile.clone(), tile])
            }
        };
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Reshape {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let (from, to) = layouts(&gpu.plan.schedule.distributed, self.value, op);
        let (old, new) = (from.shape().clone(), to.shape().clone());
        if from.reshape(&new).as_ref() == Some(to) {
            return gpu.define_reindexed(op, self.value, |coord| coord.reshape(&new, &old));
        }
        let registers =
            gpu.convert_through_smem(b, op, self.value, [SmemTile::dense(&old), SmemTile::dense(&new)]);
        gpu.define(op.results[0], registers);
    }
}

impl Gpu<'_> {
    /// Moves elements within each warp.
    fn convert_by_shuffles(&mut self, b: &mut Builder, values: &[Val], shuffle: &Shuffle) -> Vec<Val> {
        let mut values = values.to_vec();
        for exchange in &shuffle.exchanges {
            self.exchange_lanes(b, &mut values, exchange);
        }
        let one = b.int(Ty::I32, 1);
        let bits: Vec<Val> = (0..LANE_BITS)
            .map(|bit| {
                let amount = b.int(Ty::I32, bit as i64);
                let shifted = b.lshr(self.thread.lane, amount);
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
                if shuffle.is_own(register) {
                    return values[source];
                }
                let constant = b.int(Ty::I32, i64::from(lane));
                let lane = b.xor(varying, constant);
                let flips: Vec<(usize, Val)> = shuffle
                    .lane_bits
                    .iter()
                    .enumerate()
                    .filter(|(_, (flip, _))| *flip != 0)
                    .map(|(bit, &(flip, _))| (flip, bits[bit]))
                    .collect();
                self.shuffle_selected(b, &values, source, &flips, lane)
            })
            .collect()
    }

    /// Lanes that differ in the exchange's bit send each other the halves of their registers that they give away.
    fn exchange_lanes(&mut self, b: &mut Builder, values: &mut [Val], exchange: &LaneExchange) {
        let (mask, zero) = (b.int(Ty::I32, 1 << exchange.lane_bit), b.int(Ty::I32, 0));
        let bit = b.and(self.thread.lane, mask);
        let is_upper = b.icmp(IntPredicate::Ne, bit, zero);
        let distance = 1 << exchange.register_bit;
        for lower in (0..values.len()).filter(|register| register & distance == 0) {
            let upper = lower | distance;
            let sent = b.select(is_upper, values[lower], values[upper]);
            let received = self.shuffle(b, sent, ShuffleMode::Butterfly, mask);
            values[lower] = b.select(is_upper, received, values[lower]);
            values[upper] = b.select(is_upper, values[upper], received);
        }
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
                let is_zero = b.icmp(IntPredicate::Eq, *bit, zero);
                b.select(is_zero, same, flipped)
            }
        }
    }

    /// Converts through shared memory: the operand is written as the first tile, the result read as the second.
    fn convert_through_smem(
        &mut self,
        b: &mut Builder,
        op: &Op,
        operand: Value,
        [written, read]: [SmemTile; 2],
    ) -> Vec<Val> {
        let written = self.write_to_scratch(b, op, operand, written);
        self.read_smem_tile(b, op, &SmemTileAddress { tile: read, ..written })
    }
}
