//! Dots: the operands are packed and converted to the accumulator's type, and blocks of rows and of one vector of columns
//! are then accumulated in registers, step after step along K: one order of additions on every CPU.

use std::collections::HashMap;

use tile_ir::ir::{Func, Op, Shape, Value};
use tile_ir::ops::{Dot, DotOperand, InputPrecision, Kind};
use tile_ir::support::dtype::DType;

use crate::cpu::emit::nest::{LANES, Point};
use crate::cpu::emit::prefetch::Prefetch;
use crate::cpu::emit::{AccessFlags, Builder, CpuEmit, Host, Ty, Val};
use crate::mlir::{Machine, Vectors, cast, machine, rounding};

/// The most accumulator vectors of a block, of four-byte elements, which leave registers for the operands: among sixteen
/// registers of half a vector, and among 32 of a whole one.
const ACCUMULATORS: u32 = 6;
const WIDE_ACCUMULATORS: u32 = 24;
/// Vectors of columns of a block where there are that many registers: each element of operand A is loaded once for all.
const COLUMN_VECTORS: u32 = 2;
/// Steps along K of an iteration of the innermost loop.
const K_STEPS: u32 = 4;

/// The extents of a dot.
struct DotExtents {
    /// Leading axes, and the matrix's.
    batch: Shape,
    rows: u32,
    inner: u32,
    columns: u32,
    /// Columns of one accumulator vector.
    lanes: u32,
    dtype: DType,
    input: InputPrecision,
}

impl DotExtents {
    fn new(func: &Func, dot: &Dot, result: Value) -> DotExtents {
        let ty = func.ty(result);
        let rank = ty.shape.rank();
        let columns = ty.shape[rank - 1];
        DotExtents {
            batch: Shape::new(&ty.shape[..rank - 2]),
            rows: ty.shape[rank - 2],
            inner: dot.inner(func),
            columns,
            lanes: (1u32 << columns.trailing_zeros()).min(LANES),
            dtype: ty.dtype,
            input: dot.input,
        }
    }

    /// Bytes of the packed operands of one matrix dot.
    fn bytes(&self) -> [u64; 2] {
        [self.rows, self.columns]
            .map(|extent| u64::from(extent) * u64::from(self.inner) * u64::from(self.dtype.bytes()))
    }

    /// Offsets in the workspace: of a square that is transposed, of operand A and of operand B.
    fn offsets(&self) -> [u64; 3] {
        let a = u64::from(LANES * LANES * self.dtype.bytes());
        [0, a, a + self.bytes()[0].next_multiple_of(64)]
    }

    /// The index of an element in a packed operand: operand A is row-major; operand B is panels of `lanes` columns, each of
    /// them row-major.
    fn index(&self, b: &mut Builder, operand: DotOperand, [row, column]: [Val; 2]) -> Val {
        let [lanes, inner] = [self.lanes, self.inner].map(|extent| b.int(Ty::I64, i64::from(extent)));
        if operand == DotOperand::A {
            let first = b.mul(row, inner);
            return b.add(first, column);
        }
        let (panel, within) = (b.udiv(column, lanes), b.urem(column, lanes));
        let first = b.mul(panel, inner);
        let line = b.add(first, row);
        let first = b.mul(line, lanes);
        b.add(first, within)
    }
}

impl CpuEmit for Dot {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let extents = DotExtents::new(host.func, self, op.results[0]);
        let workspace = host.workspace(b);
        let [square, a, b_panels] = extents.offsets().map(|bytes| b.offset_bytes(workspace, bytes as i32));
        host.each_element(b, &extents.batch, &mut |host, b, matrix| {
            let batch = &matrix.coords;
            let packed =
                |operand, value, start| PackedOperand { extents: &extents, operand, value, start, square };
            packed(DotOperand::A, self.a, a).pack(host, b, batch);
            packed(DotOperand::B, self.b, b_panels).pack(host, b, batch);
            let prefetches = if is_baseline(b) { vec![] } else { prefetches(host, b, self) };
            let operands = [a, b_panels];
            let dot = MatrixDot { dot: self, op, extents: &extents, operands, prefetches, batch };
            dot.run(host, b);
        });
    }

    fn is_statement(&self) -> bool {
        true
    }

    fn differs_by_registers(&self) -> bool {
        true
    }

    fn workspace(&self, func: &Func, op: &Op) -> u64 {
        let extents = DotExtents::new(func, self, op.results[0]);
        let [_, _, b_panels] = extents.offsets();
        b_panels + extents.bytes()[1]
    }
}

