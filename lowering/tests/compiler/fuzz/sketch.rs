//! Builds a kernel statement by statement, with expressions written by operators.

use std::ops::{Add, Div, Mul, Sub};

use tile_ir::support::dtype::DType;

use super::data::Data;
use super::element::{Element, round};
use super::program::{
    Block, Memory, Node, Op, Plan, PlannedMemory, Program, Range, RangeForm, Statement, Type,
};
use lowering::devtools::fuzzgen::SplitMix64;

/// A kernel that is being built.
pub struct Sketch {
    pub random: SplitMix64,
    pub memory: Vec<Memory>,
    scalars: Vec<(&'static str, DType)>,
    blocks: Vec<Block>,
    variables: usize,
    pub settings: Vec<String>,
    /// The constant parameter's values, and the variant that runs.
    pub block: Option<(Vec<usize>, usize)>,
    pub plans: Vec<Plan>,
}

/// `self` where broadcasting by numpy's rules joins two shapes.
fn joined(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let extent =
        |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank).map(|axis| extent(a, axis).max(extent(b, axis))).collect()
}

pub fn int(value: i64) -> Node {
    Node::literal(DType::I32, value.into())
}

pub fn float(value: f64, dtype: DType) -> Node {
    Node { op: Op::Number(Element::Float(round(dtype, value))), args: vec![], ty: Type::scalar(dtype) }
}

pub fn program_id(axis: usize) -> Node {
    Node { op: Op::ProgramId(axis), args: vec![], ty: Type::scalar(DType::I32) }
}

pub fn num_programs(axis: usize) -> Node {
    Node { op: Op::NumPrograms(axis), args: vec![], ty: Type::scalar(DType::I32) }
}

pub fn arange(extent: usize) -> Node {
    Node { op: Op::Arange(0), args: vec![], ty: Type::new(DType::I32, &[extent]) }
}

pub fn full(shape: &[usize], value: f64, dtype: DType) -> Node {
    let value = if dtype.is_float() { float(value, dtype) } else { Node::literal(dtype, value as i128) };
    Node { op: Op::Full, args: vec![value], ty: Type::new(dtype, shape) }
}

/// An operation whose result broadcasts its operands, in the element type of the last one.
fn lanes(op: Op, args: Vec<Node>) -> Node {
    let shape = args.iter().fold(vec![], |shape, arg| joined(&shape, &arg.ty.shape));
    let dtype = args[args.len() - 1].ty.dtype;
    Node { op, args, ty: Type { dtype, shape } }
}

impl Add for Node {
    type Output = Node;

    fn add(self, other: Node) -> Node {
        lanes(Op::Operator("+"), vec![self, other])
    }
}

impl Sub for Node {
    type Output = Node;

    fn sub(self, other: Node) -> Node {
        lanes(Op::Operator("-"), vec![self, other])
    }
}

impl Mul for Node {
    type Output = Node;

    fn mul(self, other: Node) -> Node {
        lanes(Op::Operator("*"), vec![self, other])
    }
}

impl Div for Node {
    type Output = Node;

    fn div(self, other: Node) -> Node {
        lanes(Op::Operator("/"), vec![self, other])
    }
}

impl Node {
    pub fn call(name: &'static str, args: Vec<Node>) -> Node {
        lanes(Op::Lanewise(name), args)
    }

    pub fn less(self, other: Node) -> Node {
        let mut node = lanes(Op::Compare("<"), vec![self, other]);
        node.ty.dtype = DType::Bool;
        node
    }

    pub fn and(self, other: Node) -> Node {
        lanes(Op::Operator("&"), vec![self, other])
    }

    pub fn choose(self, yes: Node, no: Node) -> Node {
        lanes(Op::Select, vec![self, yes, no])
    }

    /// `.to::<dtype>()`, where that changes the type.
    pub fn to(self, dtype: DType) -> Node {
        if self.ty.dtype == dtype {
            return self;
        }
        let ty = self.ty.with(dtype);
        Node { op: Op::Cast, args: vec![self], ty }
    }

    fn expanded(self, axis: usize) -> Node {
        let mut ty = self.ty.clone();
        ty.shape.insert(axis, 1);
        Node { op: Op::ExpandDims(axis), args: vec![self], ty }
    }

