//! Dots: by the tensor cores of a warp (`mma`), or by FMAs of single threads.
//!
//! An operand whose registers are laid out as the instruction reads it is read from there: the result of an earlier
//! dot, say. Any other goes through shared memory, both operands with one barrier, from which fragments are read
//! shortly before their use: as matrices of 16-byte rows (`ldmatrix`) where they have such. Accumulators stay in
//! their registers.

mod fma;
mod smem_descriptor;
mod stage_operands;
pub(super) mod wgmma;
pub(super) mod wgmma_statement;

use std::collections::HashMap;

use tile_ir::ir::{Func, Op, Type};
use tile_ir::ops::{Dot, DotOperand, InputPrecision};
use tile_ir::support::dtype::DType;

use super::{Asm, Builder, Gpu, statement};
use crate::gpu::emit::convert::EmitSmemTile;
use crate::gpu::emit::memory::pack;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::load;
use crate::gpu::emit::schedule::TileAddresses;
use crate::gpu::layout::dot::{
    DotMethod, Fragment, M16N8K16, MmaShape, inner_axis, method, mma_operand_layout, outer_axis,
    reads_matrices,
};
use crate::gpu::layout::linear::LANE_BITS;
use crate::gpu::layout::scratch_operands::{ScratchOperand, ScratchOperands};
use crate::gpu::layout::smem_tile::SmemTile;
use crate::gpu::layout::{Coord, Layout};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use crate::mlir::{f8, lanes};

impl GpuEmit for Dot {
    fn differs_by_capability(&self, func: &Func, _: &Op) -> bool {
        func.ty(self.a).dtype.is_f8() || self.input != InputPrecision::Ieee
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let operands = gpu.stage(b, self, op);
        let accs = match self.acc {
            Some(acc) => gpu.registers(acc).to_vec(),
            None => {
                let zero = b.zero(gpu.register_type(op.results[0]));
                vec![zero; gpu.register_count(op.results[0])]
            }
        };
        let accs = match method(gpu.func.ty(self.a).dtype, self.input) {
            DotMethod::Mma(instruction) => by_warp(self, gpu, b, op, (instruction, &operands), accs),
            DotMethod::Fma => fma::by_thread(self, gpu, b, op, &operands, accs),
        };
        gpu.define(op.results[0], accs);
    }
}

impl Gpu<'_> {
    /// Writes the operands that need it to shared memory; returns those that are there.
    fn stage(&mut self, b: &mut Builder, dot: &Dot, op: &Op) -> OperandTiles {
        let ScratchOperands { staged, bytes } =
            ScratchOperands::new(&self.plan.schedule.distributed, dot, op);
        let operands = DotOperand::ALL.map(|side| {
            let value = dot.operand(side);
            let Some(ScratchOperand { start: Some(start), staging }) = &staged[side as usize] else {
                return self.smem.staged_operands.get(&value).cloned();
            };
            let place = self.scratch(op.results[0]);
            let address = b.offset_bytes(self.smem_base(), (place.start + start) as i32);
            self.write_smem_tile(b, value, staging, address);
            Some(StagedOperandTile { tile: staging.clone(), address })
        });
        if bytes > 0 {
            self.barrier(b);
        }
        operands
    }
}

/// An operand in shared memory, and where it starts.
#[derive(Clone)]
pub(super) struct StagedOperandTile {
    tile: SmemTile,
    address: Val,
}

/// The operands of a dot that were written to shared memory.
type OperandTiles = [Option<StagedOperandTile>; 2];

/// An operand where a warp reads its fragments from.
struct FragmentSource {
    dtype: DType,
    input: InputPrecision,
    /// The offsets of the elements of a fragment from its first one.
    offsets: Vec<Coord>,
    inner: usize,
    outer: usize,
    place: FragmentPlace,
}

