//! Random kernels: declarations and statements. The same seed gives the same kernel.

use tile_ir::support::dtype::DType;

use super::element::{Element, max_value, min_value, round, wrap};
use super::evaluate::{Contents, Launch};
use super::idioms;
use super::program::{
    Block, Function, Memory, Node, Op, Pair, PairStyle, Pattern, Plan, PlannedMemory, Program, Range,
    RangeForm, Statement, Type,
};
use super::tile::count;
use lowering::devtools::fuzzgen::SplitMix64;

/// The distance between the elements that one program writes and those of the next.
pub const PROGRAM_STRIDE: i128 = 2048;
/// The most elements of a tile that is written.
pub const MAX_STORED: usize = 256;

const SHAPES: [&[usize]; 14] = [
    &[64],
    &[16],
    &[8, 16],
    &[16, 8],
    &[4, 32],
    &[1, 32],
    &[32, 1],
    &[3, 40],
    &[12, 20],
    &[4, 8, 8],
    &[2, 3, 8],
    &[16, 1, 4],
    &[128],
    &[5],
];

const DTYPES: [DType; 13] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// A variable in scope.
#[derive(Clone, Debug)]
pub struct Variable {
    pub index: usize,
    pub ty: Type,
    pub mutable: bool,
    /// Known when the kernel is built.
    pub constant: bool,
}

pub struct Generator {
    pub random: SplitMix64,
    pub memory: Vec<Memory>,
    pub scalars: Vec<(&'static str, DType)>,
    pub functions: Vec<Function>,
    pub scope: Vec<Variable>,
    pub variables: usize,
    pub shapes: Vec<Vec<usize>>,
    pub dtypes: Vec<DType>,
    /// The nesting depth of loops and branches.
    depth: usize,
    loops: usize,
}

/// The kernel of a seed: every other one is an idiom, as users write them.
pub fn generate(seed: u64) -> Program {
    let random = SplitMix64::new(seed);
    if seed.is_multiple_of(2) { idioms::generate(random) } else { statements(random) }
}

/// Random statements on small tiles.
fn statements(mut random: SplitMix64) -> Program {
    let shapes = (0..3).map(|_| random.of(&SHAPES).to_vec()).collect();
    let mut dtypes = vec![DType::I32];
    dtypes.extend((0..2).map(|_| random.of(&DTYPES)));
    if random.below(3) == 0 {
        dtypes.push(DType::Bool);
    }
    dtypes.sort();
    dtypes.dedup();
    let mut generator = Generator {
        random,
        memory: vec![],
        scalars: vec![],
        functions: vec![],
        scope: vec![],
        variables: 0,
        shapes,
        dtypes,
        depth: 0,
        loops: 0,
    };
    generator.declare();
    for _ in 0..generator.random.below(3) {
        generator.function();
    }
    let statements = 4 + generator.random.below(14);
    let mut body = vec![];
    for _ in 0..2 {
        let ty = generator.tile_type();
        body.push(generator.definition(&ty, 1));
    }
    for _ in 0..statements {
        generator.statement(&mut body);
    }
    generator.results(&mut body);
    let attribute = generator.attribute();
    Program {
        attribute,
        memory: generator.memory,
        scalars: generator.scalars,
        functions: generator.functions,
        body,
        variables: generator.variables,
        block: None,
        plans: vec![],
    }
}

/// The arguments of one launch of a program.
pub fn launch(program: &Program, seed: u64) -> Launch {
    if !program.plans.is_empty() {
        return planned(program, seed);
    }
    let mut random = SplitMix64::new(seed);
    let grid = random.of(&[1, 1, 2, 3]);
    let scalars = program.scalars.iter().map(|&(role, dtype)| {
        let value = match role {
            "trips" => random.below(6) as i128,
            _ if random.below(2) == 0 => random.of(&[0, 1, 16, 64, 100, -3, 7, 1 << 20, 1 << 30, -(1 << 29)]),
            _ => i128::from(random.bits() as i16),
        };
        Element::wrapped(dtype, value)
    });
    let scalars = scalars.collect();
    let memory = program.memory.iter().map(|memory| contents(memory, grid, &mut random)).collect();
    Launch { grid: [grid as i64, 1, 1], scalars, memory }
}

/// The seed of the data of a parameter.
pub fn data_seed(seed: u64, param: usize) -> u64 {
    seed.wrapping_mul(64).wrapping_add(param as u64)
}

fn planned(program: &Program, seed: u64) -> Launch {
    let Plan { grid, scalars, memory } = &program.plans[(seed % program.plans.len() as u64) as usize];
    let memory =
        memory.iter().zip(&program.memory).enumerate().map(|(param, (planned, Memory { dtype, .. }))| {
            let PlannedMemory { len, shape, strides, data } = planned.clone();
            let seed = data_seed(seed, param);
            let data = (0..len).map(|index| data.element(*dtype, seed, index)).collect();
            Contents { data, shape, strides }
        });
    Launch { grid: *grid, scalars: scalars.clone(), memory: memory.collect() }
}

fn contents(memory: &Memory, grid: i128, random: &mut SplitMix64) -> Contents {
    let (mut shape, mut strides) = (vec![], vec![]);
    let len = match memory.view {
        Some(rank) => {
            shape = (0..rank).map(|_| random.of(&[1, 3, 8, 16, 20, 33]) as i64).collect();
            let mut order: Vec<usize> = (0..rank).collect();
            if random.below(3) == 0 {
                order.swap(0, rank - 1);
            }
            strides = vec![0; rank];
            let mut next = random.of(&[1, 1, 1, 2]);
            for &axis in order.iter().rev() {
                strides[axis] = next;
                next *= shape[axis] + random.of(&[0, 0, 1, 8]);
            }
            1 + shape.iter().zip(&strides).map(|(extent, stride)| (extent - 1) * stride).sum::<i64>() as usize
        }
        None if memory.written => (grid * PROGRAM_STRIDE) as usize - random.of(&[0, 0, 0, 100, 1000]),
        None => random.of(&[1, 7, 64, 200, 256, 1000, 4096]),
    };
    let data = (0..len).map(|_| element(memory.dtype, random)).collect();
    Contents { data, shape, strides }
}

fn element(dtype: DType, random: &mut SplitMix64) -> Element {
    let wild = random.below(4) == 0;
    if dtype.is_float() {
        let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5, -1.5, 1e4];
        let value = if wild { random.of(&special) } else { f64::from(random.below(41) as i32 - 20) };
        return Element::Float(round(dtype, value));
    }
    let value = if wild {
        let bits = i128::from(random.bits());
        random.of(&[bits, min_value(dtype), max_value(dtype), bits >> 40])
    } else {
        random.below(60) as i128 - 10
    };
    Element::whole(wrap(dtype, value))
}