/// An operand of a dot that is packed: stored in the order and type that the inner loop loads.
struct PackedOperand<'d> {
    extents: &'d DotExtents,
    operand: DotOperand,
    value: Value,
    /// Where the elements of one matrix are packed.
    start: Val,
    /// Where a square of them is transposed.
    square: Val,
}

impl PackedOperand<'_> {
    /// Packs one matrix.
    fn pack(&self, host: &mut Host, b: &mut Builder, batch: &[Val]) {
        let shape = &host.func.ty(self.value).shape;
        let rank = shape.rank();
        let matrix = Shape::new(&shape[rank - 2..]);
        let axis = host.contiguous_axis(self.value).and_then(|axis| axis.checked_sub(rank - 2)).unwrap_or(1);
        let in_squares = matrix.iter().all(|extent| extent.is_multiple_of(LANES));
        if axis == 0 && in_squares && !is_baseline(b) {
            let squares = Shape::new([matrix[0] / LANES, matrix[1] / LANES]);
            host.each_element(b, &squares, &mut |host, b, point| {
                let lanes = b.int(Ty::I64, i64::from(LANES));
                let first = [point.coords[0], point.coords[1]].map(|coord| b.mul(coord, lanes));
                self.pack_square(host, b, batch, first);
            });
            return;
        }
        host.each_along(b, &matrix, axis, &mut |host, b, point| {
            let elements = self.elements(host, b, batch, point);
            self.store(b, elements, point);
        });
    }

    /// The same of a square whose columns are vectors: it is transposed in the workspace.
    fn pack_square(&self, host: &mut Host, b: &mut Builder, batch: &[Val], [row, column]: [Val; 2]) {
        let dtype = self.extents.dtype;
        let bytes = dtype.bytes();
        let pitch = b.int(Ty::I64, i64::from(LANES));
        let bounds = [0, LANES, 1].map(|bound| b.int(Ty::I64, i64::from(bound)));
        b.for_range(bounds, &[], |b, i, _| {
            host.scope(|host| {
                let coords = vec![row, b.add(column, i)];
                let point = Point { coords, axis: 0, lanes: LANES as u16 };
                let elements = self.elements(host, b, batch, &point);
                let index = b.mul(i, pitch);
                let pointer = b.offset(self.square, index, bytes);
                b.store(elements, pointer, AccessFlags::aligned(bytes));
            });
            vec![]
        });
        let vector = Ty { lanes: LANES as u16, ..Ty::scalar(machine::elem(dtype, b.machine)) };
        let columns: Vec<Val> = (0..LANES)
            .map(|i| {
                let pointer = b.offset_bytes(self.square, (i * LANES * bytes) as i32);
                b.load(pointer, vector, AccessFlags::aligned(bytes))
            })
            .collect();
        for (i, elements) in transposed(b, columns).into_iter().enumerate() {
            let distance = b.int(Ty::I64, i as i64);
            let point = Point { coords: vec![b.add(row, distance), column], axis: 1, lanes: LANES as u16 };
            self.store(b, elements, &point);
        }
    }

    /// Elements of one matrix, converted to the accumulator's type.
    fn elements(&self, host: &mut Host, b: &mut Builder, batch: &[Val], point: &Point) -> Val {
        let coords: Vec<Val> = batch.iter().chain(&point.coords).copied().collect();
        let own = Point { coords, axis: point.axis + batch.len(), lanes: point.lanes };
        let elements = host.at(b, self.value, &own);
        let elements = cast::cast(b, elements, host.dtype(self.value), self.extents.dtype);
        match self.extents.input {
            InputPrecision::Ieee | InputPrecision::Tf32x3 => elements,
            InputPrecision::Tf32 => rounding::tf32(b, elements),
        }
    }

    /// Stores the elements at a point to their packed position.
    fn store(&self, b: &mut Builder, elements: Val, point: &Point) {
        let DotExtents { inner, lanes, dtype, .. } = *self.extents;
        let bytes = dtype.bytes();
        let first = self.extents.index(b, self.operand, [point.coords[0], point.coords[1]]);
        let first = b.offset(self.start, first, bytes);
        if point.lanes == 1 || point.axis == 1 {
            return b.store(elements, first, AccessFlags::aligned(bytes));
        }
        let pitch = if self.operand == DotOperand::A { inner } else { lanes };
        for lane in 0..point.lanes {
            let element = b.extract(elements, lane);
            let pointer = b.offset_bytes(first, (u32::from(lane) * pitch * bytes) as i32);
            b.store(element, pointer, AccessFlags::aligned(bytes));
        }
    }
}