    pub fn row(self) -> Node {
        self.expanded(0)
    }

    pub fn col(self) -> Node {
        self.expanded(1)
    }

    pub fn permuted(self, order: &[usize]) -> Node {
        let shape: Vec<usize> = order.iter().map(|&axis| self.ty.shape[axis]).collect();
        let ty = Type::new(self.ty.dtype, &shape);
        Node { op: Op::Permute(order.to_vec()), args: vec![self], ty }
    }

    pub fn hinted(self, method: &'static str) -> Node {
        let ty = self.ty.clone();
        if method.is_empty() { self } else { Node { op: Op::Hint(method), args: vec![self], ty } }
    }

    pub fn reduced(self, name: &'static str, axis: usize, keep: bool) -> Node {
        let mut ty = self.ty.clone();
        if keep {
            ty.shape[axis] = 1;
        } else {
            ty.shape.remove(axis);
        }
        ty.dtype = match (name, ty.dtype) {
            ("sum", DType::F16 | DType::BF16) => DType::F32,
            ("sum", DType::I8 | DType::I16) => DType::I32,
            (_, dtype) => dtype,
        };
        Node { op: Op::Reduce { name, axis: Some(axis), keep }, args: vec![self], ty }
    }

    pub fn scanned(self, name: &'static str, axis: usize, reverse: bool) -> Node {
        let mut ty = self.ty.clone();
        if name == "cumsum" && ty.dtype.is_half() {
            ty.dtype = DType::F32;
        }
        Node { op: Op::Scan { name, axis, reverse }, args: vec![self], ty }
    }

    pub fn softmax(self, axis: usize, log: bool) -> Node {
        let ty = self.ty.clone();
        Node { op: Op::Softmax { axis, log }, args: vec![self], ty }
    }

    pub fn dot(self, other: Node, acc: Option<Node>, suffix: &'static str) -> Node {
        let dtype = match self.ty.dtype {
            DType::I8 => DType::I32,
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let mut shape = self.ty.shape.clone();
        *shape.last_mut().expect("an axis") = *other.ty.shape.last().expect("an axis");
        let args = [self, other].into_iter().chain(acc).collect();
        Node { op: Op::Dot { suffix }, args, ty: Type { dtype, shape } }
    }
}

impl Sketch {
    pub fn new(random: SplitMix64) -> Sketch {
        Sketch {
            random,
            memory: vec![],
            scalars: vec![],
            blocks: vec![vec![]],
            variables: 0,
            settings: vec![],
            block: None,
            plans: vec![],
        }
    }

    pub fn chance(&mut self, of: usize) -> bool {
        self.random.below(of) == 0
    }

    /// An extent as a number of the kernel: one in three times a constant parameter, of which there are several variants.
    pub fn extent(&mut self, extent: usize) -> Node {
        if !self.chance(3) {
            return int(extent as i64);
        }
        let variant = self.random.below(2);
        let other = if variant == 0 { 2 * extent } else { extent / 2 };
        self.block = Some((if variant == 0 { vec![extent, other] } else { vec![other, extent] }, variant));
        Node { op: Op::Block, args: vec![], ty: Type::scalar(DType::I32) }
    }

    pub fn finish(mut self) -> Program {
        Program {
            attribute: self.settings.join(", "),
            memory: self.memory,
            scalars: self.scalars,
            functions: vec![],
            body: self.blocks.pop().expect("the body"),
            variables: self.variables,
            block: self.block,
            plans: self.plans,
        }
    }

    pub fn slice(&mut self, dtype: DType, written: bool) -> usize {
        self.memory.push(Memory { dtype, view: None, written });
        self.memory.len() - 1
    }

    pub fn view(&mut self, dtype: DType, rank: usize, written: bool) -> usize {
        self.memory.push(Memory { dtype, view: Some(rank), written });
        self.memory.len() - 1
    }

    pub fn scalar(&mut self, dtype: DType) -> Node {
        self.scalars.push(("planned", dtype));
        Node { op: Op::Scalar(self.scalars.len() - 1), args: vec![], ty: Type::scalar(dtype) }
    }

