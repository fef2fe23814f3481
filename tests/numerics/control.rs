//! Loops and branches against Rust's own.

use dsl_runtime::{Device, Float, Integer, Number, bf16, f16};
use fuse_test_kernels::case::{Bits, Failure, Operand, Output, typed, untyped};
use fuse_test_kernels::control;
use libtest_mimic::Trial;

use crate::devices::{Backend, backends};
use crate::float::Format;
use crate::values::{Random, mask};

type Check = fn(&Device) -> Result<(), Failure>;

pub fn trials() -> Vec<Trial> {
    let checks: [(&'static str, Check); 25] = [
        ("sum_rows::i8", sum_rows::<i8>),
        ("sum_rows::i32", sum_rows::<i32>),
        ("sum_rows::u64", sum_rows::<u64>),
        ("sum_rows::bf16", sum_rows::<bf16>),
        ("sum_rows::f32", sum_rows::<f32>),
        ("sum_rows::f64", sum_rows::<f64>),
        ("hints", hints),
        ("closed", closed),
        ("parts", parts),
        ("rotate::i32", rotate::<i32>),
        ("rotate::f32", rotate::<f32>),
        ("triangle", triangle),
        ("branches::false", branches::<false>),
        ("branches::true", branches::<true>),
        ("whiles", whiles),
        ("uneven::1_warp", uneven::<1>),
        ("uneven::2_warps", uneven::<2>),
        ("uneven::8_warps", uneven::<8>),
        ("reused::1_warp", reused::<1>),
        ("reused::4_warps", reused::<4>),
        ("reused::16_warps", reused::<16>),
        ("compound::i32", compound::<i32>),
        ("compound::u8", compound::<u8>),
        ("literals::halves", |device| literals::<f16>(device).and_then(|()| literals::<bf16>(device))),
        ("literals::floats", |device| literals::<f32>(device).and_then(|()| literals::<f64>(device))),
    ];
    let trial = |backend: Backend, (name, check): (&'static str, Check)| {
        Trial::test(format!("control::{name}::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    backends()
        .into_iter()
        .flat_map(|backend| checks.into_iter().map(move |check| trial(backend, check)))
        .collect()
}

// ---- material

/// Small whole numbers.
fn whole_numbers<T: Number>(len: usize) -> Vec<T> {
    let mut random = Random(len as u64);
    (0..len).map(|_| T::from_f64(random.below(7) as f64)).collect()
}

fn integers(len: usize) -> Vec<i32> {
    let mut random = Random(len as u64);
    (0..len).map(|_| random.bits() as i32 >> 16).collect()
}

pub(super) fn same<T: Bits>(what: &str, found: &[u64], wanted: &[T]) -> Result<(), Failure> {
    let wanted = untyped(wanted);
    match (0..found.len().max(wanted.len())).find(|&i| found.get(i) != wanted.get(i)) {
        Some(i) => {
            let (found, wanted) = (typed::<T>(&found[i..=i])[0], typed::<T>(&wanted[i..=i])[0]);
            Err(format!("{what}: element {i} is {found:?}, not {wanted:?}").into())
        }
        None => Ok(()),
    }
}

/// The values a loop runs over; a step below 1 counts as 1.
fn range(low: i64, high: i64, step: i64) -> impl Iterator<Item = i64> + Clone {
    (low..high).step_by(usize::try_from(step).unwrap_or(0).max(1))
}

const RANGES: [(i32, i32, i32); 13] = [
    (0, 0, 1),
    (0, 1, 1),
    (0, 7, 1),
    (0, 8, 3),
    (3, 11, 2),
    (5, 2, 1),
    (-3, 4, 1),
    (-7, 9, 4),
    (0, 5, 100),
    (0, 4, 0),
    (0, 4, -2),
    (i32::MAX - 5, i32::MAX, 3),
    (i32::MIN, i32::MIN + 7, 2),
];

// ---- checks

fn sum_rows<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    control::sum_rows::Choice<T>: control::sum_rows::Declared,
{
    let x = whole_numbers::<T>(12 * 64);
    let source = Operand::new(device, &x, 0)?;
    for (low, high, step) in RANGES {
        let mut out = Output::<T>::new(device, vec![64], 0)?;
        let mut counts = Output::<i32>::new(device, vec![2], 0)?;
        control::sum_rows::<T>(&source, &mut out, &mut counts, low, high, step).grid(1).launch(device)?;
        let rows = range(low.into(), high.into(), step.into());
        let what = format!("{low}..{high} by {step}");
        let at = |row: i64, col: usize| {
            usize::try_from(row).ok().and_then(|row| x.get(row * 64 + col)).map_or(0.0, |v| v.to_f64())
        };
        let wanted: Vec<T> =
            (0..64).map(|col| T::from_f64(rows.clone().fold(0.0, |sum, row| sum + at(row, col)))).collect();
        same(&what, &out.finish()?.concat(), &wanted)?;
        let wanted = [rows.clone().count() as i32, rows.last().map_or(-1000, |row| row as i32)];
        same(&format!("turns of {what}"), &counts.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn hints(device: &Device) -> Result<(), Failure> {
    let x = integers(20 * 64);
    let source = Operand::new(device, &x, 0)?;
    for (low, high, step) in
        [(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1), (2, 19, 1), (1, 18, 5), (-2, 25, 3)]
    {
        let mut out = Output::<i32>::new(device, vec![64, 64, 1], 0)?;
        control::sum_rows_hinted(&source, &mut out, low, high, step).grid(1).launch(device)?;
        let results = out.finish()?;
        let at = |row: i64, col: usize| {
            usize::try_from(row).ok().and_then(|row| x.get(row * 64 + col)).copied().unwrap_or(0)
        };
        let sum = |col| range(low, high, step).fold(0i32, |sum, row| sum.wrapping_add(at(row, col)));
        let wanted: Vec<i32> = (0..64).map(sum).collect();
        same(&format!("num_stages, {low}..{high} by {step}"), &results[0], &wanted)?;
        same(&format!("unroll, {low}..{high} by {step}"), &results[1], &wanted)?;
        same("inclusive", &results[2], &[(low..=high).sum::<i64>() as i32])?;
    }
    Ok(())
}

/// Closed ranges include their end, also where it is the last number of its type.
fn closed(device: &Device) -> Result<(), Failure> {
    let narrow = [
        (i32::MAX - 2, i32::MAX, 1),
        (i32::MAX - 5, i32::MAX, 3),
        (i32::MAX, i32::MAX, 7),
        (i32::MIN, i32::MAX, i32::MAX),
        (0, 0, 1),
        (1, 0, 1),
        (-3, 4, 2),
    ];
    let wide = [
        (i64::MAX - 2, i64::MAX, 1),
        (i64::MAX, i64::MAX, 9),
        (i64::MIN, i64::MAX, i64::MAX),
        (i64::MAX, i64::MIN, 1),
        (-3, 4, 2),
        (5, 5, 1),
        (6, 5, 1),
    ];
    for ((low, high, step), (low_wide, high_wide, step_wide)) in narrow.into_iter().zip(wide) {
        let mut out = Output::<i64>::new(device, vec![4], 0)?;
        control::closed(&mut out, low, high, step, low_wide, high_wide, step_wide).grid(1).launch(device)?;
        let of = |low: i64, high: i64, step: i64| {
            let integers = (low..=high).step_by(step as usize);
            [integers.clone().count() as i64, integers.fold(0i64, i64::wrapping_add)]
        };
        let wanted = [of(low.into(), high.into(), step.into()), of(low_wide, high_wide, step_wide)].concat();
        let what = format!("{low}..={high} by {step}, {low_wide}..={high_wide} by {step_wide}");
        same(&what, &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn parts(device: &Device) -> Result<(), Failure> {
    for (pair, n) in [([1071, 462], 5), ([4_000_000_000, 7], 3), ([0, 5], 1), ([17, 0], 4), ([3, 5], 0)] {
        let mut out = Output::<u32>::new(device, vec![5], 0)?;
        control::parts(&Operand::new(device, &pair, 0)?, &mut out, n).grid(1).launch(device)?;
        let ([mut a, mut b], mut steps, mut odd, mut even) = (pair, 0u32, 0u32, 0u32);
        for iteration in 0..n {
            if b != 0 {
                (a, b) = (b, a % b);
                steps += 1;
            }
            match iteration % 2 {
                0 => even = even.wrapping_add(a),
                _ => odd = odd.wrapping_mul(3).wrapping_add(a),
            }
        }
        let wanted = [a, steps | 0xffff, even, odd, even & !0xff];
        same(&format!("{pair:?}, {n} turns"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn rotate<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    control::rotate::Choice<T>: control::rotate::Declared,
{
    let x = whole_numbers::<T>(96);
    let source = Operand::new(device, &x, 0)?;
    for n in [0, 1, 2, 3, 4, 20] {
        let mut out = Output::<T>::new(device, vec![128], 0)?;
        control::rotate::<T>(&source, &mut out, n).grid(1).launch(device)?;
        let mut wanted = x.clone();
        wanted.rotate_left(n as usize % 3 * 32);
        let fibonacci = (0..n).fold((0, 1), |(older, newer), _| (newer, older + newer)).0;
        wanted.extend(vec![T::from_f64(f64::from(fibonacci)); 32]);
        same(&format!("{n} turns"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn triangle(device: &Device) -> Result<(), Failure> {
    for n in [-1, 0, 1, 2, 5, 17] {
        let mut out = Output::<i32>::new(device, vec![33], 0)?;
        control::triangle(&mut out, n).grid(1).launch(device)?;
        let (mut total, mut iterations) = (0, 0);
        for (i, j) in (0..n).flat_map(|i| (0..i).map(move |j| (i, j))) {
            for k in j..i {
                total += i * 100 + j * 10 + k;
                iterations += 1;
            }
            total -= 1;
        }
        let mut wanted = vec![total];
        wanted.extend([iterations; 32]);
        same(&format!("a triangle of {n}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn branches<const FLAG: bool>(device: &Device) -> Result<(), Failure>
where
    control::branches::Choice<FLAG>: control::branches::Declared,
{
    let x = integers(32);
    let source = Operand::new(device, &x, 0)?;
    for choice in -2..6 {
        let mut out = Output::<i32>::new(device, vec![160], 0)?;
        control::branches::<FLAG>(&source, &mut out, choice).grid(1).launch(device)?;
        let mut wanted: Vec<i32> = vec![];
        let mut y: Vec<i32> = if choice > 2 { x.iter().map(|v| v * 10).collect() } else { x.clone() };
        wanted.extend(&y);
        let (scale, by, less) = match choice {
            1 => (1, 1, 0),
            2 => (2, 2, 0),
            _ => (1, 3, 7),
        };
        wanted.extend(x.iter().map(|v| (v * scale - less) * by));
        if choice % 2 == 0 && choice > 0 || choice == -1 {
            y.iter_mut().for_each(|v| *v += if choice > 3 { 5 } else { -5 });
            wanted.extend(&y);
        } else {
            wanted.extend([typed::<i32>(&[Output::<i32>::untouched()])[0]; 32]);
        }
        let sign = if FLAG && choice > 0 { -1 } else { 1 };
        wanted.extend(y.iter().map(|v| v * sign * if FLAG { 1 } else { 2 }));
        wanted.extend(x.iter().map(|v| v + if choice > 0 { 3 } else { 4 }));
        same(&format!("choice {choice}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn whiles(device: &Device) -> Result<(), Failure> {
    for (start, limit) in [(1, 0), (2, 1), (27, 2), (97, 1000), (837_799, 1 << 40)] {
        let mut out = Output::<i64>::new(device, vec![18], 0)?;
        control::whiles(&mut out, start, limit).grid(1).launch(device)?;
        let (mut n, mut steps) = (start, 0);
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        let (mut power, mut tile) = (1i64, [1i64; 16]);
        while power < limit {
            power *= 3;
            (0i64..).zip(&mut tile).for_each(|(i, v)| *v = *v * 3 + i);
        }
        let wanted = [&[steps, power], tile.as_slice()].concat();
        same(&format!("from {start} to {limit}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn uneven<const WARPS: usize>(device: &Device) -> Result<(), Failure>
where
    control::uneven::Choice<WARPS>: control::uneven::Declared,
{
    let x = integers(256);
    let source = Operand::new(device, &x, 0)?;
    let mut out = Output::<i32>::new(device, vec![101], 0)?;
    control::uneven::<WARPS>(&source, &mut out).grid(101).launch(device)?;
    let wanted: Vec<i32> = (0..101).map(|program| uneven_total(&x, program)).collect();
    same("programs", &out.finish()?.concat(), &wanted)
}

fn uneven_total(x: &[i32], program: i32) -> i32 {
    let mut total = 0i32;
    for i in 0..program % 5 {
        let largest = (0..).zip(x).map(|(lane, v)| v + i * lane).max().unwrap_or(0);
        let terms = (0..).zip(x).map(|(lane, &v)| if lane < i * 50 { v } else { largest });
        total = terms.fold(total, i32::wrapping_add);
    }
    let by_col = |col: usize| (0..16).map(|row| x[row * 16 + col]).max().unwrap_or(0);
    let by_row = |row: usize| (0..16).map(|col| x[row * 16 + col]).max().unwrap_or(0);
    total.wrapping_add(match program % 3 {
        1 => x.iter().map(|v| v * program).min().unwrap_or(0),
        2 => (0..16).map(by_col).sum::<i32>() - (0..16).map(by_row).sum::<i32>(),
        _ => 0,
    })
}

fn reused<const WARPS: usize>(device: &Device) -> Result<(), Failure>
where
    control::reused::Choice<WARPS>: control::reused::Declared,
{
    let x = integers(1024);
    let source = Operand::new(device, &x, 0)?;
    for n in [0, 1, 2, 7] {
        let mut out = Output::<i32>::new(device, vec![1056], 0)?;
        control::reused::<WARPS>(&source, &mut out, n).grid(1).launch(device)?;
        let (mut tile, mut sums) = (x.clone(), vec![0i32; 32]);
        for i in 0..n {
            for k in 0..32 {
                let row = tile[k * 32..][..32].iter().fold(0i32, |sum, &v| sum.wrapping_add(v));
                let largest = (0..32).map(|r| tile[r * 32 + k]).max().unwrap_or(0);
                sums[k] = sums[k].wrapping_add(row).wrapping_sub(largest.wrapping_mul(i));
            }
            tile = (0..1024).map(|at| tile[at % 32 * 32 + at / 32].wrapping_add(sums[at % 32])).collect();
        }
        tile.extend(sums);
        same(&format!("{n} turns"), &out.finish()?.concat(), &tile)?;
    }
    Ok(())
}

fn compound<T: Bits + Integer>(device: &Device) -> Result<(), Failure>
where
    control::compound::Choice<T>: control::compound::Declared,
{
    let mut random = Random(1);
    let mut draw = || typed::<T>(&(0..64).map(|_| random.bits() & mask(T::DTYPE)).collect::<Vec<_>>());
    let (x, y) = (draw(), draw());
    let (first, second) = (Operand::new(device, &x, 0)?, Operand::new(device, &y, 0)?);
    let mut out = Output::<T>::new(device, vec![64], 0)?;
    control::compound::<T>(&first, &second, &mut out).grid(1).launch(device)?;
    let wrap =
        |value: i64| if T::DTYPE.bytes() == 1 { i64::from(value as u8) } else { i64::from(value as i32) };
    let wanted = x.iter().zip(&y).map(|(&x, &y)| {
        let (mut z, y) = (wrap(x.bits() as i64), wrap(y.bits() as i64));
        z = wrap(z + y);
        z = wrap(z * 3);
        z = wrap(z - y) / 2;
        z = (z ^ y | 4) & 123;
        z = wrap(z << 2) >> 1;
        T::from_bits((z % 50) as u64)
    });
    same("z", &out.finish()?.concat(), &wanted.collect::<Vec<T>>())
}

fn literals<T: Bits + Float>(device: &Device) -> Result<(), Failure>
where
    control::literals::Choice<T>: control::literals::Declared,
{
    let mut out = Output::<T>::new(device, vec![16; 8], 0)?;
    control::literals::<T>(&mut out).grid(1).launch(device)?;
    let format = Format::of(T::DTYPE);
    let largest = format.value(format.infinity() - 1);
    let integers = [
        5.0,
        1.000_488_281_25f64.next_up(),
        1.003_906_25f64.next_up(),
        0.1,
        1e-40,
        largest,
        f64::NEG_INFINITY,
        -0.0,
    ];
    for (result, number) in out.finish()?.iter().zip(integers) {
        same(&format!("{number:e}"), result, &[T::from_bits(format.round(number)); 16])?;
    }
    Ok(())
}
