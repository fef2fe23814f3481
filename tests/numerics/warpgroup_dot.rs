//! Warpgroup dots of blocks of views: whole numbers, bit for bit, whatever the tiles, warps, stages and trip counts.

use fuse_test_kernels::case::Job;
use fuse_test_kernels::warpgroup_dot::{
    ACCUMULATED_DOTS, AccumulatedDots, BYTE_DOTS, ByteDots, MASKED_ATTENTION, MASKED_ATTENTION_3_WARPGROUPS,
    MaskedAttention, REPEATED, REPEATED_3_WARPGROUPS, RepeatedDot,
};
use libtest_mimic::{Failed, Trial};

use crate::devices::{Backend, backends};
use crate::dot::{Matrix, exactly, whole};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for added in ACCUMULATED_DOTS {
            let AccumulatedDots {
                dtype,
                tile: [m, n, k],
                transposed: [a_transposed, b_transposed],
                warps,
                stages,
                ..
            } = added;
            let marks = [a_transposed, b_transposed].map(|transposed| if *transposed { "t" } else { "" });
            let name = format!("{dtype}::[{m},{k}]{}x[{k},{n}]{}::{warps}x{stages}", marks[0], marks[1]);
            trials.push(Trial::test(format!("warpgroup_dot::{name}::{backend}"), move || {
                check_added(added, backend)
            }));
        }
        for again in REPEATED.iter().chain(REPEATED_3_WARPGROUPS) {
            let name = format!("warpgroup_dot::again::{:?}::{backend}", again.tile);
            trials.push(Trial::test(name, move || check_again(again, backend)));
        }
        for bytes in BYTE_DOTS {
            let ByteDots { dtype, tile: [m, n, k], warps, stages, .. } = bytes;
            let name = format!("warpgroup_dot::{dtype}::[{m},{k}]x[{k},{n}]t::{warps}x{stages}::{backend}");
            trials.push(Trial::test(name, move || check_bytes(bytes, backend)));
        }
        for turned in MASKED_ATTENTION.iter().chain(MASKED_ATTENTION_3_WARPGROUPS) {
            let MaskedAttention { dtype, tile: [m, n, d], falling, .. } = turned;
            let name = format!("warpgroup_dot::turned::{dtype}::[{m},{n},{d}]::{falling}::{backend}");
            trials.push(Trial::test(name, move || check_turned(turned, backend)));
        }
    }
    trials
}

/// More programs than the device runs at once: blocks run some one after the other.
fn many([m, n]: [usize; 2], backend: Backend) -> [usize; 2] {
    let each = backend.tiles_in_turn(if m * n <= 64 * 64 { 20 } else { 12 });
    [each * m - 8, each * n]
}

/// No iteration, one and three.
fn check_again(again: &'static RepeatedDot, backend: Backend) -> Result<(), Failed> {
    let [m, n] = many(again.tile, backend);
    let (a, b) = (whole(m, 64, 4, 1), whole(64, n, 4, 2));
    let dot = a.times(&b, [m, n, 64]);
    let operands: Vec<_> = [a, b].iter().map(|matrix| matrix.bits(dsl_runtime::DType::BF16)).collect();
    for count in [0, 1, 3] {
        let job = Job { device: backend.device()?, operands: operands.clone(), shift: 0 };
        let found = (again.run)(&job, [m, n], count)?.concat();
        let wanted = dot.map(|x| count as f64 * x);
        let with_case = |error: Failed| format!("{count} times: {}", error.message().unwrap_or_default());
        exactly(&wanted, &found, dsl_runtime::DType::F32).map_err(with_case)?;
    }
    Ok(())
}

/// Whole tiles, and tiles that are cut by as much as copies of whole chunks allow, and by less; no iteration, one, as many as
/// there are stages less one, and more.
fn check_added(added: &'static AccumulatedDots, backend: Backend) -> Result<(), Failed> {
    let AccumulatedDots { dtype, tile: [m, n, k], transposed: [a_transposed, b_transposed], stages, .. } =
        *added;
    let [rows, columns] = many([m, n], backend);
    let sizes = [
        ([m, n, k], k),
        ([m, n, k], 0),
        ([2 * m + 8, n + 16, 2 * k + 8], 2 * k + 8),
        ([m - 8, 2 * n - 8, stages * k], stages * k - k),
        ([m, n, 7 * k], 7 * k),
        ([m + 1, n - 1, k + 1], k + 1),
        ([rows, columns, k + 8], k + 8),
    ];
    for (i, (size, limit)) in sizes.into_iter().enumerate() {
        let [m, n, k] = size;
        let (a, b, c) = (whole(m, k, 4, 1), whole(k, n, 4, 2), whole(m, n, 100, 3));
        let dot = |limit: usize| {
            let limit = limit.min(k);
            let a = Matrix::new(m, limit, |row, i| a.at(row, i));
            a.times(&Matrix::new(limit, n, |i, column| b.at(i, column)), [m, n, limit])
        };
        let wanted = dot(limit).plus(&dot(added.tile[2]).map(|x| 0.5 * x)).plus(&c);
        let of =
            |matrix: &Matrix, transposed: bool| if transposed { matrix.transposed() } else { matrix.clone() };
        for shift in [0, 1] {
            let operands = vec![
                of(&a, a_transposed).bits(dtype),
                of(&b, b_transposed).bits(dtype),
                c.bits(dsl_runtime::DType::F32),
            ];
            let job = Job { device: backend.device()?, operands, shift };
            let found = (added.run)(&job, size, limit)?.concat();
            let with_case =
                |error: Failed| format!("{i}, shift {shift}: {}", error.message().unwrap_or_default());
            exactly(&wanted, &found, dsl_runtime::DType::F32).map_err(with_case)?;
        }
    }
    Ok(())
}