impl Host<'_> {
    /// The axis along which a tile is contiguous in the memory that it is loaded from, if that is known.
    fn contiguous_axis(&self, value: Value) -> Option<usize> {
        self.memoized_axis(value, &mut HashMap::new())
    }

    /// The same, memoized.
    fn memoized_axis(&self, value: Value, known: &mut HashMap<Value, Option<usize>>) -> Option<usize> {
        if let Some(&axis) = known.get(&value) {
            return axis;
        }
        let axis = self.axis_of_definition(value, known);
        known.insert(value, axis);
        axis
    }

    fn axis_of_definition(&self, value: Value, known: &mut HashMap<Value, Option<usize>>) -> Option<usize> {
        let shape = &self.func.ty(value).shape;
        if self.plan.scratch.buffer(value).is_some() {
            return shape.rank().checked_sub(1);
        }
        let op = self.definitions.get(&value)?;
        let operation = op.kind.operation();
        if let Some(access) = operation.access() {
            let info = self.plan.axes.get(self.func, access.offset);
            return (0..shape.rank()).max_by_key(|&axis| info.axes[axis].contiguity);
        }
        let mut tiles =
            operation.operands().into_iter().filter(|&operand| !self.func.ty(operand).is_scalar());
        if let Kind::Reshape(reshape) = &op.kind {
            let kept = reshape.kept_axes(self.func, value)?;
            return kept[self.memoized_axis(reshape.value, known)?];
        }
        if let Some(axis_map) = operation.axis_map(self.func) {
            return axis_map[self.memoized_axis(tiles.next()?, known)?];
        }
        if !operation.is_pointwise() {
            return None;
        }
        tiles.find_map(|operand| self.memoized_axis(operand, known))
    }
}

/// The transpose of as many vectors as they have lanes: bit by bit of their indices.
fn transposed(b: &mut Builder, mut vectors: Vec<Val>) -> Vec<Val> {
    let count = vectors.len();
    let mut bit = 1;
    while bit < count {
        for low in (0..count).filter(|index| index & bit == 0) {
            let (first, second) = (vectors[low], vectors[low | bit]);
            let of = |stays: usize| -> Vec<i32> {
                let lane = |lane: usize| if lane & bit == stays { lane } else { lane ^ bit };
                let lanes = (0..count).map(|i| lane(i) + if i & bit == 0 { 0 } else { count });
                lanes.map(|lane| lane as i32).collect()
            };
            // Lanes without the bit come from the first vector, those with it from the second one.
            vectors[low] = b.shuffle(first, second, &of(0));
            vectors[low | bit] = b.shuffle(first, second, &of(bit));
        }
        bit *= 2;
    }
    vectors
}

/// One dot of matrices.
struct MatrixDot<'a> {
    dot: &'a Dot,
    op: &'a Op,
    extents: &'a DotExtents,
    operands: [Val; 2],
    /// What the next iteration loads.
    prefetches: Vec<Prefetch>,
    batch: &'a [Val],
}

/// What the next iteration of the enclosing loop loads of the operands of a dot.
fn prefetches(host: &mut Host, b: &mut Builder, dot: &Dot) -> Vec<Prefetch> {
    [dot.a, dot.b].into_iter().filter_map(|operand| host.plan_prefetch(b, operand)).collect()
}

/// The sizes of the blocks that rows are split into, none of them more than `most`, and the count of each.
fn split_rows(rows: u32, most: u32) -> [(u32, u32); 2] {
    let blocks = rows.div_ceil(most);
    let longer = rows % blocks;
    [(rows / blocks + 1, longer), (rows / blocks, blocks - longer)]
}

