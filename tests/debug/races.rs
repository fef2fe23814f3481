//! Races between the programs of a launch: what a debug build finds on the CPU, and what it must not take for one.

use dsl_runtime::Error;
use dsl_runtime::prelude::*;

use super::checks;

/// Copies rows, and forgets that each program has its own.
#[allow(deprecated)]
#[fuse_kernel(BLOCK = [64])]
fn same_elements<const BLOCK: usize>(x: &[f32], out: &mut [f32]) {
    let lanes = tl::arange(0, BLOCK);
    let row = tl::load(x + tl::program_id(0) * BLOCK + lanes);
    tl::store(out + lanes, row);
}

/// Each program stores one element more than it has.
#[fuse_kernel(BLOCK = [64])]
fn overlapping<const BLOCK: usize>(out: &mut [i32], n: i32) {
    let lanes = tl::arange(0, BLOCK);
    let offsets = tl::program_id(0) * (BLOCK - 1) + lanes;
    tl::store(out + offsets, lanes, offsets < n);
}

/// Adds to a total without an atomic.
#[allow(deprecated)]
#[fuse_kernel(BLOCK = [64])]
fn lost_sum<const BLOCK: usize>(x: &[i32], total: &mut [i32]) {
    let sum = tl::sum(tl::load(x + tl::program_id(0) * BLOCK + tl::arange(0, BLOCK)));
    let before = tl::load(total);
    tl::store(total, before + sum);
}

/// Smooths in place: the neighbor's element may be the old or the new one.
#[fuse_kernel(BLOCK = [64])]
fn stencil<const BLOCK: usize>(x: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let left = tl::load(x + (offsets - 1), offsets > 0, 0.0);
    tl::store(x + offsets, left * 0.5, offsets < n);
}

/// As [`stencil()`], with a view.
#[fuse_kernel]
fn stencil_rows(x: &mut View<f32, 2>) {
    let row = tl::program_id(0);
    let above = x.load::<1, 16>(row - 1, 0);
    x.store(above, row, 0);
}

/// One program clears what all add to.
#[fuse_kernel]
fn cleared(total: &mut [i32]) {
    if tl::program_id(0) == 1 {
        tl::store(total + 3, 0);
    }
    tl::atomic_add(total + 3, 1).sem("relaxed");
}

/// Programs of a grid with three axes of which one does not count.
#[fuse_kernel]
fn folded(out: &mut [i32]) {
    let (x, y, z) = (tl::program_id(0), tl::program_id(1), tl::program_id(2));
    tl::store(out + x + z * tl::num_programs(0), y);
}

/// What a launch on the CPU is found to do: the two programs and lines of a race, the earlier line first.
type Found = Option<(&'static str, u64, [([u32; 3], &'static str, u32); 2])>;

fn found(launched: dsl_runtime::Result<()>) -> Found {
    match launched {
        Ok(()) => None,
        Err(Error::Race { param, index, first, second, .. }) => {
            let mut both = [first, second].map(|access| (access.program, access.verb, access.line));
            both.sort_by_key(|access| (access.2, access.0));
            Some((param, index, both))
        }
        Err(other) => panic!("{other}"),
    }
}

/// Checks a race in `param`, whose accesses are these on lines that far below the kernel's own.
fn check(found: Found, line: u32, param: &str, accesses: [(u32, &str); 2]) {
    if !checks() {
        return assert_eq!(found, None);
    }
    let (of, _, both) = found.expect("a race");
    assert_eq!(of, param);
    assert_ne!(both[0].0, both[1].0, "two programs");
    assert_eq!(both.map(|access| (access.2 - line, access.1)), accesses);
}

