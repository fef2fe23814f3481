//! Emission of elementwise and shape operations: no memory, no other thread.

use std::collections::{HashMap, HashSet};

use tile_ir::frontend::syntax::BinaryOp;
use tile_ir::ir::{Func, Op, Value};
use tile_ir::ops::for_each_op;
use tile_ir::ops::scalar::{ArithKind, HalfPolicy};
use tile_ir::ops::{
    Arange, AxisHint, Bitcast, Broadcast, Cast, Constant, ExpandDims, InlinePtx, Length, NumPrograms,
    Operation, Permute, ProgramId, RematBarrier, Scalar, Splat,
};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::indices::IndexJoin;
use crate::gpu::emit::memory::{pack, unpack};
use crate::gpu::emit::packed_cast;
use crate::gpu::emit::{Asm, Builder, Gpu, Registers};
use crate::gpu::layout::{Coord, Layout};
use crate::mlir::builder::{BranchArm, FloatPredicate, Val};
use crate::mlir::types::{Elem, Ty};
use crate::mlir::{cast, constant, elementwise};

/// How an operation is emitted for a GPU thread.
pub trait GpuEmit {
    /// Defines the operation's results.
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op);

    /// Whether GPUs of other capabilities get other code.
    fn differs_by_capability(&self, func: &Func, op: &Op) -> bool {
        let _ = (func, op);
        false
    }
}

macro_rules! emitters {
    ($($name:ident),* $(,)?) => {
        /// How an operation becomes code of a GPU thread.
        pub fn emitter(kind: &tile_ir::ops::Kind) -> &dyn GpuEmit {
            match kind {
                $(tile_ir::ops::Kind::$name(op) => op,)*
            }
        }
    };
}

for_each_op!(emitters);

impl GpuEmit for Constant {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let ty = gpu.register_type(op.results[0]);
        let value = constant(b, self.value, gpu.func.ty(op.results[0]).dtype, ty);
        gpu.define(op.results[0], vec![value]);
    }
}

impl GpuEmit for ProgramId {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let program = gpu.program.coord[usize::from(self.axis)];
        gpu.define(op.results[0], vec![program]);
    }
}

impl GpuEmit for NumPrograms {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let extent = gpu.entry.grid[usize::from(self.axis)];
        gpu.define(op.results[0], vec![extent]);
    }
}

impl GpuEmit for Length {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let length = gpu.slice(self.param).length;
        gpu.define(op.results[0], vec![length]);
    }
}

