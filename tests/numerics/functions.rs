//! Functions that kernels call, against loops and formulas in `f64`.

use dsl_runtime::{DType, Device};
use fuse_test_kernels::case::{Failure, Job, Operand, Output, Run, untyped};
use fuse_test_kernels::functions::{
    ARG_REDUCTIONS, ArgReductions, Found, LIBRARY, NAMES, ORDERS, Order, SOFTMAX, shared,
};
use libtest_mimic::{Failed, Trial};

use crate::compare::{integer, show};
use crate::devices::{Backend, backends};
use crate::float::Format;
use crate::values::{self, Random, mask};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![];
    for backend in backends() {
        for run in LIBRARY {
            for (i, name) in NAMES.into_iter().enumerate() {
                let law = Law { run, backend, index: i };
                trials.push(Trial::test(format!("functions::{name}::{}::{backend}", run.dtype), move || {
                    law.check()
                }));
            }
        }
        for run in SOFTMAX {
            let name = format!("functions::softmax::{}::{backend}", run.dtype);
            trials.push(Trial::test(name, move || softmax(run, backend)));
        }
        for case in ARG_REDUCTIONS {
            let [m, n] = case.shape;
            let name = format!("functions::places::{}::{m}x{n}::{}_warps::{backend}", case.dtype, case.warps);
            trials.push(Trial::test(name, move || positions(case, backend)));
        }
        for order in ORDERS {
            let name = format!("functions::swizzle2d::{}::{backend}", order.dtype);
            trials.push(Trial::test(name, move || ordered(order, backend)));
        }
        let moments = move || Ok(moments(&backend.device()?)?);
        trials.push(Trial::test(format!("functions::moments::{backend}"), moments));
        let leaves = move || Ok(leaves(&backend.device()?)?);
        trials.push(Trial::test(format!("functions::leaves::{backend}"), leaves));
    }
    trials
}

// ---- the library

/// One function on one element type.
#[derive(Clone, Copy)]
struct Law {
    run: &'static Run,
    backend: Backend,
    index: usize,
}

impl Law {
    fn check(self) -> Result<(), Failed> {
        let dtype = self.run.dtype;
        let format = Format::of(dtype);
        let mut input = values::operands(&[dtype], Job::BLOCK).concat();
        // Where the functions are more than 0 and x.
        let mut random = Random(7);
        let spread = |random: &mut Random| (random.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0) * 40.0;
        input.extend((0..20_000).map(|_| format.round(spread(&mut random))));
        let job = Job { device: self.backend.device()?, operands: vec![input.clone()], shift: 1 };
        let results = (self.run.run)(&job)?;
        for (&bits, &found) in input.iter().zip(&results[self.index]) {
            let x = format.value(bits);
            let (wanted, units) = self.wanted(x);
            let value = format.value(found);
            if wanted.is_nan() || value.is_nan() {
                if wanted.is_nan() && value.is_nan() {
                    continue;
                }
            } else if format.distance(value, wanted) <= self.allowed(units) || self.tiny(x, wanted, value) {
                continue;
            }
            let off = format.distance(value, wanted);
            let name = NAMES[self.index];
            return Err(format!(
                "{name} of {x:e} is {wanted:e}, found {}: {off:.2} units",
                show(found, dtype)
            )
            .into());
        }
        Ok(())
    }

