//! Products of matrices: the factors are laid out anew, converted to the type that products are added in, and blocks of
//! rows and one vector of columns are then summed in registers, step after step along the axis that is summed over: one
//! order of additions on every processor.

use std::collections::HashMap;

use crate::cpu::emit::nest::{LANES, Point};
use crate::cpu::emit::prefetch::Prefetch;
use crate::cpu::emit::{AccessFlags, Builder, CpuEmit, Host, Ty, Val};
use crate::gpu::layout::dot::DotOperand;
use crate::ir::{Func, Op, Shape, Value};
use crate::mlir::{Machine, Vectors, cast, rounding};
use crate::ops::{Dot, InputPrecision, Kind};
use crate::support::dtype::DType;

/// The most vectors of sums of a block, of four-byte numbers, which leave room for the factors: among sixteen registers
/// of half a vector, and among 32 of a whole one.
const SUMS: u32 = 6;
const WIDE_SUMS: u32 = 24;
/// Vectors of columns that a block has side by side where there is so much room: each element of the left factor is read
/// once for all.
const ABREAST: u32 = 2;
/// Steps of a turn of the innermost loop.
const STEPS: u32 = 4;

/// The extents of a product.
struct DotExtents {
    /// Leading axes, and the matrix's.
    batch: Shape,
    rows: u32,
    inner: u32,
    columns: u32,
    /// Columns that are summed together.
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

    /// Bytes of the factors of one product.
    fn bytes(&self) -> [u64; 2] {
        [self.rows, self.columns]
            .map(|extent| u64::from(extent) * u64::from(self.inner) * u64::from(self.dtype.bytes()))
    }

    /// Where a square that is transposed, the left and the right factor are.
    fn places(&self) -> [u64; 3] {
        let left = u64::from(LANES * LANES * self.dtype.bytes());
        [0, left, left + self.bytes()[0].next_multiple_of(64)]
    }

    /// Where an element is: the left factor is row-major; of the right one, groups of `lanes` columns follow each other,
    /// each of them row-major.
    fn index(&self, b: &mut Builder, side: DotOperand, [row, column]: [Val; 2]) -> Val {
        let [lanes, inner] = [self.lanes, self.inner].map(|number| b.int(Ty::I64, i64::from(number)));
        if side == DotOperand::A {
            let first = b.mul(row, inner);
            return b.add(first, column);
        }
        let (panel, within) = (b.udiv(column, lanes), b.urem(column, lanes));
        let first = b.mul(panel, inner);
        let line = b.add(first, row);
        let first = b.mul(line, lanes);
        b.add(first, within)
    }

    /// Puts the elements at a point where they belong.
    fn store(&self, b: &mut Builder, elements: Val, (side, start): (DotOperand, Val), point: &Point) {
        let bytes = self.dtype.bytes();
        let first = self.index(b, side, [point.coords[0], point.coords[1]]);
        let first = b.offset(start, first, bytes);
        if point.lanes == 1 || point.axis == 1 {
            return b.store(elements, first, AccessFlags::aligned(bytes));
        }
        let pitch = if side == DotOperand::A { self.inner } else { self.lanes };
        for lane in 0..point.lanes {
            let element = b.extract(elements, lane);
            let place = b.offset_bytes(first, (u32::from(lane) * pitch * bytes) as i32);
            b.store(element, place, AccessFlags::aligned(bytes));
        }
    }
}

