//! Tile IR as text, which [`super::parse`] reads. Values are numbered in the order they are printed, so that a difference is
//! a difference in meaning.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::parse::UNDEFINED;
use super::{Block, Func, Op, Param, ParamId, ParamKind, Value, View};
use crate::ir::guard::WithNames;

/// Prints a function; `note` may add a comment to an operation's line (a layout, a width).
pub fn print(func: &Func, note: &dyn Fn(&Op) -> Option<String>) -> String {
    let (names, defined) = (HashMap::new(), HashSet::new());
    let mut printer = Printer { func, note, names, count: 0, defined, out: String::new() };
    printer.func();
    printer.out
}

/// The names under which a function prints its values.
#[derive(Clone, Debug)]
pub struct ValueNames {
    names: HashMap<Value, usize>,
}

impl ValueNames {
    pub fn new(func: &Func) -> ValueNames {
        let (names, defined) = (HashMap::new(), HashSet::new());
        let mut printer = Printer { func, note: &|_| None, names, count: 0, defined, out: String::new() };
        printer.func();
        ValueNames { names: printer.names }
    }

    /// A value's name; one that is not printed has another kind of name.
    pub fn name(&self, value: Value) -> String {
        self.names.get(&value).map_or_else(|| format!("{value:?}"), |name| format!("%{name}"))
    }

    /// An operation's line, without types and blocks.
    pub fn op(&self, func: &Func, op: &Op) -> String {
        let text = op.kind.operation().text(func, &mut |value| self.name(value));
        let results: Vec<String> = op.results.iter().map(|&result| self.name(result)).collect();
        if results.is_empty() { text } else { format!("{} = {text}", results.join(", ")) }
    }
}

struct Printer<'f> {
    func: &'f Func,
    note: &'f dyn Fn(&Op) -> Option<String>,
    names: HashMap<Value, usize>,
    /// How many numbers were given.
    count: usize,
    defined: HashSet<Value>,
    out: String,
}

impl Printer<'_> {
    fn name(&mut self, value: Value) -> String {
        let number = *self.names.entry(value).or_insert_with(|| {
            self.count += 1;
            self.count - 1
        });
        format!("%{number}")
    }

    /// The names of values where they are defined. Blocks beside each other may define a value each, by two names.
    fn define(&mut self, values: &[Value]) -> String {
        for value in values {
            if !self.defined.insert(*value) {
                self.names.remove(value);
            }
        }
        self.names(values)
    }

    fn names(&mut self, values: &[Value]) -> String {
        values.iter().map(|&value| self.name(value)).collect::<Vec<_>>().join(", ")
    }

    fn func(&mut self) {
        let func = self.func;
        // Scalars are numbered before what views have instead of them.
        for param in &func.params {
            if let ParamKind::Scalar { value, .. } = param.kind {
                self.name(value);
            }
        }
        let params: Vec<String> =
            func.params.iter().enumerate().map(|(position, param)| self.param(position, param)).collect();
        let reports = if func.reports { " reports" } else { "" };
        let stating = func.stated_multiple.map_or(String::new(), |by| format!(" stating {by}"));
        let names: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
        let assumptions: Vec<String> = func
            .assumptions
            .iter()
            .map(|assumption| WithNames(&assumption.guard(), &names).to_string())
            .collect();
        let viewing: Vec<String> = func.views.iter().filter_map(|view| view.text(func)).collect();
        let viewing =
            if viewing.is_empty() { String::new() } else { format!(" viewing {}", viewing.join(" and ")) };
        let assuming = if assumptions.is_empty() { "" } else { " assuming " };
        let assumptions = assumptions.join(" and ");
        let _ = writeln!(
            self.out,
            "kernel {}({}){reports}{stating}{viewing}{assuming}{assumptions} {{",
            func.name,
            params.join(", ")
        );
        self.block(&func.body, 1);
        self.out += "}\n";
    }

    fn param(&mut self, position: usize, param: &Param) -> String {
        match &param.kind {
            ParamKind::Slice { elem, mutable } => {
                let reference = if *mutable { "&mut " } else { "&" };
                let view = self.func.view(ParamId(position as u32));
                let memory = match view.filter(|view| view.computed.is_none()) {
                    Some(view) => format!("View<{elem}, {}>{}", view.rank(), self.other_extents(view)),
                    None => format!("[{elem}]"),
                };
                format!("{}: {reference}{memory}", param.name)
            }
            ParamKind::Scalar { value, dtype } => {
                format!("{} {}: {dtype}", self.name(*value), param.name)
            }
        }
    }

    /// What a view has that does not follow from its parameters.
    fn other_extents(&mut self, view: &View) -> String {
        let mut own = View::of_params(&self.func.params, view.memory, view.rank());
        if let Some(own) = own.as_mut().filter(|_| view.transposed) {
            own.transpose();
        }
        let mut text = if view.transposed { " transposed".to_string() } else { String::new() };
        let own = own.as_ref();
        let pairs = [
            ("shape", &view.shape, own.map(|own| &own.shape)),
            ("stride", &view.strides, own.map(|own| &own.strides)),
        ];
        for (word, values, own) in pairs {
            if own != Some(values) {
                let values: Vec<String> = values.iter().map(|&value| self.outer(value)).collect();
                text += &format!(" {word}({})", values.join(", "));
            }
        }
        text
    }

    /// The name of a scalar parameter or of a value that the body defines outside of nested blocks.
    fn outer(&mut self, value: Value) -> String {
        let is_defined =
            self.func.scalar_parameter(value).is_some() || self.func.body.definition(value).is_some();
        if is_defined { self.name(value) } else { UNDEFINED.into() }
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
        let results = self.define(&op.results);
        let types: Vec<String> = op.results.iter().map(|&value| self.func.ty(value).to_string()).collect();
        self.out += &indent;
        if !op.results.is_empty() {
            let _ = write!(self.out, "{results} = ");
        }
        self.out += &text;
        if !op.results.is_empty() {
            let _ = write!(self.out, " : {}", types.join(", "));
        }
        let mut note = (self.note)(op).map(|note| format!("  ; {note}")).unwrap_or_default();
        if operation.has_block_headers() {
            let _ = writeln!(self.out, " {{{note}");
            for (index, block) in operation.blocks().into_iter().enumerate() {
                let _ = write!(self.out, "{indent}  {}", operation.block_header(func, index));
                self.nested(block, depth + 1, "");
                self.out.push('\n');
            }
            let _ = writeln!(self.out, "{indent}}}");
            return;
        }
        for block in operation.blocks() {
            self.nested(block, depth, &note);
            note.clear();
        }
        let _ = writeln!(self.out, "{note}");
    }

    /// A block of an operation in braces, behind what stands in its line.
    fn nested(&mut self, block: &Block, depth: usize, note: &str) {
        let indent = "  ".repeat(depth);
        let args = self.define(&block.args);
        let args = if args.is_empty() { args } else { format!(" |{args}|") };
        let _ = writeln!(self.out, " {{{args}{note}");
        self.block(block, depth + 1);
        if !block.yields.is_empty() {
            let yields = self.names(&block.yields);
            let _ = writeln!(self.out, "{indent}  yield {yields}");
        }
        let _ = write!(self.out, "{indent}}}");
    }
}
