//! Contiguity, divisibility, constancy and range of integer values: the lattice, and how operations change its elements.
//!
//! For a tile and an axis, with `c`, `k` and `d` powers of two:
//! - contiguity `c`: in every aligned run of `c` elements along the axis, each is one more than the one before;
//! - divisibility `d`: the first element of every such run is a multiple of `d`;
//! - constancy `k`: in every aligned run of `k` elements along the axis, all are equal.
//!
//! A property holds for every index along the other axes. All of them are lower bounds: 1 says nothing.

use crate::ir::{Block, Func, Shape, Type, Value};
use crate::support::dtype::DType;
use crate::support::operator::BinaryOp;

/// "A multiple of everything": the divisibility of zero.
const ALL: u64 = 1 << 62;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Axis {
    pub contiguity: u64,
    pub divisibility: u64,
    pub constancy: u64,
}

const UNKNOWN: Axis = Axis { contiguity: 1, divisibility: 1, constancy: 1 };

/// The lattice element of one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisInfo {
    pub axes: Vec<Axis>,
    /// Every element is a multiple of this power of two.
    pub divisor: u64,
    /// Every element lies between these.
    pub range: (i128, i128),
}

impl AxisInfo {
    /// Nothing but what the type says.
    pub fn unknown(ty: &Type) -> AxisInfo {
        let range = if ty.dtype.is_float() { (i128::MIN, i128::MAX) } else { ty.dtype.range() };
        AxisInfo { axes: vec![UNKNOWN; ty.shape.rank()], divisor: 1, range }
    }

    pub fn constant(value: i128) -> AxisInfo {
        AxisInfo { axes: vec![], divisor: power_in(value), range: (value, value) }
    }

    /// The value of every element, if the range has one.
    pub fn single(&self) -> Option<i128> {
        (self.range.0 == self.range.1).then_some(self.range.0)
    }

    /// A divisor of the elements at positions that are multiples of `step` along `axis`.
    pub fn divisor_at(&self, axis: usize, step: u64) -> u64 {
        let Axis { contiguity, divisibility, .. } = self.axes[axis];
        // Between the starts of runs an element is its run's start plus a multiple of the step.
        let own = if step >= contiguity { divisibility } else { divisibility.min(step) };
        own.max(self.divisor)
    }

    /// The meet of the lattice: what holds for both values.
    pub fn meet(&self, other: &AxisInfo) -> AxisInfo {
        let axes = (0..self.axes.len())
            .map(|d| {
                let contiguity = self.axes[d].contiguity.min(other.axes[d].contiguity);
                Axis {
                    contiguity,
                    divisibility: self.divisor_at(d, contiguity).min(other.divisor_at(d, contiguity)),
                    constancy: self.axes[d].constancy.min(other.axes[d].constancy),
                }
            })
            .collect();
        AxisInfo {
            axes,
            divisor: self.divisor.min(other.divisor),
            range: (self.range.0.min(other.range.0), self.range.1.max(other.range.1)),
        }
    }
}

/// The largest power of two that divides `value`.
fn power_in(value: i128) -> u64 {
    if value == 0 { ALL } else { 1 << value.trailing_zeros().min(62) }
}

/// What the rule of an operation asks of the data flow analysis that applies it.
pub trait AxisEnv {
    fn func(&self) -> &Func;

    fn info(&self, value: Value) -> AxisInfo;

    fn set(&mut self, value: Value, info: AxisInfo);

    /// The most programs along an axis of the grid, where that is known.
    fn most_programs(&self, axis: u8) -> Option<i128>;

    /// Analyzes the operations of a nested block.
    fn block(&mut self, block: &Block);

    /// Iterates a loop's body until the info of its carried values is a fixed point.
    fn carry(&mut self, inits: &[Value], args: &[Value], body: &Block) -> Vec<AxisInfo>;
}

