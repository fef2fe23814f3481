//! Emission of loads and stores: elements packed into the widest words their addresses allow, moved by one predicated
//! instruction.

mod readable_range;
mod shifted;

use tile_ir::ir::{Op, Value};
use tile_ir::ops::{
    AddView, CacheHints, CacheModifier, Effect, EvictionPolicy, For, Kind, Load, LoadView, MemAccess,
    Operation, Store, StoreView,
};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::bounds_check::{BoundsCheck, Farthest, widen};
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::{Asm, Builder, Gpu, IntPredicate, Space, report, statement};
use crate::gpu::layout::Layout;
use crate::mlir::builder::{AccessFlags, Val};
use crate::mlir::types::{Elem, Ty};

/// The words one instruction moves.
#[derive(Clone, Copy)]
pub(super) struct VectorWords {
    count: u16,
    elem: Elem,
    bytes: u32,
}

impl VectorWords {
    pub(super) fn of(bytes: u32) -> VectorWords {
        let (count, elem) = match bytes {
            1 => (1, Elem::I8),
            2 => (1, Elem::I16),
            4 => (1, Elem::I32),
            8 => (2, Elem::I32),
            _ => (4, Elem::I32),
        };
        VectorWords { count, elem, bytes }
    }

    fn ty(self) -> Ty {
        if self.count == 1 { Ty::scalar(self.elem) } else { Ty::vector(self.elem, self.count) }
    }

    /// The type of one word.
    fn word_type(self) -> Ty {
        Ty::scalar(self.elem)
    }

    /// The register that PTX moves a word in: bytes travel in 16-bit registers.
    fn register(self) -> (Ty, &'static str) {
        match self.elem {
            Elem::I8 | Elem::I16 => (Ty::I16, "h"),
            _ => (Ty::I32, "r"),
        }
    }

    /// `.v4.b32`
    fn suffix(self) -> String {
        let vector = match self.count {
            1 => "",
            2 => ".v2",
            _ => ".v4",
        };
        format!("{vector}.b{}", self.elem.bits())
    }

    /// `$0`, or `{$0, $1}`; and the constraints of as many results.
    fn results(self) -> (String, Vec<String>) {
        let (_, letter) = self.register();
        let names: Vec<String> = (0..self.count).map(|i| format!("${i}")).collect();
        let text = if self.count == 1 { names[0].clone() } else { format!("{{{}}}", names.join(", ")) };
        (text, vec![format!("={letter}"); usize::from(self.count)])
    }

    /// Loads them from `start` bytes behind an address in shared memory, ordered among other statements.
    pub(super) fn load_shared(self, b: &mut Builder, address: Val, start: u32) -> Vec<Val> {
        let (ty, _) = self.register();
        let (target, mut constraints) = self.results();
        let text = format!("ld.shared{} {target}, [${} + {start}];", self.suffix(), self.count);
        constraints.extend(["r".into(), "~{memory}".into()]);
        statement(b, &text, &constraints.join(","), &[address], &vec![ty; usize::from(self.count)])
    }
}

/// Elements of one type as words; a `bool` is a byte of 0 or 1.
pub(super) fn pack(b: &mut Builder, values: &[Val], dtype: DType) -> Vec<Val> {
    let values: Vec<Val> = values.iter().map(|&value| bits(b, value, dtype)).collect();
    match dtype.bytes() {
        8 => values
            .iter()
            .flat_map(|&value| {
                let words = b.bitcast(value, Ty::vector(Elem::I32, 2));
                b.unpack(words)
            })
            .collect(),
        4 => values,
        size if values.len() as u32 * size < 4 => vec![join(b, &values, size)],
        size => values.chunks(4 / size as usize).map(|chunk| join(b, chunk, size)).collect(),
    }
}

/// The element's bits as an integer of its size.
fn bits(b: &mut Builder, value: Val, dtype: DType) -> Val {
    if dtype == DType::Bool {
        b.zext(value, Elem::I8)
    } else {
        b.bitcast(value, value.ty.with(value.ty.elem.as_int()))
    }
}

