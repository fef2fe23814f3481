//! Random numbers and counts.

use dsl_runtime::prelude::*;

use crate::case::{Failure, Output};

/// Numbers of a stream, written from `first` on: words, uniform and normal numbers.
#[derive(Debug)]
pub struct Stream {
    pub words: Vec<u64>,
    pub uniform: Vec<u64>,
    pub normal: Vec<u64>,
}

#[fuse_kernel(WARPS = [1, 4], num_warps = WARPS)]
fn stream_64<const WARPS: usize>(
    words: &mut [u32],
    uniform: &mut [f32],
    normal: &mut [f32],
    seed: u64,
    first: i64,
    n: i32,
) {
    let index = tl::program_id(0) * 256 + tl::arange(0, 256);
    let mask = index < n;
    let offsets = first + index as i64;
    tl::store(words + index, tl::randint(seed, offsets), mask);
    tl::store(uniform + index, tl::rand(seed, offsets), mask);
    tl::store(normal + index, tl::randn(seed, offsets), mask);
}

/// The same from 32-bit offsets, which a program starts at a multiple of 4.
#[fuse_kernel]
fn stream_32(words: &mut [u32], uniform: &mut [f32], normal: &mut [f32], seed: u64, first: i32, n: i32) {
    let index = tl::program_id(0) * 1024 + tl::arange(0, 1024);
    let mask = index < n;
    let offsets = first * 4 + index;
    tl::store(words + index, tl::randint(seed, offsets), mask);
    tl::store(uniform + index, tl::rand(seed, offsets), mask);
    tl::store(normal + index, tl::randn(seed, offsets), mask);
}

/// The same from whole blocks.
#[fuse_kernel]
fn stream_blocks(words: &mut [u32], uniform: &mut [f32], normal: &mut [f32], seed: u64, first: i64, n: i32) {
    let index = tl::program_id(0) * 64 + tl::arange(0, 64);
    let offsets = first / 4 + index as i64;
    let (a, b, c, d) = tl::randint4x(seed, offsets);
    let (e, f, g, h) = tl::rand4x(seed, offsets);
    let index = index * 4;
    tl::store(words + index, a, index < n);
    tl::store(words + index + 1, b, index + 1 < n);
    tl::store(words + index + 2, c, index + 2 < n);
    tl::store(words + index + 3, d, index + 3 < n);
    tl::store(uniform + index, e, index < n);
    tl::store(uniform + index + 1, f, index + 1 < n);
    tl::store(uniform + index + 2, g, index + 2 < n);
    tl::store(uniform + index + 3, h, index + 3 < n);
    let index = tl::program_id(0) * 256 + tl::arange(0, 256);
    tl::store(normal + index, tl::randn(seed, first + index as i64), index < n);
}

/// Ways to compute `count` numbers of a seed's stream from `first` on; the last two want a multiple of 4, and the last
/// one below 2^31.
pub type Way = fn(&Device, seed: u64, first: i64, count: usize) -> Result<Stream, Failure>;

macro_rules! way {
    ($block:literal, |$words:ident, $uniform:ident, $normal:ident, $seed:ident, $first:ident, $n:ident| $call:expr) => {
        |device, $seed, $first, count| {
            let mut words = Output::<u32>::new(device, vec![count], 0)?;
            let mut uniform = Output::<f32>::new(device, vec![count], 0)?;
            let mut normal = Output::<f32>::new(device, vec![count], 0)?;
            let ($words, $uniform, $normal, $n) = (&mut words, &mut uniform, &mut normal, count as i32);
            $call.grid(count.div_ceil($block)).launch(device)?;
            Ok(Stream {
                words: words.finish()?.concat(),
                uniform: uniform.finish()?.concat(),
                normal: normal.finish()?.concat(),
            })
        }
    };
}

pub static WAYS: [Way; 4] = [
    way!(256, |w, u, z, seed, first, n| stream_64::<1>(w, u, z, seed, first, n)),
    way!(256, |w, u, z, seed, first, n| stream_64::<4>(w, u, z, seed, first, n)),
    way!(256, |w, u, z, seed, first, n| stream_blocks(w, u, z, seed, first, n)),
    way!(1024, |w, u, z, seed, first, n| stream_32(w, u, z, seed, (first / 4) as i32, n)),
];

#[fuse_kernel(N = [1, 64, 1536], BINS = [1, 12, 256])]
fn counted<const N: usize, const BINS: usize>(x: &[i64], small: &[u8], out: &mut [i32], limit: i64) {
    let offsets = tl::arange(0, N);
    let x = tl::load(x + offsets);
    let bins = tl::arange(0, BINS);
    tl::store(out + bins, tl::histogram(x, BINS));
    tl::store(out + BINS + bins, tl::histogram(x, BINS, x < limit));
    tl::store(out + 2 * BINS + bins, tl::histogram(tl::load(small + offsets), BINS));
}

/// Counts of `x` below the number of bins, of those below `limit` too, and of `small`.
pub type Counts = fn(&Device, x: &[i64], small: &[u8], limit: i64) -> Result<Vec<u64>, Failure>;

macro_rules! counts {
    ($($n:literal, $bins:literal);*) => {
        /// Numbers counted, bins, and the kernel.
        pub static COUNTS: &[(usize, usize, Counts)] = &[$(($n, $bins, |device, x, small, limit| {
            let (x, small) = (device.upload(x)?, device.upload(small)?);
            let mut out = Output::<i32>::new(device, vec![3 * $bins], 0)?;
            counted::<$n, $bins>(&x, &small, &mut out, limit).grid(1).launch(device)?;
            Ok(out.finish()?.concat())
        })),*];
    };
}

counts!(1, 1; 1, 12; 1, 256; 64, 1; 64, 12; 64, 256; 1536, 1; 1536, 12; 1536, 256);
