//! How a product is computed: by which tile, in how many parts, and whether a factor is first copied to where rows begin at
//! multiples of 16 bytes. [`crate::matmul`] asks it for each launch.
//!
//! **Model.** On a GPU whose warps multiply together (compute capability 9.0), the time of each way there is for 16-bit floats is
//! estimated, and the shortest taken. A tile takes `steps * step + fixed`; as many are made at once as there are multiprocessors
//! times the blocks that fit on one, which then share it; rounds of them follow each other. A step's time `t` and that of what all
//! blocks read in it out of the cache, `u`, overlap: together `(t^4 + u^4)^(1/4)`; and so do that of all rounds and that of moving
//! all bytes once. Parts of sums cost a second kernel and the bytes of the parts, copies of
//! factors one more and their bytes twice; without them threads read the factor one element after the other.
//!
//! **Numbers.** Fitted by `bench/ways.py` to 3500 times of 275 random products on an H100 and an H200, which agree within a few
//! percent (`docs/performance.md`, "A product of any shape"): half of all estimates are within 6 % of the time. Only their order counts.
//!
//! Elsewhere tiles are large where they are enough for three of four processors, and on GPUs steps are shared where they are few.

use dsl_runtime::prelude::*;

use crate::matmul::Tile;
use crate::split_matmul;

/// What a program makes, and how many terms of its sums it takes at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Rows and columns of the result.
    pub tile: Tile,
    /// Terms of a step.
    pub steps: usize,
}

/// A way to compute a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// What a program makes.
    pub block: Block,
    /// Among how many programs the steps of a tile are shared.
    pub parts: usize,
    /// Whether the left and the right factor are copied first.
    pub copies: [bool; 2],
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Matrices, rows and columns of the result.
    pub out: [usize; 3],
    /// Terms of each sum.
    pub k: usize,
    /// Matrices of the right factor.
    pub right_batches: usize,
    /// Whether rows or columns of each factor are contiguous and begin at multiples of 16 bytes.
    pub aligned: [bool; 2],
    /// Whether columns of the right factor are contiguous.
    pub by_columns: bool,
    /// Whether a matrix is added to the result, for which the largest tiles have no registers.
    pub adds: bool,
}

/// The time of a tile in microseconds: of a step, of all else, with so many blocks on a multiprocessor.
#[derive(Clone, Copy)]
struct Time {
    step: f64,
    fixed: f64,
    blocks: usize,
}

/// A block, by copies of the GPU itself and by loads of threads.
struct Measured {
    block: Block,
    copied: Time,
    loaded: Time,
    /// Whether parts of sums come in it.
    parts: bool,
}

const fn block(rows: usize, cols: usize, steps: usize) -> Block {
    Block { tile: Tile { rows, cols }, steps }
}

const fn time(step: f64, fixed: f64, blocks: usize) -> Time {
    Time { step, fixed, blocks }
}

/// The largest block, which adds no matrix.
pub(crate) const LARGEST: Block = block(128, 256, 64);
pub(crate) const LARGE: Block = block(128, 128, 64);
pub(crate) const SMALL: Block = block(64, 128, 64);
/// The block whose right factor needs contiguous columns.
const SLIM: Block = block(64, 32, 128);

const BLOCKS: [Measured; 6] = [
    Measured { block: LARGEST, copied: time(0.597, 1.46, 1), loaded: time(3.98, 1.14, 1), parts: false },
    Measured { block: LARGE, copied: time(0.351, 1.16, 1), loaded: time(2.53, 0.22, 2), parts: false },
    Measured { block: SMALL, copied: time(0.302, 0.40, 1), loaded: time(2.01, 0.0, 4), parts: true },
    Measured {
        block: block(64, 64, 128),
        copied: time(0.341, 0.37, 1),
        loaded: time(2.75, 0.0, 4),
        parts: true,
    },
    Measured {
        block: block(64, 64, 64),
        copied: time(0.265, 0.15, 3),
        loaded: time(1.61, 0.0, 6),
        parts: false,
    },
    Measured { block: SLIM, copied: time(0.371, 0.13, 2), loaded: time(3.49, 1.89, 6), parts: false },
];