/// Small integers side by side, the first in the low bits.
fn join(b: &mut Builder, values: &[Val], size: u32) -> Val {
    let elem = match values.len() as u32 * size {
        1 => return values[0],
        2 => Elem::I16,
        _ => Elem::I32,
    };
    if size == 2 && elem == Elem::I32 {
        let pair = b.pack(values);
        return b.bitcast(pair, Ty::I32);
    }
    if values.len() == 1 {
        return values[0];
    }
    let mut word = b.zext(values[0], elem);
    for (i, &value) in values.iter().enumerate().skip(1) {
        let wide = b.zext(value, elem);
        let amount = b.int(wide.ty, i as i64 * i64::from(size) * 8);
        let shifted = b.shl(wide, amount);
        word = b.or(word, shifted);
    }
    word
}

/// The inverse of [`pack`]: `count` elements.
pub(super) fn unpack(b: &mut Builder, words: &[Val], dtype: DType, count: usize) -> Vec<Val> {
    let elem = crate::mlir::cast::elem(dtype, b.machine);
    let size = dtype.bytes();
    if size == 8 {
        let pairs = words.chunks(2);
        return pairs
            .map(|pair| {
                let pair = b.pack(pair);
                b.bitcast(pair, Ty::scalar(elem))
            })
            .collect();
    }
    let per_word = count.div_ceil(words.len());
    let mut values = vec![];
    for &word in words {
        if size == 2 && word.ty.elem == Elem::I32 {
            let pair = b.bitcast(word, Ty::vector(elem, 2));
            let halves = b.unpack(pair);
            b.words.insert(halves[0].id(), word);
            values.extend(halves);
            continue;
        }
        for i in 0..per_word {
            let amount = b.int(word.ty, i as i64 * i64::from(size) * 8);
            let shifted = if i == 0 { word } else { b.lshr(word, amount) };
            let int = b.trunc(
                shifted,
                if size == 1 {
                    Elem::I8
                } else if size == 2 {
                    Elem::I16
                } else {
                    Elem::I32
                },
            );
            values.push(if dtype == DType::Bool {
                let zero = b.int(int.ty, 0);
                b.icmp(IntPredicate::Ne, int, zero)
            } else {
                b.bitcast(int, Ty::scalar(elem))
            });
        }
    }
    values.truncate(count);
    values
}

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
                    self.rows.less_than.insert(inside.id(), (offset, end));
                }
                mask = Some(mask.map_or(inside, |mask| {
                    let both = b.and(mask, inside);
                    self.rows.conjunctions.insert(both.id(), (mask, inside));
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
            let element = report::ReportedElement { index, length, program: self.program };
            report::write(b, record, (self.func, op), &element);
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
        if let Some(&known) = self.cse.iter().rev().find_map(|scope| scope.pointers.get(&key)) {
            return known;
        }
        let index = widen(b, index);
        let pointer = b.offset(start, index, bytes);
        self.innermost_cse().pointers.insert(key, pointer);
        pointer
    }

    /// Emits a barrier where the access may conflict with one of another thread.
    pub(super) fn order(&mut self, b: &mut Builder, access: &MemAccess, writes: bool) {
        if self.func.slice(access.param).1 && self.membar.access_slice(*access, writes) {
            let pending = self.membar.snapshot();
            self.barrier(b);
            self.membar.restore(pending);
        }
    }

    pub(super) fn access_layout(&self, access: &MemAccess) -> Option<&Layout> {
        (!self.func.ty(access.offset).is_scalar()).then(|| self.layout(access.offset))
    }
}

/// Bytes of the widest access, for which a cache policy pays.
const WIDEST: u32 = 16;

/// The `evict_last` policy of loads: their lines outlive the written ones, which are then evicted in the order of the
/// stores. Worth 2 to 4 % of a copy's bandwidth on an H200 (docs/decisions/0001).
pub(super) fn evict_last_policy(b: &mut Builder) -> Val {
    let text = "createpolicy.fractional.L2::evict_last.b64 $0;";
    b.asm(text, "=l", &[], &[Ty::I64], Asm::Pure)[0]
}

/// The `evict_first` policy.
pub(super) fn evict_first_policy(b: &mut Builder) -> Val {
    let text = "createpolicy.fractional.L2::evict_first.b64 $0;";
    b.asm(text, "=l", &[], &[Ty::I64], Asm::Pure)[0]
}

/// The modifiers of a PTX access besides its address and type: `ld.global{cop}{.nc}{l1}{.L2::cache_hint}`.
#[derive(Clone, Copy)]
struct Modifiers {
    volatile: bool,
    cop: &'static str,
    l1: &'static str,
    /// The eviction policy in L2.
    policy: Option<Val>,
}

impl Modifiers {
    /// Those that the operation asks for.
    fn requested(gpu: &Gpu, cache: CacheHints) -> Modifiers {
        let cop = match cache.modifier {
            CacheModifier::All | CacheModifier::Volatile => "",
            CacheModifier::Global => ".cg",
            CacheModifier::Streaming => ".cs",
            CacheModifier::Through => ".wt",
        };
        // PTX takes an operator or a priority.
        let l1 = match (cache.modifier, cache.no_allocate, cache.eviction) {
            (CacheModifier::All, true, _) => ".L1::no_allocate",
            (CacheModifier::All, false, EvictionPolicy::First) => ".L1::evict_first",
            (CacheModifier::All, false, EvictionPolicy::Last) => ".L1::evict_last",
            _ => "",
        };
        let policy = match cache.eviction {
            EvictionPolicy::Normal => None,
            EvictionPolicy::First => gpu.evict_first_policy,
            EvictionPolicy::Last => Some(gpu.evict_last_policy),
        };
        let volatile = cache.modifier == CacheModifier::Volatile;
        Modifiers { volatile, cop, l1, policy: policy.filter(|_| !volatile) }
    }

    /// Those of a load. Wide loads of slices that the kernel never writes are `evict_last`, unless the operation says otherwise.
    fn of_load(gpu: &Gpu, load: &Load, words: VectorWords) -> Modifiers {
        let mut modifiers = Modifiers::requested(gpu, load.cache);
        let streams =
            load.cache.modifier == CacheModifier::Streaming || load.cache.eviction == EvictionPolicy::First;
        if load.effect() == Effect::Pure && words.bytes == WIDEST && !streams {
            modifiers.policy = Some(gpu.evict_last_policy);
        }
        modifiers
    }

    /// Whether LLVM's own loads and stores suffice.
    fn is_plain(&self) -> bool {
        !self.volatile && self.cop.is_empty() && self.l1.is_empty() && self.policy.is_none()
    }

    /// The text between `ld` or `st` and the width.
    fn text(&self, invariant: bool) -> String {
        if self.volatile {
            return ".volatile.global".into();
        }
        let nc = if invariant { ".nc" } else { "" };
        let hint = if self.policy.is_some() { ".L2::cache_hint" } else { "" };
        format!(".global{}{nc}{}{hint}", self.cop, self.l1)
    }
}

impl Gpu<'_> {
    /// Whether a scalar is loaded in one iteration of a loop for use in the next one alone.
    fn is_for_next_iteration(&self, value: Value) -> bool {
        let mut is_yielded = false;
        if self.func.ty(value).is_scalar() {
            self.func.body.walk(&mut |op| {
                if let Kind::For(For { body, .. }) = &op.kind {
                    is_yielded |= body.yields.contains(&value) && body.uses(value) == 1;
                }
            });
        }
        is_yielded
    }

    /// The same address, divergent to ptxas. From a uniform address ptxas would load to a uniform register, and wait for the
    /// load at once.
    fn divergent(&self, b: &mut Builder, pointer: Val) -> Val {
        let lane = self.opaque_to_ptxas(b, self.lane);
        let zero = b.sub(lane, self.lane);
        b.offset(pointer, zero, 1)
    }
}

