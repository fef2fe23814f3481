//! The configuration of a matmul: its tile, its split-K factor, and whether an operand is first copied to rows that begin at
//! multiples of 16 bytes. [`crate::matmul`] asks it for each launch.
//!
//! **Model.** On a GPU with `wgmma` (compute capability 9.0) the time of each configuration of 16-bit floats is estimated, and the
//! fastest is taken. A tile takes `iterations * iteration + fixed`. A wave is as many tiles as there are SMs times the blocks that
//! fit on one, which share it; waves follow each other. An iteration of time `t` overlaps with what all blocks read out of L2 in
//! it, `u`: both take `(t^4 + u^4)^(1/4)`. So do all waves and the traffic of memory. Split-K costs a second kernel and the bytes of
//! the partial sums. Aligned copies of operands cost another one and their bytes twice; without them threads load element by element.
//!
//! An iteration is over as many bytes of every type: of `f32` in TF32 over half the extent, at half the rate, of 8-bit types over twice
//! the extent. Rows of operands that begin within 32-byte sectors of memory read a fourth more out of L2.
//!
//! **Numbers.** Fitted by `bench/configs.py` to 5900 times of 300 random products on an H100, those near the best of a product above
//! all (`docs/decisions/0132`): half of all estimates are within 7 % of the time. Only their order counts.
//! The time of a byte of memory is from 752 products on an H100 and an H200.
//!
//! `f32` is multiplied by FMA on every device. The blocks on an SM share its multiply-adds: an iteration takes as long as theirs, and no
//! less than the latency of one. An operand whose rows are not aligned comes element by element, which adds to that latency.
//!
//! Elsewhere tiles are large where they are enough for three of four processors, and GPUs split K where tiles are few.

use dsl_runtime::prelude::*;

pub use crate::matmul_block::Block;
use crate::matmul_block::TileShape;
use crate::split_matmul;

/// How a matmul is launched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The tile of a program.
    pub block: Block,
    /// How many programs share the K axis of a tile; a second kernel adds their sums.
    pub split_k: usize,
    /// Whether operands A and B are first copied to aligned rows.
    pub copies: [bool; 2],
}

/// The shape of a matmul, and what else the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Matrices, rows and columns of the result.
    pub out: [usize; 3],
    /// The extent that is summed over.
    pub k: usize,
    /// Matrices of operand B.
    pub b_batches: usize,
    /// Bytes of an element: 2, or 4 of `f32` in TF32, or 1.
    pub bytes: usize,
    /// Whether operands A and B have contiguous rows or columns, K-major ones of 8-bit types, that begin at multiples of 16 bytes.
    pub aligned: [bool; 2],
    /// Whether these begin at others than multiples of 32.
    pub within_sectors: [bool; 2],
    /// Whether operand B is K-major: its columns are contiguous.
    pub b_is_k_major: bool,
    /// Whether the epilogue has what the largest tiles have no registers for, such as a matrix to add.
    pub has_residual: bool,
    /// Whether rows of the result begin at others than multiples of 16 bytes: threads store its elements.
    pub unaligned_out: bool,
}

/// Microseconds of an iteration and of all else of a tile, with so many blocks on an SM.
#[derive(Clone, Copy)]
struct Time {
    iteration: f64,
    fixed: f64,
    blocks: usize,
}

/// The cost of a block, with operands that TMA copies and with operands that threads load.
struct TileCost {
    block: Block,
    tma: Time,
    loads: Time,
    /// Microseconds more of a tile whose elements threads store.
    odd: f64,
    /// Whether there is a split-K kernel of it.
    splits: bool,
}

const fn time(iteration: f64, fixed: f64, blocks: usize) -> Time {
    Time { iteration, fixed, blocks }
}

/// The largest block, which adds no matrix.
pub(crate) const LARGEST: Block = Block::new(128, 256, 64);
pub(crate) const LARGE: Block = Block::new(128, 128, 64);
pub(crate) const SMALL: Block = Block::new(64, 128, 64);
const MIDDLE: Block = Block::new(64, 64, 128);
/// The block whose operand B must be K-major.
const SLIM: Block = Block::new(64, 32, 128);
/// A block between these two, which adds no matrix.
pub(crate) const WIDE: Block = Block::new(128, 192, 64);

