//! Loops and branches. Everything they decide on is a scalar, so a whole program takes the same way.

use super::debug::report_placeholder;
use super::typing::{Call, Item, Operand, Range, TypingCx};
use super::{
    Effect, Intrinsic, IntrinsicGeneric, MethodChoice, Operation, Returns, expect_types, optional, required,
};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, OperationText, TextWriter};
use crate::ir::{Block, Func, ParseError, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// `for i in low, low + step .. high` with carried values, or `..=high`. A step below 1 counts as 1; the loop variable
/// never passes `high`, also at the end of its type's range.
#[derive(Clone, Debug)]
pub struct For {
    pub low: Value,
    pub high: Value,
    pub step: Value,
    /// Whether `high` itself is one of the values, which may be the last of its type.
    pub closed: bool,
    pub inits: Vec<Value>,
    /// Takes the loop variable, then the carried values; yields the carried values.
    pub body: Block,
    /// What the user asked of the loop.
    pub hints: LoopHints,
}

impl For {
    /// Removes the carried value at a position, whose result the caller removes.
    pub fn drop_carried(&mut self, position: usize) {
        self.inits.remove(position);
        self.body.args.remove(position + 1);
        self.body.yields.remove(position);
    }
}

/// Requests on a loop; they change its speed, never its result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LoopHints {
    pub num_stages: Option<u32>,
    pub unroll: Option<u32>,
}

/// Two blocks, one of which runs.
#[derive(Clone, Debug)]
pub struct If {
    pub condition: Value,
    pub then: Block,
    pub otherwise: Block,
    /// Whether dots are in flight from one iteration of a loop inside to the next; only a GPU's schedule says so.
    pub overlapped: bool,
}

impl If {
    pub fn new(condition: Value, then: Block, otherwise: Block) -> If {
        If { condition, then, otherwise, overlapped: false }
    }
}

/// `while` with carried values: `test` takes them and yields the condition, `body` takes and yields them.
#[derive(Clone, Debug)]
pub struct While {
    pub inits: Vec<Value>,
    pub test: Block,
    pub body: Block,
}

fn types<'f>(func: &'f Func, values: &[Value]) -> Vec<&'f Type> {
    values.iter().map(|&value| func.ty(value)).collect()
}

fn same_types(what: &str, func: &Func, found: &[Value], wanted: &[Value]) -> Result<(), String> {
    let (found, wanted) = (types(func, found), types(func, wanted));
    if found == wanted { Ok(()) } else { Err(format!("{what} are {found:?}, expected {wanted:?}")) }
}

/// The values at one index of each list.
fn tied(lists: &[&[Value]]) -> Vec<Vec<Value>> {
    (0..lists[0].len()).map(|i| lists.iter().map(|list| list[i]).collect()).collect()
}

impl OperationText for For {
    fn name(&self) -> &'static str {
        "for"
    }

    fn write(&self, out: &mut TextWriter) {
        self.low.write(out);
        out.push(if self.closed { "..=" } else { ".." });
        out.name(self.high);
        out.attribute("step", &self.step);
        out.attribute("carry", &self.inits);
        out.attribute("num_stages", &self.hints.num_stages);
        out.attribute("unroll", &self.hints.unroll);
    }

    fn is_named(name: &str) -> bool {
        name == "for"
    }

    fn read(_: &str, input: &mut TextReader) -> Result<For, ParseError> {
        let low = input.value()?;
        let closed = input.one_of(&[("..", false), ("..=", true)])?;
        let high = input.value()?;
        let (step, inits) = (input.attribute("step")?, input.attribute("carry")?);
        let (num_stages, unroll) = (input.attribute("num_stages")?, input.attribute("unroll")?);
        let hints = LoopHints { num_stages, unroll };
        Ok(For { low, high, step, closed, inits, body: Block::default(), hints })
    }
}

impl Operation for For {
    fn result_count(&self) -> usize {
        self.inits.len()
    }