impl Generator {
    fn declare(&mut self) {
        for dtype in self.dtypes.clone() {
            self.memory.push(Memory { dtype, view: None, written: false });
        }
        if self.random.below(3) == 0 {
            let (dtype, rank) = (self.dtype(), 1 + self.random.below(3));
            self.memory.push(Memory { dtype, view: Some(rank), written: false });
            self.memory.push(Memory { dtype, view: Some(rank), written: true });
        }
        for dtype in self.dtypes.clone() {
            self.memory.push(Memory { dtype, view: None, written: true });
        }
        self.scalars = vec![("trips", DType::I32), ("any", DType::I32), ("any", DType::I64)];
    }

    fn attribute(&mut self) -> String {
        let mut parts = vec!["unreported".to_string()];
        if self.random.below(2) == 0 {
            parts.push(format!("num_warps = {}", self.random.of(&[1, 2, 4, 8, 16])));
        }
        if self.random.below(6) == 0 {
            parts.push("num_ctas = 2".to_string());
        }
        parts.join(", ")
    }

    pub fn dtype(&mut self) -> DType {
        let dtypes = self.dtypes.clone();
        if self.random.below(3) == 0 { DType::I32 } else { self.random.of(&dtypes) }
    }

    pub fn shape(&mut self) -> Vec<usize> {
        let index = self.random.below(self.shapes.len());
        self.shapes[index].clone()
    }

    pub fn tile_type(&mut self) -> Type {
        let (dtype, shape) = (self.dtype(), self.shape());
        Type { dtype, shape }
    }

    fn any_type(&mut self) -> Type {
        if self.random.below(4) == 0 { Type::scalar(self.dtype()) } else { self.tile_type() }
    }