enum FragmentPlace {
    Registers {
        values: Vec<Val>,
        places: HashMap<Coord, usize>,
    },
    /// From this thread's first element on.
    Memory {
        pointer: Val,
        strides: Vec<u32>,
        fast: usize,
    },
    /// In matrices of eight rows of 16 bytes, which a warp reads together: from the row on that this lane points at.
    Matrices {
        pointer: Val,
        strides: Vec<u32>,
        transposed: bool,
        /// The distance to the fragment beside it, where both are read together.
        pair: Option<u32>,
    },
    /// The same in a smem operand that the loop copied.
    Copied {
        places: TileAddresses,
        transposed: bool,
        pair: Option<u32>,
    },
}

/// Instructions of 16-bit floats for a fragment of 8-bit floats.
const HALVES: usize = 2;
/// Instructions between the load of a fragment and its first mma.
const LEAD: usize = 16;

/// Fragments that were read, by where they start.
type Fragments = HashMap<Coord, SplitFragment>;

/// A fragment as its instruction takes it.
#[derive(Clone)]
struct SplitFragment {
    words: Vec<Val>,
    /// The rounding error of the words, where that is multiplied too.
    rest: Option<Vec<Val>>,
}

impl FragmentSource {
    fn is_copied(&self) -> bool {
        matches!(self.place, FragmentPlace::Copied { .. })
    }

    /// The words of the fragment whose first element is at `start`.
    fn words(&mut self, b: &mut Builder, start: Coord, known: &mut Fragments) -> SplitFragment {
        if let Some(known) = known.get(&start) {
            return known.clone();
        }
        let words = self.read(b, start, known);
        let digits = self.digits(b, words);
        known.insert(start, digits.clone());
        digits
    }

    /// Elements of four bytes are rounded to TF32, and 8-bit floats converted.
    fn digits(&self, b: &mut Builder, words: Vec<Val>) -> SplitFragment {
        if self.dtype.is_f8() {
            return SplitFragment { words: self.halves(b, &words), rest: None };
        }
        if self.dtype != DType::F32 {
            return SplitFragment { words, rest: None };
        }
        let rounded: Vec<Val> = words.iter().map(|&word| as_tf32(b, word)).collect();
        let rest = (self.input == InputPrecision::Tf32x3)
            .then(|| words.iter().zip(&rounded).map(|(&word, &rounded)| rest(b, word, rounded)).collect());
        SplitFragment { words: rounded, rest }
    }

    /// 8-bit floats as the fragments of `f16` of consecutive mma instructions: of each the lower pairs of all words,
    /// which the instruction takes for coordinates along K before those of the upper pairs, and then these.
    fn halves(&self, b: &mut Builder, words: &[Val]) -> Vec<Val> {
        let pairs: Vec<[Val; 2]> = words.iter().map(|&word| f8::widen_word(b, word, self.dtype)).collect();
        let fragments = pairs.chunks(pairs.len() / HALVES);
        fragments
            .flat_map(|pairs| [0, 1].into_iter().flat_map(|half| pairs.iter().map(move |pair| pair[half])))
            .collect()
    }

    /// Reads a fragment, and adds the one beside it to `known`.
    fn read(&mut self, b: &mut Builder, start: Coord, known: &mut Fragments) -> Vec<Val> {
        let per_word = per_word(self.dtype);
        let (transposed, pair) = match &self.place {
            FragmentPlace::Matrices { transposed, pair, .. }
            | FragmentPlace::Copied { transposed, pair, .. } => (*transposed, *pair),
            FragmentPlace::Registers { .. } | FragmentPlace::Memory { .. } => return self.gathered(b, start),
        };
        let count = self.offsets.len() / per_word;
        // The one of a pair that comes first.
        let apart = pair.unwrap_or(0);
        let first = start.set(self.outer, start.get(self.outer) & !apart);
        if apart == 0 {
            return self.matrices(b, first, count, transposed);
        }
        let mut words = self.matrices(b, first, 2 * count, transposed);
        let others = words.split_off(count);
        let (own, beside) = if first == start { (words, others) } else { (others, words) };
        let beside_at = start.set(self.outer, start.get(self.outer) ^ apart);
        let beside = self.digits(b, beside);
        known.insert(beside_at, beside);
        own
    }