impl GpuEmit for Arange {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]);
        let registers = (0..layout.register_count())
            .map(|register| {
                let coord = gpu.coord(b, layout, register, 0);
                let (thread, constant) = gpu.base_and_constant(coord);
                gpu.add_constant(b, thread, constant + i64::from(self.start))
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Splat {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let value = gpu.scalar(self.value);
        let count = gpu.register_count(op.results[0]);
        gpu.define(op.results[0], vec![value; count]);
    }
}

impl GpuEmit for Scalar {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let args: Vec<_> = self.args.iter().map(|&arg| gpu.registers(arg)).collect();
        let dtype = self.dtype(gpu.func);
        let count = args[0].len();
        // 16-bit floats go two to an instruction.
        let packed = dtype.is_half()
            && self.op.half_policy == HalfPolicy::Native
            && self.op.arith != ArithKind::Select;
        let registers = if packed && count.is_multiple_of(2) {
            (0..count / 2)
                .flat_map(|pair| {
                    let operands: Vec<Val> =
                        args.iter().map(|arg| b.pack(&arg[2 * pair..2 * pair + 2])).collect();
                    let result = elementwise::applied(b, self, &operands, dtype);
                    b.unpack(result)
                })
                .collect()
        } else if let Some(registers) = with_fast_path(self, b, &args, dtype) {
            registers
        } else if let Some(registers) = gpu.divided(b, self, op.results[0]) {
            registers
        } else {
            // Equal elements are computed once: a mask that is constant over a vector, a broadcast scalar.
            let repeats = if count == 1 { 1 } else { gpu.repeats(op.results[0]) };
            let mut known: HashMap<Vec<usize>, Val> = HashMap::new();
            let compares = matches!(self.op.arith, ArithKind::Compare(_));
            let is_mask = gpu.func.ty(op.results[0]).dtype == DType::Bool && has_signed_operands(self, gpu);
            let by_difference = compares && has_difference(self, gpu, &args);
            let clamped = compares
                && !by_difference
                && gpu.facts.rows.rotated
                && has_clamped_difference(self, gpu, &args, repeats);
            (0..count)
                .map(|register| {
                    let first = register - register % repeats;
                    let operands: Vec<Val> = args.iter().map(|arg| arg[first]).collect();
                    let key = operands.iter().map(|operand| operand.id()).collect();
                    if compares && let Some(found) = gpu.below_bound(self, &operands, first) {
                        return found;
                    }
                    let result = *known.entry(key).or_insert_with(|| match self.op.arith {
                        ArithKind::Add if self.exact => {
                            gpu.join_indices(b, IndexJoin::Sum, operands[0], operands[1])
                        }
                        ArithKind::Sub if self.exact => {
                            gpu.join_indices(b, IndexJoin::Difference, operands[0], operands[1])
                        }
                        _ if by_difference => {
                            let distance =
                                gpu.join_indices(b, IndexJoin::Difference, operands[0], operands[1]);
                            let (base, constant) = gpu.base_and_constant(distance);
                            let limit = b.int(base.ty, -constant);
                            elementwise::applied(b, self, &[base, limit], dtype)
                        }
                        _ if clamped => clamped_comparison(self, gpu, b, &operands),
                        ArithKind::Select if operands[2].id() == b.zero(operands[2].ty).id() => {
                            gpu.select_or_zero(b, operands[0], operands[1])
                        }
                        ArithKind::Mul if let Some((mask, unmasked)) = gpu.unmasked_operands(&operands) => {
                            let product = elementwise::applied(b, self, &unmasked, dtype);
                            gpu.select_or_zero(b, mask, product)
                        }
                        _ => elementwise::applied(b, self, &operands, dtype),
                    });
                    if is_mask {
                        gpu.facts.rows.record(self, &operands, result);
                    }
                    result
                })
                .collect()
        };
        gpu.define(op.results[0], registers);
    }
}

/// Comparisons of one difference from which on clamping it pays.
const MIN_CLAMPED_COMPARISONS: usize = 8;

/// Elements of a thread from which on a branch tests for the fast path.
const MIN_FAST_PATH_ELEMENTS: usize = 32;
/// Elements of one branch: all of its results and operands are live in registers across it.
const FAST_PATH_CHUNK: usize = 16;

/// An operation on many elements of a thread with a cheaper form where all operands are small, such as `tanh` as a cap of
/// attention scores.
fn with_fast_path(scalar: &Scalar, b: &mut Builder, args: &[Registers], dtype: DType) -> Option<Vec<Val>> {
    let common = elementwise::emission(scalar.op).common.filter(|_| dtype == DType::F32)?;
    let mut seen = HashSet::new();
    let operands: Vec<Val> = args[0].iter().copied().filter(|operand| seen.insert(operand.id())).collect();
    if operands.len() < MIN_FAST_PATH_ELEMENTS {
        return None;
    }
    let mut results = vec![];
    for operands in operands.chunks(FAST_PATH_CHUNK) {
        let magnitudes: Vec<Val> = operands.iter().map(|&operand| b.fabs(operand)).collect();
        let larger = |one: Val, other: Val| b.op("llvm.intr.maxnum", &[one, other], one.ty);
        let largest = magnitudes.into_iter().reduce(larger)?;
        let limit = b.float(largest.ty, common.below);
        let are_common = b.fcmp(FloatPredicate::Olt, largest, limit);
        let types = vec![largest.ty; operands.len()];
        results.extend(b.branch(are_common, &types, |b, arm| {
            let apply = |&operand| match arm {
                BranchArm::Then => (common.lanes)(b, operand),
                BranchArm::Else => elementwise::applied(b, scalar, &[operand], dtype),
            };
            operands.iter().map(apply).collect()
        }));
    }
    let results: HashMap<usize, Val> = operands.iter().map(|operand| operand.id()).zip(results).collect();
    Some(args[0].iter().map(|operand| results[&operand.id()]).collect())
}

fn has_signed_operands(scalar: &Scalar, gpu: &Gpu) -> bool {
    matches!(gpu.func.ty(scalar.args[0]).dtype, DType::Bool | DType::I32)
}

