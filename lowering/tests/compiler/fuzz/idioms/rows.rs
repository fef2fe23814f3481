//! Rows that are reduced, scanned and normalized: in one tile, in several rows at a time, or in a loop over pieces; of up
//! to 64 Ki elements, at any offset.

use tile_ir::support::dtype::DType;

use super::attention::MASKS;
use crate::fuzz::data::Data;
use crate::fuzz::element::Element;
use crate::fuzz::program::{Node, Plan, PlannedMemory};
use crate::fuzz::sketch::{Sketch, arange, float, full, int, program_id};

/// Programs of the launch that the specialization for many programs takes.
const MANY: i64 = 1030;

pub fn rows(sketch: &mut Sketch) {
    let looped = sketch.chance(2);
    let block = sketch.random.of(&[16, 64, 96, 256, 512, 1024, 2048, 4096, 12288]);
    if looped { in_pieces(sketch, block) } else { in_a_tile(sketch, block) }
}

fn element_type(sketch: &mut Sketch) -> DType {
    sketch.random.of(&[DType::F32, DType::F32, DType::F16, DType::BF16, DType::F64])
}

/// The type that sums and powers are computed in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Rows in tiles of `[block]` or `[rows, block]`.
fn in_a_tile(sketch: &mut Sketch, block: usize) {
    let elem = element_type(sketch);
    let count = if block <= 1024 { sketch.random.of(&[1, 1, 2, 4, 8]) } else { 1 };
    let (x, mask_of) = (sketch.slice(elem, false), sketch.slice(DType::F32, false));
    let (out, sums) = (sketch.slice(elem, true), sketch.slice(wide(elem), true));
    let [n, stride] = [0, 1].map(|_| sketch.scalar(DType::I32));
    let hidden = sketch.random.of(&MASKS);
    let by_column = count > 1;
    let row = sketch.bind(if by_column {
        (program_id(0) * int(count as i64) + arange(count)).col()
    } else {
        program_id(0)
    });
    let rows = sketch.scalar(DType::I32);
    let column = if by_column { arange(block).row() } else { arange(block) };
    let column = sketch.bind(column);
    let inside = column.clone().less(n.clone());
    let inside = if by_column { row.clone().less(rows.clone()).and(inside) } else { inside };
    let inside = sketch.bind(inside);
    let other = sketch.random.of(&[0.0, f64::NEG_INFINITY]);
    let offset = sketch.bind(row.clone() * stride.clone() + column.clone());
    let hint = sketch.load_hint();
    let value = sketch.load(x, offset.clone(), vec![inside.clone(), float(other, elem)]).hinted(hint);
    let mut value = sketch.bind(value);
    if sketch.chance(3) {
        let bias = sketch.load(mask_of, offset, vec![inside.clone()]);
        let scaled = value.to(DType::F32) * float(0.125, DType::F32) + bias;
        value = sketch.bind(scaled.to(elem));
    }
    let axis = usize::from(by_column);
    let count_of = n.clone().to(wide(elem));
    let result = match sketch.random.below(if block <= 1024 { 8 } else { 7 }) {
        0 | 1 => {
            let log = sketch.chance(2);
            value.clone().softmax(axis, log)
        }
        2 => {
            let wide_value = value.clone().to(wide(elem));
            let max = wide_value.clone().reduced("max", axis, true);
            let power = sketch.bind(Node::call("exp", vec![wide_value - max]));
            power.clone() / power.reduced("sum", axis, true)
        }
        3 | 4 => {
            let wide_value = inside.clone().choose(value.clone().to(wide(elem)), float(0.0, wide(elem)));
            let wide_value = sketch.bind(wide_value);
            let mean = sketch.bind(wide_value.clone().reduced("sum", axis, true) / count_of);
            let apart = inside.clone().choose(wide_value - mean, float(0.0, wide(elem)));
            let apart = sketch.bind(apart);
            let square = (apart.clone() * apart.clone()).reduced("sum", axis, true);
            apart * Node::call("rsqrt", vec![square * float(0.5, wide(elem)) + float(1.0, wide(elem))])
        }
        5 => value.clone().reduced("max", axis, true) + value.clone(),
        6 => inside.clone().choose(value.clone(), float(0.0, elem)) * float(0.5, elem),
        _ => {
            let reverse = sketch.chance(2);
            inside.clone().choose(value.clone(), float(0.0, elem)).scanned("cumsum", axis, reverse)
        }
    };
    let result = sketch.bind(result);
    if sketch.chance(2) {
        let kept = inside.clone().choose(value.to(wide(elem)), float(0.0, wide(elem)));
        let total = kept.reduced("sum", axis, true);
        let at = if by_column { row.clone() } else { row.clone() + arange(1) };
        let mask = by_column.then(|| row.clone().less(rows));
        sketch.store(sums, at, total, mask);
    }
    sketch.store(out, row * n + column, result, Some(inside));
    plan_rows(sketch, [block, count], hidden, 1.0);
}