    fn variable(&mut self, ty: &Type, mutable: bool) -> usize {
        let index = self.variables;
        self.variables += 1;
        self.scope.push(Variable { index, ty: ty.clone(), mutable, constant: false });
        index
    }

    /// A function of one or two tiles of one type.
    fn function(&mut self) {
        let outer = std::mem::take(&mut self.scope);
        let ty = self.tile_type();
        let params: Vec<(usize, Type)> =
            (0..1 + self.random.below(2)).map(|_| (self.variable(&ty, false), ty.clone())).collect();
        let body = self.of_variables(&ty, 3);
        self.functions.push(Function { params, body });
        self.scope = outer;
    }

    fn definition(&mut self, ty: &Type, depth: usize) -> Statement {
        let value = self.varying(ty, depth);
        let mutable = self.random.below(3) == 0;
        Statement::Let { variable: self.variable(ty, mutable), mutable, value }
    }

    /// A scalar of the data as a condition.
    fn condition(&mut self) -> Node {
        self.expression(&Type::scalar(DType::Bool), 2)
    }

    fn block(&mut self, fill: impl FnOnce(&mut Generator, &mut Block)) -> Block {
        let (scope, mut block) = (self.scope.len(), vec![]);
        self.depth += 1;
        fill(self, &mut block);
        self.depth -= 1;
        self.scope.truncate(scope);
        block
    }

    fn statements(&mut self, max_count: usize) -> Block {
        let count = 1 + self.random.below(max_count);
        self.block(|generator, block| (0..count).for_each(|_| generator.statement(block)))
    }

    fn statement(&mut self, block: &mut Block) {
        let deep = self.depth >= 3;
        match self.random.below(20) {
            0..=4 => {
                let ty = self.any_type();
                let statement = self.definition(&ty, 3);
                block.push(statement);
            }
            5..=7 => self.assign(block),
            8 => self.pair(block),
            9 => self.assign_pair(block),
            10 => {
                let ty = self.tile_type();
                let value = self.varying(&ty, 1);
                self.store(value, block);
            }
            11 => self.atomic(block),
            12 => self.powers(block),
            13 if !deep => self.choice(block),
            14 if !deep => self.let_if(block),
            15 if !deep => self.matching(block),
            16 | 17 if !deep => self.for_loop(block),
            18 if !deep => self.while_loop(block),
            19 => self.exit(block),
            _ => self.assign(block),
        }
    }

    fn mutable(&mut self) -> Option<Variable> {
        let choices: Vec<Variable> = self.scope.iter().filter(|variable| variable.mutable).cloned().collect();
        (!choices.is_empty()).then(|| choices[self.random.below(choices.len())].clone())
    }

    fn assign(&mut self, block: &mut Block) {
        let Some(variable) = self.mutable() else {
            let ty = self.any_type();
            let value = self.varying(&ty, 2);
            block.push(Statement::Let { variable: self.variable(&ty, true), mutable: true, value });
            return;
        };
        let ty = variable.ty.clone();
        let symbols: &[&str] = match ty.dtype {
            DType::Bool => &["&", "|", "^"],
            dtype if dtype.is_float() => &["+", "-", "*"],
            _ => &["+", "-", "*", "^", "&", "|"],
        };
        let operator = (self.random.below(2) == 0).then(|| self.random.of(symbols));
        let narrow = operator.is_some() && self.random.below(3) == 0;
        let wanted = if narrow { Type::scalar(ty.dtype) } else { ty };
        let value = self.varying(&wanted, 3);
        block.push(Statement::Assign { variable: variable.index, operator, value });
    }

    fn assign_pair(&mut self, block: &mut Block) {
        let (Some(a), Some(b)) = (self.mutable(), self.mutable()) else { return self.assign(block) };
        if a.index == b.index {
            return self.assign(block);
        }
        let values = [&a, &b].map(|variable| self.varying(&variable.ty, 2));
        block.push(Statement::AssignPair { variables: [a.index, b.index], values });
    }