    fn block_args(&self, func: &Func, _: usize) -> Vec<Type> {
        [self.low].iter().chain(&self.inits).map(|&value| func.ty(value).clone()).collect()
    }

    fn operands(&self) -> Vec<Value> {
        [self.low, self.high, self.step].into_iter().chain(self.inits.iter().copied()).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        for value in [&mut self.low, &mut self.high, &mut self.step].into_iter().chain(&mut self.inits) {
            *value = change(*value);
        }
    }

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.body]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.body]
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let ty = func.ty(self.low);
        if !matches!(ty.dtype, DType::I32 | DType::I64) || !ty.is_scalar() {
            return Err(format!("the range is of type {ty}"));
        }
        same_types(
            "the range's ends and step",
            func,
            &[self.high, self.step, self.body.args[0]],
            &[self.low; 3],
        )?;
        same_types("the body's arguments", func, &self.body.args[1..], &self.inits)?;
        same_types("the body's yields", func, &self.body.yields, &self.inits)?;
        same_types("the results", func, results, &self.inits)
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        let (low, high, step) = (env.info(self.low), env.info(self.high), env.info(self.step));
        let last = high.range.1.saturating_sub((!self.closed).into()).max(low.range.0);
        // One that may be below 1 may stand for 1.
        let step = if step.range.0 >= 1 { step.divisor } else { 1 };
        let variable = AxisInfo { axes: vec![], divisor: low.divisor.min(step), range: (low.range.0, last) };
        env.set(self.body.args[0], variable);
        env.carry(&self.inits, &self.body.args[1..], &self.body)
    }

    fn layout_relation(&self, _: &Func, results: &[Value]) -> LayoutRelation {
        let body = &self.body;
        LayoutRelation::Tied(tied(&[&self.inits, &body.args[1..], &body.yields, results]))
    }
}

syntax!(If: "if" condition [overlapped] {then: Block::default()} {otherwise: Block::default()});

impl Operation for If {
    fn result_count(&self) -> usize {
        self.then.yields.len()
    }

    fn operands(&self) -> Vec<Value> {
        vec![self.condition]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.condition = change(self.condition);
    }

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.then, &self.otherwise]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.then, &mut self.otherwise]
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the condition", func.ty(self.condition), &Type::scalar(DType::Bool))?;
        same_types("the yields of `then`", func, &self.then.yields, results)?;
        same_types("the yields of `else`", func, &self.otherwise.yields, results)
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        env.block(&self.then);
        env.block(&self.otherwise);
        let pairs = self.then.yields.iter().zip(&self.otherwise.yields);
        pairs.map(|(&a, &b)| env.info(a).meet(&env.info(b))).collect()
    }

    fn layout_relation(&self, _: &Func, results: &[Value]) -> LayoutRelation {
        LayoutRelation::Tied(tied(&[&self.then.yields, &self.otherwise.yields, results]))
    }
}

syntax!(While: "while" ["carry" inits] {test: Block::default()} {body: Block::default()});

impl Operation for While {
    fn result_count(&self) -> usize {
        self.inits.len()
    }

    fn block_args(&self, func: &Func, _: usize) -> Vec<Type> {
        self.inits.iter().map(|&value| func.ty(value).clone()).collect()
    }

