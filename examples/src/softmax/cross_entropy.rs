//! The cross-entropy of each row of logits with a target class, with label smoothing and a class that is ignored; and its
//! gradient. Probabilities are never written to memory.
//!
//! With `lse = ln(sum(exp(x)))`, smoothing `s` and target `t`: `loss = lse - (1 - s) * x[t] - s * mean(x)`, and
//! `dx[j] = grad * (exp(x[j] - lse) - s / classes - (1 - s) * (j == t))`. A row whose target is the ignored class has a loss
//! and a gradient of 0. A target that is no class makes its row NaN.
//!
//! **Traffic.** Forward reads the logits once, `rows * classes * size_of::<T>()` bytes, and writes two numbers a row.
//! Backward reads them once and writes as many: to another matrix, or over the logits.
//!
//! **Rounding.** In `f32`. `lse` is within `(16 + sqrt(classes) + 2 * (max(x) - min(x))) * 2^-24 + |lse| * 2^-23`, the loss
//! within that and `2^-22 * (|x[t]| + mean(|x|)) * (1 + sqrt(classes) / 8)`. The gradient is rounded to `T` once; before
//! that it is within `|grad| * (exp(x[j] - lse) * (16 + 2 |x[j] - lse| + 4 |lse|) + 2) * 2^-24` of that of the given `lse`.
//!
//! **Special rows.** A NaN or positive infinity among the logits makes the row NaN, and so do logits that are all negative
//! infinity.
//!
//! **Source.** `torch.nn.functional.cross_entropy`; label smoothing of Szegedy and others, 2015, arXiv:1512.00567, section
//! 7; the gradient over the logits as Hsu and others, *Liger Kernel*, 2024, arXiv:2410.10989, section 3.

use dsl_runtime::prelude::*;
use dsl_runtime::{DType, Result};

use crate::float::LibraryFloat;
use crate::reference::{Expected, unit_roundoff};
use crate::shape::{Checks, leaves_sms_idle, longest, short_programs};

/// The lanes of a program of forward, and of one for very many classes.
const LANES: usize = 256;
const CLUSTER_LANES: usize = 1024;

/// From so many classes on a cluster reads a row, 32 elements to a lane at once.
const CLUSTER_CLASSES: usize = 1 << 16;
const CLUSTER_PIECE: usize = 32 * CLUSTER_LANES;

/// Whether a cluster's last piece of a row is full enough: it takes as long as the others.
fn fills_clusters(classes: usize) -> bool {
    classes >= CLUSTER_CLASSES && 6 * (classes.next_multiple_of(CLUSTER_PIECE) - classes) <= classes
}

/// The elements of a row that a program of backward handles, and one of forward for an unaligned row.
const BLOCK: usize = 4096;

#[fuse_module]
pub(crate) mod kernels {
    use dsl_runtime::prelude::*;

    use crate::float::LibraryFloat;

    /// The losses of a program's `ROWS` rows, each of at most `COLS` classes.
    #[fuse_fn]
    fn loss_of_rows<T: Float, const ROWS: usize, const COLS: usize>(
        x: &[T],
        targets: &[i64],
        loss: &mut [f32],
        lse: &mut [f32],
        n_rows: i32,
        classes: i32,
        ignored: i64,
        smoothing: f32,
    ) {
        let rows = tl::program_id(0) * ROWS + tl::arange(0, ROWS);
        let cols = tl::arange(0, COLS);
        let mask = (rows < n_rows).col() & (cols < classes).row();
        let logits = tl::load(x + ((rows * classes).col() + cols.row()), mask, T::NEG_INFINITY).to::<f32>();
        let target = tl::load(targets + rows, rows < n_rows);
        let is_class = (target >= 0) & (target < classes.to::<i64>());
        let target_logit = tl::load(x + rows * classes + target, is_class & (rows < n_rows)).to::<f32>();
        let row_max = tl::max(logits, 1);
        let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
        let row_sum = tl::sum(tl::exp2((logits - safe_max.col()) * f32::consts::LOG2_E), 1);
        let row_lse = safe_max + tl::log(row_sum);
        // Where nothing is smoothed an infinite mean must not count.
        let smooth_term = if smoothing > 0.0 {
            tl::sum(tl::select(mask, logits, 0.0), 1) / classes as f32 * smoothing
        } else {
            tl::zeros::<f32>([ROWS])
        };
        let row_loss =
            tl::select(is_class, row_lse - (1.0 - smoothing) * target_logit - smooth_term, f32::NAN);
        tl::store(loss + rows, tl::select(target == ignored, 0.0, row_loss), rows < n_rows);
        tl::store(lse + rows, row_lse, rows < n_rows);
    }