#[test]
fn a_race_is_an_error_with_both_programs_and_both_lines() {
    let cpu = Device::cpu();
    let x = cpu.upload(&[1.0f32; 256]).unwrap();
    let mut out = cpu.zeros::<f32>(64).unwrap();
    let launched = found(same_elements::<64>(&x, &mut out).grid(4).launch(&cpu));
    check(launched, same_elements::KERNEL.line, "out", [(3, "writes"); 2]);

    let mut out = cpu.zeros::<i32>(253).unwrap();
    let launched = found(overlapping::<64>(&mut out, 253).grid(4).launch(&cpu));
    check(launched, overlapping::KERNEL.line, "out", [(3, "writes"); 2]);
    if let Some((_, index, [first, second])) = launched {
        assert_eq!(index % 63, 0);
        let programs = [first.0[0], second.0[0]];
        assert_eq!(programs, [index as u32 / 63 - 1, index as u32 / 63]);
    }

    let x = cpu.upload(&[1i32; 256]).unwrap();
    let mut total = cpu.zeros::<i32>(1).unwrap();
    let launched = found(lost_sum::<64>(&x, &mut total).grid(4).launch(&cpu));
    if checks() {
        let (_, index, both) = launched.expect("a race");
        assert_eq!(index, 0);
        assert!(both.iter().any(|access| access.1 == "writes"));
    }

    let mut x = cpu.upload(&[1.0f32; 256]).unwrap();
    let launched = found(stencil::<64>(&mut x, 256).grid(4).launch(&cpu));
    check(launched, stencil::KERNEL.line, "x", [(2, "reads"), (3, "writes")]);
    if let Some((_, index, [reader, writer])) = launched {
        assert_eq!((index % 64, u64::from(writer.0[0])), (63, index / 64));
        assert_eq!(reader.0[0], writer.0[0] + 1);
    }
}

#[test]
fn views_atomics_and_grids_of_three_axes_are_judged_too() {
    let cpu = Device::cpu();
    let mut rows = cpu.upload(&[1.0f32; 64]).unwrap();
    let mut view = rows.view_mut([4, 16]).unwrap();
    let launched = found(stencil_rows(&mut view).grid(4).launch(&cpu));
    check(launched, stencil_rows::KERNEL.line, "x", [(2, "reads"), (3, "writes")]);

    let mut total = cpu.zeros::<i32>(4).unwrap();
    let launched = found(cleared(&mut total).grid(4).launch(&cpu));
    check(launched, cleared::KERNEL.line, "total", [(2, "writes"), (4, "atomically changes")]);

    let mut out = cpu.zeros::<i32>(6).unwrap();
    let launched = found(folded(&mut out).grid([2, 5, 3]).launch(&cpu));
    check(launched, folded::KERNEL.line, "out", [(2, "writes"); 2]);
    if let Some((_, index, [first, second])) = launched {
        let [x, z] = [index as u32 % 2, index as u32 / 2];
        assert!([first, second].iter().all(|access| [access.0[0], access.0[2]] == [x, z]));
        assert!(first.0[1] < second.0[1] && second.0[1] < 5);
    }
    // A single program has nobody to race with.
    assert_eq!(folded(&mut out).grid([2, 1, 3]).launch(&cpu), Ok(()));
}

/// Takes elements of its block back that it stored itself, in another order.
#[fuse_kernel(BLOCK = [64])]
fn own_elements<const BLOCK: usize>(x: &[i32], out: &mut [i32]) {
    let start = tl::program_id(0) * BLOCK;
    let lanes = tl::arange(0, BLOCK);
    tl::store(out + start + lanes, tl::load(x + start + lanes));
    for _ in 0..3 {
        let reversed = tl::load(out + start + (BLOCK - 1 - lanes));
        tl::store(out + start + lanes, reversed + 1);
    }
}

/// Split-K with a lock: whoever holds it adds its part to the sum.
#[fuse_kernel(BLOCK = [64])]
fn locked_sum<const BLOCK: usize>(x: &[i32], total: &mut [i32], lock: &mut [i32]) {
    let lanes = tl::arange(0, BLOCK);
    let part = tl::load(x + tl::program_id(0) * BLOCK + lanes);
    while tl::atomic_cas(lock, 0, 1) != 0 {}
    tl::store(total + lanes, tl::load(total + lanes) + part);
    tl::atomic_xchg(lock, 0).sem("release");
}

