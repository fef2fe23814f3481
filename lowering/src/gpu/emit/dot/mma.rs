//! Dots by mma: a warp issues an instruction for each fragment of the result and each step along K.

use tile_ir::ops::DotOperand;
use tile_ir::support::dtype::DType;

use crate::gpu::emit::dot::StagedDot;
use crate::gpu::emit::dot::fragment::{Fragments, HALVES, MmaOperand};
use crate::gpu::emit::{Asm, Builder, Gpu};
use crate::gpu::layout::dot::{Fragment, M16N8K16, MmaShape};
use crate::gpu::layout::{Coord, Layout};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;

/// Instructions between the load of a fragment and its first mma.
const LEAD: usize = 16;

impl StagedDot<'_> {
    /// The accumulators of the result, by instructions of this shape.
    pub(super) fn by_warp(self, gpu: &mut Gpu, b: &mut Builder, shape: &'static MmaShape) -> Vec<Val> {
        let StagedDot { dot, result, tiles: written, mut accs } = self;
        let layout = gpu.layout(result).clone();
        let rank = layout.shape().rank();
        let [mut left, mut right] = DotOperand::ALL.map(|side| {
            let operand = MmaOperand::new(gpu.func, dot, side, shape);
            operand.source(gpu, b, &layout, written[side as usize].as_ref())
        });
        let instruction = MmaInstruction { shape, dtype: left.dtype };
        let places = layout.registers_by_coord();
        let offsets = shape.acc.offsets(layout.shape());
        let tiles = fragments(&layout, &shape.acc);
        let (mut lefts, mut rights) = (Fragments::new(), Fragments::new());
        let steps = (0..dot.inner(gpu.func)).step_by(shape.k as usize);
        let mmas: Vec<(u32, Coord)> =
            steps.flat_map(|step| tiles.iter().map(move |&tile| (step, tile))).collect();
        let mut interleaved = gpu.take_copies(dot.interleaved);
        // Fragments of later mma instructions are being read meanwhile.
        let lead = if left.is_copied() || right.is_copied() { LEAD } else { 0 };
        let mut due = mmas.iter();
        for (number, &(step, tile)) in mmas.iter().enumerate() {
            let missing = (number + 1 + lead).min(mmas.len()) - (mmas.len() - due.len());
            for &(step, tile) in due.by_ref().take(missing) {
                left.words(b, tile.set(rank - 1, step), &mut lefts);
                right.words(b, tile.set(rank - 2, step), &mut rights);
            }
            let a = left.words(b, tile.set(rank - 1, step), &mut lefts);
            let b_words = right.words(b, tile.set(rank - 2, step), &mut rights);
            let own: Vec<usize> = offsets.iter().map(|offset| places[&tile.plus(*offset)]).collect();
            let before: Vec<Val> = own.iter().map(|&register| accs[register]).collect();
            // The smallest products first: their sum is added to what is larger.
            let rests = [
                a.rest.as_ref().map(|rest| [rest, &b_words.words]),
                b_words.rest.as_ref().map(|rest| [&a.words, rest]),
            ];
            let all = rests.into_iter().flatten().chain([[&a.words, &b_words.words]]);
            let after = all.fold(before, |sum, [a, b_words]| instruction.multiply(b, [a, b_words, &sum]));
            own.into_iter().zip(after).for_each(|(register, sum)| accs[register] = sum);
            interleaved.issue(b, number + 1, mmas.len());
        }
        accs
    }
}

/// The first element of each fragment of a thread.
fn fragments(layout: &Layout, fragment: &Fragment) -> Vec<Coord> {
    let bits = fragment.bases(layout.shape()).iter().filter(|basis| **basis != Coord::ZERO).count();
    (0..layout.register_count()).step_by(1 << bits).map(|register| layout.register(register)).collect()
}

/// An mma instruction: its shape, and the type of the elements that it multiplies.
#[derive(Clone, Copy)]
struct MmaInstruction {
    shape: &'static MmaShape,
    dtype: DType,
}

/// What multiplies 8-bit floats, as their upcast halves.
const OF_HALVES: MmaInstruction = MmaInstruction { shape: &M16N8K16, dtype: DType::F16 };

impl MmaInstruction {
    /// The accumulators of fragments, `[a, b, acc]`.
    fn multiply(self, b: &mut Builder, [left, right, accs]: [&[Val]; 3]) -> Vec<Val> {
        if !self.dtype.is_f8() {
            return self.issue(b, [left, right, accs]);
        }
        let halves = left.chunks(left.len() / HALVES).zip(right.chunks(right.len() / HALVES));
        halves.fold(accs.to_vec(), |accs, (left, right)| OF_HALVES.issue(b, [left, right, &accs]))
    }

    /// Issues it once.
    fn issue(self, b: &mut Builder, operands: [&[Val]; 3]) -> Vec<Val> {
        let MmaShape { m: rows, n: columns, k: inner, .. } = self.shape;
        let (factor, sum, letters) = match self.dtype {
            DType::F16 => ("f16", "f32", ["r", "f"]),
            DType::BF16 => ("bf16", "f32", ["r", "f"]),
            DType::F32 => ("tf32", "f32", ["r", "f"]),
            DType::I8 => ("s8", "s32", ["r", "r"]),
            _ => ("f64", "f64", ["d", "d"]),
        };
        let mut next = 0;
        let mut list = |count: usize| {
            let names: Vec<String> = (next..next + count).map(|i| format!("${i}")).collect();
            next += count;
            format!("{{{}}}", names.join(", "))
        };
        let results = operands[2].len();
        let lists = [results, operands[0].len(), operands[1].len(), results].map(&mut list).join(", ");
        let text = format!(
            "mma.sync.aligned.m{rows}n{columns}k{inner}.row.col.{sum}.{factor}.{factor}.{sum} {lists};"
        );
        let mut constraints = vec![format!("={}", letters[1]); results];
        constraints.extend(vec![letters[0].to_string(); operands[0].len() + operands[1].len()]);
        constraints.extend(vec![letters[1].to_string(); results]);
        let types: Vec<Ty> = operands[2].iter().map(|sum| sum.ty).collect();
        let all: Vec<Val> = operands.into_iter().flatten().copied().collect();
        // All lanes take part, so it stays where it stands.
        b.asm(&text, &constraints.join(","), &all, &types, Asm::Effects)
    }
}
