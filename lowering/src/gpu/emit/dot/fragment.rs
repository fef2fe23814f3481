//! Fragments of operands: what each lane gives to an mma instruction, and where a warp reads it from.

use std::collections::HashMap;

use tile_ir::ir::{Func, Type, Value};
use tile_ir::ops::{Dot, DotOperand, InputPrecision};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::memory::pack;
use crate::gpu::emit::offset_address::OffsetAddress;
use crate::gpu::emit::reduce::load;
use crate::gpu::emit::schedule::TileAddresses;
use crate::gpu::emit::smem_tile::SmemTileAddress;
use crate::gpu::emit::{Asm, Builder, Gpu, statement};
use crate::gpu::layout::dot::{MmaShape, inner_axis, mma_operand_layout, outer_axis, reads_matrices};
use crate::gpu::layout::linear::LANE_BITS;
use crate::gpu::layout::{Coord, Layout};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};
use crate::mlir::{f8, lanes};

/// An operand where a warp reads its fragments from.
pub(super) struct FragmentSource {
    pub dtype: DType,
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
pub(super) const HALVES: usize = 2;

/// Fragments that were read, by where they start.
pub(super) type Fragments = HashMap<Coord, SplitFragment>;

/// A fragment as its instruction takes it.
#[derive(Clone)]
pub(super) struct SplitFragment {
    pub words: Vec<Val>,
    /// The rounding error of the words, where that is multiplied too.
    pub rest: Option<Vec<Val>>,
}

impl FragmentSource {
    pub fn is_copied(&self) -> bool {
        matches!(self.place, FragmentPlace::Copied { .. })
    }

    /// The words of the fragment whose first element is at `start`.
    pub fn words(&mut self, b: &mut Builder, start: Coord, known: &mut Fragments) -> SplitFragment {
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
        let matrices = Ldmatrix { count: self.offsets.len() / per_word, transposed };
        // The one of a pair that comes first.
        let apart = pair.unwrap_or(0);
        let first = start.set(self.outer, start.get(self.outer) & !apart);
        if apart == 0 {
            return self.matrices(b, first, matrices);
        }
        let both = Ldmatrix { count: 2 * matrices.count, ..matrices };
        let mut words = self.matrices(b, first, both);
        let others = words.split_off(matrices.count);
        let (own, beside) = if first == start { (words, others) } else { (others, words) };
        let beside_at = start.set(self.outer, start.get(self.outer) ^ apart);
        let beside = self.digits(b, beside);
        known.insert(beside_at, beside);
        own
    }

