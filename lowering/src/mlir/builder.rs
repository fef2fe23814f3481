//! The one way to build MLIR here: typed values, a current insertion block, and a method per machine operation.
//!
//! Arithmetic works lane by lane: a method takes scalars or vectors alike, and constants are splat to the shape they
//! meet. Everything is emitted in the `llvm`, `scf` and `nvvm` dialects. The builder knows machine types only; tiles,
//! layouts and loops over elements belong to the emitters above it.

mod atomic;
mod contraction;
mod outside;
mod sink;

use std::collections::HashMap;

use melior::Context;
use melior::ir::attribute::{
    Attribute, BoolAttribute, DenseElementsAttribute, DenseI32ArrayAttribute, DenseI64ArrayAttribute,
    FloatAttribute, IntegerAttribute, StringAttribute, TypeAttribute,
};
use melior::ir::operation::{OperationBuilder, OperationLike};
use melior::ir::r#type::IntegerType;
use melior::ir::{Block, BlockLike, Identifier, Location, Region, RegionLike, Type, Value, ValueLike};
use mlir_sys::{MlirBlock, MlirValue, mlirBlockAppendOwnedOperation, mlirBlockInsertOwnedOperation};

use super::machine::{Machine, Vectors};
use super::types::{Elem, Space, Ty};
pub use atomic::AtomicKind;

/// A value of the function being built. Valid until the builder's module is gone.
#[derive(Clone, Copy)]
pub struct Val {
    raw: MlirValue,
    pub ty: Ty,
}

impl Val {
    /// The identity of a value in its function. It differs in each process: nothing may be sorted by it.
    pub fn id(self) -> usize {
        self.raw.ptr.addr()
    }
}

impl std::fmt::Debug for Val {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Val({})", self.ty)
    }
}

/// Comparison of integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntPredicate {
    Eq = 0,
    Ne,
    Slt,
    Sle,
    Sgt,
    Sge,
    Ult,
    Ule,
    Ugt,
    Uge,
}

/// Comparison of floats: ordered ones are false when an operand is NaN, `Une` and `Uno` are true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FloatPredicate {
    Oeq = 1,
    Ogt = 2,
    Oge = 3,
    Olt = 4,
    Ole = 5,
    One = 6,
    Ord = 7,
    Une = 13,
    Uno = 14,
}

/// The properties of a load or store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessFlags {
    pub align: u32,
    /// The memory is not written while the kernel runs.
    pub invariant: bool,
}

impl AccessFlags {
    pub fn aligned(align: u32) -> AccessFlags {
        AccessFlags { align, invariant: false }
    }
}

/// A part of a `while` loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoopPart {
    Test,
    Body,
}

/// An arm of a branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BranchArm {
    Then,
    Else,
}

/// How many registers or arguments an inline PTX statement has, and whether it may be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asm {
    Pure,
    Effects,
}

pub struct Builder<'c> {
    context: &'c Context,
    location: Location<'c>,
    block: MlirBlock,
    entry: MlirBlock,
    constants: HashMap<(Ty, u64), Val>,
    contract: Attribute<'c>,
    reassociate: Attribute<'c>,
    strict: Attribute<'c>,
    pub machine: Machine,
    /// The least capability of the GPU, as in `sm_90`.
    pub capability: u32,
    /// Float arithmetic built while this is set may be reassociated: the accumulation of a reduction or dot.
    pub accumulating: bool,
    /// The words that 16-bit values are the lower halves of.
    pub(crate) words: HashMap<usize, Val>,
    /// Floats that are another one rounded to an integer, on a GPU: their conversion to integers is then one instruction
    /// that rounds too.
    rounded: HashMap<usize, (Val, Rounding)>,
}

/// How a GPU rounds a float to an integer, as PTX names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

