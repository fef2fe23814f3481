//! Which programs run longest: those whose dot loops have the largest trip count, where that depends on their index in the grid.
//!
//! Causal attention is the common case: the program of a tile of queries reads the keys up to it. The order in which programs
//! are handed to multiprocessors is ours to choose, and the makespan is shortest in longest-processing-time-first order (Graham,
//! *Bounds on multiprocessing timing anomalies*, 1969).

use std::collections::HashMap;

use crate::ir::{Func, Op, Value};
use crate::ops::scalar::{ArithKind, Scalar};
use crate::ops::{Cast, Constant, ConstantValue, For, Kind, ProgramId};

/// The axis of the grid along which the trip counts of programs differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongestAxis {
    pub axis: u8,
    /// Whether the last ones run longest; else the first do.
    pub last: bool,
}

impl LongestAxis {
    /// Whether the hardware's order, the first axis fastest and from 0, would start some of the longest programs last.
    pub fn changes_order(self) -> bool {
        self.axis == 0 || self.last
    }
}

/// Axes of a grid.
const AXES: usize = 3;

/// How a scalar depends on a program's index along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slope {
    Flat,
    Rises,
    Falls,
    Unknown,
}

use Slope::{Falls, Flat, Rises, Unknown};

impl Slope {
    fn and(self, other: Slope) -> Slope {
        match (self, other) {
            (Flat, slope) | (slope, Flat) => slope,
            (one, other) if one == other => one,
            _ => Unknown,
        }
    }

    fn negative(self) -> Slope {
        match self {
            Rises => Falls,
            Falls => Rises,
            other => other,
        }
    }

    /// The slope of `high - low`. A distance between ends that both rise counts as flat: a sliding window.
    fn between(low: Slope, high: Slope) -> Slope {
        match (low, high) {
            (Rises, Rises) | (Falls, Falls) => Flat,
            _ => high.and(low.negative()),
        }
    }
}

/// The axis along which dot loops take longer, if it is one alone. A loop without a bound may wait for another program, which is
/// right only where programs start in the hardware's order.
pub fn longest_axis(func: &Func) -> Option<LongestAxis> {
    let mut may_wait = false;
    func.body.walk(&mut |op| may_wait |= matches!(op.kind, Kind::While(_)));
    if may_wait {
        return None;
    }
    let definitions = func.definitions();
    let mut slopes = Slopes { definitions: &definitions, known: HashMap::new() };
    let mut trip_counts = [Flat; AXES];
    for op in &func.body.ops {
        let Kind::For(body) = &op.kind else { continue };
        // Programs that share a loop's iterations, each starting at its own, have trip counts that differ by at most one: their step
        // is the grid's.
        let step_is_constant =
            matches!(definitions.get(&body.step), Some(Op { kind: Kind::Constant(_), .. }));
        if step_is_constant && has_dot(body) {
            let (low, high) = (slopes.of(body.low), slopes.of(body.high));
            for axis in 0..AXES {
                trip_counts[axis] = trip_counts[axis].and(Slope::between(low[axis], high[axis]));
            }
        }
    }
    let axis = trip_counts.iter().position(|&slope| slope != Flat)?;
    let is_alone = trip_counts[axis] != Unknown && trip_counts[axis + 1..].iter().all(|&slope| slope == Flat);
    is_alone.then_some(LongestAxis { axis: axis as u8, last: trip_counts[axis] == Rises })
}

fn has_dot(body: &For) -> bool {
    let mut found = false;
    body.body.walk(&mut |op| found |= matches!(op.kind, Kind::Dot(_) | Kind::WarpGroupDot(_)));
    found
}

struct Slopes<'f> {
    definitions: &'f HashMap<Value, &'f Op>,
    known: HashMap<Value, [Slope; AXES]>,
}

impl Slopes<'_> {
    fn of(&mut self, value: Value) -> [Slope; AXES] {
        if let Some(&known) = self.known.get(&value) {
            return known;
        }
        let slopes = self.compute(value);
        self.known.insert(value, slopes);
        slopes
    }

    fn compute(&mut self, value: Value) -> [Slope; AXES] {
        // A parameter, or an argument of a block.
        let Some(op) = self.definitions.get(&value) else { return [Flat; AXES] };
        if let Kind::ProgramId(ProgramId { axis }) = &op.kind {
            return std::array::from_fn(|own| if own == usize::from(*axis) { Rises } else { Flat });
        }
        if let Kind::Cast(Cast { value, .. }) = &op.kind {
            return self.of(*value);
        }
        if let Kind::Scalar(Scalar { op, args, .. }) = &op.kind {
            let slopes: Vec<[Slope; AXES]> = args.iter().map(|&arg| self.of(arg)).collect();
            let signs = args.iter().map(|&arg| self.sign(arg)).collect::<Vec<_>>();
            return std::array::from_fn(|axis| {
                let slopes: Vec<Slope> = slopes.iter().map(|slopes| slopes[axis]).collect();
                combined(op.arith, &slopes, &signs)
            });
        }
        let uniform = matches!(op.kind, Kind::Constant(_) | Kind::NumPrograms(_) | Kind::Length(_));
        [if uniform { Flat } else { Unknown }; AXES]
    }

    /// Whether a constant is above 0.
    fn sign(&self, value: Value) -> Option<bool> {
        let Kind::Constant(Constant { value: ConstantValue::Int(constant) }) =
            self.definitions.get(&value)?.kind
        else {
            return None;
        };
        (constant != 0).then_some(constant > 0)
    }
}

fn combined(arith: ArithKind, slopes: &[Slope], signs: &[Option<bool>]) -> Slope {
    let times = |slope: Slope, is_positive: bool| if is_positive { slope } else { slope.negative() };
    match (arith, slopes, signs) {
        (_, slopes, _) if slopes.iter().all(|&slope| slope == Flat) => Flat,
        (ArithKind::Add | ArithKind::Minimum | ArithKind::Maximum, &[one, other], _) => one.and(other),
        (ArithKind::Sub, &[one, other], _) => one.and(other.negative()),
        (ArithKind::Mul, &[slope, Flat], &[_, Some(sign)])
        | (ArithKind::Mul, &[Flat, slope], &[Some(sign), _]) => times(slope, sign),
        (ArithKind::Div | ArithKind::CeilDiv, &[slope, Flat], &[_, Some(sign)]) => times(slope, sign),
        (ArithKind::Shl, &[slope, Flat], _) => slope,
        _ => Unknown,
    }
}
