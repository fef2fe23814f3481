//! Software-pipelined loops with asynchronous copies, against Rust's own.

use dsl_runtime::{Device, f16};
use fuse_test_kernels::async_copy;
use fuse_test_kernels::case::{Failure, Operand, Output, untyped};
use libtest_mimic::Trial;

use crate::devices::{Backend, backends};
use crate::values::Random;

type Check = fn(&Device) -> Result<(), Failure>;

pub fn trials() -> Vec<Trial> {
    let checks: [(&'static str, Check); 19] = [
        ("chunks::default", chunks::<0>),
        ("chunks::1_stage", chunks::<1>),
        ("chunks::2_stages", chunks::<2>),
        ("chunks::3_stages", chunks::<3>),
        ("chunks::4_stages", chunks::<4>),
        ("chunks::5_stages", chunks::<5>),
        ("nested::default", nested::<0>),
        ("nested::1_stage", nested::<1>),
        ("nested::3_stages", nested::<3>),
        ("nested::8_stages", nested::<8>),
        ("chased::default", chased::<0>),
        ("chased::2_stages", chased::<2>),
        ("chased::5_stages", chased::<5>),
        ("long_rows::1_stage", long_rows::<1>),
        ("long_rows::2_stages", long_rows::<2>),
        ("long_rows::4_stages", long_rows::<4>),
        ("long_rows::5_stages", long_rows::<5>),
        ("moved::1_stage", moved::<1>),
        ("moved::3_stages", moved::<3>),
    ];
    let trial = |backend: Backend, (name, check): (&'static str, Check)| {
        Trial::test(format!("async_copy::{name}::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    backends()
        .into_iter()
        .flat_map(|backend| checks.into_iter().map(move |check| trial(backend, check)))
        .collect()
}

// ---- material

/// Whole numbers of either sign.
pub(super) fn integers(seed: u64, len: usize, limit: usize) -> Vec<i64> {
    let mut random = Random(seed);
    (0..len).map(|_| random.below(2 * limit) as i64 - limit as i64).collect()
}

pub(super) fn same(what: &str, found: &[u64], wanted: &[u64]) -> Result<(), Failure> {
    match (0..found.len().max(wanted.len())).find(|&i| found.get(i) != wanted.get(i)) {
        Some(i) => {
            Err(format!("{what}: element {i} is {:x?}, not {:x?}", found.get(i), wanted.get(i)).into())
        }
        None => Ok(()),
    }
}

// ---- chunks

/// Lengths of a row: no iteration, one, as many as are in flight, one fewer and many more, with rows that are a multiple of
/// every vector and rows that are not.
const LENGTHS: [usize; 15] = [0, 1, 8, 255, 256, 257, 512, 600, 760, 1001, 1024, 1280, 1296, 4099, 4352];

/// Programs of one warp share blocks: the last one is not full.
const ROWS: usize = 5;

fn chunks<const STAGES: usize>(device: &Device) -> Result<(), Failure>
where
    async_copy::chunks::Choice<STAGES>: async_copy::chunks::Declared,
{
    for n in LENGTHS {
        let x: Vec<f32> = integers(1, ROWS * n, 50).iter().map(|&v| v as f32).collect();
        let y: Vec<f16> = integers(2, ROWS * n, 50).iter().map(|&v| f16::from_f64(v as f64)).collect();
        let z = integers(3, n, 1 << 40);
        for shift in [0, 1] {
            let operands = (
                Operand::new(device, &x, shift)?,
                Operand::new(device, &y, shift)?,
                Operand::new(device, &z, shift)?,
            );
            let mut products = Output::<f32>::new(device, vec![256; ROWS], shift)?;
            let mut powers = Output::<i64>::new(device, vec![256; ROWS], shift)?;
            let mut last = Output::<f32>::new(device, vec![256; ROWS], shift)?;
            let (x_in, y_in, z_in) = (&operands.0, &operands.1, &operands.2);
            async_copy::chunks::<STAGES>(x_in, y_in, z_in, &mut products, &mut powers, &mut last, n as i32)
                .grid(ROWS)
                .launch(device)?;
            let (products, powers, last) = (products.finish()?, powers.finish()?, last.finish()?);
            for row in 0..ROWS {
                let what = format!("row {row} of {n}, {shift} off");
                let wanted = chunk_row(&x[row * n..][..n], &y[row * n..][..n], &z);
                same(&format!("products, {what}"), &products[row], &untyped(&wanted.0))?;
                same(&format!("powers, {what}"), &powers[row], &untyped(&wanted.1))?;
                same(&format!("the last but one, {what}"), &last[row], &untyped(&wanted.2))?;
            }
        }
    }
    Ok(())
}

fn chunk_row(x: &[f32], y: &[f16], z: &[i64]) -> (Vec<f32>, Vec<i64>, Vec<f32>) {
    let mut products = vec![0f32; 256];
    let mut powers = vec![0i64; 256];
    let (mut newer, mut older) = (vec![-1f32; 256], vec![-2f32; 256]);
    for start in (0..x.len()).step_by(256) {
        older.clone_from(&newer);
        for lane in 0..256 {
            let i = start + lane;
            newer[lane] = x.get(i).copied().unwrap_or(3.0);
            products[lane] += newer[lane] * (y.get(i).copied().map_or(0.0, f16::to_f32) + 1.0);
            powers[lane] = powers[lane].wrapping_mul(3).wrapping_add(z.get(i).copied().unwrap_or(-7));
        }
    }
    (products, powers, older)
}

// ---- nested

fn nested<const STAGES: usize>(device: &Device) -> Result<(), Failure>
where
    async_copy::nested::Choice<STAGES>: async_copy::nested::Declared,
{
    for (rows, choice) in [(0, 3), (1, 0), (1, 3), (2, 1), (3, -4), (4, 0), (5, 5), (7, 2), (8, 4), (19, 3)] {
        let x: Vec<i32> = integers(4, rows * 256, 1 << 20).iter().map(|&v| v as i32).collect();
        let y: Vec<i16> = integers(5, rows * 1024, 1 << 15).iter().map(|&v| v as i16).collect();
        for shift in [0, 1] {
            let operands = (Operand::new(device, &x, shift)?, Operand::new(device, &y, shift)?);
            let mut out = Output::<i32>::new(device, vec![256, 1024, 1], shift)?;
            async_copy::nested::<STAGES>(&operands.0, &operands.1, &mut out, rows as i32, choice)
                .grid(1)
                .launch(device)?;
            let results = out.finish()?;
            let (total, weighted, largest) = nested_results(&x, &y, rows, choice);
            let what = format!("{rows} rows, choice {choice}, {shift} off");
            same(&format!("total, {what}"), &results[0], &untyped(&total))?;
            same(&format!("weighted, {what}"), &results[1], &untyped(&weighted))?;
            same(&format!("largest, {what}"), &results[2], &untyped(&[largest]))?;
        }
    }
    Ok(())
}

fn nested_results(x: &[i32], y: &[i16], rows: usize, choice: i32) -> (Vec<i32>, Vec<i32>, i32) {
    let (first, x) = (x, |i: usize, lane: usize| x[i * 256 + lane]);
    let wide = |i: usize, lane: usize| i32::from(y[i * 1024 + lane]);
    let y = |i: usize, lane: usize| i32::from(y[i * 256 + lane]);
    let (mut total, mut weighted, mut largest) = (vec![0i32; 256], vec![0i32; 1024], 0i32);
    let mut each = |f: &dyn Fn(i32, usize) -> i32| {
        total.iter_mut().enumerate().for_each(|(lane, v)| *v = f(*v, lane));
    };
    for i in 0..rows {
        each(&|v, lane| v.wrapping_add(x(i, lane)));
        for j in 0..i {
            each(&|v, lane| v.wrapping_mul(3).wrapping_add(x(j, lane)));
        }
    }
    for i in 0..rows {
        let most = (0..256).map(|lane| x(i, lane)).max().unwrap_or(0);
        largest = largest.wrapping_mul(5).wrapping_add(most);
        each(&|v, lane| v.wrapping_add(y(i, lane).wrapping_mul(largest)));
    }
    for i in (0..rows).step_by(choice.max(1) as usize) {
        let lanes = weighted.iter_mut().enumerate();
        lanes.for_each(|(lane, v)| *v = v.wrapping_mul(3).wrapping_add(wide(i, lane)));
        each(&|v, lane| v.wrapping_mul(3).wrapping_add(first[i + lane]));
    }
    for i in (0..rows).filter(|_| choice > 0) {
        each(&|v, lane| v.wrapping_mul(choice).wrapping_sub(x(i, lane)));
    }
    for i in (0..choice.max(0)).step_by(2).flat_map(|_| 0..rows) {
        each(&|v, lane| v.wrapping_mul(5).wrapping_add(x(i, lane).wrapping_mul(y(i, lane))));
    }
    (total, weighted, largest)
}

// ---- chased

fn chased<const STAGES: usize>(device: &Device) -> Result<(), Failure>
where
    async_copy::chased::Choice<STAGES>: async_copy::chased::Declared,
{
    for n in [0, 1, 2, 4, 5, 6, 17] {
        let len = (n + 1) * 128;
        let x: Vec<i32> = integers(6, len, 1 << 20).iter().map(|&v| v as i32).collect();
        let mut random = Random(7);
        let index: Vec<i32> = (0..len).map(|_| random.below(len) as i32).collect();
        let mut written = x.clone();
        let mut out = Output::holding(device, &written, 0)?;
        let mut totals = Output::<i32>::new(device, vec![128], 0)?;
        let operands = (Operand::new(device, &x, 0)?, Operand::new(device, &index, 0)?);
        // SAFETY: `n + 1` tiles of 128 elements, and every index is below their number.
        let launch = unsafe {
            async_copy::chased::<STAGES>(&operands.0, &operands.1, &mut out, &mut totals, n as i32)
        };
        launch.grid(1).launch(device)?;
        let mut wanted = vec![0i32; 128];
        for (lane, total) in wanted.iter_mut().enumerate() {
            let mut at = lane;
            for i in 0..n {
                let hop = index[i * 128 + lane] as usize;
                *total = total.wrapping_mul(3).wrapping_add(x[hop]).wrapping_sub(x[at]);
                at = index[at] as usize;
                let before = written[i * 128 + lane];
                written[(i + 1) * 128 + lane] = before.wrapping_mul(7).wrapping_add(*total);
            }
        }
        same(&format!("totals of {n} turns"), &totals.finish()?.concat(), &untyped(&wanted))?;
        same(&format!("what {n} turns wrote"), &out.finish()?.concat(), &untyped(&written))?;
    }
    Ok(())
}

// ---- long rows

fn long_rows<const STAGES: usize>(device: &Device) -> Result<(), Failure>
where
    async_copy::long_rows::Choice<STAGES>: async_copy::long_rows::Declared,
{
    for (rows, n, programs) in [(0, 8, 2), (1, 8192, 3), (3, 8192, 3), (13, 8192, 3), (9, 4099, 2), (7, 1, 1)]
    {
        let x: Vec<i32> = integers(8, rows * n, 1 << 20).iter().map(|&v| v as i32).collect();
        let y: Vec<i16> = integers(9, rows * n, 1 << 15).iter().map(|&v| v as i16).collect();
        for shift in [0, 1] {
            let operands = (Operand::new(device, &x, shift)?, Operand::new(device, &y, shift)?);
            let mut out = Output::<i32>::new(device, vec![n; rows], shift)?;
            let mut rest = Output::<i32>::new(device, vec![rows], shift)?;
            let (n_rows, n_cols) = (rows as i32, n as i32);
            async_copy::long_rows::<STAGES>(&operands.0, &operands.1, &mut out, &mut rest, n_rows, n_cols)
                .grid(programs)
                .launch(device)?;
            let (out, rest) = (out.finish()?.concat(), rest.finish()?.concat());
            let wanted: Vec<(Vec<i32>, i32)> =
                (0..rows).map(|row| long_row(&x[row * n..][..n], &y[row * n..][..n], n < 8192)).collect();
            let what = format!("{rows} rows of {n} in {programs} programs, {shift} off");
            let products: Vec<i32> = wanted.iter().flat_map(|(row, _)| row.clone()).collect();
            let rests: Vec<i32> = wanted.iter().map(|(_, rest)| *rest).collect();
            same(&format!("products, {what}"), &out, &untyped(&products))?;
            same(&format!("rest, {what}"), &rest, &untyped(&rests))?;
        }
    }
    Ok(())
}

/// The products of a row, and what is left of its sum; zeros pad a row that is shorter than its tile.
fn long_row(x: &[i32], y: &[i16], padded: bool) -> (Vec<i32>, i32) {
    let total = x.iter().fold(0i32, |total, &v| total.wrapping_add(v));
    let sums = x.iter().zip(y).map(|(&x, &y)| x.wrapping_mul(3).wrapping_add(i32::from(y)));
    let most = sums.chain(padded.then_some(0)).max().unwrap_or(0);
    let product =
        |(&x, &y): (&i32, &i16)| x.wrapping_mul(total).wrapping_add(i32::from(y).wrapping_mul(most));
    (x.iter().zip(y).map(product).collect(), total.wrapping_sub(most))
}

// ---- moved

fn moved<const STAGES: usize>(device: &Device) -> Result<(), Failure>
where
    async_copy::moved::Choice<STAGES>: async_copy::moved::Declared,
{
    for (n, stride) in [(0, 64), (1, 64), (2, 1), (3, 128), (5, 0), (6, 37), (17, 96)] {
        let len = 128 + n * (stride + 16).max(256);
        let x: Vec<i32> = integers(10, len, 1 << 20).iter().map(|&v| v as i32).collect();
        for shift in [0, 1] {
            let operand = Operand::new(device, &x, shift)?;
            let mut out = Output::<i32>::new(device, vec![128], shift)?;
            async_copy::moved::<STAGES>(&operand, &mut out, n as i32, stride as i32)
                .grid(1)
                .launch(device)?;
            let wanted: Vec<i32> = (0..128).map(|lane| moved_result(&x, lane, n, stride)).collect();
            let what = format!("{n} iterations, stride {stride}, {shift} off");
            same(&what, &out.finish()?.concat(), &untyped(&wanted))?;
        }
    }
    Ok(())
}

fn moved_result(x: &[i32], lane: usize, n: usize, stride: usize) -> i32 {
    let mut total = 0i32;
    let mut take = |factor: i32, value: i32| total = total.wrapping_mul(factor).wrapping_add(value);
    (0..n).for_each(|i| take(3, x[lane + i * stride]));
    take(5, x[lane + n * stride]);
    (0..n).for_each(|i| take(7, x[lane + (n - i) * 96 - 64]));
    for i in 0..n {
        (0..i).for_each(|j| take(3, if lane < 100 { x[lane + i * 16 + j * stride] } else { -5 }));
    }
    (0..n).for_each(|i| take(11, x[lane + i * 2 * lane]));
    total
}
