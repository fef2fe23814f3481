//! Emission of loads and stores: elements packed into the widest words their addresses allow, moved by one predicated
//! instruction.

mod cache_policy;
mod readable_range;
mod shifted;
mod statement;
mod words;

use tile_ir::ir::{Op, Value};
use tile_ir::ops::{
    AddView, Effect, For, Kind, Load, LoadView, Loop, MemAccess, Operation, Store, StoreView, WarpGroupDot,
};
use tile_ir::support::dtype::DType;

pub(super) use self::cache_policy::CachePolicies;
use self::statement::{LoadStatement, Modifiers, StoreStatement};
pub(super) use self::words::{VectorWords, pack, unpack};
use crate::gpu::emit::bounds_check::{BoundsCheck, Farthest, widen};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, Space, report};
use crate::gpu::layout::Layout;
use crate::mlir::builder::{AccessFlags, Val};

/// The addresses and predicates of an access, one of each for `vector` registers.
pub(super) struct Addresses {
    pub(super) pointers: Vec<Val>,
    /// `None` where the access always happens.
    pub(super) masks: Vec<Option<Val>>,
    /// Where accesses outside the slice are reported: the farthest element, and its bounds check.
    farthest: Option<(Farthest, BoundsCheck)>,
}

impl Gpu<'_> {
    pub(super) fn addresses(&mut self, b: &mut Builder, access: &MemAccess, dtype: DType) -> Addresses {
        let slice = self.slice(access.param);
        let bytes = dtype.bytes();
        let offsets = self.registers(access.offset);
        let masks = access.mask.map(|mask| self.registers(mask));
        let base = access.base.map(|base| self.scalar(base));
        let start = base.map_or(slice.pointer, |base| b.offset(slice.pointer, base, bytes));
        let signed = self.func.ty(access.offset).dtype.is_signed();
        let bound = access.bounded.then(|| BoundsCheck {
            length: slice.length,
            base,
            signed,
            range: self.offset_range(b, access, slice.length),
        });
        let mut addresses = Addresses { pointers: vec![], masks: vec![], farthest: None };
        let mut farthest: Option<Farthest> = None;
        for register in (0..offsets.len()).step_by(access.vector as usize) {
            let offset = offsets[register];
            let (anchor, constant) = self.base_and_constant(offset);
            let pointer = self.pointer(b, start, anchor, bytes, &|b, value| widen(b, value, signed));
            addresses.pointers.push(b.offset_bytes(pointer, constant as i32 * bytes as i32));
            let mut mask = masks.as_ref().map(|masks| masks[register]);
            if let Some(bound) = &bound {
                let inside = bound.holds(b, offset);
                if self.func.reports {
                    let distance = bound.distance(b, offset);
                    let element = Farthest::of(b, distance, mask);
                    farthest = Some(match farthest {
                        Some(others) => others.join(b, element),
                        None => element,
                    });
                }
                if let Some(end) = bound.end() {
                    self.facts.rows.less_than.insert(inside.id(), (offset, end));
                }
                mask = Some(mask.map_or(inside, |mask| {
                    let both = b.and(mask, inside);
                    self.facts.rows.conjunctions.insert(both.id(), (mask, inside));
                    both
                }));
            }
            addresses.masks.push(mask);
        }
        addresses.farthest = farthest.zip(bound);
        addresses
    }

    /// The address of the element at a signed offset.
    fn address_of_element(&mut self, b: &mut Builder, access: &MemAccess, dtype: DType, offset: Val) -> Val {
        let pointer = self.slice(access.param).pointer;
        let start = match access.base {
            Some(base) => b.offset(pointer, self.scalar(base), dtype.bytes()),
            None => pointer,
        };
        let index = widen(b, offset, true);
        b.offset(start, index, dtype.bytes())
    }

    /// Reports the farthest element of an access, if it is outside.
    pub(super) fn report(&self, b: &mut Builder, op: &Op, addresses: &Addresses) {
        let (Some((farthest, bound)), Some(access)) = (&addresses.farthest, op.kind.operation().access())
        else {
            return;
        };
        let span = bound.span(b);
        let beyond = b.icmp(IntPredicate::Uge, farthest.distance, span);
        let outside = farthest.any.map_or(beyond, |any| b.and(any, beyond));
        b.if_then(outside, |b| {
            let index = bound.index(b, farthest.distance);
            let length = self.slice(access.param).length;
            let record = b.address_of(report::GLOBAL, Space::Global);
            let element = report::ReportedElement { index, length, program: self.program.coord };
            element.write(b, record, self.func, op);
        });
    }

    /// `start` moved by `index` elements, emitted once.
    fn pointer(
        &mut self,
        b: &mut Builder,
        start: Val,
        index: Val,
        bytes: u32,
        widen: &dyn Fn(&mut Builder, Val) -> Val,
    ) -> Val {
        let key = (start.id(), index.id());
        if let Some(known) = self.cse.find(|scope| scope.pointers.get(&key)) {
            return known;
        }
        let index = widen(b, index);
        let pointer = b.offset(start, index, bytes);
        self.cse.innermost().pointers.insert(key, pointer);
        pointer
    }

    pub(super) fn access_layout(&self, access: &MemAccess) -> Option<&Layout> {
        (!self.func.ty(access.offset).is_scalar()).then(|| self.layout(access.offset))
    }
}