/// Clips info to its type: a result that leaves the type's range wraps.
pub fn clip(info: AxisInfo, ty: &Type) -> AxisInfo {
    if ty.dtype.is_float() {
        return AxisInfo::unknown(ty);
    }
    let (low, high) = ty.dtype.range();
    if info.range.0 >= low && info.range.1 <= high {
        return info;
    }
    // Wrapping subtracts a multiple of 2^bits: it keeps smaller powers of two, and runs that do not cross the edge,
    // which aligned runs of a start divisible by their length do not.
    let bits = ty.dtype.bytes() * 8;
    let modulus = if bits >= 62 { ALL } else { 1u64 << bits };
    let axes = info
        .axes
        .iter()
        .map(|axis| {
            let contiguity = axis.contiguity.min(axis.divisibility).min(modulus);
            // Shorter runs start at multiples of their length from where a longer one does.
            let divisibility = if contiguity < axis.contiguity {
                axis.divisibility.min(contiguity)
            } else {
                axis.divisibility
            };
            Axis { contiguity, divisibility: divisibility.min(modulus), constancy: axis.constancy }
        })
        .collect();
    AxisInfo { axes, divisor: info.divisor.min(modulus), range: (low, high) }
}

/// The power of two in an extent: aligned runs do not cross its odd number of repetitions.
fn run_length(extent: u32) -> u64 {
    1 << extent.trailing_zeros()
}

pub fn splat(scalar: &AxisInfo, shape: &Shape) -> AxisInfo {
    let axes = shape
        .iter()
        .map(|&extent| Axis { contiguity: 1, divisibility: scalar.divisor, constancy: run_length(extent) })
        .collect();
    AxisInfo { axes, divisor: scalar.divisor, range: scalar.range }
}

pub fn arange(start: i32, extent: u32) -> AxisInfo {
    let runs = run_length(extent);
    let between = if u64::from(extent) == runs { ALL } else { runs };
    let axis =
        Axis { contiguity: runs, divisibility: power_in(i128::from(start)).min(between), constancy: 1 };
    let divisor = if extent == 1 { power_in(i128::from(start)) } else { 1 };
    AxisInfo {
        axes: vec![axis],
        divisor,
        range: (i128::from(start), i128::from(start) + i128::from(extent) - 1),
    }
}

pub fn expand_dims(info: &AxisInfo, axis: usize) -> AxisInfo {
    let mut info = info.clone();
    let divisor = (0..info.axes.len()).map(|d| info.divisor_at(d, 1)).max().unwrap_or(info.divisor);
    info.axes.insert(axis, Axis { contiguity: 1, divisibility: divisor, constancy: 1 });
    info
}

pub fn broadcast(info: &AxisInfo, from: &Shape, to: &Shape) -> AxisInfo {
    let mut info = info.clone();
    for d in 0..from.rank() {
        if from[d] != to[d] {
            info.axes[d] =
                Axis { contiguity: 1, divisibility: info.divisor_at(d, 1), constancy: run_length(to[d]) };
        }
    }
    info
}

/// Row-major order keeps runs along the last axis that fit both shapes.
pub fn reshape(info: &AxisInfo, from: &Shape, to: &Shape) -> AxisInfo {
    let mut axes = vec![Axis { divisibility: info.divisor, ..UNKNOWN }; to.rank()];
    if let (Some(&old), Some(&new)) = (from.last(), to.last()) {
        let last = from.rank() - 1;
        let fits = run_length(old).min(run_length(new));
        let Axis { contiguity, constancy, .. } = info.axes[last];
        let contiguity = contiguity.min(fits);
        let divisibility = info.divisor_at(last, contiguity);
        axes[to.rank() - 1] = Axis { contiguity, divisibility, constancy: constancy.min(fits) };
    }
    AxisInfo { axes, divisor: info.divisor, range: info.range }
}

pub fn permute(info: &AxisInfo, order: &[usize]) -> AxisInfo {
    AxisInfo { axes: order.iter().map(|&d| info.axes[d]).collect(), ..info.clone() }
}

pub fn cast(info: &AxisInfo, from: DType, to: &Type) -> AxisInfo {
    if from.is_float() || to.dtype == DType::Bool {
        return AxisInfo::unknown(to);
    }
    // `clip` turns what does not fit into a wrapped value.
    info.clone()
}

/// Joins two operands axis by axis.
fn zip(a: &AxisInfo, b: &AxisInfo, join: impl Fn(usize) -> Axis) -> Vec<Axis> {
    debug_assert_eq!(a.axes.len(), b.axes.len());
    (0..a.axes.len()).map(join).collect()
}

fn constant_axes(rank: usize) -> Vec<Axis> {
    vec![Axis { contiguity: 1, divisibility: ALL, constancy: ALL }; rank]
}

/// `info`, a known exponent, as the power itself.
fn scaled(info: &AxisInfo, value: i128) -> AxisInfo {
    let divisor = power_in(value);
    let axes = info.axes.iter().map(|axis| Axis { contiguity: 1, divisibility: divisor, ..*axis }).collect();
    AxisInfo { axes, divisor, range: (value, value) }
}