impl GpuEmit for Load {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let dtype = gpu.func.ty(op.results[0]).dtype;
        let vector = self.access.vector as usize;
        let words = VectorWords::of(self.access.vector * dtype.bytes());
        let other = self.other.map(|other| gpu.registers(other));
        if let Some(slot) = gpu.prefetched.remove(&op.results[0]) {
            let others = |b: &mut Builder, i: usize| {
                other.as_ref().map(|other| pack(b, &other[i * vector..(i + 1) * vector], dtype))
            };
            let loaded = gpu.load_prefetched(b, self, slot, others);
            let registers = loaded.iter().flat_map(|words| unpack(b, words, dtype, vector)).collect();
            return gpu.define(op.results[0], registers);
        }
        gpu.order(b, &self.access, false);
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

/// One load as PTX, with modifiers that LLVM's loads lack.
struct LoadStatement {
    words: VectorWords,
    /// `None` loads always.
    mask: Option<Val>,
    /// The words where the mask does not hold; without them 0.
    other: Option<Vec<Val>>,
    invariant: bool,
    modifiers: Modifiers,
}

impl LoadStatement {
    fn emit(self, b: &mut Builder, pointer: Val) -> Vec<Val> {
        let (ty, _) = self.words.register();
        let count = usize::from(self.words.count);
        let (target, mut constraints) = self.words.results();
        let mut operands = vec![pointer];
        constraints.push("l".into());
        let mut next = count + 1;
        let mut operand = |operands: &mut Vec<Val>, value: Val, letter: &str| {
            operands.push(value);
            constraints.push(letter.into());
            next += 1;
            format!("${}", next - 1)
        };
        let predicate = match self.mask {
            Some(mask) => format!("@{} ", operand(&mut operands, mask, "b")),
            None => String::new(),
        };
        let policy = match self.modifiers.policy {
            Some(policy) => format!(", {}", operand(&mut operands, policy, "l")),
            None => String::new(),
        };
        if self.mask.is_some() {
            for i in 0..count {
                let initial = match &self.other {
                    Some(other) => b.zext(other[i], ty.elem),
                    None => b.int(ty, 0),
                };
                operand(&mut operands, initial, &i.to_string());
            }
        }
        let modifiers = self.modifiers.text(self.invariant);
        let text = format!("{predicate}ld{modifiers}{} {target}, [${count}]{policy};", self.words.suffix());
        let results = statement(b, &text, &constraints.join(","), &operands, &vec![ty; count]);
        results.into_iter().map(|word| b.trunc(word, self.words.elem)).collect()
    }
}

impl GpuEmit for Store {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let dtype = gpu.func.ty(self.value).dtype;
        gpu.order(b, &self.access, true);
        let vector = self.access.vector as usize;
        if self.access.shift.is_some() && vector > 1 {
            let writer = gpu.writer(b, gpu.access_layout(&self.access));
            let values = gpu.registers(self.value);
            let modifiers = Modifiers::requested(gpu, self.cache);
            return shifted::store(gpu, b, op, &self.access, (&values, writer), modifiers);
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

/// One store as PTX.
struct StoreStatement {
    words: VectorWords,
    /// `None` stores always.
    mask: Option<Val>,
    modifiers: Modifiers,
}

impl StoreStatement {
    fn emit(self, b: &mut Builder, pointer: Val, data: Vec<Val>) {
        let (ty, letter) = self.words.register();
        let count = usize::from(self.words.count);
        let mut operands = vec![pointer];
        let mut constraints = vec!["l"];
        let mut predicate = String::new();
        if let Some(mask) = self.mask {
            operands.push(mask);
            constraints.push("b");
            predicate = "@$1 ".into();
        }
        let first = operands.len();
        let names: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
        let source = if count == 1 { names[0].clone() } else { format!("{{{}}}", names.join(", ")) };
        operands.extend(data.into_iter().map(|word| b.zext(word, ty.elem)));
        constraints.extend(vec![letter; count]);
        let mut hint = String::new();
        if let Some(policy) = self.modifiers.policy {
            hint = format!(", ${}", operands.len());
            operands.push(policy);
            constraints.push("l");
        }
        let modifiers = self.modifiers.text(false);
        let text = format!("{predicate}st{modifiers}{} [$0], {source}{hint};", self.words.suffix());
        statement(b, &text, &constraints.join(","), &operands, &[]);
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

expanded!(LoadView, StoreView, AddView);
