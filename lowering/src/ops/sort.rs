//! Sorting by Batcher's bitonic network: `log2(n) * (log2(n) + 1) / 2` compare-and-swap steps. Pairs of an element and
//! its position always differ, so a sort with positions is stable.

use super::bitcast::as_stored;
use super::rearrange::{positions, sliced};
use super::{ConstantValue, Exchange, Intrinsic, IntrinsicGeneric, Returns, optional, required};
use crate::frontend::typeck::{Call, Check, Item, Operand};
use crate::ir::Value;
use crate::support::diagnostic::Loc;
use crate::support::dtype::Class;

const PARAMS: &[super::IntrinsicParam] = &[required("x"), optional("axis"), optional("descending")];

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "sort",
        returns: Returns::Tile,
        example: "let rising = tl::sort(tile);\nlet falling = tl::sort(tile, 0, true);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The elements in rising order along `axis`, falling with `descending` true. NaN counts as larger than every number; zeros of either sign are equal. The extent is a power of two; fill up with what belongs at the end. The axis may be left out where there is one.",
        check: |check, call| match ordered(check, call, false) {
            Some(keys) => check.operand(keys[0], call.loc),
            None => check.failed(call.loc),
        },
    },
    Intrinsic {
        name: "argsort",
        returns: Returns::Tile,
        example: "let places = tl::argsort(tile);\nlet rising = tl::gather(tile, places, 0);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The places, as `i32`, from which the elements along `axis` come in rising order, falling with `descending` true: `tl::gather(x, tl::argsort(x), 0)` is sorted. Equal elements keep their order; NaN counts as larger than every number.",
        check: |check, call| match ordered(check, call, true) {
            Some(keys) => check.operand(keys[1], call.loc),
            None => check.failed(call.loc),
        },
    },
    Intrinsic {
        name: "topk",
        returns: Returns::Tuple(2),
        example: "let (values, places) = tl::topk(tile, 4);",
        generic: IntrinsicGeneric::None,
        params: &[required("x"), required("k"), optional("axis")],
        doc: "The `k` largest elements along `axis`, largest first, and their places as `i32`; of equal ones the first. NaN counts as larger than every number. `k` is a constant and a legal extent of at most the axis's, which is a power of two.",
        check: topk,
    },
];

/// An order of the elements along an axis.
struct SortOrder {
    axis: usize,
    descending: bool,
    loc: Loc,
}

fn ordered(check: &mut Check, call: &Call, with_positions: bool) -> Option<Vec<Value>> {
    let descending = call.args.get(2).map_or(Some(false), |operand| check.flag(operand, "`descending`"));
    let (value, axis) = keys(check, call, call.args.get(1))?;
    let order = SortOrder { axis, descending: descending?, loc: call.loc };
    Some(order.sorted(check, value, with_positions))
}

/// The tile to put in order and the axis.
fn keys(check: &mut Check, call: &Call, axis: Option<&Operand>) -> Option<(Value, usize)> {
    let value = check.tile(&call.args[0], &call.what)?;
    let ty = check.ty(value).clone();
    if !check.takes(call, &ty, Class::Number) {
        return None;
    }
    let axis = check.axis_or_only(call, axis, ty.shape.rank())?;
    if !ty.shape[axis].is_power_of_two() {
        check.error_help(
            call.args[0].loc,
            format!("{} takes an axis whose extent is a power of two, found {}", call.what, ty.shape[axis]),
            "load a tile of the next power of two, with what belongs at the end for the rest",
        );
        return None;
    }
    Some((as_stored(check, value, call.loc), axis))
}