impl Gpu<'_> {
    /// Whether a scalar is loaded in one iteration of a loop for use in the next one alone.
    fn is_for_next_iteration(&self, value: Value) -> bool {
        let mut is_yielded = false;
        if self.func.ty(value).is_scalar() {
            self.func.body.walk(&mut |op| {
                if let Kind::For(For { body, .. }) | Kind::Loop(Loop { body, .. }) = &op.kind {
                    is_yielded |= body.yields.contains(&value) && body.uses(value) == 1;
                }
            });
        }
        is_yielded
    }

    /// The same address, divergent to ptxas. From a uniform address ptxas would load to a uniform register, and wait for the
    /// load at once.
    fn divergent(&self, b: &mut Builder, pointer: Val) -> Val {
        let lane = self.opaque_to_ptxas(b, self.thread.lane);
        let zero = b.sub(lane, self.thread.lane);
        b.offset(pointer, zero, 1)
    }
}

impl GpuEmit for Load {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let dtype = gpu.func.ty(op.results[0]).dtype;
        let vector = self.access.vector as usize;
        let words = VectorWords::of(self.access.vector * dtype.bytes());
        let other = self.other.map(|other| gpu.registers(other));
        let is_never_written = self.effect() == Effect::Pure;
        let invariant = is_never_written && !gpu.plan.uses_pdl();
        if self.access.shift.is_some() && vector > 1 {
            let registers = shifted::load(gpu, b, op, self);
            return gpu.define(op.results[0], registers);
        }
        let mut addresses = gpu.addresses(b, &self.access, dtype);
        if gpu.is_for_next_iteration(op.results[0]) {
            addresses.pointers =
                addresses.pointers.iter().map(|&pointer| gpu.divergent(b, pointer)).collect();
        }
        let mut registers = vec![];
        for (i, (&pointer, &mask)) in addresses.pointers.iter().zip(&addresses.masks).enumerate() {
            let modifiers = Modifiers::of_load(gpu, self, words);
            let loaded = match mask {
                None if modifiers.is_plain() => {
                    let access = AccessFlags { align: words.bytes, invariant };
                    let loaded = b.load(pointer, words.ty(), access);
                    b.unpack(loaded)
                }
                mask => {
                    let other =
                        other.as_ref().map(|other| pack(b, &other[i * vector..(i + 1) * vector], dtype));
                    let statement = LoadStatement { words, mask, other, invariant, modifiers };
                    statement.emit(b, pointer)
                }
            };
            registers.extend(unpack(b, &loaded, dtype, vector));
        }
        gpu.report(b, op, &addresses);
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Store {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let dtype = gpu.func.ty(self.value).dtype;
        let vector = self.access.vector as usize;
        if self.access.shift.is_some() && vector > 1 {
            return shifted::store(gpu, b, op, self);
        }
        let addresses = gpu.addresses(b, &self.access, dtype);
        let writer = gpu.writer(b, gpu.access_layout(&self.access));
        let values = gpu.registers(self.value);
        let words = VectorWords::of(self.access.vector * dtype.bytes());
        for (i, (&pointer, &mask)) in addresses.pointers.iter().zip(&addresses.masks).enumerate() {
            let data = pack(b, &values[i * vector..(i + 1) * vector], dtype);
            let mask = b.both(mask, writer);
            let modifiers = Modifiers::requested(gpu, self.cache);
            match mask {
                None if modifiers.is_plain() => {
                    let value = if data.len() == 1 { data[0] } else { b.pack(&data) };
                    b.store(value, pointer, AccessFlags::aligned(words.bytes));
                }
                mask => StoreStatement { words, mask, modifiers }.emit(b, pointer, data),
            }
        }
        gpu.report(b, op, &addresses);
    }
}

/// `lower_view_access` has rewritten them to loads, stores and atomic operations.
macro_rules! expanded {
    ($($op:ident),*) => {$(
        impl GpuEmit for $op {
            fn emit(&self, _: &mut Gpu, _: &mut Builder, _: &Op) {
                unreachable!("no blocks of views are left")
            }
        }
    )*};
}

expanded!(LoadView, StoreView, AddView, WarpGroupDot);
