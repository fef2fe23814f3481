//! Dots: whole numbers bit for bit, others within the error of as many additions.

use dsl_runtime::DType;
use fuse_test_kernels::case::Job;
use fuse_test_kernels::dot::{
    CHAINED_DOTS, COMPUTED_DOTS, ChainedDots, ComputedDots, DOTS, Dots, SIDE, SMEM_DOTS, SmemDots,
};
use libtest_mimic::{Failed, Trial};

use crate::compare::integer;
use crate::devices::{Backend, backends};
use crate::float::Format;
use crate::values::{Random, mask};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for dots in DOTS {
            let Dots { dtype, tile: [m, n, k], transposed: [a_transposed, b_transposed], tf32, bf16, .. } =
                dots;
            let marks = [a_transposed, b_transposed].map(|transposed| if *transposed { "t" } else { "" });
            let dtype = match (tf32, bf16) {
                (0, 0) => dtype.to_string(),
                (1, _) => "tf32".into(),
                (0, terms) => format!("bf16x{terms}"),
                (terms, _) => format!("tf32x{terms}"),
            };
            let name = format!("dot::{dtype}::[{m},{k}]{}x[{k},{n}]{}", marks[0], marks[1]);
            trials.push(Trial::test(format!("{name}::{backend}"), move || check_dots(dots, backend)));
        }
        for single in COMPUTED_DOTS {
            let name = format!("dot::computed::{}::{}_warps::{backend}", single.dtype, single.warps);
            trials.push(Trial::test(name, move || check_computed_dots(single, backend)));
        }
        for chained in CHAINED_DOTS {
            let [m, n, d] = chained.tile;
            let name = format!("dot::chained::{}::[{m},{n},{d}]::{backend}", chained.dtype);
            trials.push(Trial::test(name, move || check_chained_dots(chained, backend)));
        }
        for copied in SMEM_DOTS {
            let SmemDots { dtype, tile: [m, n, k], warps, stages, .. } = copied;
            let name = format!("dot::copied::{dtype}::[{m},{n},{k}]::{warps}x{stages}::{backend}");
            trials.push(Trial::test(name, move || check_smem_dots(copied, backend)));
        }
    }
    trials
}

/// A matrix of values that its element type can represent.
#[derive(Clone, Debug)]
pub struct Matrix {
    columns: usize,
    elements: Vec<f64>,
}

impl Matrix {
    pub fn new(rows: usize, columns: usize, mut element: impl FnMut(usize, usize) -> f64) -> Matrix {
        let elements = (0..rows * columns).map(|i| element(i / columns, i % columns)).collect();
        Matrix { columns, elements }
    }

    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.elements[row * self.columns + column]
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn rows(&self) -> usize {
        self.elements.len().checked_div(self.columns).unwrap_or(0)
    }

    pub fn transposed(&self) -> Matrix {
        Matrix::new(self.columns, self.rows(), |row, column| self.at(column, row))
    }

    /// The matmul, of the given rows and columns: an empty inner extent says nothing of them.
    pub fn times(&self, other: &Matrix, [m, n, k]: [usize; 3]) -> Matrix {
        let mut elements = vec![0.0; m * n];
        for (row, sums) in elements.chunks_exact_mut(n.max(1)).enumerate() {
            for i in 0..k {
                let (x, with) = (self.at(row, i), &other.elements[i * other.columns..][..n]);
                for (sum, y) in sums.iter_mut().zip(with) {
                    *sum += x * y;
                }
            }
        }
        Matrix { columns: n, elements }
    }

    pub fn map(&self, change: impl Fn(f64) -> f64) -> Matrix {
        Matrix { columns: self.columns, elements: self.elements.iter().map(|&x| change(x)).collect() }
    }

    pub fn plus(&self, other: &Matrix) -> Matrix {
        let both = self.elements.iter().zip(&other.elements);
        Matrix { columns: self.columns, elements: both.map(|(a, b)| a + b).collect() }
    }

    pub fn bits(&self, dtype: DType) -> Vec<u64> {
        self.elements.iter().map(|&x| bits(x, dtype)).collect()
    }
}

fn bits(value: f64, dtype: DType) -> u64 {
    if dtype.is_float() { Format::of(dtype).round(value) } else { value as i64 as u64 & mask(dtype) }
}

