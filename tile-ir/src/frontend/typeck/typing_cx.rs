//! The checker as the typing rules of operations see it.

use super::{Call, Check, ErrorLoc, Operand, Pointer};
use crate::frontend::syntax::GenericArg;
use crate::ir::{Block, Func, Op, ParamId, Shape, Type, Value};
use crate::ops::typing::{OneResult, TypingCx};
use crate::ops::{ConstantValue, Intrinsic, Kind, Site};
use crate::support::diagnostic::Loc;
use crate::support::dtype::{Class, DType};

/// The checker during the rule of one call, whose type arguments the rule asks for but does not see.
struct CallCx<'c, 'a> {
    check: &'c mut Check<'a>,
    generics: &'c [GenericArg],
}

impl Check<'_> {
    /// Applies the rule of a function or method of the language to a call of it.
    pub(super) fn apply(&mut self, function: &Intrinsic, call: &Call, generics: &[GenericArg]) -> Operand {
        (function.check)(&mut CallCx { check: self, generics }, call)
    }
}

impl TypingCx for CallCx<'_, '_> {
    fn func(&self) -> &Func {
        self.check.func()
    }

    fn is_unchecked(&self) -> bool {
        self.check.is_unchecked()
    }

    fn state_multiple(&mut self, scalar: Value, by: u32) {
        if self.check.builder.is_from_memory(scalar) {
            self.check.builder.func.state_multiple(by);
        }
    }

    fn describe(&self, operand: &Operand) -> String {
        self.check.describe(operand)
    }

    fn written_elem(&self, param: ParamId) -> String {
        self.check.written_elem(param)
    }

    fn report(&mut self, loc: Loc, message: String, help: Option<String>) {
        match help {
            Some(help) => self.check.error_help(loc, message, help),
            None => self.check.error(loc, message),
        };
    }

    fn print(&mut self, operand: &Operand) {
        self.check.print(operand);
    }

    // ---- building

    fn build(&mut self, kind: Kind, types: Vec<Type>, loc: Loc) -> Vec<Value> {
        self.check.push(kind, types, loc)
    }

    fn operation_of(&mut self, operand: &Operand) -> Option<&mut Op> {
        self.check.operation_of(operand)
    }

    fn extend_operation(&mut self, operand: &Operand, loc: Loc) {
        self.check.extend_operation(operand, loc);
    }

    fn site(&mut self, site: Site) -> u32 {
        self.check.site(site)
    }

    fn begin_block(&mut self, args: Vec<Type>) -> Vec<Value> {
        self.check.begin_block(args)
    }

    fn end_block(&mut self, yields: Vec<Value>) -> Block {
        self.check.end_block(yields)
    }

    fn zero(&mut self, dtype: DType, loc: Loc) -> Value {
        self.check.zero(dtype, loc)
    }

    fn row(&mut self, name: &str, args: &[Value], loc: Loc) -> Value {
        self.check.row(name, args, loc)
    }

    fn filled(&mut self, value: ConstantValue, ty: &Type, loc: Loc) -> Value {
        self.check.filled(value, ty, loc)
    }

    fn splat(&mut self, value: Value, shape: &Shape, loc: Loc) -> Value {
        self.check.splat(value, shape, loc)
    }

    fn broadcast(&mut self, value: Value, shape: &Shape, loc: Loc) -> Value {
        self.check.broadcast(value, shape, loc)
    }

    fn convert(&mut self, value: Value, dtype: DType, loc: Loc) -> Value {
        self.check.convert(value, dtype, loc)
    }

    // ---- values

    fn value(&mut self, operand: &Operand) -> Option<Value> {
        self.check.value(operand)
    }

    fn tile(&mut self, operand: &Operand, what: &str) -> Option<Value> {
        self.check.tile(operand, what)
    }

    fn value_as(&mut self, operand: &Operand, dtype: DType, what: &str) -> Option<Value> {
        self.check.value_as(operand, dtype, what)
    }

    fn value_for(&mut self, param: ParamId, operand: &Operand, what: &str) -> Option<Value> {
        self.check.value_for(param, operand, what)
    }

    fn common_type(&mut self, what: &str, error_loc: ErrorLoc, operands: &[&Operand]) -> Option<DType> {
        self.check.common_type(what, error_loc, operands)
    }

    fn common_shape(&mut self, what: &str, loc: Loc, values: &mut [Value]) -> Option<Shape> {
        self.check.common_shape(what, loc, values)
    }

    fn cast(&mut self, operand: &Operand, dtype: DType, loc: Loc) -> Operand {
        self.check.cast(operand, dtype, loc)
    }

    fn takes(&mut self, call: &Call, ty: &Type, class: Class) -> bool {
        self.check.takes(call, ty, class)
    }

    // ---- constants

    fn constant(&mut self, operand: &Operand, what: &str) -> Option<i128> {
        self.check.constant(operand, what)
    }

    fn flag(&mut self, operand: &Operand, what: &str) -> Option<bool> {
        self.check.flag(operand, what)
    }

    fn constants(&mut self, operand: &Operand, what: &str) -> Option<Vec<i128>> {
        self.check.constants(operand, what)
    }

    fn shape(&mut self, operand: &Operand) -> Option<Shape> {
        self.check.shape(operand)
    }

    fn legal(&mut self, shape: Shape, loc: Loc) -> Option<Shape> {
        self.check.legal(shape, loc)
    }

    fn legal_shape(&mut self, extents: &[i128], loc: Loc) -> Option<Shape> {
        self.check.legal_shape(extents, loc)
    }

    fn axis(&mut self, operand: &Operand, rank: usize) -> Option<usize> {
        self.check.axis(operand, rank)
    }

    fn axis_or_only(&mut self, call: &Call, operand: Option<&Operand>, rank: usize) -> Option<usize> {
        self.check.axis_or_only(call, operand, rank)
    }

    // ---- between `::<` and `>`

    fn generic_type(&mut self) -> Option<DType> {
        self.check.generic_type(self.generics)
    }

    fn generic_types(&mut self) -> Option<Vec<DType>> {
        self.check.generic_types(self.generics)
    }

    fn extents(&mut self, call: &Call) -> Option<Shape> {
        self.check.extents(call, self.generics)
    }

    // ---- memory

    fn pointer(&mut self, operand: &Operand, what: &str) -> Option<Pointer> {
        self.check.pointer(operand, what)
    }

    fn offset(&mut self, by: &Operand, literal_type: DType) -> Option<Value> {
        self.check.offset(by, literal_type)
    }

    // ---- functions

    fn combine_region(&mut self, operand: &Operand, types: &[Type]) -> Option<Block> {
        self.check.combine_region(operand, types)
    }

    fn elementwise_region(&mut self, operand: &Operand, types: &[Type], result: OneResult) -> Option<Block> {
        self.check.elementwise_region(operand, types, result)
    }

    fn library_function(&mut self, name: &str, loc: Loc) -> Operand {
        self.check.library_function(name, loc)
    }

    fn call_library(&mut self, name: &str, call: &Call) -> Operand {
        self.check.call_library(name, call)
    }
}