    /// The result, and how many units in the last place of `f32` or `f64` it may be off.
    fn wanted(self, x: f64) -> (f64, f64) {
        let z = 0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x);
        // A negative infinity times zero is where the formula has no value; the limit is 0.
        let sigmoid = |x: f64, z: f64| match z {
            z if z < -745.0 => 0.0,
            z if z < -700.0 => x * z.exp(),
            z => x / (1.0 + (-z).exp()),
        };
        match NAMES[self.index] {
            "relu" => (if x.is_nan() { x } else { x.max(0.0) }, 0.0),
            // Without FMA nothing takes back what the square was rounded by.
            "gelu" if self.run.dtype == DType::F64 && crate::levels::is_baseline() => (gelu(x), 16.0 + x * x),
            "gelu" => (gelu(x), 16.0),
            "gelu_tanh" => (sigmoid(x, 2.0 * z), 8.0 + 5.0 * z.abs()),
            "silu" => (sigmoid(x, x), 5.0),
            "softplus" => (x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }, 8.0),
            "nextafter" if x == 0.0 || x.is_nan() => (x, 0.0),
            "nextafter" => {
                let format = Format::of(self.run.dtype);
                (format.value(format.round(x) - 1), 0.0)
            }
            other => unreachable!("{other} has a law"),
        }
    }

    fn allowed(self, units: f64) -> f64 {
        match self.run.dtype {
            _ if units == 0.0 => 0.0,
            // Beside the rounding to 16 bits, and what the short forms cost.
            DType::F16 | DType::BF16 if NAMES[self.index] == "gelu" => 0.75,
            DType::F16 | DType::BF16 if self.has_short_form() => 0.57,
            DType::F16 => 0.5 + units / 8192.0,
            DType::BF16 => 0.5 + units / 65536.0,
            // The reference is a unit or two off itself, and gelu's some more.
            DType::F64 => 2.0 * units + 8.0,
            _ => units,
        }
    }

    /// Whether 16-bit floats go by a form whose power overflows where `sigmoid` is below the smallest normal `f32`.
    fn has_short_form(self) -> bool {
        matches!(NAMES[self.index], "gelu_tanh" | "silu")
    }

    /// Whether a result is so small that a factor of it is below the smallest normal `f32`, or `f64`: it has few digits
    /// then, and none on a GPU or by a short form.
    fn tiny(self, x: f64, wanted: f64, found: f64) -> bool {
        if NAMES[self.index] == "nextafter" {
            return false;
        }
        if self.run.dtype == DType::F64 {
            return wanted.abs() < f64::MIN_POSITIVE * x.abs() && (found - wanted).abs() <= x.abs() * 1e-323;
        }
        let least = f64::from(f32::MIN_POSITIVE) * x.abs().max(1.0);
        let unit = 2f64.powi(-149) * x.abs().max(1.0);
        let few = wanted.abs() < least && (found - wanted).abs() <= 2.0 * unit;
        let is_short = matches!(self.run.dtype, DType::F16 | DType::BF16) && self.has_short_form();
        few || (is_short || self.backend == Backend::Cuda)
            && wanted.abs() < 2.0 * least
            && found.abs() <= 2.0 * least
    }
}

/// `x erfc(-x / sqrt(2)) / 2`, with what rounding the argument takes put back: `erfc` falls like `exp(-a^2)`.
fn gelu(x: f64) -> f64 {
    if x < -39.0 {
        return 0.0;
    }
    let a = -x * std::f64::consts::FRAC_1_SQRT_2;
    let rest = (-x).mul_add(std::f64::consts::FRAC_1_SQRT_2, -a) + x * 4.833_646_656_726_457e-17;
    let slope = if a > 1.0 { 2.0 * a + 1.0 / a } else { 0.0 };
    let correction = if rest.is_finite() { 1.0 - rest * slope } else { 1.0 };
    x * 0.5 * libm::erfc(a) * correction
}

/// Rows with a negative infinity in them, one of nothing else, one with NaN.
fn softmax(run: &Run, backend: Backend) -> Result<(), Failed> {
    let format = Format::of(run.dtype);
    let mut random = Random(5);
    let mut input: Vec<u64> =
        (0..16 * 96).map(|_| format.round(random.below(4000) as f64 / 100.0 - 20.0)).collect();
    let low = format.round(f64::NEG_INFINITY);
    input[96..192].fill(low);
    (0..96).step_by(5).for_each(|i| input[192 + i] = low);
    input[300] = format.round(f64::NAN);
    let job = Job { device: backend.device()?, operands: vec![input.clone()], shift: 0 };
    let results = (run.run)(&job)?;
    for row in 0..16 {
        let x: Vec<f64> = input[row * 96..][..96].iter().map(|&bits| format.value(bits)).collect();
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
        for (i, x) in x.iter().enumerate() {
            let wanted = [(x - most).exp() / sum, x - most - sum.ln()];
            for (part, wanted) in wanted.into_iter().enumerate() {
                let found = format.value(results[part][row * 96 + i]);
                // The difference from the maximum is up to 40, and its rounding error multiplies the power.
                let unit = match run.dtype {
                    DType::F16 => 2f64.powi(-11),
                    DType::BF16 => 2f64.powi(-8),
                    DType::F32 => 2f64.powi(-18),
                    _ => 2f64.powi(-47),
                };
                let least = if run.dtype == DType::F16 && part == 0 { 2f64.powi(-24) } else { 0.0 };
                let close = (found - wanted).abs() <= wanted.abs() * unit * 1.01 + least;
                if !(close || found == wanted || found.is_nan() && wanted.is_nan()) {
                    return Err(
                        format!("row {row}, element {i}, part {part}: {found:e}, not {wanted:e}").into()
                    );
                }
            }
        }
    }
    Ok(())
}

// ---- positions

