//! Atomic functions: the final memory does not depend on the order, and the returned old values are consistent.

use std::collections::BTreeMap;

use dsl_runtime::{Device, Integer, Number, bf16, f16};
use fuse_test_kernels::atomic;
use fuse_test_kernels::case::{Bits, Failure, Operand, Output, typed};
use libtest_mimic::Trial;

use crate::devices::{Backend, backends};
use crate::values::{Random, mask, special};

type Check = fn(&Device) -> Result<(), Failure>;

macro_rules! each {
    ($check:ident: $($elem:ty),*) => {
        vec![$((concat!(stringify!($check), "::", stringify!($elem)), $check::<$elem> as Check)),*]
    };
}

pub fn trials() -> Vec<Trial> {
    let checks: Vec<(&'static str, Check)> = [
        each!(tickets: i32, u32, i64, u64),
        each!(counted: i32, u32, i64, u64, f16, bf16, f32, f64),
        each!(extremes: i32, u32, i64, u64, f32, f64),
        each!(bits: i32, u32, i64, u64),
        each!(exchanged: i32, u32, i64, u64, f32, f64),
        each!(claimed: i32, u32, i64, u64, f32, f64),
        vec![("row_sums::1_warp", row_sums::<1>), ("row_sums::4_warps", row_sums::<4>), ("queue", queue)],
    ]
    .into_iter()
    .flatten()
    .collect();
    let trial = |backend: Backend, (name, check): (&'static str, Check)| {
        Trial::test(format!("atomic::{name}::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    backends()
        .into_iter()
        .flat_map(|backend| checks.clone().into_iter().map(move |check| trial(backend, check)))
        .collect()
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), Failure> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: found {found:?}, not {wanted:?}").into()) }
}

// ---- counting

/// Slots that elements go to, few enough for many collisions, some outside; and the mask of elements.
struct Votes {
    index: Vec<i32>,
    mask: Vec<bool>,
}

const SLOTS: usize = 11;
const COUNT: usize = 4096;

impl Votes {
    fn new() -> Votes {
        let mut random = Random(29);
        let index = (0..COUNT).map(|_| random.below(SLOTS + 4) as i32 - 2).collect();
        Votes { index, mask: (0..COUNT).map(|_| random.below(8) > 0).collect() }
    }

    /// The slot that an element counts for.
    fn slot(&self, i: usize) -> Option<usize> {
        usize::try_from(self.index[i]).ok().filter(|&slot| slot < SLOTS && self.mask[i])
    }

    fn counts(&self) -> Vec<u64> {
        (0..SLOTS).map(|slot| (0..COUNT).filter(|&i| self.slot(i) == Some(slot)).count() as u64).collect()
    }
}

/// Every slot hands out the numbers from 0 up, each once, whatever the size of the tile.
fn tickets<T: Bits + Integer>(device: &Device) -> Result<(), Failure>
where
    atomic::tickets::Choice<T, 4>: atomic::tickets::Declared,
    atomic::tickets::Choice<T, 32>: atomic::tickets::Declared,
    atomic::tickets::Choice<T, 512>: atomic::tickets::Declared,
{
    let votes = Votes::new();
    for block in [4, 32, 512] {
        let index = Operand::new(device, &votes.index, 1)?;
        let mask = Operand::new(device, &votes.mask, 1)?;
        let mut counts = Output::holding(device, &[T::default(); SLOTS], 1)?;
        let mut taken = Output::<T>::new(device, vec![COUNT], 1)?;
        let grid = COUNT / block;
        match block {
            4 => atomic::tickets::<T, 4>(&index, &mask, &mut counts, &mut taken).grid(grid).launch(device)?,
            32 => {
                atomic::tickets::<T, 32>(&index, &mask, &mut counts, &mut taken).grid(grid).launch(device)?
            }
            _ => {
                atomic::tickets::<T, 512>(&index, &mask, &mut counts, &mut taken).grid(grid).launch(device)?
            }
        }
        let counts = counts.finish()?.concat();
        expect(&format!("counts in tiles of {block}"), &counts, &votes.counts())?;
        let taken = taken.finish()?.concat();
        let mut handed: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (i, &ticket) in taken.iter().enumerate() {
            match votes.slot(i) {
                Some(slot) => handed.entry(slot).or_default().push(ticket),
                None => expect(&format!("element {i} of tiles of {block}"), &ticket, &0)?,
            }
        }
        for (slot, mut tickets) in handed {
            tickets.sort_unstable();
            let wanted: Vec<u64> = (0..counts[slot]).collect();
            expect(&format!("tickets of slot {slot} in tiles of {block}"), &tickets, &wanted)?;
        }
    }
    Ok(())
}

/// The same without old values; sums of ones are exact in every type here, `f16` and `bf16` up to 2048 and 256.
fn counted<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    atomic::counted::Choice<T, 4>: atomic::counted::Declared,
    atomic::counted::Choice<T, 32>: atomic::counted::Declared,
    atomic::counted::Choice<T, 512>: atomic::counted::Declared,
{
    let votes = Votes::new();
    for block in [4, 32, 512] {
        let index = Operand::new(device, &votes.index, 0)?;
        let mask = Operand::new(device, &votes.mask, 0)?;
        // Unsigned numbers start at 0.
        let start = T::from_f64(-100.0);
        let mut counts = Output::holding(device, &[start; SLOTS], 1)?;
        let grid = COUNT / block;
        match block {
            4 => atomic::counted::<T, 4>(&index, &mask, &mut counts).grid(grid).launch(device)?,
            32 => atomic::counted::<T, 32>(&index, &mask, &mut counts).grid(grid).launch(device)?,
            _ => atomic::counted::<T, 512>(&index, &mask, &mut counts).grid(grid).launch(device)?,
        }
        let wanted: Vec<u64> =
            votes.counts().iter().map(|&count| T::from_f64(count as f64 + start.to_f64()).bits()).collect();
        expect(&format!("tiles of {block}"), &counts.finish()?.concat(), &wanted)?;
    }
    Ok(())
}

/// Sums replicated in every lane of a warp are added once, and every element sees the same order of programs.
fn row_sums<const WARPS: usize>(device: &Device) -> Result<(), Failure>
where
    atomic::row_sums::Choice<WARPS>: atomic::row_sums::Declared,
{
    let programs = 40;
    let mut random = Random(5);
    let x: Vec<i32> = (0..programs * 256).map(|_| random.below(1000) as i32 + 1).collect();
    let source = Operand::new(device, &x, 0)?;
    let mut rows = Output::holding(device, &[0i32; 8], 1)?;
    let mut old = Output::<i32>::new(device, vec![programs * 8], 1)?;
    let mut total = Output::holding(device, &[0i64], 1)?;
    let call = atomic::row_sums::<WARPS>(&source, &mut rows, &mut old, &mut total);
    call.grid(programs).launch(device)?;
    let sum = |program: usize, row: usize| -> i32 {
        let start = program * 256 + row * 32;
        x[start..start + 32].iter().sum()
    };
    let wanted: Vec<u64> = (0..8).map(|row| (0..programs).map(|p| sum(p, row)).sum::<i32>() as u64).collect();
    expect("rows", &rows.finish()?.concat(), &wanted)?;
    expect("the total", &total.finish()?.concat(), &vec![wanted.iter().sum::<u64>()])?;
    let old = old.finish()?.concat();
    for row in 0..8 {
        // In the order of what they found, each program found the sums of those before it.
        let mut found: Vec<(u64, usize)> = (0..programs).map(|p| (old[p * 8 + row], p)).collect();
        found.sort_unstable();
        let mut sums = 0;
        for (old, program) in found {
            expect(&format!("program {program} in row {row}"), &old, &sums)?;
            sums += sum(program, row) as u64;
        }
    }
    Ok(())
}

fn queue(device: &Device) -> Result<(), Failure> {
    let programs = 1000;
    let mut next = Output::holding(device, &[0u32], 1)?;
    let mut order = Output::<i32>::new(device, vec![programs], 1)?;
    atomic::queue(&mut next, &mut order).grid(programs).launch(device)?;
    expect("the next slot", &next.finish()?.concat(), &vec![programs as u64])?;
    let mut order = order.finish()?.concat();
    order.sort_unstable();
    expect("programs", &order, &(0..programs as u64).collect())
}

// ---- values

/// Special values and random ones, without NaN, whose order against memory counts.
fn values<T: Bits>(len: usize) -> Vec<T> {
    let mut random = Random(len as u64);
    let mut bits = special(T::DTYPE);
    bits.resize_with(len, || random.bits() & mask(T::DTYPE));
    let values: Vec<T> = typed(&bits);
    let number = |value: T| if value.to_f64().is_nan() { T::from_f64(1.0) } else { value };
    values.into_iter().map(number).collect()
}

/// The larger of two, of which `-0.0` is the smaller zero.
fn is_below<T: Number>(a: T, b: T) -> bool {
    a < b || a == b && a.to_f64().is_sign_negative() && !b.to_f64().is_sign_negative()
}

fn extremes<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    atomic::extremes::Choice<T>: atomic::extremes::Declared,
{
    for n in [1usize, 100, 1000] {
        let x = values::<T>(n);
        let source = Operand::new(device, &x, 1)?;
        let start = T::from_f64(1.0);
        let mut largest = Output::holding(device, &[start; 9], 1)?;
        let mut smallest = Output::holding(device, &[start; 8], 1)?;
        let call = atomic::extremes::<T>(&source, &mut largest, &mut smallest, n as i32);
        call.grid(n.div_ceil(128)).launch(device)?;
        let pick = |own: &dyn Fn(usize) -> bool, better: fn(T, T) -> bool| {
            let all = x.iter().enumerate().filter(|(i, _)| own(*i)).map(|(_, &value)| value);
            all.fold(start, |best, value| if better(best, value) { value } else { best }).bits()
        };
        let mut high: Vec<u64> = (0..8).map(|slot| pick(&|i| i % 8 == slot, is_below)).collect();
        high.push(pick(&|_| true, is_below));
        let low: Vec<u64> = (0..8).map(|slot| pick(&|i| i % 8 == slot, |a, b| is_below(b, a))).collect();
        expect(&format!("the largest of {n}"), &largest.finish()?.concat(), &high)?;
        expect(&format!("the smallest of {n}"), &smallest.finish()?.concat(), &low)?;
    }
    Ok(())
}

fn bits<T: Bits + Integer>(device: &Device) -> Result<(), Failure>
where
    atomic::bits::Choice<T>: atomic::bits::Declared,
{
    for n in [1usize, 100, 1000] {
        // Few bits in each, and few missing, so that the results are neither empty nor full.
        let sparse: Vec<u64> = values::<T>(n).iter().map(|value| value.bits()).collect();
        let x: Vec<T> = typed(&sparse);
        let source = Operand::new(device, &x, 1)?;
        let ones = mask(T::DTYPE);
        let (full, none) = ([T::from_bits(ones); 4], [T::from_bits(0b1010); 4]);
        let mut all = Output::holding(device, &full, 1)?;
        let mut any = Output::holding(device, &none, 1)?;
        let mut odd = Output::holding(device, &none, 1)?;
        let call = atomic::bits::<T>(&source, &mut all, &mut any, &mut odd, n as i32);
        call.grid(n.div_ceil(128)).launch(device)?;
        let of = |start: u64, join: fn(u64, u64) -> u64| -> Vec<u64> {
            (0..4).map(|slot| sparse.iter().skip(slot).step_by(4).fold(start, |a, &b| join(a, b))).collect()
        };
        expect("and", &all.finish()?.concat(), &of(ones, |a, b| a & b))?;
        expect("or", &any.finish()?.concat(), &of(0b1010, |a, b| a | b))?;
        expect("xor", &odd.finish()?.concat(), &of(0b1010, |a, b| a ^ b))?;
    }
    Ok(())
}

fn exchanged<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    atomic::exchanged::Choice<T>: atomic::exchanged::Declared,
{
    let x: Vec<T> = (0..640).map(|i| T::from_f64(f64::from(i + 10))).collect();
    let source = Operand::new(device, &x, 1)?;
    let first: Vec<T> = (0..5).map(|i| T::from_f64(f64::from(i))).collect();
    let mut slots = Output::holding(device, &first, 1)?;
    let mut taken = Output::<T>::new(device, vec![x.len()], 1)?;
    atomic::exchanged::<T>(&source, &mut slots, &mut taken).grid(10).launch(device)?;
    let mut values = [taken.finish()?.concat(), slots.finish()?.concat()].concat();
    let mut wanted: Vec<u64> = first.iter().chain(&x).map(|value| value.bits()).collect();
    values.sort_unstable();
    wanted.sort_unstable();
    expect("the values", &values, &wanted)
}

fn claimed<T: Bits + Number>(device: &Device) -> Result<(), Failure>
where
    atomic::claimed::Choice<T>: atomic::claimed::Declared,
{
    let n = 150usize;
    let x: Vec<T> = (0..n).map(|i| T::from_f64((i % 100 + 1) as f64)).collect();
    // `T::MIN`, or -1 for a float.
    let free = T::from_f64(if T::DTYPE.is_float() { -1.0 } else { f64::NEG_INFINITY });
    let source = Operand::new(device, &x, 1)?;
    let mut slots = Output::holding(device, &[free; 7], 1)?;
    let mut taken = Output::<T>::new(device, vec![n], 1)?;
    atomic::claimed::<T>(&source, &mut slots, &mut taken, free, n as i32)
        .grid(n.div_ceil(16))
        .launch(device)?;
    let (slots, taken) = (slots.finish()?.concat(), taken.finish()?.concat());
    for (slot, &owner) in slots.iter().enumerate() {
        // One element found the slot free, and its value is there; all others found that.
        let mut winners = vec![];
        for i in (slot..n).step_by(7) {
            if taken[i] == free.bits() {
                winners.push(x[i].bits());
            } else {
                expect(&format!("what element {i} found"), &taken[i], &owner)?;
            }
        }
        expect(&format!("who claimed slot {slot}"), &winners, &vec![owner])?;
    }
    Ok(())
}
