//! `out = act(a) * b` where each row of `x` is `a` and `b` concatenated: the gate of a feed-forward layer, for SiLU
//! (SwiGLU), GELU and GELU-tanh (GEGLU), with the activated half first or second. And the backward of SwiGLU.
//!
//! **Traffic.** Forward reads `2 d` and writes `d` elements a row, `3 * rows * d * size_of::<T>()` bytes; backward reads `3 d`
//! and writes `2 d`, recomputing the activation instead of having saved it.
//!
//! **Rounding.** In `f32`, rounded to `T` once; the activation's own bound (see [`crate::activation`]) and two roundings
//! more, relatively. Backward, `da = dy * b * s * (1 + a * (1 - s))` with `s = sigmoid(a)` is within
//! `16 * 2^-24 * |dy * b| * s * (1 + |a|)`, and `db = dy * silu(a)` within `10 * 2^-24` relatively.
//!
//! **Source.** Shazeer, *GLU Variants Improve Transformer*, 2020, arXiv:2002.05202, equations 5 and 6; packed as vLLM's
//! `silu_and_mul` has it.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::activation::Activation;
use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, along_rows, row_stride};

/// The elements of a row that one program of the gradient handles.
const BLOCK: usize = 4096;
/// The elements of several rows that one program handles: unaligned rows are loaded one by one, and the more a thread has of them, the
/// later its loads.
const TILE: usize = 1024;
/// The most columns of a program.
const COLUMNS: i32 = 512;
/// The columns of a program of one row, for matrices of less than so many elements. It is a warp, or two of `f32`, a vector to a thread:
/// such a launch is bound by latency.
const FEW_COLUMNS: usize = 256;
const FEW_ELEMENTS: i32 = 1 << 18;

/// Of rows of up to so many columns a program has a quarter of the columns that one of longer rows has, and four times as many rows.
const NARROW: i32 = 256;
const NARROW_COLUMNS: i32 = 128;
/// Of shorter rows it has so many.
const NARROWEST: i32 = 64;

/// The columns of a program, at least.
fn columns(n_rows: i32, d: i32) -> i32 {
    if d < FEW_ELEMENTS / n_rows.max(1) {
        FEW_COLUMNS as i32
    } else if d <= NARROWEST {
        NARROWEST
    } else if d <= NARROW {
        NARROW_COLUMNS
    } else {
        COLUMNS
    }
}

/// The rows of a program of so many columns.
const fn rows_of(columns: usize) -> usize {
    if columns == FEW_COLUMNS { 1 } else { TILE / columns }
}

#[fuse_module]
mod kernels {
    use dsl_runtime::prelude::*;

    use crate::activation::{Activation, activate};
    use crate::float::LibraryFloat;

    /// `out[r, j] = act(x[r, gate + j]) * x[r, d - gate + j]` for `j < d`, where `gate` is 0 or `d`: the half that is activated. A program
    /// handles `1024 / COLS` rows of `COLS` columns, or one of 256.
    #[fuse_kernel(
        T = [f32, f16, bf16], activation = [Activation::Gelu, Activation::GeluTanh, Activation::Silu], COLS = super::columns(n_rows, d) in [64, 128, 256, 512],
        num_warps = if COLS == 256 { if size_of::<T>() == 4 { 2 } else { 1 } } else { 4 },
    )]
    pub fn act_and_mul<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        out: &mut [T],
        activation: Activation,
        n_rows: i32,
        d: i32,
        x_stride: i32,
        out_stride: i32,
        gate: i32,
    ) {
        let row_tile = tl::program_id(2) * tl::num_programs(1) + tl::program_id(1);
        let rows = row_tile * (if COLS == 256 { 1 } else { 1024 / COLS })
            + tl::arange(0, if COLS == 256 { 1 } else { 1024 / COLS });
        let cols = tl::program_id(0) * COLS + tl::arange(0, COLS);
        let mask = (rows < n_rows).col() & (cols < d).row();
        let v = tl::load(x + ((rows * x_stride + gate).col() + cols.row()), mask).to::<f32>();
        let up = tl::load(x + ((rows * x_stride + (d - gate)).col() + cols.row()), mask).to::<f32>();
        let y = activate::<T>(v, activation);
        tl::store(out + ((rows * out_stride).col() + cols.row()), (y * up).to::<T>(), mask);
    }
}

