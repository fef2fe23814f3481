//! The AST of a random kernel, which can be printed, evaluated and shrunk.

use tile_ir::support::dtype::DType;

use super::data::Data;
use super::element::Element;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Type {
    pub dtype: DType,
    /// Empty for a scalar.
    pub shape: Vec<usize>,
}

impl Type {
    pub fn new(dtype: DType, shape: &[usize]) -> Type {
        Type { dtype, shape: shape.to_vec() }
    }

    pub fn scalar(dtype: DType) -> Type {
        Type::new(dtype, &[])
    }

    pub fn with(&self, dtype: DType) -> Type {
        Type::new(dtype, &self.shape)
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Node {
    pub op: Op,
    pub args: Vec<Node>,
    pub ty: Type,
}

/// The combine closure of a reduction or scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combine {
    /// `|a, b| a + b` and its like.
    Operator(&'static str),
    /// `|a, b| if a > b { a } else { b }`
    Larger,
    /// `|a, b| b`: associative, and the order shows.
    Last,
}

#[derive(Clone, Debug)]
pub enum Op {
    Variable(usize),
    Number(Element),
    /// The constant parameter.
    Block,
    /// A scalar parameter of the kernel.
    Scalar(usize),
    ProgramId(usize),
    NumPrograms(usize),
    /// `start..start + extent`
    Arange(i64),
    Full,
    Operator(&'static str),
    /// `neg` or `not`
    Prefix(&'static str),
    Compare(&'static str),
    /// A lanewise function.
    Lanewise(&'static str),
    Select,
    Cast,
    Bitcast,
    /// An offset, an optional mask, and an optional value where the mask is false.
    Load(usize),
    /// One offset an axis.
    LoadView(usize),
    Length(usize),
    /// Offsets, a value, for `atomic_cas` one to compare with before it; what was there.
    Atomic {
        name: &'static str,
        memory: usize,
    },
    /// A method behind a call that changes no result.
    Hint(&'static str),
    /// Operands A and B, perhaps an accumulator, and the method behind the call.
    Dot {
        suffix: &'static str,
    },
    /// `rand` or `randint` of a seed and offsets.
    Random(&'static str),
    Softmax {
        axis: usize,
        log: bool,
    },
    Reshape,
    Permute(Vec<usize>),
    ExpandDims(usize),
    Squeeze(usize),
    Broadcast,
    Reduce {
        name: &'static str,
        axis: Option<usize>,
        keep: bool,
    },
    ReduceBy {
        combine: Combine,
        axis: usize,
    },
    Scan {
        name: &'static str,
        axis: usize,
        reverse: bool,
    },
    ScanBy {
        combine: Combine,
        axis: usize,
        reverse: bool,
    },
    Sort {
        axis: usize,
        descending: bool,
    },
    Argsort {
        axis: usize,
        descending: bool,
    },
    Gather(usize),
    Slice {
        axis: usize,
        start: usize,
    },
    Index {
        axis: usize,
        position: usize,
    },
    Flip(usize),
    Cat(usize),
    Join,
    Interleave,
    Histogram,
    /// A function of the kernel's own.
    Call(usize),
}

/// An operation with two results.
#[derive(Clone, Debug)]
pub enum Pair {
    Split,
    TopK {
        axis: usize,
        k: usize,
    },
    MaxIndex(usize),
    MinIndex(usize),
    /// Composition of the maps `x -> a x + b`.
    AffineScan {
        axis: usize,
        reverse: bool,
    },
}

pub type Block = Vec<Statement>;

#[derive(Clone, Debug)]
pub enum Statement {
    Let {
        variable: usize,
        mutable: bool,
        value: Node,
    },
    LetPair {
        variables: [usize; 2],
        pair: Pair,
        args: Vec<Node>,
        style: PairStyle,
    },
    /// `v = ..`, or `v += ..`
    Assign {
        variable: usize,
        operator: Option<&'static str>,
        value: Node,
    },
    AssignPair {
        variables: [usize; 2],
        values: [Node; 2],
    },
    Store {
        memory: usize,
        offset: Node,
        value: Node,
        mask: Option<Node>,
        hint: &'static str,
    },
    StoreView {
        memory: usize,
        offsets: Vec<Node>,
        value: Node,
    },
    Atomic {
        name: &'static str,
        memory: usize,
        offset: Node,
        value: Node,
        mask: Option<Node>,
    },
    If {
        condition: Node,
        then: Block,
        otherwise: Block,
    },
    LetIf {
        variable: usize,
        condition: Node,
        branches: Box<[(Block, Node); 2]>,
    },
    /// The pattern and value of each arm, then the value of `_`.
    LetMatch {
        variable: usize,
        scrutinee: Node,
        arms: Vec<(Pattern, Node)>,
        rest: Node,
    },
    Match {
        scrutinee: Node,
        arms: Vec<(Pattern, Block)>,
        rest: Block,
    },
    For {
        variable: usize,
        range: Range,
        body: Block,
    },
    /// Counts a variable of its own down to 0, while the condition holds too.
    While {
        counter: usize,
        condition: Option<Node>,
        body: Block,
    },
    Break,
    Continue,
    Return,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PairStyle {
    Destructured,
    ByField,
}

#[derive(Clone, Debug)]
pub struct Pattern {
    pub min: i64,
    pub max: i64,
}

#[derive(Clone, Debug)]
pub struct Range {
    pub start: Node,
    pub end: Node,
    pub step: Option<Node>,
    pub form: RangeForm,
    /// Methods that change no result.
    pub hints: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeForm {
    /// `start..end`, with `step_by`
    Dots,
    /// `start..=end`
    Closed,
    /// `tl::range(start, end, step)`
    Function,
    /// `tl::static_range(start, end, step)`
    Static,
}

/// A slice or view parameter.
#[derive(Clone, Debug)]
pub struct Memory {
    pub dtype: DType,
    /// `None` for a slice.
    pub view: Option<usize>,
    pub written: bool,
}

impl Memory {
    pub fn name(&self, index: usize) -> String {
        format!("{}{index}", if self.written { "out" } else { "x" })
    }
}

/// A nested function of one expression.
#[derive(Clone, Debug)]
pub struct Function {
    pub params: Vec<(usize, Type)>,
    pub body: Node,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub attribute: String,
    pub memory: Vec<Memory>,
    pub scalars: Vec<(&'static str, DType)>,
    pub functions: Vec<Function>,
    pub body: Block,
    /// How many variables there are.
    pub variables: usize,
    /// A constant parameter, with its value in each variant and the variant that runs.
    pub block: Option<(Vec<usize>, usize)>,
    /// Launches that were planned with the kernel; without any, arguments are random.
    pub plans: Vec<Plan>,
}

/// A planned launch: what its arguments are, but for the seed of their data.
#[derive(Clone, Debug)]
pub struct Plan {
    pub grid: [i64; 3],
    pub scalars: Vec<Element>,
    pub memory: Vec<PlannedMemory>,
}

/// The memory of a parameter in a planned launch.
#[derive(Clone, Debug)]
pub struct PlannedMemory {
    pub len: usize,
    /// Of a view.
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    pub data: Data,
}

// ---- printing

fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

fn number(element: Element, dtype: DType) -> String {
    match element {
        Element::Float(float) if float == f64::NEG_INFINITY => format!("{dtype}::NEG_INFINITY"),
        Element::Float(float) if float == f64::from(f32::MIN) => format!("{dtype}::MIN"),
        Element::Float(float) if float.is_sign_negative() => format!("(-{:?})", -float),
        Element::Float(value) | Element::Approximate { value, .. } => format!("{value:?}"),
        Element::Integer { value, .. } if dtype == DType::Bool => (value != 0).to_string(),
        Element::Integer { value, .. } if value == super::element::min_value(dtype) && value < 0 => {
            format!("{dtype}::MIN")
        }
        Element::Integer { value, .. } if value < 0 => format!("(-{}{dtype})", -value),
        Element::Integer { value, .. } => format!("{value}{dtype}"),
    }
}

impl Combine {
    fn text(self) -> String {
        match self {
            Combine::Operator(symbol) => format!("|a, b| a {symbol} b"),
            Combine::Larger => "|a, b| if a > b { a } else { b }".into(),
            Combine::Last => "|_a, b| b".into(),
        }
    }
}

/// What expressions call things.
pub struct Names {
    memory: Vec<String>,
    /// The extent that is a constant parameter, as tiles and numbers use it.
    block: Option<usize>,
}

impl std::ops::Index<usize> for Names {
    type Output = String;

    fn index(&self, memory: usize) -> &String {
        &self.memory[memory]
    }
}

impl Node {
    pub fn text(&self, names: &Names) -> String {
        let arg = |i: usize| self.args[i].text(names);
        let all = || list(self.args.iter().map(|arg| arg.text(names)));
        let (dtype, shape) = (self.ty.dtype, &self.ty.shape);
        match &self.op {
            Op::Variable(variable) => format!("v{variable}"),
            Op::Number(element) => number(*element, dtype),
            Op::Scalar(index) => format!("s{index}"),
            Op::ProgramId(axis) => format!("tl::program_id({axis})"),
            Op::NumPrograms(axis) => format!("tl::num_programs({axis})"),
            Op::Arange(0) if names.block == Some(shape[0]) => "tl::arange(0, BLOCK)".into(),
            Op::Block => "BLOCK".into(),
            Op::Arange(start) => format!("tl::arange({start}, {})", start + shape[0] as i64),
            // A literal alone is `f32`.
            Op::Full if dtype == DType::F64 => format!("tl::full::<{dtype}>({shape:?}, {})", arg(0)),
            Op::Full => format!("tl::full({shape:?}, {})", arg(0)),
            Op::Operator(symbol) | Op::Compare(symbol) => format!("({} {symbol} {})", arg(0), arg(1)),
            Op::Prefix("neg") => format!("(-{})", arg(0)),
            Op::Prefix(_) => format!("(!{})", arg(0)),
            Op::Lanewise(name) | Op::Random(name) => format!("tl::{name}({})", all()),
            Op::Select => format!("tl::select({})", all()),
            Op::Cast => format!("{}.to::<{dtype}>()", arg(0)),
            Op::Bitcast => format!("{}.bitcast::<{dtype}>()", arg(0)),
            Op::Load(memory) => {
                let rest: String =
                    self.args[1..].iter().map(|arg| format!(", {}", arg.text(names))).collect();
                format!("tl::load({} + {}{rest})", names[*memory], arg(0))
            }
            Op::LoadView(memory) => {
                let extents = list(shape.iter().map(usize::to_string));
                format!("{}.load::<{extents}>({})", names[*memory], all())
            }
            Op::Length(memory) => format!("{}.len()", names[*memory]),
            Op::Atomic { name, memory } => {
                let rest: String =
                    self.args[1..].iter().map(|arg| format!(", {}", arg.text(names))).collect();
                format!("tl::{name}({} + {}{rest})", names[*memory], arg(0))
            }
            Op::Hint(method) => format!("{}{method}", arg(0)),
            Op::Dot { suffix } => format!("tl::dot({}){suffix}", all()),
            Op::Softmax { axis, log: false } => format!("tl::softmax({}, {axis})", arg(0)),
            Op::Softmax { axis, .. } => format!("tl::log_softmax({}, {axis})", arg(0)),
            Op::Reshape => format!("tl::reshape({}, {shape:?})", arg(0)),
            Op::Permute(order) => format!("tl::permute({}, {order:?})", arg(0)),
            Op::ExpandDims(axis) => match (self.args[0].ty.shape.len(), axis) {
                (1, 0) => format!("{}.row()", arg(0)),
                (1, _) => format!("{}.col()", arg(0)),
                _ => format!("tl::expand_dims({}, {axis})", arg(0)),
            },
            Op::Squeeze(axis) => format!("tl::squeeze({}, {axis})", arg(0)),
            Op::Broadcast => format!("tl::broadcast_to({}, {shape:?})", arg(0)),
            Op::Reduce { name, axis: Some(axis), keep: true } => {
                format!("tl::{name}({}, {axis}, true)", arg(0))
            }
            Op::Reduce { name, axis: Some(axis), .. } => format!("tl::{name}({}, {axis})", arg(0)),
            Op::Reduce { name, .. } => format!("tl::{name}({})", arg(0)),
            Op::ReduceBy { combine, axis } => format!("tl::reduce({}, {axis}, {})", arg(0), combine.text()),
            Op::Scan { name, axis, reverse } => format!("tl::{name}({}, {axis}, {reverse})", arg(0)),
            Op::ScanBy { combine, axis, reverse } => {
                format!("tl::associative_scan({}, {axis}, {}, {reverse})", arg(0), combine.text())
            }
            Op::Sort { axis, descending } => format!("tl::sort({}, {axis}, {descending})", arg(0)),
            Op::Argsort { axis, descending } => format!("tl::argsort({}, {axis}, {descending})", arg(0)),
            Op::Gather(axis) => format!("tl::gather({}, {axis})", all()),
            Op::Slice { axis, start } => {
                format!("tl::slice({}, {axis}, {start}, {})", arg(0), start + shape[*axis])
            }
            Op::Index { axis, position } => format!("tl::index({}, {axis}, {position})", arg(0)),
            Op::Flip(axis) => format!("tl::flip({}, {axis})", arg(0)),
            Op::Cat(axis) => format!("tl::cat({}, {axis})", all()),
            Op::Join => format!("tl::join({})", all()),
            Op::Interleave => format!("tl::interleave({})", all()),
            Op::Histogram => format!("tl::histogram({}, {})", arg(0), shape[0]),
            Op::Call(function) => format!("f{function}({})", all()),
        }
    }
}

impl Range {
    fn text(&self, names: &Names) -> String {
        let (start, end) = (self.start.text(names), self.end.text(names));
        let step = self.step.as_ref().map(|step| step.text(names));
        let stepped = |range: String| match &step {
            Some(step) => format!("({range}).step_by({step})"),
            None => range,
        };
        let rest = step.as_ref().map(|step| format!(", {step}")).unwrap_or_default();
        let range = match self.form {
            RangeForm::Dots => stepped(format!("{start}..{end}")),
            RangeForm::Closed => stepped(format!("{start}..={end}")),
            RangeForm::Function => format!("tl::range({start}, {end}{rest})"),
            RangeForm::Static => format!("tl::static_range({start}, {end}{rest})"),
        };
        range + self.hints
    }
}

impl Pattern {
    fn text(&self) -> String {
        if self.min == self.max { self.min.to_string() } else { format!("{}..={}", self.min, self.max) }
    }

    pub fn takes(&self, value: i128) -> bool {
        (i128::from(self.min)..=i128::from(self.max)).contains(&value)
    }
}

/// Prints statements, indented.
struct Printer<'a> {
    names: &'a Names,
    text: String,
    depth: usize,
}

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        self.text += &format!("{}{text}\n", "    ".repeat(self.depth));
    }

    fn block(&mut self, block: &[Statement], value: Option<&Node>) {
        self.depth += 1;
        block.iter().for_each(|statement| self.statement(statement));
        if let Some(value) = value {
            self.line(&value.text(self.names));
        }
        self.depth -= 1;
    }

    fn statement(&mut self, statement: &Statement) {
        let node = |node: &Node| node.text(self.names);
        let masked =
            |mask: &Option<Node>| mask.as_ref().map(|mask| format!(", {}", node(mask))).unwrap_or_default();
        match statement {
            Statement::Let { variable, mutable, value } => {
                let word = if *mutable { "let mut" } else { "let" };
                self.line(&format!("{word} v{variable} = {};", node(value)));
            }
            Statement::LetPair { variables: [a, b], pair, args, style } => {
                let args: Vec<String> = args.iter().map(node).collect();
                let call = match pair {
                    Pair::Split => format!("tl::split({})", args[0]),
                    Pair::TopK { axis, k } => format!("tl::topk({}, {k}, {axis})", args[0]),
                    Pair::MaxIndex(axis) => format!("tl::max_index({}, {axis})", args[0]),
                    Pair::MinIndex(axis) => format!("tl::min_index({}, {axis})", args[0]),
                    Pair::AffineScan { axis, reverse } => format!(
                        "tl::associative_scan(({}, {}), {axis}, |(a, b), (c, d)| (a * c, b * c + d), {reverse})",
                        args[0], args[1]
                    ),
                };
                match style {
                    PairStyle::Destructured => self.line(&format!("let (v{a}, v{b}) = {call};")),
                    PairStyle::ByField => {
                        self.line(&format!("let pair{a} = {call};"));
                        self.line(&format!("let (v{a}, v{b}) = (pair{a}.0, pair{a}.1);"));
                    }
                }
            }
            Statement::Assign { variable, operator, value } => {
                let symbol = operator.unwrap_or_default();
                self.line(&format!("v{variable} {symbol}= {};", node(value)));
            }
            Statement::AssignPair { variables: [a, b], values: [first, second] } => {
                self.line(&format!("(v{a}, v{b}) = ({}, {});", node(first), node(second)));
            }
            Statement::Store { memory, offset, value, mask, hint } => {
                let text =
                    format!("{} + {}, {}{}", self.names[*memory], node(offset), node(value), masked(mask));
                self.line(&format!("tl::store({text}){hint};"));
            }
            Statement::StoreView { memory, offsets, value } => {
                let offsets = list(offsets.iter().map(node));
                self.line(&format!("{}.store({}, {offsets});", self.names[*memory], node(value)));
            }
            Statement::Atomic { name, memory, offset, value, mask } => {
                let text =
                    format!("{} + {}, {}{}", self.names[*memory], node(offset), node(value), masked(mask));
                self.line(&format!("tl::{name}({text});"));
            }
            Statement::If { condition, then, otherwise } => {
                self.line(&format!("if {} {{", node(condition)));
                self.block(then, None);
                if !otherwise.is_empty() {
                    self.line("} else {");
                    self.block(otherwise, None);
                }
                self.line("}");
            }
            Statement::LetIf { variable, condition, branches } => {
                self.line(&format!("let v{variable} = if {} {{", node(condition)));
                self.block(&branches[0].0, Some(&branches[0].1));
                self.line("} else {");
                self.block(&branches[1].0, Some(&branches[1].1));
                self.line("};");
            }
            Statement::LetMatch { variable, scrutinee, arms, rest } => {
                let arms: String = arms
                    .iter()
                    .map(|(pattern, value)| format!("{} => {}, ", pattern.text(), node(value)))
                    .collect();
                let text = format!("match {} {{ {arms}_ => {} }}", node(scrutinee), node(rest));
                self.line(&format!("let v{variable} = {text};"));
            }
            Statement::Match { scrutinee, arms, rest } => {
                self.line(&format!("match {} {{", node(scrutinee)));
                self.depth += 1;
                for (pattern, block) in arms {
                    self.line(&format!("{} => {{", pattern.text()));
                    self.block(block, None);
                    self.line("}");
                }
                self.line("_ => {");
                self.block(rest, None);
                self.line("}");
                self.depth -= 1;
                self.line("}");
            }
            Statement::For { variable, range, body } => {
                self.line(&format!("for v{variable} in {} {{", range.text(self.names)));
                self.block(body, None);
                self.line("}");
            }
            Statement::While { counter, condition, body } => {
                let also = condition
                    .as_ref()
                    .map(|condition| format!(" && {}", node(condition)))
                    .unwrap_or_default();
                self.line(&format!("while v{counter} > 0{also} {{"));
                self.depth += 1;
                self.line(&format!("v{counter} -= 1;"));
                self.depth -= 1;
                self.block(body, None);
                self.line("}");
            }
            Statement::Break => self.line("break;"),
            Statement::Continue => self.line("continue;"),
            Statement::Return => self.line("return;"),
        }
    }
}

impl Program {
    pub fn names(&self) -> Names {
        let memory = self.memory.iter().enumerate().map(|(i, memory)| memory.name(i)).collect();
        Names { memory, block: self.block.as_ref().map(|(values, variant)| values[*variant]) }
    }

    /// The kernel as a user would write it.
    pub fn source(&self) -> String {
        let names = self.names();
        let memory = self.memory.iter().zip(&names.memory).map(|(memory, name)| {
            let reference = if memory.written { "&mut " } else { "&" };
            match memory.view {
                Some(rank) => format!("{name}: {reference}View<{}, {rank}>", memory.dtype),
                None => format!("{name}: {reference}[{}]", memory.dtype),
            }
        });
        let scalars = self.scalars.iter().enumerate().map(|(i, (_, dtype))| format!("s{i}: {dtype}"));
        let mut printer = Printer { names: &names, text: String::new(), depth: 0 };
        let (variants, generic) = match &self.block {
            Some((values, _)) => (format!("BLOCK = {values:?}"), "<const BLOCK: usize>"),
            None => (String::new(), ""),
        };
        let settings = [variants, self.attribute.clone()].into_iter().filter(|part| !part.is_empty());
        printer.line(&format!("#[fuse_kernel({})]", list(settings)));
        printer.line(&format!("fn k{generic}({}) {{", list(memory.chain(scalars))));
        printer.depth = 1;
        for (i, function) in self.functions.iter().enumerate() {
            let params =
                function.params.iter().map(|(variable, ty)| format!("v{variable}: Tile<{}>", ty.dtype));
            printer.line(&format!(
                "fn f{i}({}) -> Tile<{}> {{ {} }}",
                list(params),
                function.body.ty.dtype,
                function.body.text(&names)
            ));
        }
        printer.depth = 0;
        printer.block(&self.body, None);
        printer.line("}");
        printer.text
    }

    /// The variant that runs.
    pub fn variant(&self) -> usize {
        self.block.as_ref().map_or(0, |(_, variant)| *variant)
    }

    pub fn statements(&self) -> usize {
        fn of(block: &[Statement]) -> usize {
            block
                .iter()
                .map(|statement| 1 + statement.blocks().into_iter().map(|block| of(block)).sum::<usize>())
                .sum()
        }
        of(&self.body)
    }
}

impl Statement {
    pub fn blocks(&self) -> Vec<&Block> {
        match self {
            Statement::If { then, otherwise, .. } => vec![then, otherwise],
            Statement::LetIf { branches, .. } => vec![&branches[0].0, &branches[1].0],
            Statement::Match { arms, rest, .. } => {
                arms.iter().map(|(_, block)| block).chain([rest]).collect()
            }
            Statement::For { body, .. } | Statement::While { body, .. } => vec![body],
            _ => vec![],
        }
    }

    /// Its own expressions, not those of nested statements.
    pub fn nodes(&self) -> Vec<&Node> {
        match self {
            Statement::Let { value, .. } | Statement::Assign { value, .. } => vec![value],
            Statement::LetPair { args, .. } => args.iter().collect(),
            Statement::AssignPair { values, .. } => values.iter().collect(),
            Statement::Store { offset, value, mask, .. } | Statement::Atomic { offset, value, mask, .. } => {
                [offset, value].into_iter().chain(mask).collect()
            }
            Statement::StoreView { offsets, value, .. } => offsets.iter().chain([value]).collect(),
            Statement::If { condition, .. } => vec![condition],
            Statement::LetIf { condition, branches, .. } => vec![condition, &branches[0].1, &branches[1].1],
            Statement::LetMatch { scrutinee, arms, rest, .. } => {
                arms.iter().map(|(_, value)| value).chain([scrutinee, rest]).collect()
            }
            Statement::Match { scrutinee, .. } => vec![scrutinee],
            Statement::For { range, .. } => {
                [&range.start, &range.end].into_iter().chain(&range.step).collect()
            }
            Statement::While { condition, .. } => condition.iter().collect(),
            Statement::Break | Statement::Continue | Statement::Return => vec![],
        }
    }

    pub fn blocks_mut(&mut self) -> Vec<&mut Block> {
        match self {
            Statement::If { then, otherwise, .. } => vec![then, otherwise],
            Statement::LetIf { branches, .. } => {
                let [first, second] = &mut **branches;
                vec![&mut first.0, &mut second.0]
            }
            Statement::Match { arms, rest, .. } => {
                arms.iter_mut().map(|(_, block)| block).chain([rest]).collect()
            }
            Statement::For { body, .. } | Statement::While { body, .. } => vec![body],
            _ => vec![],
        }
    }

    /// The variables that it assigns.
    pub fn assigned(&self, found: &mut Vec<usize>) {
        match self {
            Statement::Assign { variable, .. } => found.push(*variable),
            Statement::AssignPair { variables, .. } => found.extend(variables),
            Statement::While { counter, .. } => found.push(*counter),
            _ => {}
        }
        for block in self.blocks() {
            block.iter().for_each(|statement| statement.assigned(found));
        }
    }
}
