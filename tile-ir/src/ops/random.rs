//! Random numbers that are a function of a seed and a counter: Philox-4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw,
//! *Parallel random numbers: as easy as 1, 2, 3*, SC 2011).
//!
//! The key is the seed; a block of four words belongs to each counter. Element `offset` of the stream of a seed is word
//! `offset % 4` of the block whose counter is `offset / 4`, so that four contiguous elements cost one block.

use super::typing::{Call, Item, Operand, TypingCx};
use super::{ConstantValue, Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, required};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, TextReader, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// How a word is converted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RandomForm {
    /// The 32 bits, a `u32`.
    Bits,
    /// Its upper 23 bits as a multiple of `2^-23` in `[0, 1)`, an `f32`.
    Uniform,
}

impl RandomForm {
    fn dtype(self) -> DType {
        match self {
            RandomForm::Bits => DType::U32,
            RandomForm::Uniform => DType::F32,
        }
    }
}

impl FieldText for RandomForm {
    fn write(&self, out: &mut TextWriter) {
        out.word(match self {
            RandomForm::Bits => "bits",
            RandomForm::Uniform => "uniform",
        });
    }

    fn read(input: &mut TextReader) -> Result<RandomForm, ParseError> {
        input.one_of(&[("bits", RandomForm::Bits), ("uniform", RandomForm::Uniform)])
    }
}

/// Which word of an offset's block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordChoice {
    /// The offset's own.
    Own,
    /// The first of the pair that the offset's own belongs to.
    First,
    /// The second of that pair.
    Second,
}

impl WordChoice {
    /// The word of an offset that is `own` modulo 4.
    pub fn word(self, own: usize) -> usize {
        match self {
            WordChoice::Own => own,
            WordChoice::First => own & 2,
            WordChoice::Second => own | 1,
        }
    }
}

impl FieldText for WordChoice {
    fn write(&self, out: &mut TextWriter) {
        out.word(match self {
            WordChoice::Own => "own",
            WordChoice::First => "first",
            WordChoice::Second => "second",
        });
    }

    fn read(input: &mut TextReader) -> Result<WordChoice, ParseError> {
        let named = [("own", WordChoice::Own), ("first", WordChoice::First), ("second", WordChoice::Second)];
        input.one_of(&named)
    }
}

/// The words of a counter.
impl FieldText for [Value; 4] {
    fn write(&self, out: &mut TextWriter) {
        self.to_vec().write(out);
    }

    fn read(input: &mut TextReader) -> Result<[Value; 4], ParseError> {
        let first = input.value()?;
        let mut words = [first; 4];
        for word in &mut words[1..] {
            input.expect(",")?;
            *word = input.value()?;
        }
        Ok(words)
    }
}

/// An element of a seed's stream for every offset.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// A `u64` scalar.
    pub seed: Value,
    /// Integers, taken as 64 bits.
    pub offset: Value,
    pub pick: WordChoice,
    pub form: RandomForm,
}

/// One word of the block of a counter.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    /// A `u64` scalar.
    pub seed: Value,
    /// `u32`, the lowest word first.
    pub counter: [Value; 4],
    pub word: u8,
    pub form: RandomForm,
}

syntax!(Random: "random" seed, offset [form] ["word" pick]);

