//! Masks, bounds and offsets against loops. Every output is between canaries, so a write outside is detected.

use dsl_runtime::{DType, Device, Element, Integer, Number, bf16, f8e4m3, f8e5m2, f16};
use fuse_test_kernels::case::{Bits, Failure, Operand, Output, typed, untyped};
use fuse_test_kernels::memory;
use libtest_mimic::Trial;

use crate::devices::{Backend, backends};
use crate::values::{Random, mask};

type Check = fn(&Device) -> Result<(), Failure>;

/// A check for each of several element types.
macro_rules! each {
    ($name:literal, $check:ident: $($elem:ty),*) => {
        vec![$((concat!($name, "::", stringify!($elem)), $check::<$elem> as Check)),*]
    };
    ($name:literal, $check:ident, $second:ty: $($elem:ty),*) => {
        vec![$((concat!($name, "::", stringify!($elem), "::", stringify!($second)), $check::<$elem, $second> as Check)),*]
    };
}

pub fn trials() -> Vec<Trial> {
    let checks: Vec<(&'static str, Check)> = [
        each!("copy", copy: bool, u8, u16, u32, u64, f8e4m3, f8e5m2, f16, bf16, f32, f64),
        each!("copy_all", copy_all: u8, u32, f64),
        each!("gather", gather, i32: bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64),
        each!("gather", gather, i64: bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64),
        each!("scatter", scatter, i32: bool, u8, u16, u32, u64, f16),
        each!("scatter", scatter, i64: bool, u8, u16, u32, u64, f16),
        each!("strided", strided: u8, u16, u32, u64),
        each!("strided_store", strided_store: u8, u16, u32, u64),
        each!("rows", rows: u8, f16, f32, f64),
        each!("masked", masked: bool, i8, u16, f16, bf16, f32, f64),
        each!("any_rows", any_rows: i8, u16, f16, f32),
        each!("short_rows", short_rows: i8, u16, f16, f32),
        each!("increment", increment: i32, f16),
        each!("scalars", scalars: bool, i8, i16, i32, i64, u8, u16, u32, u64, f8e4m3, f16, bf16, f32, f64),
        vec![("far", far), ("divided", divided), ("grid", grid), ("nothing", nothing), ("lengths", lengths)],
    ]
    .into_iter()
    .flatten()
    .collect();
    let trial = |backend: Backend, (name, check): (&'static str, Check)| {
        Trial::test(format!("memory::{name}::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    backends()
        .into_iter()
        .flat_map(|backend| checks.clone().into_iter().map(move |check| trial(backend, check)))
        .collect()
}

// ---- material

/// Elements of a fixed pattern.
fn pattern<T: Bits>(len: usize) -> Vec<T> {
    let mut random = Random(len as u64 + 1);
    typed(&(0..len).map(|_| random.bits() & mask(T::DTYPE)).collect::<Vec<_>>())
}

/// An element, or zero outside.
fn at<T: Bits>(x: &[T], index: i128) -> T {
    usize::try_from(index).ok().and_then(|index| x.get(index).copied()).unwrap_or_default()
}

fn same<T: Bits>(what: &str, found: &[u64], wanted: &[T]) -> Result<(), Failure> {
    let wanted = untyped(wanted);
    if found.len() != wanted.len() {
        return Err(format!("{what}: {} results, not {}", found.len(), wanted.len()).into());
    }
    match (0..found.len()).find(|&i| found[i] != wanted[i]) {
        Some(i) => Err(format!("{what}: element {i} is {:#x}, not {:#x}", found[i], wanted[i]).into()),
        None => Ok(()),
    }
}

/// Sizes that are 0, 1, prime, next to a power of two, or a multiple of much.
const SIZES: [usize; 16] = [0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 509, 512, 1023, 1024, 1025];

// ---- checks

/// Every size at every distance from alignment, and a mask that ends before the slice does.
fn copy<T: Bits>(device: &Device) -> Result<(), Failure>
where
    memory::copy::Choice<T, 64>: memory::copy::Declared,
    memory::copy::Choice<T, 256>: memory::copy::Declared,
{
    for shift in [0, 1, 2, 3, 8] {
        for size in (0..36).chain(SIZES) {
            for n in [size, size / 2 + 1, size + 1] {
                let x = pattern::<T>(size);
                let operand = Operand::new(device, &x, shift)?;
                let copied = n.min(size);
                let mut wanted = x[..copied].to_vec();
                wanted.resize(size, T::from_bits(Output::<T>::untouched()));
                let what = format!("{n} of {size} elements, {shift} off");
                let mut out = Output::new(device, vec![size], shift)?;
                memory::copy::<T, 64>(&operand, &mut out, n as i32).grid(n.div_ceil(64)).launch(device)?;
                same(&what, &out.finish()?.concat(), &wanted)?;
                let mut out = Output::new(device, vec![size], shift)?;
                memory::copy::<T, 256>(&operand, &mut out, n as i32).grid(n.div_ceil(256)).launch(device)?;
                same(&what, &out.finish()?.concat(), &wanted)?;
            }
        }
    }
    Ok(())
}

fn copy_all<T: Bits>(device: &Device) -> Result<(), Failure>
where
    memory::copy_all::Choice<T>: memory::copy_all::Declared,
{
    for (from, to) in SIZES.into_iter().flat_map(|from| [(from, from), (from, from + 5), (from + 300, from)])
    {
        let x = pattern::<T>(from);
        let operand = Operand::new(device, &x, 0)?;
        let mut out = Output::new(device, vec![to], 0)?;
        memory::copy_all::<T>(&operand, &mut out).grid(3 + to.div_ceil(256)).launch(device)?;
        let wanted: Vec<T> = (0..to).map(|i| at(&x, i as i128)).collect();
        same(&format!("{from} elements to {to}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

/// Indices inside, just outside, and where 32 or 64 bits end.
fn indices<I: Bits + Integer>(count: usize, len: usize) -> Vec<I> {
    let mut random = Random(count as u64);
    let special = [
        -1,
        -2,
        len as i64,
        len as i64 + 1,
        i64::MIN,
        i64::MAX,
        i64::from(i32::MIN),
        i64::from(i32::MAX),
        1 << 32,
    ];
    (0..count)
        .map(|i| {
            let value =
                if i % 5 == 3 { special[random.below(special.len())] } else { random.below(len) as i64 };
            // A 32-bit index cannot say most of them.
            let fits = I::DTYPE.bytes() == 8 || i32::try_from(value).is_ok();
            I::from_bits(if fits { value as u64 } else { u64::MAX })
        })
        .collect()
}

fn gather<T: Bits, I: Bits + Integer>(device: &Device) -> Result<(), Failure>
where
    memory::gather::Choice<T, I>: memory::gather::Declared,
{
    for (count, len) in [(1, 1), (128, 300), (500, 37), (1021, 4096)] {
        let x = pattern::<T>(len);
        let index = indices::<I>(count, len);
        let mask = pattern::<bool>(count);
        let other = T::from_bits(0x3c55_7755_4155_5501);
        let (source, indices, masks) =
            (Operand::new(device, &x, 1)?, Operand::new(device, &index, 0)?, Operand::new(device, &mask, 0)?);
        let mut outs = [0, 1, 0].map(|shift| Output::<T>::new(device, vec![count], shift));
        let [Ok(plain), Ok(masked), Ok(replaced)] = &mut outs else { return Err("no memory".into()) };
        let call = memory::gather::<T, I>(&source, &indices, &masks, other, plain, masked, replaced);
        call.grid(count.div_ceil(128)).launch(device)?;
        let inside = |i: usize| usize::try_from(as_i64(index[i])).is_ok_and(|index| index < len);
        let read = |i: usize| at(&x, i128::from(as_i64(index[i])));
        let wanted: [Vec<T>; 3] = [
            (0..count).map(read).collect(),
            (0..count).map(|i| if mask[i] { read(i) } else { T::default() }).collect(),
            (0..count).map(|i| if mask[i] && inside(i) { read(i) } else { other }).collect(),
        ];
        for ((name, out), wanted) in ["plain", "masked", "replaced"].iter().zip(outs).zip(wanted) {
            same(&format!("{name}, {count} of {len}"), &out?.finish()?.concat(), &wanted)?;
        }
    }
    Ok(())
}

fn as_i64<I: Element>(index: I) -> i64 {
    if I::DTYPE.bytes() == 4 { i64::from(index.bits() as i32) } else { index.bits() as i64 }
}

fn scatter<T: Bits, I: Bits + Integer>(device: &Device) -> Result<(), Failure>
where
    memory::scatter::Choice<T, I>: memory::scatter::Declared,
{
    for (count, len) in [(1, 1), (128, 300), (500, 777)] {
        let x = pattern::<T>(count);
        // Distinct indices, every fifth outside.
        let inside = |i: usize| (i * 379 + 11) % len;
        let outside = indices::<I>(count, len);
        let is_outside = |i: usize| {
            usize::try_from(as_i64(outside[i])).is_ok_and(|index| index >= len) || as_i64(outside[i]) < 0
        };
        let index: Vec<I> = (0..count)
            .map(|i| if is_outside(i) { outside[i] } else { I::from_bits(inside(i) as u64) })
            .collect();
        let mask = pattern::<bool>(count);
        let (source, indices, masks) =
            (Operand::new(device, &x, 1)?, Operand::new(device, &index, 1)?, Operand::new(device, &mask, 1)?);
        let mut out = Output::<T>::new(device, vec![len], 1)?;
        memory::scatter::<T, I>(&source, &indices, &masks, &mut out)
            .grid(count.div_ceil(128))
            .launch(device)?;
        let mut wanted = vec![T::from_bits(Output::<T>::untouched()); len];
        for i in (0..count).filter(|&i| !is_outside(i) && mask[i]) {
            wanted[inside(i)] = x[i];
        }
        same(&format!("{count} to {len}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

/// Strides that are zero, negative, odd, or so large that products leave 32 bits.
const STRIDES: [i32; 12] = [0, 1, -1, 2, 3, 16, -7, 1 << 20, 1 << 26, 1 << 30, i32::MAX, i32::MIN];

fn strided<T: Bits>(device: &Device) -> Result<(), Failure>
where
    memory::strided::Choice<T>: memory::strided::Declared,
{
    let x = pattern::<T>(1000);
    let source = Operand::new(device, &x, 0)?;
    for stride in STRIDES {
        for start in [0, 5, 999, -3, i32::MIN, i32::MAX] {
            let mut out = Output::<T>::new(device, vec![320], 0)?;
            memory::strided::<T>(&source, &mut out, start, stride).grid(5).launch(device)?;
            let index = |i: i128| i128::from(start) + i * i128::from(stride);
            let wanted: Vec<T> = (0..320).map(|i| at(&x, index(i))).collect();
            same(&format!("from {start} by {stride}"), &out.finish()?.concat(), &wanted)?;
        }
    }
    Ok(())
}

fn strided_store<T: Bits>(device: &Device) -> Result<(), Failure>
where
    memory::strided_store::Choice<T>: memory::strided_store::Declared,
{
    let x = pattern::<T>(300);
    let source = Operand::new(device, &x, 0)?;
    for stride in STRIDES.into_iter().filter(|stride| *stride != 0) {
        for start in [0, 5, 999, -3, i32::MIN] {
            let mut out = Output::<T>::new(device, vec![1000], 1)?;
            memory::strided_store::<T>(&source, &mut out, start, stride).grid(5).launch(device)?;
            let mut wanted = vec![T::from_bits(Output::<T>::untouched()); 1000];
            for (i, &value) in x.iter().enumerate() {
                let index = i128::from(start) + i as i128 * i128::from(stride);
                if let Some(slot) = usize::try_from(index).ok().and_then(|index| wanted.get_mut(index)) {
                    *slot = value;
                }
            }
            same(&format!("to {start} by {stride}"), &out.finish()?.concat(), &wanted)?;
        }
    }
    Ok(())
}

fn rows<T: Bits>(device: &Device) -> Result<(), Failure>
where
    memory::rows::Choice<T>: memory::rows::Declared,
{
    for (n_rows, n_cols, stride) in
        [(1, 1, 1), (8, 32, 32), (16, 64, 80), (13, 47, 51), (9, 100, 100), (5, 33, 0)]
    {
        for shift in [0, 1] {
            let x = pattern::<T>(n_rows * stride + n_cols);
            let source = Operand::new(device, &x, shift)?;
            let mut out = Output::<T>::new(device, vec![n_rows * n_cols], shift)?;
            let call = memory::rows::<T>(&source, &mut out, n_rows as i32, n_cols as i32, stride as i32);
            call.grid((n_rows.div_ceil(8), n_cols.div_ceil(32))).launch(device)?;
            let index = |i: usize| (i / n_cols * stride + i % n_cols) as i128;
            let wanted: Vec<T> = (0..n_rows * n_cols).map(|i| at(&x, index(i))).collect();
            same(&format!("{n_rows} by {n_cols}, {stride} apart"), &out.finish()?.concat(), &wanted)?;
        }
    }
    Ok(())
}

/// Masks that no rule makes, at every distance from alignment of what is read, of the mask and of what is written.
fn masked<T: Bits>(device: &Device) -> Result<(), Failure>
where
    memory::masked::Choice<T>: memory::masked::Declared,
{
    let mut random = Random(7);
    for (n, back) in [(1usize, 0usize), (40, 3), (511, 0), (512, 1), (513, 9), (1100, 17)] {
        for shift in (0..9).chain([15, 16]) {
            // Single elements, and runs longer than any vector.
            let long = random.bits().is_multiple_of(2);
            let mut taken = false;
            let take: Vec<bool> = (0..=n)
                .map(|_| {
                    let draw = random.bits() % 16;
                    taken = if long { taken ^ (draw == 0) } else { draw < 8 };
                    taken
                })
                .collect();
            let x = pattern::<T>(n);
            let other = T::from_bits(0xc0a5_a5a5_c0a5_c101 & mask(T::DTYPE));
            let source = Operand::new(device, &x, shift)?;
            let mask = Operand::new(device, &take, shift / 2)?;
            let mut out = Output::<T>::new(device, vec![n], 2 * shift)?;
            let call = memory::masked::<T>(&source, &mask, &mut out, n as i32, back as i32, other);
            call.grid(n.div_ceil(512)).launch(device)?;
            let wanted: Vec<T> = (0..n)
                .map(|i| match (take[i + 1], take[i] && i >= back) {
                    (false, _) => T::from_bits(Output::<T>::untouched()),
                    (true, true) => x[i - back],
                    (true, false) => other,
                })
                .collect();
            same(&format!("{n} elements, {back} back, {shift} off"), &out.finish()?.concat(), &wanted)?;
        }
    }
    Ok(())
}

/// Rows that begin at every distance from alignment, shorter than a vector and up to the last element of a tile.
fn any_rows<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    memory::whole_rows::Choice<T>: memory::whole_rows::Declared,
    memory::rows_in_pieces::Choice<T>: memory::rows_in_pieces::Declared,
{
    let widths = (1..20).chain(228..=257).chain([500, 511, 513, 701, 999, 1007, 1009, 1022, 1023, 1024]);
    // Of many warps one has the ends.
    let long = [1025, 1030, 4099, 6143, 8161].into_iter().chain(8175..=8192);
    for n_cols in widths.chain(long) {
        let n_rows = 17;
        let number = |i: usize| T::from_f64((i * 7 % 61) as f64);
        let x: Vec<T> = (0..n_rows * n_cols).map(number).collect();
        let w: Vec<T> = (0..n_cols).map(|i| T::from_f64((i % 5) as f64)).collect();
        let less = |i: usize| (i * 7 % 61) as f64 - (i % n_cols % 5) as f64;
        let sum = |row: usize, skip: usize| -> f32 {
            // An empty `sum` is -0.0.
            (skip..n_cols).fold(0.0, |sum, i| sum + ((row * n_cols + i) * 7 % 61) as f32 + (i % 5) as f32)
        };
        // Where a number of an unsigned type would be negative it is 0.
        let wanted = |i: usize| T::from_f64(if T::DTYPE == DType::U16 { less(i).max(0.0) } else { less(i) });
        let source = Operand::new(device, &x, 0)?;
        let column = Operand::new(device, &w, 0)?;
        let v: Vec<T> = (0..n_cols).map(|i| T::from_f64((i % 3) as f64)).collect();
        let other = Operand::new(device, &v, 0)?;
        for skip in [None, Some(0), Some(3), Some(n_cols / 2)] {
            let mut out = Output::<T>::new(device, vec![n_rows * n_cols], 0)?;
            let mut sums = Output::<f32>::new(device, vec![n_rows], 0)?;
            match skip {
                None => {
                    let (n_cols, out) = (n_cols as i32, &mut out);
                    let call = memory::whole_rows::<T>(&source, &column, &other, out, &mut sums, n_cols);
                    call.grid(n_rows).launch(device)?;
                }
                Some(skip) => {
                    let skip = skip as i32;
                    let call = memory::rows_in_pieces::<T>(
                        &source,
                        &column,
                        &mut out,
                        &mut sums,
                        n_cols as i32,
                        skip,
                    );
                    call.grid(n_rows).launch(device)?;
                }
            }
            let more: f32 = if skip.is_none() { (0..n_cols).map(|i| (i % 3) as f32).sum() } else { 0.0 };
            let skip = skip.unwrap_or(0);
            let what = format!("rows of {n_cols} from {skip} on");
            let untouched = T::from_bits(Output::<T>::untouched());
            let elements: Vec<T> =
                (0..n_rows * n_cols).map(|i| if i % n_cols < skip { untouched } else { wanted(i) }).collect();
            same(&what, &out.finish()?.concat(), &elements)?;
            let totals: Vec<f32> = (0..n_rows).map(|row| sum(row, skip) + more).collect();
            same(&format!("sums of {what}"), &sums.finish()?.concat(), &totals)?;
        }
    }
    Ok(())
}

/// Short rows that begin and end anywhere, up to the last element of the slice, which begins anywhere too.
fn short_rows<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    memory::short_rows::Choice<T>: memory::short_rows::Declared,
{
    for n_cols in (1..20).chain(55..=65).chain([127, 200, 257, 500, 509, 511, 512]) {
        for (n_rows, shift) in [(1, 0), (7, 1), (19, 0), (19, 3)] {
            let x: Vec<T> = (0..n_rows * n_cols).map(|i| T::from_f64((i * 7 % 61) as f64)).collect();
            let source = Operand::new(device, &x, shift)?;
            let tile = if n_cols <= 64 { 64 } else { 512 };
            for skip in [0, 3, n_cols / 2] {
                let mut sums = Output::<f32>::new(device, vec![n_rows], 0)?;
                let mut rests = Output::<f32>::new(device, vec![n_rows], 0)?;
                let (rows, cols, other) = (n_rows as i32, n_cols as i32, T::from_f64(5.0));
                memory::short_rows::<T>(&source, &mut sums, &mut rests, rows, cols, skip as i32, other)
                    .grid(n_rows.div_ceil(8))
                    .launch(device)?;
                let sum = |row: usize, from: usize| -> f32 {
                    (from..n_cols).map(|i| ((row * n_cols + i) * 7 % 61) as f32).fold(0.0, |sum, x| sum + x)
                };
                let what = format!("{n_rows} rows of {n_cols} from {skip} on, {shift} off");
                let beyond = 5.0 * (tile - n_cols) as f32;
                let all: Vec<f32> = (0..n_rows).map(|row| sum(row, 0) + beyond).collect();
                same(&what, &sums.finish()?.concat(), &all)?;
                let rest: Vec<f32> = (0..n_rows).map(|row| sum(row, skip)).collect();
                same(&format!("the rest of {what}"), &rests.finish()?.concat(), &rest)?;
            }
        }
    }
    Ok(())
}

fn increment<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    memory::increment::Choice<T>: memory::increment::Declared,
{
    for n in [0usize, 1, 127, 128, 1000] {
        let x: Vec<T> = (0..n).map(|i| T::from_f64((i % 100) as f64)).collect();
        let mut data = device.upload(&x)?;
        memory::increment::<T>(&mut data, n as i32).grid(n.div_ceil(128)).launch(device)?;
        // Twice the new value less the old one.
        let wanted: Vec<T> = (0..n).map(|i| T::from_f64((i % 100) as f64 + 2.0)).collect();
        same(&format!("{n} in place"), &untyped(&data.download()?), &wanted)?;
    }
    Ok(())
}

fn scalars<T: Bits>(device: &Device) -> Result<(), Failure>
where
    memory::scalars::Choice<T>: memory::scalars::Declared,
{
    let x = pattern::<T>(50);
    let value = T::from_bits(0xc0a5_a5a5_c0a5_c1a5);
    let source = Operand::new(device, &x, 1)?;
    let mut out = Output::<T>::new(device, vec![120], 1)?;
    memory::scalars::<T>(&source, value, &mut out).grid(70).launch(device)?;
    let untouched = T::from_bits(Output::<T>::untouched());
    let wanted = (0..60).flat_map(|i| [at(&x, i), if i % 3 != 1 { value } else { untouched }]);
    same("scalars", &out.finish()?.concat(), &wanted.collect::<Vec<T>>())
}

/// A program's id times a step: an address does not wrap, a scalar does.
fn far(device: &Device) -> Result<(), Failure> {
    let x = pattern::<u32>(200);
    let source = Operand::new(device, &x, 0)?;
    for step in [0, 16, -16, 1 << 30, (1 << 30) + 16, i32::MIN, i32::MAX, 0x5555_5556] {
        let mut out = Output::<u32>::new(device, vec![9 * 32], 0)?;
        let mut products = Output::<i32>::new(device, vec![9], 0)?;
        memory::far(&source, &mut out, &mut products, step).grid(9).launch(device)?;
        let index = |i: i128| i / 32 * i128::from(step) + i % 32;
        let wanted: Vec<u32> = (0..288).map(|i| at(&x, index(i))).collect();
        same(&format!("steps of {step}"), &out.finish()?.concat(), &wanted)?;
        let wanted: Vec<i32> = (0..9).map(|program: i32| program.wrapping_mul(step)).collect();
        same(&format!("products with {step}"), &products.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn divided(device: &Device) -> Result<(), Failure> {
    let x = pattern::<i32>(150);
    let source = Operand::new(device, &x, 0)?;
    for start in [0, 1, 64, -64, -100, -128, i32::MIN, i32::MAX - 127] {
        for by in [1, 2, 3, 16, -1, -3, 0, i32::MIN] {
            let mut out = Output::<i32>::new(device, vec![128; 6], 0)?;
            memory::divided(&source, &mut out, start, by).grid(2).launch(device)?;
            let results = out.finish()?;
            for (which, result) in results.iter().enumerate() {
                let wanted: Vec<i32> = (0..128)
                    .map(|i| at(&x, divided_place(which, i128::from(start) + i, i, i128::from(by))))
                    .collect();
                same(&format!("result {which} from {start} by {by}"), result, &wanted)?;
            }
        }
    }
    Ok(())
}

/// The backend that result `which` reads for `value = start + i`.
fn divided_place(which: usize, value: i128, i: i128, by: i128) -> i128 {
    match which {
        0 if by == 0 => 0,
        0 => value / by,
        1 if by == 0 => value,
        1 => value % by,
        2 => value / 8 * 8 + i % 8,
        3 => value >> 2,
        4 => value & 15,
        _ if by == 0 => 0,
        _ => value / by + i128::from(value % by != 0 && (value < 0) == (by < 0)),
    }
}

fn grid(device: &Device) -> Result<(), Failure> {
    for [nx, ny, nz] in [[1, 1, 1], [3, 4, 5], [17, 1, 2], [1, 33, 1], [2, 1, 7], [300, 2, 1]] {
        let count = (nx * ny * nz * 6) as usize;
        let mut out = Output::<i32>::new(device, vec![count], 0)?;
        memory::places(&mut out).grid((nx, ny, nz)).launch(device)?;
        let mut wanted = vec![];
        for z in 0..nz {
            for y in 0..ny {
                (0..nx).for_each(|x| wanted.extend([x, y, z, nx, ny, nz]));
            }
        }
        same(&format!("a grid of {nx}, {ny}, {nz}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

/// A grid of zero runs nothing, and slices may be empty.
fn nothing(device: &Device) -> Result<(), Failure> {
    for grid in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0)] {
        let mut out = Output::<i32>::new(device, vec![6], 0)?;
        memory::places(&mut out).grid(grid).launch(device)?;
        same("nothing", &out.finish()?.concat(), &[typed::<i32>(&[Output::<i32>::untouched()])[0]; 6])?;
    }
    let empty = Operand::<u8>::new(device, &[], 0)?;
    let mut out = Output::<u8>::new(device, vec![0], 0)?;
    memory::copy_all::<u8>(&empty, &mut out).grid(2).launch(device)?;
    out.finish()?;
    Ok(())
}

fn lengths(device: &Device) -> Result<(), Failure> {
    let (x, y) = (Operand::<u8>::new(device, &[1; 77], 1)?, Operand::<f64>::new(device, &[], 0)?);
    let mut out = Output::<i64>::new(device, vec![3], 0)?;
    memory::lengths(&x, &y, &mut out).grid(1).launch(device)?;
    same("lengths", &out.finish()?.concat(), &[77i64, 0, 3])
}
