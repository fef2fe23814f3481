//! Dots: the operands are packed and converted to the accumulator's type, and [blocks](super::dot_block) of rows and of vectors of
//! columns are then accumulated one after the other.

use std::collections::HashMap;

use tile_ir::ir::{Func, Op, Shape, Value};
use tile_ir::ops::{Dot, DotOperand, InputPrecision, Kind};
use tile_ir::support::dtype::DType;

use crate::cpu::emit::dot_block::{DotBlock, DotBlocks};
use crate::cpu::emit::nest::{LANES, Point};
use crate::cpu::emit::prefetch::Prefetch;
use crate::cpu::emit::transpose_square;
use crate::cpu::emit::{AccessFlags, Builder, CpuEmit, Elem, Host, SharedFunction, Ty, Val};
use crate::mlir::builder::BranchArm;
use crate::mlir::{IntPredicate, Machine, cast, rounding};

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

    /// The blocks of one matrix dot.
    fn blocks(&self, machine: Machine) -> DotBlocks {
        DotBlocks::new([self.rows, self.columns], self.lanes, self.dtype, machine)
    }

    /// One of them, of so many rows.
    fn block(&self, dot: &Dot, blocks: DotBlocks, rows: u32) -> DotBlock {
        let &DotExtents { inner, columns, lanes, dtype, .. } = self;
        let column_vectors = blocks.column_vectors;
        DotBlock { rows, column_vectors, lanes, inner, columns, dtype, accumulates: dot.acc.is_some() }
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
            let prefetches = if is_baseline(b.machine) { vec![] } else { prefetches(host, b, self) };
            let (operands, blocks) = ([a, b_panels], extents.blocks(b.machine));
            let dot = MatrixDot { dot: self, op, extents: &extents, blocks, operands, prefetches, batch };
            dot.run(host, b);
        });
    }

    fn is_statement(&self) -> bool {
        true
    }

    fn differs_by_registers(&self) -> bool {
        true
    }

    fn shared_functions(&self, func: &Func, op: &Op, machine: Machine) -> Vec<SharedFunction> {
        let extents = DotExtents::new(func, self, op.results[0]);
        let blocks = extents.blocks(machine);
        let sizes = blocks.sizes.into_iter().filter(|(_, count)| *count > 0);
        let blocks = sizes.map(|(rows, _)| extents.block(self, blocks, rows).function());
        let in_squares = |&value: &Value| packs_squares(&matrix_shape(func, value), machine);
        let transpose = [self.a, self.b].iter().any(in_squares);
        blocks.chain(transpose.then(|| transpose_square::function(extents.dtype))).collect()
    }

    fn workspace(&self, func: &Func, op: &Op) -> u64 {
        let extents = DotExtents::new(func, self, op.results[0]);
        let [_, _, b_panels] = extents.offsets();
        b_panels + extents.bytes()[1]
    }
}

/// The last two axes of an operand.
fn matrix_shape(func: &Func, operand: Value) -> Shape {
    let shape = &func.ty(operand).shape;
    Shape::new(&shape[shape.rank() - 2..])
}

