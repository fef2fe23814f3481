//! Inline PTX on single elements, with its equivalent on a CPU.

mod ptx;

use super::typing::{Call, Item, OneResult, Operand, TypingCx};
use super::{Intrinsic, IntrinsicGeneric, Operation, Returns, expect_types, required};
use crate::ir::layout_relation::LayoutRelation;
use crate::ir::{Block, Func, Type, Value};
use crate::ops::syntax::syntax;
use crate::support::diagnostic::list;
use crate::support::dtype::DType;
use ptx::Problem;

/// Statements that compute an element of the result from one of each operand, all of one shape.
#[derive(Clone, Debug)]
pub struct InlinePtx {
    /// `$0` and so on are the results, then come the operands.
    pub text: String,
    /// As LLVM's inline assembly has them: `=f,f`.
    pub constraints: String,
    /// Which result of the statements this is: there is an operation for each.
    pub result: u32,
    pub args: Vec<Value>,
    /// The same on a CPU: lanewise operations on one element of each operand.
    pub cpu: Block,
}

syntax!(InlinePtx: "inline_ptx" args [text] [constraints] [result] {cpu: Block::default()});

impl Operation for InlinePtx {
    fn block_args(&self, func: &Func, _: usize) -> Vec<Type> {
        self.args.iter().map(|&arg| Type::scalar(func.ty(arg).dtype)).collect()
    }

    fn operands(&self) -> Vec<Value> {
        self.args.clone()
    }

    fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.args.iter_mut().for_each(|arg| *arg = change(*arg));
    }

    fn blocks(&self) -> Vec<&Block> {
        vec![&self.cpu]
    }

    fn blocks_mut(&mut self) -> Vec<&mut Block> {
        vec![&mut self.cpu]
    }

    fn verify(&self, func: &Func, results: &[Value]) -> Result<(), String> {
        let result = func.ty(results[0]);
        for (&arg, &own) in self.args.iter().zip(&self.cpu.args) {
            let ty = func.ty(arg);
            expect_types("an operand's shape", &ty.shape, &result.shape)?;
            expect_types("an argument of the CPU's function", func.ty(own), &Type::scalar(ty.dtype))?;
        }
        let results = self.constraints.split(',').filter(|own| own.starts_with('=')).count();
        if self.result as usize >= results {
            return Err(format!("gives result {} of {results}", self.result));
        }
        expect_types("the number of arguments", self.cpu.args.len(), self.args.len())?;
        match self.cpu.yields[..] {
            [one] => expect_types("what the CPU's function gives", func.ty(one), &Type::scalar(result.dtype)),
            _ => Err("the CPU's function gives one value".into()),
        }
    }

    fn layout_relation(&self, _: &Func, _: &[Value]) -> LayoutRelation {
        LayoutRelation::Lanewise { cheap: false }
    }
}

pub(super) const FUNCTIONS: &[Intrinsic] = &[Intrinsic {
    name: "inline_ptx",
    returns: Returns::Tile,
    example: "let fast = tl::inline_ptx::<f32>(\"tanh.approx.f32 $0, $1;\", \"=f,f\", (tile,), |x| tl::tanh(x));\nlet both = tl::inline_ptx::<f32>(\"copysign.f32 $0, $2, $1;\", \"=f,f,f\", (tile, fast), |x, y| if y < 0.0 { -tl::abs(x) } else { tl::abs(x) });\nlet (low, high) = tl::inline_ptx::<(u32, u32)>(\"mov.b64 {$0, $1}, $2;\", \"=r,=r,l\", (seed,), |x| ((x & 0xffffffff).to::<u32>(), (x >> 32).to::<u32>()));",
    generic: IntrinsicGeneric::Results,
    params: &[required("text"), required("constraints"), required("operands"), required("cpu")],
    doc: "PTX statements on single elements, for what the language lacks: `$0` is the result, of the type given, `$1` and so on are the elements of a tuple of operands, which broadcast to one shape. Several results have a tuple of types, `::<(f32, i32)>`, and are a tuple: `$0` and `$1`, before the operands. `cpu` gives a tuple too. A constraint for each says its register: `f` for `f32`, `d` for `f64`, `r` for 32-bit integers, `l` for 64-bit ones, `h` for 16-bit integers and floats; a result's begins with `=`. `cpu` is what a CPU computes instead; that both mean the same is up to you. The statements compute from registers to registers. They write the results and registers that they declare in braces, as `{ .reg .f32 t; .. }`, and read these, the operands, numbers and special registers such as `%laneid`. What touches memory, jumps, waits or exchanges with other threads is refused, in an `unchecked` kernel too.",
    check: inline_ptx,
}];