    /// A program for eight rows of at most `COLS` classes, or four of more than 512, which stay in registers.
    #[fuse_kernel(T = [f32, f16, bf16], COLS = classes in [128, 256, 384, 512, 768, 1024], num_warps = 4)]
    pub fn cross_entropy_short<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        targets: &[i64],
        loss: &mut [f32],
        lse: &mut [f32],
        n_rows: i32,
        classes: i32,
        ignored: i64,
        smoothing: f32,
    ) {
        if COLS <= 512 {
            loss_of_rows::<T, 8, COLS>(x, targets, loss, lse, n_rows, classes, ignored, smoothing);
        } else {
            loss_of_rows::<T, 4, COLS>(x, targets, loss, lse, n_rows, classes, ignored, smoothing);
        }
    }

    /// A program for one row of at most `COLS` classes, which stays in registers. A cluster of blocks shares the longest.
    #[fuse_kernel(
        T = [f32, f16, bf16], COLS = classes in [2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384, 24576, 32768, 65536],
        num_ctas = if COLS > 32768 { 8 } else { 1 },
    )]
    pub fn cross_entropy_row<T: LibraryFloat, const COLS: usize>(
        x: &[T],
        targets: &[i64],
        loss: &mut [f32],
        lse: &mut [f32],
        n_rows: i32,
        classes: i32,
        ignored: i64,
        smoothing: f32,
    ) {
        loss_of_rows::<T, 1, COLS>(x, targets, loss, lse, n_rows, classes, ignored, smoothing);
    }

    /// The target of a row, whether it is a class, and its logit.
    #[fuse_fn]
    fn target_of<T: Float>(x: &[T], targets: &[i64], row: i32, classes: i32) -> (i64, bool, f32) {
        let target = tl::load(targets + row);
        let is_class = (target >= 0) & (target < classes.to::<i64>());
        (target, is_class, tl::load(x + row * classes + target, is_class).to::<f32>())
    }

    /// The loss of a row with the logarithm of its sum of exponentials, the logit of its target and the mean of all.
    #[fuse_fn]
    fn loss_of(row_lse: f32, target_logit: f32, mean: f32, smoothing: f32) -> f32 {
        // Where nothing is smoothed an infinite mean must not count.
        let smooth_term = tl::select(smoothing > 0.0, smoothing * mean, 0.0);
        row_lse - (1.0 - smoothing) * target_logit - smooth_term
    }

    /// One program for each row, which it reads once, `32 * LANES` elements at a time; clusters of blocks read fewer rows at once,
    /// which is faster in memory where rows are very long. Each lane has a running maximum, the sum of exponentials relative to
    /// it, and the sum of its elements.
    #[fuse_kernel(
        configs = [
            { T: f32, LANES: 256, num_stages: 1 }, { T: f32, LANES: 1024, num_ctas: 4, num_stages: 1 },
            { T: f16, LANES: 256 }, { T: f16, LANES: 1024, num_ctas: 4, num_stages: 3 },
            { T: bf16, LANES: 256 }, { T: bf16, LANES: 1024, num_ctas: 4, num_stages: 3 },
        ],
        num_warps = 8,
    )]
    pub fn cross_entropy<T: LibraryFloat, const LANES: usize>(
        x: &[T],
        targets: &[i64],
        loss: &mut [f32],
        lse: &mut [f32],
        classes: i32,
        ignored: i64,
        smoothing: f32,
    ) {
        let row = tl::program_id(0);
        // Contiguous elements belong to one lane, so that its maximum needs no shuffle.
        let cols = tl::arange(0, LANES).col() * 8 + tl::arange(0, 8).row();
        let (target, is_class, target_logit) = target_of::<T>(x, targets, row, classes);
        let mut lane_max = tl::full([LANES], f32::NEG_INFINITY);
        let mut lane_sum = tl::zeros::<f32>([LANES]);
        let mut sums = tl::zeros::<f32>([LANES]);
        for first in (0..classes).step_by(32 * LANES) {
            let (at_a, at_b) = (first + cols, first + 8 * LANES + cols);
            let (at_c, at_d) = (first + 16 * LANES + cols, first + 24 * LANES + cols);
            let a = tl::load(x + row * classes + at_a, at_a < classes, T::NEG_INFINITY).to::<f32>();
            let b = tl::load(x + row * classes + at_b, at_b < classes, T::NEG_INFINITY).to::<f32>();
            let c = tl::load(x + row * classes + at_c, at_c < classes, T::NEG_INFINITY).to::<f32>();
            let d = tl::load(x + row * classes + at_d, at_d < classes, T::NEG_INFINITY).to::<f32>();
            let piece_max = tl::max(tl::maximum(tl::maximum(a, b), tl::maximum(c, d)), 1);
            let new_max = tl::maximum(lane_max, piece_max);
            let safe_max = tl::select(new_max == f32::NEG_INFINITY, 0.0, new_max);
            if smoothing > 0.0 {
                // Each by its own mask: one select for a vector.
                let (a, b) = (tl::select(at_a < classes, a, 0.0), tl::select(at_b < classes, b, 0.0));
                let (c, d) = (tl::select(at_c < classes, c, 0.0), tl::select(at_d < classes, d, 0.0));
                sums += (tl::sum(a, 1) + tl::sum(b, 1)) + (tl::sum(c, 1) + tl::sum(d, 1));
            }
            let safe_max_col = safe_max.col();
            let a = tl::exp2((a - safe_max_col) * f32::consts::LOG2_E);
            let b = tl::exp2((b - safe_max_col) * f32::consts::LOG2_E);
            let c = tl::exp2((c - safe_max_col) * f32::consts::LOG2_E);
            let d = tl::exp2((d - safe_max_col) * f32::consts::LOG2_E);
            let rescaled = lane_sum * tl::exp2((lane_max - safe_max) * f32::consts::LOG2_E);
            lane_sum = rescaled + tl::sum((a + b) + (c + d), 1);
            lane_max = new_max;
        }
        let row_max = tl::max(lane_max, 0);
        let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
        let row_sum = tl::sum(lane_sum * tl::exp2((lane_max - safe_max) * f32::consts::LOG2_E), 0);
        let (row_lse, mean) = (safe_max + tl::log(row_sum), tl::sum(sums, 0) / classes as f32);
        let row_loss = tl::select(is_class, loss_of(row_lse, target_logit, mean, smoothing), f32::NAN);
        tl::store(loss + row, tl::select(target == ignored, 0.0, row_loss));
        tl::store(lse + row, row_lse);
    }

    /// One program for each row, which it reads once, `BLOCK` elements at a time: for unaligned rows of more classes than a cluster keeps
    /// in registers. All threads have the running maximum, and the sum of exponentials relative to it.
    #[fuse_kernel(T = [f32, f16, bf16], BLOCK = [4096], num_warps = 8)]
    pub fn cross_entropy_unaligned<T: LibraryFloat, const BLOCK: usize>(
        x: &[T],
        targets: &[i64],
        loss: &mut [f32],
        lse: &mut [f32],
        classes: i32,
        ignored: i64,
        smoothing: f32,
    ) {
        let row = tl::program_id(0);
        let (target, is_class, target_logit) = target_of::<T>(x, targets, row, classes);
        let (mut row_max, mut row_sum, mut sum) = (f32::NEG_INFINITY, 0.0, 0.0);
        for first in (0..classes).step_by(BLOCK) {
            let cols = first + tl::arange(0, BLOCK);
            let mask = cols < classes;
            let logits = tl::load(x + row * classes + cols, mask, T::NEG_INFINITY).to::<f32>();
            let new_max = tl::maximum(row_max, tl::max(logits, 0));
            let safe_max = tl::select(new_max == f32::NEG_INFINITY, 0.0, new_max);
            if smoothing > 0.0 {
                sum += tl::sum(tl::select(mask, logits, 0.0), 0);
            }
            let exps = tl::exp2((logits - safe_max) * f32::consts::LOG2_E);
            row_sum = row_sum * tl::exp2((row_max - safe_max) * f32::consts::LOG2_E) + tl::sum(exps, 0);
            row_max = new_max;
        }
        let safe_max = tl::select(row_max == f32::NEG_INFINITY, 0.0, row_max);
        let (row_lse, mean) = (safe_max + tl::log(row_sum), sum / classes as f32);
        let row_loss = tl::select(is_class, loss_of(row_lse, target_logit, mean, smoothing), f32::NAN);
        tl::store(loss + row, tl::select(target == ignored, 0.0, row_loss));
        tl::store(lse + row, row_lse);
    }
}

