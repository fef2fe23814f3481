//! Products of blocks of views: whole numbers, bit for bit, whatever the tiles, warps, stages and turns.

use fuse_tests::case::Job;
use fuse_tests::group::{
    ADDED, AGAIN, AGAIN_IN_THREE, Added, Again, BYTES, Bytes, TURNED, TURNED_IN_THREE, Turned,
};
use libtest_mimic::{Failed, Trial};

use crate::devices::{Place, places};
use crate::dot::{Matrix, exactly, whole};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for place in places() {
        for added in ADDED {
            let Added { dtype, tile: [m, n, k], transposed: [left, right], warps, stages, .. } = added;
            let marks = [left, right].map(|transposed| if *transposed { "t" } else { "" });
            let name = format!("{dtype}::[{m},{k}]{}x[{k},{n}]{}::{warps}x{stages}", marks[0], marks[1]);
            trials.push(Trial::test(format!("group::{name}::{place}"), move || check_added(added, place)));
        }
        for again in AGAIN.iter().chain(AGAIN_IN_THREE) {
            let name = format!("group::again::{:?}::{place}", again.tile);
            trials.push(Trial::test(name, move || check_again(again, place)));
        }
        for bytes in BYTES {
            let Bytes { dtype, tile: [m, n, k], warps, stages, .. } = bytes;
            let name = format!("group::{dtype}::[{m},{k}]x[{k},{n}]t::{warps}x{stages}::{place}");
            trials.push(Trial::test(name, move || check_bytes(bytes, place)));
        }
        for turned in TURNED.iter().chain(TURNED_IN_THREE) {
            let Turned { dtype, tile: [m, n, d], falling, .. } = turned;
            let name = format!("group::turned::{dtype}::[{m},{n},{d}]::{falling}::{place}");
            trials.push(Trial::test(name, move || check_turned(turned, place)));
        }
    }
    trials
}

/// More programs than a GPU runs at once: blocks run some one after the other.
fn many([m, n]: [usize; 2]) -> [usize; 2] {
    let each = if m * n <= 64 * 64 { 20 } else { 12 };
    [each * m - 8, each * n]
}

/// No turn, one and three.
fn check_again(again: &'static Again, place: Place) -> Result<(), Failed> {
    let [m, n] = many(again.tile);
    let (a, b) = (whole(m, 64, 4, 1), whole(64, n, 4, 2));
    let product = a.times(&b, [m, n, 64]);
    let operands: Vec<_> = [a, b].iter().map(|matrix| matrix.bits(dsl_runtime::DType::BF16)).collect();
    for count in [0, 1, 3] {
        let job = Job { device: place.device()?, operands: operands.clone(), shift: 0 };
        let found = (again.run)(&job, [m, n], count)?.concat();
        let wanted = product.map(|x| count as f64 * x);
        let told = |error: Failed| format!("{count} times: {}", error.message().unwrap_or_default());
        exactly(&wanted, &found, dsl_runtime::DType::F32).map_err(told)?;
    }
    Ok(())
}

/// Whole tiles, and tiles that are cut by as much as copies of whole pieces allow, and by less; no turn, one, as many as
/// there are stages less one, and more.
fn check_added(added: &'static Added, place: Place) -> Result<(), Failed> {
    let Added { dtype, tile: [m, n, k], transposed: [left, right], stages, .. } = *added;
    let sizes = [
        ([m, n, k], k),
        ([m, n, k], 0),
        ([2 * m + 8, n + 16, 2 * k + 8], 2 * k + 8),
        ([m - 8, 2 * n - 8, stages * k], stages * k - k),
        ([m, n, 7 * k], 7 * k),
        ([m + 1, n - 1, k + 1], k + 1),
        ([many([m, n])[0], many([m, n])[1], k + 8], k + 8),
    ];
    for (i, (size, limit)) in sizes.into_iter().enumerate() {
        let [m, n, k] = size;
        let (a, b, c) = (whole(m, k, 4, 1), whole(k, n, 4, 2), whole(m, n, 100, 3));
        let product = |limit: usize| {
            let limit = limit.min(k);
            let a = Matrix::new(m, limit, |row, i| a.at(row, i));
            a.times(&Matrix::new(limit, n, |i, column| b.at(i, column)), [m, n, limit])
        };
        let wanted = product(limit).plus(&product(added.tile[2]).map(|x| 0.5 * x)).plus(&c);
        let of =
            |matrix: &Matrix, transposed: bool| if transposed { matrix.transposed() } else { matrix.clone() };
        for shift in [0, 1] {
            let operands =
                vec![of(&a, left).bits(dtype), of(&b, right).bits(dtype), c.bits(dsl_runtime::DType::F32)];
            let job = Job { device: place.device()?, operands, shift };
            let found = (added.run)(&job, size, limit)?.concat();
            let told = |error: Failed| format!("{i}, shift {shift}: {}", error.message().unwrap_or_default());
            exactly(&wanted, &found, dsl_runtime::DType::F32).map_err(told)?;
        }
    }
    Ok(())
}