fn decode(bits: u64, dtype: DType) -> f64 {
    if dtype.is_float() { Format::of(dtype).value(bits) } else { integer(bits, dtype) as f64 }
}

/// The matrix rounded to its element type.
fn representable(matrix: &Matrix, dtype: DType) -> Matrix {
    matrix.map(|x| decode(bits(x, dtype), dtype))
}

/// Whole numbers from `-limit` to `limit`.
pub fn whole(rows: usize, columns: usize, limit: usize, seed: u64) -> Matrix {
    let mut random = Random(seed);
    Matrix::new(rows, columns, |_, _| random.below(2 * limit + 1) as f64 - limit as f64)
}

/// Numbers of either sign around 1.
fn mixed(rows: usize, columns: usize, dtype: DType, seed: u64) -> Matrix {
    let mut random = Random(seed);
    let matrix = Matrix::new(rows, columns, |_, _| {
        let magnitude = (random.bits() >> 11) as f64 / (1u64 << 52) as f64;
        if random.below(2) == 0 { magnitude } else { -magnitude }
    });
    representable(&matrix, dtype)
}

pub fn exactly(wanted: &Matrix, found: &[u64], dtype: DType) -> Result<(), Failed> {
    for (i, (&wanted, &found)) in wanted.elements.iter().zip(found).enumerate() {
        // Zero has one sign here: a sum of products that cancel is positive. NaN has many bit patterns.
        let nan = wanted.is_nan() && decode(found, dtype).is_nan();
        if !nan && bits(wanted + 0.0, dtype) != found {
            return Err(format!("element {i} is {}, not {wanted}", decode(found, dtype)).into());
        }
    }
    if wanted.elements.len() == found.len() { Ok(()) } else { Err("the number of results".into()) }
}

/// Each element within `bounds` of what is wanted.
fn within(wanted: &Matrix, found: &[u64], bounds: &Matrix, dtype: DType) -> Result<(), Failed> {
    for (i, ((&wanted, &found), &bound)) in
        wanted.elements.iter().zip(found).zip(&bounds.elements).enumerate()
    {
        let found = decode(found, dtype);
        if found.is_nan() || (found - wanted).abs() > bound {
            return Err(format!("element {i} is {found:e}, not {wanted:e} to within {bound:e}").into());
        }
    }
    if wanted.elements.len() == found.len() { Ok(()) } else { Err("the number of results".into()) }
}

/// What `additions` additions in a type may be off, relative to the sum of magnitudes: tensor cores truncate where
/// arithmetic rounds.
fn relative(additions: usize, acc: DType) -> f64 {
    let unit = if acc == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    (additions + 2) as f64 * unit
}

/// What 32 products of 8-bit floats may be off, relative to the largest of them and of their sums: see `max_num_imprecise_acc`.
const IMPRECISE: f64 = 34.0 / 8192.0;

/// Tiles that are full, partial along each axis, and nearly empty; no iteration of the loop, one, and several.
fn sizes([m, n, k]: [usize; 3]) -> Vec<[usize; 3]> {
    vec![
        [m, n, k],
        [m, n, 3 * k],
        [m + 1, n.max(2) - 1, k + 1],
        [2 * m + 3, n + 7, 5 * k - 1],
        [3, 5, 0],
        [1, 1, 1],
        [m.max(2) - 1, 2 * n, 2 * k],
    ]
}