pub use kernels::{cross_entropy, cross_entropy_row, cross_entropy_short, cross_entropy_unaligned};

/// The most classes that a program keeps in registers, of many aligned rows. Of others as many as a cluster or a block can: unaligned
/// pieces of rows are read as parts of aligned vectors, each of them twice, and with few rows only the threads of a cluster hide the
/// latency.
const IN_REGISTERS: usize = 8192;
const IN_CLUSTER_REGISTERS: usize = 65536;
const IN_BLOCK_REGISTERS: usize = 32768;
/// The most classes of rows of which a program handles several.
const SHORT_CLASSES: usize = 1024;

/// The gradient of `BLOCK` logits of one row.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [4096])]
pub fn cross_entropy_backward<T: LibraryFloat, const BLOCK: usize>(
    x: &[T],
    targets: &[i64],
    lse: &[f32],
    grad: &[f32],
    dx: &mut [T],
    classes: i32,
    ignored: i64,
    smoothing: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::program_id(1) * BLOCK + tl::arange(0, BLOCK);
    let mask = cols < classes;
    let x = tl::load(x + row * classes + cols, mask).to::<f32>();
    let target = tl::load(targets + row);
    let is_class = (target >= 0) & (target < classes.to::<i64>());
    let grad = tl::select(is_class, tl::load(grad + row), f32::NAN);
    let (lse, target_col) = (tl::load(lse + row), target.to::<i32>());
    let prob = tl::exp2((x - lse) * f32::consts::LOG2_E) - smoothing / classes as f32;
    let dx_row = (prob - tl::select(cols == target_col, 1.0 - smoothing, 0.0)) * grad;
    let masked_dx = tl::select(target == ignored, 0.0, dx_row);
    tl::store(dx + row * classes + cols, masked_dx.to::<T>(), mask);
}