/// Split-K with a semaphore: the last program adds up what all have stored.
#[fuse_kernel(BLOCK = [64])]
fn last_adds<const BLOCK: usize>(x: &[i32], parts: &mut [i32], arrived: &mut [i32], out: &mut [i32]) {
    let lanes = tl::arange(0, BLOCK);
    let start = tl::program_id(0) * BLOCK;
    tl::store(parts + start + lanes, tl::load(x + start + lanes));
    if tl::atomic_add(arrived, 1) == tl::num_programs(0) - 1 {
        let mut sum = tl::zeros::<i32>([BLOCK]);
        for program in 0..tl::num_programs(0) {
            sum += tl::load(parts + program * BLOCK + lanes);
        }
        tl::store(out + lanes, sum);
    }
}

/// A scan with a look back: each program waits for the sum of those before it.
#[fuse_kernel(BLOCK = [64])]
fn look_back<const BLOCK: usize>(
    x: &[i32],
    ticket: &mut [i32],
    ready: &mut [i32],
    sums: &mut [i32],
    out: &mut [i32],
) {
    let block = tl::atomic_add(ticket, 1);
    let offsets = block * BLOCK + tl::arange(0, BLOCK);
    let scanned = tl::cumsum(tl::load(x + offsets), 0);
    let mut before = 0;
    if block > 0 {
        while tl::atomic_add(ready + (block - 1), 0).sem("acquire") == 0 {}
        before = tl::load(sums + (block - 1));
    }
    tl::store(sums + block, before + tl::sum(tl::load(x + offsets)));
    tl::atomic_xchg(ready + block, 1).sem("release");
    tl::store(out + offsets, scanned + before);
}

/// Adds with atomics, each program to all elements, and gives each program an element of its own by a ticket.
#[fuse_kernel(BLOCK = [64])]
fn counted<const BLOCK: usize>(total: &mut [i32], next: &mut [i32], order: &mut [i32]) {
    tl::atomic_add(total + tl::arange(0, BLOCK), 1);
    let slot = tl::atomic_add(next, 1).sem("relaxed");
    tl::store(order + slot, tl::program_id(0));
}

#[test]
fn programs_in_order_do_not_race() {
    let cpu = Device::cpu();
    let numbers: Vec<i32> = (0..1024).map(|i| i % 7).collect();
    let columns: Vec<i32> = (0..64).map(|lane| numbers.iter().skip(lane).step_by(64).sum()).collect();
    let x = cpu.upload(&numbers).unwrap();
    let zeros = |len| cpu.zeros::<i32>(len).unwrap();

    let mut out = zeros(1024);
    assert_eq!(own_elements::<64>(&x, &mut out).grid(16).launch(&cpu), Ok(()));
    let reversed: Vec<i32> = numbers.chunks(64).flat_map(|row| row.iter().rev().map(|x| x + 3)).collect();
    assert_eq!(out.download().unwrap(), reversed);

    let (mut total, mut lock) = (zeros(64), zeros(1));
    assert_eq!(locked_sum::<64>(&x, &mut total, &mut lock).grid(16).launch(&cpu), Ok(()));
    assert_eq!(total.download().unwrap(), columns);

    let (mut parts, mut arrived, mut out) = (zeros(1024), zeros(1), zeros(64));
    assert_eq!(last_adds::<64>(&x, &mut parts, &mut arrived, &mut out).grid(16).launch(&cpu), Ok(()));
    assert_eq!(out.download().unwrap(), columns);

    let (mut ticket, mut ready, mut sums, mut out) = (zeros(1), zeros(16), zeros(16), zeros(1024));
    let launch = look_back::<64>(&x, &mut ticket, &mut ready, &mut sums, &mut out);
    assert_eq!(launch.grid(16).launch(&cpu), Ok(()));
    let mut sum = 0;
    let scanned: Vec<i32> = numbers
        .iter()
        .map(|x| {
            sum += x;
            sum
        })
        .collect();
    assert_eq!(out.download().unwrap(), scanned);

    let (mut total, mut next, mut order) = (zeros(64), zeros(1), zeros(16));
    assert_eq!(counted::<64>(&mut total, &mut next, &mut order).grid(16).launch(&cpu), Ok(()));
    assert_eq!(total.download().unwrap(), [16; 64]);
}