/// Equal operands have equal results: all that is known of an operation without a rule.
pub fn equal_runs(args: &[AxisInfo], ty: &Type) -> AxisInfo {
    let mut info = AxisInfo::unknown(ty);
    for (d, axis) in info.axes.iter_mut().enumerate() {
        axis.constancy = args.iter().map(|arg| arg.axes[d].constancy).min().unwrap_or(1);
    }
    info
}

/// One of the two, element by element.
fn either(a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let axes = zip(a, b, |d| Axis {
        contiguity: 1,
        divisibility: a.divisor_at(d, 1).min(b.divisor_at(d, 1)),
        constancy: a.axes[d].constancy.min(b.axes[d].constancy),
    });
    AxisInfo {
        axes,
        divisor: a.divisor.min(b.divisor),
        range: (a.range.0.min(b.range.0), a.range.1.max(b.range.1)),
    }
}

pub fn add(a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let axes = zip(a, b, |d| {
        let (x, y) = (a.axes[d], b.axes[d]);
        let contiguity = x.contiguity.min(y.constancy).max(x.constancy.min(y.contiguity));
        Axis {
            contiguity,
            divisibility: a.divisor_at(d, contiguity).min(b.divisor_at(d, contiguity)),
            constancy: x.constancy.min(y.constancy),
        }
    });
    let range = (a.range.0.saturating_add(b.range.0), a.range.1.saturating_add(b.range.1));
    AxisInfo { axes, divisor: a.divisor.min(b.divisor), range }
}

pub fn sub(a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let axes = zip(a, b, |d| {
        let (x, y) = (a.axes[d], b.axes[d]);
        let contiguity = x.contiguity.min(y.constancy);
        Axis {
            contiguity,
            divisibility: a.divisor_at(d, contiguity).min(b.divisor_at(d, contiguity)),
            constancy: x.constancy.min(y.constancy),
        }
    });
    let range = (a.range.0.saturating_sub(b.range.1), a.range.1.saturating_sub(b.range.0));
    AxisInfo { axes, divisor: a.divisor.min(b.divisor), range }
}

pub fn neg(info: &AxisInfo) -> AxisInfo {
    sub(&AxisInfo { axes: constant_axes(info.axes.len()), ..AxisInfo::constant(0) }, info)
}

pub fn mul(a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let one = |info: &AxisInfo| info.range == (1, 1);
    let product = |x: u64, y: u64| x.saturating_mul(y).min(ALL);
    let axes = zip(a, b, |d| {
        if one(a) {
            return b.axes[d];
        }
        if one(b) {
            return a.axes[d];
        }
        Axis {
            contiguity: 1,
            divisibility: product(a.divisor_at(d, 1), b.divisor_at(d, 1)),
            constancy: a.axes[d].constancy.min(b.axes[d].constancy),
        }
    });
    let corners = [
        a.range.0.saturating_mul(b.range.0),
        a.range.0.saturating_mul(b.range.1),
        a.range.1.saturating_mul(b.range.0),
        a.range.1.saturating_mul(b.range.1),
    ];
    let range =
        (corners.into_iter().min().unwrap_or(i128::MIN), corners.into_iter().max().unwrap_or(i128::MAX));
    AxisInfo { axes, divisor: product(a.divisor, b.divisor), range }
}

/// How long runs are that start at a common multiple of their length in `a` (contiguous) and in `b` (constant): within
/// such a run the quotient by `b` is constant, which is 0 by 0, and so is `a < b`.
fn aligned_run(a: &AxisInfo, b: &AxisInfo, d: usize) -> u64 {
    let (x, y) = (a.axes[d], b.axes[d]);
    x.contiguity.min(a.divisor_at(d, x.contiguity)).min(b.divisor_at(d, 1)).min(y.constancy)
}