/// Rows in a loop over pieces: one pass that reduces, and one that writes.
fn in_pieces(sketch: &mut Sketch, block: usize) {
    let elem = sketch.random.of(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
    let (x, mask_of) = (sketch.slice(elem, false), sketch.slice(DType::F32, false));
    let (out, sums) = (sketch.slice(elem, true), sketch.slice(DType::F32, true));
    let [n, stride, _rows] = [0, 1, 2].map(|_| sketch.scalar(DType::I32));
    let hidden = sketch.random.of(&MASKS);
    let row = sketch.bind(program_id(0));
    let softmax = sketch.chance(2);
    let added = sketch.chance(3);
    let piece = |sketch: &mut Sketch, at: Node, other: f64| {
        let column = sketch.bind(at + arange(block));
        let inside = sketch.bind(column.clone().less(n.clone()));
        let offset = row.clone() * stride.clone() + column.clone();
        let value = sketch.load(x, offset.clone(), vec![inside.clone(), float(other, elem)]).to(DType::F32);
        let value = if added { value + sketch.load(mask_of, offset, vec![inside.clone()]) } else { value };
        (column, inside, sketch.bind(value))
    };
    let across = sketch.chance(2);
    let step = [int(0), n.clone(), int(block as i64)];
    let shape = if across { vec![block] } else { vec![] };
    let first = sketch.bind_mut(sketch_start(&shape, if softmax { f64::NEG_INFINITY } else { 0.0 }));
    let second = sketch.bind_mut(sketch_start(&shape, 0.0));
    sketch.repeat(step.clone(), |sketch, at| {
        let (_, _, value) = piece(sketch, at, if softmax { f64::NEG_INFINITY } else { 0.0 });
        let reduced =
            |node: Node, name: &'static str| if across { node } else { node.reduced(name, 0, false) };
        if softmax {
            let next = Node::call("maximum", vec![first.clone(), reduced(value.clone(), "max")]);
            sketch.assign(&first, next);
        } else {
            sketch.assign(&first, first.clone() + reduced(value.clone(), "sum"));
            sketch.assign(&second, second.clone() + reduced(value.clone() * value, "sum"));
        }
    });
    let folded = |node: Node, name: &'static str| if across { node.reduced(name, 0, false) } else { node };
    if softmax {
        let max = sketch.bind(folded(first, "max"));
        sketch.repeat(step.clone(), |sketch, at| {
            let (_, _, value) = piece(sketch, at, f64::NEG_INFINITY);
            let power = Node::call("exp", vec![value - max.clone()]);
            let power = if across { power } else { power.reduced("sum", 0, false) };
            sketch.assign(&second, second.clone() + power);
        });
        let sum = sketch.bind(folded(second, "sum"));
        sketch.repeat(step, |sketch, at| {
            let (column, inside, value) = piece(sketch, at, f64::NEG_INFINITY);
            let result = Node::call("exp", vec![value - max.clone()]) / sum.clone();
            sketch.store(out, row.clone() * n.clone() + column, result, Some(inside));
        });
        sketch.store(sums, row, Node::call("log", vec![sum]), None);
    } else {
        let mean = sketch.bind(folded(first, "sum") / n.clone().to(DType::F32));
        let square = folded(second, "sum");
        let scale = Node::call("rsqrt", vec![square + float(1.0, DType::F32)]);
        let scale = sketch.bind(scale);
        sketch.repeat(step, |sketch, at| {
            let (column, inside, value) = piece(sketch, at, 0.0);
            let result = (value - mean.clone()) * scale.clone();
            sketch.store(out, row.clone() * n.clone() + column, result, Some(inside));
        });
        sketch.store(sums, row, mean, None);
    }
    let pieces = sketch.random.of(&[0.3, 1.0, 2.0, 4.0, 5.5]);
    plan_rows(sketch, [block, 1], hidden, pieces);
}

fn sketch_start(shape: &[usize], value: f64) -> Node {
    if shape.is_empty() { float(value, DType::F32) } else { full(shape, value, DType::F32) }
}

/// Launches with rows that fill the tile or `pieces` of it, that begin at vectors, and that begin anywhere.
fn plan_rows(sketch: &mut Sketch, [block, count]: [usize; 2], hidden: f64, pieces: f64) {
    let whole = ((block as f64 * pieces) as i64).clamp(1, 1 << 16);
    for number in 0..3 {
        let n = match number {
            0 => whole,
            1 => (whole - 8 * sketch.random.below(3) as i64).max(1),
            _ => 1 + sketch.random.below(whole as usize) as i64,
        };
        let pad = match number {
            2 => sketch.random.of(&[0, 0, 1, 3]),
            _ => sketch.random.of(&[0, 0, 0, 8]),
        };
        let stride = n + pad;
        let programs = match n {
            // More than a GPU runs at once.
            ..=128 if number == 0 && count == 1 => MANY,
            8193.. => 2,
            _ => 1 + sketch.random.below(3) as i64,
        };
        let rows = programs * count as i64 - if count > 1 && number > 0 { 1 } else { 0 };
        let data = sketch.random.of(&[Data::Whole { limit: 4 }, Data::Fraction, Data::Fraction]);
        let len = ((rows - 1) * stride + n) as usize;
        let mask = Data::Mask { value: hidden, row: stride as usize };
        let initial = Data::Whole { limit: 3 };
        let memory = vec![
            PlannedMemory::slice(len + sketch.random.of(&[0, 0, 5]), data),
            PlannedMemory::slice(len, mask),
            PlannedMemory::slice((rows * n) as usize, initial),
            PlannedMemory::slice(rows as usize, initial),
        ];
        let scalars = [n, stride, rows].map(|number| Element::whole(number.into())).to_vec();
        sketch.plans.push(Plan { grid: [programs, 1, 1], scalars, memory });
    }
}
