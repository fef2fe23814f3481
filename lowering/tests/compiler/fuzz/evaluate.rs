//! The reference evaluator: statement by statement, element by element.

use tile_ir::support::dtype::DType;

use super::approximate;
use super::element::{CONSTANT_SHIFT, Element, cast, compare, lanewise, wrap};
use super::program::{Block, Combine, Node, Op, Pair, Program, Range, RangeForm, Statement, Type};
use super::tile::{Tile, count, indices};

/// The arguments of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    pub grid: [i64; 3],
    pub scalars: Vec<Element>,
    pub memory: Vec<Contents>,
}

/// A parameter's memory.
#[derive(Clone, Debug)]
pub struct Contents {
    pub data: Vec<Element>,
    /// Of a view.
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
}

/// The memory after a launch.
pub struct Outcome {
    pub memory: Vec<Contents>,
    /// Whether the law of indices defines every offset and comparison.
    pub well_defined: bool,
    /// Whether an access is outside of its slice.
    pub outside: bool,
}

/// Runs every program of the grid, one after the other.
pub fn evaluate(program: &Program, launch: &Launch) -> Outcome {
    let mut machine = Machine {
        program,
        scalars: &launch.scalars,
        memory: launch.memory.clone(),
        variables: vec![None; program.variables],
        id: [0; 3],
        grid: launch.grid,
        parts: 0.0,
        well_defined: true,
        outside: false,
    };
    let [x, y, z] = launch.grid;
    for id in 0..x * y * z {
        machine.id = [id % x, id / x % y, id / (x * y)];
        machine.variables = vec![None; program.variables];
        machine.block(&program.body);
    }
    Outcome { memory: machine.memory, well_defined: machine.well_defined, outside: machine.outside }
}

/// The control flow after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
    Return,
}

struct Machine<'a> {
    program: &'a Program,
    scalars: &'a [Element],
    memory: Vec<Contents>,
    variables: Vec<Option<Tile>>,
    id: [i64; 3],
    grid: [i64; 3],
    /// The largest number of moderate size that a sum, product or quotient of floats was made of: `exp` of it is made
    /// together with it.
    parts: f64,
    well_defined: bool,
    outside: bool,
}

/// Parts beyond this are masks, which cancel exactly or give 0.
const MODERATE: f64 = 1024.0;