    fn operands(&self) -> Vec<Value> {
        self.inits.clone()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.inits.iter_mut().for_each(|init| *init = change(*init));
    }

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.test, &self.body]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.test, &mut self.body]
    }

    fn effect(&self) -> Effect {
        // Removing a loop that might not end would change what the kernel does.
        Effect::Write
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        same_types("the test's arguments", func, &self.test.args, &self.inits)?;
        expect_types("the test's yields", self.test.yields.len(), 1)?;
        expect_types("the condition", func.ty(self.test.yields[0]), &Type::scalar(DType::Bool))?;
        same_types("the body's arguments", func, &self.body.args, &self.inits)?;
        same_types("the body's yields", func, &self.body.yields, &self.inits)?;
        same_types("the results", func, results, &self.inits)
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, _: &[Value]) -> Vec<AxisInfo> {
        let carried = env.carry(&self.inits, &self.body.args, &self.body);
        for (&arg, info) in self.test.args.iter().zip(&carried) {
            env.set(arg, info.clone());
        }
        env.block(&self.test);
        carried
    }

    fn layout_relation(&self, _: &Func, results: &[Value]) -> LayoutRelation {
        LayoutRelation::Tied(tied(&[
            &self.inits,
            &self.test.args,
            &self.body.args,
            &self.body.yields,
            results,
        ]))
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "range",
        returns: Returns::Range,
        example: "for start in tl::range(0, n, BLOCK) {\n    tl::store(out + start + tl::arange(0, BLOCK), tile);\n}",
        generic: IntrinsicGeneric::None,
        params: &[required("start"), required("end"), optional("step")],
        doc: "A range for `for`: `start, start + step, ..` below `end`, which `start..end` is too; `start..=end` includes `end`. Ends and step are scalars of one type, `i32` or `i64`. A constant step is at least 1, any other one below 1 counts as 1; to count down, turn the variable: `let i = n - 1 - j;`. `.num_stages(n)` keeps the loads of `n` iterations in flight, `.unroll(n)` repeats the body.",
        check: |_, call| range(call, false),
    },
    Intrinsic {
        name: "static_range",
        returns: Returns::Range,
        example: "for i in tl::static_range(0, 4) {\n    tl::store(out + i * BLOCK + tl::arange(0, BLOCK), tile);\n}",
        generic: IntrinsicGeneric::None,
        params: &[required("start"), required("end"), optional("step")],
        doc: "A range of constants whose loop is unrolled: the loop variable is a constant in the body.",
        check: |_, call| range(call, true),
    },
    Intrinsic {
        name: "static_assert",
        returns: Returns::Nothing,
        example: "tl::static_assert(BLOCK >= 64, \"BLOCK is too small\");",
        generic: IntrinsicGeneric::None,
        params: &[required("condition"), optional("message")],
        doc: "A build error with the message when the constant condition is false: `tl::static_assert(BLOCK >= 128, \"BLOCK is too small\")`.",
        check: static_assert,
    },
    Intrinsic {
        name: "static_print",
        returns: Returns::Nothing,
        example: "tl::static_print(BLOCK);",
        generic: IntrinsicGeneric::None,
        params: &[required("value")],
        doc: "Prints a constant, or the type of a tile, when the kernel is built, once a variant.",
        check: static_print,
    },
];

pub(super) const CHOICES: &[MethodChoice] = &[
    MethodChoice { what: "number of stages", methods: &["num_stages"] },
    MethodChoice { what: "number of repetitions", methods: &["unroll"] },
];

pub(super) const METHODS: &[Intrinsic] = &[
    Intrinsic {
        name: "step_by",
        returns: Returns::Range,
        example: "for start in (0..n).step_by(BLOCK) {\n    tl::store(out + start, 0.0);\n}",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("step")],
        doc: "A range with a step: `(0..n).step_by(BLOCK)`.",
        check: step_by,
    },
    Intrinsic {
        name: "num_stages",
        returns: Returns::Range,
        example: "let mut sum = tile;\nfor start in tl::range(0, n, BLOCK).num_stages(3) {\n    sum += tl::load(x + start + tl::arange(0, BLOCK));\n}",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("stages")],
        doc: "Keeps the loads of that many iterations in flight on a GPU: while one is computed, those of the next ones are copied into shared memory. It helps where iterations wait for memory, and takes shared memory from other programs. Without it the compiler chooses, up to 4, or 1 for a loop that reads a slice the kernel writes; 1 copies nothing ahead. What is copied is tiles whose places follow from the loop variable, not from loaded or carried values. Where the copies take more than 64 KB, those of a later iteration start when this one has read its own, and take the memory of one iteration less; where that is still more than a multiprocessor has, nothing is copied. It changes no result, and on a CPU nothing at all. `num_stages = n` in the attribute or a config is for the loops that do not say.",
        check: |cx, call| hint(cx, call, |hints, n| hints.num_stages = Some(n)),
    },
    Intrinsic {
        name: "unroll",
        returns: Returns::Range,
        example: "for i in tl::range(0, n).unroll(4) {\n    tl::store(out + i, 0.0);\n}",
        generic: IntrinsicGeneric::None,
        params: &[required("self"), required("times")],
        doc: "Repeats the body of the loop that many times between tests; at least 1.",
        check: |cx, call| hint(cx, call, |hints, n| hints.unroll = Some(n)),
    },
];

