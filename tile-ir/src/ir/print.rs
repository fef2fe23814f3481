//! Tile IR as text. Values are numbered in the order they are printed, so that a difference is a difference in meaning.

use std::collections::HashMap;
use std::fmt::Write;

use super::{Block, Func, Op, ParamId, ParamKind, Value};
use crate::ir::guard::WithNames;

/// Prints a function; `note` may add text after an operation's line (a layout, a width).
pub fn print(func: &Func, note: &dyn Fn(&Op) -> Option<String>) -> String {
    let mut printer = Printer { func, note, names: HashMap::new(), out: String::new() };
    printer.func();
    printer.out
}

struct Printer<'f> {
    func: &'f Func,
    note: &'f dyn Fn(&Op) -> Option<String>,
    names: HashMap<Value, usize>,
    out: String,
}

impl Printer<'_> {
    fn name(&mut self, value: Value) -> String {
        let next = self.names.len();
        format!("%{}", self.names.entry(value).or_insert(next))
    }

    fn names(&mut self, values: &[Value]) -> String {
        values.iter().map(|&value| self.name(value)).collect::<Vec<_>>().join(", ")
    }

    fn func(&mut self) {
        let func = self.func;
        let params: Vec<String> = func
            .params
            .iter()
            .enumerate()
            .map(|(position, param)| match &param.kind {
                ParamKind::Slice { elem, mutable } => {
                    let reference = if *mutable { "&mut " } else { "&" };
                    let memory = match func.view(ParamId(position as u32)) {
                        Some(view) => format!("View<{elem}, {}>", view.rank()),
                        None => format!("[{elem}]"),
                    };
                    format!("{}: {reference}{memory}", param.name)
                }
                ParamKind::Scalar { value, dtype } => {
                    format!("{} {}: {dtype}", self.name(*value), param.name)
                }
            })
            .collect();
        let reports = if func.reports { " reports" } else { "" };
        let names: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
        let assumptions: Vec<String> = func
            .assumptions
            .iter()
            .map(|assumption| WithNames(&assumption.guard(), &names).to_string())
            .collect();
        let assuming = if assumptions.is_empty() { "" } else { " assuming " };
        let assumptions = assumptions.join(" and ");
        let _ = writeln!(
            self.out,
            "kernel {}({}){reports}{assuming}{assumptions} {{",
            func.name,
            params.join(", ")
        );
        self.block(&func.body, 1);
        self.out += "}\n";
    }

    fn block(&mut self, block: &Block, depth: usize) {
        for op in &block.ops {
            self.op(op, depth);
        }
    }

    fn op(&mut self, op: &Op, depth: usize) {
        let indent = "  ".repeat(depth);
        let operation = op.kind.operation();
        // Operands are named before results, so that numbers grow down the page.
        let func = self.func;
        let text = operation.text(func, &mut |value| self.name(value));
        let blocks = operation.blocks();
        let results = self.names(&op.results);
        let types: Vec<String> = op.results.iter().map(|&value| self.func.ty(value).to_string()).collect();
        self.out += &indent;
        if !op.results.is_empty() {
            let _ = write!(self.out, "{results} = ");
        }
        self.out += &text;
        if !op.results.is_empty() {
            let _ = write!(self.out, " : {}", types.join(", "));
        }
        if let Some(note) = (self.note)(op) {
            let _ = write!(self.out, "  // {note}");
        }
        for block in blocks {
            let args = self.names(&block.args);
            let _ =
                if args.is_empty() { writeln!(self.out, " {{") } else { writeln!(self.out, " {{ |{args}|") };
            self.block(block, depth + 1);
            if !block.yields.is_empty() {
                let yields = self.names(&block.yields);
                let _ = writeln!(self.out, "{indent}  yield {yields}");
            }
            let _ = write!(self.out, "{indent}}}");
        }
        self.out += "\n";
    }
}