/// The same over the logits.
#[fuse_kernel(T = [f32, f16, bf16], BLOCK = [4096])]
pub fn cross_entropy_backward_in_place<T: LibraryFloat, const BLOCK: usize>(
    x: &mut [T],
    targets: &[i64],
    lse: &[f32],
    grad: &[f32],
    classes: i32,
    ignored: i64,
    smoothing: f32,
) {
    let row = tl::program_id(0);
    let cols = tl::program_id(1) * BLOCK + tl::arange(0, BLOCK);
    let mask = cols < classes;
    let logits = tl::load(x + row * classes + cols, mask).to::<f32>();
    let target = tl::load(targets + row);
    let is_class = (target >= 0) & (target < classes.to::<i64>());
    let grad = tl::select(is_class, tl::load(grad + row), f32::NAN);
    let (lse, target_col) = (tl::load(lse + row), target.to::<i32>());
    let prob = tl::exp2((logits - lse) * f32::consts::LOG2_E) - smoothing / classes as f32;
    let dx_row = (prob - tl::select(cols == target_col, 1.0 - smoothing, 0.0)) * grad;
    let masked_dx = tl::select(target == ignored, 0.0, dx_row);
    tl::store(x + row * classes + cols, masked_dx.to::<T>(), mask);
}

/// The cross-entropy of logits with a target class for each row. `T` is `f32`, `f16` or `bf16`.
#[derive(Clone, Copy)]
pub struct CrossEntropy<'a> {
    targets: Slice<'a, i64>,
    classes: usize,
    ignored: i64,
    smoothing: f32,
}

impl<'a> CrossEntropy<'a> {
    /// The class of each row; -100 is ignored and nothing is smoothed.
    pub fn new(targets: impl Into<Slice<'a, i64>>, classes: usize) -> Self {
        CrossEntropy { targets: targets.into(), classes, ignored: -100, smoothing: 0.0 }
    }

    /// The target of ignored rows.
    pub fn ignore(self, ignored: i64) -> Self {
        CrossEntropy { ignored, ..self }
    }

    /// How much of a target is spread over all classes, from 0 to 1.
    pub fn smoothing(self, smoothing: f32) -> Self {
        CrossEntropy { smoothing, ..self }
    }