impl Machine<'_> {
    fn block(&mut self, block: &Block) -> Flow {
        for statement in block {
            let flow = self.statement(statement);
            if flow != Flow::Next {
                return flow;
            }
        }
        Flow::Next
    }

    /// After a loop or a branch, assigned variables are plain values: their exact integers are forgotten.
    fn forget_exact(&mut self, statement: &Statement) {
        let mut assigned = vec![];
        statement.assigned(&mut assigned);
        for variable in assigned {
            if let Some(tile) = &mut self.variables[variable] {
                *tile = tile.leaves();
            }
        }
    }

    fn scalar(&mut self, node: &Node) -> Element {
        self.node(node).data[0]
    }

    fn set(&mut self, variable: usize, tile: Tile) {
        self.variables[variable] = Some(tile);
    }

    fn statement(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Let { variable, value, .. } => {
                let tile = self.node(value);
                self.set(*variable, tile);
            }
            Statement::LetPair { variables, pair, args, .. } => {
                let args: Vec<Tile> = args.iter().map(|arg| self.node(arg).leaves()).collect();
                let dtype = match statement {
                    Statement::LetPair { args, .. } => args[0].ty.dtype,
                    _ => DType::I32,
                };
                let results = self::pair(pair, dtype, &args);
                for (variable, tile) in variables.iter().zip(results) {
                    self.set(*variable, tile.leaves());
                }
            }
            Statement::Assign { variable, operator, value } => {
                let mut tile = self.node(value);
                if let Some(symbol) = operator {
                    let old = self.variables[*variable].clone().expect("a variable");
                    let dtype = value.ty.dtype;
                    let new = tile.broadcast(&old.shape);
                    let pairs = old.data.iter().zip(&new.data);
                    let data = pairs.map(|(&a, &b)| lanewise(symbol, dtype, &[a, b])).collect();
                    tile = Tile { shape: old.shape, data };
                }
                self.set(*variable, tile);
            }
            Statement::AssignPair { variables, values } => {
                let tiles = values.each_ref().map(|value| self.node(value));
                for (variable, tile) in variables.iter().zip(tiles) {
                    self.set(*variable, tile);
                }
            }
            Statement::Store { memory, offset, value, mask, .. } => {
                let shape = &offset.ty.shape;
                let (positions, value) = (self.node(offset), self.node(value).broadcast(shape));
                let mask = mask.as_ref().map(|mask| self.node(mask).broadcast(shape));
                for (i, position) in positions.data.iter().enumerate() {
                    if mask.as_ref().is_none_or(|mask| mask.data[i].is_true())
                        && let Some(position) = self.slice_index(*memory, *position)
                    {
                        self.memory[*memory].data[position] = value.data[i].leaf();
                    }
                }
            }
            Statement::StoreView { memory, offsets, value } => {
                let start = self.offsets(offsets);
                let tile = self.node(value);
                for (index, element) in indices(&tile.shape).zip(&tile.data) {
                    if let Some(position) = self.view_index(*memory, &start, &index) {
                        self.memory[*memory].data[position] = element.leaf();
                    }
                }
            }
            Statement::Atomic { name, memory, offset, value, mask } => {
                let (shape, dtype) = (&offset.ty.shape, value.ty.dtype);
                let (positions, value) = (self.node(offset), self.node(value).broadcast(shape));
                let mask = mask.as_ref().map(|mask| self.node(mask).broadcast(shape));
                for (i, position) in positions.data.iter().enumerate() {
                    if mask.as_ref().is_none_or(|mask| mask.data[i].is_true())
                        && let Some(position) = self.slice_index(*memory, *position)
                    {
                        self.change(name, *memory, position, &[value.data[i].leaf()], dtype);
                    }
                }
            }
            Statement::If { condition, then, otherwise } => {
                let taken = self.scalar(condition).is_true();
                let flow = self.block(if taken { then } else { otherwise });
                self.forget_exact(statement);
                return flow;
            }
            Statement::LetIf { variable, condition, branches } => {
                let taken = self.scalar(condition).is_true();
                let branch = &branches[usize::from(!taken)];
                self.block(&branch.0);
                let tile = self.node(&branch.1).leaves();
                self.forget_exact(statement);
                self.set(*variable, tile);
            }
            Statement::LetMatch { variable, scrutinee, arms, rest } => {
                let value = self.scalar(scrutinee).value();
                let arm = arms.iter().find(|(pattern, _)| pattern.takes(value));
                let tile = self.node(arm.map_or(rest, |(_, node)| node)).leaves();
                self.set(*variable, tile);
            }
            Statement::Match { scrutinee, arms, rest } => {
                let value = self.scalar(scrutinee).value();
                let arm = arms.iter().find(|(pattern, _)| pattern.takes(value));
                let flow = self.block(arm.map_or(rest, |(_, block)| block));
                self.forget_exact(statement);
                return flow;
            }
            Statement::For { variable, range, body } => {
                return self.for_loop(statement, *variable, range, body);
            }
            Statement::While { counter, condition, body } => {
                loop {
                    self.forget_exact(statement);
                    let remaining = self.variables[*counter].as_ref().expect("a counter").data[0].value();
                    let also = condition.as_ref().is_none_or(|condition| self.scalar(condition).is_true());
                    if remaining <= 0 || !also {
                        return Flow::Next;
                    }
                    self.set(*counter, Tile::scalar(Element::whole(remaining - 1)));
                    match self.block(body) {
                        Flow::Break => break,
                        Flow::Return => return Flow::Return,
                        Flow::Next | Flow::Continue => {}
                    }
                }
                self.forget_exact(statement);
            }
            Statement::Break => return Flow::Break,
            Statement::Continue => return Flow::Continue,
            Statement::Return => return Flow::Return,
        }
        Flow::Next
    }

    fn for_loop(&mut self, statement: &Statement, variable: usize, range: &Range, body: &Block) -> Flow {
        let [start, end] = [&range.start, &range.end].map(|end| self.scalar(end).value());
        let step = range.step.as_ref().map_or(1, |step| self.scalar(step).value()).max(1);
        let end = if range.form == RangeForm::Closed { end + 1 } else { end };
        let unrolled = range.form == RangeForm::Static;
        let mut at = start;
        while at < end {
            if !unrolled {
                self.forget_exact(statement);
            }
            self.set(variable, Tile::scalar(Element::whole(at)));
            match self.block(body) {
                Flow::Break => break,
                Flow::Return => return Flow::Return,
                Flow::Next | Flow::Continue => {}
            }
            at += step;
        }
        if !unrolled {
            self.forget_exact(statement);
        }
        Flow::Next
    }

    /// Does an atomic operation on an element, with the value to compare with before the operand; gives what it was.
    fn change(
        &mut self,
        name: &str,
        memory: usize,
        position: usize,
        args: &[Element],
        dtype: DType,
    ) -> Element {
        let (old, value) = (self.memory[memory].data[position], args[args.len() - 1]);
        let symbol = match name {
            "atomic_xchg" => None,
            "atomic_cas" if old.bytes(dtype) != args[0].bytes(dtype) => return old,
            "atomic_cas" => None,
            "atomic_add" => Some("+"),
            "atomic_max" => Some("maximum"),
            "atomic_min" => Some("minimum"),
            "atomic_and" => Some("&"),
            "atomic_or" => Some("|"),
            _ => Some("^"),
        };
        let new = symbol.map_or(value, |symbol| lanewise(symbol, dtype, &[old, value]).leaf());
        // Sums of floats are added in any order.
        let new = match new {
            Element::Approximate { value: sum, error } if name == "atomic_add" => {
                let magnitude = old.float().abs() + value.float().abs();
                Element::Approximate {
                    value: sum,
                    error: error + 8.0 * approximate::unit_roundoff(dtype) * magnitude,
                }
            }
            new => new,
        };
        self.memory[memory].data[position] = new;
        old
    }

    /// The index of an offset by the law of indices, if it is inside of the slice.
    fn slice_index(&mut self, memory: usize, offset: Element) -> Option<usize> {
        self.well_defined &= offset.exact().is_some();
        let position = offset.exact().unwrap_or(offset.value());
        let inside = usize::try_from(position).ok().filter(|&at| at < self.memory[memory].data.len());
        self.outside |= inside.is_none();
        inside
    }

    fn offsets(&mut self, offsets: &[Node]) -> Vec<i64> {
        let mut start = vec![];
        for offset in offsets {
            let element = self.scalar(offset);
            self.well_defined &= element.exact().is_some();
            start.push(element.exact().unwrap_or(element.value()) as i64);
        }
        start
    }

    fn view_index(&self, memory: usize, start: &[i64], index: &[usize]) -> Option<usize> {
        let contents = &self.memory[memory];
        let at: Vec<i64> =
            start.iter().zip(index).map(|(start, &i)| start.saturating_add(i as i64)).collect();
        let inside = at.iter().zip(&contents.shape).all(|(at, extent)| (0..*extent).contains(at));
        inside.then(|| at.iter().zip(&contents.strides).map(|(at, stride)| at * stride).sum::<i64>() as usize)
    }

    fn node(&mut self, node: &Node) -> Tile {
        let Type { dtype, shape } = &node.ty;
        let dtype = *dtype;
        match &node.op {
            Op::Variable(variable) => self.variables[*variable].clone().expect("a variable with a value"),
            Op::Number(element) => Tile::scalar(*element),
            Op::Block => {
                let (values, variant) = self.program.block.as_ref().expect("a constant parameter");
                Tile::scalar(Element::whole(values[*variant] as i128))
            }
            Op::Scalar(index) => Tile::scalar(self.scalars[*index]),
            Op::ProgramId(axis) => Tile::scalar(Element::whole(i128::from(self.id[*axis]))),
            Op::NumPrograms(axis) => Tile::scalar(Element::whole(i128::from(self.grid[*axis]))),
            Op::Arange(start) => {
                Tile::build(shape, |index| Element::whole(i128::from(*start) + index[0] as i128))
            }
            Op::Length(memory) => Tile::scalar(Element::whole(self.memory[*memory].data.len() as i128)),
            Op::LoadView(memory) => {
                let start = self.offsets(&node.args);
                Tile::build(shape, |index| match self.view_index(*memory, &start, index) {
                    Some(position) => self.memory[*memory].data[position],
                    None => Element::zero(dtype),
                })
            }
            _ => {
                let args: Vec<Tile> = node.args.iter().map(|arg| self.node(arg)).collect();
                let result = self.operation(node, args);
                assert_eq!((&result.shape, result.data.len()), (shape, count(shape)), "{node:?}");
                result
            }
        }
    }

    fn operation(&mut self, node: &Node, args: Vec<Tile>) -> Tile {
        let (dtype, shape) = (node.ty.dtype, &node.ty.shape);
        let from = node.args.first().map_or(dtype, |arg| arg.ty.dtype);
        let lanes = |args: &[Tile], join: &mut dyn FnMut(&[Element]) -> Element| {
            let args: Vec<Tile> = args.iter().map(|arg| arg.broadcast(shape)).collect();
            let data = (0..count(shape))
                .map(|i| join(&args.iter().map(|arg| arg.data[i]).collect::<Vec<Element>>()))
                .collect();
            Tile { shape: shape.clone(), data }
        };
        match &node.op {
            Op::Full | Op::Broadcast => args[0].broadcast(shape),
            Op::Hint(_) => args[0].clone(),
            Op::Dot { suffix } => dot(&args, dtype, [from, dtype], suffix),
            Op::Softmax { axis, log } => {
                let lines: Vec<Vec<Element>> = args[0].lines(*axis);
                let parts = lines.iter().flatten().fold(self.parts, |parts, x| largest_part(parts, *x));
                let change = |line: &Vec<Element>| approximate::softmax(line, *log, parts, dtype);
                args[0].of_lines(*axis, &lines.iter().map(change).collect::<Vec<_>>())
            }
            Op::Atomic { name, memory } => lanes(&args, &mut |a| match self.slice_index(*memory, a[0]) {
                Some(position) => self.change(name, *memory, position, &a[1..], dtype),
                None => Element::zero(dtype),
            }),
            Op::Random(name) => lanes(&args, &mut |a| {
                let word = philox_word(a[0].value() as u64, a[1].value() as u64);
                match *name {
                    "randint" => Element::whole(word.into()),
                    _ => Element::Float(f64::from(word >> 9) / f64::from(1 << 23)),
                }
            }),
            Op::Lanewise("exp") => lanes(&args, &mut |a| approximate::exp(a[0], self.parts, dtype)),
            Op::Operator(name) | Op::Prefix(name) | Op::Lanewise(name) => {
                let amount = match (*name, node.args.last().map(|arg| &arg.op)) {
                    ("<<", Some(Op::Number(amount))) => Some(amount.value()),
                    _ => None,
                };
                let constant = amount.is_some_and(|amount| amount < 31);
                let name = if constant { CONSTANT_SHIFT } else { *name };
                if dtype.is_float() && matches!(name, "+" | "-" | "*" | "/") {
                    let parts = args.iter().flat_map(|arg| &arg.data);
                    self.parts = parts.fold(self.parts, |parts, x| largest_part(parts, *x));
                }
                lanes(&args, &mut |a| lanewise(name, dtype, a))
            }
            Op::Compare(name) => {
                let mut all = true;
                let tile = lanes(&args, &mut |a| {
                    let (element, well_defined) = compare(name, a[0], a[1]);
                    all &= well_defined;
                    element
                });
                self.well_defined &= all;
                tile
            }
            Op::Select => lanes(&args, &mut |a| if a[0].is_true() { a[1].leaf() } else { a[2].leaf() }),
            Op::Cast => args[0].map(|element| cast(element, from, dtype)),
            Op::Bitcast => args[0].map(|element| Element::of_bytes(&element.bytes(from), dtype)),
            Op::Load(memory) => {
                let mut loaded = |a: &[Element]| {
                    let other = a.get(2).copied().unwrap_or(Element::zero(dtype)).leaf();
                    if a.len() > 1 && !a[1].is_true() {
                        self.well_defined &= a[0].exact().is_some();
                        return other;
                    }
                    self.slice_index(*memory, a[0])
                        .map_or(other, |position| self.memory[*memory].data[position])
                };
                lanes(&args, &mut loaded)
            }
            Op::Reshape => Tile { shape: shape.clone(), data: args[0].data.clone() },
            Op::ExpandDims(_) | Op::Squeeze(_) => Tile { shape: shape.clone(), data: args[0].data.clone() },
            Op::Permute(order) => Tile::build(shape, |index| {
                let mut own = vec![0; index.len()];
                order.iter().zip(index).for_each(|(&axis, &i)| own[axis] = i);
                args[0].at(&own)
            }),
            Op::Call(function) => {
                let function = &self.program.functions[*function];
                for ((variable, _), arg) in function.params.iter().zip(args) {
                    self.variables[*variable] = Some(arg);
                }
                self.node(&function.body)
            }
            _ => line_operation(node, &args.iter().map(Tile::leaves).collect::<Vec<_>>()),
        }
    }
}

