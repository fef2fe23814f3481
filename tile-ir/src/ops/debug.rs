//! Assertions and printed lines of a running kernel, in debug builds alone.
//!
//! Such an operation has a [`Site`], by which the launcher finds the message; everything else about it is in its operands.
//! A release build checks it and drops it.

use super::typing::{Call, Item, Operand, TypingCx};
use super::{
    Effect, Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, optional, required, scalar,
};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::text::{FieldText, OperationText, TextWriter};
use crate::ir::{Func, ParseError, Shape, TextReader, Type, Value};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;
use crate::support::operator::UnaryOp;

/// The part of a message that is known at build; the kernel reports the rest when it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Site {
    Assert {
        /// As written.
        condition: String,
        /// Empty for none.
        message: String,
        shape: Shape,
    },
    /// An assertion that specializations may assume where the launcher can check it.
    Assume {
        condition: String,
    },
    /// An integer does not fit its type: what the kernel attempted, such as `multiply`.
    Overflow {
        verb: &'static str,
        dtype: DType,
        shape: Shape,
    },
    Print {
        label: String,
        shape: Shape,
        dtypes: Vec<DType>,
    },
}

impl Site {
    /// The verbs of [`Site::Overflow`].
    pub const VERBS: [&str; 5] = ["add", "subtract", "multiply", "negate", "sum"];

    pub fn shape(&self) -> Shape {
        match self {
            Site::Assert { shape, .. } | Site::Overflow { shape, .. } | Site::Print { shape, .. } => {
                shape.clone()
            }
            Site::Assume { .. } => Shape::scalar(),
        }
    }
}

/// Reports the launch in which an element does not hold.
#[derive(Clone, Copy, Debug)]
pub struct Assert {
    pub holds: Value,
    /// Of [`Func::sites`].
    pub site: u32,
}

/// Prints a line for each element.
#[derive(Clone, Debug)]
pub struct Print {
    /// Scalars, or tiles of the site's shape.
    pub values: Vec<Value>,
    pub mask: Option<Value>,
    /// Of [`Func::sites`].
    pub site: u32,
}

/// The index of a new site.
fn add_site(input: &mut TextReader, site: Site) -> u32 {
    input.func.sites.push(site);
    input.func.sites.len() as u32 - 1
}

fn site_of(func: &Func, site: u32) -> Result<&Site, String> {
    func.sites.get(site as usize).ok_or_else(|| format!("there is no site {site}"))
}

impl OperationText for Assert {
    fn name(&self) -> &'static str {
        "device_assert"
    }

    fn write(&self, out: &mut TextWriter) {
        self.holds.write(out);
        match site_of(out.func, self.site) {
            Ok(Site::Assert { condition, message, .. }) => {
                out.attribute("condition", condition);
                out.attribute("message", message);
            }
            Ok(Site::Assume { condition }) => out.attribute("assume", condition),
            Ok(Site::Overflow { verb, dtype, .. }) => {
                out.word("overflow");
                out.word(verb);
                out.word(dtype.name());
            }
            Ok(Site::Print { .. }) | Err(_) => {}
        }
    }

    fn is_named(name: &str) -> bool {
        name == "device_assert"
    }

    fn read(_: &str, input: &mut TextReader) -> Result<Assert, ParseError> {
        let holds = input.value()?;
        let shape = input.func.ty(holds).shape.clone();
        let site = if input.take("assume") {
            Site::Assume { condition: input.string()? }
        } else if input.take("overflow") {
            let verb = input.one_of(&Site::VERBS.map(|verb| (verb, verb)))?;
            Site::Overflow { verb, dtype: input.dtype()?, shape }
        } else {
            let condition = input.attribute("condition")?;
            Site::Assert { condition, message: input.attribute("message")?, shape }
        };
        Ok(Assert { holds, site: add_site(input, site) })
    }
}

impl Operation for Assert {
    fn result_count(&self) -> usize {
        0
    }

    fn operands(&self) -> Vec<Value> {
        vec![self.holds]
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.holds = change(self.holds);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        let site = site_of(func, self.site)?;
        if matches!(site, Site::Print { .. }) {
            return Err(format!("site {} is of a print", self.site));
        }
        expect_types("the condition", func.ty(self.holds), &Type::tile(DType::Bool, site.shape()))
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }

