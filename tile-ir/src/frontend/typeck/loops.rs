//! Loops, and the variables that they carry from one iteration to the next.

use proc_macro2::Ident;

use super::carried::CarriedValue;
use super::scope::{Slot, Variable};
use super::{Check, ErrorLoc, Item, Literal, LiteralValue, Operand, Range};
use crate::frontend::syntax::{BlockExpr, COUNT_DOWN, Expr, Place, foreign_help};
use crate::ir::{Type, Value};
use crate::ops::{ConstantValue, For, While};
use crate::support::diagnostic::{Diagnostic, Loc};
use crate::support::dtype::DType;

/// How often a `static_range` may repeat its body.
const MAX_UNROLLED: i128 = 4096;

/// How many operations a `static_range` may make: compile time grows faster than their number.
const MAX_OPERATIONS: usize = 20_000;

/// How deep loops may nest: a loop whose carried literals change their type is checked twice.
const MAX_NESTED: u32 = 12;

/// A `static_range`, whose ends and step are constants.
struct StaticRange {
    low: i128,
    /// Behind the last value.
    high: i128,
    step: i128,
    loc: Loc,
}

impl Check<'_> {
    pub(super) fn for_loop(&mut self, var: Option<&Ident>, range: &Expr, body: &BlockExpr, loc: Loc) {
        let operand = self.expr(range);
        let range_loc = operand.loc;
        self.warn_of_empty_range(range, &operand);
        let range = match operand.item {
            Item::Range(range) => range,
            Item::Failed => return self.skip_loop(var, body, loc),
            _ => {
                let text = format!("`for` runs over a range, found {}", self.describe(&operand));
                let help = match operand.item {
                    Item::Value(value) if !self.ty(value).is_scalar() => foreign_help("iter", Place::Method),
                    Item::Slice(_) | Item::View(_) => foreign_help("iter", Place::Method),
                    _ => None,
                };
                let ranges = || "write `0..n`, `(0..n).step_by(BLOCK)` or `tl::range(0, n, BLOCK)`".into();
                self.error_help(operand.loc, text, help.unwrap_or_else(ranges));
                return self.skip_loop(var, body, loc);
            }
        };
        if range.unrolled {
            return match self.static_range(&range, range_loc) {
                Some(range) => self.unrolled_loop(var, range, body, loc),
                None => self.skip_loop(var, body, loc),
            };
        }
        let one = Operand::integer(1, range_loc);
        let step = range.step.as_deref().cloned().unwrap_or(one);
        let Some((dtype, [low, high, step])) = self.range_ends([&*range.low, &*range.high, &step], range_loc)
        else {
            return self.skip_loop(var, body, loc);
        };
        let (closed, hints) = (range.closed, range.hints);
        self.carried_loop(var, body, loc, |check, inits| {
            let args: Vec<Type> = std::iter::once(Type::scalar(dtype))
                .chain(inits.iter().map(|&init| check.ty(init).clone()))
                .collect();
            let args = check.begin_block(args);
            check.scopes.enter();
            if let Some(var) = var {
                let operand = Operand::value(args[0], Loc::of(var));
                check.scopes.bind(&var.to_string(), operand, false);
            }
            LoopFrame {
                carried: args[1..].to_vec(),
                finish: Box::new(move |check, inits, body, types| {
                    check.push(For { low, high, step, closed, inits, body, hints }, types, loc)
                }),
            }
        });
    }

    /// The ends and the step of a range, as scalars of one type.
    fn range_ends(&mut self, ends: [&Operand; 3], loc: Loc) -> Option<(DType, [Value; 3])> {
        const NAMES: [&str; 3] = ["the start of a range", "the end of a range", "the step of a range"];
        let mut good = true;
        for (end, name) in ends.into_iter().zip(NAMES) {
            let ty = match &end.item {
                Item::Value(value) => self.ty(*value).clone(),
                Item::Literal(literal) => Type::scalar(literal.default_type()),
                Item::Failed => return None,
                _ => {
                    let found = self.describe(end);
                    self.error(end.loc, format!("{name} is an integer, found {found}"));
                    good = false;
                    continue;
                }
            };
            if !ty.is_scalar() {
                let help = "a loop runs for the program as a whole: reduce the tile, `tl::max(x, 0)`";
                self.error_help(end.loc, format!("{name} is a scalar, found a tile of type {ty}"), help);
                good = false;
            } else if !matches!(ty.dtype, DType::I32 | DType::I64) {
                self.error_help(
                    end.loc,
                    format!("{name} is `i32` or `i64`, found {ty}"),
                    "convert it: `as i32`",
                );
                good = false;
            }
        }
        good &= !self.report_step(ends[2]);
        if !good {
            return None;
        }
        let dtype = self.common_type("a range", ErrorLoc::Here(loc), &ends)?;
        let [low, high, step] = ends.map(|end| self.value_as(end, dtype, "an end of this range"));
        Some((dtype, [low?, high?, step?]))
    }

    /// Whether the step of a range is a constant below 1, which is reported.
    fn report_step(&mut self, step: &Operand) -> bool {
        let Some(value) = step.as_integer().filter(|value| *value < 1) else { return false };
        let text = format!("the step of a range is at least 1, found {value}");
        if value == 0 {
            self.error(step.loc, text);
        } else {
            self.error_help(step.loc, text, COUNT_DOWN);
        }
        true
    }

    pub(super) fn while_loop(&mut self, condition: &Expr, body: &BlockExpr, loc: Loc) {
        if !self.slots_assigned_in(condition).is_empty() {
            let help = "change it in the body, and test what it has become";
            self.error_help(condition.loc, "the condition of a `while` changes no variable", help);
            return;
        }
        let mut test_block = None;
        self.carried_loop(None, body, loc, |check, inits| {
            let types: Vec<Type> = inits.iter().map(|&init| check.ty(init).clone()).collect();
            let args = check.begin_block(types.clone());
            // The condition is checked with the variables as the test sees them.
            check.set_carried(&args);
            let carried = check.scopes.carried.clone();
            let operand = check.expr(condition);
            // A function that the condition calls may have loops of its own.
            check.scopes.carried = carried;
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

    fn unrolled_loop(&mut self, var: Option<&Ident>, range: StaticRange, body: &BlockExpr, loc: Loc) {
        let StaticRange { low, high, step, .. } = range;
        let trip_count = (high - low + step - 1) / step;
        let made = self.func().value_count();
        let mut index = low;
        while index < high {
            if self.report_length(range.loc, (trip_count, (index - low) / step), made) {
                let slots = self.assigned_slots(std::iter::once(body));
                return self.poison(&slots, loc);
            }
            self.scopes.enter();
            if let Some(var) = var {
                let operand = Operand::integer(index, Loc::of(var));
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

    /// Reports a `static_range` whose `done` iterations have made too many operations.
    fn report_length(&mut self, loc: Loc, (trip_count, done): (i128, i128), before: usize) -> bool {
        let made = self.func().value_count() - before;
        if made <= MAX_OPERATIONS {
            return false;
        }
        let about = made as i128 / done.max(1) * trip_count;
        self.error_help(
            loc,
            format!("this `static_range` makes about {about} operations in {trip_count} turns: at most {MAX_OPERATIONS}"),
            "`tl::range` makes a loop",
        );
        true
    }

    /// The constants of a `static_range`.
    fn static_range(&mut self, range: &Range, loc: Loc) -> Option<StaticRange> {
        let low = self.constant(&range.low, "the start of a `static_range`");
        let high = self.constant(&range.high, "the end of a `static_range`");
        let step =
            range.step.as_deref().map_or(Some(1), |step| self.constant(step, "the step of a `static_range`"));
        let (low, high, step) = (low?, high? + i128::from(range.closed), step?);
        if step < 1 {
            let step_loc = range.step.as_ref().map_or(loc, |step| step.loc);
            let text = format!("the step of a `static_range` is at least 1, found {step}");
            if step == 0 {
                self.error(step_loc, text);
            } else {
                self.error_help(step_loc, text, COUNT_DOWN);
            }
            return None;
        }
        if (high - low) / step > MAX_UNROLLED {
            self.error_help(
                range.high.loc,
                format!("a `static_range` repeats its body at most {MAX_UNROLLED} times"),
                "`tl::range` makes a loop",
            );
            return None;
        }
        Some(StaticRange { low, high, step, loc })
    }

    /// Checks a loop's body once for its own mistakes after its range or condition failed.
    fn skip_loop(&mut self, var: Option<&Ident>, body: &BlockExpr, loc: Loc) {
        let slots = self.assigned_slots(std::iter::once(body));
        self.poison(&slots, loc);
        self.scopes.enter();
        if let Some(var) = var {
            let failed = Operand::failed(loc);
            self.scopes.bind(&var.to_string(), failed, false);
        }
        self.block(body);
        self.scopes.leave();
        self.poison(&slots, loc);
    }

    /// A loop that carries the outer variables its body assigns. `open` begins the body's block with the carried values
    /// as arguments and enters its scope; what it returns closes the loop.
    fn carried_loop<'f>(
        &mut self,
        var: Option<&Ident>,
        body: &BlockExpr,
        loc: Loc,
        mut open: impl FnMut(&mut Self, &[Value]) -> LoopFrame<'f, Self>,
    ) {
        if self.loop_depth == MAX_NESTED {
            self.error(loc, format!("loops nest at most {MAX_NESTED} deep"));
            let slots = self.assigned_slots(std::iter::once(body));
            return self.poison(&slots, loc);
        }
        self.loop_depth += 1;
        self.infer_carried_types(var, body, loc, &mut open);
        self.loop_depth -= 1;
    }

    /// Checks the body until the types of the carried variables reach a fixpoint.
    fn infer_carried_types<'f>(
        &mut self,
        var: Option<&Ident>,
        body: &BlockExpr,
        loc: Loc,
        open: &mut dyn FnMut(&mut Self, &[Value]) -> LoopFrame<'f, Self>,
    ) {
        let slots: Vec<Slot> = self.assigned_slots(std::iter::once(body));
        let names = self.slot_names(&slots, body, None);
        let before: Vec<Variable> = slots.iter().map(|&slot| self.scopes.get(slot).clone()).collect();
        let carried: Vec<usize> = (0..slots.len()).filter(|&i| before[i].operand.is_some()).collect();
        let mut inits: Vec<Operand> = carried.iter().filter_map(|&i| before[i].operand.clone()).collect();
        if inits.iter().any(|init| matches!(init.item, Item::Failed)) {
            return self.skip_loop(var, body, loc);
        }
        // A carried variable that starts as a bare literal takes the type of its first assignment.
        for attempt in 0..2 {
            let mark = self.builder.mark();
            let (errors, warnings) = (self.errors.len(), self.warnings.len());
            self.begin_carried(&slots, &carried, &inits);
            let Some(init_values) = self.flatten_all(&inits) else {
                return self.skip_loop(var, body, loc);
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
                && let Some(retyped) = self.retype_literals(&inits, &finals)
            {
                self.builder.rewind(mark);
                self.errors.truncate(errors);
                self.warnings.truncate(warnings);
                self.restore(&slots, &before);
                inits = retyped;
                continue;
            }
            let mut yields = vec![];
            let mut good = self.errors.len() == errors;
            for (k, init) in inits.iter().enumerate() {
                let loc = assigned[k].unwrap_or(loc);
                match &finals[k] {
                    Some(operand) => match self.yield_carried(&names[carried[k]], init, operand, loc) {
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
    fn begin_carried(&mut self, slots: &[Slot], carried: &[usize], inits: &[Operand]) {
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
    fn retype_literals(&mut self, inits: &[Operand], finals: &[Option<Operand>]) -> Option<Vec<Operand>> {
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
    fn yield_carried(&mut self, name: &str, init: &Operand, last: &Operand, loc: Loc) -> Option<Vec<Value>> {
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
        let (from, to) = (self.describe_leaves(&wanted), self.describe_leaves(&found));
        let mut diagnostic = Diagnostic {
            loc,
            message: format!("`{name}` is {from} before the loop and {to} at the end of its body"),
            help: None,
            note: Some("a variable that a loop carries keeps its type and shape".into()),
        };
        let whole = match init.item {
            Item::Literal(Literal { value: LiteralValue::Number(ConstantValue::Int(value)), .. }) => {
                Some(value)
            }
            _ => None,
        };
        if let ([a @ CarriedValue { slice: None, .. }], [b @ CarriedValue { slice: None, .. }]) =
            (wanted.as_slice(), found.as_slice())
        {
            diagnostic.help = if let Some(value) = whole.filter(|_| b.ty.is_scalar() && b.ty.dtype.is_float())
            {
                Some(format!("start with a float: `{value}.0`"))
            } else if a.ty.shape == b.ty.shape {
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
}

/// A loop whose body is open.
struct LoopFrame<'f, C> {
    /// Block arguments for the carried values.
    carried: Vec<Value>,
    /// Given the initial values, the closed body and the carried types: builds the loop.
    finish: Box<Finish<'f, C>>,
}

type Finish<'f, C> = dyn FnOnce(&mut C, Vec<Value>, crate::ir::Block, Vec<Type>) -> Vec<Value> + 'f;