impl CpuEmit for Dot {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let extents = DotExtents::new(host.func, self, op.results[0]);
        let place = host.workspace(b);
        let [square, left, right] = extents.places().map(|bytes| b.offset_bytes(place, bytes as i32));
        host.each_element(b, &extents.batch, &mut |host, b, matrix| {
            let batch = &matrix.coords;
            host.lay_out(b, (self.a, DotOperand::A), (&extents, [left, square]), batch);
            host.lay_out(b, (self.b, DotOperand::B), (&extents, [right, square]), batch);
            let ahead = if is_baseline(b) { vec![] } else { ahead(host, b, self) };
            let factors = [left, right];
            let product = MatrixDot { dot: self, op, extents: &extents, factors, ahead, batch };
            product.run(host, b);
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
        let [_, _, right] = extents.places();
        right + extents.bytes()[1]
    }
}

impl Host<'_> {
    /// Writes a factor of one product down in the order and type that it is multiplied in.
    fn lay_out(
        &mut self,
        b: &mut Builder,
        (factor, side): (Value, DotOperand),
        (extents, [start, square]): (&DotExtents, [Val; 2]),
        batch: &[Val],
    ) {
        let shape = &self.func.ty(factor).shape;
        let rank = shape.rank();
        let matrix = Shape::new(&shape[rank - 2..]);
        let axis = self.contiguous_axis(factor).and_then(|axis| axis.checked_sub(rank - 2)).unwrap_or(1);
        let in_squares = matrix.iter().all(|extent| extent.is_multiple_of(LANES));
        if axis == 0 && in_squares && !is_baseline(b) {
            let squares = Shape::new([matrix[0] / LANES, matrix[1] / LANES]);
            self.each_element(b, &squares, &mut |host, b, point| {
                let lanes = b.int(Ty::I64, i64::from(LANES));
                let first = [point.coords[0], point.coords[1]].map(|coord| b.mul(coord, lanes));
                host.lay_out_square(b, (factor, side), (extents, [start, square]), (batch, first));
            });
            return;
        }
        self.each_along(b, &matrix, axis, &mut |host, b, point| {
            let elements = host.multiplied_as(b, factor, extents, (batch, point));
            extents.store(b, elements, (side, start), point);
        });
    }

    /// The same of a square whose columns are vectors: they become rows by way of memory.
    fn lay_out_square(
        &mut self,
        b: &mut Builder,
        (factor, side): (Value, DotOperand),
        (extents, [start, square]): (&DotExtents, [Val; 2]),
        (batch, [row, column]): (&[Val], [Val; 2]),
    ) {
        let bytes = extents.dtype.bytes();
        let pitch = b.int(Ty::I64, i64::from(LANES));
        let bounds = [0, LANES, 1].map(|bound| b.int(Ty::I64, i64::from(bound)));
        b.for_range(bounds, &[], |b, i, _| {
            self.scope(|host| {
                let coords = vec![row, b.add(column, i)];
                let point = Point { coords, axis: 0, lanes: LANES as u16 };
                let elements = host.multiplied_as(b, factor, extents, (batch, &point));
                let place = b.mul(i, pitch);
                let place = b.offset(square, place, bytes);
                b.store(elements, place, AccessFlags::aligned(bytes));
            });
            vec![]
        });
        let vector = Ty { lanes: LANES as u16, ..Ty::scalar(cast::elem(extents.dtype, b.machine)) };
        let columns: Vec<Val> = (0..LANES)
            .map(|i| {
                let place = b.offset_bytes(square, (i * LANES * bytes) as i32);
                b.load(place, vector, AccessFlags::aligned(bytes))
            })
            .collect();
        for (i, elements) in transposed(b, columns).into_iter().enumerate() {
            let distance = b.int(Ty::I64, i as i64);
            let point = Point { coords: vec![b.add(row, distance), column], axis: 1, lanes: LANES as u16 };
            extents.store(b, elements, (side, start), &point);
        }
    }

    /// Elements of a factor in the type that it is multiplied in.
    fn multiplied_as(
        &mut self,
        b: &mut Builder,
        factor: Value,
        extents: &DotExtents,
        (batch, point): (&[Val], &Point),
    ) -> Val {
        let coords: Vec<Val> = batch.iter().chain(&point.coords).copied().collect();
        let own = Point { coords, axis: point.axis + batch.len(), lanes: point.lanes };
        let elements = self.at(b, factor, &own);
        let elements = cast::cast(b, elements, self.dtype(factor), extents.dtype);
        match extents.input {
            InputPrecision::Ieee | InputPrecision::Tf32x3 => elements,
            InputPrecision::Tf32 => rounding::tf32(b, elements),
        }
    }

    /// The axis along which neighbours of a tile are read as neighbours, if that is known.
    fn contiguous_axis(&self, value: Value) -> Option<usize> {
        self.axis_read(value, &mut HashMap::new())
    }