/// As with more bytes each. What products are added to has more digits than the sums of 8-bit floats in a tensor core.
fn check_bytes(bytes: &'static Bytes, place: Place) -> Result<(), Failed> {
    let Bytes { dtype, sum, tile: [m, n, k], stages, .. } = *bytes;
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
        let product = |limit: usize| {
            let limit = limit.min(k);
            let a = Matrix::new(m, limit, |row, i| a.at(row, i));
            a.times(&Matrix::new(limit, n, |i, column| b.at(i, column)), [m, n, limit])
        };
        let wanted = product(limit).plus(&product(bytes.tile[2])).plus(&c);
        for shift in [0, 1] {
            let operands = vec![a.bits(dtype), b.transposed().bits(dtype), c.bits(sum)];
            let job = Job { device: place.device()?, operands, shift };
            let found = (bytes.run)(&job, size, limit)?.concat();
            let told = |error: Failed| format!("{i}, shift {shift}: {}", error.message().unwrap_or_default());
            exactly(&wanted, &found, sum).map_err(told)?;
        }
    }
    Ok(())
}

fn check_turned(turned: &'static Turned, place: Place) -> Result<(), Failed> {
    let Turned { dtype, tile: [m, n, d], falling, .. } = *turned;
    for [rows, count] in [[m, n], [m + 3, 3 * n + 5], [2 * m, 1], [3 * m - 1, 5 * n], [9600, n + 3]] {
        // Products are small enough for eight bits, and halves of sums for a float's.
        let matrices = [(rows, 1), (count, 1), (count, 3)]
            .map(|(rows, limit)| [1, 2].map(|batch| whole(rows, d, limit, (batch * rows + limit) as u64)));
        let batches = [0, 1].map(|batch| {
            let [a, b, c] = [0, 1, 2].map(|which| &matrices[which][batch]);
            let products = a.times(&b.transposed(), [rows, count, d]);
            sums(&products, c, (m, n, falling))
        });
        let wanted = Matrix::new(2 * rows, d, |row, column| batches[row / rows].at(row % rows, column));
        for shift in [0, 1] {
            let operands = matrices.iter().map(|both| both.iter().flat_map(|one| one.bits(dtype)).collect());
            let job = Job { device: place.device()?, operands: operands.collect(), shift };
            let found = (turned.run)(&job, [rows, count])?.concat();
            let told = |error: Failed| {
                format!("{rows} and {count} rows, shift {shift}: {}", error.message().unwrap_or_default())
            };
            exactly(&wanted, &found, dsl_runtime::DType::F32).map_err(told)?;
        }
    }
    Ok(())
}

/// The rows of one batch.
fn sums(products: &Matrix, c: &Matrix, (m, n, falling): (usize, usize, bool)) -> Matrix {
    let (rows, count) = (products.rows(), c.rows());
    Matrix::new(rows, c.columns(), |row, column| {
        let first = row / m * m;
        let end = if falling { count.saturating_sub(first) } else { count };
        let mut sum = 0.0;
        for start in (0..end).step_by(n) {
            let keys = (start..count.min(start + n)).filter(|&key| start + n <= first || key <= row);
            sum = sum * 0.5 + keys.map(|key| products.at(row, key) * (c.at(key, column) + 1.0)).sum::<f64>();
        }
        sum
    })
}