fn positions(case: &ArgReductions, backend: Backend) -> Result<(), Failed> {
    let [m, n] = case.shape;
    let programs = 6;
    let mut random = Random(m as u64 * 31 + n as u64);
    let value = |random: &mut Random| match case.dtype.is_float() {
        true => Format::of(case.dtype).round(random.below(9) as f64 - 4.0),
        // Many equal elements in some programs, any bits in others.
        false => random.bits() & mask(case.dtype),
    };
    let mut input: Vec<u64> = (0..programs * m * n).map(|_| value(&mut random)).collect();
    for (i, bits) in input.iter_mut().enumerate() {
        let program = i / (m * n);
        if program == 1 {
            *bits &= if case.dtype.is_float() { u64::MAX } else { 1 };
        }
        if case.dtype.is_float() {
            let format = Format::of(case.dtype);
            match program {
                2 if i % 7 == 3 => *bits = format.round(f64::NAN),
                3 => *bits = if i % 3 == 0 { format.sign() } else { 0 },
                4 if i % 11 == 0 => *bits = format.infinity() | if i % 2 == 0 { format.sign() } else { 0 },
                _ => {}
            }
        }
    }
    for shift in [0, 1] {
        let job = Job { device: backend.device()?, operands: vec![input.clone()], shift };
        let found = (case.run)(&job)?;
        for program in 0..programs {
            Tile { case, data: &input[program * m * n..][..m * n], program }.compare(&found)?;
        }
    }
    Ok(())
}

/// One program's tile.
struct Tile<'a> {
    case: &'a ArgReductions,
    data: &'a [u64],
    program: usize,
}

impl Tile<'_> {
    fn compare(&self, found: &Found) -> Result<(), Failed> {
        let [m, n] = self.case.shape;
        let groups: [Vec<Vec<u64>>; 3] = [
            (0..n).map(|col| (0..m).map(|row| self.data[row * n + col]).collect()).collect(),
            (0..m).map(|row| self.data[row * n..][..n].to_vec()).collect(),
            vec![self.data.to_vec()],
        ];
        for (axis, groups) in groups.iter().enumerate() {
            let start = self.program * groups.len();
            for (i, group) in groups.iter().enumerate() {
                let largest = self.first(group, |a, b| a > b);
                let smallest = self.first(group, |a, b| a < b);
                let what = format!("program {}, axis {axis}, {i}", self.program);
                self.same(&format!("argmax, {what}"), largest as u64, found.largest[axis][start + i])?;
                self.same(&format!("argmin, {what}"), smallest as u64, found.smallest[axis][start + i])?;
                if axis < 2 {
                    self.same(
                        &format!("max_index, {what}"),
                        group[largest],
                        found.elements[axis][start + i],
                    )?;
                }
            }
        }
        for (row, group) in groups[1].iter().enumerate() {
            let above = group.iter().filter(|&&bits| self.decode(bits) > 1.0).count();
            let wanted = [above > 0, above == group.len(), above % 2 == 1];
            for (i, wanted) in wanted.into_iter().enumerate() {
                let at = self.program * 3 * m + i * m + row;
                self.same(&format!("flag {i} of row {row}"), wanted.into(), found.flags[at])?;
            }
        }
        Ok(())
    }

    fn decode(&self, bits: u64) -> f64 {
        let dtype = self.case.dtype;
        if dtype.is_float() { Format::of(dtype).value(bits) } else { integer(bits, dtype) as f64 }
    }

    /// The first element that none is before; NaN is before everything.
    fn first(&self, group: &[u64], before: fn(f64, f64) -> bool) -> usize {
        if !self.case.dtype.is_float() {
            // As integers: 64 bits do not fit in a float.
            let rising = before(1.0, 0.0);
            let key = |bits: &u64| integer(*bits, self.case.dtype) * if rising { 1 } else { -1 };
            let best = group.iter().map(key).max().unwrap_or(0);
            return group.iter().position(|bits| key(bits) == best).unwrap_or(0);
        }
        let values: Vec<f64> = group.iter().map(|&bits| self.decode(bits)).collect();
        let nan = values.iter().position(|value| value.is_nan());
        nan.unwrap_or_else(|| {
            (1..values.len()).fold(0, |best, i| if before(values[i], values[best]) { i } else { best })
        })
    }

    fn same(&self, what: &str, wanted: u64, found: u64) -> Result<(), Failed> {
        if wanted == found { Ok(()) } else { Err(format!("{what} is {wanted}, found {found}").into()) }
    }
}

// ---- functions of a module