    /// The same, with the axes of the values that were asked for before.
    fn axis_read(&self, value: Value, known: &mut HashMap<Value, Option<usize>>) -> Option<usize> {
        if let Some(&axis) = known.get(&value) {
            return axis;
        }
        let axis = self.axis_of_definition(value, known);
        known.insert(value, axis);
        axis
    }

    fn axis_of_definition(&self, value: Value, known: &mut HashMap<Value, Option<usize>>) -> Option<usize> {
        let shape = &self.func.ty(value).shape;
        if self.plan.schedule.buffer(value).is_some() {
            return shape.rank().checked_sub(1);
        }
        let op = self.definitions.get(&value)?;
        let operation = op.kind.operation();
        if let Some(place) = operation.place() {
            let info = self.plan.axes.get(self.func, place.offset);
            return (0..shape.rank()).max_by_key(|&axis| info.axes[axis].contiguity);
        }
        let mut tiles =
            operation.operands().into_iter().filter(|&operand| !self.func.ty(operand).is_scalar());
        if let Kind::Reshape(reshape) = &op.kind {
            let kept = reshape.kept_axes(self.func, value)?;
            return kept[self.axis_read(reshape.value, known)?];
        }
        if let Some(moves) = operation.moves(self.func) {
            return moves[self.axis_read(tiles.next()?, known)?];
        }
        if !operation.is_pointwise() {
            return None;
        }
        tiles.find_map(|operand| self.axis_read(operand, known))
    }
}

