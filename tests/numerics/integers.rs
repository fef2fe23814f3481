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
    let checks: [(&'static str, Check); 3] =
        [("comparisons", comparisons), ("offsets", offsets), ("ends", ends)];
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
