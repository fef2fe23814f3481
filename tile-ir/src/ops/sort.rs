//! Sorting by Batcher's bitonic network: `log2(n) * (log2(n) + 1) / 2` compare-and-swap steps. Pairs of an element and
//! its position always differ, so a sort with positions is stable. Without positions floats are sorted as integers in the same order.

use super::bitcast::{Bitcast, as_stored};
use super::rearrange::{positions, sliced};
use super::typing::{Call, Item, Operand, TypingCx};
use super::{ConstantValue, Exchange, Intrinsic, IntrinsicGeneric, Returns, optional, required};
use crate::ir::Value;
use crate::support::diagnostic::Loc;
use crate::support::dtype::{Class, DType};

const PARAMS: &[super::IntrinsicParam] = &[required("x"), optional("axis"), optional("descending")];

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "sort",
        returns: Returns::Tile,
        example: "let rising = tl::sort(tile);\nlet falling = tl::sort(tile, 0, true);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The elements in rising order along `axis`, falling with `descending` true. NaN counts as larger than every number; zeros of either sign are equal. The extent is a power of two; fill up with what belongs at the end. The axis may be left out where there is one.",
        check: |cx, call| match ordered(cx, call, false) {
            Some(keys) => Operand::value(keys[0], call.loc),
            None => Operand::failed(call.loc),
        },
    },
    Intrinsic {
        name: "argsort",
        returns: Returns::Tile,
        example: "let places = tl::argsort(tile);\nlet rising = tl::gather(tile, places, 0);",
        generic: IntrinsicGeneric::None,
        params: PARAMS,
        doc: "The places, as `i32`, from which the elements along `axis` come in rising order, falling with `descending` true: `tl::gather(x, tl::argsort(x), 0)` is sorted. Equal elements keep their order; NaN counts as larger than every number.",
        check: |cx, call| match ordered(cx, call, true) {
            Some(keys) => Operand::value(keys[1], call.loc),
            None => Operand::failed(call.loc),
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

/// The comparators of one step of the network: each sorts a pair of positions.
struct Comparators {
    /// The positions of a pair differ by this.
    mask: u32,
    /// Whether a position is the lower one of its pair.
    is_low: Value,
    /// Whether a position's run is to rise; `None` in the last steps, where all do.
    rises: Option<Value>,
}

fn ordered(cx: &mut dyn TypingCx, call: &Call, with_positions: bool) -> Option<Vec<Value>> {
    let descending = call.args.get(2).map_or(Some(false), |operand| cx.flag(operand, "`descending`"));
    let (value, axis) = keys(cx, call, call.args.get(1))?;
    let order = SortOrder { axis, descending: descending?, loc: call.loc };
    Some(order.sorted(cx, value, with_positions))
}

/// The tile to put in order and the axis.
fn keys(cx: &mut dyn TypingCx, call: &Call, axis: Option<&Operand>) -> Option<(Value, usize)> {
    let value = cx.tile(&call.args[0], &call.what)?;
    let ty = cx.ty(value).clone();
    if !cx.takes(call, &ty, Class::Number) {
        return None;
    }
    let axis = cx.axis_or_only(call, axis, ty.shape.rank())?;
    if !ty.shape[axis].is_power_of_two() {
        cx.error_help(
            call.args[0].loc,
            format!("{} takes an axis whose extent is a power of two, found {}", call.what, ty.shape[axis]),
            "load a tile of the next power of two, with what belongs at the end for the rest",
        );
        return None;
    }
    Some((as_stored(cx, value, call.loc), axis))
}

fn topk(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let keys = keys(cx, call, call.args.get(2));
    let k = cx.constant(&call.args[1], "`k`");
    let (Some((value, axis)), Some(k)) = (keys, k) else { return Operand::failed(call.loc) };
    let shape = cx.ty(value).shape.clone();
    let extent = i128::from(shape[axis]);
    if !(1..=extent).contains(&k) {
        return cx
            .error(call.args[1].loc, format!("`k` is 1 to {extent}, the extent of axis {axis}, found {k}"));
    }
    let k = k as u32;
    if cx.legal(shape.without(axis).with(axis, k), call.args[1].loc).is_none() {
        return Operand::failed(call.loc);
    }
    let order = SortOrder { axis, descending: true, loc: call.loc };
    let sorted = order.sorted(cx, value, true);
    let parts = sorted.into_iter().map(|value| sliced(cx, value, axis, [0, k], call.loc)).collect();
    Operand::new(Item::Tuple(parts), call.loc)
}

/// A float type and the signed integers of its size.
#[derive(Clone, Copy)]
struct FloatBits {
    float: DType,
    integer: DType,
    /// Bits of the fraction.
    fraction: u32,
}

impl FloatBits {
    fn of(float: DType) -> Option<FloatBits> {
        let (integer, fraction) = match float {
            DType::F16 => (DType::I16, 10),
            DType::BF16 => (DType::I16, 7),
            DType::F32 => (DType::I32, 23),
            DType::F64 => (DType::I64, 52),
            _ => return None,
        };
        Some(FloatBits { float, integer, fraction })
    }

    /// Integers in the order of floats, each from one pattern of bits: `-0.0` before `0.0`, and NaN last.
    fn ordered(self, cx: &mut dyn TypingCx, floats: Value, loc: Loc) -> Value {
        let ty = cx.ty(floats).with(self.integer);
        let bits = cx.push(Bitcast { value: floats }, vec![ty], loc)[0];
        let by_magnitude = self.with_magnitude_flipped(cx, bits, loc);
        let offset = self.negative_nans(cx, bits, loc);
        let ordered = cx.row("wrapping_sub", &[by_magnitude, offset], loc);
        as_stored(cx, ordered, loc)
    }

    /// The floats of such integers.
    fn floats(self, cx: &mut dyn TypingCx, ordered: Value, loc: Loc) -> Value {
        let offset = self.negative_nans(cx, ordered, loc);
        let by_magnitude = cx.row("wrapping_add", &[ordered, offset], loc);
        let bits = self.with_magnitude_flipped(cx, by_magnitude, loc);
        let ty = cx.ty(bits).with(self.float);
        cx.push(Bitcast { value: bits }, vec![ty], loc)[0]
    }

    /// Flips all bits but the sign of negative integers: what is larger in magnitude is smaller.
    fn with_magnitude_flipped(self, cx: &mut dyn TypingCx, bits: Value, loc: Loc) -> Value {
        let ty = cx.ty(bits).clone();
        let sign_bit = i128::from(8 * self.integer.bytes() - 1);
        let [shift, magnitude] =
            [sign_bit, (1 << sign_bit) - 1].map(|value| cx.filled(ConstantValue::Int(value), &ty, loc));
        let sign = cx.row("shr", &[bits, shift], loc);
        let flipped = cx.row("and", &[sign, magnitude], loc);
        cx.row("xor", &[bits, flipped], loc)
    }

    /// How many NaN have a sign: they are below negative infinity, and wrap to the top.
    fn negative_nans(self, cx: &mut dyn TypingCx, like: Value, loc: Loc) -> Value {
        let ty = cx.ty(like).clone();
        cx.filled(ConstantValue::Int((1 << self.fraction) - 1), &ty, loc)
    }
}

impl SortOrder {
    /// The sorted elements, and their positions behind them if asked for.
    fn sorted(&self, cx: &mut dyn TypingCx, value: Value, with_positions: bool) -> Vec<Value> {
        let shape = cx.ty(value).shape.clone();
        let range = positions(cx, &shape, self.axis, 0, self.loc);
        let dtype = cx.ty(value).dtype;
        let mut keys = match FloatBits::of(dtype).filter(|_| !with_positions) {
            Some(bits) => vec![bits.ordered(cx, value, self.loc)],
            None if with_positions => vec![value, range],
            None => vec![value],
        };
        let steps = shape[self.axis].trailing_zeros();
        for run in 1..=steps {
            for bit in (0..run).rev() {
                let is_low = self.bit_is_clear(cx, range, bit);
                // Runs alternate between rising and falling until the last, which is the whole axis.
                let rises = (run < steps).then(|| self.bit_is_clear(cx, range, run));
                keys = self.step(cx, &keys, &Comparators { mask: 1 << bit, is_low, rises });
            }
        }
        if let Some(bits) = FloatBits::of(dtype).filter(|_| !with_positions) {
            keys[0] = bits.floats(cx, keys[0], self.loc);
        }
        keys
    }

    /// Compares and swaps the keys of every pair.
    fn step(&self, cx: &mut dyn TypingCx, keys: &[Value], pairs: &Comparators) -> Vec<Value> {
        let others: Vec<Value> = keys
            .iter()
            .map(|&value| {
                let ty = cx.ty(value).clone();
                cx.push(Exchange { value, axis: self.axis, mask: pairs.mask }, vec![ty], self.loc)[0]
            })
            .collect();
        // Whether this position is to hold the first of the pair.
        let holds_first = match pairs.rises {
            Some(rises) => cx.row("eq", &[pairs.is_low, rises], self.loc),
            None => pairs.is_low,
        };
        // No two keys of a pair are equal, but for the same bits.
        let other_first = self.before(cx, &others, keys);
        let swaps = cx.row("eq", &[holds_first, other_first], self.loc);
        keys.iter()
            .zip(&others)
            .map(|(&own, &other)| cx.row("select", &[swaps, other, own], self.loc))
            .collect()
    }

    /// Whether elements come before others: by value, then by position.
    fn before(&self, cx: &mut dyn TypingCx, ours: &[Value], theirs: &[Value]) -> Value {
        let (a, b) = if self.descending { (theirs[0], ours[0]) } else { (ours[0], theirs[0]) };
        let less = self.less(cx, a, b);
        let (Some(&our_position), Some(&their_position)) = (ours.get(1), theirs.get(1)) else { return less };
        let more = self.less(cx, b, a);
        let earlier = cx.row("lt", &[our_position, their_position], self.loc);
        let not_more = cx.row("not", &[more], self.loc);
        let tied = cx.row("and", &[not_more, earlier], self.loc);
        cx.row("or", &[less, tied], self.loc)
    }

    /// `a < b`, NaN above all numbers.
    fn less(&self, cx: &mut dyn TypingCx, a: Value, b: Value) -> Value {
        let less = cx.row("lt", &[a, b], self.loc);
        if !cx.ty(a).dtype.is_float() {
            return less;
        }
        let is_number = cx.row("eq", &[a, a], self.loc);
        let is_nan = cx.row("ne", &[b, b], self.loc);
        let below_nan = cx.row("and", &[is_number, is_nan], self.loc);
        cx.row("or", &[less, below_nan], self.loc)
    }

    fn bit_is_clear(&self, cx: &mut dyn TypingCx, range: Value, bit: u32) -> Value {
        let ty = cx.ty(range).clone();
        let [mask, zero] = [1 << bit, 0].map(|value| cx.filled(ConstantValue::Int(value), &ty, self.loc));
        let bits = cx.row("and", &[range, mask], self.loc);
        cx.row("eq", &[bits, zero], self.loc)
    }
}