fn check_dots(dots: &'static Dots, backend: Backend) -> Result<(), Failed> {
    let Dots { dtype, acc, tile, transposed: [a_transposed, b_transposed], .. } = *dots;
    for (i, size) in sizes(tile).into_iter().enumerate() {
        let [m, n, k] = size;
        let shift = i % 2;
        let run = |a: &Matrix, b: &Matrix| -> Result<Vec<u64>, Failed> {
            let a = if a_transposed { a.transposed() } else { a.clone() };
            let b = if b_transposed { b.transposed() } else { b.clone() };
            let operands = vec![a.bits(dtype), b.bits(dtype)];
            let job = Job { device: backend.device()?, operands, shift };
            Ok((dots.run)(&job, size)?.concat())
        };
        let (a, b) = (whole(m, k, 4, 1), whole(k, n, 4, 2));
        exactly(&a.times(&b, size), &run(&a, &b)?, acc).map_err(|error| with_size(size, error))?;
        if dtype.is_f8() && k > 0 {
            let size = [PATTERNS, n, k];
            let found = run_patterns(dots, backend, size)?;
            let wanted = Matrix::new(PATTERNS, n, |row, _| decode(row as u64, dtype));
            exactly(&wanted, &found, acc).map_err(|error| with_size(size, error))?;
        }
        if !dtype.is_float() {
            continue;
        }
        let (a, b) = (mixed(m, k, dtype, 3), mixed(k, n, dtype, 4));
        let found = run(&a, &b)?;
        let [a, b] = if dots.tf32 == 1 { [a, b].map(|operand| operand.map(as_tf32)) } else { [a, b] };
        let magnitudes = a.map(f64::abs).times(&b.map(f64::abs), size);
        // Several dots replace one and leave a part of the product out.
        let relative = match (dots.tf32, dots.bf16) {
            (3, _) => relative(3 * k, acc) + 2f64.powi(-21),
            (_, 3) => relative(3 * k, acc) + 2f64.powi(-16),
            (_, 6) => relative(6 * k, acc) + 2f64.powi(-24),
            _ => relative(k, acc),
        };
        // Warpgroups keep fewer digits of sums of 8-bit floats.
        let imprecise = dtype.is_f8() && matches!(backend, Backend::Cuda);
        let relative = relative + if imprecise { k.div_ceil(32) as f64 * IMPRECISE } else { 0.0 };
        let bounds = magnitudes.map(|x| x * relative);
        within(&a.times(&b, size), &found, &bounds, acc).map_err(|error| with_size(size, error))?;
    }
    Ok(())
}

/// Bit patterns of a byte.
const PATTERNS: usize = 256;

/// Every pattern of bits of an 8-bit float in a row of its own, along the diagonal, times ones.
fn run_patterns(dots: &Dots, backend: Backend, [m, n, k]: [usize; 3]) -> Result<Vec<u64>, Failed> {
    let Dots { dtype, transposed: [a_transposed, b_transposed], .. } = *dots;
    let patterns = Matrix::new(m, k, |row, i| if i == row % k { row as f64 } else { 0.0 });
    let ones = Matrix::new(k, n, |_, _| 1.0);
    let patterns = if a_transposed { patterns.transposed() } else { patterns };
    let ones = if b_transposed { ones.transposed() } else { ones };
    let operands = vec![patterns.elements.iter().map(|&bits| bits as u64).collect(), ones.bits(dtype)];
    Ok((dots.run)(&Job { device: backend.device()?, operands, shift: 0 }, [m, n, k])?.concat())
}

/// The nearest value with 11 significant bits, ties to even.
fn as_tf32(value: f64) -> f64 {
    let bits = (value as f32).to_bits();
    let odd = bits >> 13 & 1;
    f64::from(f32::from_bits((bits + (1 << 12) - 1 + odd) & !((1 << 13) - 1)))
}

fn with_size([m, n, k]: [usize; 3], error: Failed) -> Failed {
    format!("{m} x {k} times {k} x {n}: {}", error.message().unwrap_or_default()).into()
}

/// Numbers so small that every product of products is exact, in eight bits too.
fn check_computed_dots(single: &'static ComputedDots, backend: Backend) -> Result<(), Failed> {
    let size = [SIDE; 3];
    // Few of them are not 0, so that every sum fits a byte.
    let sparse = |seed: u64| {
        let mut random = Random(seed);
        Matrix::new(SIDE, SIDE, |_, _| if random.below(4) == 0 { random.below(5) as f64 - 2.0 } else { 0.0 })
    };
    let (a, b, c) = (sparse(1), sparse(2), whole(SIDE, SIDE, 1000, 3));
    let ab = a.times(&b, size);
    let wanted = [
        a.map(|x| 2.0 * x).times(&b, size).plus(&c),
        a.times(&a.transposed(), size),
        ab.times(&b, size),
        a.times(&ab, size).plus(&ab),
        a.times(&a.transposed(), size),
        b.times(&b.transposed(), size),
    ];
    let elements = wanted.iter().flat_map(|matrix| matrix.elements.clone()).collect();
    let wanted = Matrix { columns: SIDE, elements };
    for shift in [0, 1] {
        let operands = vec![a.bits(single.dtype), b.bits(single.dtype), c.bits(single.acc)];
        let job = Job { device: backend.device()?, operands, shift };
        let found = (single.run)(&job)?.concat();
        exactly(&wanted, &found, single.acc)?;
    }
    Ok(())
}

