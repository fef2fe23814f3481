//! Random numbers: one Philox block for the contiguous elements that a thread holds.

use tile_ir::ir::Op;
use tile_ir::ops::{Philox, Random};

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::Val;
use crate::mlir::philox;
use crate::mlir::types::{Elem, Ty};

/// Words of a block.
const WORDS: usize = 4;

impl GpuEmit for Philox {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let seed = gpu.scalar(self.seed);
        let key = philox::key(b, seed);
        let counter = self.counter.map(|word| gpu.registers(word));
        let registers = (0..counter[0].len())
            .map(|register| {
                let words = philox::block(b, key, [0, 1, 2, 3].map(|i| counter[i][register]));
                philox::convert(b, words[usize::from(self.word)], self.form)
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Random {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let seed = gpu.scalar(self.seed);
        let key = philox::key(b, seed);
        let offsets = gpu.registers(self.offset);
        let dtype = gpu.func.ty(self.offset).dtype;
        let is_negative = gpu.info(self.offset).range.0 < 0;
        let (run, aligned) = contiguous_run(self, gpu);
        let words: Vec<Val> = offsets
            .chunks(run)
            .flat_map(|chunk| {
                let (counter, own) = philox::counter_of(b, chunk[0], dtype.is_signed(), is_negative);
                let run = OffsetRun { random: self, key, counter, length: run };
                if aligned { run.aligned_words(b) } else { run.straddling_words(b, own) }
            })
            .collect();
        let registers = words.into_iter().map(|word| philox::convert(b, word, self.form)).collect();
        gpu.define(op.results[0], registers);
    }
}

/// How many consecutive registers hold contiguous offsets, and whether the first is at the start of a block.
fn contiguous_run(random: &Random, gpu: &Gpu) -> (usize, bool) {
    if gpu.func.ty(random.offset).is_scalar() {
        return (1, false);
    }
    let (layout, info) = (gpu.layout(random.offset), gpu.info(random.offset));
    let Some(axis) = (0..info.axes.len()).find(|&axis| layout.thread_contiguity(axis) > 1) else {
        return (1, false);
    };
    let run = u64::from(layout.thread_contiguity(axis)).min(info.axes[axis].contiguity);
    let divisor = info.divisor_at(axis, run).min(run);
    // Runs aligned to their length.
    if divisor >= WORDS as u64 { (divisor as usize, true) } else { (run as usize, false) }
}

/// Contiguous offsets of a thread, whose numbers are words of consecutive blocks.
struct OffsetRun<'a> {
    random: &'a Random,
    key: [Val; 2],
    /// The counter of the first offset's block.
    counter: [Val; 4],
    length: usize,
}

impl OffsetRun<'_> {
    /// The words of offsets that fill blocks.
    fn aligned_words(&self, b: &mut Builder) -> Vec<Val> {
        let OffsetRun { random, key, counter, length: run } = *self;
        (0..run / WORDS)
            .flat_map(|block| {
                let counter = philox::advance_aligned(b, counter, block as i64);
                let words = philox::block(b, key, counter);
                (0..WORDS).map(move |own| words[random.pick.word(own)])
            })
            .collect()
    }

    /// The words of offsets of which the first is word `own` of its block: all blocks that they may reach into, from that word
    /// on.
    fn straddling_words(&self, b: &mut Builder, own: Val) -> Vec<Val> {
        let OffsetRun { random, key, counter, length: run } = *self;
        let blocks = (run + 2 * WORDS - 2) / WORDS;
        let words: Vec<Val> = (0..blocks)
            .flat_map(|block| {
                let counter = philox::advance(b, counter, block as i64);
                let words = philox::block(b, key, counter);
                (0..WORDS).map(move |own| words[random.pick.word(own)])
            })
            .collect();
        let (one, zero) = (b.int(Ty::I32, 1), b.int(Ty::I32, 0));
        let own = b.trunc(own, Elem::I32);
        let low = b.and(own, one);
        let is_odd = b.icmp(IntPredicate::Ne, low, zero);
        let is_upper = b.icmp(IntPredicate::Ugt, own, one);
        let by_one: Vec<Val> = (0..run + 2).map(|i| b.select(is_odd, words[i + 1], words[i])).collect();
        (0..run).map(|i| b.select(is_upper, by_one[i + 2], by_one[i])).collect()
    }
}