    /// `count` matrices from the row on that the lanes point at for the element at `first`.
    fn matrices(&mut self, b: &mut Builder, first: Coord, count: usize, transposed: bool) -> Vec<Val> {
        match &mut self.place {
            FragmentPlace::Copied { places, .. } => {
                let (place, beyond) = places.at(b, first);
                matrices(b, ("r", place, beyond), count, transposed)
            }
            FragmentPlace::Matrices { pointer, strides, .. } => {
                let place = moved(b, *pointer, strides, self.dtype, first);
                matrices(b, ("l", place, 0), count, transposed)
            }
            FragmentPlace::Registers { .. } | FragmentPlace::Memory { .. } => unreachable!("no matrices"),
        }
    }

    /// The words of a fragment from single elements.
    fn gathered(&self, b: &mut Builder, start: Coord) -> Vec<Val> {
        let per_word = per_word(self.dtype);
        self.offsets
            .chunks(per_word)
            .map(|offsets| {
                let coords: Vec<Coord> = offsets.iter().map(|offset| start.plus(*offset)).collect();
                self.word(b, &coords)
            })
            .collect()
    }

    /// Contiguous elements along K.
    fn word(&self, b: &mut Builder, coords: &[Coord]) -> Val {
        let values: Vec<Val> = match &self.place {
            FragmentPlace::Registers { values, places } => {
                coords.iter().map(|coord| values[places[coord]]).collect()
            }
            FragmentPlace::Memory { pointer, strides, fast } if *fast == self.inner => {
                let place = moved(b, *pointer, strides, self.dtype, coords[0]);
                load(b, place, self.dtype, coords.len())
            }
            FragmentPlace::Memory { pointer, strides, .. } => coords
                .iter()
                .map(|coord| {
                    let place = moved(b, *pointer, strides, self.dtype, *coord);
                    load(b, place, self.dtype, 1)[0]
                })
                .collect(),
            FragmentPlace::Matrices { .. } | FragmentPlace::Copied { .. } => {
                unreachable!("matrices are read whole")
            }
        };
        if self.dtype.bytes() == 8 { values[0] } else { pack(b, &values, self.dtype)[0] }
    }
}

/// The first capability that rounds to TF32 with halves to even.
const ROUNDS_TO_EVEN: u32 = 90;

/// A float rounded to TF32, halves to even, as TMA does it (`TensorMap::tf32`).
fn as_tf32(b: &mut Builder, word: Val) -> Val {
    let text = if b.capability >= ROUNDS_TO_EVEN {
        "cvt.rn.tf32.f32 $0, $1;"
    } else {
        // Halves go away from zero: back from there, where the last digit that stays was even.
        "{\n.reg .b32 rest;\n.reg .pred down;\nand.b32 rest, $1, 0x3fff;\nsetp.eq.b32 down, rest, 0x1000;\n\
         cvt.rna.tf32.f32 $0, $1;\n@down sub.s32 $0, $0, 0x2000;\n}"
    };
    b.asm(text, "=r,r", &[word], &[Ty::I32], Asm::Pure)[0]
}

/// The error of rounding to TF32, in TF32; 0 where the rounded value is not finite.
fn rest(b: &mut Builder, word: Val, rounded: Val) -> Val {
    let [word, rounded] = [word, rounded].map(|bits| b.bitcast(bits, Ty::F32));
    let rest = b.fsub_strict(word, rounded);
    let finite = lanes::is_finite(b, &[rounded], DType::F32);
    let zero = b.zero(Ty::F32);
    let rest = b.select(finite, rest, zero);
    let bits = b.bitcast(rest, Ty::I32);
    as_tf32(b, bits)
}

/// Elements of an operand in a register of the instruction.
fn per_word(dtype: DType) -> usize {
    (4 / dtype.bytes()).max(1) as usize
}