fn check_chained_dots(chained: &'static ChainedDots, backend: Backend) -> Result<(), Failed> {
    let ChainedDots { dtype, tile: [m, n, d], .. } = *chained;
    for keys in [1, n - 1, n, 3 * n + 5] {
        let (q, k, v) = (mixed(m, d, dtype, 5), mixed(keys, d, dtype, 6), mixed(keys, d, dtype, 7));
        let scores = q.times(&k.transposed(), [m, keys, d]);
        let weights = Matrix::new(m, keys, |row, key| {
            let largest = (0..keys).map(|key| scores.at(row, key)).fold(f64::NEG_INFINITY, f64::max);
            (scores.at(row, key) - largest).exp2()
        });
        let totals: Vec<f64> = (0..m).map(|row| (0..keys).map(|key| weights.at(row, key)).sum()).collect();
        let sums = weights.times(&v, [m, d, keys]);
        let wanted = Matrix::new(m, d, |row, column| sums.at(row, column) / totals[row]);
        // Numbers are below 2. A score's error is a weight's relative one, in the acc and in what it is divided by;
        // weights are rounded to the operands' type, and their sum to `f32`.
        let largest = |row: usize| {
            let magnitude = |key: usize| (0..d).map(|i| (q.at(row, i) * k.at(key, i)).abs()).sum::<f64>();
            (0..keys).map(magnitude).fold(0.0, f64::max)
        };
        let unit = 2f64.powi(-(Format::of(dtype).fraction as i32));
        let fixed = 2.0 * unit + 4.0 * relative(keys, DType::F32);
        let bounds = Matrix::new(m, d, |row, _| fixed + 4.0 * relative(d, DType::F32) * largest(row));
        for shift in [0, 1] {
            let operands = vec![q.bits(dtype), k.bits(dtype), v.bits(dtype)];
            let job = Job { device: backend.device()?, operands, shift };
            let found = (chained.run)(&job, keys)?.concat();
            within(&wanted, &found, &bounds, DType::F32)?;
        }
    }
    Ok(())
}

/// No iteration, one, one fewer than are in flight and more, whole and cut by as much as copies of whole chunks allow, and by
/// less; no iteration of the outer loop, one and several.
fn check_smem_dots(copied: &'static SmemDots, backend: Backend) -> Result<(), Failed> {
    let SmemDots { dtype, acc, tile: [m, n, step], stages, .. } = *copied;
    for k in [0, 16, step, (stages - 1) * step, stages * step + 16, 7 * step, step + 1] {
        let (a, b, c) = (whole(m, k, 4, 1), whole(n, k, 4, 2), whole(k, n, 4, 3));
        let added = whole(1, k + n, 100, 4);
        let added_rows =
            |column: usize| (0..k).step_by(step).map(|start| added.at(0, start + column)).sum::<f64>();
        let each =
            a.times(&b.transposed(), [m, n, k]).plus(&Matrix::new(m, n, |_, column| added_rows(column)));
        let (last, square) = (a.times(&c, [m, n, k]), a.times(&a.transposed(), [m, m, k]));
        for (rounds, shift) in [(0, 0), (1, 0), (3, 0), (2, 1)] {
            let operands = vec![a.bits(dtype), b.bits(dtype), c.bits(dtype), added.bits(acc)];
            let job = Job { device: backend.device()?, operands, shift };
            let results = (copied.run)(&job, rounds, k)?;
            let with_size = |error: Failed| {
                format!("{rounds} rounds of {k}, shift {shift}: {}", error.message().unwrap_or_default())
            };
            let times = |x: f64| rounds as f64 * x;
            exactly(&each.map(times).plus(&last), &results[0], acc).map_err(with_size)?;
            exactly(&square.map(times), &results[1], acc).map_err(with_size)?;
        }
    }
    Ok(())
}