/// Whether this ordered comparison of `i32` values can compare their clamped difference with a constant, and many registers
/// share that difference: one register then replaces all of theirs.
fn has_clamped_difference(scalar: &Scalar, gpu: &Gpu, args: &[Registers], repeats: usize) -> bool {
    let [left, right] = args else { return false };
    let order = matches!(
        scalar.op.arith,
        ArithKind::Compare(BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
    );
    if !order || gpu.func.ty(scalar.args[0]).dtype != DType::I32 {
        return false;
    }
    let pairs = left.iter().zip(right.iter()).step_by(repeats);
    let bases: Vec<(usize, usize)> =
        pairs.map(|(&a, &b)| (gpu.base_and_constant(a).0.id(), gpu.base_and_constant(b).0.id())).collect();
    let distinct: HashSet<_> = bases.iter().collect();
    distinct.len() * MIN_CLAMPED_COMPARISONS <= bases.len()
}

/// The comparison by a saturating difference: where it would overflow it is beyond every constant.
fn clamped_comparison(scalar: &Scalar, gpu: &mut Gpu, b: &mut Builder, operands: &[Val]) -> Val {
    let dtype = DType::I32;
    let (right, end) = gpu.base_and_constant(operands[1]);
    let (base, constant) = gpu.base_and_constant(operands[0]);
    let limit = end - constant;
    if limit.abs() >= i64::from(i32::MAX) {
        return elementwise::applied(b, scalar, operands, dtype);
    }
    let distance = b.op("llvm.intr.ssub.sat", &[base, right], Ty::I32);
    let limit = b.int(Ty::I32, limit);
    elementwise::applied(b, scalar, &[distance, limit], dtype)
}

/// Whether this comparison of `i32` values can compare their difference with a constant: it does not overflow, and
/// several registers share it.
fn has_difference(scalar: &Scalar, gpu: &Gpu, args: &[Registers]) -> bool {
    let [left, right] = args else { return false };
    if gpu.func.ty(scalar.args[0]).dtype != DType::I32 {
        return false;
    }
    let pairs = left.iter().zip(right.iter());
    let offsets: Vec<_> =
        pairs.map(|(&a, &b)| (gpu.base_and_constant(a), gpu.base_and_constant(b))).collect();
    let bases: HashSet<(usize, usize)> = offsets.iter().map(|((a, _), (b, _))| (a.id(), b.id())).collect();
    let [a, b] = [scalar.args[0], scalar.args[1]].map(|arg| gpu.info(arg).range);
    let (low, high) = DType::I32.range();
    let fits = |&((_, p), (_, q)): &((Val, i64), (Val, i64))| {
        let constant = i128::from(q) - i128::from(p);
        a.0.saturating_sub(b.1) + constant >= low && a.1.saturating_sub(b.0) + constant <= high
    };
    bases.len() < offsets.len() && offsets.iter().all(fits)
}

impl GpuEmit for Cast {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let values = gpu.registers(self.value);
        let (from, to) = (gpu.func.ty(self.value).dtype, gpu.func.ty(op.results[0]).dtype);
        let registers = match gpu.cse.bf16_multiplier {
            Some(multiplier) if packed_cast::is_bf16_to_f32(from, to) => {
                packed_cast::widen(b, &values, multiplier)
            }
            _ => packed_cast::cast(b, &values, from, to),
        };
        gpu.define(op.results[0], registers);
    }

    fn differs_by_capability(&self, func: &Func, op: &Op) -> bool {
        func.ty(self.value).dtype.is_f8() || func.ty(op.results[0]).dtype.is_f8()
    }
}

impl GpuEmit for Bitcast {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let to = gpu.func.ty(op.results[0]).dtype;
        let registers = gpu.registers(self.value).iter().map(|&value| cast::bitcast(b, value, to)).collect();
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for RematBarrier {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let dtype = gpu.func.ty(self.value).dtype;
        let values = gpu.registers(self.value);
        let words = pack(b, &values, dtype);
        // LLVM does not see through the statement, and ptxas drops it.
        let opaque: Vec<Val> = words.iter().map(|&word| opaque(b, word)).collect();
        let registers = unpack(b, &opaque, dtype, values.len());
        gpu.define(op.results[0], registers);
    }
}

