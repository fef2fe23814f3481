//! Variables under control flow: which ones a block assigns, and the SSA values of each.

use proc_macro2::Ident;

use super::scope::{Slot, Variable};
use super::{Check, Item, Operand, Pointer};
use crate::frontend::syntax::{BlockExpr, CallExpr, Expr, ExprKind, Pattern, Stmt};
use crate::ir::{Type, Value};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

impl Check<'_> {
    /// The outer variables that blocks assign, in the order of their first assignment.
    pub(super) fn assigned_slots<'b>(&self, blocks: impl Iterator<Item = &'b BlockExpr>) -> Vec<Slot> {
        let mut names = vec![];
        for block in blocks {
            assigned_names(block, &mut vec![], &mut names);
        }
        self.slots_of(names)
    }

    /// The outer variables that an expression assigns.
    pub(super) fn slots_assigned_in(&self, expr: &Expr) -> Vec<Slot> {
        let mut names = vec![];
        assigned_in_expr(expr, &mut vec![], &mut names);
        self.slots_of(names)
    }

    fn slots_of(&self, names: Vec<Assigned>) -> Vec<Slot> {
        let mut slots = vec![];
        for Assigned { name, method } in names {
            if let Some(slot) = self.scopes.find(&name)
                && !slots.contains(&slot)
                && method.is_none_or(|method| self.may_change(slot, &method))
            {
                slots.push(slot);
            }
        }
        slots
    }

    /// Whether a method of this name, called on a variable or a field of it, may change the variable.
    fn may_change(&self, slot: Slot, method: &str) -> bool {
        let mut values: Vec<&Operand> = self.scopes.get(slot).operand.iter().collect();
        while let Some(value) = values.pop() {
            if self.is_changed_by(value, method) {
                return true;
            }
            if let Item::Struct(_, parts) = &value.item {
                values.extend(parts);
            }
        }
        false
    }

    pub(super) fn slot_names(
        &self,
        slots: &[Slot],
        block: &BlockExpr,
        other: Option<&BlockExpr>,
    ) -> Vec<String> {
        let mut names = vec![];
        for block in [Some(block), other].into_iter().flatten() {
            assigned_names(block, &mut vec![], &mut names);
        }
        slots
            .iter()
            .map(|&slot| {
                let named = names.iter().find(|own| self.scopes.find(&own.name) == Some(slot));
                named.map(|own| own.name.clone()).unwrap_or_default()
            })
            .collect()
    }

    pub(super) fn restore(&mut self, slots: &[Slot], saved: &[Variable]) {
        for (&slot, variable) in slots.iter().zip(saved) {
            *self.scopes.get_mut(slot) = variable.clone();
        }
    }

    pub(super) fn poison(&mut self, slots: &[Slot], loc: Loc) {
        for &slot in slots {
            let failed = Operand::failed(loc);
            self.scopes.get_mut(slot).operand = Some(failed);
        }
    }

    /// The SSA values of an operand: their types and, for pointers, the slice.
    pub(super) fn leaves(&mut self, operand: &Operand) -> Option<Vec<CarriedValue>> {
        match &operand.item {
            Item::Value(value) => Some(vec![CarriedValue { ty: self.ty(*value).clone(), slice: None }]),
            Item::Literal(literal) => {
                Some(vec![CarriedValue { ty: Type::scalar(literal.default_type()), slice: None }])
            }
            Item::Pointer(Pointer { param, shape, .. }) => {
                Some(vec![CarriedValue { ty: Type::tile(DType::I64, shape.clone()), slice: Some(*param) }])
            }
            Item::Slice(param) => {
                Some(vec![CarriedValue { ty: Type::scalar(DType::I64), slice: Some(*param) }])
            }
            Item::Tuple(parts) | Item::Struct(_, parts) => {
                let mut leaves = vec![];
                for part in parts {
                    leaves.extend(self.leaves(part)?);
                }
                Some(leaves)
            }
            Item::Failed => None,
            Item::View(_)
            | Item::Optional { .. }
            | Item::List(_)
            | Item::Text(_)
            | Item::Range(_)
            | Item::Function(_)
            | Item::Unit => {
                let text = format!("{} cannot be assigned under a loop or `if`", operand.item_name());
                self.error(operand.loc, text);
                None
            }
        }
    }

    pub(super) fn describe_leaves(&self, leaves: &[CarriedValue]) -> String {
        let parts: Vec<String> = leaves
            .iter()
            .map(|leaf| match leaf.slice {
                None => leaf.ty.to_string(),
                Some(param) => {
                    let name = &self.func().params[param.index()].name;
                    let shape = if leaf.ty.is_scalar() {
                        String::new()
                    } else {
                        format!(" of shape {}", leaf.ty.shape)
                    };
                    format!("a pointer into `{name}`{shape}")
                }
            })
            .collect();
        if let [one] = parts.as_slice() { one.clone() } else { format!("({})", parts.join(", ")) }
    }

    pub(super) fn flatten_all(&mut self, operands: &[Operand]) -> Option<Vec<Value>> {
        let mut values = vec![];
        for operand in operands {
            let leaves = self.leaves(operand)?;
            values.extend(self.yield_leaves(operand, &leaves)?);
        }
        Some(values)
    }

    /// The operand's values, literals materialized with the types of the leaves.
    pub(super) fn yield_leaves(&mut self, operand: &Operand, leaves: &[CarriedValue]) -> Option<Vec<Value>> {
        match &operand.item {
            Item::Tuple(parts) | Item::Struct(_, parts) => {
                let mut values = vec![];
                let mut rest = leaves;
                for part in parts {
                    let n = self.leaves(part)?.len();
                    let (own, others) = rest.split_at_checked(n)?;
                    values.extend(self.yield_leaves(part, own)?);
                    rest = others;
                }
                Some(values)
            }
            Item::Pointer(Pointer { offset, is_exact: true, .. }) => Some(vec![*offset]),
            Item::Pointer(pointer) => Some(vec![self.exact_offset(pointer.offset, operand.loc)]),
            Item::Slice(_) => Some(vec![self.zero(DType::I64, operand.loc)]),
            _ => {
                let leaf = leaves.first()?;
                let value = self.value_as(operand, leaf.ty.dtype, "a carried value")?;
                let found = self.ty(value).shape.clone();
                if found != leaf.ty.shape {
                    // A scalar literal for a carried tile.
                    if found.broadcast(&leaf.ty.shape).as_ref() != Some(&leaf.ty.shape) {
                        return None;
                    }
                    return Some(vec![self.broadcast(value, &leaf.ty.shape, operand.loc)]);
                }
                Some(vec![value])
            }
        }
    }

    /// An operand of the same form with other values.
    pub(super) fn rebuild(&self, like: &Operand, values: &mut dyn Iterator<Item = Value>) -> Operand {
        let item = match &like.item {
            Item::Tuple(parts) => Item::Tuple(parts.iter().map(|part| self.rebuild(part, values)).collect()),
            Item::Struct(id, parts) => {
                Item::Struct(*id, parts.iter().map(|part| self.rebuild(part, values)).collect())
            }
            Item::Pointer(Pointer { param, .. }) | Item::Slice(param) => match values.next() {
                Some(offset) => {
                    let shape = self.ty(offset).shape.clone();
                    Item::Pointer(Pointer { param: *param, offset, shape, is_exact: true })
                }
                None => Item::Failed,
            },
            _ => values.next().map_or(Item::Failed, Item::Value),
        };
        Operand { item, loc: like.loc }
    }
}