    fn pair(&mut self, block: &mut Block) {
        let ty = self.tile_type();
        let axis = self.random.below(ty.shape.len());
        let without = |axis: usize| {
            let mut shape = ty.shape.clone();
            shape.remove(axis);
            shape
        };
        let (pair, args, results) = match self.random.below(4) {
            0 if count(&ty.shape) <= MAX_STORED / 2 => {
                let mut whole = ty.clone();
                whole.shape.push(2);
                (Pair::Split, vec![whole], [ty.clone(), ty.clone()])
            }
            1 if ty.dtype != DType::Bool && ty.shape[axis].is_power_of_two() => {
                let k = 1 + self.random.below(ty.shape[axis].min(4));
                let mut some = ty.clone();
                some.shape[axis] = k;
                (Pair::TopK { axis, k }, vec![ty.clone()], [some.clone(), some.with(DType::I32)])
            }
            2 if ty.dtype.is_integer() => {
                let reverse = self.random.below(2) == 0;
                let pair = Pair::AffineScan { axis, reverse };
                (pair, vec![ty.clone(), ty.clone()], [ty.clone(), ty.clone()])
            }
            _ if ty.dtype != DType::Bool => {
                let pair =
                    if self.random.below(2) == 0 { Pair::MaxIndex(axis) } else { Pair::MinIndex(axis) };
                let value = Type { dtype: ty.dtype, shape: without(axis) };
                let position = value.with(DType::I32);
                (pair, vec![ty.clone()], [value, position])
            }
            _ => return self.assign(block),
        };
        let args = args.iter().map(|ty| self.varying(ty, 2)).collect();
        let variables = results.each_ref().map(|ty| self.variable(ty, false));
        let style = self.random.of(&[PairStyle::Destructured, PairStyle::ByField]);
        block.push(Statement::LetPair { variables, pair, args, style });
    }

    /// Index arithmetic by powers and sums.
    fn powers(&mut self, block: &mut Block) {
        let shape = self.shape();
        let ty = Type { dtype: self.random.of(&[DType::I32, DType::I32, DType::I64]), shape };
        let value = self.varying(&ty, 1);
        let variable = self.variable(&ty, true);
        block.push(Statement::Let { variable, mutable: true, value });
        let own = || Node { op: Op::Variable(variable), args: vec![], ty: ty.clone() };
        let join = |symbol, a, b| Node { op: Op::Operator(symbol), args: vec![a, b], ty: ty.clone() };
        let kind = self.random.below(4);
        for _ in 0..1 + self.random.below(10) {
            let value = match kind {
                0 => join("+", own(), own()),
                1 => join("+", join("*", own(), own()), own()),
                2 => join("*", own(), own()),
                _ => join("-", join("*", own(), self.number(ty.dtype)), own()),
            };
            block.push(Statement::Assign { variable, operator: None, value });
        }
    }

    fn choice(&mut self, block: &mut Block) {
        let condition = self.condition();
        let then = self.statements(3);
        let otherwise = if self.random.below(2) == 0 { self.statements(2) } else { vec![] };
        block.push(Statement::If { condition, then, otherwise });
    }

    fn let_if(&mut self, block: &mut Block) {
        let (condition, ty) = (self.condition(), self.any_type());
        let branch = |generator: &mut Generator| {
            let mut value = None;
            let block = generator.block(|generator, block| {
                // An exit would leave the expression without a value.
                for _ in 0..generator.random.below(2) {
                    let own = generator.any_type();
                    let statement = generator.definition(&own, 2);
                    block.push(statement);
                }
                value = Some(generator.varying(&ty, 2));
            });
            (block, value.expect("a value"))
        };
        let branches = Box::new([branch(self), branch(self)]);
        let variable = self.variable(&ty, false);
        block.push(Statement::LetIf { variable, condition, branches });
    }

    fn matching(&mut self, block: &mut Block) {
        let scrutinee = self.varying(&Type::scalar(DType::I32), 1);
        let scrutinee = self.masked(scrutinee, 7);
        let mut next = 0;
        let mut patterns = vec![];
        for _ in 0..1 + self.random.below(3) {
            let max = next + self.random.below(2) as i64;
            patterns.push(Pattern { min: next, max });
            next = max + 1;
        }
        if self.random.below(2) == 0 {
            let ty = self.any_type();
            let arms = patterns.into_iter().map(|pattern| (pattern, self.varying(&ty, 2))).collect();
            let rest = self.varying(&ty, 1);
            let variable = self.variable(&ty, false);
            block.push(Statement::LetMatch { variable, scrutinee, arms, rest });
        } else {
            let arms = patterns.into_iter().map(|pattern| (pattern, self.statements(2))).collect();
            let rest = self.statements(2);
            block.push(Statement::Match { scrutinee, arms, rest });
        }
    }

