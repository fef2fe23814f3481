//! Statements: bindings, assignments, and the control flow that carries variables.

use proc_macro2::Ident;

use super::scope::Variable;
use super::{Check, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::{BinaryOp, BlockExpr, Expr, ExprKind, Pattern, Stmt, TypeName};
use crate::ops::{ConstantValue, ExpandDims, Kind, Splat};
use crate::support::diagnostic::{Loc, count};

impl Check<'_> {
    pub(super) fn body(&mut self, block: &BlockExpr) {
        let value = self.block(block);
        if !matches!(value.item, Item::Unit | Item::Failed) && !self.kernel.returns {
            let found = self.describe(&value);
            self.error_help(
                value.loc,
                format!("a kernel returns nothing, but its body ends with {found}"),
                "write results into a `&mut [T]` parameter with `tl::store`",
            );
        }
    }

    /// A block in a scope of its own; its value.
    pub(super) fn block(&mut self, block: &BlockExpr) -> Operand {
        self.scopes.enter();
        let outer = self.enter_items(&block.items);
        for statement in &block.statements {
            self.statement(statement);
        }
        let value = match &block.value {
            Some(expr) => self.expr(expr),
            None if matches!(
                block.statements.last(),
                Some(Stmt::Expr(Expr { kind: ExprKind::Exit(_), .. }))
            ) =>
            {
                // The exit was reported.
                Operand::failed(block.loc)
            }
            None => Operand::unit(block.loc),
        };
        if let Some(outer) = outer {
            self.item_scope = outer;
        }
        let line = block.loc.end.end().line;
        self.ended.extend(self.scopes.innermost().map(|name| (name.to_string(), line)));
        self.scopes.leave();
        value
    }

    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Let { pattern, ty, init, loc } => {
                let mut value = init.as_ref().map(|init| self.expr(init));
                if let (Some(ty), None) = (ty, &value)
                    && ty.name.is_empty()
                {
                    self.report_let_type(ty);
                }
                if let (Some(ty), Some(operand)) = (ty, &value) {
                    value = Some(self.annotated(operand, ty));
                }
                if let (Pattern::Name { name, .. }, Some(operand)) = (pattern, &value)
                    && crate::frontend::syntax::is_scrutinee(name)
                    && self.report_scrutinee(operand)
                {
                    value = Some(Operand::failed(*loc));
                }
                match value {
                    Some(value) => self.bind(pattern, value),
                    None => self.declare(pattern, *loc),
                }
            }
            Stmt::Assign { target, op, value } => {
                let value = self.expr(value);
                self.assign(target, *op, value);
            }
            Stmt::For { var, range, body, loc } => self.for_loop(var.as_ref(), range, body, *loc),
            Stmt::While { condition, body, loc } => self.while_loop(condition, body, *loc),
            Stmt::Expr(expr) => {
                let value = self.expr(expr);
                // An unused value is a mistake more often than not; Rust would warn.
                if matches!(value.item, Item::Range(_) | Item::List(_)) {
                    let text = format!("{} is not a statement", value.item_name());
                    self.error(expr.loc, text);
                }
            }
        }
    }

    /// `let x: f32 = value`
    pub(super) fn annotated(&mut self, operand: &Operand, ty: &TypeName) -> Operand {
        if ty.name.is_empty() {
            if !matches!(operand.item, Item::Failed) {
                self.report_let_type(ty);
            }
            return operand.clone();
        }
        let Some(dtype) = self.resolve_type(ty) else { return Operand::failed(operand.loc) };
        if let Item::Literal(literal) = operand.item
            && literal.dtype.is_none()
        {
            // Checked like any literal with an expected type, but still a constant.
            return match self.value_as(operand, dtype, "the value") {
                Some(_) => {
                    let value = match literal.value {
                        LiteralValue::Number(ConstantValue::Int(value)) if dtype.is_float() => {
                            LiteralValue::Number(ConstantValue::Float(value as f64))
                        }
                        value => value,
                    };
                    Operand::new(Item::Literal(Literal { value, ..literal.named_type(dtype) }), operand.loc)
                }
                None => Operand::failed(operand.loc),
            };
        }
        match self.value_as(operand, dtype, "the value") {
            Some(value) => Operand::value(value, operand.loc),
            None => Operand::failed(operand.loc),
        }
    }

    /// Reports the type of a `let` that is no element type.
    fn report_let_type(&mut self, ty: &TypeName) {
        let help = "leave the type out: it follows from the value";
        self.error_help(ty.loc, "a `let` names an element type", help);
    }

    pub(super) fn bind(&mut self, pattern: &Pattern, value: Operand) {
        match pattern {
            Pattern::Ignore(_) => {}
            Pattern::Name { name, mutable } => {
                if matches!(value.item, Item::Unit) {
                    self.error_help(
                        value.loc,
                        "this gives no value to bind",
                        "let it be a statement of its own",
                    );
                }
                self.scopes.bind(&name.to_string(), value, *mutable);
            }
            Pattern::Tuple { parts, loc } => match value.item {
                Item::Tuple(values) if values.len() == parts.len() => {
                    for (part, value) in parts.iter().zip(values) {
                        self.bind(part, value);
                    }
                }
                Item::Tuple(values) => {
                    let text = format!(
                        "this pattern has {}, the tuple has {}",
                        count(parts.len(), "part"),
                        values.len()
                    );
                    self.error(*loc, text);
                    self.bind_errors(parts, value.loc);
                }
                Item::Failed => self.bind_errors(parts, value.loc),
                _ => {
                    let text = format!("a tuple pattern takes a tuple, found {}", self.describe(&value));
                    let help = self.tuple_help(&value);
                    self.error_help(*loc, text, help);
                    self.bind_errors(parts, value.loc);
                }
            },
        }
    }

    /// Which function gives the tuple that a pattern wants of a value.
    fn tuple_help(&self, value: &Operand) -> String {
        let made_by = |value| self.builder.definition(value).map(|op| &op.kind);
        let Item::Value(mut value) = value.item else { return "bind one name: `let x = ..`".into() };
        // With `keep_dims` the reduced axis has come back.
        if let Some(Kind::Splat(Splat { value: of }) | Kind::ExpandDims(ExpandDims { value: of, .. })) =
            made_by(value)
        {
            value = *of;
        }
        if let Some(Kind::Reduce(_)) = made_by(value) {
            return "`tl::max_index(x, axis)` gives the largest element and its position, `tl::min_index` the smallest".into();
        }
        "bind one name: `let x = ..`".into()
    }

    /// Binds names to errors, so that their uses are not reported.
    fn bind_errors(&mut self, parts: &[Pattern], loc: Loc) {
        for part in parts {
            let failed = Operand::failed(loc);
            self.bind(part, failed);
        }
    }

    fn declare(&mut self, pattern: &Pattern, loc: Loc) {
        match pattern {
            Pattern::Name { name, mutable } => {
                let variable = Variable { operand: None, mutable: *mutable, assigned: None };
                self.scopes.declare(&name.to_string(), variable);
            }
            Pattern::Ignore(_) => {}
            Pattern::Tuple { .. } => {
                self.error(loc, "a tuple pattern needs a value");
            }
        }
    }

    /// The kind of parameter that a name of the signature is, and what to do instead of assigning it.
    fn parameter(
        &self,
        name: &str,
        slot: super::scope::Slot,
        variable: &Variable,
    ) -> Option<(String, String)> {
        if self.frames.len() > 1 || !self.scopes.is_outermost(name, slot) {
            return None;
        }
        let again = format!("bind it again: `let mut {name} = {name};`");
        match variable.operand.as_ref()?.item {
            Item::Literal(_) => {
                let variable = name.to_lowercase();
                Some((
                    "a const parameter".into(),
                    format!("bind it to a variable: `let mut {variable} = {name};`"),
                ))
            }
            Item::Value(_) => Some(("a parameter".into(), again)),
            _ => None,
        }
    }

    pub(super) fn assign(&mut self, target: &Ident, op: Option<(BinaryOp, Loc)>, value: Operand) {
        let name = target.to_string();
        let loc = Loc::of(target);
        let Some(slot) = self.scopes.find(&name) else {
            let help = format!("declare it: `let mut {name} = ..;`");
            self.error_help(loc, format!("`{name}` is not defined"), help);
            // The names of Python begin with an assignment: this one is declared from here on.
            let value = if op.is_some() { Operand::failed(loc) } else { value };
            self.scopes.bind(&name, value, true);
            return;
        };
        let variable = self.scopes.get(slot).clone();
        if self.scopes.is_captured(slot) {
            let help = "let it give the new value, and assign that where it is called";
            self.error_help(loc, format!("a closure cannot assign `{name}`, a variable around it"), help);
            return;
        }
        let declared_later = variable.operand.is_none() && variable.assigned.is_none();
        if !variable.mutable && !declared_later {
            if let Some((what, help)) = self.parameter(&name, slot, &variable) {
                self.error_help(loc, format!("`{name}` is {what}, which cannot be assigned"), help);
                return;
            }
            let help = match variable.operand.map(|operand| operand.item) {
                Some(Item::Slice(_)) => "write memory with `tl::store(pointer, value, mask)`".to_string(),
                Some(Item::View(_)) => format!("write memory with `{name}.store(tile, ..)`"),
                _ => format!("declare it `let mut {name}`, or bind it again: `let mut {name} = {name};`"),
            };
            self.error_help(loc, format!("`{name}` cannot be assigned twice"), help);
            return;
        }
        let value = match op {
            None => value,
            Some((op, op_loc)) => match variable.operand {
                Some(old) => self.binary(op, op_loc, &Operand { loc, ..old }, &value),
                None => self.error(loc, format!("`{name}` is changed before it is assigned")),
            },
        };
        if matches!(value.item, Item::Unit) {
            self.error(value.loc, "this gives no value to assign");
        }
        let variable = self.scopes.get_mut(slot);
        variable.assigned = Some(value.loc);
        variable.operand = Some(value);
    }
}