    /// Matrices from the row on that the lanes point at for the element at `first`.
    fn matrices(&mut self, b: &mut Builder, first: Coord, matrices: Ldmatrix) -> Vec<Val> {
        let from = match &mut self.place {
            FragmentPlace::Copied { places, .. } => places.at(b, first),
            FragmentPlace::Matrices { pointer, strides, .. } => {
                OffsetAddress { base: moved(b, *pointer, strides, self.dtype, first), bytes: 0 }
            }
            FragmentPlace::Registers { .. } | FragmentPlace::Memory { .. } => unreachable!("no matrices"),
        };
        matrices.read(b, from)
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
pub(super) fn per_word(dtype: DType) -> usize {
    (4 / dtype.bytes()).max(1) as usize
}

/// The instruction that reads matrices of eight rows of 16 bytes.
#[derive(Clone, Copy)]
struct Ldmatrix {
    count: usize,
    /// Whether a lane gets a part of columns, not of rows.
    transposed: bool,
}

impl Ldmatrix {
    /// One word of each matrix to a lane, from the row on that this lane points at.
    fn read(self, b: &mut Builder, from: OffsetAddress) -> Vec<Val> {
        let Ldmatrix { count, transposed } = self;
        let OffsetAddress { base, bytes } = from;
        let names: Vec<String> = (0..count).map(|i| format!("${i}")).collect();
        let kind = if transposed { ".trans" } else { "" };
        let beyond = if bytes == 0 { String::new() } else { format!(" + {bytes}") };
        let text = format!(
            "ldmatrix.sync.aligned.m8n8.x{count}{kind}.shared.b16 {{{}}}, [${count}{beyond}];",
            names.join(", ")
        );
        let letter = if base.ty.elem == Elem::I32 { "r" } else { "l" };
        let constraints = format!("{}{letter},~{{memory}}", "=r,".repeat(count));
        statement(b, &text, &constraints, &[base], &vec![Ty::I32; count])
    }
}

/// An operand of a dot by mma.
pub(super) struct MmaOperand {
    value: Value,
    ty: Type,
    side: DotOperand,
    instruction: &'static MmaShape,
    input: InputPrecision,
}

impl MmaOperand {
    pub fn new(func: &Func, dot: &Dot, side: DotOperand, instruction: &'static MmaShape) -> MmaOperand {
        let value = dot.operand(side);
        MmaOperand { value, ty: func.ty(value).clone(), side, instruction, input: dot.input }
    }

    /// The K axis.
    fn inner(&self) -> usize {
        inner_axis(self.ty.shape.rank(), self.side)
    }

    /// The axis that the operand shares with the result.
    fn outer(&self) -> usize {
        outer_axis(self.ty.shape.rank(), self.side)
    }

    /// Where a warp reads the fragments for a result of layout `sum`. The operand may have been written to shared memory.
    pub fn source(
        self,
        gpu: &mut Gpu,
        b: &mut Builder,
        sum: &Layout,
        written: Option<&SmemTileAddress>,
    ) -> FragmentSource {
        let MmaOperand { value, ref ty, side, instruction, input } = self;
        let to = mma_operand_layout(instruction, side, &ty.shape, sum);
        let place = match (gpu.smem_fast_axis(value), written) {
            (Some(fast), _) => {
                let rows = LdmatrixRows::new(&self, fast, &to).expect("matrices are copied");
                let LdmatrixRows { transposed, pair, .. } = rows;
                let places = gpu.smem_fragments(b, value, &rows.layout(&to));
                FragmentPlace::Copied { places, transposed, pair }
            }
            (None, Some(written)) => {
                let (strides, fast) = (written.tile.strides.clone(), written.tile.fast);
                let rows = LdmatrixRows::new(&self, fast, &to);
                let from = rows.as_ref().map_or_else(|| to.clone(), |rows| rows.layout(&to));
                let pointer = written.pointer(b, |b, axis| gpu.thread_coord(b, &from, axis));
                match rows {
                    Some(LdmatrixRows { transposed, pair, .. }) => {
                        FragmentPlace::Matrices { pointer, strides, transposed, pair }
                    }
                    None => FragmentPlace::Memory { pointer, strides, fast },
                }
            }
            // The thread has what it needs, in other registers perhaps.
            (None, None) => FragmentPlace::Registers {
                values: gpu.registers(value).to_vec(),
                places: gpu.layout(value).registers_by_coord(),
            },
        };
        let offsets = instruction.operand(side).offsets(&ty.shape);
        FragmentSource { dtype: ty.dtype, input, offsets, inner: self.inner(), outer: self.outer(), place }
    }
}

/// How a fragment is read as matrices: the rows that the lanes point at.
struct LdmatrixRows {
    lanes: [Coord; LANE_BITS],
    transposed: bool,
    pair: Option<u32>,
}

impl LdmatrixRows {
    /// `None` where rows of 16 bytes along `fast` are not what the instruction takes.
    fn new(operand: &MmaOperand, fast: usize, to: &Layout) -> Option<LdmatrixRows> {
        let MmaOperand { ty, side, instruction, .. } = operand;
        let (inner, outer) = (operand.inner(), operand.outer());
        let transposed = fast != inner;
        let along = if transposed { inner } else { outer };
        let bases = instruction.operand(*side).bases(&ty.shape);
        let words: Vec<Coord> = bases.into_iter().skip(per_word(ty.dtype).ilog2() as usize).collect();
        // Four matrices are read together: of two fragments, where the thread has the next one too.
        let next = Coord::along(outer, if *side == DotOperand::A { instruction.m } else { instruction.n });
        let pair = (words.len() < 2 && to.register_bases().contains(&next)).then_some(next.get(outer));
        let next = Coord::along(outer, pair.unwrap_or(0));
        let mut lanes = (0..3).map(|bit| Coord::along(along, 1 << bit)).chain(words).chain([next]);
        reads_matrices(*side, ty, fast).then(|| LdmatrixRows {
            lanes: std::array::from_fn(|_| lanes.next().unwrap_or_default()),
            transposed,
            pair,
        })
    }

    /// The layout of the rows, for fragments of layout `to`.
    fn layout(&self, to: &Layout) -> Layout {
        Layout::of_bases(to.shape(), &[], self.lanes, to.warp_bases()).with_sets(to.sets())
    }
}

/// The address of an element, by that of the thread's first.
pub(super) fn moved(b: &mut Builder, pointer: Val, strides: &[u32], dtype: DType, coord: Coord) -> Val {
    let elements: u32 = strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum();
    b.offset_bytes(pointer, (elements * dtype.bytes()) as i32)
}