    /// Computes the loss of each row, and the logarithm of the sum of its exponentials, which [`backward`](Self::backward)
    /// takes; on a device or stream.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn forward<'s, 'o, T: LibraryFloat>(
        &self,
        on: impl LaunchOn,
        logits: impl Into<Slice<'s, T>>,
        loss: impl Into<SliceMut<'o, f32>>,
        lse: impl Into<SliceMut<'o, f32>>,
    ) -> Result<()> {
        let (logits, loss, lse) = (logits.into(), loss.into(), lse.into());
        let rows = self.rows(logits.len(), &[("loss", loss.len()), ("lse", lse.len())])?;
        if rows == 0 {
            return Ok(());
        }
        let (targets, classes) = (self.targets, self.classes as i32);
        let (ignored, smoothing) = (self.ignored, self.smoothing);
        let is_unaligned = !(self.classes * size_of::<T>()).is_multiple_of(16);
        let in_registers = if is_unaligned || leaves_sms_idle(on, rows) {
            longest(on, IN_CLUSTER_REGISTERS, IN_BLOCK_REGISTERS)
        } else {
            IN_REGISTERS
        };
        let n_rows = rows as i32;
        if self.classes <= SHORT_CLASSES {
            let call =
                cross_entropy_short::<T>(logits, targets, loss, lse, n_rows, classes, ignored, smoothing);
            return call.grid(short_programs(rows, self.classes)).launch(on);
        }
        if self.classes <= in_registers {
            let call =
                cross_entropy_row::<T>(logits, targets, loss, lse, n_rows, classes, ignored, smoothing);
            return call.grid(rows).launch(on);
        }
        if is_unaligned {
            let call =
                cross_entropy_unaligned::<T, BLOCK>(logits, targets, loss, lse, classes, ignored, smoothing);
            return call.grid(rows).launch(on);
        }
        if on.has_clusters() && fills_clusters(self.classes) {
            let call =
                cross_entropy::<T, CLUSTER_LANES>(logits, targets, loss, lse, classes, ignored, smoothing);
            return call.grid(rows).launch(on);
        }
        let call = cross_entropy::<T, LANES>(logits, targets, loss, lse, classes, ignored, smoothing);
        call.grid(rows).launch(on)
    }

    /// Computes the gradient of the logits into `dx`, where `grad` is the gradient of each row's loss.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn backward<'s, 'o, T: LibraryFloat>(
        &self,
        on: impl LaunchOn,
        logits: impl Into<Slice<'s, T>>,
        saved: Saved<'s>,
        dx: impl Into<SliceMut<'o, T>>,
    ) -> Result<()> {
        let (logits, dx, Saved { lse, grad }) = (logits.into(), dx.into(), saved);
        Checks("cross_entropy").same(("logits", logits.len()), ("dx", dx.len()))?;
        let rows = self.rows(logits.len(), &[("lse", lse.len()), ("grad", grad.len())])?;
        if rows == 0 {
            return Ok(());
        }
        let (targets, classes) = (self.targets, self.classes as i32);
        let (ignored, smoothing) = (self.ignored, self.smoothing);
        let call =
            cross_entropy_backward::<T, BLOCK>(logits, targets, lse, grad, dx, classes, ignored, smoothing);
        call.grid((rows, self.classes.div_ceil(BLOCK))).launch(on)
    }

    /// The same over the logits, which are not needed any more.
    ///
    /// # Errors
    /// If the lengths do not fit each other; those of a launch.
    pub fn backward_in_place<'s, 'o, T: LibraryFloat>(
        &self,
        on: impl LaunchOn,
        logits: impl Into<SliceMut<'o, T>>,
        saved: Saved<'s>,
    ) -> Result<()> {
        let (logits, Saved { lse, grad }) = (logits.into(), saved);
        let rows = self.rows(logits.len(), &[("lse", lse.len()), ("grad", grad.len())])?;
        if rows == 0 {
            return Ok(());
        }
        let (targets, classes) = (self.targets, self.classes as i32);
        let (ignored, smoothing) = (self.ignored, self.smoothing);
        let call = cross_entropy_backward_in_place::<T, BLOCK>(
            logits, targets, lse, grad, classes, ignored, smoothing,
        );
        call.grid((rows, self.classes.div_ceil(BLOCK))).launch(on)
    }

    /// The number of rows, if all lengths fit.
    fn rows(&self, logits: usize, vectors: &[(&str, usize)]) -> Result<usize> {
        let checks = Checks("cross_entropy");
        let rows = checks.rows(("logits", logits), self.classes)?;
        checks.same(("targets", self.targets.len()), ("a column of logits", rows))?;
        for &vector in vectors {
            checks.same(("targets", self.targets.len()), vector)?;
        }
        Ok(rows)
    }
}

