//! Reductions across the lanes of a warp in one instruction, `redux.sync`, of integers, and of extremes with their positions: floats are
//! ordered by integers of 32 bits.

use tile_ir::ir::Value;
use tile_ir::ops::scalar::ArithKind;
use tile_ir::ops::{Extreme, Reduce};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::warp_shuffle::{from_word, word};
use crate::gpu::emit::{Builder, Gpu, IntPredicate};
use crate::mlir::builder::{BranchArm, FloatPredicate, Val};
use crate::mlir::shared::CombinedElement;
use crate::mlir::types::{Elem, Ty};
use crate::mlir::{cast, lanes, machine};

/// Reduces an element of every lane of a warp, if `redux.sync` can. All lanes hold the result.
pub(super) fn across_warp(reduce: &Reduce, gpu: &Gpu, b: &mut Builder, element: &[Val]) -> Option<Val> {
    let (&[value], &[input]) = (element, &reduce.combination.inputs[..]) else { return None };
    let dtype = gpu.func.ty(input).dtype;
    if dtype.is_float() || dtype == DType::Bool || dtype.bytes() > 4 {
        return None;
    }
    let kind = match reduce.combination.arith()? {
        ArithKind::Maximum => Order::of(dtype, true)?.kind(),
        ArithKind::Minimum => Order::of(dtype, false)?.kind(),
        ArithKind::Add => "add",
        ArithKind::And => "and",
        ArithKind::Or => "or",
        _ => return None,
    };
    let word = if dtype.is_signed() { b.sext(value, Elem::I32) } else { b.zext(value, Elem::I32) };
    let word = redux(b, kind, word);
    Some(from_word(b, word, value.ty))
}

/// How the extreme of a warp's elements is found: first the value alone, then the smallest position that has it.
pub(super) struct WarpExtreme {
    extreme: Extreme,
    order: Order,
    /// Whether anything uses the value itself, with the sign of its zero and the bits of its NaN.
    wants_bits: bool,
}

impl WarpExtreme {
    /// Of the reduction with these results, if it is one of an extreme.
    pub(super) fn of(reduce: &Reduce, gpu: &Gpu, results: &[Value]) -> Option<WarpExtreme> {
        let extreme = reduce.combination.extreme(gpu.func)?;
        let dtype = gpu.func.ty(reduce.combination.inputs[extreme.value]).dtype;
        let order = Order::of(dtype, extreme.largest)?;
        Some(WarpExtreme { extreme, order, wants_bits: gpu.func.body.uses(results[extreme.value]) > 0 })
    }

    /// The extreme of the elements of all threads of a warp. All lanes hold the result.
    pub(super) fn reduce(&self, gpu: &Gpu, b: &mut Builder, elements: &[CombinedElement]) -> CombinedElement {
        let (order, extreme) = (self.order, self.extreme);
        let values: Vec<Val> = elements.iter().map(|element| element[extreme.value]).collect();
        let positions: Vec<Val> = elements.iter().map(|element| element[extreme.position]).collect();
        let wide: Vec<Val> = values.iter().map(|&value| order.widened(b, value)).collect();
        let own = order.most(b, &wide);
        let key = order.key(b, own);
        let key = redux(b, order.kind(), key);
        let has_it: Vec<Val> = order.has_key(b, &wide, key);
        let first = first_position(gpu, b, &positions, &has_it);
        let most = order.value(b, key);
        let mut most = order.narrowed(b, most, values[0].ty);
        if order.dtype.is_float() && self.wants_bits {
            let zero = b.int(Ty::I32, 0);
            let is_zero = b.icmp(IntPredicate::Eq, key, zero);
            let is_nan = order.is_nan(b, key);
            let is_ambiguous = b.or(is_zero, is_nan);
            let canonical = most;
            most = b.branch(is_ambiguous, &[most.ty], |b, arm| match arm {
                BranchArm::Then => {
                    let words =
                        values.iter().zip(&wide).zip(&positions).map(|((&value, &wide), &position)| {
                            // Compared anew: predicates that stay until here would be too many.
                            let has_it = is_zero_or_nan(b, wide, is_nan);
                            let is_first = b.icmp(IntPredicate::Eq, position, first);
                            let is_it = b.and(has_it, is_first);
                            let word = word(b, value);
                            b.select(is_it, word, zero)
                        });
                    let words: Vec<Val> = words.collect();
                    let bits = words.into_iter().fold(zero, |bits, word| b.or(bits, word));
                    let bits = redux(b, "or", bits);
                    vec![from_word(b, bits, canonical.ty)]
                }
                BranchArm::Else => vec![canonical],
            })[0];
        }
        let mut result = vec![most; 2];
        result[extreme.position] = first;
        result
    }
}

