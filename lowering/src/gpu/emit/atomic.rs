//! Emission of atomic operations. Of the threads that hold an element one changes it, and broadcasts the old value to the
//! others.

use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::{Atomic, AtomicChange, MemoryOrder};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::memory::pack;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::{load, store};
use crate::gpu::emit::{Asm, Builder, Gpu, ShuffleMode, statement};
use crate::gpu::layout::Layout;
use crate::gpu::schedule::scratch::idle_warps;
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};
use crate::mlir::{half, lanes};

/// The first capability with atomic addition of `bf16`.
const ADDS_BF16: u32 = 90;
/// The first capability with vector `red.add`.
const ADDS_VECTORS: u32 = 90;

impl GpuEmit for Atomic {
    fn differs_by_capability(&self, func: &Func, op: &Op) -> bool {
        let by_vectors = self.access.vector > 1 && can_add_vectors(self, func, op.results[0]);
        by_vectors || self.change == AtomicChange::Add && func.ty(self.value).dtype == DType::BF16
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let dtype = gpu.func.ty(self.value).dtype;
        let addresses = gpu.addresses(b, &self.access, dtype);
        let writer = gpu.writer(b, gpu.access_layout(&self.access));
        let values = gpu.registers(self.value);
        let compare = self.compare.map(|compare| gpu.registers(compare));
        let used = gpu.func.body.uses(op.results[0]) > 0;
        let mut before = vec![];
        let vector = self.access.vector as usize;
        let by_vectors =
            vector > 1 && b.capability >= ADDS_VECTORS && can_add_vectors(self, gpu.func, op.results[0]);
        for (chunk, (&pointer, &mask)) in addresses.pointers.iter().zip(&addresses.masks).enumerate() {
            let mask = b.both(mask, writer);
            let first = chunk * vector;
            if by_vectors {
                let words = pack(b, &values[first..first + vector], dtype);
                add_vector(self, b, dtype, pointer, mask, &words);
                before.extend(&values[first..first + vector]);
                continue;
            }
            for i in first..first + vector {
                let element = AtomicElement {
                    atomic: self,
                    dtype,
                    pointer: b.offset_bytes(pointer, (i - first) as i32 * dtype.bytes() as i32),
                    mask,
                    compare: compare.as_ref().map(|compare| compare[i]),
                    value: values[i],
                    used,
                };
                before.push(element.emit(b));
            }
        }
        gpu.report(b, op, &addresses);
        if used {
            before = broadcast(gpu, b, op, before);
        }
        gpu.define(op.results[0], before);
    }
}

/// Whether contiguous elements can be added by one instruction, each atomically; it returns no old values.
fn can_add_vectors(atomic: &Atomic, func: &Func, result: Value) -> bool {
    let adds = matches!(func.ty(atomic.value).dtype, DType::F32 | DType::F16 | DType::BF16);
    adds && atomic.change == AtomicChange::Add && func.body.uses(result) == 0
}

/// `@p red.relaxed.gpu.global.add.v4.f32 [pointer], {a, b, c, d};`
fn add_vector(
    atomic: &Atomic,
    b: &mut Builder,
    dtype: DType,
    pointer: Val,
    mask: Option<Val>,
    words: &[Val],
) {
    let (ty, letter, name) = match dtype {
        DType::F16 => (Ty::I32, "r", "f16x2"),
        DType::BF16 => (Ty::I32, "r", "bf16x2"),
        _ => (Ty::scalar(Elem::F32), "f", "f32"),
    };
    let mut operands = vec![pointer];
    operands.extend(words.iter().map(|&word| b.bitcast(word, ty)));
    let mut constraints = vec!["l"];
    constraints.extend(vec![letter; words.len()]);
    let names: Vec<String> = (1..=words.len()).map(|i| format!("${i}")).collect();
    let (suffix, values) = match &names[..] {
        [one] => (String::new(), one.clone()),
        _ => (format!(".v{}", names.len()), format!("{{{}}}", names.join(", "))),
    };
    let guard = mask.map_or(String::new(), |mask| {
        operands.push(mask);
        constraints.push("b");
        format!("@${} ", operands.len() - 1)
    });
    let noftz = if letter == "r" { ".noftz" } else { "" };
    let (order, scope) = (order_without_result(atomic.order), atomic.scope.name());
    let text = format!("{guard}red.{order}.{scope}.global.add{noftz}{suffix}.{name} [$0], {values};");
    statement(b, &text, &constraints.join(","), &operands, &[]);
}