/// What backward needs besides the logits, a float for each row.
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    /// What forward computed.
    pub lse: Slice<'a, f32>,
    /// The gradient of the row's loss: for a mean, 1 over the number of rows that are not ignored.
    pub grad: Slice<'a, f32>,
}

/// A row's target, for the references.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// The class.
    pub target: i64,
    /// The ignored class.
    pub ignored: i64,
    /// How much is spread over all classes.
    pub smoothing: f32,
}

/// The loss and the `lse` of one row in `f64`, and the bounds that the module's documentation states.
pub fn reference<T: Float>(row: &[T], label: Label) -> [Expected; 2] {
    let (classes, single) = (row.len() as f64, unit_roundoff(DType::F32));
    let values = || row.iter().map(|x| x.to_f64());
    let max = values().fold(f64::NEG_INFINITY, f64::max);
    let min = values().fold(f64::INFINITY, f64::min);
    let safe_max = if max == f64::NEG_INFINITY { 0.0 } else { max };
    let lse = safe_max + values().map(|x| (x - safe_max).exp()).sum::<f64>().ln();
    let range = if min.is_finite() && max.is_finite() { max - min } else { 200.0 };
    let lse_within = (16.0 + classes.sqrt() + 2.0 * range) * single + lse.abs() * 2.0 * single;
    let lse = Expected { value: lse, within: lse_within };
    let smoothing = f64::from(label.smoothing);
    let mean = values().sum::<f64>() / classes;
    let magnitude = values().map(f64::abs).sum::<f64>() / classes;
    let target_logit = usize::try_from(label.target).ok().and_then(|target| row.get(target));
    let loss = match target_logit {
        _ if label.target == label.ignored => Expected { value: 0.0, within: 0.0 },
        None => Expected { value: f64::NAN, within: 0.0 },
        Some(target_logit) => {
            let smooth = if smoothing > 0.0 { smoothing * mean } else { 0.0 };
            let value = lse.value - (1.0 - smoothing) * target_logit.to_f64() - smooth;
            let size = target_logit.to_f64().abs() + magnitude;
            Expected { value, within: lse.within + 4.0 * single * size * (1.0 + classes.sqrt() / 8.0) }
        }
    };
    [loss, lse]
}

/// The gradient of one row in `f64` for an `lse` and a gradient of the loss, and the bound that the module's documentation
/// states.
pub fn backward_reference<T: Float>(row: &[T], label: Label, [lse, grad]: [f32; 2]) -> Vec<Expected> {
    let (single, smoothing) = (unit_roundoff(DType::F32), f64::from(label.smoothing));
    let (lse, grad) = (f64::from(lse), f64::from(grad));
    let is_class = usize::try_from(label.target).is_ok_and(|target| target < row.len());
    let exact = |(j, x): (usize, &T)| {
        if label.target == label.ignored || !is_class {
            return Expected {
                value: if label.target == label.ignored { 0.0 } else { f64::NAN },
                within: 0.0,
            };
        }
        let distance = x.to_f64() - lse;
        let target_logit = if j as i64 == label.target { 1.0 - smoothing } else { 0.0 };
        let value = grad * (distance.exp() - smoothing / row.len() as f64 - target_logit);
        let prob_error = if distance.is_finite() {
            distance.exp() * (16.0 + 2.0 * distance.abs() + 4.0 * lse.abs())
        } else {
            0.0
        };
        let within = grad.abs() * ((prob_error + 2.0) * single + f64::from(f32::MIN_POSITIVE));
        Expected { value, within }.rounded(T::DTYPE)
    };
    row.iter().enumerate().map(exact).collect()
}

/// The bytes that forward must move.
pub const fn traffic<T>(rows: usize, classes: usize) -> usize {
    rows * (classes * size_of::<T>() + 2 * size_of::<f32>() + size_of::<i64>())
}

/// The bytes that backward must move.
pub const fn backward_traffic<T>(rows: usize, classes: usize) -> usize {
    rows * (2 * classes * size_of::<T>() + 2 * size_of::<f32>() + size_of::<i64>())
}
