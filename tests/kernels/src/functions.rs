//! Kernels that call functions: those of the language's own library, those of their module, and closures.

use dsl_runtime::prelude::*;

use crate::case::{Failure, Job, Output, Results, Run};

/// The functions of one operand that [`LIBRARY`] gives, in order; the next number is that towards `-x`.
pub const NAMES: [&str; 6] = ["relu", "gelu", "gelu_tanh", "silu", "softplus", "nextafter"];

#[fuse_kernel(T = [f16, bf16, f32, f64])]
fn library<T: Float>(x: &[T], out: &mut [T], n: i32) {
    let offsets = tl::program_id(0) * 1024 + tl::arange(0, 1024);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    tl::store(out + offsets, tl::relu(x), mask);
    tl::store(out + n + offsets, tl::gelu(x), mask);
    tl::store(out + 2 * n + offsets, tl::gelu_tanh(x), mask);
    tl::store(out + 3 * n + offsets, tl::silu(x), mask);
    tl::store(out + 4 * n + offsets, tl::softplus(x), mask);
    tl::store(out + 5 * n + offsets, tl::nextafter(x, -x), mask);
}

/// Each row of 96, then the logarithms of the same.
#[fuse_kernel(T = [f16, bf16, f32, f64])]
pub fn softmaxes<T: Float>(x: &[T], out: &mut [T]) {
    let (program, programs) = (tl::program_id(0), tl::num_programs(0));
    let offsets = program * 768 + tl::arange(0, 8).col() * 96 + tl::arange(0, 96).row();
    let x = tl::load(x + offsets);
    tl::store(out + offsets, tl::softmax(x, 1));
    tl::store(out + programs * 768 + offsets, tl::log_softmax(x));
}

macro_rules! library {
    ($($elem:ident),*) => {
        /// Every function of [`NAMES`] on each element type.
        pub static LIBRARY: &[Run] = &[$(Run {
            dtype: <$elem as Element>::DTYPE,
            run: |job| {
                let x = job.operand::<$elem>(0)?;
                let mut out = job.output::<$elem>(NAMES.len())?;
                library::<$elem>(&x, &mut out, job.len()).grid(job.grid()).launch(&job.device)?;
                out.finish()
            },
        }),*];

        /// Softmax and its logarithm of rows of 96 elements.
        pub static SOFTMAX: &[Run] = &[$(Run {
            dtype: <$elem as Element>::DTYPE,
            run: |job| {
                let x = job.operand::<$elem>(0)?;
                let mut out = job.output::<$elem>(2)?;
                softmaxes::<$elem>(&x, &mut out).grid(job.operands[0].len() / 768).launch(&job.device)?;
                out.finish()
            },
        }),*];
    };
}

library!(f16, bf16, f32, f64);

/// The order in which a grid of at most 64 columns is taken, by groups of `size` rows: a program finds one row of places
/// as a tile, then each of them as a scalar.
#[fuse_kernel(T = [i32, i64, u32])]
fn grouped<T: Integer>(rows: &mut [T], cols: &mut [T], down: T, across: T, size: T) {
    let (i, lanes) = (tl::program_id(0).to::<T>(), tl::arange(0, 64).to::<T>());
    let (row, col) = tl::swizzle2d(i, lanes, down, across, size);
    tl::store(rows + (i * across + lanes), row, lanes < across);
    tl::store(cols + (i * across + lanes), col, lanes < across);
    for j in 0..across.to::<i32>() {
        let place = i * across + j.to::<T>();
        let (row, col) = tl::swizzle2d(0, place, down, across, size);
        tl::store(rows + (down * across + place), row);
        tl::store(cols + (down * across + place), col);
    }
}

/// A kernel that finds the order of a grid.
#[derive(Debug)]
pub struct Order {
    pub dtype: DType,
    /// The rows, then the columns, in the order of places, each found twice. Takes how far the grid goes down and across,
    /// and the rows of a group.
    pub run: fn(&Device, [usize; 3]) -> Results,
}

macro_rules! orders {
    ($($elem:ident),*) => {
        pub static ORDERS: &[Order] = &[$(Order {
            dtype: <$elem as Element>::DTYPE,
            run: |device, [down, across, size]| {
                let mut rows = Output::<$elem>::new(device, vec![2 * down * across], 0)?;
                let mut cols = Output::<$elem>::new(device, vec![2 * down * across], 0)?;
                let call = grouped::<$elem>(&mut rows, &mut cols, down as $elem, across as $elem, size as $elem);
                call.grid(down).launch(device)?;
                Ok(vec![rows.finish()?.concat(), cols.finish()?.concat()])
            },
        }),*];
    };
}

