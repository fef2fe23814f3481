//! Atomic operations, one element after the other.

use tile_ir::ir::Op;
use tile_ir::ops::{Atomic, AtomicChange};
use tile_ir::support::dtype::DType;

use crate::cpu::emit::nest::Point;
use crate::cpu::emit::{Builder, CpuEmit, Host, Val};
use crate::mlir::builder::AtomicKind;
use crate::mlir::{half, lanes};

impl CpuEmit for Atomic {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let result = op.results[0];
        let shape = host.func.ty(result).shape.clone();
        if shape.rank() == 0 {
            let before = change_element(self, host, b, op, &Point::scalar());
            host.define(result, before);
            return;
        }
        host.each_element(b, &shape, &mut |host, b, point| {
            let before = change_element(self, host, b, op, point);
            host.write_buffer(b, result, point, before);
        });
    }

    fn is_statement(&self) -> bool {
        true
    }
}

/// Updates one element and returns its old value, or 0.
fn change_element(atomic: &Atomic, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
    let dtype = host.dtype(atomic.value);
    let value = host.at(b, atomic.value, point);
    let compare = atomic.compare.map(|compare| host.at(b, compare, point));
    let operands = AtomicOperands { dtype, value, compare };
    let (index, mask) = host.locate_element(b, &atomic.access, point);
    let slice = host.slice(atomic.access.param);
    let change = |b: &mut Builder| {
        host.note(b, op, index, 1);
        let pointer = b.offset(slice.pointer, index, dtype.bytes());
        vec![operands.change(b, atomic.change, pointer)]
    };
    match host.predicate(b, op, mask, index) {
        Some(predicate) => b.if_else(predicate, &[value.ty], change, |b| vec![b.zero(value.ty)])[0],
        None => change(b)[0],
    }
}

/// The operands of an atomic operation on one element.
struct AtomicOperands {
    dtype: DType,
    value: Val,
    /// What compare-exchange compares the element with.
    compare: Option<Val>,
}

impl AtomicOperands {
    /// Changes the element at `pointer` and returns its old value.
    fn change(&self, b: &mut Builder, change: AtomicChange, pointer: Val) -> Val {
        let &AtomicOperands { dtype, value, compare } = self;
        let int = value.ty.with(value.ty.elem.as_int());
        let signed = dtype.is_signed();
        let kind = match change {
            AtomicChange::Add if dtype.is_half() => return add_half(b, pointer, value, dtype),
            AtomicChange::Max | AtomicChange::Min if dtype.is_float() => {
                return extreme(b, change, pointer, value);
            }
            AtomicChange::CompareExchange => {
                let compare = compare.expect("the verifier checks it");
                let [compare, value_bits] = [compare, value].map(|x| b.bitcast(x, int));
                let before = b.compare_exchange(pointer, compare, value_bits);
                return b.bitcast(before, value.ty);
            }
            AtomicChange::Add if dtype.is_float() => AtomicKind::FloatAdd,
            AtomicChange::Add => AtomicKind::Add,
            AtomicChange::Max if signed => AtomicKind::Max,
            AtomicChange::Max => AtomicKind::UnsignedMax,
            AtomicChange::Min if signed => AtomicKind::Min,
            AtomicChange::Min => AtomicKind::UnsignedMin,
            AtomicChange::And => AtomicKind::And,
            AtomicChange::Or => AtomicKind::Or,
            AtomicChange::Xor => AtomicKind::Xor,
            AtomicChange::Exchange => AtomicKind::Exchange,
        };
        if change == AtomicChange::Exchange {
            let bits = b.bitcast(value, int);
            let before = b.atomic(kind, pointer, bits);
            return b.bitcast(before, value.ty);
        }
        b.atomic(kind, pointer, value)
    }
}

/// The larger or smaller of two floats by their bits: see [`lanes::extreme_bits`].
fn extreme(b: &mut Builder, change: AtomicChange, pointer: Val, value: Val) -> Val {
    let largest = change == AtomicChange::Max;
    let (bits, negative) = lanes::extreme_bits(b, value, largest);
    let [signed, unsigned] = if largest {
        [AtomicKind::Max, AtomicKind::UnsignedMin]
    } else {
        [AtomicKind::Min, AtomicKind::UnsignedMax]
    };
    let before = b.if_else(
        negative,
        &[bits.ty],
        |b| vec![b.atomic(unsigned, pointer, bits)],
        |b| vec![b.atomic(signed, pointer, bits)],
    )[0];
    b.bitcast(before, value.ty)
}

/// Adds in `f32` and rounds, in a compare-exchange loop.
fn add_half(b: &mut Builder, pointer: Val, value: Val, dtype: DType) -> Val {
    let zero = b.int(value.ty, 0);
    let first = b.compare_exchange(pointer, zero, zero);
    let wide = half::widen(b, value, dtype);
    b.retry(first, |b, before| {
        let sum = half::widen(b, before, dtype);
        let sum = b.fadd_strict(sum, wide);
        let sum = half::narrow(b, sum, dtype);
        b.compare_exchange(pointer, before, sum)
    })
}