/// Reads matrices, one word of each to a lane: its fragment of rows, or of columns. From an address, by the letter of its
/// register, and bytes behind it.
fn matrices(
    b: &mut Builder,
    (letter, place, beyond): (&str, Val, u32),
    count: usize,
    transposed: bool,
) -> Vec<Val> {
    let names: Vec<String> = (0..count).map(|i| format!("${i}")).collect();
    let kind = if transposed { ".trans" } else { "" };
    let beyond = if beyond == 0 { String::new() } else { format!(" + {beyond}") };
    let text = format!(
        "ldmatrix.sync.aligned.m8n8.x{count}{kind}.shared.b16 {{{}}}, [${count}{beyond}];",
        names.join(", ")
    );
    let constraints = format!("{}{letter},~{{memory}}", "=r,".repeat(count));
    statement(b, &text, &constraints, &[place], &vec![Ty::I32; count])
}

/// How a fragment is read as matrices: the rows that the lanes point at.
struct LdmatrixRows {
    lanes: [Coord; LANE_BITS],
    transposed: bool,
    pair: Option<u32>,
}

impl LdmatrixRows {
    /// `None` where rows of 16 bytes are not what the instruction takes.
    fn new(
        (instruction, side): (&MmaShape, DotOperand),
        ty: &Type,
        fast: usize,
        to: &Layout,
    ) -> Option<LdmatrixRows> {
        let rank = ty.shape.rank();
        let (inner, outer) = (inner_axis(rank, side), outer_axis(rank, side));
        let transposed = fast != inner;
        let along = if transposed { inner } else { outer };
        let bases = instruction.operand(side).bases(&ty.shape);
        let words: Vec<Coord> = bases.into_iter().skip(per_word(ty.dtype).ilog2() as usize).collect();
        // Four matrices are read together: of two fragments, where the thread has the next one too.
        let next = Coord::along(outer, if side == DotOperand::A { instruction.m } else { instruction.n });
        let pair = (words.len() < 2 && to.register_bases().contains(&next)).then_some(next.get(outer));
        let next = Coord::along(outer, pair.unwrap_or(0));
        let mut lanes = (0..3).map(|bit| Coord::along(along, 1 << bit)).chain(words).chain([next]);
        reads_matrices(side, ty, fast).then(|| LdmatrixRows {
            lanes: std::array::from_fn(|_| lanes.next().unwrap_or_default()),
            transposed,
            pair,
        })
    }
}

/// The address of an element, by that of the thread's first.
fn moved(b: &mut Builder, pointer: Val, strides: &[u32], dtype: DType, coord: Coord) -> Val {
    let elements: u32 = strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum();
    b.offset_bytes(pointer, (elements * dtype.bytes()) as i32)
}

fn by_warp(
    dot: &Dot,
    gpu: &mut Gpu,
    b: &mut Builder,
    op: &Op,
    (instruction, operands): (&MmaShape, &OperandTiles),
    mut accs: Vec<Val>,
) -> Vec<Val> {
    let layout = gpu.layout(op.results[0]).clone();
    let rank = layout.shape().rank();
    let [mut left, mut right] =
        DotOperand::ALL.map(|side| fragment_source(dot, gpu, b, (side, instruction), &layout, operands));
    let places = layout.registers_by_coord();
    let offsets = instruction.acc.offsets(layout.shape());
    let tiles = fragments(&layout, &instruction.acc);
    let (mut lefts, mut rights) = (Fragments::new(), Fragments::new());
    let steps = (0..dot.inner(gpu.func)).step_by(instruction.k as usize);
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
        let after =
            all.fold(before, |sum, [a, b_words]| multiply(b, (instruction, left.dtype), [a, b_words, &sum]));
        own.into_iter().zip(after).for_each(|(register, sum)| accs[register] = sum);
        interleaved.issue(b, number + 1, mmas.len());
    }
    accs
}