    pub fn push(&mut self, statement: Statement) {
        self.blocks.last_mut().expect("a block").push(statement);
    }

    fn define(&mut self, value: Node, mutable: bool) -> Node {
        let (variable, ty) = (self.variables, value.ty.clone());
        self.variables += 1;
        self.push(Statement::Let { variable, mutable, value });
        Node { op: Op::Variable(variable), args: vec![], ty }
    }

    /// `let v = value;`
    pub fn bind(&mut self, value: Node) -> Node {
        self.define(value, false)
    }

    /// `let mut v = value;`
    pub fn bind_mut(&mut self, value: Node) -> Node {
        self.define(value, true)
    }

    pub fn assign(&mut self, to: &Node, value: Node) {
        let Op::Variable(variable) = to.op else { panic!("{to:?} is no variable") };
        self.push(Statement::Assign { variable, operator: None, value });
    }

    pub fn load(&self, memory: usize, offset: Node, rest: Vec<Node>) -> Node {
        let ty = offset.ty.with(self.memory[memory].dtype);
        Node { op: Op::Load(memory), args: [offset].into_iter().chain(rest).collect(), ty }
    }

    pub fn load_view(&self, memory: usize, shape: &[usize], offsets: Vec<Node>) -> Node {
        Node { op: Op::LoadView(memory), args: offsets, ty: Type::new(self.memory[memory].dtype, shape) }
    }

    pub fn store(&mut self, memory: usize, offset: Node, value: Node, mask: Option<Node>) {
        let value = value.to(self.memory[memory].dtype);
        let hint = self.random.of(&[
            "",
            "",
            "",
            ".evict_first()",
            ".streaming()",
            ".write_through()",
            ".no_allocate()",
        ]);
        self.push(Statement::Store { memory, offset, value, mask, hint });
    }

    pub fn store_view(&mut self, memory: usize, offsets: Vec<Node>, value: Node) {
        let value = value.to(self.memory[memory].dtype);
        self.push(Statement::StoreView { memory, offsets, value });
    }

    pub fn load_hint(&mut self) -> &'static str {
        self.random.of(&[
            "",
            "",
            "",
            "",
            ".evict_first()",
            ".evict_last()",
            ".streaming()",
            ".cache_global()",
            ".no_allocate()",
        ])
    }

    /// A loop from `start` to `end` with a step, and the loop variable in its body.
    pub fn repeat(&mut self, [start, end, step]: [Node; 3], body: impl FnOnce(&mut Sketch, Node)) {
        let variable = self.variables;
        self.variables += 1;
        let form = self.random.of(&[RangeForm::Dots, RangeForm::Function]);
        let hints = match form {
            RangeForm::Function => self.random.of(&[
                "",
                "",
                ".num_stages(1)",
                ".num_stages(2)",
                ".num_stages(3)",
                ".num_stages(4)",
                ".unroll(2)",
            ]),
            _ => "",
        };
        let ty = start.ty.clone();
        self.blocks.push(vec![]);
        body(self, Node { op: Op::Variable(variable), args: vec![], ty });
        let body = self.blocks.pop().expect("the loop's body");
        let range = Range { start, end, step: Some(step), form, hints };
        self.push(Statement::For { variable, range, body });
    }
}

impl PlannedMemory {
    pub fn slice(len: usize, data: Data) -> PlannedMemory {
        PlannedMemory { len, shape: vec![], strides: vec![], data }
    }

    /// A view whose last axis in `order` is contiguous, with `pad` elements behind each line.
    pub fn view(shape: &[i64], order: &[usize], pad: i64, data: Data) -> PlannedMemory {
        let mut strides = vec![0; shape.len()];
        let mut next = 1;
        for (i, &axis) in order.iter().rev().enumerate() {
            strides[axis] = next;
            next *= shape[axis];
            if i == 0 {
                next += pad;
            }
        }
        let len = if shape.contains(&0) {
            0
        } else {
            1 + shape.iter().zip(&strides).map(|(extent, stride)| (extent - 1) * stride).sum::<i64>()
        };
        PlannedMemory { len: len as usize, shape: shape.to_vec(), strides, data }
    }
}