/// Whether a matrix whose columns are contiguous is packed by [squares that are transposed](transpose_square).
fn packs_squares(matrix: &Shape, machine: Machine) -> bool {
    !is_baseline(machine) && matrix.iter().all(|extent| extent.is_multiple_of(LANES))
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
        let matrix = matrix_shape(host.func, self.value);
        let leading = host.func.ty(self.value).shape.rank() - 2;
        let axis = host.contiguous_axis(self.value).and_then(|axis| axis.checked_sub(leading)).unwrap_or(1);
        if axis == 0 && packs_squares(&matrix, b.machine) {
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
        let first = self.packed(b, [row, column]);
        let pitch = b.int(Ty::I64, i64::from(self.pitch() * bytes));
        host.call(b, &transpose_square::name(dtype), &[self.square, first, pitch]);
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
        let bytes = self.extents.dtype.bytes();
        let first = self.packed(b, [point.coords[0], point.coords[1]]);
        if point.lanes == 1 || point.axis == 1 {
            return b.store(elements, first, AccessFlags::aligned(bytes));
        }
        for lane in 0..point.lanes {
            let element = b.extract(elements, lane);
            let pointer = b.offset_bytes(first, (u32::from(lane) * self.pitch() * bytes) as i32);
            b.store(element, pointer, AccessFlags::aligned(bytes));
        }
    }

    /// The packed position of an element.
    fn packed(&self, b: &mut Builder, coords: [Val; 2]) -> Val {
        let index = self.extents.index(b, self.operand, coords);
        b.offset(self.start, index, self.extents.dtype.bytes())
    }

    /// Elements from one packed row to the next.
    fn pitch(&self) -> u32 {
        if self.operand == DotOperand::A { self.extents.inner } else { self.extents.lanes }
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

/// One dot of matrices.
struct MatrixDot<'a> {
    dot: &'a Dot,
    op: &'a Op,
    extents: &'a DotExtents,
    blocks: DotBlocks,
    operands: [Val; 2],
    /// What the next iteration loads.
    prefetches: Vec<Prefetch>,
    batch: &'a [Val],
}

/// What the next iteration of the enclosing loop loads of the operands of a dot.
fn prefetches(host: &mut Host, b: &mut Builder, dot: &Dot) -> Vec<Prefetch> {
    [dot.a, dot.b].into_iter().filter_map(|operand| host.plan_prefetch(b, operand)).collect()
}

/// Where a block of a matrix dot starts.
struct BlockOrigin {
    row: Val,
    column: Val,
    /// Whether it is one of the longer ones, where there are both.
    is_longer: Val,
}

impl MatrixDot<'_> {
    fn run(&self, host: &mut Host, b: &mut Builder) {
        let DotBlocks { column_vectors, sizes: [(_, longer), (rows, _)] } = self.blocks;
        let DotExtents { columns, lanes, .. } = *self.extents;
        let (panels, row_blocks) = (columns / (column_vectors * lanes), self.blocks.count_along_rows());
        let constant = |b: &mut Builder, value: u32| b.int(Ty::I64, i64::from(value));
        let each = |b: &mut Builder, end: u32| [0, end, 1].map(|bound| constant(b, bound));
        let bounds = each(b, panels);
        b.for_range(bounds, &[], |b, panel, _| {
            let (width, row_blocks_val) = (constant(b, column_vectors * lanes), constant(b, row_blocks));
            let (column, before) = (b.mul(panel, width), b.mul(panel, row_blocks_val));
            let bounds = each(b, row_blocks);
            b.for_range(bounds, &[], |b, block, _| {
                let [rows, longer] = [rows, longer].map(|value| constant(b, value));
                // Longer blocks come first: each of them has one row more.
                let row = b.mul(block, rows);
                let more = b.op("llvm.intr.umin", &[block, longer], Ty::I64);
                let row = b.add(row, more);
                let is_longer = b.icmp(IntPredicate::Ult, block, longer);
                let number = b.add(block, before);
                host.scope(|host| {
                    let prefetches = self.prefetches.iter();
                    prefetches.for_each(|prefetch| host.prefetch(b, prefetch, number, panels * row_blocks));
                    self.block(host, b, &BlockOrigin { row, column, is_longer });
                });
                vec![]
            });
            vec![]
        });
    }

    /// Accumulates a block in the buffer of the result.
    fn block(&self, host: &mut Host, b: &mut Builder, origin: &BlockOrigin) {
        let result = self.op.results[0];
        if let Some(acc) = self.dot.acc
            && host.plan.scratch.buffer(acc) != host.plan.scratch.buffer(result)
        {
            self.start_from(host, b, acc, origin);
        }
        let &BlockOrigin { row, column, is_longer } = origin;
        let zero = b.int(Ty::I64, 0);
        let bytes = self.extents.dtype.bytes();
        let first = self.extents.index(b, DotOperand::A, [row, zero]);
        let a = b.offset(self.operands[0], first, bytes);
        let first = self.extents.index(b, DotOperand::B, [zero, column]);
        let b_panel = b.offset(self.operands[1], first, bytes);
        let coords = [self.batch, &[row, column]].concat();
        let elements = host.buffer_pointer(b, result, &coords);
        let call = |b: &mut Builder, rows: u32| {
            let name = self.extents.block(self.dot, self.blocks, rows).name();
            host.call(b, &name, &[a, b_panel, elements]);
        };
        match self.blocks.sizes {
            [(_, 0), (rows, _)] => call(b, rows),
            [(longer, _), (shorter, _)] => {
                b.branch(is_longer, &[], |b, arm| {
                    call(b, if arm == BranchArm::Then { longer } else { shorter });
                    vec![]
                });
            }
        }
    }

    /// Stores the initial accumulators of a block to the buffer of the result, row by row.
    fn start_from(&self, host: &mut Host, b: &mut Builder, acc: Value, origin: &BlockOrigin) {
        let DotBlocks { column_vectors, sizes: [_, (shorter, _)] } = self.blocks;
        let lanes = self.extents.lanes;
        let more = b.zext(origin.is_longer, Elem::I64);
        let [zero, shorter, one] = [0, shorter, 1].map(|value| b.int(Ty::I64, i64::from(value)));
        let rows = b.add(shorter, more);
        b.for_range([zero, rows, one], &[], |b, down, _| {
            host.scope(|host| {
                let row = b.add(origin.row, down);
                for vector in 0..column_vectors {
                    let right = b.int(Ty::I64, i64::from(vector * lanes));
                    let coords = [self.batch, &[row, b.add(origin.column, right)]].concat();
                    let point = Point { axis: coords.len() - 1, coords, lanes: lanes as u16 };
                    let elements = host.at(b, acc, &point);
                    host.write_buffer(b, self.op.results[0], &point, elements);
                }
            });
            vec![]
        });
    }
}

/// Whether a fused multiply-add takes many instructions.
fn is_baseline(machine: Machine) -> bool {
    machine == rounding::BASELINE
}