impl MatrixDot<'_> {
    fn run(&self, host: &mut Host, b: &mut Builder) {
        let DotExtents { rows, columns, lanes, dtype, .. } = *self.extents;
        let (accumulators, column_vectors) = match b.machine {
            Machine::Host(Vectors::Wide) => (WIDE_ACCUMULATORS * 4 / dtype.bytes(), COLUMN_VECTORS),
            Machine::Host(Vectors::Fused) | Machine::Nvptx => (ACCUMULATORS * 4 / dtype.bytes(), 1),
            Machine::Host(Vectors::Baseline) => (1, 1),
        };
        let column_vectors = if columns.is_multiple_of(column_vectors * lanes) { column_vectors } else { 1 };
        let panels = columns / (column_vectors * lanes);
        let sizes = split_rows(rows, accumulators / column_vectors);
        let row_blocks = sizes.iter().map(|(_, count)| count).sum::<u32>();
        let constant = |b: &mut Builder, value: u32| b.int(Ty::I64, i64::from(value));
        let bounds = [0, panels, 1].map(|bound| constant(b, bound));
        b.for_range(bounds, &[], |b, panel, _| {
            let (width, row_blocks_val) = (constant(b, column_vectors * lanes), constant(b, row_blocks));
            let (column, before) = (b.mul(panel, width), b.mul(panel, row_blocks_val));
            let (mut first, mut blocks) = (0, 0);
            for (size, count) in sizes.into_iter().filter(|(_, count)| *count > 0) {
                let bounds = [0, count, 1].map(|bound| constant(b, bound));
                b.for_range(bounds, &[], |b, block, _| {
                    let (size_val, first, blocks) =
                        (constant(b, size), constant(b, first), constant(b, blocks));
                    let row = b.mul(block, size_val);
                    let row = b.add(row, first);
                    let block = b.add(block, blocks);
                    let block = b.add(block, before);
                    host.scope(|host| {
                        self.prefetches
                            .iter()
                            .for_each(|prefetch| host.prefetch(b, prefetch, block, panels * row_blocks));
                        self.block(host, b, [row, column], [size, column_vectors]);
                    });
                    vec![]
                });
                (first, blocks) = (first + size * count, blocks + count);
            }
            vec![]
        });
    }

    /// The accumulators of `count` rows and so many vectors of columns.
    fn block(
        &self,
        host: &mut Host,
        b: &mut Builder,
        [row, column]: [Val; 2],
        [count, column_vectors]: [u32; 2],
    ) {
        let lanes = self.extents.lanes;
        let origins = (0..count).flat_map(|i| (0..column_vectors).map(move |vector| [i, vector * lanes]));
        let points: Vec<Point> = origins
            .map(|[down, right]| {
                let [down, right] = [down, right].map(|distance| b.int(Ty::I64, i64::from(distance)));
                let origin = [b.add(row, down), b.add(column, right)];
                let coords: Vec<Val> = self.batch.iter().copied().chain(origin).collect();
                Point { axis: coords.len() - 1, coords, lanes: lanes as u16 }
            })
            .collect();
        let accs: Vec<Val> = points.iter().map(|point| self.acc(host, b, point)).collect();
        let accs = self.accumulate(b, [row, column], accs, column_vectors);
        for (point, acc) in points.iter().zip(accs) {
            host.write_buffer(b, self.op.results[0], point, acc);
        }
    }

    /// The initial accumulator.
    fn acc(&self, host: &mut Host, b: &mut Builder, point: &Point) -> Val {
        match self.dot.acc {
            Some(acc) => host.at(b, acc, point),
            None => {
                let ty = Ty { lanes: point.width(), ..host.elem_type(b, self.op.results[0]) };
                b.zero(ty)
            }
        }
    }

    /// Accumulates along K into accumulators of rows from `row` on, each of so many vectors.
    fn accumulate(
        &self,
        b: &mut Builder,
        [row, column]: [Val; 2],
        accs: Vec<Val>,
        column_vectors: u32,
    ) -> Vec<Val> {
        let DotExtents { inner, lanes, dtype, .. } = *self.extents;
        let zero = b.int(Ty::I64, 0);
        let bytes = dtype.bytes();
        let first = self.extents.index(b, DotOperand::A, [row, zero]);
        let a = b.offset(self.operands[0], first, bytes);
        let first = self.extents.index(b, DotOperand::B, [zero, column]);
        let b_panel = b.offset(self.operands[1], first, bytes);
        let steps = if is_baseline(b) { 1 } else { (1u32 << inner.trailing_zeros()).min(K_STEPS) };
        let elem = Ty::scalar(machine::elem(dtype, b.machine));
        let vector = Ty { lanes: if lanes == 1 { 0 } else { lanes as u16 }, ..elem };
        let bounds = [0, inner, steps].map(|bound| b.int(Ty::I64, i64::from(bound)));
        b.for_range(bounds, &accs, |b, index, accs| {
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

/// Whether a fused multiply-add takes many instructions.
fn is_baseline(b: &Builder) -> bool {
    b.machine == rounding::BASELINE
}