/// Whether a value is NaN, or zero, whichever is asked for.
fn is_zero_or_nan(b: &mut Builder, value: Val, is_nan: Val) -> Val {
    let word = b.bitcast(value, Ty::I32);
    let magnitude_bits = b.int(Ty::I32, MAGNITUDE);
    let magnitude = b.and(word, magnitude_bits);
    let zero = b.int(Ty::I32, 0);
    let flipped = b.select(is_nan, zero, magnitude_bits);
    let flipped = b.xor(magnitude, flipped);
    let [infinity, below_most] = [INFINITY, MAGNITUDE - 1].map(|bits| b.int(Ty::I32, bits));
    let limit = b.select(is_nan, infinity, below_most);
    b.icmp(IntPredicate::Sgt, flipped, limit)
}

/// The smallest of the positions that have the extreme value, of all lanes. Constants beside one base stay immediates.
fn first_position(gpu: &Gpu, b: &mut Builder, positions: &[Val], has_it: &[Val]) -> Val {
    let none = b.int(Ty::I32, i64::from(i32::MAX));
    let own = if let Some((base, places)) = gpu.constants_beside_one_base(positions.iter().copied()) {
        let mut places: Vec<(i64, Val)> = places.into_iter().zip(has_it.iter().copied()).collect();
        places.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        let place = places.iter().fold(none, |least, &(place, has_it)| {
            let place = b.int(Ty::I32, place);
            b.select(has_it, place, least)
        });
        let is_none = b.icmp(IntPredicate::Eq, place, none);
        let position = b.add(base, place);
        b.select(is_none, none, position)
    } else {
        positions.iter().zip(has_it).fold(none, |least, (&position, &has_it)| {
            let position = b.select(has_it, position, none);
            b.op("llvm.intr.smin", &[least, position], Ty::I32)
        })
    };
    redux(b, "min", own)
}

/// One `redux.sync` of all lanes.
fn redux(b: &mut Builder, kind: &str, word: Val) -> Val {
    let all = b.int(Ty::I32, -1);
    let kind = format!("#nvvm<redux_kind {kind}>");
    b.op_with("nvvm.redux.sync", &[word, all], Ty::I32, &[("kind", &kind)])
}

/// An order of values by integers of 32 bits, in which NaN is more extreme than anything. Floats are `f32` in it.
#[derive(Clone, Copy)]
struct Order {
    dtype: DType,
    largest: bool,
}

impl Order {
    fn of(dtype: DType, largest: bool) -> Option<Order> {
        let fits = dtype.bytes() <= 4 && dtype != DType::Bool && !dtype.is_f8();
        fits.then_some(Order { dtype, largest })
    }