/// The word of an offset in the stream of a seed, by Philox-4x32-10.
fn philox_word(seed: u64, offset: u64) -> u32 {
    let [mut key, index] = [seed, offset / 4].map(|number| [number as u32, (number >> 32) as u32]);
    let mut words = [index[0], index[1], 0, 0];
    for _ in 0..10 {
        let product = |word: u32, factor: u64| {
            let whole = u64::from(word) * factor;
            [(whole >> 32) as u32, whole as u32]
        };
        let (first, second) = (product(words[0], 0xd251_1f53), product(words[2], 0xcd9e_8d57));
        words = [second[0] ^ words[1] ^ key[0], second[1], first[0] ^ words[3] ^ key[1], first[1]];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    words[(offset % 4) as usize]
}

fn largest_part(parts: f64, x: Element) -> f64 {
    let size = x.float().abs();
    if size <= MODERATE { parts.max(size) } else { parts }
}

/// The dot of the last two axes, for each index of those before.
fn dot(args: &[Tile], dtype: DType, [from, to]: [DType; 2], suffix: &str) -> Tile {
    let (a, b) = (&args[0], &args[1]);
    let rank = a.shape.len();
    let [m, k, n] = [a.shape[rank - 2], a.shape[rank - 1], b.shape[rank - 1]];
    let batch = count(&a.shape[..rank - 2]);
    let mut shape = a.shape.clone();
    shape[rank - 1] = n;
    let mut data = Vec::with_capacity(batch * m * n);
    // Eleven digits of either operand, where the user asked for these.
    let rounded = if from == DType::F32 && suffix.contains("\"tf32\"") { 2f64.powi(-10) } else { 0.0 };
    // What tensor cores keep of sums of products of 8-bit floats, of 32 at once: see `max_num_imprecise_acc`.
    let imprecise = if from.is_f8() { k.div_ceil(32) as f64 * 34.0 / 8192.0 } else { 0.0 };
    let relative = (k as f64 + 4.0) * 4.0 * approximate::unit_roundoff(to) + rounded + imprecise;
    for at in 0..batch * m * n {
        let (batch, row, column) = (at / (m * n), at / n % m, at % n);
        let acc = args.get(2).map_or(Element::zero(dtype), |acc| acc.data[at]);
        let terms = (0..k).map(|i| (a.data[(batch * m + row) * k + i], b.data[(batch * k + i) * n + column]));
        if dtype.is_integer() {
            let sum = terms.map(|(a, b)| a.value() * b.value()).sum::<i128>() + acc.value();
            data.push(Element::wrapped(dtype, sum));
            continue;
        }
        let (mut value, mut magnitude, mut errors) = (acc.float(), acc.float().abs(), acc.error());
        for (a, b) in terms {
            let (x, y) = (a.float(), b.float());
            value += x * y;
            magnitude += (x * y).abs();
            if a.error() + b.error() > 0.0 {
                errors += x.abs() * b.error() + y.abs() * a.error() + a.error() * b.error();
            }
        }
        data.push(approximate::total(value, [magnitude, errors], relative, dtype));
    }
    Tile { shape, data }
}

/// Operations on lines of elements along an axis; their results are plain values.
fn line_operation(node: &Node, args: &[Tile]) -> Tile {
    let (dtype, shape) = (node.ty.dtype, &node.ty.shape);
    let from = node.args[0].ty.dtype;
    let x = &args[0];
    let each = |axis: usize, change: &dyn Fn(Vec<Element>) -> Vec<Element>| {
        x.of_lines(axis, &x.lines(axis).into_iter().map(change).collect::<Vec<_>>())
    };
    match &node.op {
        Op::Reduce { name, axis: None, .. } => Tile::scalar(reduced(name, from, dtype, &x.data)),
        Op::Reduce { name, axis: Some(axis), .. } => {
            let data = x.lines(*axis).iter().map(|line| reduced(name, from, dtype, line)).collect();
            Tile { shape: shape.clone(), data }
        }
        Op::ReduceBy { combine, axis } => {
            let fold =
                |line: &Vec<Element>| line[1..].iter().fold(line[0], |a, &b| combined(*combine, dtype, a, b));
            Tile { shape: shape.clone(), data: x.lines(*axis).iter().map(fold).collect() }
        }
        Op::Scan { name, axis, reverse } => {
            let symbol = match *name {
                "cumsum" => "+",
                "cumprod" => "*",
                "cummax" => "maximum",
                _ => "minimum",
            };
            let change = |line: Vec<Element>| {
                let mut line: Vec<Element> =
                    line.into_iter().map(|element| widened(element, from, dtype)).collect();
                if *name == "cumsum" && dtype.is_float() {
                    reversed(&mut line, *reverse);
                    let mut sums: Vec<Element> =
                        (1..=line.len()).map(|end| approximate::sum(&line[..end], dtype)).collect();
                    reversed(&mut sums, *reverse);
                    return sums;
                }
                scanned(line, *reverse, |a, b| lanewise(symbol, dtype, &[a, b]).leaf())
            };
            each(*axis, &change)
        }
        Op::ScanBy { combine, axis, reverse } => {
            each(*axis, &|line| scanned(line, *reverse, |a, b| combined(*combine, dtype, a, b)))
        }
        Op::Sort { axis, descending } => each(*axis, &|mut line| {
            line.sort_by(order);
            if *descending {
                line.reverse();
            }
            line
        }),
        Op::Argsort { axis, descending } => each(*axis, &|line| {
            let positions = argsort(&line, *descending);
            positions.into_iter().map(|position| Element::whole(position as i128)).collect()
        }),
        Op::Gather(axis) => Tile::build(shape, |index| {
            let position = args[1].at(index).value();
            let mut own = index.to_vec();
            match usize::try_from(position) {
                Ok(position) if position < x.shape[*axis] => {
                    own[*axis] = position;
                    x.at(&own)
                }
                _ => Element::zero(dtype),
            }
        }),
        Op::Slice { axis, start } => each(*axis, &|line| line[*start..start + shape[*axis]].to_vec()),
        Op::Index { axis, position } => {
            Tile { shape: shape.clone(), data: x.lines(*axis).iter().map(|line| line[*position]).collect() }
        }
        Op::Flip(axis) => each(*axis, &|line| line.into_iter().rev().collect()),
        Op::Cat(axis) => {
            let lines = x.lines(*axis).into_iter().zip(args[1].lines(*axis));
            x.of_lines(*axis, &lines.map(|(first, second)| [first, second].concat()).collect::<Vec<_>>())
        }
        Op::Join => Tile::build(shape, |index| {
            let (last, index) = index.split_last().expect("an axis");
            args[*last].at(index)
        }),
        Op::Interleave => Tile::build(shape, |index| {
            let (last, index) = index.split_last().expect("an axis");
            args[last % 2].at(&[index, &[last / 2]].concat())
        }),
        Op::Histogram => Tile::build(shape, |index| {
            Element::whole(x.data.iter().filter(|element| element.value() == index[0] as i128).count() as i128)
        }),
        other => panic!("{other:?} is evaluated elsewhere"),
    }
}

fn reversed(line: &mut [Element], reverse: bool) {
    if reverse {
        line.reverse();
    }
}

fn widened(element: Element, from: DType, to: DType) -> Element {
    if from == to { element.leaf() } else { cast(element, from, to) }
}

fn scanned(
    mut line: Vec<Element>,
    reverse: bool,
    join: impl Fn(Element, Element) -> Element,
) -> Vec<Element> {
    if reverse {
        line.reverse();
    }
    for i in 1..line.len() {
        line[i] = join(line[i - 1], line[i]);
    }
    if reverse {
        line.reverse();
    }
    line
}

fn combined(combine: Combine, dtype: DType, a: Element, b: Element) -> Element {
    match combine {
        Combine::Operator(symbol) => lanewise(symbol, dtype, &[a, b]).leaf(),
        Combine::Larger => {
            if compare(">", a, b).0.is_true() {
                a
            } else {
                b
            }
        }
        Combine::Last => b,
    }
}

/// NaN is larger than every number.
fn order(a: &Element, b: &Element) -> std::cmp::Ordering {
    match (a, b) {
        (Element::Float(a), Element::Float(b)) => {
            a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        (a, b) => a.value().cmp(&b.value()),
    }
}

/// Equal elements keep their order.
fn argsort(line: &[Element], descending: bool) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..line.len()).collect();
    positions.sort_by(|&a, &b| {
        let order = order(&line[a], &line[b]);
        if descending { order.reverse() } else { order }
    });
    positions
}