const BLOCKS: [TileCost; 7] = [
    TileCost {
        block: LARGEST,
        tma: time(0.585, 1.22, 1),
        loads: time(3.97, 1.33, 1),
        odd: 1.06,
        splits: false,
    },
    TileCost { block: WIDE, tma: time(0.470, 1.26, 1), loads: time(5.74, 0.74, 1), odd: 2.48, splits: true },
    TileCost { block: LARGE, tma: time(0.339, 1.00, 1), loads: time(2.77, 0.07, 2), odd: 0.59, splits: true },
    TileCost { block: SMALL, tma: time(0.220, 0.47, 1), loads: time(1.93, 0.02, 4), odd: 0.23, splits: true },
    TileCost {
        block: MIDDLE,
        tma: time(0.257, 0.30, 1),
        loads: time(2.37, 0.02, 4),
        odd: 0.29,
        splits: true,
    },
    TileCost {
        block: Block::new(64, 64, 64),
        tma: time(0.224, 0.32, 2),
        loads: time(1.24, 0.02, 6),
        odd: 0.24,
        splits: false,
    },
    TileCost { block: SLIM, tma: time(0.310, 0.33, 2), loads: time(2.31, 1.96, 6), odd: 0.17, splits: false },
];

/// The large block of `f32`, which has no activation and adds no matrix.
pub(crate) const LARGE_BY_FMA: Block = Block::new(128, 128, 16);
/// The cost of a block of `f32`, whose threads multiply by FMA: of operands whose rows are aligned, and of others.
struct FmaCost {
    block: Block,
    aligned: FmaTime,
    odd: FmaTime,
    /// Microseconds of all else of a tile.
    fixed: f64,
    /// On an SM at once.
    blocks: usize,
    /// Whether there is a split-K kernel.
    splits: bool,
}

/// Microseconds of an iteration: what each block adds where FMA bound it, and the least that one takes.
#[derive(Clone, Copy)]
struct FmaTime {
    multiplied: f64,
    latency: f64,
}

const fn fma(multiplied: f64, latency: f64) -> FmaTime {
    FmaTime { multiplied, latency }
}

/// Fitted to every configuration of 500 random products on an H100.
const FMA_BLOCKS: [FmaCost; 4] = [
    FmaCost {
        block: LARGE_BY_FMA,
        aligned: fma(1.44, 0.812),
        odd: fma(1.49, 1.09),
        fixed: 1.72,
        blocks: 2,
        splits: false,
    },
    FmaCost {
        block: Block::new(64, 128, 16),
        aligned: fma(0.728, 0.763),
        odd: fma(0.747, 0.937),
        fixed: 3.78,
        blocks: 3,
        splits: false,
    },
    FmaCost {
        block: Block::new(64, 64, 16),
        aligned: fma(0.437, 0.412),
        odd: fma(0.452, 0.523),
        fixed: 1.11,
        blocks: 4,
        splits: true,
    },
    FmaCost {
        block: Block::new(32, 32, 16),
        aligned: fma(0.158, 0.268),
        odd: fma(0.169, 0.370),
        fixed: 0.708,
        blocks: 8,
        splits: true,
    },
];

/// Microseconds of a byte that is moved: 2.8 TB/s.
const BYTE: f64 = 0.360e-6;
/// Of a byte that all blocks read out of L2 at once.
const READ: f64 = 0.0800e-6;
/// Of a kernel that adds partial sums, or a matrix, and of a byte of partial sums.
const REDUCE_LAUNCH: f64 = 2.55;
const PARTIAL_BYTE: f64 = 0.0979e-6;
/// Of the kernel that copies operands, and of a byte that is read or written.
const COPY: f64 = 1.89;
const COPIED_BYTE: f64 = 0.409e-6;
/// What operands whose rows begin within sectors read more: five sectors for 128 bytes.
const STRADDLED: f64 = 1.25;
/// How much longer an iteration takes for each further block on an SM, by TMA and by loads.
const SHARED: f64 = 0.402;
const SHARED_LOADS: f64 = 0.959;
/// The split-K factors that are tried, the least extent along K of a program, and the most programs for each SM.
const SPLITS: [usize; 9] = [2, 3, 4, 6, 8, 12, 16, 24, 32];
const MIN_SPLIT_TERMS: usize = 128;
const MIN_FMA_TERMS: usize = 32;
const MOST_PROGRAMS: usize = 2;
/// The most bytes of partial sums.
const MOST_BYTES: usize = 1 << 28;
/// Bytes of the elements that the costs were measured with. An iteration over as many bytes takes as long for other types.
const BYTES: usize = 2;