/// One SSA value of an operand.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CarriedValue {
    pub ty: Type,
    pub slice: Option<crate::ir::ParamId>,
}

impl Operand {
    pub(super) fn item_name(&self) -> &'static str {
        match self.item {
            Item::View(_) => "a view",
            Item::Optional { .. } => "an option",
            Item::List(_) => "a list",
            Item::Text(_) => "a string",
            Item::Range(_) => "a range",
            Item::Function(_) => "a function",
            Item::Unit => "nothing",
            _ => "this value",
        }
    }
}

/// A variable that a block assigns, by a method where that changes what it is called on.
#[derive(PartialEq)]
struct Assigned {
    name: String,
    method: Option<String>,
}

/// What a block assigns and does not declare itself.
fn assigned_names(block: &BlockExpr, declared: &mut Vec<String>, found: &mut Vec<Assigned>) {
    let depth = declared.len();
    for statement in &block.statements {
        match statement {
            Stmt::Let { pattern, init, .. } => {
                if let Some(init) = init {
                    assigned_in_expr(init, declared, found);
                }
                declare_pattern(pattern, declared);
            }
            Stmt::Assign { target, value, .. } => {
                assigned_in_expr(value, declared, found);
                note_assigned(Assigned { name: target.to_string(), method: None }, declared, found);
            }
            Stmt::For { var, range, body, .. } => {
                assigned_in_expr(range, declared, found);
                let inner = declared.len();
                declared.extend(var.iter().map(Ident::to_string));
                assigned_names(body, declared, found);
                declared.truncate(inner);
            }
            Stmt::While { condition, body, .. } => {
                assigned_in_expr(condition, declared, found);
                assigned_names(body, declared, found);
            }
            Stmt::Expr(expr) => assigned_in_expr(expr, declared, found),
        }
    }
    if let Some(value) = &block.value {
        assigned_in_expr(value, declared, found);
    }
    declared.truncate(depth);
}