    fn for_loop(&mut self, block: &mut Block) {
        let dtype = self.random.of(&[DType::I32, DType::I32, DType::I32, DType::I64]);
        let form = self.random.of(&[
            RangeForm::Dots,
            RangeForm::Dots,
            RangeForm::Closed,
            RangeForm::Function,
            RangeForm::Static,
        ]);
        let small = |value: usize| Node::literal(dtype, value as i128);
        let unrolled = form == RangeForm::Static;
        let start = small(self.random.below(3));
        let end = match self.random.below(3) {
            _ if unrolled => small(1 + self.random.below(4)),
            0 => small(1 + self.random.below(5)),
            1 if dtype == DType::I32 => Node { op: Op::Scalar(0), args: vec![], ty: Type::scalar(dtype) },
            _ => {
                let value = self.varying(&Type::scalar(dtype), 1);
                self.masked(value, 3)
            }
        };
        let step = match self.random.below(4) {
            0 => Some(small(1 + self.random.below(3))),
            1 if !unrolled && dtype == DType::I32 => {
                Some(Node { op: Op::Scalar(0), args: vec![], ty: Type::scalar(dtype) })
            }
            _ => None,
        };
        self.carried(block);
        let scope = self.scope.len();
        let variable = self.variable(&Type::scalar(dtype), false);
        self.scope.last_mut().expect("the loop variable").constant = unrolled;
        self.loops += 1;
        let body = self.loop_body();
        self.loops -= 1;
        self.scope.truncate(scope);
        block.push(Statement::For { variable, range: Range { start, end, step, form, hints: "" }, body });
    }

    /// Makes sure that a loop has a variable to carry.
    fn carried(&mut self, block: &mut Block) {
        if self.mutable().is_none() || self.random.below(3) == 0 {
            let ty = self.any_type();
            let value = self.varying(&ty, 1);
            block.push(Statement::Let { variable: self.variable(&ty, true), mutable: true, value });
        }
    }

    fn loop_body(&mut self) -> Block {
        let max_count = if self.depth > 0 { 2 } else { 4 };
        let count = 1 + self.random.below(max_count);
        self.block(|generator, block| {
            generator.assign(block);
            (0..count).for_each(|_| generator.statement(block));
        })
    }

    fn while_loop(&mut self, block: &mut Block) {
        self.carried(block);
        let ty = Type::scalar(DType::I32);
        let value = self.varying(&ty, 1);
        let value = self.masked(value, 3);
        let counter = self.variable(&ty, false);
        block.push(Statement::Let { variable: counter, mutable: true, value });
        let condition = (self.random.below(3) == 0).then(|| self.condition());
        self.loops += 1;
        let body = self.loop_body();
        self.loops -= 1;
        block.push(Statement::While { counter, condition, body });
    }

    fn exit(&mut self, block: &mut Block) {
        let exit = match self.random.below(6) {
            0 if self.depth > 0 => Statement::Return,
            1..=3 if self.loops > 0 => Statement::Break,
            4 | 5 if self.loops > 0 => Statement::Continue,
            _ => return self.assign(block),
        };
        let condition = self.condition();
        let mut then = if self.random.below(2) == 0 { self.statements(1) } else { vec![] };
        if then.last().is_some_and(always_exits) {
            return;
        }
        then.push(exit);
        block.push(Statement::If { condition, then, otherwise: vec![] });
    }