pub fn div(a: &AxisInfo, b: &AxisInfo, ty: &Type) -> AxisInfo {
    let mut info = equal_runs(&[a.clone(), b.clone()], ty);
    // Division by a power of two keeps the other powers of the divisor, of numbers below 0 as well.
    if let Some(power) = b.single().map(|value| value as u64).filter(|&power| power_in(b.range.0) == power) {
        if power == 1 {
            return a.clone();
        }
        info.divisor = (a.divisor / power).max(1);
        for axis in &mut info.axes {
            axis.divisibility = info.divisor;
        }
    }
    if a.range.0 < 0 || b.range.0 < 0 {
        return info;
    }
    let least = if b.range.0 > 0 { a.range.0 / b.range.1 } else { 0 };
    info.range = (least, a.range.1 / b.range.0.max(1));
    for d in 0..info.axes.len() {
        info.axes[d].constancy = info.axes[d].constancy.max(aligned_run(a, b, d));
    }
    info
}

pub fn rem(a: &AxisInfo, b: &AxisInfo, ty: &Type) -> AxisInfo {
    let mut info = equal_runs(&[a.clone(), b.clone()], ty);
    if a.range.0 < 0 || b.range.0 < 0 {
        return info;
    }
    // `x % 0` is `x`.
    info.range = match (a.single(), b.single()) {
        (Some(a), Some(b)) => (a.checked_rem(b).unwrap_or(a), a.checked_rem(b).unwrap_or(a)),
        _ => (0, if b.range.0 > 0 { a.range.1.min(b.range.1 - 1) } else { a.range.1 }),
    };
    info.divisor = a.divisor.min(b.divisor);
    for d in 0..info.axes.len() {
        let contiguity = aligned_run(a, b, d);
        let divisibility = a.divisor_at(d, contiguity).min(b.divisor_at(d, 1));
        info.axes[d] = Axis { contiguity, divisibility, constancy: info.axes[d].constancy };
    }
    info
}

pub fn shl(a: &AxisInfo, b: &AxisInfo, ty: &Type) -> AxisInfo {
    match b.range {
        (k, same) if k == same && (0..62).contains(&k) => mul(a, &scaled(b, 1 << k)),
        _ => equal_runs(&[a.clone(), b.clone()], ty),
    }
}

pub fn shr(a: &AxisInfo, b: &AxisInfo, ty: &Type) -> AxisInfo {
    match b.range {
        (k, same) if k == same && (0..62).contains(&k) && a.range.0 >= 0 => div(a, &scaled(b, 1 << k), ty),
        _ => equal_runs(&[a.clone(), b.clone()], ty),
    }
}

pub fn minimum(a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    AxisInfo { range: (a.range.0.min(b.range.0), a.range.1.min(b.range.1)), ..either(a, b) }
}

pub fn maximum(a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    AxisInfo { range: (a.range.0.max(b.range.0), a.range.1.max(b.range.1)), ..either(a, b) }
}

pub fn and(a: &AxisInfo, b: &AxisInfo, ty: &Type) -> AxisInfo {
    let info = equal_runs(&[a.clone(), b.clone()], ty);
    if a.range.0 < 0 || b.range.0 < 0 {
        return info;
    }
    let range = match (a.single(), b.single()) {
        (Some(a), Some(b)) => (a & b, a & b),
        _ => (0, a.range.1.min(b.range.1)),
    };
    AxisInfo { range, ..info }
}

pub fn select(condition: &AxisInfo, a: &AxisInfo, b: &AxisInfo) -> AxisInfo {
    let axes = zip(a, b, |d| {
        let (x, y, c) = (a.axes[d], b.axes[d], condition.axes[d].constancy);
        let contiguity = x.contiguity.min(y.contiguity).min(c);
        Axis {
            contiguity,
            divisibility: a.divisor_at(d, contiguity).min(b.divisor_at(d, contiguity)),
            constancy: x.constancy.min(y.constancy).min(c),
        }
    });
    AxisInfo {
        axes,
        divisor: a.divisor.min(b.divisor),
        range: (a.range.0.min(b.range.0), a.range.1.max(b.range.1)),
    }
}

/// `range < bound` is constant over a run when both are multiples of the run's length; so is `>=`, and so are `>` and `<=`
/// with the operands swapped.
pub fn compare(op: BinaryOp, a: &AxisInfo, b: &AxisInfo, ty: &Type) -> AxisInfo {
    let mut info = equal_runs(&[a.clone(), b.clone()], ty);
    for d in 0..info.axes.len() {
        let runs = match op {
            BinaryOp::Lt | BinaryOp::Ge => aligned_run(a, b, d),
            BinaryOp::Gt | BinaryOp::Le => aligned_run(b, a, d),
            _ => 1,
        };
        info.axes[d].constancy = info.axes[d].constancy.max(runs);
    }
    info
}