fn topk(check: &mut Check, call: &Call) -> Operand {
    let keys = keys(check, call, call.args.get(2));
    let k = check.constant(&call.args[1], "`k`");
    let (Some((value, axis)), Some(k)) = (keys, k) else { return check.failed(call.loc) };
    let shape = check.ty(value).shape.clone();
    let extent = i128::from(shape[axis]);
    if !(1..=extent).contains(&k) {
        return check
            .error(call.args[1].loc, format!("`k` is 1 to {extent}, the extent of axis {axis}, found {k}"));
    }
    let k = k as u32;
    if check.legal(shape.without(axis).with(axis, k), call.args[1].loc).is_none() {
        return check.failed(call.loc);
    }
    let order = SortOrder { axis, descending: true, loc: call.loc };
    let sorted = order.sorted(check, value, true);
    let parts = sorted.into_iter().map(|value| sliced(check, value, axis, [0, k], call.loc)).collect();
    check.wrap(Item::Tuple(parts), call.loc)
}

impl SortOrder {
    /// The sorted elements, and their positions behind them if asked for.
    fn sorted(&self, check: &mut Check, value: Value, with_positions: bool) -> Vec<Value> {
        let shape = check.ty(value).shape.clone();
        let range = positions(check, &shape, self.axis, 0, self.loc);
        let mut keys = if with_positions { vec![value, range] } else { vec![value] };
        let steps = shape[self.axis].trailing_zeros();
        for run in 1..=steps {
            for bit in (0..run).rev() {
                let is_low = self.bit_is_clear(check, range, bit);
                // Runs alternate between rising and falling until the last, which is the whole axis.
                let rises = (run < steps).then(|| self.bit_is_clear(check, range, run));
                keys = self.step(check, &keys, 1 << bit, (is_low, rises));
            }
        }
        keys
    }

    /// Compares and swaps every pair whose positions differ by `mask`.
    fn step(
        &self,
        check: &mut Check,
        keys: &[Value],
        mask: u32,
        (is_low, rises): (Value, Option<Value>),
    ) -> Vec<Value> {
        let others: Vec<Value> = keys
            .iter()
            .map(|&value| {
                let ty = check.ty(value).clone();
                check.push(Exchange { value, axis: self.axis, mask }, vec![ty], self.loc)[0]
            })
            .collect();
        // Whether this position is to hold the first of the pair.
        let holds_first = match rises {
            Some(rises) => check.row("eq", &[is_low, rises], self.loc),
            None => is_low,
        };
        let other_first = self.before(check, &others, keys);
        let own_first = self.before(check, keys, &others);
        let swaps = check.row("select", &[holds_first, other_first, own_first], self.loc);
        keys.iter()
            .zip(&others)
            .map(|(&own, &other)| check.row("select", &[swaps, other, own], self.loc))
            .collect()
    }

    /// Whether elements come before others: by value, then by position.
    fn before(&self, check: &mut Check, ours: &[Value], theirs: &[Value]) -> Value {
        let (a, b) = if self.descending { (theirs[0], ours[0]) } else { (ours[0], theirs[0]) };
        let less = self.less(check, a, b);
        let (Some(&our_position), Some(&their_position)) = (ours.get(1), theirs.get(1)) else { return less };
        let more = self.less(check, b, a);
        let earlier = check.row("lt", &[our_position, their_position], self.loc);
        let not_more = check.row("not", &[more], self.loc);
        let tied = check.row("and", &[not_more, earlier], self.loc);
        check.row("or", &[less, tied], self.loc)
    }

    /// `a < b`, NaN above all numbers.
    fn less(&self, check: &mut Check, a: Value, b: Value) -> Value {
        let less = check.row("lt", &[a, b], self.loc);
        if !check.ty(a).dtype.is_float() {
            return less;
        }
        let is_number = check.row("eq", &[a, a], self.loc);
        let is_nan = check.row("ne", &[b, b], self.loc);
        let below_nan = check.row("and", &[is_number, is_nan], self.loc);
        check.row("or", &[less, below_nan], self.loc)
    }

    fn bit_is_clear(&self, check: &mut Check, range: Value, bit: u32) -> Value {
        let ty = check.ty(range).clone();
        let [mask, zero] = [1 << bit, 0].map(|value| check.filled(ConstantValue::Int(value), &ty, self.loc));
        let bits = check.row("and", &[range, mask], self.loc);
        check.row("eq", &[bits, zero], self.loc)
    }
}