    fn kind(self) -> &'static str {
        match (self.largest, self.dtype.is_signed()) {
            (true, true) => "max",
            (true, false) => "umax",
            (false, true) => "min",
            (false, false) => "umin",
        }
    }

    fn widened(self, b: &mut Builder, value: Val) -> Val {
        if self.dtype.is_float() { cast::cast(b, value, self.dtype, DType::F32) } else { value }
    }

    fn narrowed(self, b: &mut Builder, value: Val, ty: Ty) -> Val {
        if self.dtype.is_float() { b.convert("llvm.fptrunc", value, ty.elem) } else { value }
    }

    /// The extreme of a thread's values.
    fn most(self, b: &mut Builder, values: &[Val]) -> Val {
        let dtype = if self.dtype.is_float() { DType::F32 } else { self.dtype };
        let mut values = values.to_vec();
        while values.len() > 1 {
            let pairs = values.chunks(2).map(|pair| match pair {
                [_, _] if self.largest => lanes::maximum(b, pair, dtype),
                [_, _] => lanes::minimum(b, pair, dtype),
                _ => pair[0],
            });
            values = pairs.collect();
        }
        values[0]
    }

    fn key(self, b: &mut Builder, value: Val) -> Val {
        if !self.dtype.is_float() {
            return if self.dtype.is_signed() { b.sext(value, Elem::I32) } else { b.zext(value, Elem::I32) };
        }
        let word = b.bitcast(value, Ty::I32);
        let (sign, magnitude_bits) = (sign(b, word), b.int(Ty::I32, MAGNITUDE));
        let magnitude = b.and(word, magnitude_bits);
        let key = negated_if(b, sign, magnitude);
        let infinity = b.int(Ty::I32, INFINITY);
        let is_nan = b.icmp(IntPredicate::Sgt, magnitude, infinity);
        let of_nan = b.int(Ty::I32, self.key_of_nan());
        b.select(is_nan, of_nan, key)
    }

    /// The value of a key, one of all that have it.
    fn value(self, b: &mut Builder, key: Val) -> Val {
        if !self.dtype.is_float() {
            let elem = machine::elem(self.dtype, b.machine);
            return b.trunc(key, elem);
        }
        let (sign, magnitude_bits) = (sign(b, key), b.int(Ty::I32, MAGNITUDE));
        let magnitude = negated_if(b, sign, key);
        let magnitude = b.and(magnitude, magnitude_bits);
        let bit = b.int(Ty::I32, 1 << 31);
        let bit = b.and(sign, bit);
        let word = b.or(magnitude, bit);
        b.bitcast(word, Ty::F32)
    }

    fn key_of_nan(self) -> i64 {
        i64::from(if self.largest { i32::MAX } else { i32::MIN })
    }

    fn is_nan(self, b: &mut Builder, key: Val) -> Val {
        let of_nan = b.int(Ty::I32, self.key_of_nan());
        b.icmp(IntPredicate::Eq, key, of_nan)
    }

    /// Which of the values have the most extreme key of all. It takes one comparison for each: they are not on the other side of the
    /// neighbor of that key's value, or of infinity if NaN is the extreme.
    fn has_key(self, b: &mut Builder, values: &[Val], key: Val) -> Vec<Val> {
        if !self.dtype.is_float() {
            let most = self.value(b, key);
            return values.iter().map(|&value| b.icmp(IntPredicate::Eq, value, most)).collect();
        }
        let step = b.int(Ty::I32, if self.largest { -1 } else { 1 });
        let neighbor = b.add(key, step);
        let neighbor = self.value(b, neighbor);
        let infinity = b.float(Ty::F32, if self.largest { f64::INFINITY } else { f64::NEG_INFINITY });
        let is_nan = self.is_nan(b, key);
        let neighbor = b.select(is_nan, infinity, neighbor);
        let beyond = if self.largest { FloatPredicate::Ole } else { FloatPredicate::Oge };
        let mut has_key = |&value: &Val| {
            let is_beyond = b.fcmp(beyond, value, neighbor);
            b.not(is_beyond)
        };
        values.iter().map(&mut has_key).collect()
    }
}

/// The bits of infinity, and all but the sign.
const INFINITY: i64 = 0x7f80_0000;
const MAGNITUDE: i64 = 0x7fff_ffff;

/// The sign of a word in all bits.
fn sign(b: &mut Builder, word: Val) -> Val {
    let shift = b.int(Ty::I32, 31);
    b.ashr(word, shift)
}

/// The word, or its negative.
fn negated_if(b: &mut Builder, sign: Val, word: Val) -> Val {
    let flipped = b.xor(word, sign);
    b.sub(flipped, sign)
}