/// Microseconds of a byte that is moved.
const BYTE: f64 = 0.543e-6;
/// Of a byte that blocks read at once out of the cache.
const READ: f64 = 0.0864e-6;
/// Of the kernel that adds parts, and of a byte of them.
const SUM: f64 = 3.47;
const SUMMED_BYTE: f64 = 0.391e-6;
/// Of the kernel that copies factors, and of a byte that is read or written.
const COPY: f64 = 3.5;
const COPIED_BYTE: f64 = 0.412e-6;
/// How much longer a step takes for each further block on a multiprocessor: of blocks that the GPU copies, and of others.
const SHARED: f64 = 0.717;
const SHARED_LOADS: f64 = 0.525;
/// The numbers of parts that are tried, the fewest terms of one, and the most programs for each multiprocessor.
const PARTS: [usize; 9] = [2, 3, 4, 6, 8, 12, 16, 24, 32];
const TERMS: usize = 128;
const MOST_PROGRAMS: usize = 2;
/// The most bytes of parts.
const MOST_BYTES: usize = 1 << 28;
/// Bytes of an element.
const BYTES: usize = 2;

/// The time of two things that overlap.
fn together(one: f64, other: f64) -> f64 {
    (one.powi(4) + other.powi(4)).sqrt().sqrt()
}

impl Product {
    /// The time of a way on so many multiprocessors, in microseconds.
    fn estimate(&self, of: &Measured, parts: usize, copies: bool, processors: usize) -> f64 {
        let [batches, m, n] = self.out;
        let copied = copies || self.aligned == [true; 2];
        let (Time { step, fixed, blocks }, shared) =
            if copied { (of.copied, SHARED) } else { (of.loaded, SHARED_LOADS) };
        let programs = of.block.tile.count(self.out) * parts;
        let beside = blocks.min(programs.div_ceil(processors)) - 1;
        let steps = self.k.div_ceil(of.block.steps).div_ceil(parts);
        let Block { tile: Tile { rows, cols }, steps: terms } = of.block;
        let read = programs.min(processors * blocks) * BYTES * (rows + cols) * terms;
        let step = together(step * (1.0 + beside as f64 * shared), read as f64 * READ);
        let rounds = programs.div_ceil(processors * blocks) as f64 * (steps as f64 * step + fixed);
        let (left, right) = (batches * m * self.k, self.right_batches * self.k * n);
        let (out, sums) = (batches * m * n, 4 * batches * m * n * parts);
        let written = if parts > 1 { sums } else { BYTES * out };
        let moved = (BYTES * (left + right) + written) as f64 * BYTE;
        let mut total = together(rounds, moved);
        if parts > 1 {
            total += SUM + (sums + BYTES * out) as f64 * SUMMED_BYTE;
        }
        if copies {
            let elements = self.aligned.into_iter().zip([left, right]).filter(|(aligned, _)| !aligned);
            let elements: usize = elements.map(|(_, elements)| elements).sum();
            total += COPY + (2 * BYTES * elements) as f64 * COPIED_BYTE;
        }
        total
    }

    /// The way of 16-bit floats that is estimated to take least, on so many multiprocessors whose warps multiply together.
    pub fn fastest(&self, processors: usize) -> Way {
        let copies: &[bool] = if self.aligned == [true; 2] { &[false] } else { &[false, true] };
        let mut best: Option<(f64, Way)> = None;
        for of in &BLOCKS {
            let Block { tile, .. } = of.block;
            if of.block == LARGEST && self.adds || of.block == SLIM && !self.by_columns {
                continue;
            }
            let shared = PARTS.into_iter().filter(|&parts| {
                of.parts
                    && self.k / parts >= TERMS
                    && tile.count(self.out) * parts <= MOST_PROGRAMS * processors
                    && 4 * parts * self.out.iter().product::<usize>() <= MOST_BYTES
            });
            for parts in std::iter::once(1).chain(shared) {
                for &copies in copies {
                    let estimate = self.estimate(of, parts, copies, processors);
                    if best.is_none_or(|(least, _)| estimate < least) {
                        let copies = self.aligned.map(|aligned| copies && !aligned);
                        best = Some((estimate, Way { block: of.block, parts, copies }));
                    }
                }
            }
        }
        best.expect("there are blocks for every product").1
    }

    /// The way on other devices.
    pub(crate) fn elsewhere(&self, on: impl LaunchOn, blocks: [Block; 2]) -> Way {
        let processors = on.processors();
        let parts =
            if on.shared_bytes().is_some() { split_matmul::parts(self.out, self.k, processors) } else { 1 };
        let [large, small] = blocks;
        let tile = Tile::of([large.tile, small.tile], self.out, processors);
        let block = if tile == large.tile && parts == 1 { large } else { small };
        Way { block, parts, copies: [false; 2] }
    }
}
