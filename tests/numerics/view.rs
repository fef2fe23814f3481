//! Views against loops over indices: every layout, blocks over every edge, and nothing written outside.

use std::array::from_fn;

use dsl_runtime::{Device, Slice, SliceMut, View, ViewMut, bf16, f8e4m3, f8e5m2, f16};
use fuse_test_kernels::case::{Bits, Failure, Operand, Output, typed, untyped};
use fuse_test_kernels::view;
use libtest_mimic::Trial;

use crate::devices::{Backend, backends};
use crate::values::{Random, mask};

type Check = fn(&Device) -> Result<(), Failure>;

/// A check for each of several element types.
macro_rules! each {
    ($name:literal, $check:ident: $($elem:ty),*) => {
        vec![$((concat!($name, "::", stringify!($elem)), $check::<$elem> as Check)),*]
    };
}

pub fn trials() -> Vec<Trial> {
    let checks: Vec<(&'static str, Check)> = [
        each!("copy", copy: bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64),
        each!("copy_1", copy_1: u8, f32),
        each!("copy_3", copy_3: u8, f32),
        each!("copy_4", copy_4: u8, f32),
        each!("copy_5", copy_5: u8, f32),
        each!("transpose", transpose: u8, f32),
        each!("row_sums", row_sums: f16, f32, f64),
        each!("increment", increment: i32, f16),
        each!("add", add: i32, u64, f32, f16),
        vec![("far", far), ("numbers", numbers), ("last_column", last_column)],
    ]
    .into_iter()
    .flatten()
    .collect();
    let trial = |backend: Backend, (name, check): (&'static str, Check)| {
        Trial::test(format!("view::{name}::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    // The CPU's levels are not specializations.
    let on_gpus: [(&'static str, Check); 1] = [("bodies", bodies)];
    let more = |backend: Backend| if backend == Backend::Cuda { on_gpus.to_vec() } else { vec![] };
    backends()
        .into_iter()
        .flat_map(|backend| {
            checks.clone().into_iter().chain(more(backend)).map(move |check| trial(backend, check))
        })
        .collect()
}

// ---- the model

/// A view without its memory.
#[derive(Clone, Copy, Debug)]
struct Layout<const R: usize> {
    shape: [usize; R],
    strides: [usize; R],
}

impl<const R: usize> Layout<R> {
    /// Elements of memory from the first to the last.
    fn len(&self) -> usize {
        let reach = (0..R).map(|axis| self.shape[axis].saturating_sub(1) * self.strides[axis]);
        if self.shape.contains(&0) { 0 } else { 1 + reach.sum::<usize>() }
    }

    /// The element of memory at an index, if it lies inside.
    fn at(&self, index: [i128; R]) -> Option<usize> {
        let inside = (0..R).all(|axis| (0..self.shape[axis] as i128).contains(&index[axis]));
        inside.then(|| (0..R).map(|axis| index[axis] as usize * self.strides[axis]).sum())
    }

    fn of<'a, T: Bits>(&self, memory: impl Into<Slice<'a, T>>) -> Result<View<'a, T, R>, Failure> {
        Ok(View::strided(memory, self.shape, self.strides)?)
    }

    fn of_mut<'a, T: Bits>(&self, memory: impl Into<SliceMut<'a, T>>) -> Result<ViewMut<'a, T, R>, Failure> {
        Ok(ViewMut::strided(memory, self.shape, self.strides)?)
    }
}

/// Every index of a shape.
fn indices<const R: usize>(shape: [usize; R]) -> impl Iterator<Item = [i128; R]> {
    (0..shape.iter().product::<usize>()).map(move |mut at| {
        let mut index = [0; R];
        for axis in (0..R).rev() {
            index[axis] = (at % shape[axis]) as i128;
            at /= shape[axis];
        }
        index
    })
}

fn plus<const R: usize>(a: [i128; R], b: [i128; R]) -> [i128; R] {
    from_fn(|axis| a[axis] + b[axis])
}

/// Layouts of a shape: rows side by side, some elements apart, by columns, with every axis apart from every other; where
/// elements are only read, also the same row over and over, one column, one element.
fn layouts<const R: usize>(shape: [usize; R], read_only: bool) -> Vec<Layout<R>> {
    let nested = |inner: usize, pad: usize, order: [usize; R]| {
        let mut strides = [0; R];
        let mut stride = inner;
        for (i, axis) in order.into_iter().enumerate() {
            strides[axis] = stride;
            stride *= shape[axis].max(1);
            if i == 0 {
                stride = (stride + pad).max(inner);
            }
        }
        Layout { shape, strides }
    };
    let last_first: [usize; R] = from_fn(|i| R - 1 - i);
    let first_first: [usize; R] = from_fn(|i| i);
    let to_sixteen = shape[R - 1].next_multiple_of(16) - shape[R - 1];
    let mut all = vec![
        nested(1, 0, last_first),
        nested(1, to_sixteen + 16, last_first),
        nested(1, 3, last_first),
        nested(1, 0, first_first),
        nested(2, 1, first_first),
        nested(3, 0, last_first),
    ];
    if read_only {
        let mut row = nested(1, 0, last_first);
        row.strides[0] = 0;
        let mut column = nested(1, 0, last_first);
        column.strides[R - 1] = 0;
        all.extend([row, column, Layout { shape, strides: [0; R] }]);
    }
    all
}

/// Elements of a fixed pattern.
fn pattern<T: Bits>(len: usize) -> Vec<T> {
    let mut random = Random(len as u64 + 1);
    typed(&(0..len).map(|_| random.bits() & mask(T::DTYPE)).collect::<Vec<_>>())
}

/// Small integers, whose sums are exact.
fn counts<T: Bits>(len: usize) -> Vec<T> {
    (0..len).map(|i| T::from_f64((i * 7 % 13) as f64)).collect()
}

fn untouched<T: Bits>(len: usize) -> Vec<T> {
    vec![T::from_bits(Output::<T>::untouched()); len]
}

fn same<T: Bits>(what: &str, out: Output<T>, wanted: &[T]) -> Result<(), Failure> {
    let (found, wanted) = (out.finish()?.concat(), untyped(wanted));
    match (0..found.len()).find(|&i| found[i] != wanted[i]) {
        Some(i) => Err(format!("{what}: element {i} is {:#x}, not {:#x}", found[i], wanted[i]).into()),
        None => Ok(()),
    }
}

/// A copy of blocks: how far off they are read and written, and the programs and elements of a block along each axis.
#[derive(Clone, Copy, Debug)]
struct Copy<const R: usize> {
    from: [i128; R],
    to: [i128; R],
    /// Blocks along each axis, and a block's extents.
    grid: [usize; R],
    block: [usize; R],
}

impl<const R: usize> Copy<R> {
    /// What a copy leaves in memory.
    fn wanted<T: Bits>(&self, x: &[T], from: Layout<R>, to: Layout<R>) -> Vec<T> {
        let mut out = untouched::<T>(to.len());
        let all: [usize; R] = from_fn(|axis| self.grid[axis] * self.block[axis]);
        for index in indices(all) {
            if let Some(position) = to.at(plus(index, self.to)) {
                out[position] = from.at(plus(index, self.from)).map_or(T::default(), |position| x[position]);
            }
        }
        out
    }
}

/// Every layout of these shapes with offsets and distances from alignment taken in turn; along the axes from the fourth on
/// there is one block.
fn copies<T: Bits, const R: usize>(
    device: &Device,
    shapes: &[[usize; R]],
    offsets: &[([i128; R], [i128; R])],
    block: [usize; R],
    launch: fn(View<'_, T, R>, ViewMut<'_, T, R>, Copy<R>, &Device) -> dsl_runtime::Result<()>,
) -> Result<(), Failure> {
    let mut turn = 0;
    for &shape in shapes {
        for from in layouts(shape, true) {
            for &(start, end) in offsets {
                turn += 1;
                let to = layouts(shape, false)[turn % 6];
                let shift = [0, 1, 8][turn % 3];
                let blocks = |axis: usize| shape[axis].div_ceil(block[axis]) + turn % 2;
                let grid = from_fn(|axis| if axis < 3 { blocks(axis) } else { 1 });
                let copy = Copy { from: start, to: end, grid, block };
                let x = pattern::<T>(from.len());
                let operand = Operand::new(device, &x, shift)?;
                let mut out = Output::new(device, vec![to.len()], shift)?;
                launch(from.of(&operand)?, to.of_mut(&mut out)?, copy, device)?;
                same(
                    &format!("{from:?} to {to:?} by {copy:?}, {shift} off"),
                    out,
                    &copy.wanted(&x, from, to),
                )?;
            }
        }
    }
    Ok(())
}

// ---- checks

fn copy<T: Bits>(device: &Device) -> Result<(), Failure>
where
    view::copy::Choice<T>: view::copy::Declared,
{
    let shapes = [[0, 5], [5, 0], [1, 1], [7, 31], [8, 32], [9, 33], [16, 64], [17, 70], [24, 96]];
    let offsets = [
        ([0, 0], [0, 0]),
        ([-3, -5], [0, 0]),
        ([0, 0], [-3, -5]),
        ([2, 7], [1, 3]),
        ([-1000, 0], [0, 0]),
        ([0, 1000], [0, 0]),
        ([0, 0], [i128::from(i32::MIN), i128::from(i32::MAX) - 200]),
    ];
    copies::<T, 2>(device, &shapes, &offsets, [8, 32], |x, out, copy, device| {
        let [from, to] = [copy.from, copy.to].map(|offsets| offsets.map(|offset| offset as i32));
        view::copy::<T>(x, out, from[0], from[1], to[0], to[1])
            .grid((copy.grid[0], copy.grid[1]))
            .launch(device)
    })
}

/// Offsets that are the same along every axis.
fn diagonal<const R: usize>() -> [([i128; R], [i128; R]); 5] {
    [(0, 0), (-3, 0), (0, -1), (1, 2), (40, 0)].map(|(from, to)| ([from; R], [to; R]))
}

fn copy_1<T: Bits>(device: &Device) -> Result<(), Failure>
where
    view::copy_1::Choice<T>: view::copy_1::Declared,
{
    let shapes = [[0], [1], [63], [64], [65], [300]];
    copies::<T, 1>(device, &shapes, &diagonal(), [64], |x, out, copy, device| {
        view::copy_1::<T>(x, out, copy.from[0] as i32, copy.to[0] as i32).grid(copy.grid[0]).launch(device)
    })
}

fn copy_3<T: Bits>(device: &Device) -> Result<(), Failure>
where
    view::copy_3::Choice<T>: view::copy_3::Declared,
{
    let shapes = [[1, 1, 1], [2, 4, 16], [3, 5, 17], [3, 0, 17], [5, 3, 40]];
    copies::<T, 3>(device, &shapes, &diagonal(), [2, 4, 16], |x, out, copy, device| {
        let [i, j, k] = copy.grid;
        view::copy_3::<T>(x, out, copy.from[0] as i32, copy.to[0] as i32).grid((i, j, k)).launch(device)
    })
}

fn copy_4<T: Bits>(device: &Device) -> Result<(), Failure>
where
    view::copy_4::Choice<T>: view::copy_4::Declared,
{
    let shapes = [[1, 1, 1, 1], [2, 2, 4, 16], [3, 3, 5, 13], [2, 3, 1, 16]];
    copies::<T, 4>(device, &shapes, &diagonal(), [1, 2, 4, 16], |x, out, copy, device| {
        let [i, j, k, _] = copy.grid;
        view::copy_4::<T>(x, out, copy.from[0] as i32, copy.to[0] as i32).grid((i, j, k)).launch(device)
    })
}

fn copy_5<T: Bits>(device: &Device) -> Result<(), Failure>
where
    view::copy_5::Choice<T>: view::copy_5::Declared,
{
    let shapes = [[1, 1, 1, 1, 1], [2, 1, 2, 8, 1], [3, 2, 3, 7, 1], [2, 2, 2, 8, 1]];
    copies::<T, 5>(device, &shapes, &diagonal(), [2, 1, 2, 8, 1], |x, out, copy, device| {
        let [i, j, k, ..] = copy.grid;
        view::copy_5::<T>(x, out, copy.from[0] as i32, copy.to[0] as i32).grid((i, j, k)).launch(device)
    })
}

/// Offsets where 32 and 64 bits end.
fn far(device: &Device) -> Result<(), Failure> {
    let rows = [
        0,
        1,
        -1,
        3,
        4,
        -4,
        i64::MIN,
        i64::MIN + 1,
        i64::MIN + 5,
        i64::MAX,
        i64::MAX - 3,
        1 << 32,
        -(1 << 32),
    ];
    let cols = [0u64, 7, 8, 1 << 31, 1 << 63, (1 << 63) + 1, u64::MAX, u64::MAX - 6];
    for from in layouts([4, 8], true) {
        for (row, col) in rows.into_iter().flat_map(|row| cols.map(|col| (row, col))) {
            let to = Layout { shape: [4, 8], strides: [8, 1] };
            let x = pattern::<u16>(from.len());
            let operand = Operand::new(device, &x, 0)?;
            let mut out = Output::new(device, vec![to.len()], 0)?;
            view::far(from.of(&operand)?, to.of_mut(&mut out)?, row, col).grid(1).launch(device)?;
            let offsets = [i128::from(row), i128::from(col)];
            let mut wanted = untouched::<u16>(to.len());
            let stores = [(offsets, [0, 0]), ([0, 0], offsets)];
            for (index, (load, store)) in
                stores.into_iter().flat_map(|pair| indices([4, 8]).map(move |i| (i, pair)))
            {
                if let Some(position) = to.at(plus(index, store)) {
                    wanted[position] = from.at(plus(index, load)).map_or(0, |position| x[position]);
                }
            }
            same(&format!("{from:?} at {row}, {col}"), out, &wanted)?;
        }
    }
    Ok(())
}

fn transpose<T: Bits>(device: &Device) -> Result<(), Failure>
where
    view::transpose::Choice<T>: view::transpose::Declared,
{
    for (rows, cols) in [(1, 1), (16, 32), (17, 33), (48, 64), (5, 100)] {
        for from in layouts([rows, cols], true) {
            for to in layouts([cols, rows], false) {
                let x = pattern::<T>(from.len());
                let operand = Operand::new(device, &x, 0)?;
                let mut out = Output::new(device, vec![to.len()], 0)?;
                view::transpose::<T>(from.of(&operand)?, to.of_mut(&mut out)?)
                    .grid((rows.div_ceil(16), cols.div_ceil(32)))
                    .launch(device)?;
                let mut wanted = untouched::<T>(to.len());
                for [row, col] in indices([rows, cols]) {
                    if let (Some(position), Some(source)) = (to.at([col, row]), from.at([row, col])) {
                        wanted[position] = x[source];
                    }
                }
                same(&format!("{from:?} to {to:?}"), out, &wanted)?;
            }
        }
    }
    Ok(())
}

fn row_sums<T: Bits + dsl_runtime::Float>(device: &Device) -> Result<(), Failure>
where
    view::row_sums::Choice<T>: view::row_sums::Declared,
{
    for shape in [[1, 1], [4, 64], [5, 65], [9, 200], [3, 0]] {
        for from in layouts(shape, true) {
            let [rows, cols] = shape;
            let x = counts::<T>(from.len());
            let operand = Operand::new(device, &x, 0)?;
            let mut out = Output::<T>::new(device, vec![rows], 1)?;
            let mut found = Output::<i32>::new(device, vec![rows], 0)?;
            let sums = ViewMut::new(&mut out, [rows])?;
            view::row_sums::<T>(from.of(&operand)?, sums, &mut found)
                .grid(rows.div_ceil(4))
                .launch(device)?;
            let row = |row: usize| {
                let positions = (0..cols).filter_map(move |col| from.at([row as i128, col as i128]));
                positions.map(|position| (position * 7 % 13) as f64).collect::<Vec<_>>()
            };
            let sums: Vec<T> =
                (0..rows).map(|i| T::from_f64(row(i).iter().fold(0.0, |sum, value| sum + value))).collect();
            let others: Vec<i32> =
                (0..rows).map(|i| row(i).iter().filter(|&&value| value != 0.0).count() as i32).collect();
            same(&format!("sums of {from:?}"), out, &sums)?;
            same(&format!("counts of {from:?}"), found, &others)?;
        }
    }
    Ok(())
}

fn increment<T: Bits + dsl_runtime::Number>(device: &Device) -> Result<(), Failure>
where
    view::increment::Choice<T>: view::increment::Declared,
{
    for shape in [[1, 1], [4, 16], [7, 40], [9, 15]] {
        for layout in layouts(shape, false) {
            let x = counts::<T>(layout.len());
            let mut out = Output::holding(device, &x, 0)?;
            view::increment::<T>(layout.of_mut(&mut out)?)
                .grid((shape[0].div_ceil(4), shape[1].div_ceil(16)))
                .launch(device)?;
            let mut wanted = x.clone();
            for position in indices(shape).filter_map(|index| layout.at(index)) {
                wanted[position] = T::from_f64((position * 7 % 13 + 2) as f64);
            }
            same(&format!("{layout:?}"), out, &wanted)?;
        }
    }
    Ok(())
}

fn add<T: Bits + dsl_runtime::Number>(device: &Device) -> Result<(), Failure>
where
    view::add::Choice<T>: view::add::Declared,
{
    const PROGRAMS: usize = 5;
    for shape in [[4, 16], [3, 7], [9, 40]] {
        for (layout, at) in layouts(shape, false).into_iter().flat_map(|one| [(one, 0), (one, -2), (one, 3)])
        {
            let x = counts::<T>(PROGRAMS * 64);
            let operand = Operand::new(device, &x, 0)?;
            let start = counts::<T>(layout.len());
            let mut total = Output::holding(device, &start, 0)?;
            let mut before = Output::<T>::new(device, vec![PROGRAMS * 64], 0)?;
            let matrix = View::new(&operand, [PROGRAMS * 4, 16])?;
            let seen = ViewMut::new(&mut before, [PROGRAMS * 4, 16])?;
            view::add::<T>(matrix, layout.of_mut(&mut total)?, seen, at).grid(PROGRAMS).launch(device)?;
            let count = |i: usize| i * 7 % 13;
            let mut wanted = start.clone();
            for [row, col] in indices([4, 16]) {
                let Some(position) = layout.at([row + i128::from(at), col + i128::from(at)]) else {
                    continue;
                };
                let own = (row * 16 + col) as usize;
                let sum = (0..PROGRAMS).map(|program| count(program * 64 + own)).sum::<usize>();
                wanted[position] = T::from_f64((count(position) + sum) as f64);
            }
            same(&format!("{layout:?} at {at}"), total, &wanted)?;
            // Every program saw its element before its own addition; those outside of the view are 0.
            let before: Vec<T> = typed(&before.finish()?.concat());
            for ([row, col], program) in indices([4, 16]).flat_map(|i| (0..PROGRAMS).map(move |p| (i, p))) {
                let inside = layout.at([row + i128::from(at), col + i128::from(at)]).is_some();
                let seen = before[program * 64 + (row * 16 + col) as usize];
                if !inside && seen != T::default() {
                    return Err(format!("{layout:?} at {at}: {seen:?} was outside").into());
                }
            }
        }
    }
    Ok(())
}

fn numbers(device: &Device) -> Result<(), Failure> {
    let x = vec![0u8; 1000];
    let operand = Operand::new(device, &x, 0)?;
    for layout in [
        Layout { shape: [2, 3, 4], strides: [12, 4, 1] },
        Layout { shape: [0, 3, 1], strides: [(1 << 40) - 1, 0, 7] },
        Layout { shape: [1, 3, (1 << 40) - 1], strides: [1, 5, 0] },
        Layout { shape: [2, 1, 3], strides: [9, 7, 4] },
    ] {
        let mut out = Output::<i64>::new(device, vec![6], 0)?;
        view::numbers(layout.of(&operand)?, &mut out).grid(1).launch(device)?;
        let found: Vec<i64> = typed(&out.finish()?.concat());
        let wanted = layout.shape.iter().chain(&layout.strides);
        for (position, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
            // Along an axis of one element, and in an empty view, any stride does.
            let counts = position < 3 || layout.shape[position - 3] > 1 && !layout.shape.contains(&0);
            if counts && found != wanted as i64 {
                return Err(format!("{layout:?}: number {position} is {found}").into());
            }
        }
    }
    Ok(())
}

fn last_column(device: &Device) -> Result<(), Failure> {
    for shape in [[1, 1], [8, 3], [9, 40], [4, 0]] {
        for from in layouts(shape, true) {
            let x = pattern::<i32>(from.len());
            let operand = Operand::new(device, &x, 0)?;
            let mut out = Output::<i32>::new(device, vec![shape[0]], 0)?;
            let column = ViewMut::new(&mut out, [shape[0], 1])?;
            view::last_column(from.of(&operand)?, column).grid(shape[0].div_ceil(8)).launch(device)?;
            let value =
                |row: usize| from.at([row as i128, shape[1] as i128 - 1]).map_or(0, |position| x[position]);
            let wanted: Vec<i32> = (0..shape[0]).map(value).collect();
            same(&format!("{from:?}"), out, &wanted)?;
        }
    }
    Ok(())
}

/// Which specialization a launch takes, and why not the faster one.
fn bodies(device: &Device) -> Result<(), Failure> {
    let x = vec![0.0f32; 2000];
    let near = Layout { shape: [16, 64], strides: [64, 1] };
    let cases: [(Layout<2>, usize, i32, &str, Option<&str>); 5] = [
        (near, 0, 0, "copy_f32_aligned", None),
        (near, 1, 0, "copy_f32_general", Some("x is not 16-byte aligned")),
        (Layout { strides: [1, 16], ..near }, 0, 0, "copy_f32_general", Some("x.stride(1) is not 1 (16)")),
        (
            Layout { strides: [66, 1], ..near },
            0,
            0,
            "copy_f32_general",
            Some("4 does not divide x.stride(0) (66)"),
        ),
        (near, 0, -4, "copy_f32_general", Some("0 (0) is not at most from_row (-4)")),
    ];
    for (layout, shift, from, entry, reason) in cases {
        let operand = Operand::new(device, &x, shift)?;
        let mut out = Output::<f32>::new(device, vec![1024], 0)?;
        let (x, out) = (layout.of(&operand)?, near.of_mut(&mut out)?);
        let trace = view::copy::<f32>(x, out, from, 0, 0, 0).grid((2, 2)).trace(device)?;
        let specialization = trace.specialization.ok_or("no body")?;
        let passed = specialization.passed_over.first().map(|(_, reason)| reason.as_str());
        let is_expected = match (passed, reason) {
            (None, None) => true,
            (Some(passed), Some(reason)) => passed.starts_with(reason),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if specialization.entry != entry || !is_expected {
            return Err(format!(
                "{layout:?}, {shift} off, from {from}: {}, {passed:?}",
                specialization.entry
            )
            .into());
        }
    }
    Ok(())
}