pub use kernels::act_and_mul;

/// `dx` of `out = silu(a) * b`, with `a` at `gate`: recomputes the sigmoid from `x`.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [4096])]
pub fn swiglu_backward<T: LibraryFloat, const BLOCK: usize>(
    dy: &[T],
    x: &[T],
    dx: &mut [T],
    d: i32,
    dy_stride: i32,
    x_stride: i32,
    dx_stride: i32,
    gate: i32,
) {
    let row = tl::program_id(0);
    let cols = tl::program_id(1) * BLOCK + tl::arange(0, BLOCK);
    let mask = cols < d;
    let dy = tl::load(dy + row * dy_stride + cols, mask).to::<f32>();
    let a = tl::load(x + row * x_stride + gate + cols, mask).to::<f32>();
    let b = tl::load(x + row * x_stride + (d - gate) + cols, mask).to::<f32>();
    let s = tl::sigmoid(a);
    let da = dy * b * (s + a * s * tl::sigmoid(-a));
    let db = dy * (a * s);
    tl::store(dx + row * dx_stride + gate + cols, da.to::<T>(), mask);
    tl::store(dx + row * dx_stride + (d - gate) + cols, db.to::<T>(), mask);
}

/// Which half of a row is activated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// `act(x[..d]) * x[d..]`
    First,
    /// `x[..d] * act(x[d..])`
    Second,
}

impl Gate {
    /// Where the activated half starts.
    fn offset(self, d: usize) -> i32 {
        match self {
            Gate::First => 0,
            Gate::Second => d as i32,
        }
    }

    /// A row's activated half, then the other.
    fn halves<T>(self, row: &[T]) -> (&[T], &[T]) {
        let (first, second) = row.split_at(row.len() / 2);
        match self {
            Gate::First => (first, second),
            Gate::Second => (second, first),
        }
    }
}

/// The product of an activated half of each row and the other half: `ActAndMul::new(&x, d, Activation::Silu)`. The activation is SiLU,
/// GELU or GELU-tanh.
#[derive(Clone, Copy)]
pub struct ActAndMul<'a, T: LibraryFloat> {
    x: Rows<'a, T>,
    d: usize,
    activation: Activation,
    gate: Gate,
}

impl<'a, T: LibraryFloat> ActAndMul<'a, T> {
    /// Rows of `2 * d` elements, of which the first half is activated.
    pub fn new(x: impl Into<Rows<'a, T>>, d: usize, activation: Activation) -> Self {
        ActAndMul { x: x.into(), d, activation, gate: Gate::First }
    }

    /// Which half is activated.
    pub fn gate(self, gate: Gate) -> Self {
        ActAndMul { gate, ..self }
    }

    /// Computes into `out`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; if there is no kernel with the activation; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, out: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (&ActAndMul { x, d, activation, gate }, out) = (self, out.into());
        let checks = Checks("act_and_mul");
        activation.check(checks, &[Activation::Gelu, Activation::GeluTanh, Activation::Silu])?;
        let rows = checks.halves(("x", x.layout()), ("out", out.layout()), d)?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, out_stride] = [row_stride(x.layout(), 2 * d), row_stride(out.layout(), d)];
        let (x, out) = (x.memory(), out.into_memory());
        let [n_rows, d_i32] = [rows as i32, d as i32];
        let columns_per_program = columns(n_rows, d_i32) as usize;
        let grid = along_rows(d.div_ceil(columns_per_program), rows.div_ceil(rows_of(columns_per_program)));
        act_and_mul::<T>(x, out, activation, n_rows, d_i32, x_stride, out_stride, gate.offset(d))
            .grid(grid)
            .launch(on)
    }
}

/// The gradient of [`ActAndMul`] with SiLU: from the gradient of its result and its input.
#[derive(Clone, Copy)]
pub struct SwigluBackward<'a, T: LibraryFloat> {
    dy: Rows<'a, T>,
    x: Rows<'a, T>,
    d: usize,
    gate: Gate,
}

impl<'a, T: LibraryFloat> SwigluBackward<'a, T> {
    /// Rows of `d` elements of `dy` and `2 * d` of `x`, of which the first half is activated.
    pub fn new(dy: impl Into<Rows<'a, T>>, x: impl Into<Rows<'a, T>>, d: usize) -> Self {
        SwigluBackward { dy: dy.into(), x: x.into(), d, gate: Gate::First }
    }