fn fragment_source(
    dot: &Dot,
    gpu: &mut Gpu,
    b: &mut Builder,
    (side, instruction): (DotOperand, &MmaShape),
    sum: &Layout,
    operands: &OperandTiles,
) -> FragmentSource {
    let value = dot.operand(side);
    let ty = gpu.func.ty(value).clone();
    let to = mma_operand_layout(instruction, side, &ty.shape, sum);
    let fragment = instruction.operand(side);
    let inner = inner_axis(ty.shape.rank(), side);
    let outer = outer_axis(ty.shape.rank(), side);
    let (dtype, input) = (ty.dtype, dot.input);
    let offsets = fragment.offsets(&ty.shape);
    if let Some(fast) = gpu.smem_fast_axis(value) {
        let LdmatrixRows { lanes, transposed, pair } =
            LdmatrixRows::new((instruction, side), &ty, fast, &to).expect("matrices are copied");
        let lanes = Layout::of_bases(&ty.shape, &[], lanes, to.warp_bases()).with_sets(to.sets());
        let places = gpu.smem_fragments(b, value, &lanes);
        return FragmentSource {
            dtype,
            input,
            offsets,
            inner,
            outer,
            place: FragmentPlace::Copied { places, transposed, pair },
        };
    }
    let place = match &operands[side as usize] {
        Some(StagedOperandTile { tile, address }) => {
            let strides = tile.strides.clone();
            let pointed = LdmatrixRows::new((instruction, side), &ty, tile.fast, &to);
            let from = match &pointed {
                Some(pointed) => {
                    Layout::of_bases(&ty.shape, &[], pointed.lanes, to.warp_bases()).with_sets(to.sets())
                }
                None => to,
            };
            let pointer = tile.pointer(b, *address, ty.dtype, |b, axis| gpu.thread_coord(b, &from, axis));
            match pointed {
                Some(LdmatrixRows { transposed, pair, .. }) => {
                    FragmentPlace::Matrices { pointer, strides, transposed, pair }
                }
                None => FragmentPlace::Memory { pointer, strides, fast: tile.fast },
            }
        }
        // The thread has what it needs, in other registers perhaps.
        None => FragmentPlace::Registers {
            values: gpu.registers(value).to_vec(),
            places: gpu.layout(value).registers_by_coord(),
        },
    };
    FragmentSource { dtype, input, offsets, inner, outer, place }
}

/// The first element of each fragment of a thread.
fn fragments(layout: &Layout, fragment: &Fragment) -> Vec<Coord> {
    let bits = fragment.bases(layout.shape()).iter().filter(|basis| **basis != Coord::ZERO).count();
    (0..layout.register_count()).step_by(1 << bits).map(|register| layout.register(register)).collect()
}

/// The accumulators of fragments, `[a, b, acc]`.
fn multiply(
    b: &mut Builder,
    (instruction, dtype): (&MmaShape, DType),
    [left, right, accs]: [&Vec<Val>; 3],
) -> Vec<Val> {
    if !dtype.is_f8() {
        return once(b, (instruction, dtype), [left, right, accs]);
    }
    let halves = left.chunks(left.len() / HALVES).zip(right.chunks(right.len() / HALVES));
    halves.fold(accs.clone(), |accs, (left, right)| once(b, (&M16N8K16, DType::F16), [left, right, &accs]))
}

/// One instruction.
fn once(b: &mut Builder, (instruction, dtype): (&MmaShape, DType), operands: [&[Val]; 3]) -> Vec<Val> {
    let MmaShape { m: rows, n: columns, k: inner, .. } = instruction;
    let (factor, sum, letters) = match dtype {
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
    let text =
        format!("mma.sync.aligned.m{rows}n{columns}k{inner}.row.col.{sum}.{factor}.{factor}.{sum} {lists};");
    let mut constraints = vec![format!("={}", letters[1]); results];
    constraints.extend(vec![letters[0].to_string(); operands[0].len() + operands[1].len()]);
    constraints.extend(vec![letters[1].to_string(); results]);
    let types: Vec<Ty> = operands[2].iter().map(|sum| sum.ty).collect();
    let all: Vec<Val> = operands.into_iter().flatten().copied().collect();
    // All lanes take part, so it stays where it stands.
    b.asm(&text, &constraints.join(","), &all, &types, Asm::Effects)
}