fn reduced(name: &str, from: DType, dtype: DType, line: &[Element]) -> Element {
    let fold = |symbol: &str| {
        let line: Vec<Element> = line.iter().map(|&element| widened(element, from, dtype)).collect();
        line[1..].iter().fold(line[0], |a, &b| lanewise(symbol, dtype, &[a, b]).leaf())
    };
    match name {
        "sum" if dtype.is_float() => {
            let line: Vec<Element> = line.iter().map(|&element| widened(element, from, dtype)).collect();
            approximate::sum(&line, dtype)
        }
        "sum" => fold("+"),
        "max" => fold("maximum"),
        "min" => fold("minimum"),
        "xor_sum" => fold("^"),
        "reduce_or" | "any" => fold("|"),
        "reduce_and" | "all" => fold("&"),
        "argmax" => Element::whole(first_extreme(line, true) as i128),
        "argmin" => Element::whole(first_extreme(line, false) as i128),
        other => panic!("{other} is no reduction"),
    }
}

/// The first NaN, or the first of the extreme elements.
fn first_extreme(line: &[Element], largest: bool) -> usize {
    if let Some(position) =
        line.iter().position(|element| matches!(element, Element::Float(float) if float.is_nan()))
    {
        return position;
    }
    let better = |a: Element, b: Element| compare(if largest { ">" } else { "<" }, a, b).0.is_true();
    (1..line.len()).fold(0, |best, i| if better(line[i], line[best]) { i } else { best })
}