/// LLVM's constraint of a register that holds an element.
fn register_constraint(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 => Some("f"),
        DType::F64 => Some("d"),
        DType::I32 | DType::U32 => Some("r"),
        DType::I64 | DType::U64 => Some("l"),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => Some("h"),
        DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => None,
    }
}

/// A string known at build.
fn string(cx: &mut dyn TypingCx, operand: &Operand, what: &str) -> Option<String> {
    match &operand.item {
        Item::Text(text) => Some(text.clone()),
        Item::Failed => None,
        _ => {
            let found = cx.describe(operand);
            cx.error(operand.loc, format!("{what} is a string, found {found}"));
            None
        }
    }
}

/// The constraints, if they are those of the types, the results' first; what is wrong is reported.
fn constraints(
    cx: &mut dyn TypingCx,
    operand: &Operand,
    results: &[DType],
    operands: &[DType],
) -> Option<String> {
    let text = string(cx, operand, "the list of constraints")?;
    let mut wanted = vec![];
    for (i, &dtype) in results.iter().chain(operands).enumerate() {
        let Some(letter) = register_constraint(dtype) else {
            cx.error_help(
                operand.loc,
                format!("inline PTX has no register for {dtype}"),
                "convert it: `.to::<i32>()`",
            );
            return None;
        };
        wanted.push(if i < results.len() { format!("={letter}") } else { letter.to_string() });
    }
    if text.split(',').map(str::trim).eq(wanted.iter().map(String::as_str)) {
        return Some(wanted.join(","));
    }
    cx.error_help(
        operand.loc,
        format!(
            "these constraints do not fit {} and operands of {}",
            if results.len() == 1 { "a result" } else { "results" },
            list(results.iter().chain(operands))
        ),
        format!("write `\"{}\"`", wanted.join(",")),
    );
    None
}

fn inline_ptx(cx: &mut dyn TypingCx, call: &Call) -> Operand {
    let [text_operand, constraint_operand, operands, cpu] = &call.args[..] else {
        return Operand::failed(call.loc);
    };
    let text = string(cx, text_operand, "the PTX");
    let parts = match &operands.item {
        Item::Tuple(parts) => parts.clone(),
        _ => vec![operands.clone()],
    };
    let values: Option<Vec<Value>> = parts.iter().map(|part| cx.value(part)).collect();
    let results = cx.generic_types();
    let (Some(text), Some(mut values), Some(results)) = (text, values, results) else {
        return Operand::failed(call.loc);
    };
    if values.is_empty() {
        return cx.error(operands.loc, format!("{} takes at least one operand", call.what));
    }
    if let Err(Problem { text, about_list }) = ptx::check(&text, results.len(), values.len()) {
        let loc = text_operand.loc;
        return if about_list { cx.error_help(loc, text, ptx::ALLOWED) } else { cx.error(loc, text) };
    }
    let types: Vec<DType> = values.iter().map(|&value| cx.ty(value).dtype).collect();
    let Some(constraints) = constraints(cx, constraint_operand, &results, &types) else {
        return Operand::failed(call.loc);
    };
    let Some(shape) = cx.common_shape(&call.what, call.loc, &mut values) else {
        return Operand::failed(call.loc);
    };
    let elements: Vec<Type> = types.into_iter().map(Type::scalar).collect();
    let mut parts = vec![];
    for (index, &dtype) in results.iter().enumerate() {
        let result = OneResult { types: &results, index };
        let Some(cpu) = cx.elementwise_region(cpu, &elements, result) else {
            return Operand::failed(call.loc);
        };
        let (text, constraints) = (text.clone(), constraints.clone());
        let op = InlinePtx { text, constraints, result: index as u32, args: values.clone(), cpu };
        parts.push(cx.emit(op, Type::tile(dtype, shape.clone()), call.loc));
    }
    if parts.len() == 1 { parts.remove(0) } else { Operand::new(Item::Tuple(parts), call.loc) }
}
