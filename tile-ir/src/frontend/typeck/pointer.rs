//! Addresses: a slice, and offsets into it.

use super::option::OPTION_HELP;
use super::{Call, Check, Item, Operand, Pointer};
use crate::frontend::syntax::BinaryOp;
use crate::ir::{ParamId, Shape, Value};
use crate::ops::scalar::{self, Scalar};
use crate::ops::{Cast, Intrinsic};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

impl Check<'_> {
    /// The result if an operand is a slice or pointer.
    pub(super) fn pointer_arithmetic(
        &mut self,
        op: BinaryOp,
        op_loc: Loc,
        lhs: &Operand,
        rhs: &Operand,
    ) -> Option<Operand> {
        let address = |operand: &Operand| matches!(operand.item, Item::Slice(_) | Item::Pointer(_));
        let (pointer, by) = match (address(lhs), address(rhs)) {
            (false, false) => return None,
            (true, false) => (lhs, rhs),
            (false, true) if op == BinaryOp::Add => (rhs, lhs),
            _ => {
                let text = format!("`{}` does not take a slice on its right", op.symbol());
                return Some(self.error_help(
                    op_loc,
                    text,
                    "read memory first: `tl::load(slice + offsets, mask)`",
                ));
            }
        };
        if !matches!(op, BinaryOp::Add | BinaryOp::Sub) {
            let text = format!("`{}` does not take a slice", op.symbol());
            return Some(self.error_help(
                op_loc,
                text,
                "read memory first: `tl::load(slice + offsets, mask)`",
            ));
        }
        if let (Item::Slice(param), BinaryOp::Add) = (&pointer.item, op) {
            return Some(self.point_into(*param, by));
        }
        let base: Pointer = self.pointer(pointer, "pointer arithmetic")?;
        Some(self.move_pointer(base, by, op == BinaryOp::Sub, op_loc))
    }

    /// The operand as addresses.
    pub fn pointer(&mut self, operand: &Operand, what: &str) -> Option<Pointer> {
        match &operand.item {
            Item::Pointer(pointer) => Some(pointer.clone()),
            Item::Slice(param) => {
                let offset = self.zero(DType::I32, operand.loc);
                Some(Pointer { param: *param, offset, shape: Shape::scalar(), is_exact: false })
            }
            Item::Failed => None,
            Item::View(view) => {
                let help = match (what, self.func().slice(view.memory).1) {
                    ("`tl::store`", true) => self.view_store_help(view, "store"),
                    ("`tl::atomic_add`", true) => self.view_store_help(view, "atomic_add"),
                    _ => self.view_help(view),
                };
                self.error_help(operand.loc, format!("{what} takes a pointer, found a view"), help);
                None
            }
            Item::Optional { .. } => {
                self.error_help(operand.loc, format!("{what} takes a pointer, found an option"), OPTION_HELP);
                None
            }
            other => {
                let text = format!("{what} takes a pointer, found {}", self.describe_item(other));
                let is_address = matches!(other, Item::Value(value) if matches!(self.ty(*value).dtype, DType::I64 | DType::U64));
                let help = match is_address {
                    true => {
                        "an address from memory is no pointer: pass one slice and offsets into it, `x + offsets`"
                    }
                    false => "a slice parameter plus offsets makes one: `x + offsets`",
                };
                self.error_help(operand.loc, text, help);
                None
            }
        }
    }

    /// Whether a call gives offsets as an argument of their own, behind a slice or scalar pointer, which is reported.
    pub(super) fn report_separate_offset(&mut self, function: &Intrinsic, call: &Call) -> bool {
        let [first, offset, ..] = &call.args[..] else { return false };
        let to_one = match &first.item {
            Item::Slice(_) => true,
            Item::Pointer(pointer) => pointer.shape.rank() == 0,
            _ => false,
        };
        let mask = function.params.iter().position(|param| param.name == "mask");
        let Some(mask) = mask.filter(|_| to_one && function.params[0].name == "pointer") else {
            return false;
        };
        let is_number = |operand: &Operand, wanted: fn(DType) -> bool| match &operand.item {
            Item::Value(value) => wanted(self.ty(*value).dtype),
            Item::Literal(literal) => wanted(literal.default_type()),
            _ => false,
        };
        let surplus = call.args.len() > function.params.len();
        let is_mask = |operand: &Operand| !is_number(operand, |dtype| dtype != DType::Bool);
        let shifted = surplus || call.args.get(mask).is_some_and(|operand| !is_mask(operand));
        if !shifted || !is_number(offset, DType::is_integer) {
            return false;
        }
        let slice = first.loc.word().unwrap_or_else(|| "x".into());
        let by = offset.loc.word().unwrap_or_else(|| "offsets".into());
        let text = format!("{} takes no offsets as an argument of their own", call.what);
        self.error_help(offset.loc, text, format!("offsets are added to the slice: `{slice} + {by}`"));
        true
    }

    /// `slice + offset`
    fn point_into(&mut self, param: ParamId, by: &Operand) -> Operand {
        let Some(offset) = self.offset(by, DType::I32) else { return Operand::failed(by.loc) };
        let shape = self.ty(offset).shape.clone();
        Operand::new(Item::Pointer(Pointer { param, offset, shape, is_exact: false }), by.loc)
    }

    /// The operand as element offsets; a bare literal becomes `literal_type` where it fits, else `i64`.
    pub fn offset(&mut self, by: &Operand, literal_type: DType) -> Option<Value> {
        let value = match &by.item {
            Item::Literal(literal) if literal.dtype.is_none() => {
                let dtype = if literal.fits(DType::I32) { literal_type } else { DType::I64 };
                self.value_as(by, dtype, "an offset")
            }
            _ => self.value(by),
        }?;
        let found = self.ty(value).clone();
        if !found.dtype.is_integer() {
            self.error_help(
                by.loc,
                format!("an offset is an integer, found {found}"),
                "convert it: `as i32`",
            );
            return None;
        }
        Some(value)
    }

    /// `pointer + offset` or `pointer - offset`. Offsets of different integer types meet in `i64`; index
    /// legalization takes a `u64` there for the number it is.
    fn move_pointer(&mut self, pointer: Pointer, by: &Operand, negative: bool, loc: Loc) -> Operand {
        let mut offset = pointer.offset;
        let own_type = self.ty(offset).dtype;
        let Some(mut by_value) = self.offset(by, own_type) else { return Operand::failed(loc) };
        if pointer.is_exact && !matches!(by.item, Item::Literal(_)) {
            by_value = self.exact_offset(by_value, loc);
        } else if own_type != self.ty(by_value).dtype {
            offset = self.convert(offset, DType::I64, loc);
            by_value = self.convert(by_value, DType::I64, loc);
        }
        let mut values = [offset, by_value];
        let Some(shape) = self.common_shape("pointer arithmetic", loc, &mut values) else {
            return Operand::failed(loc);
        };
        let row = scalar::row(if negative { "sub" } else { "add" }).expect("a row of the table");
        let ty = self.ty(values[0]).clone();
        let offset = self.push(Scalar::new(row, values.to_vec()), vec![ty], loc)[0];
        Operand::new(Item::Pointer(Pointer { offset, shape, ..pointer }), loc)
    }

    /// The exact `i64` that offsets stand for.
    pub(super) fn exact_offset(&mut self, value: Value, loc: Loc) -> Value {
        let ty = self.ty(value).with(DType::I64);
        self.push(Cast { value, exact: true }, vec![ty], loc)[0]
    }
}