    fn site(&self) -> Option<u32> {
        Some(self.site)
    }
}

impl OperationText for Print {
    fn name(&self) -> &'static str {
        "device_print"
    }

    fn write(&self, out: &mut TextWriter) {
        self.values.write(out);
        if let Ok(Site::Print { label, .. }) = site_of(out.func, self.site) {
            out.attribute("label", label);
        }
        out.attribute("mask", &self.mask);
    }

    fn is_named(name: &str) -> bool {
        name == "device_print"
    }

    fn read(_: &str, input: &mut TextReader) -> Result<Print, ParseError> {
        let values = Vec::read(input)?;
        let label = input.attribute("label")?;
        let mask: Option<Value> = input.attribute("mask")?;
        let shape = values.first().or(mask.as_ref()).map(|&value| input.func.ty(value).shape.clone());
        let dtypes = values.iter().map(|&value| input.func.ty(value).dtype).collect();
        let site = add_site(input, Site::Print { label, shape: shape.unwrap_or_default(), dtypes });
        Ok(Print { values, mask, site })
    }
}

impl Operation for Print {
    fn result_count(&self) -> usize {
        0
    }

    fn operands(&self) -> Vec<Value> {
        self.values.iter().copied().chain(self.mask).collect()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.values.iter_mut().for_each(|value| *value = change(*value));
        self.mask = self.mask.map(change);
    }

    fn effect(&self) -> Effect {
        Effect::Write
    }

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        let Site::Print { shape, dtypes, .. } = site_of(func, self.site)? else {
            return Err(format!("site {} is of an assertion", self.site));
        };
        expect_types("the number of values", self.values.len(), dtypes.len())?;
        for (&value, &dtype) in self.values.iter().zip(dtypes) {
            expect_types("a value", func.ty(value), &Type::tile(dtype, shape.clone()))?;
        }
        match self.mask {
            Some(mask) => expect_types("the mask", func.ty(mask), &Type::tile(DType::Bool, shape.clone())),
            None => Ok(()),
        }
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }

    fn site(&self) -> Option<u32> {
        Some(self.site)
    }
}

/// Values that one line shows: CUDA's `printf` takes 32 arguments, of which the program and the element are up to eight.
const MAX_VALUES: usize = 16;