/// The same word, opaque to LLVM.
pub(super) fn opaque(b: &mut Builder, word: Val) -> Val {
    let wide = b.zext(word, Elem::I32);
    let moved = b.asm("mov.b32 $0, $1;", "=r,r", &[wide], &[Ty::I32], Asm::Pure)[0];
    b.trunc(moved, word.ty.elem)
}

impl Gpu<'_> {
    /// `value` where the mask holds and 0 elsewhere, recorded for [`Gpu::mask_of`].
    pub(super) fn select_or_zero(&mut self, b: &mut Builder, mask: Val, value: Val) -> Val {
        let zero = b.zero(value.ty);
        let selected = b.select(mask, value, zero);
        self.facts.masked.insert(selected.id(), (mask, value));
        selected
    }

    /// The mask of a value that is 0 elsewhere, and the unmasked value.
    pub(super) fn mask_of(&self, value: Val) -> Option<(Val, Val)> {
        self.facts.masked.get(&value.id()).copied()
    }

    /// The unmasked values of two operands that one mask makes 0. Their product is 0 where they are.
    fn unmasked_operands(&self, operands: &[Val]) -> Option<(Val, [Val; 2])> {
        let [(mask, left), (other, right)] = [self.mask_of(operands[0])?, self.mask_of(operands[1])?];
        (mask.id() == other.id()).then_some((mask, [left, right]))
    }

    /// Defines a result whose elements this thread holds already, at other coordinates: `source` maps a coordinate of the
    /// result to the operand's.
    pub(super) fn define_reindexed(&mut self, op: &Op, operand: Value, source: impl Fn(Coord) -> Coord) {
        let (from, to) = (self.layout(operand), self.layout(op.results[0]));
        let registers = self.select_registers(operand, from, to, source);
        self.define(op.results[0], registers);
    }

    fn select_registers(
        &self,
        operand: Value,
        from: &Layout,
        to: &Layout,
        source: impl Fn(Coord) -> Coord,
    ) -> Vec<Val> {
        let values = self.registers(operand);
        let register_of = from.registers_by_coord();
        (0..to.register_count())
            .map(|register| {
                let coord = source(to.register(register));
                let register = register_of
                    .get(&coord)
                    .unwrap_or_else(|| panic!("no register of {from} holds {coord:?}"));
                values[*register]
            })
            .collect()
    }
}

impl GpuEmit for Broadcast {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let from = gpu.func.ty(self.value).shape.clone();
        gpu.define_reindexed(op, self.value, |coord| coord.clamp(&from));
    }
}

impl GpuEmit for ExpandDims {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        gpu.define_reindexed(op, self.value, |coord| coord.remove(self.axis));
    }
}

impl GpuEmit for Permute {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        debug_assert_eq!(self.operands().len(), 1);
        gpu.define_reindexed(op, self.value, |coord| coord.unpermute(&self.order));
    }
}

impl GpuEmit for AxisHint {
    fn emit(&self, gpu: &mut Gpu, _: &mut Builder, op: &Op) {
        let registers = gpu.registers(self.value).to_vec();
        gpu.define(op.results[0], registers);
    }
}

/// The type of the register that a constraint of inline PTX is of, if it is a result's.
fn result_type(constraint: &str) -> Option<Ty> {
    let elem = match constraint.strip_prefix('=')? {
        "f" => Elem::F32,
        "d" => Elem::F64,
        "l" => Elem::I64,
        "h" => Elem::I16,
        _ => Elem::I32,
    };
    Some(Ty::scalar(elem))
}

impl GpuEmit for InlinePtx {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let args: Vec<_> = self.args.iter().map(|&arg| gpu.registers(arg)).collect();
        let ty = gpu.register_type(op.results[0]);
        // 16-bit floats travel as their bits.
        let machine = |ty: Ty| if ty.elem.bits() == 16 { ty.with(Elem::I16) } else { ty };
        // Of every result: LLVM merges the equal statements of each.
        let types: Vec<Ty> = self.constraints.split(',').filter_map(result_type).collect();
        let registers = (0..gpu.register_count(op.results[0]))
            .map(|register| {
                let operands: Vec<Val> =
                    args.iter().map(|arg| b.bitcast(arg[register], machine(arg[register].ty))).collect();
                let results = b.asm(&self.text, &self.constraints, &operands, &types, Asm::Pure);
                b.bitcast(results[self.result as usize], ty)
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}
