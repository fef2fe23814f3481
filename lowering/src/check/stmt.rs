//! Statements: bindings, assignments, and the control flow that carries variables.

use proc_macro2::Ident;

use super::scope::{Slot, Variable};
use super::{Check, Item, Literal, LiteralValue, Operand, Pointer, Range};
use crate::diagnostic::{Diagnostic, Loc, count};
use crate::dtype::DType;
use crate::ops::{For, If, Number, While};
use crate::syntax::{BinaryOp, Block, Expr, ExprKind, Pattern, Statement};
use crate::tile::{Type, Value};

/// How often a `static_range` may repeat its body.
const MAX_UNROLLED: i128 = 4096;

impl Check<'_> {
    pub(super) fn body(&mut self, block: &Block) {
        let value = self.block(block);
        if !matches!(value.item, Item::Unit | Item::Failed) {
            let found = self.describe(&value);
            self.error_help(
                value.loc,
                format!("a kernel returns nothing, but its body ends with {found}"),
                "write results into a `&mut [T]` parameter with `tl::store`",
            );
        }
    }

    /// A block in a scope of its own; its value.
    pub(super) fn block(&mut self, block: &Block) -> Operand {
        self.scopes.enter();
        for statement in &block.statements {
            self.statement(statement);
        }
        let value = match &block.value {
            Some(expr) => self.expr(expr),
            None => self.unit(block.loc),
        };
        self.scopes.leave();
        value
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Let { pattern, ty, init, loc } => {
                let mut value = init.as_ref().map(|init| self.expr(init));
                if let (Some(ty), Some(operand)) = (ty, &value) {
                    value = Some(self.annotated(operand, ty));
                }
                match value {
                    Some(value) => self.bind(pattern, value),
                    None => self.declare(pattern, *loc),
                }
            }
            Statement::Assign { target, op, value } => {
                let value = self.expr(value);
                self.assign(target, *op, value);
            }
            Statement::For { var, range, body, loc } => self.for_loop(var.as_ref(), range, body, *loc),
            Statement::While { condition, body, loc } => self.while_loop(condition, body, *loc),
            Statement::Expr(expr) => {
                let value = self.expr(expr);
                // A value that nothing takes is a mistake more often than not; Rust would warn.
                if matches!(value.item, Item::Range(_) | Item::List(_)) {
                    let text = format!("{} is not a statement", value.item_name());
                    self.error(expr.loc, text);
                }
            }
        }
    }

    /// `let x: f32 = value`
    fn annotated(&mut self, operand: &Operand, ty: &crate::syntax::TypeName) -> Operand {
        let Some(dtype) = self.resolve_type(ty) else { return self.failed(operand.loc) };
        if let Item::Literal(literal) = operand.item
            && literal.dtype.is_none()
        {
            // Checked like any literal that meets a type, but kept a constant.
            return match self.value_as(operand, dtype, "the value") {
                Some(_) => {
                    let value = match literal.value {
                        LiteralValue::Number(Number::Int(value)) if dtype.is_float() => {
                            LiteralValue::Number(Number::Float(value as f64))
                        }
                        value => value,
                    };
                    self.wrap(Item::Literal(Literal { value, dtype: Some(dtype), ..literal }), operand.loc)
                }
                None => self.failed(operand.loc),
            };
        }
        match self.value_as(operand, dtype, "the value") {
            Some(value) => self.operand(value, operand.loc),
            None => self.failed(operand.loc),
        }
    }

    fn bind(&mut self, pattern: &Pattern, value: Operand) {
        match pattern {
            Pattern::Ignore(_) => {}
            Pattern::Name { name, mutable } => {
                if matches!(value.item, Item::Unit) {
                    self.error(value.loc, "this gives no value to bind");
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
                    self.bind_failed(parts, value.loc);
                }
                Item::Failed => self.bind_failed(parts, value.loc),
                _ => {
                    let text = format!("a tuple pattern takes a tuple, found {}", self.describe(&value));
                    self.error(*loc, text);
                    self.bind_failed(parts, value.loc);
                }
            },
        }
    }

    /// Binds names to nothing further to report.
    fn bind_failed(&mut self, parts: &[Pattern], loc: Loc) {
        for part in parts {
            let failed = self.failed(loc);
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

    fn assign(&mut self, target: &Ident, op: Option<(BinaryOp, Loc)>, value: Operand) {
        let name = target.to_string();
        let loc = Loc::of(target);
        let Some(slot) = self.scopes.find(&name) else {
            self.error_help(
                loc,
                format!("`{name}` is not defined"),
                format!("declare it: `let mut {name} = ..;`"),
            );
            return;
        };
        let variable = self.scopes.get(slot).clone();
        let declared_later = variable.operand.is_none() && variable.assigned.is_none();
        if !variable.mutable && !declared_later {
            let help = match variable.operand.map(|operand| operand.item) {
                Some(Item::Slice(_)) => "write memory with `tl::store(pointer, value, mask)`".to_string(),
                _ => format!("declare it `let mut {name}`"),
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

    // ---- control flow

    /// `if`, as a statement or a value.
    pub(super) fn conditional(
        &mut self,
        condition: &Expr,
        then: &Block,
        otherwise: Option<&Block>,
        loc: Loc,
    ) -> Operand {
        let condition = self.expr(condition);
        match condition.item {
            Item::Literal(Literal { value: LiteralValue::Bool(value), .. }) => {
                // Decided at build: the other branch is not part of this variant.
                return match (value, otherwise) {
                    (true, _) => Operand { loc, ..self.block(then) },
                    (false, Some(otherwise)) => Operand { loc, ..self.block(otherwise) },
                    (false, None) => self.unit(loc),
                };
            }
            Item::Failed => {
                // The branches may still hold mistakes of their own; what they assign is unknown.
                let slots = self.assigned_slots([Some(then), otherwise].into_iter().flatten());
                self.block(then);
                if let Some(otherwise) = otherwise {
                    self.block(otherwise);
                }
                self.poison(&slots, loc);
                return self.failed(loc);
            }
            _ => {}
        }
        let Some(condition) = self.scalar_condition(&condition, "if") else {
            let slots = self.assigned_slots([Some(then), otherwise].into_iter().flatten());
            self.poison(&slots, loc);
            return self.failed(loc);
        };
        self.branch(condition, then, otherwise, loc)
    }

    fn scalar_condition(&mut self, operand: &Operand, keyword: &str) -> Option<Value> {
        let value = self.value(operand)?;
        let ty = self.ty(value).clone();
        if ty.dtype != DType::Bool {
            self.error_help(
                operand.loc,
                format!("the condition of `{keyword}` is a bool, found {ty}"),
                "compare: `x != 0`",
            );
            return None;
        }
        if !ty.is_scalar() {
            self.error_help(
                operand.loc,
                format!("the condition of `{keyword}` is a scalar, found a tile of type {ty}"),
                "choose by element with `tl::select(mask, a, b)`",
            );
            return None;
        }
        Some(value)
    }

    fn branch(&mut self, condition: Value, then: &Block, otherwise: Option<&Block>, loc: Loc) -> Operand {
        let slots = self.assigned_slots([Some(then), otherwise].into_iter().flatten());
        let before: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();

        self.begin_block(vec![]);
        let then_value = self.block(then);
        let after_then: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();
        // The block is reopened below to build what its yields need; its contents are kept meanwhile.
        let then_block = self.end_block(vec![]);
        self.restore(&slots, &before);

        self.begin_block(vec![]);
        let else_value = match otherwise {
            Some(otherwise) => self.block(otherwise),
            None => self.unit(loc),
        };
        let after_else: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();
        let else_block = self.end_block(vec![]);
        self.restore(&slots, &before);

        // What both branches give: the value of the `if`, then every variable that both leave assigned.
        let mut pairs = vec![];
        let value_pair = match (&then_value.item, &else_value.item) {
            (Item::Unit, _) | (_, Item::Unit) | (Item::Failed, _) | (_, Item::Failed) => None,
            _ => Some(("the value of this `if`".to_string(), then_value.clone(), else_value.clone())),
        };
        if value_pair.is_none() && otherwise.is_some() {
            self.report_missing_value(&then_value, &else_value);
        }
        pairs.extend(value_pair.clone());
        let names = self.slot_names(&slots, then, otherwise);
        for (i, (a, b)) in after_then.iter().zip(&after_else).enumerate() {
            if let (Some(a), Some(b)) = (&a.operand, &b.operand) {
                pairs.push((format!("`{}`", names[i]), a.clone(), b.clone()));
            }
        }
        let merged = self.merge(condition, [then_block, else_block], pairs, loc);
        let mut merged = merged.into_iter();
        let value = match value_pair {
            Some(_) => merged.next().unwrap_or_else(|| self.failed(loc)),
            None if matches!(then_value.item, Item::Failed) || matches!(else_value.item, Item::Failed) => {
                self.failed(loc)
            }
            None => self.unit(loc),
        };
        for (i, &slot) in slots.iter().enumerate() {
            let both = after_then[i].operand.is_some() && after_else[i].operand.is_some();
            let assigned = after_then[i].assigned.or(after_else[i].assigned);
            let variable = self.scopes.get_mut(slot);
            variable.assigned = assigned;
            variable.operand = if both { merged.next() } else { None };
        }
        Operand { loc, ..value }
    }

    /// One branch has a value and the other none.
    fn report_missing_value(&mut self, then: &Operand, otherwise: &Operand) {
        let (with, without) = match (&then.item, &otherwise.item) {
            (Item::Unit, Item::Unit) | (Item::Failed, _) | (_, Item::Failed) => return,
            (Item::Unit, _) => (otherwise, then),
            _ => (then, otherwise),
        };
        let text = format!("one branch of this `if` gives {}, the other nothing", self.describe(with));
        self.error(without.loc, text);
    }

    /// Joins pairs of operands behind an `if` whose blocks are built; reports pairs whose types differ.
    fn merge(
        &mut self,
        condition: Value,
        blocks: [crate::tile::Block; 2],
        pairs: Vec<(String, Operand, Operand)>,
        loc: Loc,
    ) -> Vec<Operand> {
        let mut wanted: Vec<Vec<Leaf>> = vec![];
        for (what, a, b) in &pairs {
            let leaves = self.join(what, a, b);
            wanted.push(leaves.unwrap_or_default());
        }
        let [then, otherwise] = blocks;
        let close = |check: &mut Self, block: crate::tile::Block, side: usize| {
            check.builder.begin_with(block.args);
            for op in block.ops {
                check.builder.append(op);
            }
            let mut yields = vec![];
            for ((_, a, b), leaves) in pairs.iter().zip(&wanted) {
                let operand = if side == 0 { a } else { b };
                if !leaves.is_empty() {
                    yields.extend(check.yield_leaves(operand, leaves).unwrap_or_default());
                }
            }
            check.end_block(yields)
        };
        let then = close(self, then, 0);
        let otherwise = close(self, otherwise, 1);
        let types: Vec<Type> = wanted.iter().flatten().map(|leaf| leaf.ty.clone()).collect();
        if then.yields.len() != types.len() || otherwise.yields.len() != types.len() {
            // A literal that does not fit was reported while closing.
            return pairs.iter().map(|_| self.failed(loc)).collect();
        }
        let results = self.push(If { condition, then, otherwise }, types, loc);
        let mut results = results.into_iter();
        pairs
            .iter()
            .zip(&wanted)
            .map(|((_, a, _), leaves)| {
                if leaves.is_empty() && !matches!(a.item, Item::Tuple(_)) {
                    return self.failed(a.loc);
                }
                let values: Vec<Value> = results.by_ref().take(leaves.len()).collect();
                self.rebuild(a, &mut values.into_iter())
            })
            .collect()
    }

    fn for_loop(&mut self, var: Option<&Ident>, range: &Expr, body: &Block, loc: Loc) {
        let operand = self.expr(range);
        let range_loc = operand.loc;
        let range = match operand.item {
            Item::Range(range) => range,
            Item::Failed => return self.skip_loop(body, loc),
            _ => {
                let text = format!("`for` runs over a range, found {}", self.describe(&operand));
                self.error_help(
                    operand.loc,
                    text,
                    "write `0..n`, `(0..n).step_by(BLOCK)` or `tl::range(0, n, BLOCK)`",
                );
                return self.skip_loop(body, loc);
            }
        };
        if range.unrolled {
            return self.unrolled_loop(var, &range, body, loc);
        }
        let one = self.integer(1, range_loc);
        let step = range.step.as_deref().cloned().unwrap_or(one);
        let ends = [&*range.low, &*range.high, &step];
        let Some(dtype) = self.common_type("a range", range_loc, &ends) else {
            return self.skip_loop(body, loc);
        };
        if !matches!(dtype, DType::I32 | DType::I64) {
            self.error_help(
                range_loc,
                format!("a range is of `i32` or `i64`, found {dtype}"),
                "convert the ends: `as i32`",
            );
            return self.skip_loop(body, loc);
        }
        let mut values = vec![];
        for end in ends {
            match self.value_as(end, dtype, "the ends and step of a range") {
                Some(value) if self.ty(value).is_scalar() => values.push(value),
                Some(value) => {
                    let text = format!("a range has scalar ends, found a tile of type {}", self.ty(value));
                    self.error(end.loc, text);
                    return self.skip_loop(body, loc);
                }
                None => return self.skip_loop(body, loc),
            }
        }
        let &[low, high, step] = values.as_slice() else { return };
        let hints = range.hints;
        self.carried_loop(body, loc, |check, inits| {
            let args: Vec<Type> = std::iter::once(Type::scalar(dtype))
                .chain(inits.iter().map(|&init| check.ty(init).clone()))
                .collect();
            let args = check.begin_block(args);
            check.scopes.enter();
            if let Some(var) = var {
                let operand = check.operand(args[0], Loc::of(var));
                check.scopes.bind(&var.to_string(), operand, false);
            }
            LoopFrame {
                carried: args[1..].to_vec(),
                finish: Box::new(move |check, inits, body, types| {
                    check.push(For { low, high, step, inits, body, hints }, types, loc)
                }),
            }
        });
    }

    fn while_loop(&mut self, condition: &Expr, body: &Block, loc: Loc) {
        let mut test_block = None;
        self.carried_loop(body, loc, |check, inits| {
            let types: Vec<Type> = inits.iter().map(|&init| check.ty(init).clone()).collect();
            let args = check.begin_block(types.clone());
            // The condition is checked with the variables as the test sees them.
            check.set_carried(&args);
            let operand = check.expr(condition);
            let value = match operand.item {
                Item::Literal(Literal { value: LiteralValue::Bool(true), .. }) => {
                    check.error_help(
                        operand.loc,
                        "this loop never ends",
                        "`while` tests a value that the body changes",
                    );
                    None
                }
                Item::Failed => None,
                _ => check.scalar_condition(&operand, "while"),
            };
            let yields = value.into_iter().collect();
            test_block = Some(check.end_block(yields));
            let carried = check.begin_block(types);
            check.scopes.enter();
            let test = test_block.take().unwrap_or_default();
            LoopFrame {
                carried,
                finish: Box::new(move |check, inits, body, types| {
                    if test.yields.is_empty() {
                        return types.into_iter().map(|ty| check.builder.func.value(ty)).collect();
                    }
                    check.push(While { inits, test, body }, types, loc)
                }),
            }
        });
    }

    fn unrolled_loop(&mut self, var: Option<&Ident>, range: &Range, body: &Block, loc: Loc) {
        let low = self.constant(&range.low, "the start of a `static_range`");
        let high = self.constant(&range.high, "the end of a `static_range`");
        let step =
            range.step.as_deref().map_or(Some(1), |step| self.constant(step, "the step of a `static_range`"));
        let (Some(low), Some(high), Some(step)) = (low, high, step) else { return self.skip_loop(body, loc) };
        if step < 1 {
            let step_loc = range.step.as_ref().map_or(loc, |step| step.loc);
            self.error(step_loc, format!("the step of a `static_range` is at least 1, found {step}"));
            return;
        }
        if (high - low) / step > MAX_UNROLLED {
            self.error_help(
                range.high.loc,
                format!("a `static_range` repeats its body at most {MAX_UNROLLED} times"),
                "`tl::range` makes a loop",
            );
            return;
        }
        let mut index = low;
        while index < high {
            self.scopes.enter();
            if let Some(var) = var {
                let operand = self.integer(index, Loc::of(var));
                self.scopes.bind(&var.to_string(), operand, false);
            }
            let before = self.errors.len();
            self.block(body);
            self.scopes.leave();
            if self.errors.len() > before {
                return;
            }
            index += step;
        }
    }

    /// Checks a loop's body once for its own mistakes after its head failed.
    fn skip_loop(&mut self, body: &Block, loc: Loc) {
        let slots = self.assigned_slots(std::iter::once(body));
        self.poison(&slots, loc);
    }

    /// A loop that carries the outer variables its body assigns. `open` begins the body's block with the carried values
    /// as arguments and enters its scope; what it returns closes the loop.
    fn carried_loop<'f>(
        &mut self,
        body: &Block,
        loc: Loc,
        mut open: impl FnMut(&mut Self, &[Value]) -> LoopFrame<'f, Self>,
    ) {
        let slots: Vec<Slot> = self.assigned_slots(std::iter::once(body));
        let names = self.slot_names(&slots, body, None);
        let before: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();
        let carried: Vec<usize> = (0..slots.len()).filter(|&i| before[i].operand.is_some()).collect();
        let mut inits: Vec<Operand> = carried.iter().filter_map(|&i| before[i].operand.clone()).collect();
        if inits.iter().any(|init| matches!(init.item, Item::Failed)) {
            return self.skip_loop(body, loc);
        }
        // A carried variable that starts as a bare literal takes the type its first assignment gives it.
        for attempt in 0..2 {
            let mark = self.builder.mark();
            let errors = self.errors.len();
            self.carried_slots(&slots, &carried, &inits);
            let Some(init_values) = self.flatten_all(&inits) else {
                self.poison(&slots, loc);
                return;
            };
            let frame = open(self, &init_values);
            self.set_carried(&frame.carried);
            self.block(body);
            self.scopes.leave();
            let finals: Vec<Option<Operand>> =
                carried.iter().map(|&i| self.scopes.get(slots[i]).operand.clone()).collect();
            let assigned: Vec<Option<Loc>> =
                carried.iter().map(|&i| self.scopes.get(slots[i]).assigned).collect();
            if attempt == 0
                && let Some(retyped) = self.retype(&inits, &finals)
            {
                self.builder.rewind(mark);
                self.errors.truncate(errors);
                self.restore(&slots, &before);
                inits = retyped;
                continue;
            }
            let mut yields = vec![];
            let mut good = self.errors.len() == errors;
            for (k, init) in inits.iter().enumerate() {
                let loc = assigned[k].unwrap_or(loc);
                match &finals[k] {
                    Some(operand) => match self.carry(&names[carried[k]], init, operand, loc) {
                        Some(values) => yields.extend(values),
                        None => good = false,
                    },
                    None => good = false,
                }
            }
            if !good {
                self.end_block(vec![]);
                self.restore(&slots, &before);
                self.poison(&slots, loc);
                return;
            }
            let types: Vec<Type> = init_values.iter().map(|&value| self.ty(value).clone()).collect();
            let block = self.end_block(yields);
            let results = (frame.finish)(self, init_values, block, types);
            self.restore(&slots, &before);
            let mut results = results.into_iter();
            for (k, &i) in carried.iter().enumerate() {
                let operand = self.rebuild(&inits[k], &mut results);
                let variable = self.scopes.get_mut(slots[i]);
                variable.operand = Some(operand);
                variable.assigned = assigned[k];
            }
            return;
        }
    }

    /// Remembers what [`Check::set_carried`] rebuilds.
    fn carried_slots(&mut self, slots: &[Slot], carried: &[usize], inits: &[Operand]) {
        self.scopes.carried = carried.iter().zip(inits).map(|(&i, init)| (slots[i], init.clone())).collect();
        for (i, &slot) in slots.iter().enumerate() {
            if !carried.contains(&i) {
                self.scopes.get_mut(slot).operand = None;
            }
        }
    }

    /// Binds the carried variables to block arguments.
    fn set_carried(&mut self, args: &[Value]) {
        let carried = self.scopes.carried.clone();
        let mut args = args.iter().copied();
        for (slot, init) in carried {
            let operand = self.rebuild(&init, &mut args);
            self.scopes.get_mut(slot).operand = Some(operand);
        }
    }

    /// Initial operands with bare literals given the type that the body assigned, if that changes any.
    fn retype(&mut self, inits: &[Operand], finals: &[Option<Operand>]) -> Option<Vec<Operand>> {
        let mut changed = false;
        let retyped = inits
            .iter()
            .zip(finals)
            .map(|(init, last)| {
                let (Item::Literal(literal), Some(last)) = (&init.item, last) else { return init.clone() };
                let Item::Value(value) = last.item else { return init.clone() };
                let ty = self.ty(value);
                if literal.dtype.is_some() || literal.default_type() == ty.dtype || !ty.is_scalar() {
                    return init.clone();
                }
                let fits =
                    ty.dtype.is_float() == literal.default_type().is_float() && ty.dtype != DType::Bool;
                if !fits {
                    return init.clone();
                }
                changed = true;
                let literal = Literal { dtype: Some(ty.dtype), ..*literal };
                Operand { item: Item::Literal(literal), loc: init.loc }
            })
            .collect();
        changed.then_some(retyped)
    }

    /// The values a carried variable has at the end of the body; reports a change of type.
    fn carry(&mut self, name: &str, init: &Operand, last: &Operand, loc: Loc) -> Option<Vec<Value>> {
        if matches!(last.item, Item::Failed) {
            return None;
        }
        let wanted = self.leaves(init)?;
        let found = match last.item {
            // A literal assigned in the body takes the carried type.
            Item::Literal(_) => return self.yield_leaves(last, &wanted),
            _ => self.leaves(last)?,
        };
        if wanted == found {
            return self.yield_leaves(last, &wanted);
        }
        let (from, to) = (describe_leaves(&wanted), describe_leaves(&found));
        let mut diagnostic = Diagnostic {
            loc,
            message: format!("`{name}` is {from} before the loop and {to} at the end of its body"),
            help: None,
            note: Some("a variable that a loop carries keeps its type and shape".into()),
        };
        if let ([a], [b]) = (wanted.as_slice(), found.as_slice()) {
            diagnostic.help = if a.ty.shape == b.ty.shape {
                Some(format!("convert it before it is assigned: `.to::<{}>()`", a.ty.dtype))
            } else if a.ty.is_scalar() {
                Some(format!("start with a tile: `tl::zeros::<{}>({})`", b.ty.dtype, b.ty.shape))
            } else {
                None
            };
        }
        self.report(diagnostic);
        None
    }

    // ---- variables and values

    /// The outer variables that blocks assign, in the order of their first assignment.
    fn assigned_slots<'b>(&self, blocks: impl Iterator<Item = &'b Block>) -> Vec<Slot> {
        let mut names = vec![];
        for block in blocks {
            assigned_names(block, &mut vec![], &mut names);
        }
        let mut slots = vec![];
        for name in names {
            if let Some(slot) = self.scopes.find(&name)
                && !slots.contains(&slot)
            {
                slots.push(slot);
            }
        }
        slots
    }

    fn slot_names(&self, slots: &[Slot], block: &Block, other: Option<&Block>) -> Vec<String> {
        let mut names = vec![];
        for block in [Some(block), other].into_iter().flatten() {
            assigned_names(block, &mut vec![], &mut names);
        }
        slots
            .iter()
            .map(|&slot| {
                names.iter().find(|name| self.scopes.find(name) == Some(slot)).cloned().unwrap_or_default()
            })
            .collect()
    }

    fn restore(&mut self, slots: &[Slot], saved: &[Variable]) {
        for (&slot, variable) in slots.iter().zip(saved) {
            *self.scopes.get_mut(slot) = variable.clone();
        }
    }

    fn poison(&mut self, slots: &[Slot], loc: Loc) {
        for &slot in slots {
            let failed = self.failed(loc);
            self.scopes.get_mut(slot).operand = Some(failed);
        }
    }

    /// The values an operand is made of, by type and, for pointers, by slice.
    fn leaves(&mut self, operand: &Operand) -> Option<Vec<Leaf>> {
        match &operand.item {
            Item::Value(value) => Some(vec![Leaf { ty: self.ty(*value).clone(), slice: None }]),
            Item::Literal(literal) => {
                Some(vec![Leaf { ty: Type::scalar(literal.default_type()), slice: None }])
            }
            Item::Pointer(Pointer { param, offset, .. }) => {
                Some(vec![Leaf { ty: self.ty(*offset).clone(), slice: Some(*param) }])
            }
            Item::Slice(param) => Some(vec![Leaf { ty: Type::scalar(DType::I32), slice: Some(*param) }]),
            Item::Tuple(parts) => {
                let mut leaves = vec![];
                for part in parts {
                    leaves.extend(self.leaves(part)?);
                }
                Some(leaves)
            }
            Item::Failed => None,
            Item::List(_) | Item::Text(_) | Item::Range(_) | Item::Unit => {
                let text = format!("{} cannot be assigned under a loop or `if`", operand.item_name());
                self.error(operand.loc, text);
                None
            }
        }
    }

    /// The leaves two branches agree on; a literal takes the other side's type.
    fn join(&mut self, what: &str, a: &Operand, b: &Operand) -> Option<Vec<Leaf>> {
        if let (Item::Tuple(left), Item::Tuple(right)) = (&a.item, &b.item)
            && left.len() == right.len()
        {
            let mut leaves = vec![];
            for (a, b) in left.iter().zip(right) {
                leaves.extend(self.join(what, a, b)?);
            }
            return Some(leaves);
        }
        let (left, right) = (self.leaves(a)?, self.leaves(b)?);
        let untyped = |operand: &Operand| matches!(operand.item, Item::Literal(Literal { dtype: None, .. }));
        let scalar =
            |leaves: &[Leaf]| matches!(leaves, [leaf] if leaf.ty.is_scalar() && leaf.slice.is_none());
        if left == right || untyped(b) && scalar(&left) {
            return Some(left);
        }
        if untyped(a) && scalar(&right) {
            return Some(right);
        }
        let (from, to) = (describe_leaves(&left), describe_leaves(&right));
        self.error(b.loc, format!("{what} is {from} in one branch and {to} in the other"));
        None
    }

    fn flatten_all(&mut self, operands: &[Operand]) -> Option<Vec<Value>> {
        let mut values = vec![];
        for operand in operands {
            let leaves = self.leaves(operand)?;
            values.extend(self.yield_leaves(operand, &leaves)?);
        }
        Some(values)
    }

    /// The operand's values, literals materialised as the leaves want them.
    fn yield_leaves(&mut self, operand: &Operand, leaves: &[Leaf]) -> Option<Vec<Value>> {
        match &operand.item {
            Item::Tuple(parts) => {
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
            Item::Pointer(pointer) => Some(vec![pointer.offset]),
            Item::Slice(_) => Some(vec![self.zero(DType::I32, operand.loc)]),
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
    fn rebuild(&self, like: &Operand, values: &mut dyn Iterator<Item = Value>) -> Operand {
        let item = match &like.item {
            Item::Tuple(parts) => Item::Tuple(parts.iter().map(|part| self.rebuild(part, values)).collect()),
            Item::Pointer(Pointer { param, .. }) | Item::Slice(param) => match values.next() {
                Some(offset) => {
                    Item::Pointer(Pointer { param: *param, offset, shape: self.ty(offset).shape.clone() })
                }
                None => Item::Failed,
            },
            _ => values.next().map_or(Item::Failed, Item::Value),
        };
        Operand { item, loc: like.loc }
    }
}

/// A loop whose body is open.
struct LoopFrame<'f, C> {
    /// Block arguments for the carried values.
    carried: Vec<Value>,
    /// Given the initial values, the closed body and the carried types: builds the loop.
    finish: Box<dyn FnOnce(&mut C, Vec<Value>, crate::tile::Block, Vec<Type>) -> Vec<Value> + 'f>,
}

/// One SSA value of an operand.
#[derive(Clone, PartialEq, Debug)]
struct Leaf {
    ty: Type,
    slice: Option<crate::tile::ParamId>,
}

fn describe_leaves(leaves: &[Leaf]) -> String {
    let parts: Vec<String> = leaves
        .iter()
        .map(|leaf| {
            if leaf.slice.is_some() {
                format!("a pointer of shape {}", leaf.ty.shape)
            } else {
                leaf.ty.to_string()
            }
        })
        .collect();
    if let [one] = parts.as_slice() { one.clone() } else { format!("({})", parts.join(", ")) }
}

impl Operand {
    fn item_name(&self) -> &'static str {
        match self.item {
            Item::List(_) => "a list",
            Item::Text(_) => "a string",
            Item::Range(_) => "a range",
            Item::Unit => "nothing",
            _ => "this value",
        }
    }
}

/// Names that a block assigns and does not declare itself.
fn assigned_names(block: &Block, declared: &mut Vec<String>, found: &mut Vec<String>) {
    let depth = declared.len();
    for statement in &block.statements {
        match statement {
            Statement::Let { pattern, init, .. } => {
                if let Some(init) = init {
                    assigned_in_expr(init, declared, found);
                }
                declare_pattern(pattern, declared);
            }
            Statement::Assign { target, value, .. } => {
                assigned_in_expr(value, declared, found);
                let name = target.to_string();
                if !declared.contains(&name) && !found.contains(&name) {
                    found.push(name);
                }
            }
            Statement::For { var, body, .. } => {
                let inner = declared.len();
                declared.extend(var.iter().map(Ident::to_string));
                assigned_names(body, declared, found);
                declared.truncate(inner);
            }
            Statement::While { body, .. } => assigned_names(body, declared, found),
            Statement::Expr(expr) => assigned_in_expr(expr, declared, found),
        }
    }
    if let Some(value) = &block.value {
        assigned_in_expr(value, declared, found);
    }
    declared.truncate(depth);
}

fn declare_pattern(pattern: &Pattern, declared: &mut Vec<String>) {
    match pattern {
        Pattern::Name { name, .. } => declared.push(name.to_string()),
        Pattern::Ignore(_) => {}
        Pattern::Tuple { parts, .. } => parts.iter().for_each(|part| declare_pattern(part, declared)),
    }
}

fn assigned_in_expr(expr: &Expr, declared: &mut Vec<String>, found: &mut Vec<String>) {
    match &expr.kind {
        ExprKind::If { then, otherwise, .. } => {
            assigned_names(then, declared, found);
            if let Some(otherwise) = otherwise {
                assigned_names(otherwise, declared, found);
            }
        }
        ExprKind::Block(block) => assigned_names(block, declared, found),
        ExprKind::Unary { operand, .. } | ExprKind::Cast { operand, .. } => {
            assigned_in_expr(operand, declared, found)
        }
        ExprKind::Binary { lhs, rhs, .. } | ExprKind::Logic { lhs, rhs, .. } => {
            assigned_in_expr(lhs, declared, found);
            assigned_in_expr(rhs, declared, found);
        }
        ExprKind::Call { args, .. } | ExprKind::Tuple(args) | ExprKind::Array(args) => {
            args.iter().for_each(|arg| assigned_in_expr(arg, declared, found));
        }
        ExprKind::Method { receiver, args, .. } => {
            assigned_in_expr(receiver, declared, found);
            args.iter().for_each(|arg| assigned_in_expr(arg, declared, found));
        }
        ExprKind::Range { low, high, .. } => {
            assigned_in_expr(low, declared, found);
            assigned_in_expr(high, declared, found);
        }
        ExprKind::Int { .. }
        | ExprKind::Float { .. }
        | ExprKind::Bool(_)
        | ExprKind::Text(_)
        | ExprKind::Path(_)
        | ExprKind::Error => {}
    }
}
