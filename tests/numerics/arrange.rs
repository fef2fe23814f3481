//! Rearranged elements, against index arithmetic and a stable sort.

use dsl_runtime::DType;
use fuse_test_kernels::arrange::{MOVES, Moves, ORDERS};
use fuse_test_kernels::case::Job;
use libtest_mimic::{Failed, Trial};

use crate::compare::{integer, show};
use crate::devices::{Backend, backends};
use crate::float::Format;
use crate::values::{Random, mask};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        let name = |what: &str, moves: &Moves| {
            let [m, n] = moves.shape;
            format!("arrange::{what}::{}::[{m},{n}]::{}_warps::{backend}", moves.dtype, moves.warps)
        };
        for moves in MOVES {
            trials.push(Trial::test(name("move", moves), move || check_moves(moves, backend)));
        }
        for (moves, k) in ORDERS {
            trials.push(Trial::test(name("order", moves), move || check_orders(moves, *k, backend)));
        }
    }
    trials
}

fn check_moves(moves: &'static Moves, backend: Backend) -> Result<(), Failed> {
    let [m, n] = moves.shape;
    let mut random = Random(7);
    let x: Vec<u64> = (0..m * n).map(|_| random.bits() & mask(moves.dtype)).collect();
    let at = |row: usize, col: usize| x[row * n + col];
    let grid = |rows: usize, cols: usize, of: &dyn Fn(usize, usize) -> u64| -> Vec<u64> {
        (0..rows * cols).map(|i| of(i / cols, i % cols)).collect()
    };
    let flipped = |row: usize, col: usize| at(row, n - 1 - col);
    let apart = |col: usize| if col < n / 2 { 2 * col } else { 2 * (col - n / 2) + 1 };
    let wanted = [
        grid(m, n, &|row, col| at(m - 1 - row, col)),
        grid(m, n, &flipped),
        grid(m, 2 * n, &|row, col| if col % 2 == 0 { at(row, col / 2) } else { flipped(row, col / 2) }),
        grid(2 * m, n, &|row, col| if row < m { at(row, col) } else { flipped(row - m, col) }),
        grid(m, 2 * n, &|row, col| if col < n { at(row, col) } else { flipped(row, col - n) }),
        grid(m, 2 * n, &|row, col| at(row, if col % 2 == 0 { apart(col / 2) } else { col / 2 })),
        grid(m, n / 2, &|row, col| at(row, col + 1)),
        grid(m, n / 2, &|row, col| at(row, col + n / 2)),
        grid(m, n, &|row, col| match (row + 7 * col) % (n + 1) {
            position if position < n => at(row, position),
            _ => 0,
        }),
        grid(m, n, &|row, col| match (5 * row + col) % (m + 1) {
            0 => 0,
            position => at(position - 1, col),
        }),
        grid(m, 1, &|row, _| at(row, n - 1)),
        grid(1, n, &|_, col| at(m - 1, col)),
        vec![at(m / 2, n / 2)],
        grid(m, n, &|row, col| at(row, (0..6).fold(col, |col, _| apart(col)))),
    ]
    .concat();
    for shift in [0, 1] {
        let job = Job { device: backend.device()?, operands: vec![x.clone()], shift };
        same(&wanted, &(moves.run)(&job)?.concat(), moves.dtype)?;
    }
    Ok(())
}

fn same(wanted: &[u64], found: &[u64], dtype: DType) -> Result<(), Failed> {
    for (i, (&wanted, &found)) in wanted.iter().zip(found).enumerate() {
        if wanted != found {
            return Err(format!("element {i} is {}, not {}", show(found, dtype), show(wanted, dtype)).into());
        }
    }
    if wanted.len() == found.len() { Ok(()) } else { Err("the number of results".into()) }
}

/// Few different values, so that some are equal; one in nine of the floats is NaN.
fn keys(dtype: DType, count: usize) -> Vec<u64> {
    let mut random = Random(count as u64);
    (0..count)
        .map(|_| {
            let number = random.below(90) as i64 - 40;
            match dtype.is_float() {
                true if number > 40 => Format::of(dtype).round(f64::NAN),
                true => Format::of(dtype).round(number as f64 / 4.0),
                false => number as u64 & mask(dtype),
            }
        })
        .collect()
}

/// The order of the language's values as integers.
fn rank(dtype: DType, bits: u64) -> i128 {
    if !dtype.is_float() {
        return integer(bits, dtype);
    }
    let value = Format::of(dtype).value(bits);
    if value.is_nan() { i128::MAX } else { (value * 4.0) as i128 }
}

fn check_orders(moves: &'static Moves, k: usize, backend: Backend) -> Result<(), Failed> {
    let ([m, n], dtype) = (moves.shape, moves.dtype);
    let x = keys(dtype, m * n);
    // The positions of a line in order; a stable sort.
    let order = |line: &[u64], descending: bool| {
        let mut positions: Vec<usize> = (0..line.len()).collect();
        positions.sort_by_key(|&position| {
            if descending { -rank(dtype, line[position]) } else { rank(dtype, line[position]) }
        });
        positions
    };
    let rows: Vec<&[u64]> = x.chunks(n).collect();
    let cols: Vec<Vec<u64>> = (0..n).map(|col| rows.iter().map(|row| row[col]).collect()).collect();
    let rising: Vec<Vec<usize>> = rows.iter().map(|row| order(row, false)).collect();
    let falling: Vec<Vec<usize>> = cols.iter().map(|col| order(col, true)).collect();
    let by_row = (0..m * n).map(|i| (i / n, i % n));
    let first: Vec<Vec<usize>> = rows.iter().map(|row| order(row, true)[..k].to_vec()).collect();
    let values = [
        by_row.clone().map(|(row, col)| rows[row][rising[row][col]]).collect::<Vec<u64>>(),
        by_row.clone().map(|(row, col)| cols[col][falling[col][row]]).collect(),
        first
            .iter()
            .zip(&rows)
            .flat_map(|(positions, row)| positions.iter().map(|&position| row[position]))
            .collect(),
    ];
    let positions = [rising.concat(), by_row.map(|(row, col)| falling[col][row]).collect(), first.concat()];
    for shift in [0, 1] {
        let job = Job { device: backend.device()?, operands: vec![x.clone()], shift };
        let found = (moves.run)(&job)?;
        same(&values.concat(), &found[..3].concat(), dtype)?;
        let wanted: Vec<u64> = positions.concat().into_iter().map(|position| position as u64).collect();
        same(&wanted, &found[3..].concat(), DType::I32)?;
    }
    Ok(())
}
