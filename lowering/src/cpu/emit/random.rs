//! Random numbers: one block of Philox for four contiguous lanes.

use tile_ir::ir::Op;
use tile_ir::ops::{Philox, Random};

use crate::cpu::emit::nest::Point;
use crate::cpu::emit::{Builder, CpuEmit, Host, Val};
use crate::mlir::{IntPredicate, philox};

/// Recomputing a block costs as much as this many plain instructions.
const COST: u32 = 64;

impl CpuEmit for Philox {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let key = philox::key(b, host.scalar(self.seed));
        let counter = self.counter.map(|word| host.at(b, word, point));
        let words = philox::block(b, key, counter);
        philox::convert(b, words[usize::from(self.word)], self.form)
    }

    fn cost(&self) -> u32 {
        COST
    }
}

impl CpuEmit for Random {
    fn at(&self, host: &mut Host, b: &mut Builder, _: &Op, point: &Point) -> Val {
        let key = philox::key(b, host.scalar(self.seed));
        let offset = host.at(b, self.offset, point);
        let signed = host.dtype(self.offset).is_signed();
        let info = host.plan.axes.get(host.func, self.offset);
        let is_negative = info.range.0 < 0;
        let fills = point.lanes.is_multiple_of(4)
            && info.axes[point.axis].contiguity >= 4
            && info.divisor_at(point.axis, 4) >= 4;
        let word = if fills {
            let starts: Vec<i32> = (0..i32::from(point.lanes)).step_by(4).collect();
            let first = match starts.as_slice() {
                [only] => b.extract(offset, *only as u16),
                _ => b.shuffle(offset, offset, &starts),
            };
            let (counter, _) = philox::counter_of(b, first, signed, is_negative);
            let words = philox::block(b, key, counter);
            interleaved(b, [0, 1, 2, 3].map(|own| words[self.pick.word(own)]))
        } else {
            let (counter, own) = philox::counter_of(b, offset, signed, is_negative);
            let words = philox::block(b, key, counter);
            select_word(self, b, words, own)
        };
        philox::convert(b, word, self.form)
    }

    fn cost(&self) -> u32 {
        COST
    }
}

/// Selects word `own` of each lane's block.
fn select_word(random: &Random, b: &mut Builder, words: [Val; 4], own: Val) -> Val {
    let picked = [0, 1, 2, 3].map(|own| words[random.pick.word(own)]);
    let (zero, one) = (b.int(own.ty, 0), b.int(own.ty, 1));
    let low = b.and(own, one);
    let is_odd = b.icmp(IntPredicate::Ne, low, zero);
    let is_upper = b.icmp(IntPredicate::Ugt, own, one);
    let lower = b.select(is_odd, picked[1], picked[0]);
    let upper = b.select(is_odd, picked[3], picked[2]);
    b.select(is_upper, upper, lower)
}

/// `a0 b0 c0 d0 a1 b1 ..`
fn interleaved(b: &mut Builder, [first, second, third, fourth]: [Val; 4]) -> Val {
    if !first.ty.is_vector() {
        return b.pack(&[first, second, third, fourth]);
    }
    let lanes = i32::from(first.ty.lanes);
    let pairs: Vec<i32> = (0..lanes).flat_map(|lane| [lane, lane + lanes]).collect();
    let (low, high) = (b.shuffle(first, second, &pairs), b.shuffle(third, fourth, &pairs));
    let fours: Vec<i32> = (0..lanes)
        .flat_map(|lane| [2 * lane, 2 * lane + 1, 2 * (lane + lanes), 2 * (lane + lanes) + 1])
        .collect();
    b.shuffle(low, high, &fours)
}