    /// Which half is activated.
    pub fn gate(self, gate: Gate) -> Self {
        SwigluBackward { gate, ..self }
    }

    /// Computes the gradient of `x` into `dx`, on a device or stream.
    ///
    /// # Errors
    /// If the shapes do not fit each other, or rows are not contiguous; those of a launch.
    pub fn launch<'o>(&self, on: impl LaunchOn, dx: impl Into<RowsMut<'o, T>>) -> Result<()> {
        let (&SwigluBackward { dy, x, d, gate }, dx) = (self, dx.into());
        let checks = Checks("swiglu_backward");
        let rows = checks.halves(("x", x.layout()), ("dy", dy.layout()), d)?;
        checks.matrices(("x", x.layout()), [("dx", dx.layout())], 2 * d)?;
        if rows == 0 {
            return Ok(());
        }
        let [x_stride, dx_stride] = [x.layout(), dx.layout()].map(|layout| row_stride(layout, 2 * d));
        let dy_stride = row_stride(dy.layout(), d);
        let (dy, x, dx) = (dy.memory(), x.memory(), dx.into_memory());
        let call = swiglu_backward::<T, BLOCK>;
        let call = call(dy, x, dx, d as i32, dy_stride, x_stride, dx_stride, gate.offset(d));
        call.grid((rows, d.div_ceil(BLOCK))).launch(on)
    }
}

/// What [`ActAndMul`] computes, in `f64`, and the bound that the module's documentation states.
pub fn reference<T: Float>(x: &[T], d: usize, activation: Activation, gate: Gate) -> Vec<Expected> {
    let mut expected = Vec::with_capacity(x.len() / 2);
    for row in x.chunks(2 * d.max(1)) {
        let (gates, ups) = gate.halves(row);
        expected.extend(gates.iter().zip(ups).map(|(a, b)| {
            let (act, b) = (activation.exact(a.to_f64(), T::DTYPE), b.to_f64());
            let value = act.value * b;
            let within = act.within * b.abs() + 2.0 * unit_roundoff(DType::F32) * value.abs();
            Expected { value, within }.rounded(T::DTYPE)
        }));
    }
    expected
}

/// What [`SwigluBackward`] computes, in `f64`, and the bound that the module's documentation states.
pub fn backward_reference<T: Float>(dy: &[T], x: &[T], d: usize, gate: Gate) -> Vec<Expected> {
    let (unit, tiny) = (unit_roundoff(DType::F32), f64::from(f32::MIN_POSITIVE));
    let mut expected = Vec::with_capacity(x.len());
    for (dy, row) in dy.chunks(d.max(1)).zip(x.chunks(2 * d.max(1))) {
        let (gates, ups) = gate.halves(row);
        let pairs = dy.iter().zip(gates.iter().zip(ups));
        let pairs = pairs.map(|(dy, (a, b))| (dy.to_f64(), a.to_f64(), b.to_f64()));
        let (da, db): (Vec<Expected>, Vec<Expected>) = pairs
            .map(|(dy, a, b)| {
                let (s, silu) = (1.0 / (1.0 + (-a).exp()), Activation::Silu.exact(a, T::DTYPE).value);
                let slope = s + a * s * (1.0 / (1.0 + a.exp()));
                let size = (dy * b).abs() * (1.0 + a.abs());
                let da =
                    Expected { value: dy * b * slope, within: 16.0 * unit * size * s + 4.0 * size * tiny };
                let db = dy * silu;
                let flushed = 4.0 * tiny * dy.abs() * (1.0 + a.abs());
                let db = Expected { value: db, within: 10.0 * unit * db.abs() + flushed };
                (da.rounded(T::DTYPE), db.rounded(T::DTYPE))
            })
            .unzip();
        let (first, second) = if gate == Gate::First { (da, db) } else { (db, da) };
        expected.extend(first);
        expected.extend(second);
    }
    expected
}

/// The bytes that [`ActAndMul`] must move for `rows` rows of `2 * d` elements.
pub const fn traffic<T>(rows: usize, d: usize) -> usize {
    3 * rows * d * size_of::<T>()
}

/// The bytes that [`SwigluBackward`] must move for `rows` rows of `2 * d` elements.
pub const fn backward_traffic<T>(rows: usize, d: usize) -> usize {
    5 * rows * d * size_of::<T>()
}