/// Groups of rows, each column by column.
fn ordered(order: &Order, backend: Backend) -> Result<(), Failed> {
    let device = backend.device()?;
    for [down, across, size] in
        [[1, 1, 1], [7, 5, 3], [16, 40, 8], [5, 64, 8], [9, 3, 1], [3, 7, 100], [33, 1, 16]]
    {
        let mut wanted = vec![];
        for first in (0..down).step_by(size) {
            for col in 0..across {
                wanted.extend((first..down.min(first + size)).map(|row| (row as u64, col as u64)));
            }
        }
        let results = (order.run)(&device, [down, across, size])?;
        let found: Vec<(u64, u64)> = results[0].iter().copied().zip(results[1].iter().copied()).collect();
        let both = [wanted.clone(), wanted].concat();
        if let Some(i) = (0..both.len()).find(|&i| found[i] != both[i]) {
            let text = format!("{down} x {across} by {size}: place {i} is {:?}, not {:?}", found[i], both[i]);
            return Err(text.into());
        }
    }
    Ok(())
}

fn moments(device: &Device) -> Result<(), Failure> {
    moments_by::<4>(device)?;
    moments_by::<32>(device)
}

fn moments_by<const WARPS: usize>(device: &Device) -> Result<(), Failure>
where
    shared::of_rows::Choice<{ shared::Form::Mean as u32 }, WARPS>: shared::of_rows::Declared,
    shared::of_rows::Choice<3, WARPS>: shared::of_rows::Declared,
    shared::of_rows::Choice<4, WARPS>: shared::of_rows::Declared,
{
    let mut random = Random(11);
    let x: Vec<f32> = (0..32 * 64).map(|_| 100.0 + random.below(1000) as f32 / 500.0).collect();
    let source = Operand::new(device, &x, 0)?;
    for n in [64, 1, 33] {
        let row = |i: usize| x[i * 64..][..n].iter().map(|&v| f64::from(v)).collect::<Vec<f64>>();
        let col = |i: usize| (0..32).map(|r| f64::from(x[r * 64 + i])).collect::<Vec<f64>>();
        let groups: Vec<Vec<f64>> = (0..32).map(row).chain((0..64).map(col)).collect();
        for form in [0, 3, 4] {
            let mut out = Output::<f32>::new(device, vec![98], 0)?;
            let times = n as i32;
            match form {
                0 => shared::of_rows::<{ shared::Form::Mean as u32 }, WARPS>(&source, &mut out, times)
                    .grid(1)
                    .launch(device)?,
                3 => shared::of_rows::<3, WARPS>(&source, &mut out, times).grid(1).launch(device)?,
                _ => shared::of_rows::<4, WARPS>(&source, &mut out, times).grid(1).launch(device)?,
            };
            let found = out.finish()?.concat();
            let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
            let value = |group: &[f64]| match form {
                0 => mean(group),
                3 => group.iter().map(|v| (v - mean(group)).powi(2)).sum::<f64>() / group.len() as f64,
                _ => group.len() as f64,
            };
            let all: Vec<f64> = groups[32..].concat();
            let rows: f64 = groups[..32].iter().map(|group| value(group)).sum();
            let wanted = groups.iter().map(|group| value(group)).chain([mean(&all), rows]);
            for (i, (wanted, bits)) in wanted.zip(found).enumerate() {
                let found = f64::from(f32::from_bits(bits as u32));
                // The mean is a hundred times the deviation, whose square loses as much.
                if (found - wanted).abs() > 1e-4 * wanted.abs() + 1e-7 {
                    return Err(format!("n = {n}, form {form}: {found} at {i}, not {wanted}").into());
                }
            }
        }
    }
    Ok(())
}

/// The kernel's own text, in Rust.
fn leaves_in_rust(out: &mut [i32], program: i32, n: i32) {
    if program >= n {
        return;
    }
    let mut iterations = [0i32; 16];
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
            (0..16).for_each(|lane| iterations[lane] += lane as i32 * j);
            if iterations.iter().sum::<i32>() > 20000 {
                out[1] = i * 100 + j;
                return;
            }
        }
        out[2 + i as usize] = j;
    }
    out[40..56].copy_from_slice(&iterations);
    out[0] = 1;
}

fn leaves(device: &Device) -> Result<(), Failure> {
    let programs = 24;
    let mut out = Output::<i32>::new(device, vec![programs * 64], 0)?;
    shared::leaves(&mut out, 20).grid(programs).launch(device)?;
    let untouched = Output::<i32>::untouched() as i32;
    let mut wanted = vec![untouched; programs * 64];
    for program in 0..programs {
        leaves_in_rust(&mut wanted[program * 64..][..64], program as i32, 20);
    }
    let found = out.finish()?.concat();
    match untyped(&wanted).iter().zip(&found).position(|(wanted, found)| wanted != found) {
        Some(i) => {
            Err(format!("program {}: element {} is {}, not {}", i / 64, i % 64, found[i] as i32, wanted[i])
                .into())
        }
        None => Ok(()),
    }
}