/// The order of an operation without a result: later accesses cannot be ordered behind it.
fn order_without_result(order: MemoryOrder) -> &'static str {
    if matches!(order, MemoryOrder::Release | MemoryOrder::AcqRel) { "release" } else { "relaxed" }
}

/// One element of this thread.
struct AtomicElement<'a> {
    atomic: &'a Atomic,
    dtype: DType,
    pointer: Val,
    /// `None` if it is always active.
    mask: Option<Val>,
    compare: Option<Val>,
    value: Val,
    used: bool,
}

impl AtomicElement<'_> {
    /// The old value, in threads that changed it; anything where it is unused.
    fn emit(&self, b: &mut Builder) -> Val {
        let bits = self.dtype.bytes() * 8;
        let int = Ty::scalar(self.value.ty.elem.as_int());
        let float = self.dtype.is_float();
        let change = match self.atomic.change {
            AtomicChange::Add if self.dtype == DType::BF16 && b.capability < ADDS_BF16 => {
                return self.add_bf16(b);
            }
            AtomicChange::Max | AtomicChange::Min if float => return self.float_extreme(b),
            AtomicChange::Add => match self.dtype {
                DType::F16 => "add.noftz.f16".into(),
                DType::BF16 => "add.noftz.bf16".into(),
                _ if float => format!("add.f{bits}"),
                _ => format!("add.u{bits}"),
            },
            AtomicChange::Max | AtomicChange::Min => {
                let name = if self.atomic.change == AtomicChange::Max { "max" } else { "min" };
                format!("{name}.{}{bits}", if self.dtype.is_signed() { "s" } else { "u" })
            }
            AtomicChange::And => format!("and.b{bits}"),
            AtomicChange::Or => format!("or.b{bits}"),
            AtomicChange::Xor => format!("xor.b{bits}"),
            AtomicChange::Exchange => format!("exch.b{bits}"),
            AtomicChange::CompareExchange => format!("cas.b{bits}"),
        };
        let as_float = float && self.atomic.change == AtomicChange::Add && bits >= 32;
        let ty = if as_float { self.value.ty } else { int };
        let operands: Vec<Val> =
            self.compare.into_iter().chain([self.value]).map(|value| b.bitcast(value, ty)).collect();
        let before = self.statement(b, &change, &operands, self.mask, None);
        b.bitcast(before, self.value.ty)
    }

    /// `@p atom.relaxed.gpu.global.add.u32 old, [pointer], value;` where `mask` holds; elsewhere `other`, or 0.
    fn statement(
        &self,
        b: &mut Builder,
        change: &str,
        operands: &[Val],
        mask: Option<Val>,
        other: Option<Val>,
    ) -> Val {
        let ty = operands[0].ty;
        let letter = match ty.elem {
            Elem::F32 => "f",
            Elem::F64 => "d",
            Elem::I64 => "l",
            Elem::I16 => "h",
            _ => "r",
        };
        let Atomic { order, scope, .. } = *self.atomic;
        // Only reductions have a form without a result, `red`.
        let is_reduction =
            !matches!(self.atomic.change, AtomicChange::Exchange | AtomicChange::CompareExchange);
        let has_result = self.used || !is_reduction;
        let first = usize::from(has_result);
        let mut all = vec![self.pointer];
        all.extend(operands);
        let mut constraints: Vec<String> = if has_result { vec![format!("={letter}")] } else { vec![] };
        constraints.push("l".into());
        constraints.extend(operands.iter().map(|_| letter.into()));
        let guard = match mask {
            Some(mask) => {
                all.push(mask);
                constraints.push("b".into());
                format!("@${} ", first + all.len() - 1)
            }
            None => String::new(),
        };
        let values: Vec<String> = (0..operands.len()).map(|i| format!("${}", first + 1 + i)).collect();
        let values = values.join(", ");
        if !has_result {
            let order = order_without_result(order);
            let text = format!("{guard}red.{order}.{}.global.{change} [$0], {values};", scope.name());
            statement(b, &text, &constraints.join(","), &all, &[]);
            return self.zero(b, ty);
        }
        if mask.is_some() {
            let initial = other.unwrap_or_else(|| self.zero(b, ty));
            all.push(initial);
            constraints.push("0".into());
        }
        let text =
            format!("{guard}atom.{}.{}.global.{change} $0, [$1], {values};", order.name(), scope.name());
        statement(b, &text, &constraints.join(","), &all, &[ty])[0]
    }

    fn zero(&self, b: &mut Builder, ty: Ty) -> Val {
        if ty.elem.is_float() { b.float(ty, 0.0) } else { b.int(ty, 0) }
    }

    /// The larger or smaller of two floats by their bits: one of two integer operations.
    fn float_extreme(&self, b: &mut Builder) -> Val {
        let largest = self.atomic.change == AtomicChange::Max;
        let (bits, negative) = lanes::extreme_bits(b, self.value, largest);
        let width = bits.ty.elem.bits();
        let [signed, unsigned] = if largest {
            [format!("max.s{width}"), format!("min.u{width}")]
        } else {
            [format!("min.s{width}"), format!("max.u{width}")]
        };
        let positive = b.not(negative);
        let [above, below] =
            [positive, negative].map(|sign| Some(self.mask.map_or(sign, |mask| b.and(mask, sign))));
        let before = self.statement(b, &signed, &[bits], above, None);
        let before = self.statement(b, &unsigned, &[bits], below, Some(before));
        b.bitcast(before, self.value.ty)
    }

    /// Adds in `f32`, rounds, and retries the compare-and-swap until no other thread changed the element in between.
    fn add_bf16(&self, b: &mut Builder) -> Val {
        let ty = self.value.ty;
        let wide = half::widen(b, self.value, DType::BF16);
        let run = |b: &mut Builder| {
            let zero = b.int(Ty::I16, 0);
            let first = self.compare_and_swap(b, [zero, zero]);
            let before = b.retry(first, |b, before| {
                let old = b.bitcast(before, ty);
                let old = half::widen(b, old, DType::BF16);
                let sum = b.fadd_strict(old, wide);
                let sum = half::narrow(b, sum, DType::BF16);
                let sum = b.bitcast(sum, Ty::I16);
                self.compare_and_swap(b, [before, sum])
            });
            vec![before]
        };
        let before = match self.mask {
            Some(mask) => b.if_else(mask, &[Ty::I16], run, |b| vec![b.int(Ty::I16, 0)])[0],
            None => run(b)[0],
        };
        b.bitcast(before, ty)
    }

    fn compare_and_swap(&self, b: &mut Builder, [compare, value]: [Val; 2]) -> Val {
        let Atomic { order, scope, .. } = *self.atomic;
        let text = format!("atom.{}.{}.global.cas.b16 $0, [$1], $2, $3;", order.name(), scope.name());
        b.asm(&text, "=h,l,h,h", &[self.pointer, compare, value], &[Ty::I16], Asm::Effects)[0]
    }
}

