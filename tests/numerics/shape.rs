//! Shape operations: every element by its index.

use fuse_test_kernels::case::Job;
use fuse_test_kernels::shape::{CUBES, MATRICES, Moves};
use libtest_mimic::{Failed, Trial};

use crate::compare::show;
use crate::devices::{Backend, backends};
use crate::values::{Random, mask};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for moves in MATRICES.iter().chain(CUBES) {
            let name = format!("shape::{}::{:?}::{}_warps::{backend}", moves.dtype, moves.shape, moves.warps);
            trials.push(Trial::test(name.replace(' ', ""), move || check(moves, backend)));
        }
    }
    trials
}

fn check(moves: &'static Moves, backend: Backend) -> Result<(), Failed> {
    let elements: usize = moves.shape.iter().product();
    let mut random = Random(elements as u64);
    let x: Vec<u64> = (0..elements).map(|_| random.bits() & mask(moves.dtype)).collect();
    for shift in [0, 1] {
        let job = Job { device: backend.device()?, operands: vec![x.clone()], shift };
        let results = (moves.run)(&job)?;
        for (which, result) in results.iter().enumerate() {
            for (i, &found) in result.iter().enumerate() {
                let source = match *moves.shape {
                    [m, n] => matrix_source(which, i, [m, n]),
                    _ => cube_source(which, i, moves.shape),
                };
                if found != x[source] {
                    let (wanted, found) = (show(x[source], moves.dtype), show(found, moves.dtype));
                    return Err(format!("result {which}, element {i} is {found}, not {wanted}").into());
                }
            }
        }
    }
    Ok(())
}

/// Where element `i` of result `which` of the matrix kernel comes from.
fn matrix_source(which: usize, i: usize, [m, n]: [usize; 2]) -> usize {
    let transposed = (i % m) * n + i / m;
    let (row, col) = (i / n, i % n);
    match which {
        0 | 2 | 3 | 8 | 10 => i,
        1 | 4 => transposed,
        5 => col * m + row,
        6 => col,
        7 => row * n,
        11 => 0,
        // Chosen by an equality of indices: the tile itself on what is the diagonal of that equality.
        _ if m * col + row == i => i,
        _ => col * m + row,
    }
}

/// Where element `i` of the cube in the `which`th order of its axes comes from.
fn cube_source(which: usize, i: usize, shape: &[usize]) -> usize {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let order = orders[which];
    let strides = [shape[1] * shape[2], shape[2], 1];
    let extents = order.map(|axis| shape[axis]);
    let coordinates = [i / (extents[1] * extents[2]), i / extents[2] % extents[1], i % extents[2]];
    coordinates.iter().zip(order).map(|(coordinate, axis)| coordinate * strides[axis]).sum()
}
