//! The law of integers: an offset and both sides of a comparison are exact, anything else wraps, wherever the numbers
//! come from.

use dsl_runtime::Device;
use fuse_test_kernels::case::{Failure, Operand, Output, typed};
use fuse_test_kernels::integers;
use libtest_mimic::Trial;

use crate::control::same;
use crate::devices::{Backend, backends};

type Check = fn(&Device) -> Result<(), Failure>;

pub fn trials() -> Vec<Trial> {
    let checks: [(&'static str, Check); 6] = [
        ("comparisons", comparisons),
        ("offsets", offsets),
        ("ends", ends),
        ("extrema", extrema),
        ("divisions", divisions),
        ("image", image),
    ];
    let trial = |backend: Backend, (name, check): (&'static str, Check)| {
        Trial::test(format!("integers::{name}::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    backends()
        .into_iter()
        .flat_map(|backend| checks.into_iter().map(move |check| trial(backend, check)))
        .collect()
}

fn comparisons(device: &Device) -> Result<(), Failure> {
    for n in [i32::MAX, i32::MAX - 7, i32::MAX - 6, 3, -20, i32::MIN] {
        let x = [n; 16];
        let mut out = Output::<i32>::new(device, vec![53], 0)?;
        integers::comparisons(&Operand::new(device, &x, 0)?, &mut out, n).grid(1).launch(device)?;
        let exact = i64::from(n) + 7;
        let wrapped = n.wrapping_add(7);
        let above: Vec<i32> = (0..16).map(|lane| i32::from(lane > exact)).collect();
        let below_zero = if 0 > exact { 4 } else { 0 };
        let rest = [below_zero, wrapped, wrapped, i32::from(wrapped < n), i32::from(wrapped < n)];
        let wanted = [&above[..], &above, &above, &rest].concat();
        same(&format!("n = {n}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn extrema(device: &Device) -> Result<(), Failure> {
    let x: Vec<i32> = (0..192).map(|i: i32| (i * 7919) % 1009 - 504).collect();
    let mut out = Output::<i32>::new(device, vec![192], 0)?;
    integers::extrema(&Operand::new(device, &x, 0)?, &mut out).grid(1).launch(device)?;
    let of = |formula: fn(i32, i32, i32) -> i32| {
        (0..64).map(|i| formula(x[i], x[64 + i], x[128 + i])).collect::<Vec<i32>>()
    };
    let wanted = [
        of(|x, y, z| x.max(-y).max(z)),
        of(|x, y, z| (-x).min(-y).min(-z)),
        of(|x, y, z| (-z).max((-x).max(y))),
    ]
    .concat();
    same("extrema", &out.finish()?.concat(), &wanted)
}

fn offsets(device: &Device) -> Result<(), Failure> {
    for n in [65536, 1 << 15, 3, -1] {
        let mut out = Output::<i32>::new(device, vec![80], 0)?;
        let mut wide = Output::<i64>::new(device, vec![32], 0)?;
        integers::offsets(&mut out, &mut wide, n).grid(1).launch(device)?;
        // What nothing is written to.
        let mut wanted = typed::<i32>(&Output::<i32>::new(device, vec![80], 0)?.finish()?.concat());
        let mut wanted_wide = vec![];
        let square = i64::from(n) * i64::from(n);
        let mut put = |at: i64, value: i32| {
            if let Some(slot) = usize::try_from(at).ok().and_then(|at| wanted.get_mut(at)) {
                *slot = value;
            }
        };
        (0..16).for_each(|lane| put(lane, (lane * square) as i32));
        (0..16).for_each(|lane| put(16 + lane * square + lane, 1));
        put(32, 2);
        (0..16).for_each(|lane| put(48 + (i64::from(n) << 16) + lane, 3));
        (0..16).for_each(|lane| put(64 + lane, (i64::from(n << 16) + lane) as i32));
        wanted_wide.extend((0..16).map(|lane| i64::from((lane * square) as i32)));
        wanted_wide.extend((0..16).map(|lane| i64::from(lane * square > 0)));
        same(&format!("n = {n}"), &out.finish()?.concat(), &wanted)?;
        same(&format!("n = {n}, i64"), &wide.finish()?.concat(), &wanted_wide)?;
    }
    Ok(())
}

fn ends(device: &Device) -> Result<(), Failure> {
    let x: Vec<i32> = (0..64).map(|i| 1000 + i).collect();
    let cases = [
        (0, 40, 2, 1),
        (5, 5, 0, 1),
        (i32::MAX, 3, 5, 1 << 24),
        (0, i32::MIN, 1, 1 << 24),
        (-3, i32::MIN, 2, 1 << 24),
        (i32::MIN, i32::MIN + 10, -3, 1 << 24),
        (60, i32::MAX, 1, 1 << 24),
    ];
    for (low, high, by, step) in cases {
        let mut out = Output::<i32>::new(device, vec![17], 0)?;
        integers::ends(&Operand::new(device, &x, 0)?, &mut out, low, high, by, step)
            .grid(1)
            .launch(device)?;
        let range = low.wrapping_add(by)..high.wrapping_sub(by);
        let indices: Vec<i64> = range.step_by(step as usize).map(i64::from).collect();
        let read = |at: i64| usize::try_from(at).ok().and_then(|at| x.get(at)).copied().unwrap_or(0);
        let mut wanted: Vec<i32> =
            (0..16).map(|lane| indices.iter().map(|i| read(i + lane)).fold(0, i32::wrapping_add)).collect();
        wanted.push(indices.len() as i32);
        same(&format!("{low} to {high} by {by}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

fn divisions(device: &Device) -> Result<(), Failure> {
    let len = 2048;
    let ends = [0, 1, -1, 2, -2, i32::MAX, i32::MAX - 1, i32::MIN, i32::MIN + 1];
    let x: Vec<i32> = (0..len)
        .map(|i| if i < ends.len() { ends[i] } else { (i as u32).wrapping_mul(0x9e37_79b1) as i32 })
        .collect();
    let wide: Vec<i64> =
        x.iter().map(|&x| (i64::from(x) << 32) | i64::from(x.wrapping_mul(7)) & 0xffff_ffff).collect();
    for d in [0, 1, 2, 3, 4, 7, 64, 192, 1000, 1 << 30, i32::MAX, -1, -2, -3, -64, i32::MIN, i32::MIN + 1] {
        let mut out = Output::<i32>::new(device, vec![4 * len], 0)?;
        let mut wide_out = Output::<i64>::new(device, vec![4 * len], 0)?;
        let (x_on, wide_on) = (Operand::new(device, &x, 0)?, Operand::new(device, &wide, 0)?);
        integers::divisions(&x_on, &wide_on, &mut out, &mut wide_out, d).grid(2).launch(device)?;
        let quotient = |x: i32| if d == 0 { 0 } else { x.wrapping_div(d) };
        let remainder = |x: i32| if d == 0 { x } else { x.wrapping_rem(d) };
        let wanted: Vec<i32> = x
            .iter()
            .zip(0..)
            .flat_map(|(&x, at)| [quotient(x), remainder(x), quotient(at), remainder(at)])
            .collect();
        same(&format!("by {d}"), &out.finish()?.concat(), &wanted)?;
        let d = i64::from(d) * 3;
        let wanted: Vec<i64> = wide.iter().flat_map(|&w| wide_results(w, d)).collect();
        same(&format!("by {d}"), &wide_out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

/// The quotient, the remainder, the quotient rounded up and the quotient of unsigned numbers.
fn wide_results(w: i64, d: i64) -> [i64; 4] {
    if d == 0 {
        return [0, w, 0, 0];
    }
    let (quotient, remainder) = (w.wrapping_div(d), w.wrapping_rem(d));
    let up = i64::from(remainder != 0 && (w < 0) == (d < 0));
    [quotient, remainder, quotient + up, (w as u64 / d as u64) as i64]
}

fn image(device: &Device) -> Result<(), Failure> {
    for [planes, height, width, shift] in
        [[3, 8, 64, 1], [2, 7, 36, -2], [5, 6, 30, 0], [3, 9, 17, 2], [1, 1, 1, 0], [4, 5, 12, i32::MAX]]
    {
        let len = planes * height * width;
        let x: Vec<f32> = (0..len).map(|i| i as f32).collect();
        let mut out = Output::<f32>::new(device, vec![len as usize], 0)?;
        let grid = (len as u32).div_ceil(1024);
        let x = Operand::new(device, &x, 0)?;
        integers::image(&x, &mut out, planes, height, width, shift).grid(grid).launch(device)?;
        let wanted: Vec<f32> = (0..len)
            .map(|at| {
                let (col, row) = (at % width, at / width % height);
                let (col, row) = (i64::from(col) - i64::from(shift), i64::from(row) + i64::from(shift));
                let inside = (0..i64::from(width)).contains(&col) && (0..i64::from(height)).contains(&row);
                let from =
                    (i64::from(at / (height * width)) * i64::from(height) + row) * i64::from(width) + col;
                if inside { from as f32 } else { -1.0 }
            })
            .collect();
        same(&format!("{planes} x {height} x {width} by {shift}"), &out.finish()?.concat(), &wanted)?;
    }
    Ok(())
}