/// As with more bytes each. The outer accumulator has more digits than that of 8-bit floats in a tensor core.
fn check_bytes(bytes: &'static ByteDots, backend: Backend) -> Result<(), Failed> {
    let ByteDots { dtype, acc, tile: [m, n, k], stages, .. } = *bytes;
    let sizes = [
        ([m, n, k], k),
        ([m, n, k], 0),
        ([2 * m + 8, n + 16, 2 * k + 16], 2 * k + 16),
        ([m - 8, 2 * n - 8, stages * k], stages * k - k),
        ([m, n, 7 * k], 7 * k),
        ([m + 1, n - 1, k + 1], k + 1),
    ];
    for (i, (size, limit)) in sizes.into_iter().enumerate() {
        let [m, n, k] = size;
        let (a, b, c) = (whole(m, k, 4, 1), whole(k, n, 4, 2), whole(m, n, 1 << 20, 3));
        let dot = |limit: usize| {
            let limit = limit.min(k);
            let a = Matrix::new(m, limit, |row, i| a.at(row, i));
            a.times(&Matrix::new(limit, n, |i, column| b.at(i, column)), [m, n, limit])
        };
        let wanted = dot(limit).plus(&dot(bytes.tile[2])).plus(&c);
        for shift in [0, 1] {
            let operands = vec![a.bits(dtype), b.transposed().bits(dtype), c.bits(acc)];
            let job = Job { device: backend.device()?, operands, shift };
            let found = (bytes.run)(&job, size, limit)?.concat();
            let with_case =
                |error: Failed| format!("{i}, shift {shift}: {}", error.message().unwrap_or_default());
            exactly(&wanted, &found, acc).map_err(with_case)?;
        }
    }
    Ok(())
}

fn check_turned(turned: &'static MaskedAttention, backend: Backend) -> Result<(), Failed> {
    let MaskedAttention { dtype, tile: [m, n, d], falling, .. } = *turned;
    // 9600 rows, in two batches, are more programs than a GPU runs at once.
    let many = m * backend.tiles_in_turn(9600 / m);
    for [rows, count] in [[m, n], [m + 3, 3 * n + 5], [2 * m, 1], [3 * m - 1, 5 * n], [many, n + 3]] {
        // Products are small enough for eight bits, and halves of sums for a float's.
        let matrices = [(rows, 1), (count, 1), (count, 3)]
            .map(|(rows, limit)| [1, 2].map(|batch| whole(rows, d, limit, (batch * rows + limit) as u64)));
        let batches = [0, 1].map(|batch| {
            let [a, b, c] = [0, 1, 2].map(|which| &matrices[which][batch]);
            let scores = a.times(&b.transposed(), [rows, count, d]);
            sums(&scores, c, (m, n, falling))
        });
        let wanted = Matrix::new(2 * rows, d, |row, column| batches[row / rows].at(row % rows, column));
        for shift in [0, 1] {
            let operands = matrices.iter().map(|both| both.iter().flat_map(|one| one.bits(dtype)).collect());
            let job = Job { device: backend.device()?, operands: operands.collect(), shift };
            let found = (turned.run)(&job, [rows, count])?.concat();
            let with_case = |error: Failed| {
                format!("{rows} and {count} rows, shift {shift}: {}", error.message().unwrap_or_default())
            };
            exactly(&wanted, &found, dsl_runtime::DType::F32).map_err(with_case)?;
        }
    }
    Ok(())
}

/// The rows of one batch.
fn sums(scores: &Matrix, c: &Matrix, (m, n, falling): (usize, usize, bool)) -> Matrix {
    let (rows, count) = (scores.rows(), c.rows());
    Matrix::new(rows, c.columns(), |row, column| {
        let first = row / m * m;
        let end = if falling { count.saturating_sub(first) } else { count };
        let mut acc = 0.0;
        for start in (0..end).step_by(n) {
            let keys = (start..count.min(start + n)).filter(|&key| start + n <= first || key <= row);
            acc = acc * 0.5 + keys.map(|key| scores.at(row, key) * (c.at(key, column) + 1.0)).sum::<f64>();
        }
        acc
    })
}