macro_rules! debug_builds {
    ($doc:literal) => {
        concat!($doc, " Only a debug build does it, one that reports accesses outside a slice, whatever the kernel's attribute says of those; in any other build the arguments are checked and nothing is left of the call.")
    };
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[
    Intrinsic {
        name: "device_assert",
        returns: Returns::Nothing,
        example: "tl::device_assert(n > 0);\ntl::device_assert(tile >= 0.0, \"x is negative\", tl::arange(0, BLOCK) < n);",
        generic: IntrinsicGeneric::None,
        params: &[required("condition"), optional("message"), optional("mask")],
        doc: debug_builds!(
            "Makes the launch an `Error::Assertion` where `condition`, of `bool`, is false: a scalar, or any element of a tile that `mask` lets through; the two broadcast to one shape. The error names the kernel, the program, the element, the condition as written, the `message`, a string literal, and the source line. The kernel runs to its end, and of several failures one is reported: on a CPU the first element of a program in row-major order, on a GPU any. On the CPU the launch returns the error, on a GPU whatever waits for the kernel, as for an access outside a slice."
        ),
        check: device_assert,
    },
    Intrinsic {
        name: "device_print",
        returns: Returns::Nothing,
        example: "tl::device_print(\"n\", n);\ntl::device_print(\"x and its square\", (tile, tile * tile), tl::arange(0, BLOCK) < n);",
        generic: IntrinsicGeneric::None,
        params: &[required("label"), optional("values"), optional("mask")],
        doc: debug_builds!(
            "Prints a line for each element: `x: program (1, 0, 0), element (7): 0.5`, or without an element for scalars. `label` is a string literal; `values` is a scalar or tile of any element type, or a tuple of up to 16, which broadcast to one shape together with `mask`. Elements that `mask` leaves out are not printed, and every other one is once. A float is written with as many digits as tell it from every other of its type (`%.9g` in C for `f32`, `%.17g` for `f64`), a bool as 1 or 0. A CPU prints to the standard error, the elements of a program in row-major order; a GPU to the standard output when something waits for the kernel, in any order, and no more than its buffer holds (1 MB unless the CUDA limit is set)."
        ),
        check: device_print,
    },
    Intrinsic {
        name: "assume",
        returns: Returns::Nothing,
        example: "tl::assume(n > 0);\ntl::assume(n % 64 == 0 && n <= 1 << 20);\ntl::assume(tl::num_programs(0) <= 65535);",
        generic: IntrinsicGeneric::None,
        params: &[required("condition")],
        doc: "A promise about the arguments of a launch: `condition` is a scalar of `bool`. What the launcher can check is a fact of the body that relies on it, so that a false promise is never undefined behavior: such a launch takes the general body, and its results are right. These are a bound of an integer argument (`n > 0`, `n <= 4096`), a power of two that divides one (`n % 64 == 0`), the most programs along an axis of the grid (`tl::num_programs(0) <= 65535`), and several of them joined by `&&`; constants may be computed. A range lets `offsets % n` run as its offsets do and `offsets / n` stay what it is; a divisor keeps such runs wide. Any other condition is no promise that anything relies on. In a debug build a false one is an error of the launch, as of `tl::device_assert`. For what a launcher cannot see, such as offsets read from memory, an `unchecked` kernel has `tl::multiple_of` and `tl::max_contiguous`.",
        check: assume,
    },
];

/// Functions that record the source text of their first argument.
pub fn records_source(name: &str) -> bool {
    matches!(name, "device_assert" | "assume")
}

fn device_assert(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    if let Item::Text(_) = call.args[0].item {
        let text = format!("{} takes the condition before the message", call.what);
        let message = call.args[0].loc.word().unwrap_or_else(|| "\"message\"".into());
        return cx.error_help(
            call.args[0].loc,
            text,
            format!("write `tl::device_assert(condition, {message})`"),
        );
    }
    let condition = condition(cx, call);
    let message = call.args.get(1).map_or(Some(String::new()), |operand| {
        text(cx, operand, "the message of `tl::device_assert`", ["the mask comes after it", PRINTS])
    });
    let mask = call.args.get(2).map(|operand| mask(cx, operand)).transpose();
    let (Some(condition), Some(message), Ok(mask)) = (condition, message, mask) else {
        return Operand::failed(call.loc);
    };
    let mut values: Vec<Value> = [condition].into_iter().chain(mask).collect();
    let Some(shape) = cx.common_shape(&call.what, call.loc, &mut values) else {
        return Operand::failed(call.loc);
    };
    let holds = match values[..] {
        [condition, mask] => {
            let out = scalar::unary(UnaryOp::Not).name;
            let out = cx.row(out, &[mask], call.loc);
            cx.row("or", &[condition, out], call.loc)
        }
        _ => values[0],
    };
    let site = cx.site(Site::Assert { condition: call.text.clone(), message, shape });
    cx.push(Assert { holds, site }, vec![], call.loc);
    Operand::unit(call.loc)
}

fn assume(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let Some(holds) = condition(cx, call) else { return Operand::failed(call.loc) };
    let ty = cx.ty(holds);
    if !ty.is_scalar() {
        let problem = format!("{} takes a scalar, found a tile of type {ty}", call.what);
        let help = "a promise is about the arguments of a launch; `tl::device_assert` checks elements";
        return cx.error_help(call.args[0].loc, problem, help);
    }
    let site = cx.site(Site::Assume { condition: call.text.clone() });
    cx.push(Assert { holds, site }, vec![], call.loc);
    Operand::unit(call.loc)
}

fn device_print(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let label = text(
        cx,
        &call.args[0],
        "the label of `tl::device_print`",
        ["the values come after it", "write `tl::device_print(\"label\", value)`"],
    );
    if label.as_ref().is_some_and(|label| label.contains('\0')) {
        return cx.error(call.args[0].loc, format!("the label of {} ends at its zero byte", call.what));
    }
    let parts = match call.args.get(1).map(|operand| (&operand.item, operand)) {
        None => vec![],
        Some((Item::Tuple(parts), _)) => parts.clone(),
        Some((_, operand)) => vec![operand.clone()],
    };
    let count = parts.len();
    if count > MAX_VALUES {
        let loc = call.args[1].loc;
        return cx.error(loc, format!("{} takes up to {MAX_VALUES} values, found {count}", call.what));
    }
    let values: Vec<Option<Value>> = parts.iter().map(|part| cx.value(part)).collect();
    let values: Option<Vec<Value>> = values.into_iter().collect();
    let mask = call.args.get(2).map(|operand| match operand.item {
        Item::Value(value) if cx.ty(value).dtype != DType::Bool => {
            let problem = format!("a mask is made of bools, found {}", cx.ty(value));
            cx.error_help(operand.loc, problem, "several values are a tuple: `(x, y)`");
            Err(())
        }
        _ => mask(cx, operand),
    });
    let (Some(label), Some(mut values), Ok(mask)) = (label, values, mask.transpose()) else {
        return Operand::failed(call.loc);
    };
    values.extend(mask);
    let Some(shape) = cx.common_shape(&call.what, call.loc, &mut values) else {
        return Operand::failed(call.loc);
    };
    let mask = if mask.is_some() { values.pop() } else { None };
    let dtypes = values.iter().map(|&value| cx.ty(value).dtype).collect();
    let site = cx.site(Site::Print { label, shape, dtypes });
    cx.push(Print { values, mask, site }, vec![], call.loc);
    Operand::unit(call.loc)
}

/// The first argument, of `bool`.
fn condition(cx: &mut dyn TypingCx, call: &Call) -> Option<Value> {
    cx.value_as(&call.args[0], DType::Bool, &format!("the condition of {}", call.what))
}

fn mask(cx: &mut dyn TypingCx, operand: &Operand) -> Result<Value, ()> {
    cx.value_as(operand, DType::Bool, "a mask").ok_or(())
}

/// What to do instead of a place for a value in a message.
const PRINTS: &str = "`tl::device_print(\"label\", value)` prints values";

/// A string literal: `help` is for another operand, and for a text with places for values.
fn text(cx: &mut dyn TypingCx, operand: &Operand, what: &str, help: [&str; 2]) -> Option<String> {
    match &operand.item {
        Item::Text(text) => {
            let text = text.clone();
            return (!report_placeholder(cx, operand.loc, &text, [what, help[1]])).then_some(text);
        }
        Item::Failed => {}
        _ => {
            let found = cx.describe(operand);
            let problem = format!("{what} is a string literal, found {found}");
            cx.error_help(operand.loc, problem, help[0]);
        }
    }
    None
}

/// Whether a text has a place for a value, as format strings have, which is reported: texts are printed as they are.
pub(super) fn report_placeholder(
    cx: &mut dyn TypingCx,
    loc: Loc,
    text: &str,
    [what, help]: [&str; 2],
) -> bool {
    let found = placeholder(text);
    if let Some(found) = found {
        cx.error_help(loc, format!("{what} is printed as it is: it has no `{found}`"), help);
    }
    found.is_some()
}

/// The first `{..}`, or `%d` and its like.
fn placeholder(text: &str) -> Option<&str> {
    let braces = text.find('{').and_then(|open| {
        let length = text[open..].find('}')?;
        Some(&text[open..=open + length])
    });
    braces.or_else(|| {
        text.match_indices('%').find_map(|(at, _)| {
            let rest = &text[at + 1..];
            let length = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != 'l')?;
            let mut letters = rest[length..].chars();
            let converts = letters.next().is_some_and(|letter| "dufgexsic".contains(letter));
            let percentage = text[..at].ends_with(|c: char| c.is_ascii_digit());
            let ends = letters.next().is_none_or(|letter| !letter.is_alphanumeric());
            (converts && ends && !percentage).then(|| &text[at..at + length + 2])
        })
    })
}