orders!(i32, i64, u32);

/// A kernel that finds positions along each axis of a tile and in all of it.
#[derive(Debug)]
pub struct ArgReductions {
    pub dtype: DType,
    pub shape: [usize; 2],
    pub warps: usize,
    pub run: fn(&Job) -> Result<Found, Failure>,
}

/// What one launch gave, program by program: along the first axis, along the second, in the whole tile.
#[derive(Debug)]
pub struct Found {
    pub largest: Vec<Vec<u64>>,
    pub smallest: Vec<Vec<u64>>,
    /// The elements at the first two of `largest`.
    pub elements: Vec<Vec<u64>>,
    /// Whether any element is above 1, whether all are, and whether an odd number of them is, along the second axis.
    pub flags: Vec<u64>,
}

macro_rules! places {
    ($($elem:ident, [$m:tt, $n:tt], $warps:tt;)*) => {
        #[fuse_kernel(configs = [$({ T: $elem, M: $m, N: $n, WARPS: $warps, num_warps: $warps }),*])]
        fn places<T: Number, const M: usize, const N: usize, const WARPS: usize>(
            x: &[T], largest: &mut [i32], smallest: &mut [i32], elements: &mut [T], flags: &mut [bool],
        ) {
            let (program, programs) = (tl::program_id(0), tl::num_programs(0));
            let (rows, cols) = (tl::arange(0, M), tl::arange(0, N));
            let x = tl::load(x + program * (M * N) + rows.col() * N + cols.row());
            let by_col = program * N + cols;
            let (element, place) = tl::max_index(x, 0);
            tl::store(largest + by_col, place);
            tl::store(elements + by_col, element);
            tl::store(smallest + by_col, tl::argmin(x, 0));
            let by_row = programs * N + program * M + rows;
            let (element, place) = tl::max_index(x, 1, true);
            tl::store(largest + by_row.col(), place);
            tl::store(elements + by_row.col(), element);
            let (_, place) = tl::min_index(x, 1);
            tl::store(smallest + by_row, place);
            let whole = programs * (M + N) + program;
            tl::store(largest + whole, tl::argmax(x));
            tl::store(smallest + whole, tl::argmin(x));
            let above = x > 1;
            let flag = program * (3 * M) + rows;
            tl::store(flags + flag, tl::any(above, 1));
            tl::store(flags + M + flag, tl::all(above, 1));
            tl::store(flags + 2 * M + flag, tl::xor_sum(above, 1));
        }

        pub static ARG_REDUCTIONS: &[ArgReductions] = &[$(ArgReductions {
            dtype: <$elem as Element>::DTYPE, shape: [$m, $n], warps: $warps,
            run: |job| {
                let programs = job.operands[0].len() / ($m * $n);
                let x = job.operand::<$elem>(0)?;
                let lengths = vec![programs * $n, programs * $m, programs];
                let mut largest = Output::<i32>::new(&job.device, lengths.clone(), job.shift)?;
                let mut smallest = Output::<i32>::new(&job.device, lengths.clone(), job.shift)?;
                let mut elements = Output::<$elem>::new(&job.device, lengths[..2].to_vec(), job.shift)?;
                let mut flags = Output::<bool>::new(&job.device, vec![programs * 3 * $m], job.shift)?;
                let call = places::<$elem, $m, $n, $warps>(&x, &mut largest, &mut smallest, &mut elements, &mut flags);
                call.grid(programs).launch(&job.device)?;
                Ok(Found {
                    largest: largest.finish()?,
                    smallest: smallest.finish()?,
                    elements: elements.finish()?,
                    flags: flags.finish()?.concat(),
                })
            },
        }),*];
    };
}

places! {
    i8, [12, 40], 4;
    u64, [12, 40], 4;
    i32, [16, 64], 1;
    i32, [16, 64], 8;
    f16, [12, 40], 4;
    bf16, [12, 40], 2;
    f32, [16, 64], 1;
    f32, [16, 64], 32;
    f32, [1, 64], 4;
    f32, [64, 1], 4;
    f32, [2, 512], 8;
    f64, [12, 40], 4;
}

/// What a module shares among its kernels.
#[fuse_module]
pub mod shared {
    use dsl_runtime::{fuse_fn, fuse_kernel, prelude::*};

    const EMPTY: f32 = 0.0;

    /// What a variant leaves of a value.
    #[derive(Clone, Copy, Debug)]
    #[repr(u32)]
    pub enum Form {
        Mean,
        Variance = 3,
        Count,
    }