fn note_assigned(assigned: Assigned, declared: &[String], found: &mut Vec<Assigned>) {
    if !declared.contains(&assigned.name) && !found.contains(&assigned) {
        found.push(assigned);
    }
}

/// The variable that a place begins with.
fn root(place: &Expr) -> Option<&Ident> {
    match &place.kind {
        ExprKind::Path(path) => path.first().filter(|_| path.len() == 1),
        ExprKind::Field { base, .. } => root(base),
        _ => None,
    }
}

fn declare_pattern(pattern: &Pattern, declared: &mut Vec<String>) {
    match pattern {
        Pattern::Name { name, .. } => declared.push(name.to_string()),
        Pattern::Ignore(_) => {}
        Pattern::Tuple { parts, .. } => parts.iter().for_each(|part| declare_pattern(part, declared)),
    }
}

fn assigned_in_expr(expr: &Expr, declared: &mut Vec<String>, found: &mut Vec<Assigned>) {
    match &expr.kind {
        ExprKind::If { condition, then, otherwise } => {
            assigned_in_expr(condition, declared, found);
            assigned_names(then, declared, found);
            if let Some(otherwise) = otherwise {
                assigned_names(otherwise, declared, found);
            }
        }
        ExprKind::Block(block) => assigned_names(block, declared, found),
        ExprKind::Unary { operand, .. }
        | ExprKind::Cast { operand, .. }
        | ExprKind::Reference(operand)
        | ExprKind::Dereference { operand, .. }
        | ExprKind::OpenMatch(operand)
        | ExprKind::Field { base: operand, .. }
        | ExprKind::Part { tuple: operand, .. } => assigned_in_expr(operand, declared, found),
        ExprKind::Binary { lhs, rhs, .. } | ExprKind::Logic { lhs, rhs, .. } => {
            assigned_in_expr(lhs, declared, found);
            assigned_in_expr(rhs, declared, found);
        }
        ExprKind::Call(CallExpr { args, .. }) | ExprKind::Tuple(args) | ExprKind::Array(args) => {
            args.iter().for_each(|arg| assigned_in_expr(arg, declared, found));
        }
        ExprKind::Method { receiver, name, args, .. } => {
            assigned_in_expr(receiver, declared, found);
            args.iter().for_each(|arg| assigned_in_expr(arg, declared, found));
            if let Some(variable) = root(receiver) {
                let assigned = Assigned { name: variable.to_string(), method: Some(name.to_string()) };
                note_assigned(assigned, declared, found);
            }
        }
        ExprKind::Struct { fields, rest, .. } => {
            fields.iter().for_each(|(_, value)| assigned_in_expr(value, declared, found));
            rest.iter().for_each(|rest| assigned_in_expr(rest, declared, found));
        }
        ExprKind::WithField { value, .. } => assigned_in_expr(value, declared, found),
        ExprKind::Index { base: low, index: high, .. } | ExprKind::Range { low, high, .. } => {
            assigned_in_expr(low, declared, found);
            assigned_in_expr(high, declared, found);
        }
        // A closure assigns no variable around it.
        ExprKind::Closure(_)
        | ExprKind::Exit(_)
        | ExprKind::Int { .. }
        | ExprKind::Float { .. }
        | ExprKind::Bool(_)
        | ExprKind::Text(_)
        | ExprKind::Path(_)
        | ExprKind::Error => {}
    }
}