impl<'c> Builder<'c> {
    /// Builds at the end of `entry`, the entry block of a function without a terminator.
    pub(super) fn new(
        context: &'c Context,
        entry: MlirBlock,
        machine: Machine,
        capability: u32,
    ) -> Builder<'c> {
        let flags = |text| Attribute::parse(context, text).expect("a fast-math attribute");
        Builder {
            context,
            location: Location::unknown(context),
            block: entry,
            entry,
            constants: HashMap::new(),
            contract: flags("#llvm.fastmath<contract>"),
            reassociate: flags("#llvm.fastmath<contract, reassoc>"),
            strict: flags("#llvm.fastmath<none>"),
            machine,
            capability,
            accumulating: false,
            words: HashMap::new(),
            rounded: HashMap::new(),
        }
    }

    fn mlir_type(&self, ty: Ty) -> Type<'c> {
        let int = |bits| IntegerType::new(self.context, bits).into();
        let elem: Type<'c> = match ty.elem {
            Elem::I1 => int(1),
            Elem::I8 => int(8),
            Elem::I16 => int(16),
            Elem::I32 => int(32),
            Elem::I64 => int(64),
            Elem::F16 => Type::float16(self.context),
            Elem::BF16 => Type::bfloat16(self.context),
            Elem::F32 => Type::float32(self.context),
            Elem::F64 => Type::float64(self.context),
            Elem::Ptr(Space::Generic) => melior::dialect::llvm::r#type::pointer(self.context, 0),
            Elem::Ptr(Space::Global) => melior::dialect::llvm::r#type::pointer(self.context, 1),
            Elem::Ptr(Space::Shared) => melior::dialect::llvm::r#type::pointer(self.context, 3),
            Elem::Ptr(Space::Cluster) => melior::dialect::llvm::r#type::pointer(self.context, 7),
        };
        if ty.is_vector() { Type::vector(&[u64::from(ty.lanes)], elem) } else { elem }
    }

    fn name(&self, name: &str) -> Identifier<'c> {
        Identifier::new(self.context, name)
    }

    fn i64_attribute(&self, value: i64) -> Attribute<'c> {
        IntegerAttribute::new(IntegerType::new(self.context, 64).into(), value).into()
    }

    fn unit(&self) -> Attribute<'c> {
        Attribute::unit(self.context)
    }

    /// Appends an operation of any dialect: the primitive under every other method.
    fn append(
        &mut self,
        name: &str,
        operands: &[Val],
        results: &[Type<'c>],
        attributes: &[(Identifier<'c>, Attribute<'c>)],
        regions: Vec<Region<'c>>,
    ) -> Vec<MlirValue> {
        // SAFETY: a `Val` is only made from results and arguments of blocks of this builder's own module.
        let operands: Vec<Value> = operands.iter().map(|v| unsafe { Value::from_raw(v.raw) }).collect();
        let operation = OperationBuilder::new(name, self.location)
            .add_operands(&operands)
            .add_results(results)
            .add_attributes(attributes)
            .add_regions_vec(regions)
            .build()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let values = operation.results().map(|result| result.to_raw()).collect();
        // SAFETY: the block belongs to the module under construction and takes ownership of the operation.
        unsafe { mlirBlockAppendOwnedOperation(self.block, operation.into_raw()) };
        values
    }

    fn one(
        &mut self,
        name: &str,
        operands: &[Val],
        ty: Ty,
        attributes: &[(Identifier<'c>, Attribute<'c>)],
    ) -> Val {
        let result = self.mlir_type(ty);
        let raw = self.append(name, operands, &[result], attributes, vec![])[0];
        Val { raw, ty }
    }

    /// A single-result operation without attributes, such as an intrinsic of the `llvm` dialect.
    pub fn op(&mut self, name: &str, operands: &[Val], ty: Ty) -> Val {
        self.one(name, operands, ty, &[])
    }

    /// An operation without results or attributes, such as a barrier.
    pub fn effect(&mut self, name: &str, operands: &[Val]) {
        self.append(name, operands, &[], &[], vec![]);
    }

    /// A single-result operation whose attributes are given as MLIR text.
    pub fn op_with(&mut self, name: &str, operands: &[Val], ty: Ty, attributes: &[(&str, &str)]) -> Val {
        let attributes = self.parse_attributes(attributes);
        self.one(name, operands, ty, &attributes)
    }

    /// An operation without results whose attributes are given as MLIR text.
    pub fn effect_with(&mut self, name: &str, operands: &[Val], attributes: &[(&str, &str)]) {
        let attributes = self.parse_attributes(attributes);
        self.append(name, operands, &[], &attributes, vec![]);
    }

    fn parse_attributes(&self, attributes: &[(&str, &str)]) -> Vec<(Identifier<'c>, Attribute<'c>)> {
        let parse = |text| Attribute::parse(self.context, text).unwrap_or_else(|| panic!("attribute {text}"));
        attributes.iter().map(|(name, text)| (self.name(name), parse(text))).collect()
    }

    // ---- constants

    /// An integer constant, splat when `ty` is a vector; the low bits of `value` count.
    pub fn int(&mut self, ty: Ty, value: i64) -> Val {
        debug_assert!(!ty.elem.is_float(), "an integer constant of type {ty}");
        let bits = ty.elem.bits();
        let masked = if bits == 64 { value as u64 } else { value as u64 & ((1u64 << bits) - 1) };
        if let Some(&known) = self.constants.get(&(ty, masked)) {
            return known;
        }
        let elem = self.mlir_type(Ty::scalar(ty.elem));
        let shift = 64 - bits;
        let signed = if ty.elem == Elem::I1 { masked as i64 } else { ((masked << shift) as i64) >> shift };
        let attribute: Attribute<'c> = if ty.elem == Elem::I1 {
            BoolAttribute::new(self.context, masked != 0).into()
        } else {
            IntegerAttribute::new(elem, signed).into()
        };
        self.constant(ty, masked, attribute)
    }

    pub fn zero(&mut self, ty: Ty) -> Val {
        if ty.elem.is_float() { self.float(ty, 0.0) } else { self.int(ty, 0) }
    }

    /// A float constant, rounded to the element and splat when `ty` is a vector.
    pub fn float(&mut self, ty: Ty, value: f64) -> Val {
        debug_assert!(ty.elem.is_float(), "a float constant of type {ty}");
        if let Some(&known) = self.constants.get(&(ty, value.to_bits())) {
            return known;
        }
        let elem = self.mlir_type(Ty::scalar(ty.elem));
        let rounded = match ty.elem {
            Elem::F16 => tile_ir::support::dtype::to_f16(value).to_f64(),
            Elem::BF16 => tile_ir::support::dtype::to_bf16(value).to_f64(),
            Elem::F32 => f64::from(value as f32),
            _ => value,
        };
        let attribute = FloatAttribute::new(self.context, elem, rounded).into();
        self.constant(ty, value.to_bits(), attribute)
    }

    /// Places a constant at the top of the function, where it dominates every use.
    fn constant(&mut self, ty: Ty, key: u64, elem: Attribute<'c>) -> Val {
        let mlir = self.mlir_type(ty);
        let attribute = if ty.is_vector() {
            DenseElementsAttribute::new(mlir, &[elem]).expect("a splat").into()
        } else {
            elem
        };
        let val = self.constant_op(ty, attribute);
        self.constants.insert((ty, key), val);
        val
    }

    fn constant_op(&mut self, ty: Ty, attribute: Attribute<'c>) -> Val {
        let mlir = self.mlir_type(ty);
        let operation = OperationBuilder::new("llvm.mlir.constant", self.location)
            .add_results(&[mlir])
            .add_attributes(&[(self.name("value"), attribute)])
            .build()
            .expect("llvm.mlir.constant");
        let raw = operation.result(0).expect("one result").to_raw();
        // SAFETY: the entry block belongs to the module under construction and takes ownership of the operation.
        unsafe { mlirBlockInsertOwnedOperation(self.entry, 0, operation.into_raw()) };
        Val { raw, ty }
    }

    /// A value whose bits do not matter.
    pub fn poison(&mut self, ty: Ty) -> Val {
        self.op("llvm.mlir.poison", &[], ty)
    }

    // ---- floats

    fn float_op(&mut self, name: &str, operands: &[Val]) -> Val {
        let flags = if self.accumulating { self.reassociate } else { self.contract };
        let attributes = [(self.name("fastmathFlags"), flags)];
        self.one(name, operands, operands[0].ty, &attributes)
    }

    /// Float arithmetic that must not be contracted: the error terms of a compensated sum, say.
    fn strict_op(&mut self, name: &str, operands: &[Val]) -> Val {
        let attributes = [(self.name("fastmathFlags"), self.strict)];
        self.one(name, operands, operands[0].ty, &attributes)
    }

    pub fn fadd(&mut self, a: Val, b: Val) -> Val {
        self.float_op("llvm.fadd", &[a, b])
    }

    pub fn fsub(&mut self, a: Val, b: Val) -> Val {
        self.float_op("llvm.fsub", &[a, b])
    }

    pub fn fmul(&mut self, a: Val, b: Val) -> Val {
        self.float_op("llvm.fmul", &[a, b])
    }

    /// The IEEE quotient.
    pub fn fdiv(&mut self, a: Val, b: Val) -> Val {
        self.strict_op("llvm.fdiv", &[a, b])
    }

    pub fn fadd_strict(&mut self, a: Val, b: Val) -> Val {
        self.strict_op("llvm.fadd", &[a, b])
    }

    pub fn fsub_strict(&mut self, a: Val, b: Val) -> Val {
        self.strict_op("llvm.fsub", &[a, b])
    }

    pub fn fmul_strict(&mut self, a: Val, b: Val) -> Val {
        self.strict_op("llvm.fmul", &[a, b])
    }

    pub fn fneg(&mut self, a: Val) -> Val {
        self.strict_op("llvm.fneg", &[a])
    }

    pub fn fabs(&mut self, a: Val) -> Val {
        self.op("llvm.intr.fabs", &[a], a.ty)
    }

    /// `a * b + c`, with one rounding where there is an instruction for it; [`super::rounding::fma`] is exact elsewhere.
    pub fn fma(&mut self, a: Val, b: Val, c: Val) -> Val {
        if self.machine == Machine::Host(Vectors::Baseline) {
            let product = self.fmul(a, b);
            return self.fadd(product, c);
        }
        self.op("llvm.intr.fma", &[a, b, c], a.ty)
    }

    /// The correctly rounded square root.
    pub fn sqrt(&mut self, a: Val) -> Val {
        self.op("llvm.intr.sqrt", &[a], a.ty)
    }

    pub fn fcmp(&mut self, predicate: FloatPredicate, a: Val, b: Val) -> Val {
        let attributes = [(self.name("predicate"), self.i64_attribute(predicate as i64))];
        self.one("llvm.fcmp", &[a, b], a.ty.with(Elem::I1), &attributes)
    }

    // ---- integers

    pub fn add(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.add", &[a, b], a.ty)
    }

    /// A sum that is known not to leave the signed range.
    pub fn add_nsw(&mut self, a: Val, b: Val) -> Val {
        self.op_with("llvm.add", &[a, b], a.ty, &[("overflowFlags", "#llvm.overflow<nsw>")])
    }

    pub fn sub(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.sub", &[a, b], a.ty)
    }

    pub fn sub_nsw(&mut self, a: Val, b: Val) -> Val {
        self.op_with("llvm.sub", &[a, b], a.ty, &[("overflowFlags", "#llvm.overflow<nsw>")])
    }

    pub fn mul(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.mul", &[a, b], a.ty)
    }

    /// A product that is known not to leave the signed range.
    pub fn mul_nsw(&mut self, a: Val, b: Val) -> Val {
        self.op_with("llvm.mul", &[a, b], a.ty, &[("overflowFlags", "#llvm.overflow<nsw>")])
    }

    pub fn sdiv(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.sdiv", &[a, b], a.ty)
    }

    pub fn udiv(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.udiv", &[a, b], a.ty)
    }

    pub fn srem(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.srem", &[a, b], a.ty)
    }

    pub fn urem(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.urem", &[a, b], a.ty)
    }

    pub fn and(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.and", &[a, b], a.ty)
    }

    pub fn or(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.or", &[a, b], a.ty)
    }

    pub fn xor(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.xor", &[a, b], a.ty)
    }

    pub fn not(&mut self, a: Val) -> Val {
        let ones = self.int(a.ty, -1);
        self.xor(a, ones)
    }

    pub fn shl(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.shl", &[a, b], a.ty)
    }

    pub fn lshr(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.lshr", &[a, b], a.ty)
    }

    pub fn ashr(&mut self, a: Val, b: Val) -> Val {
        self.op("llvm.ashr", &[a, b], a.ty)
    }

    pub fn icmp(&mut self, predicate: IntPredicate, a: Val, b: Val) -> Val {
        let attributes = [(self.name("predicate"), self.i64_attribute(predicate as i64))];
        self.one("llvm.icmp", &[a, b], a.ty.with(Elem::I1), &attributes)
    }

    /// `condition ? a : b`, lane by lane.
    pub fn select(&mut self, condition: Val, a: Val, b: Val) -> Val {
        let condition = if a.ty.is_vector() && !condition.ty.is_vector() {
            self.splat(condition, a.ty.lanes)
        } else {
            condition
        };
        self.op("llvm.select", &[condition, a, b], a.ty)
    }

    /// Records that `result` is `a` rounded.
    pub(super) fn record_rounding(&mut self, result: Val, a: Val, rounding: Rounding) {
        if self.machine == Machine::Nvptx {
            self.rounded.insert(result.id(), (a, rounding));
        }
    }

    /// The float that was rounded to this integer; itself, to be truncated, when it was not rounded.
    pub(super) fn before_rounding(&self, a: Val) -> (Val, Rounding) {
        self.rounded.get(&a.id()).copied().unwrap_or((a, Rounding::Zero))
    }

    // ---- conversions between machine types; what a cast of the language means is `mlir::cast`

    pub fn convert(&mut self, name: &str, a: Val, elem: Elem) -> Val {
        if a.ty.elem == elem { a } else { self.op(name, &[a], a.ty.with(elem)) }
    }

    pub fn bitcast(&mut self, a: Val, ty: Ty) -> Val {
        if a.ty == ty { a } else { self.op("llvm.bitcast", &[a], ty) }
    }

    pub fn zext(&mut self, a: Val, elem: Elem) -> Val {
        self.convert("llvm.zext", a, elem)
    }

    pub fn sext(&mut self, a: Val, elem: Elem) -> Val {
        self.convert("llvm.sext", a, elem)
    }

    pub fn trunc(&mut self, a: Val, elem: Elem) -> Val {
        self.convert("llvm.trunc", a, elem)
    }

    // ---- vectors

    /// The scalar `a` in every lane.
    pub fn splat(&mut self, a: Val, lanes: u16) -> Val {
        debug_assert!(!a.ty.is_vector());
        let ty = Ty::vector(a.ty.elem, lanes);
        let undefined = self.poison(ty);
        let first = self.insert(undefined, a, 0);
        self.shuffle(first, first, &vec![0; usize::from(lanes)])
    }

    pub fn insert(&mut self, vector: Val, element: Val, lane: u16) -> Val {
        let lane = self.int(Ty::I32, i64::from(lane));
        self.op("llvm.insertelement", &[vector, element, lane], vector.ty)
    }

    pub fn extract(&mut self, vector: Val, lane: u16) -> Val {
        let lane = self.int(Ty::I32, i64::from(lane));
        self.op("llvm.extractelement", &[vector, lane], Ty::scalar(vector.ty.elem))
    }

    /// Lanes of `a` followed by those of `b`, picked by index.
    pub fn shuffle(&mut self, a: Val, b: Val, lanes: &[i32]) -> Val {
        let attributes = [(self.name("mask"), DenseI32ArrayAttribute::new(self.context, lanes).into())];
        self.one("llvm.shufflevector", &[a, b], Ty::vector(a.ty.elem, lanes.len() as u16), &attributes)
    }

    /// The integers `0, 1, ..` as lanes.
    pub fn iota(&mut self, ty: Ty) -> Val {
        let (mlir, elem) = (self.mlir_type(ty), self.mlir_type(Ty::scalar(ty.elem)));
        let elements: Vec<Attribute<'c>> =
            (0..ty.lanes).map(|lane| IntegerAttribute::new(elem, i64::from(lane)).into()).collect();
        let attribute = DenseElementsAttribute::new(mlir, &elements).expect("one integer for each lane");
        self.constant_op(ty, attribute.into())
    }

    /// A lane of a vector by a dynamic index.
    pub fn extract_at(&mut self, vector: Val, lane: Val) -> Val {
        self.op("llvm.extractelement", &[vector, lane], Ty::scalar(vector.ty.elem))
    }

    pub fn insert_at(&mut self, vector: Val, element: Val, lane: Val) -> Val {
        self.op("llvm.insertelement", &[vector, element, lane], vector.ty)
    }

    /// A vector of the given scalars.
    pub fn pack(&mut self, elements: &[Val]) -> Val {
        let mut vector = self.poison(Ty::vector(elements[0].ty.elem, elements.len() as u16));
        for (lane, &element) in elements.iter().enumerate() {
            vector = self.insert(vector, element, lane as u16);
        }
        vector
    }

    /// The scalars of a vector, or the scalar itself.
    pub fn unpack(&mut self, a: Val) -> Vec<Val> {
        if !a.ty.is_vector() {
            return vec![a];
        }
        (0..a.ty.lanes).map(|lane| self.extract(a, lane)).collect()
    }

    // ---- memory

    /// `base` moved by `index` elements of `bytes` bytes.
    pub fn offset(&mut self, base: Val, index: Val, bytes: u32) -> Val {
        let elem = match bytes {
            1 => Elem::I8,
            2 => Elem::I16,
            4 => Elem::I32,
            _ => Elem::I64,
        };
        debug_assert_eq!(elem.bits(), bytes * 8);
        self.gep(base, &[index], i32::MIN, elem)
    }

    /// `base` moved by a constant number of bytes.
    pub fn offset_bytes(&mut self, base: Val, bytes: i32) -> Val {
        if bytes == 0 { base } else { self.gep(base, &[], bytes, Elem::I8) }
    }

    fn gep(&mut self, base: Val, dynamic: &[Val], constant: i32, elem: Elem) -> Val {
        let elem = self.mlir_type(Ty::scalar(elem));
        let attributes = [
            (self.name("rawConstantIndices"), DenseI32ArrayAttribute::new(self.context, &[constant]).into()),
            (self.name("elem_type"), TypeAttribute::new(elem).into()),
        ];
        let operands: Vec<Val> = std::iter::once(base).chain(dynamic.iter().copied()).collect();
        self.one("llvm.getelementptr", &operands, base.ty, &attributes)
    }

    pub fn load(&mut self, pointer: Val, ty: Ty, access: AccessFlags) -> Val {
        let mut attributes = vec![(self.name("alignment"), self.i64_attribute(i64::from(access.align)))];
        if access.invariant {
            attributes.push((self.name("invariant"), self.unit()));
        }
        self.one("llvm.load", &[pointer], ty, &attributes)
    }

    pub fn store(&mut self, value: Val, pointer: Val, access: AccessFlags) {
        let attributes = [(self.name("alignment"), self.i64_attribute(i64::from(access.align)))];
        self.append("llvm.store", &[value, pointer], &[], &attributes, vec![]);
    }

    /// The address of a global of this module.
    pub fn address_of(&mut self, symbol: &str, space: Space) -> Val {
        let symbol = Attribute::parse(self.context, &format!("@{symbol}")).expect("a symbol");
        let attributes = [(self.name("global_name"), symbol)];
        self.one("llvm.mlir.addressof", &[], Ty::scalar(Elem::Ptr(space)), &attributes)
    }

    // ---- calls

    /// Calls an LLVM intrinsic by name; an overloaded one takes its types from the operands and result.
    pub fn intrinsic(&mut self, name: &str, operands: &[Val], result: Option<Ty>) -> Option<Val> {
        let count = operands.len() as i32;
        let attributes = [
            (self.name("intrin"), StringAttribute::new(self.context, name).into()),
            (self.name("op_bundle_sizes"), DenseI32ArrayAttribute::new(self.context, &[]).into()),
            (self.name("operandSegmentSizes"), DenseI32ArrayAttribute::new(self.context, &[count, 0]).into()),
        ];
        let types: Vec<Type> = result.iter().map(|ty| self.mlir_type(*ty)).collect();
        let raw = self.append("llvm.call_intrinsic", operands, &types, &attributes, vec![]);
        result.map(|ty| Val { raw: raw[0], ty })
    }

    /// Calls a function of this module that returns nothing.
    pub fn call_function(&mut self, name: &str, operands: &[Val]) {
        let callee = Attribute::parse(self.context, &format!("@{name}")).expect("a symbol");
        let mut attributes = self.call_attributes(operands.len());
        attributes.push((self.name("callee"), callee));
        self.append("llvm.call", operands, &[], &attributes, vec![]);
    }

    /// An intrinsic with a result.
    pub fn call(&mut self, name: &str, operands: &[Val], ty: Ty) -> Val {
        self.intrinsic(name, operands, Some(ty)).expect("a result was asked for")
    }

    /// One PTX statement. `$0..` are the results, then the operands; constraints follow LLVM's inline assembly.
    pub fn asm(
        &mut self,
        text: &str,
        constraints: &str,
        operands: &[Val],
        results: &[Ty],
        kind: Asm,
    ) -> Vec<Val> {
        let mut attributes = vec![
            (self.name("asm_string"), StringAttribute::new(self.context, text).into()),
            (self.name("constraints"), StringAttribute::new(self.context, constraints).into()),
            (self.name("asm_dialect"), self.i64_attribute(0)),
        ];
        if kind == Asm::Effects {
            attributes.push((self.name("has_side_effects"), self.unit()));
        }
        let types: Vec<Type> = results.iter().map(|ty| self.mlir_type(*ty)).collect();
        match types.as_slice() {
            [] => {
                self.append("llvm.inline_asm", operands, &[], &attributes, vec![]);
                vec![]
            }
            [ty] => {
                let raw = self.append("llvm.inline_asm", operands, &[*ty], &attributes, vec![])[0];
                vec![Val { raw, ty: results[0] }]
            }
            _ => {
                let aggregate = melior::dialect::llvm::r#type::r#struct(self.context, &types, false);
                let raw = self.append("llvm.inline_asm", operands, &[aggregate], &attributes, vec![])[0];
                self.fields(raw, results)
            }
        }
    }

    /// The fields of a struct-typed operation: for `nvvm` operations with several results.
    fn fields(&mut self, raw: MlirValue, results: &[Ty]) -> Vec<Val> {
        let aggregate = Val { raw, ty: Ty::I1 };
        (0..results.len())
            .map(|i| {
                let position = DenseI64ArrayAttribute::new(self.context, &[i as i64]).into();
                self.one("llvm.extractvalue", &[aggregate], results[i], &[(self.name("position"), position)])
            })
            .collect()
    }

    // ---- control

    fn region(
        &mut self,
        params: &[Ty],
        body: impl FnOnce(&mut Self, &[Val]) -> Vec<Val>,
        end: &str,
    ) -> Region<'c> {
        let types: Vec<_> = params.iter().map(|ty| (self.mlir_type(*ty), self.location)).collect();
        let block = Block::new(&types);
        let region = Region::new();
        let block = region.append_block(block);
        let arguments: Vec<Val> = params
            .iter()
            .enumerate()
            .map(|(i, &ty)| Val { raw: block.argument(i).expect("a block argument").to_raw(), ty })
            .collect();
        let outer = std::mem::replace(&mut self.block, block.to_raw());
        let yields = body(self, &arguments);
        self.append(end, &yields, &[], &[], vec![]);
        self.block = outer;
        region
    }

    fn structured(
        &mut self,
        name: &str,
        operands: &[Val],
        results: &[Ty],
        regions: Vec<Region<'c>>,
    ) -> Vec<Val> {
        let types: Vec<Type> = results.iter().map(|ty| self.mlir_type(*ty)).collect();
        let raw = self.append(name, operands, &types, &[], regions);
        raw.into_iter().zip(results).map(|(raw, &ty)| Val { raw, ty }).collect()
    }

    /// `if condition { yes } else { no }`, each yielding values of the types `results`.
    pub fn if_else(
        &mut self,
        condition: Val,
        results: &[Ty],
        yes: impl FnOnce(&mut Self) -> Vec<Val>,
        no: impl FnOnce(&mut Self) -> Vec<Val>,
    ) -> Vec<Val> {
        let yes = self.region(&[], |b, _| yes(b), "scf.yield");
        let no = self.region(&[], |b, _| no(b), "scf.yield");
        self.structured("scf.if", &[condition], results, vec![yes, no])
    }

    /// [`Builder::if_else`] with one closure for both arms, for a caller whose state both change.
    pub fn branch(
        &mut self,
        condition: Val,
        results: &[Ty],
        mut arm: impl FnMut(&mut Self, BranchArm) -> Vec<Val>,
    ) -> Vec<Val> {
        let yes = self.region(&[], |b, _| arm(b, BranchArm::Then), "scf.yield");
        let no = self.region(&[], |b, _| arm(b, BranchArm::Else), "scf.yield");
        self.structured("scf.if", &[condition], results, vec![yes, no])
    }

    pub fn if_then(&mut self, condition: Val, yes: impl FnOnce(&mut Self)) {
        let yes = self.region(
            &[],
            |b, _| {
                yes(b);
                vec![]
            },
            "scf.yield",
        );
        self.structured("scf.if", &[condition], &[], vec![yes, Region::new()]);
    }

    /// Both conditions; an absent one is true.
    pub fn both(&mut self, one: Option<Val>, other: Option<Val>) -> Option<Val> {
        match (one, other) {
            (Some(one), Some(other)) => Some(self.and(one, other)),
            (one, other) => one.or(other),
        }
    }

    /// Runs `body` where the condition holds; without one, always.
    pub fn guarded(&mut self, condition: Option<Val>, body: impl FnOnce(&mut Self)) {
        match condition {
            Some(condition) => self.if_then(condition, body),
            None => body(self),
        }
    }

    /// `for i in (low..high).step_by(step)` over signed integers, carrying `inits`.
    pub fn for_range(
        &mut self,
        bounds: [Val; 3],
        inits: &[Val],
        body: impl FnOnce(&mut Self, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let types: Vec<Ty> = inits.iter().map(|v| v.ty).collect();
        let params: Vec<Ty> = std::iter::once(bounds[0].ty).chain(types.iter().copied()).collect();
        let region = self.region(&params, |b, args| body(b, args[0], &args[1..]), "scf.yield");
        let operands: Vec<Val> = bounds.iter().chain(inits).copied().collect();
        self.structured("scf.for", &operands, &types, vec![region])
    }

    /// A loop over the lanes of a vector, for what has no vector form.
    pub fn for_lanes(
        &mut self,
        lanes: u16,
        inits: &[Val],
        body: impl FnOnce(&mut Self, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let bounds = [0, i64::from(lanes), 1].map(|bound| self.int(Ty::I32, bound));
        self.for_range(bounds, inits, body)
    }

    /// `while`: the test takes the carried values and gives the condition, the body takes them and gives the next ones.
    pub fn while_loop(
        &mut self,
        inits: &[Val],
        mut part: impl FnMut(&mut Self, LoopPart, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let types: Vec<Ty> = inits.iter().map(|v| v.ty).collect();
        let test = |b: &mut Self, args: &[Val]| {
            part(b, LoopPart::Test, args).into_iter().chain(args.iter().copied()).collect()
        };
        let before = self.region(&types, test, "scf.condition");
        let after = self.region(&types, |b, args| part(b, LoopPart::Body, args), "scf.yield");
        self.structured("scf.while", inits, &types, vec![before, after])
    }

    /// Ends the function.
    pub(super) fn finish(&mut self) {
        self.append("llvm.return", &[], &[], &[], vec![]);
    }

    /// The arguments of the function's entry block, typed by the caller.
    pub(super) fn arguments(&self, types: &[Ty]) -> Vec<Val> {
        // SAFETY: the entry block outlives the builder; its argument count was checked when it was parsed.
        let block = unsafe { melior::ir::BlockRef::from_raw(self.entry) };
        types
            .iter()
            .enumerate()
            .map(|(i, &ty)| Val { raw: block.argument(i).expect("a function argument").to_raw(), ty })
            .collect()
    }
}