/// The time of two things that overlap.
fn overlapped(one: f64, other: f64) -> f64 {
    (one.powi(4) + other.powi(4)).sqrt().sqrt()
}

impl Problem {
    /// A block for elements of this problem.
    fn block(&self, of: &TileCost) -> Block {
        Block { k: of.block.k * BYTES / self.bytes, ..of.block }
    }

    /// Whether there are kernels of a block, of whole tiles and of parts.
    fn kernels(&self, of: &TileCost) -> [bool; 2] {
        match self.bytes {
            1 => [
                of.block == WIDE && !self.has_residual || [LARGE, MIDDLE].contains(&of.block),
                of.block == SMALL,
            ],
            BYTES => {
                let has_residual = [LARGEST, WIDE].contains(&of.block) && self.has_residual;
                let takes_b = of.block != SLIM || self.b_is_k_major;
                [!has_residual && takes_b, of.splits]
            }
            _ => {
                let whole = [LARGE, SMALL, MIDDLE, Block::new(64, 64, 64)].contains(&of.block);
                [whole || of.block == LARGEST && !self.has_residual, [SMALL, MIDDLE].contains(&of.block)]
            }
        }
    }

    /// The split-K factors to try with a block that has such a kernel.
    fn splits(&self, terms: usize) -> impl Iterator<Item = usize> {
        let (k, elements) = (self.k, self.out.iter().product::<usize>());
        SPLITS.into_iter().filter(move |split_k| k / split_k >= terms && 4 * split_k * elements <= MOST_BYTES)
    }

    /// Microseconds of the kernel that adds the partial sums of a split of K.
    fn summing(&self, split_k: usize) -> f64 {
        if split_k == 1 {
            return 0.0;
        }
        REDUCE_LAUNCH
            + ((4 * split_k + self.bytes) * self.out.iter().product::<usize>()) as f64 * PARTIAL_BYTE
    }

    /// Microseconds of a configuration on so many SMs.
    fn estimate(&self, of: &TileCost, split_k: usize, copies: bool, sm_count: usize) -> f64 {
        let [batches, m, n] = self.out;
        let by_tma = copies || self.aligned == [true; 2];
        let (Time { iteration, fixed, blocks }, shared) =
            if by_tma { (of.tma, SHARED) } else { (of.loads, SHARED_LOADS) };
        let fixed = if self.unaligned_out && split_k == 1 { fixed + of.odd } else { fixed };
        let programs = of.block.tile.count(self.out) * split_k;
        let co_resident = blocks.min(programs.div_ceil(sm_count)) - 1;
        let Block { tile: TileShape { rows, cols }, k } = self.block(of);
        // Threads take as long for each element.
        let iteration = if by_tma { iteration } else { iteration * k as f64 / of.block.k as f64 };
        let iterations = self.k.div_ceil(k).div_ceil(split_k);
        let straddled = self.within_sectors.map(|within| if within && !copies { STRADDLED } else { 1.0 });
        let lines = rows as f64 * straddled[0] + cols as f64 * straddled[1];
        let read = (programs.min(sm_count * blocks) * self.bytes * k) as f64 * lines;
        let iteration = overlapped(iteration * (1.0 + co_resident as f64 * shared), read * READ);
        let waves = programs.div_ceil(sm_count * blocks) as f64 * (iterations as f64 * iteration + fixed);
        let (a_elements, b_elements) = (batches * m * self.k, self.b_batches * self.k * n);
        let (out, sums) = (batches * m * n, 4 * batches * m * n * split_k);
        let written = if split_k > 1 { sums } else { self.bytes * out };
        let moved = (self.bytes * (a_elements + b_elements) + written) as f64 * BYTE;
        let mut total = overlapped(waves, moved);
        total += self.summing(split_k);
        if copies {
            let elements =
                self.aligned.into_iter().zip([a_elements, b_elements]).filter(|(aligned, _)| !aligned);
            let elements: usize = elements.map(|(_, elements)| elements).sum();
            total += COPY + (2 * self.bytes * elements) as f64 * COPIED_BYTE;
        }
        total
    }