fn range(call: &Call, unrolled: bool) -> Operand {
    let step = call.args.get(2).cloned();
    let range = Range {
        low: Box::new(call.args[0].clone()),
        high: Box::new(call.args[1].clone()),
        step: step.map(Box::new),
        closed: false,
        unrolled,
        hints: LoopHints::default(),
    };
    Operand::new(Item::Range(range), call.loc)
}

/// The receiver as a range.
fn receiver(cx: &mut dyn TypingCx, call: &Call) -> Option<Range> {
    match &call.args[0].item {
        Item::Range(range) => Some(range.clone()),
        Item::Failed => None,
        _ => {
            cx.error(call.name_loc, format!("{} is a method of ranges", call.what));
            None
        }
    }
}

fn step_by(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(mut range) = receiver(cx, call) else { return Operand::failed(call.loc) };
    if range.step.is_some() {
        return cx.error(call.name_loc, "this range has a step already");
    }
    range.step = Some(Box::new(call.args[1].clone()));
    Operand::new(Item::Range(range), call.loc)
}

fn hint(cx: &mut dyn TypingCx, call: &Call, set: fn(&mut LoopHints, u32)) -> Operand {
    let range = receiver(cx, call);
    let n = cx.constant(&call.args[1], &format!("the argument of {}", call.what));
    let (Some(mut range), Some(n)) = (range, n) else { return Operand::failed(call.loc) };
    if !(1..=64).contains(&n) {
        return cx.error(call.args[1].loc, format!("{} takes 1 to 64, found {n}", call.what));
    }
    set(&mut range.hints, n as u32);
    Operand::new(Item::Range(range), call.loc)
}

fn static_assert(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    if let Item::Value(_) = call.args[0].item {
        let found = cx.describe(&call.args[0]);
        let text = format!("the condition of {} is a constant bool, found {found}", call.what);
        let help = "what is known at a launch is promised with `tl::assume(condition)`, or checked in a debug build with `tl::device_assert(condition)`";
        return cx.error_help(call.args[0].loc, text, help);
    }
    let Some(condition) = cx.flag(&call.args[0], "the condition of `tl::static_assert`") else {
        return Operand::failed(call.loc);
    };
    let message = match call.args.get(1) {
        None => None,
        Some(operand) => match &operand.item {
            Item::Text(text) => {
                let (text, what) = (text.clone(), "the message of `tl::static_assert`");
                if report_placeholder(cx, operand.loc, &text, [what, STATIC_PRINT]) {
                    return Operand::failed(call.loc);
                }
                Some(text)
            }
            _ => return cx.error(operand.loc, "the message of `tl::static_assert` is a string literal"),
        },
    };
    if !condition {
        let text = message
            .map_or_else(|| "static assertion failed".into(), |m| format!("static assertion failed: {m}"));
        return cx.error(call.args[0].loc, text);
    }
    Operand::unit(call.loc)
}

const STATIC_PRINT: &str = "`tl::static_print(N)` prints the value of a constant";

fn static_print(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    if let Item::Text(text) = &call.args[0].item
        && report_placeholder(cx, call.args[0].loc, text, ["the text of `tl::static_print`", STATIC_PRINT])
    {
        return Operand::failed(call.loc);
    }
    cx.print(&call.args[0]);
    Operand::unit(call.loc)
}