/// Broadcasts the old values from the threads that changed the elements to all that hold them: across lanes by shuffles,
/// then across warps through shared memory.
pub(super) fn broadcast(gpu: &mut Gpu, b: &mut Builder, op: &Op, mut before: Vec<Val>) -> Vec<Val> {
    let result = op.results[0];
    let dtype = gpu.func.ty(result).dtype;
    let idle_lanes = gpu.plan.schedule.distributed.layouts.get(&result).map_or(31, Layout::replicated_lanes);
    if idle_lanes != 0 {
        let active = b.int(Ty::I32, i64::from(31 & !idle_lanes));
        let source = b.and(gpu.thread.lane, active);
        before = before.into_iter().map(|value| gpu.shuffle(b, value, ShuffleMode::Index, source)).collect();
    }
    let idle_warps = idle_warps(&gpu.plan.schedule.distributed, op);
    if idle_warps == 0 {
        return before;
    }
    let scratch = gpu.scratch(result);
    let base = gpu.smem_base();
    let num_warps = gpu.plan.schedule.distributed.num_warps;
    let (five, active) = (
        b.int(Ty::I32, 5),
        b.int(Ty::I32, i64::from(gpu.plan.schedule.distributed.warp_bits() & !idle_warps)),
    );
    let warp = b.and(gpu.thread.warp, active);
    let row = b.shl(warp, five);
    let slot = b.add(row, gpu.thread.lane);
    let first = b.offset(base, slot, dtype.bytes());
    let pointers: Vec<Val> = (0..before.len() as u32)
        .map(|register| {
            let offset = scratch.start + register * 32 * num_warps * dtype.bytes();
            b.offset_bytes(first, offset as i32)
        })
        .collect();
    let own = b.icmp(crate::gpu::emit::IntPredicate::Eq, gpu.thread.warp, warp);
    b.if_then(own, |b| {
        for (&value, &pointer) in before.iter().zip(&pointers) {
            gpu.for_each_cta(b, [pointer], |b, [pointer]| store(b, &[value], dtype, pointer, dtype.bytes()));
        }
    });
    gpu.barrier(b);
    pointers.iter().map(|&pointer| load(b, pointer, dtype, 1)[0]).collect()
}