/// As many vectors as they have lanes, with vectors and lanes exchanged: bit by bit of their numbers.
fn transposed(b: &mut Builder, mut vectors: Vec<Val>) -> Vec<Val> {
    let count = vectors.len();
    let mut bit = 1;
    while bit < count {
        for low in (0..count).filter(|number| number & bit == 0) {
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

/// One product of matrices.
struct MatrixDot<'a> {
    dot: &'a Dot,
    op: &'a Op,
    extents: &'a DotExtents,
    factors: [Val; 2],
    /// What the next turn reads.
    ahead: Vec<Prefetch>,
    batch: &'a [Val],
}

/// What the next turn of the loop around reads of the factors of a product.
fn ahead(host: &mut Host, b: &mut Builder, dot: &Dot) -> Vec<Prefetch> {
    [dot.a, dot.b].into_iter().filter_map(|factor| host.ahead(b, factor)).collect()
}

/// The sizes of the blocks that a number of rows is cut into, none of them more than `most`, and how many of each.
fn cut(rows: u32, most: u32) -> [(u32, u32); 2] {
    let blocks = rows.div_ceil(most);
    let longer = rows % blocks;
    [(rows / blocks + 1, longer), (rows / blocks, blocks - longer)]
}

impl MatrixDot<'_> {
    fn run(&self, host: &mut Host, b: &mut Builder) {
        let DotExtents { rows, columns, lanes, dtype, .. } = *self.extents;
        let (sums, abreast) = match b.machine {
            Machine::Host(Vectors::Wide) => (WIDE_SUMS * 4 / dtype.bytes(), ABREAST),
            Machine::Host(Vectors::Fused) | Machine::Nvptx => (SUMS * 4 / dtype.bytes(), 1),
            Machine::Host(Vectors::Baseline) => (1, 1),
        };
        let abreast = if columns.is_multiple_of(abreast * lanes) { abreast } else { 1 };
        let panels = columns / (abreast * lanes);
        let sizes = cut(rows, sums / abreast);
        let high = sizes.iter().map(|(_, count)| count).sum::<u32>();
        let number = |b: &mut Builder, number: u32| b.int(Ty::I64, i64::from(number));
        let bounds = [0, panels, 1].map(|bound| number(b, bound));
        b.for_range(bounds, &[], |b, panel, _| {
            let (width, high_val) = (number(b, abreast * lanes), number(b, high));
            let (column, before) = (b.mul(panel, width), b.mul(panel, high_val));
            let (mut first, mut blocks) = (0, 0);
            for (size, count) in sizes.into_iter().filter(|(_, count)| *count > 0) {
                let bounds = [0, count, 1].map(|bound| number(b, bound));
                b.for_range(bounds, &[], |b, block, _| {
                    let (size_val, first, blocks) = (number(b, size), number(b, first), number(b, blocks));
                    let row = b.mul(block, size_val);
                    let row = b.add(row, first);
                    let block = b.add(block, blocks);
                    let block = b.add(block, before);
                    host.scope(|host| {
                        self.ahead.iter().for_each(|ahead| host.fetch(b, ahead, (block, panels * high)));
                        self.block(host, b, [row, column], [size, abreast]);
                    });
                    vec![]
                });
                (first, blocks) = (first + size * count, blocks + count);
            }
            vec![]
        });
    }

    /// The sums of `count` rows and so many vectors of columns.
    fn block(&self, host: &mut Host, b: &mut Builder, [row, column]: [Val; 2], [count, abreast]: [u32; 2]) {
        let lanes = self.extents.lanes;
        let places = (0..count).flat_map(|i| (0..abreast).map(move |vector| [i, vector * lanes]));
        let points: Vec<Point> = places
            .map(|[down, right]| {
                let [down, right] = [down, right].map(|distance| b.int(Ty::I64, i64::from(distance)));
                let place = [b.add(row, down), b.add(column, right)];
                let coords: Vec<Val> = self.batch.iter().copied().chain(place).collect();
                Point { axis: coords.len() - 1, coords, lanes: lanes as u16 }
            })
            .collect();
        let sums: Vec<Val> = points.iter().map(|point| self.before(host, b, point)).collect();
        let sums = self.summed(b, [row, column], sums, abreast);
        for (point, sum) in points.iter().zip(sums) {
            host.write_buffer(b, self.op.results[0], point, sum);
        }
    }

    /// What the products are added to.
    fn before(&self, host: &mut Host, b: &mut Builder, point: &Point) -> Val {
        match self.dot.acc {
            Some(acc) => host.at(b, acc, point),
            None => {
                let ty = Ty { lanes: point.width(), ..host.elem_type(b, self.op.results[0]) };
                b.zero(ty)
            }
        }
    }

    /// The products along the inner axis added to sums of rows from `row` on, each of so many vectors.
    fn summed(&self, b: &mut Builder, [row, column]: [Val; 2], sums: Vec<Val>, abreast: u32) -> Vec<Val> {
        let DotExtents { inner, lanes, dtype, .. } = *self.extents;
        let zero = b.int(Ty::I64, 0);
        let bytes = dtype.bytes();
        let first = self.extents.index(b, DotOperand::A, [row, zero]);
        let left = b.offset(self.factors[0], first, bytes);
        let first = self.extents.index(b, DotOperand::B, [zero, column]);
        let right = b.offset(self.factors[1], first, bytes);
        let steps = if is_baseline(b) { 1 } else { (1u32 << inner.trailing_zeros()).min(STEPS) };
        let elem = Ty::scalar(cast::elem(dtype, b.machine));
        let vector = Ty { lanes: if lanes == 1 { 0 } else { lanes as u16 }, ..elem };
        let bounds = [0, inner, steps].map(|bound| b.int(Ty::I64, i64::from(bound)));
        b.for_range(bounds, &sums, |b, index, sums| {
            let mut sums = sums.to_vec();
            let left = b.offset(left, index, bytes);
            let pitch = b.int(Ty::I64, i64::from(lanes));
            let distance = b.mul(index, pitch);
            let right = b.offset(right, distance, bytes);
            for step in 0..steps {
                let columns: Vec<Val> = (0..abreast)
                    .map(|panel| {
                        let place = b.offset_bytes(right, ((panel * inner + step) * lanes * bytes) as i32);
                        b.load(place, vector, AccessFlags::aligned(bytes))
                    })
                    .collect();
                for (i, sums) in sums.chunks_mut(abreast as usize).enumerate() {
                    let place = b.offset_bytes(left, ((i as u32 * inner + step) * bytes) as i32);
                    let element = b.load(place, elem, AccessFlags::aligned(bytes));
                    let element = if lanes == 1 { element } else { b.splat(element, lanes as u16) };
                    for (sum, &columns) in sums.iter_mut().zip(&columns) {
                        *sum = rounding::multiply_add(b, [element, columns, *sum], dtype);
                    }
                }
            }
            sums
        })
    }
}

/// Whether a product and a sum with one rounding take many instructions.
fn is_baseline(b: &Builder) -> bool {
    b.machine == rounding::BASELINE
}