/// The two results of an operation.
fn pair(pair: &Pair, dtype: DType, args: &[Tile]) -> [Tile; 2] {
    let x = &args[0];
    let without = |axis: usize| {
        let mut shape = x.shape.clone();
        shape.remove(axis);
        shape
    };
    match pair {
        Pair::Split => {
            let lines = x.lines(x.shape.len() - 1);
            [0, 1].map(|branch| Tile {
                shape: without(x.shape.len() - 1),
                data: lines.iter().map(|line| line[branch]).collect(),
            })
        }
        Pair::TopK { axis, k } => {
            let lines = x.lines(*axis);
            let positions: Vec<Vec<usize>> =
                lines.iter().map(|line| argsort(line, true)[..*k].to_vec()).collect();
            let values = lines.iter().zip(&positions);
            let values: Vec<Vec<Element>> = values
                .map(|(line, positions)| positions.iter().map(|&position| line[position]).collect())
                .collect();
            let whole = |positions: &Vec<usize>| {
                positions.iter().map(|&position| Element::whole(position as i128)).collect()
            };
            let positions: Vec<Vec<Element>> = positions.iter().map(whole).collect();
            [x.of_lines(*axis, &values), x.of_lines(*axis, &positions)]
        }
        Pair::MaxIndex(axis) | Pair::MinIndex(axis) => {
            let lines = x.lines(*axis);
            let largest = matches!(pair, Pair::MaxIndex(_));
            let positions: Vec<usize> = lines.iter().map(|line| first_extreme(line, largest)).collect();
            let values = lines.iter().zip(&positions).map(|(line, &position)| line[position]).collect();
            let positions = positions.into_iter().map(|position| Element::whole(position as i128)).collect();
            [Tile { shape: without(*axis), data: values }, Tile { shape: without(*axis), data: positions }]
        }
        Pair::AffineScan { axis, reverse } => {
            let lines = x.lines(*axis).into_iter().zip(args[1].lines(*axis));
            let scanned = lines.map(|(mut a, mut b)| {
                if *reverse {
                    (a, b) = (a.into_iter().rev().collect(), b.into_iter().rev().collect());
                }
                for i in 1..a.len() {
                    let (before, own) = ((a[i - 1].value(), b[i - 1].value()), (a[i].value(), b[i].value()));
                    a[i] = Element::whole(wrap(dtype, before.0.wrapping_mul(own.0)));
                    let product = wrap(dtype, before.1.wrapping_mul(own.0));
                    b[i] = Element::whole(wrap(dtype, product + own.1));
                }
                if *reverse {
                    (a, b) = (a.into_iter().rev().collect(), b.into_iter().rev().collect());
                }
                (a, b)
            });
            let (a, b): (Vec<Vec<Element>>, Vec<Vec<Element>>) = scanned.unzip();
            [x.of_lines(*axis, &a), x.of_lines(*axis, &b)]
        }
    }
}
