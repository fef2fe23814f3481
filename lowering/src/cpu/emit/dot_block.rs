//! Blocks of a dot: rows and vectors of columns that are accumulated in registers, step after step along K: one order of additions on every
//! CPU. A block is a function that all versions of a kernel call, with packed operands: it is compiled once.

use tile_ir::support::dtype::DType;

use crate::cpu::emit::nest::{load_elements, store_elements};
use crate::cpu::emit::{AccessFlags, Builder, Elem, SharedFunction, Ty, Val};
use crate::mlir::session::{Argument, ArgumentKind};
use crate::mlir::types::Space;
use crate::mlir::{Machine, Vectors, machine, rounding};

/// The most accumulator vectors of a block, of four-byte elements, which leave registers for the operands: among sixteen
/// registers of half a vector, and among 32 of a whole one.
const ACCUMULATORS: u32 = 6;
const WIDE_ACCUMULATORS: u32 = 24;
/// Vectors of columns of a block where there are that many registers: each element of operand A is loaded once for all.
const COLUMN_VECTORS: u32 = 2;
/// Steps along K of an iteration of the innermost loop.
const K_STEPS: u32 = 4;

/// The blocks that a matrix is split into.
#[derive(Clone, Copy, Debug)]
pub(super) struct DotBlocks {
    /// Vectors of columns of each.
    pub column_vectors: u32,
    /// Rows of a block, and how many blocks have as many: longer ones, then those of one row less.
    pub sizes: [(u32, u32); 2],
}

impl DotBlocks {
    /// Blocks of a result of so many rows and columns, in vectors of so many lanes.
    pub fn new([rows, columns]: [u32; 2], lanes: u32, dtype: DType, machine: Machine) -> DotBlocks {
        let (accumulators, column_vectors) = match machine {
            Machine::Host(Vectors::Wide) => (WIDE_ACCUMULATORS * 4 / dtype.bytes(), COLUMN_VECTORS),
            Machine::Host(Vectors::Fused) | Machine::Nvptx => (ACCUMULATORS * 4 / dtype.bytes(), 1),
            Machine::Host(Vectors::Baseline) => (1, 1),
        };
        let column_vectors = if columns.is_multiple_of(column_vectors * lanes) { column_vectors } else { 1 };
        DotBlocks { column_vectors, sizes: split_rows(rows, accumulators / column_vectors) }
    }

    /// How many follow one another along the rows.
    pub fn count_along_rows(&self) -> u32 {
        self.sizes.iter().map(|(_, count)| count).sum()
    }
}

/// The sizes of the blocks that rows are split into, none of them more than `most`, and the count of each.
fn split_rows(rows: u32, most: u32) -> [(u32, u32); 2] {
    let blocks = rows.div_ceil(most);
    let longer = rows % blocks;
    [(rows / blocks + 1, longer), (rows / blocks, blocks - longer)]
}

/// One block.
#[derive(Clone, Copy, Debug)]
pub(super) struct DotBlock {
    pub rows: u32,
    pub column_vectors: u32,
    pub lanes: u32,
    /// Steps along K, which are all that a packed operand has.
    pub inner: u32,
    /// Columns of the whole result, in elements of this type.
    pub columns: u32,
    pub dtype: DType,
    /// Whether the buffer of the result holds what is added to; otherwise that is zero.
    pub accumulates: bool,
}

impl DotBlock {
    /// What tells it from other blocks.
    pub fn name(&self) -> String {
        let DotBlock { rows, column_vectors, lanes, inner, columns, dtype, accumulates } = self;
        let what = if *accumulates { "added" } else { "stored" };
        format!("dot_block_{rows}x{column_vectors}x{lanes}_of_{columns}_by_{inner}_{dtype}_{what}")
    }

    /// The function of rows of the packed operand A, a panel of operand B and the first element of the result.
    pub fn function(self) -> SharedFunction {
        let pointer = Ty::scalar(Elem::Ptr(Space::Generic));
        let kinds = [ArgumentKind::ReadOnly, ArgumentKind::ReadOnly, ArgumentKind::Exclusive];
        let arguments = kinds.map(|kind| Argument { ty: pointer, kind }).to_vec();
        let name = self.name();
        SharedFunction {
            name,
            arguments,
            body: Box::new(move |b, args| self.emit(b, [args[0], args[1], args[2]])),
        }
    }

    /// Its accumulators: the row and the vector of columns of each.
    fn vectors(&self) -> impl Iterator<Item = [u32; 2]> + use<> {
        let DotBlock { rows, column_vectors, .. } = *self;
        (0..rows).flat_map(move |row| (0..column_vectors).map(move |vector| [row, vector]))
    }

    fn emit(&self, b: &mut Builder, [a, b_panel, result]: [Val; 3]) {
        let DotBlock { lanes, columns, dtype, .. } = *self;
        let elem = Ty::scalar(machine::elem(dtype, b.machine));
        let width = if lanes == 1 { 0 } else { lanes as u16 };
        let pointers: Vec<Val> = self
            .vectors()
            .map(|[row, vector]| {
                b.offset_bytes(result, ((row * columns + vector * lanes) * dtype.bytes()) as i32)
            })
            .collect();
        let accs: Vec<Val> = pointers
            .iter()
            .map(|&pointer| {
                if self.accumulates {
                    load_elements(b, pointer, dtype, width)
                } else {
                    b.zero(Ty { lanes: width, ..elem })
                }
            })
            .collect();
        let accs = self.accumulate(b, [a, b_panel], &accs);
        for (pointer, acc) in pointers.into_iter().zip(accs) {
            store_elements(b, acc, pointer, dtype);
        }
    }

    /// Accumulates along K.
    fn accumulate(&self, b: &mut Builder, [a, b_panel]: [Val; 2], accs: &[Val]) -> Vec<Val> {
        let DotBlock { column_vectors, lanes, inner, dtype, .. } = *self;
        let bytes = dtype.bytes();
        let steps =
            if b.machine == rounding::BASELINE { 1 } else { (1u32 << inner.trailing_zeros()).min(K_STEPS) };
        let elem = Ty::scalar(machine::elem(dtype, b.machine));
        let vector = Ty { lanes: if lanes == 1 { 0 } else { lanes as u16 }, ..elem };
        let bounds = [0, inner, steps].map(|bound| b.int(Ty::I64, i64::from(bound)));
        b.for_range(bounds, accs, |b, index, accs| {
            let mut accs = accs.to_vec();
            let a = b.offset(a, index, bytes);
            let pitch = b.int(Ty::I64, i64::from(lanes));
            let distance = b.mul(index, pitch);
            let b_panel = b.offset(b_panel, distance, bytes);
            for step in 0..steps {
                let columns: Vec<Val> = (0..column_vectors)
                    .map(|panel| {
                        let pointer =
                            b.offset_bytes(b_panel, ((panel * inner + step) * lanes * bytes) as i32);
                        b.load(pointer, vector, AccessFlags::aligned(bytes))
                    })
                    .collect();
                for (i, accs) in accs.chunks_mut(column_vectors as usize).enumerate() {
                    let pointer = b.offset_bytes(a, ((i as u32 * inner + step) * bytes) as i32);
                    let element = b.load(pointer, elem, AccessFlags::aligned(bytes));
                    let element = if lanes == 1 { element } else { b.splat(element, lanes as u16) };
                    for (acc, &columns) in accs.iter_mut().zip(&columns) {
                        *acc = rounding::multiply_add(b, [element, columns, *acc], dtype);
                    }
                }
            }
            accs
        })
    }
}