impl Operation for Random {
    fn operands(&self) -> Vec<Value> {
        vec![self.seed, self.offset]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.seed = change(self.seed);
        self.offset = change(self.offset);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the seed", func.ty(self.seed), &Type::scalar(DType::U64))?;
        let offset = func.ty(self.offset);
        if !offset.dtype.is_integer() {
            return Err(format!("offsets are {}", offset.dtype));
        }
        expect_types("the result", func.ty(results[0]), &offset.with(self.form.dtype()))
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        vec![shared_constancy(env, &[self.offset], results[0])]
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

syntax!(Philox: "philox" seed, counter [form] [word]);

impl Operation for Philox {
    fn operands(&self) -> Vec<Value> {
        [self.seed].into_iter().chain(self.counter).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.seed = change(self.seed);
        self.counter = self.counter.map(change);
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        expect_types("the seed", func.ty(self.seed), &Type::scalar(DType::U64))?;
        let result = func.ty(results[0]);
        expect_types("the result's type", result.dtype, self.form.dtype())?;
        for &word in &self.counter {
            expect_types("the counter", func.ty(word), &result.with(DType::U32))?;
        }
        if self.word < 4 { Ok(()) } else { Err(format!("word {} of four", self.word)) }
    }

    fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        vec![shared_constancy(env, &self.counter, results[0])]
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

/// Equal operands give equal words; nothing else is known of them.
fn shared_constancy(env: &dyn AxisEnv, operands: &[Value], result: Value) -> AxisInfo {
    let mut info = AxisInfo::unknown(env.func().ty(result));
    for (d, axis) in info.axes.iter_mut().enumerate() {
        let constancies = operands.iter().map(|&operand| env.info(operand).axes[d].constancy);
        axis.constancy = constancies.min().unwrap_or(1);
    }
    info
}

const STREAM: &[super::IntrinsicParam] = &[required("seed"), required("offset")];

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "rand",
        returns: Returns::Tile,
        example: "let keep = tl::rand(seed, tl::arange(0, BLOCK)) >= 0.1;\ntl::store(out + tl::arange(0, BLOCK), tl::select(keep, tile / 0.9, 0.0));",
        generic: IntrinsicGeneric::None,
        params: STREAM,
        doc: "Uniform `f32` numbers in `[0, 1)`, multiples of `2^-23`: one for each element of `offset`, an integer tile. A number depends on `(seed, offset)` alone, so a backward pass that names the same ones gets the same numbers, on every device, at every tile size. Seed and offset count as 64 bits; a signed one is extended by its sign. Element `offset` is word `offset % 4` of the Philox-4x32-10 block whose counter is `offset / 4` and whose key is `seed`; four neighboring offsets cost one block.",
        check: |cx, call| stream(cx, call, RandomForm::Uniform),
    },
    Intrinsic {
        name: "randint",
        returns: Returns::Tile,
        example: "let words = tl::randint(seed, tl::arange(0, BLOCK));\nlet dice = words % 6;",
        generic: IntrinsicGeneric::None,
        params: STREAM,
        doc: "Uniform `u32` numbers over the whole range, one for each element of `offset`: the bits that `tl::rand` is made of.",
        check: |cx, call| stream(cx, call, RandomForm::Bits),
    },
    Intrinsic {
        name: "randn",
        returns: Returns::Tile,
        example: "let noise = tl::randn(seed, tl::arange(0, BLOCK));",
        generic: IntrinsicGeneric::None,
        params: STREAM,
        doc: "Normal `f32` numbers of mean 0 and deviation 1, one for each element of `offset`, by Box and Muller's transform of the block's words: with uniform `u` and `v` of a pair of words, `sqrt(-2 ln(1 - u))` times the cosine of `2 pi v` for the even offset and its sine for the odd one. The largest is 5.6. The words are the same on every device; the result is within 3e-6 of the transform of exact numbers.",
        check: randn,
    },
    Intrinsic {
        name: "rand4x",
        returns: Returns::Tuple(4),
        example: "let (a, b, c, d) = tl::rand4x(seed, tl::arange(0, BLOCK));",
        generic: IntrinsicGeneric::None,
        params: STREAM,
        doc: "Four tiles of uniform `f32` numbers in `[0, 1)` from one Philox block each: the `j`th is `tl::rand(seed, 4 * offset + j)`.",
        check: |cx, call| block(cx, call, RandomForm::Uniform),
    },
    Intrinsic {
        name: "randint4x",
        returns: Returns::Tuple(4),
        example: "let (a, b, c, d) = tl::randint4x(seed, tl::arange(0, BLOCK));",
        generic: IntrinsicGeneric::None,
        params: STREAM,
        doc: "Four tiles of uniform `u32` numbers from one Philox block each: the `j`th is `tl::randint(seed, 4 * offset + j)`.",
        check: |cx, call| block(cx, call, RandomForm::Bits),
    },
    Intrinsic {
        name: "philox",
        returns: Returns::Tuple(4),
        example: "let index = tl::arange(0, BLOCK).to::<u32>();\nlet (a, b, c, d) = tl::philox(seed, index, 0, 0, 0);",
        generic: IntrinsicGeneric::None,
        params: &[required("seed"), required("c0"), required("c1"), required("c2"), required("c3")],
        doc: "The four `u32` words of the Philox-4x32-10 block of a counter of four `u32` words, `c0` the lowest, under the 64-bit key `seed`. The words broadcast to one shape.",
        check: philox,
    },
];

fn stream(cx: &mut dyn TypingCx, call: &Call, form: RandomForm) -> Operand {
    let Some((seed, offset)) = seed_and_offset(cx, call) else { return Operand::failed(call.loc) };
    let value = element(cx, call, Random { seed, offset, pick: WordChoice::Own, form });
    Operand::value(value, call.loc)
}

fn element(cx: &mut dyn TypingCx, call: &Call, random: Random) -> Value {
    let ty = cx.ty(random.offset).with(random.form.dtype());
    cx.push(random, vec![ty], call.loc)[0]
}

fn seed_and_offset(cx: &mut dyn TypingCx, call: &Call) -> Option<(Value, Value)> {
    let seed = seed(cx, call);
    let offset = cx.value(&call.args[1])?;
    let ty = cx.ty(offset).clone();
    if !ty.dtype.is_integer() {
        let text = format!("the offsets of {} are integers, found {ty}", call.what);
        cx.error_help(call.args[1].loc, text, "number the elements: `base + tl::arange(0, BLOCK)`");
        return None;
    }
    Some((seed?, offset))
}

/// The seed as a `u64` scalar.
fn seed(cx: &mut dyn TypingCx, call: &Call) -> Option<Value> {
    let operand = &call.args[0];
    if let Item::Literal(_) = operand.item {
        return cx.value_as(operand, DType::U64, "a seed");
    }
    let value = cx.value(operand)?;
    let ty = cx.ty(value).clone();
    if !ty.is_scalar() || !ty.dtype.is_integer() {
        let text = format!("the seed of {} is an integer scalar, found {ty}", call.what);
        cx.error_help(operand.loc, text, "what differs between elements goes into the offset");
        return None;
    }
    Some(cx.convert(value, DType::U64, call.loc))
}

/// A constant in every element of a tile like another.
fn constant_like(cx: &mut dyn TypingCx, call: &Call, value: ConstantValue, like: Value) -> Value {
    let ty = cx.ty(like).clone();
    cx.filled(value, &ty, call.loc)
}

fn block(cx: &mut dyn TypingCx, call: &Call, form: RandomForm) -> Operand {
    let Some((seed, offset)) = seed_and_offset(cx, call) else { return Operand::failed(call.loc) };
    let wide = cx.convert(offset, DType::U64, call.loc);
    let low = cx.convert(wide, DType::U32, call.loc);
    let shift = constant_like(cx, call, ConstantValue::Int(32), wide);
    let high = cx.row("shr", &[wide, shift], call.loc);
    let high = cx.convert(high, DType::U32, call.loc);
    let zero = constant_like(cx, call, ConstantValue::Int(0), low);
    words(cx, call, seed, [low, high, zero, zero], form)
}

fn words(cx: &mut dyn TypingCx, call: &Call, seed: Value, counter: [Value; 4], form: RandomForm) -> Operand {
    let ty = cx.ty(counter[0]).with(form.dtype());
    let words =
        (0..4).map(|word| cx.emit(Philox { seed, counter, word, form }, ty.clone(), call.loc)).collect();
    Operand::new(Item::Tuple(words), call.loc)
}

fn philox(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let seed = seed(cx, call);
    let counter: Vec<Option<Value>> = call.args[1..]
        .iter()
        .map(|operand| cx.value_as(operand, DType::U32, "a word of the counter"))
        .collect();
    let counter: Option<Vec<Value>> = counter.into_iter().collect();
    let (Some(seed), Some(mut counter)) = (seed, counter) else { return Operand::failed(call.loc) };
    if cx.common_shape(&call.what, call.loc, &mut counter).is_none() {
        return Operand::failed(call.loc);
    }
    let counter = [counter[0], counter[1], counter[2], counter[3]];
    words(cx, call, seed, counter, RandomForm::Bits)
}

/// `sqrt(-2 ln(1 - u)) * sin(2 pi (v + 1/4))` for even offsets, without the quarter for odd ones.
fn randn(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some((seed, offset)) = seed_and_offset(cx, call) else { return Operand::failed(call.loc) };
    let [u, v] = [WordChoice::First, WordChoice::Second]
        .map(|pick| element(cx, call, Random { seed, offset, pick, form: RandomForm::Uniform }));
    let [one, minus_two, quarter, zero, tau] = [1.0, -2.0, 0.25, 0.0, std::f64::consts::TAU]
        .map(|value| constant_like(cx, call, ConstantValue::Float(f64::from(value as f32)), u));
    let rest = cx.row("sub", &[one, u], call.loc);
    let log = cx.row("log", &[rest], call.loc);
    let square = cx.row("mul", &[minus_two, log], call.loc);
    let radius = cx.row("sqrt", &[square], call.loc);
    let bit = constant_like(cx, call, ConstantValue::Int(1), offset);
    let odd = cx.row("and", &[offset, bit], call.loc);
    let even = constant_like(cx, call, ConstantValue::Int(0), offset);
    let odd = cx.row("ne", &[odd, even], call.loc);
    let phase = cx.row("select", &[odd, zero, quarter], call.loc);
    let revolutions = cx.row("add", &[v, phase], call.loc);
    let angle = cx.row("mul", &[revolutions, tau], call.loc);
    let sine = cx.row("sin", &[angle], call.loc);
    let value = cx.row("mul", &[radius, sine], call.loc);
    Operand::value(value, call.loc)
}
