//! Blocks of views of four and five axes: moved, permuted and reduced.

use tile_ir::support::dtype::DType;

use crate::fuzz::data::Data;
use crate::fuzz::program::{Node, Plan, PlannedMemory};
use crate::fuzz::sketch::{Sketch, float, int, program_id};

pub fn views(sketch: &mut Sketch) {
    if sketch.chance(4) {
        return batched_dot(sketch);
    }
    let rank = 3 + sketch.random.below(3);
    let dtype = sketch.random.of(&[
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I64,
        DType::F8E4M3,
        DType::F8E5M2,
    ]);
    let mut block: Vec<usize> = (0..rank).map(|_| sketch.random.of(&[1, 2, 4, 4, 8])).collect();
    block[rank - 1] = sketch.random.of(&[4, 8, 16, 32]);
    let mut order: Vec<usize> = (0..rank).collect();
    for i in (1..rank).rev() {
        order.swap(i, sketch.random.below(i + 1));
    }
    let reduces = !dtype.is_f8() && dtype != DType::I8 && sketch.chance(2);
    let axis = sketch.random.below(rank);
    let (x, out) =
        (sketch.view(dtype, rank, false), sketch.view(dtype, if reduces { rank - 1 } else { rank }, true));
    // The axes that programs are for, each with one of the grid.
    let starts: Vec<Node> =
        (0..rank)
            .map(|at| {
                if at < 3 && !(reduces && at == axis) {
                    program_id(at) * int(block[at] as i64)
                } else {
                    int(0)
                }
            })
            .collect();
    let value = sketch.load_view(x, &block, starts.clone());
    let value = sketch.bind(value);
    if reduces {
        let name = sketch.random.of(&["sum", "max", "min"]);
        let reduced = value.reduced(name, axis, false).to(dtype);
        let reduced = if dtype.is_float() { reduced * float(0.5, dtype) } else { reduced };
        let starts = (0..rank).filter(|&at| at != axis).map(|at| starts[at].clone()).collect();
        sketch.store_view(out, starts, reduced);
    } else {
        let starts = order.iter().map(|&at| starts[at].clone()).collect();
        let value = value.permuted(&order);
        sketch.store_view(out, starts, value);
    }
    for launch in 0..3 {
        let grid =
            [0, 1, 2].map(|at| if reduces && at == axis { 1 } else { 1 + sketch.random.below(2) as i64 });
        let shape: Vec<i64> = (0..rank)
            .map(|at| {
                let whole = block[at] as i64 * grid.get(at).copied().unwrap_or(1);
                if launch == 0 { whole } else { 1 + sketch.random.below(whole as usize + 2) as i64 }
            })
            .collect();
        let result: Vec<i64> = if reduces {
            (0..rank).filter(|&at| at != axis).map(|at| shape[at]).collect()
        } else {
            order.iter().map(|&at| shape[at]).collect()
        };
        let in_order: Vec<usize> = (0..rank).collect();
        let memory_order = if launch > 0 && sketch.chance(2) { order.clone() } else { in_order.clone() };
        let pad = sketch.random.of(&[0, 0, 1, 8]);
        let data = Data::Whole { limit: 6 };
        let memory = vec![
            PlannedMemory::view(&shape, &memory_order, pad, data),
            PlannedMemory::view(&result, &in_order[..result.len()], sketch.random.of(&[0, 0, 3]), data),
        ];
        sketch.plans.push(Plan { grid, scalars: vec![], memory });
    }
}

/// Several products of small matrices in one dot.
fn batched_dot(sketch: &mut Sketch) {
    let dtype = sketch.random.of(&[DType::F16, DType::BF16, DType::F32]);
    let [batch, m, n, k] =
        [[1, 2, 4], [16, 16, 32], [16, 32, 16], [16, 32, 64]].map(|choices| sketch.random.of(&choices));
    let (a, b) = (sketch.view(dtype, 3, false), sketch.view(dtype, 3, false));
    let out = sketch.view(DType::F32, 3, true);
    let (first, row) = (program_id(0) * int(batch as i64), program_id(1) * int(m as i64));
    let x = sketch.load_view(a, &[batch, m, k], vec![first.clone(), row.clone(), int(0)]);
    let y = sketch.load_view(b, &[batch, k, n], vec![first.clone(), int(0), int(0)]);
    let y = if sketch.chance(2) { y } else { (y * float(0.5, dtype)).to(dtype) };
    sketch.store_view(out, vec![first, row, int(0)], x.dot(y, None, ""));
    for launch in 0..3 {
        let grid = [0, 1].map(|_| 1 + sketch.random.below(2) as i64);
        let mut extents = [grid[0] * batch as i64, grid[1] * m as i64, n as i64, k as i64];
        if launch > 0 {
            extents = extents.map(|extent| 1 + sketch.random.below(extent as usize) as i64);
        }
        let [batches, rows, columns, inner] = extents;
        let data = sketch.random.of(&[Data::Whole { limit: 4 }, Data::Fraction]);
        let pad = if launch == 2 { 1 } else { 0 };
        let view = |shape: [i64; 3], data| PlannedMemory::view(&shape, &[0, 1, 2], pad, data);
        let memory = vec![
            view([batches, rows, inner], data),
            view([batches, inner, columns], data),
            view([batches, rows, columns], Data::Whole { limit: 3 }),
        ];
        sketch.plans.push(Plan { grid: [grid[0], grid[1], 1], scalars: vec![], memory });
    }
}