    /// Two sets of numbers as one: how many, their mean, the sum of squared distances from it.
    #[fuse_fn]
    fn joined(a: (f32, f32, f32), b: (f32, f32, f32)) -> (f32, f32, f32) {
        let ((n, mean, m2), (k, other, q)) = (a, b);
        let total = n + k;
        let part = if total == EMPTY { EMPTY } else { k / total };
        let delta = other - mean;
        (total, mean + delta * part, m2 + q + delta * delta * n * part)
    }

    #[fuse_fn]
    fn moments(x: Tile<f32>, mask: Tile<bool>, axis: usize) -> (Tile<f32>, Tile<f32>, Tile<f32>) {
        tl::reduce((mask.to::<f32>(), tl::select(mask, x, EMPTY), EMPTY), axis, joined)
    }

    #[fuse_fn]
    fn chosen<const FORM: u32>(n: Tile<f32>, mean: Tile<f32>, m2: Tile<f32>) -> Tile<f32> {
        match FORM {
            Form::Mean => mean,
            Form::Variance => m2 / n,
            Form::Count => return n,
            _ => tl::static_assert(false, "not a form"),
        }
    }

    /// Along both axes of a tile of 32 rows of 64, of which the first `n` count. Every thread with a result has
    /// the same one: the branch on it would hang otherwise.
    #[fuse_kernel(FORM = [Form::Mean, Form::Variance, Form::Count], WARPS = [4, 32], num_warps = WARPS)]
    pub fn of_rows<const FORM: u32, const WARPS: usize>(x: &[f32], out: &mut [f32], n: i32) {
        let (rows, cols) = (tl::arange(0, 32).col(), tl::arange(0, 64).row());
        let x = tl::load(x + rows * 64 + cols);
        let mask = tl::broadcast_to(cols < n, [32, 64]);
        let (count, mean, m2) = moments(x, mask, 1);
        let by_row = chosen::<FORM>(count, mean, m2);
        tl::store(out + tl::arange(0, 32), by_row);
        let (count, mean, m2) = moments(x, mask | true, 0);
        tl::store(out + 32 + tl::arange(0, 64), chosen::<FORM>(count, mean, m2));
        let (_, total, _) = tl::reduce((count, mean, m2), 0, joined);
        // As likely the one as the other, by the last bit.
        let last = if total > tl::sum(mean) / 64.0 { tl::sum(by_row) } else { -tl::sum(-by_row) };
        tl::store(out + 96, total);
        tl::store(out + 97, last);
    }

    /// Leaves early, from loops as well.
    #[fuse_kernel]
    pub fn leaves(out: &mut [i32], n: i32) {
        let program = tl::program_id(0);
        let out = out + program * 64;
        if program >= n {
            return;
        }
        let lanes = tl::arange(0, 16);
        let mut iterations = tl::zeros::<i32>([16]);
        for i in 0..program {
            if i % 3 == 1 {
                continue;
            }
            let mut j = 0;
            while j < 10 {
                j += 1;
                if j == i {
                    break;
                }
                iterations += lanes * j;
                if tl::sum(iterations, 0) > 20000 {
                    tl::store(out + 1, i * 100 + j);
                    return;
                }
            }
            tl::store(out + 2 + i, j);
        }
        tl::store(out + 40 + lanes, iterations);
        tl::store(out, 1);
    }
}

/// Functions for kernels of other crates.
#[fuse_module]
pub mod terms {
    use dsl_runtime::prelude::*;

    use super::powers::{EXPONENT, power};

    /// The elements of a program.
    pub const BLOCK: usize = 64;

    /// What is added up.
    pub enum Term {
        Itself,
        Power = 3,
    }

    /// The sum of a tile's terms, of which the caller changes each.
    #[fuse_fn]
    pub fn sum_of<T: Float, const TERM: u32>(x: Tile<T>, change: impl Fn(Tile<T>) -> Tile<T>) -> Tile<T> {
        tl::sum(change(term::<T, TERM>(x)), 0)
    }

    #[fuse_fn]
    fn term<T: Float, const TERM: u32>(x: Tile<T>) -> Tile<T> {
        match TERM {
            Term::Power => power::<T, EXPONENT>(x),
            _ => x,
        }
    }
}

#[fuse_module]
mod powers {
    use dsl_runtime::prelude::*;

    pub const EXPONENT: usize = 2;

    #[fuse_fn]
    pub(crate) fn power<T: Float, const EXPONENT: usize>(x: Tile<T>) -> Tile<T> {
        let mut power = x;
        for _ in tl::static_range(1, EXPONENT) {
            power *= x;
        }
        power
    }
}