    /// The configuration with the least estimate on a GPU with `wgmma` and so many SMs.
    pub fn fastest(&self, sm_count: usize) -> Config {
        self.least(sm_count).1
    }

    /// Whether a matrix is added sooner by a kernel of its own, behind a product by tiles that have no registers for it.
    pub fn adds_separately(&self, sm_count: usize) -> bool {
        let [behind, product] =
            [true, false].map(|has_residual| Problem { has_residual, ..*self }.least(sm_count).0);
        let bytes = 3 * self.bytes * self.out.iter().product::<usize>();
        product + REDUCE_LAUNCH + bytes as f64 * BYTE < behind
    }

    /// The least estimate, in microseconds, and its configuration.
    fn least(&self, sm_count: usize) -> (f64, Config) {
        let copies: &[bool] = if self.aligned == [true; 2] { &[false] } else { &[false, true] };
        let mut best: Option<(f64, Config)> = None;
        for of in &BLOCKS {
            let Block { tile, .. } = of.block;
            let [has_whole, has_split_k] = self.kernels(of);
            let splits = self
                .splits(MIN_SPLIT_TERMS)
                .filter(|split_k| has_split_k && tile.count(self.out) * split_k <= MOST_PROGRAMS * sm_count);
            for split_k in has_whole.then_some(1).into_iter().chain(splits) {
                for &copies in copies {
                    let estimate = self.estimate(of, split_k, copies, sm_count);
                    if best.is_none_or(|(least, _)| estimate < least) {
                        let copies = self.aligned.map(|aligned| copies && !aligned);
                        best = Some((estimate, Config { block: self.block(of), split_k, copies }));
                    }
                }
            }
        }
        best.expect("there are blocks for every product")
    }

    /// Microseconds of a configuration of `f32` on so many SMs.
    fn estimate_by_fma(&self, of: &FmaCost, split_k: usize, sm_count: usize) -> f64 {
        let [batches, m, n] = self.out;
        let FmaTime { multiplied, latency } = if self.aligned == [true; 2] { of.aligned } else { of.odd };
        let on_one = (of.block.tile.count(self.out) * split_k).div_ceil(sm_count);
        let of_blocks = |blocks: usize| match blocks {
            0 => 0.0,
            _ => overlapped(blocks as f64 * multiplied, latency),
        };
        let (full, rest) = (on_one / of.blocks, on_one % of.blocks);
        let iterations = self.k.div_ceil(of.block.k).div_ceil(split_k) as f64;
        let waves = iterations * (full as f64 * of_blocks(of.blocks) + of_blocks(rest))
            + on_one.div_ceil(of.blocks) as f64 * of.fixed;
        let read = batches * m * self.k + self.b_batches * self.k * n;
        let moved = (4 * (read + batches * m * n * split_k)) as f64 * BYTE;
        overlapped(waves, moved) + self.summing(split_k)
    }

    /// The configuration of `f32`, which threads multiply by FMA.
    pub(crate) fn by_fma(&self, on: impl LaunchOn) -> Config {
        let (sm_count, can_split_k) = (on.parallelism(), on.shared_bytes().is_some());
        let mut best: Option<(f64, Config)> = None;
        for of in FMA_BLOCKS.iter().filter(|of| !(self.has_residual && of.block == LARGE_BY_FMA)) {
            let block = of.block;
            for split_k in
                std::iter::once(1).chain(self.splits(MIN_FMA_TERMS).filter(|_| of.splits && can_split_k))
            {
                let estimate = self.estimate_by_fma(of, split_k, sm_count);
                if best.is_none_or(|(least, _)| estimate < least) {
                    best = Some((estimate, Config { block, split_k, copies: [false; 2] }));
                }
            }
        }
        best.expect("there are blocks for every product").1
    }

    /// The configuration on other devices.
    pub(crate) fn without_wgmma(&self, on: impl LaunchOn, blocks: [Block; 2]) -> Config {
        let sm_count = on.parallelism();
        let split_k =
            if on.shared_bytes().is_some() { split_matmul::split_k(self.out, self.k, sm_count) } else { 1 };
        let [large, small] = blocks;
        let tile = TileShape::of([large.tile, small.tile], self.out, sm_count);
        let block = if tile == large.tile && split_k == 1 { large } else { small };
        Config { block, split_k, copies: [false; 2] }
    }
}