    /// Distinct offsets inside of the range that only this program writes.
    pub fn own_offsets(&mut self, shape: &[usize]) -> Node {
        let ty = Type::new(DType::I32, shape);
        let count = count(shape) as i128;
        let iota = match self.random.below(6) {
            0 => {
                // `count - 1 - iota`
                let iota = self.iota(shape);
                Node::operator("-", Node::literal(DType::I32, count - 1), iota, &ty)
            }
            1 => {
                let iota = self.iota(shape);
                Node::operator("*", iota, Node::literal(DType::I32, 2), &ty)
            }
            2 if count > 1 && (count as u64).is_power_of_two() => {
                let bits = self.random.below(count as usize) as i128;
                let iota = self.iota(shape);
                Node::operator("^", iota, Node::literal(DType::I32, bits), &ty)
            }
            3 if count > 1 && (count as u64).is_power_of_two() => {
                let iota = self.iota(shape);
                let product = Node::operator("*", iota, Node::literal(DType::I32, 13), &ty);
                Node::operator("&", product, Node::literal(DType::I32, count - 1), &ty)
            }
            4 if shape.len() == 1 && shape[0].is_power_of_two() && shape[0] > 1 => {
                let tile = self.varying(&ty, 1);
                Node { op: Op::Argsort { axis: 0, descending: false }, args: vec![tile], ty: ty.clone() }
            }
            _ => self.iota(shape),
        };
        let region = self.random.below(PROGRAM_STRIDE as usize - 2 * MAX_STORED) as i128
            & !(self.random.of(&[0, 3, 15]));
        let program = Node { op: Op::ProgramId(0), args: vec![], ty: Type::scalar(DType::I32) };
        let scalar = Type::scalar(DType::I32);
        let base = Node::operator("*", program, Node::literal(DType::I32, PROGRAM_STRIDE), &scalar);
        let base = Node::operator("+", base, Node::literal(DType::I32, region), &scalar);
        Node::operator("+", base, iota, &ty)
    }

    fn written(&mut self, dtype: DType) -> usize {
        let own = |memory: &Memory| memory.written && memory.view.is_none() && memory.dtype == dtype;
        self.memory.iter().position(own).expect("a slice of every type is written")
    }

    fn store(&mut self, value: Node, block: &mut Block) {
        let ty = value.ty.clone();
        let view = self.memory.iter().position(|memory| {
            memory.written && memory.dtype == ty.dtype && memory.view == Some(ty.shape.len())
        });
        if let Some(memory) = view
            && self.random.below(2) == 0
        {
            let offsets = (0..ty.shape.len()).map(|_| self.block_start()).collect();
            block.push(Statement::StoreView { memory, offsets, value });
            return;
        }
        if !self.dtypes.contains(&ty.dtype) || count(&ty.shape) > MAX_STORED {
            return;
        }
        let memory = self.written(ty.dtype);
        let offset = self.own_offsets(&ty.shape);
        let mask = (self.random.below(3) == 0).then(|| self.expression(&ty.with(DType::Bool), 2));
        block.push(Statement::Store { memory, offset, value, mask, hint: "" });
    }

    fn atomic(&mut self, block: &mut Block) {
        let ty = self.tile_type();
        if !ty.dtype.is_integer() || ty.dtype.bytes() < 4 {
            return self.assign(block);
        }
        let memory = self.written(ty.dtype);
        let name = self.random.of(&[
            "atomic_add",
            "atomic_max",
            "atomic_min",
            "atomic_and",
            "atomic_or",
            "atomic_xor",
        ]);
        let offsets = Type::new(DType::I32, &ty.shape);
        let wild = self.varying(&offsets, 2);
        let wild = self.masked(wild, 511);
        let scalar = Type::scalar(DType::I32);
        let program = Node { op: Op::ProgramId(0), args: vec![], ty: scalar.clone() };
        let base = Node::operator("*", program, Node::literal(DType::I32, PROGRAM_STRIDE), &scalar);
        let offset = Node::operator("+", base, wild, &offsets);
        let value = self.varying(&ty, 2);
        let mask = (self.random.below(3) == 0).then(|| self.expression(&ty.with(DType::Bool), 1));
        block.push(Statement::Atomic { name, memory, offset, value, mask });
    }

    /// Stores the last variables.
    fn results(&mut self, block: &mut Block) {
        let stored: Vec<Variable> = self.scope.iter().rev().take(5).cloned().collect();
        for variable in stored {
            let value = Node { op: Op::Variable(variable.index), args: vec![], ty: variable.ty };
            self.store(value, block);
        }
    }
}

/// Whether nothing after the statement would run.
fn always_exits(statement: &Statement) -> bool {
    match statement {
        Statement::Break | Statement::Continue | Statement::Return => true,
        Statement::If { then, otherwise, .. } => {
            then.last().is_some_and(always_exits) && otherwise.last().is_some_and(always_exits)
        }
        Statement::Match { arms, rest, .. } => {
            rest.last().is_some_and(always_exits)
                && arms.iter().all(|(_, block)| block.last().is_some_and(always_exits))
        }
        _ => false,
    }
}
