//! Random expressions of a wanted type.

use tile_ir::support::dtype::DType;

use super::element::{Element, max_value, wrap};
use super::generate::{Generator, MAX_STORED, PROGRAM_STRIDE, Variable};
use super::program::{Combine, Memory, Node, Op, Type};
use super::tile::count;

const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];

/// Whether a tile can have the extent.
fn legal(extent: usize) -> bool {
    extent > 0 && extent >> extent.trailing_zeros() <= 15
}

impl Node {
    pub fn literal(dtype: DType, value: i128) -> Node {
        let element = if dtype.is_float() { Element::Float(value as f64) } else { Element::whole(value) };
        Node { op: Op::Number(element), args: vec![], ty: Type::scalar(dtype) }
    }

    pub fn operator(symbol: &'static str, a: Node, b: Node, ty: &Type) -> Node {
        Node { op: Op::Operator(symbol), args: vec![a, b], ty: ty.clone() }
    }

    fn of(op: Op, args: Vec<Node>, ty: &Type) -> Node {
        Node { op, args, ty: ty.clone() }
    }
}

impl Generator {
    /// Whether the value may be a build-time constant, where overflow and division by zero are errors.
    fn is_constant(&self, node: &Node) -> bool {
        match &node.op {
            Op::Number(_) => true,
            Op::Variable(index) => {
                self.scope.iter().any(|variable| variable.index == *index && variable.constant)
            }
            Op::Scalar(_) | Op::ProgramId(_) | Op::Arange(_) | Op::Length(_) => false,
            Op::Load(_) | Op::LoadView(_) => false,
            _ => node.args.iter().all(|arg| self.is_constant(arg)),
        }
    }

    /// An expression that is no build-time constant.
    pub fn varying(&mut self, ty: &Type, depth: usize) -> Node {
        let node = self.expression(ty, depth);
        if self.is_constant(&node) { self.data(ty) } else { node }
    }

    /// A small number, not 0.
    pub fn number(&mut self, dtype: DType) -> Node {
        let value = 1 + self.random.below(7) as i128;
        let negative = self.random.below(3) == 0 && (dtype.is_float() || wrap(dtype, -1) < 0);
        match dtype {
            DType::Bool => Node::literal(dtype, value & 1),
            _ if self.random.below(12) == 0 && !dtype.is_float() => Node::literal(dtype, max_value(dtype)),
            _ => Node::literal(dtype, if negative { -value } else { value }),
        }
    }

    /// `node & bits`
    pub fn masked(&mut self, node: Node, bits: i128) -> Node {
        let (dtype, ty) = (node.ty.dtype, node.ty.clone());
        Node::operator("&", node, Node::literal(dtype, bits), &ty)
    }

    /// `0, 1, 2, ..` in row-major order.
    pub fn iota(&mut self, shape: &[usize]) -> Node {
        let ty = Type::new(DType::I32, shape);
        let line = |extent: usize| Node::of(Op::Arange(0), vec![], &Type::new(DType::I32, &[extent]));
        if shape.len() == 1 {
            return line(shape[0]);
        }
        if shape.is_empty() {
            return Node::literal(DType::I32, 0);
        }
        if legal(count(shape)) && (shape.len() > 2 || self.random.below(2) == 0) {
            return Node::of(Op::Reshape, vec![line(count(shape))], &ty);
        }
        let mut acc: Option<Node> = None;
        for (axis, &extent) in shape.iter().enumerate() {
            let mut node = line(extent);
            // Expands the other axes one at a time.
            for _ in axis + 1..shape.len() {
                let mut wider = node.ty.clone();
                wider.shape.push(1);
                let last = node.ty.shape.len();
                node = Node::of(Op::ExpandDims(last), vec![node], &wider);
            }
            for _ in 0..axis {
                let mut wider = node.ty.clone();
                wider.shape.insert(0, 1);
                node = Node::of(Op::ExpandDims(0), vec![node], &wider);
            }
            let stride = count(&shape[axis + 1..]) as i128;
            if stride > 1 {
                let own = node.ty.clone();
                node = Node::operator("*", node, Node::literal(DType::I32, stride), &own);
            }
            acc = Some(match acc {
                None => node,
                Some(acc) => {
                    let both: Vec<usize> =
                        acc.ty.shape.iter().zip(&node.ty.shape).map(|(&a, &b)| a.max(b)).collect();
                    Node::operator("+", acc, node, &Type::new(DType::I32, &both))
                }
            });
        }
        acc.expect("an axis")
    }

    /// A load, which is never a constant.
    fn data(&mut self, ty: &Type) -> Node {
        let read = |memory: &Memory| !memory.written && memory.view.is_none() && memory.dtype == ty.dtype;
        match self.memory.iter().position(read) {
            Some(memory) => {
                let offset = self.simple_offsets(&ty.shape);
                Node::of(Op::Load(memory), vec![offset], ty)
            }
            None => {
                let source = self.data(&ty.with(DType::I32));
                Node::of(Op::Cast, vec![source], ty)
            }
        }
    }

    fn simple_offsets(&mut self, shape: &[usize]) -> Node {
        let iota = self.iota(shape);
        let start = Node::literal(DType::I32, self.random.below(64) as i128);
        Node::operator("+", iota, start, &Type::new(DType::I32, shape))
    }

    fn variables_of(&self, ty: &Type) -> Vec<Variable> {
        self.scope.iter().filter(|variable| variable.ty == *ty).cloned().collect()
    }

    fn pick(&mut self, ty: &Type) -> Option<Node> {
        let choices = self.variables_of(ty);
        // Recent variables are preferred.
        let recent = choices.len().saturating_sub(4);
        let choices = if self.random.below(3) == 0 { &choices[..] } else { &choices[recent..] };
        (!choices.is_empty()).then(|| {
            let index = choices[self.random.below(choices.len())].index;
            Node::of(Op::Variable(index), vec![], ty)
        })
    }

    fn leaf(&mut self, ty: &Type) -> Node {
        if self.random.below(4) > 0
            && let Some(node) = self.pick(ty)
        {
            return node;
        }
        let choice = self.random.below(6);
        match (&ty.shape[..], ty.dtype) {
            ([], DType::I32) if choice < 2 => Node::of(Op::Scalar(choice), vec![], ty),
            ([], DType::I32) if choice == 2 => Node::of(Op::ProgramId(0), vec![], ty),
            ([], DType::I64) if choice < 2 => Node::of(Op::Scalar(2), vec![], ty),
            ([], DType::I64) if choice == 2 => Node::of(Op::Length(0), vec![], ty),
            ([], _) if choice == 3 => self.number(ty.dtype),
            ([_], DType::I32) if choice < 2 => {
                let start = self.random.of(&[0, 0, 5, -3]);
                Node::of(Op::Arange(start), vec![], ty)
            }
            ([_, ..], _) if choice == 3 => {
                let value = self.leaf(&Type::scalar(ty.dtype));
                Node::of(Op::Full, vec![value], ty)
            }
            _ => self.data(ty),
        }
    }

    /// A lanewise expression of the variables in scope.
    pub fn of_variables(&mut self, ty: &Type, depth: usize) -> Node {
        let own = |generator: &mut Generator| {
            let variables = generator.variables_of(ty);
            let index = variables[generator.random.below(variables.len())].index;
            Node::of(Op::Variable(index), vec![], ty)
        };
        if depth == 0 {
            return own(self);
        }
        let a = self.of_variables(ty, depth - 1);
        let b = if self.random.below(3) == 0 { self.number(ty.dtype) } else { own(self) };
        if self.random.below(4) == 0 && ty.dtype != DType::Bool {
            let condition = Node::of(
                Op::Compare(self.random.of(&COMPARISONS)),
                vec![own(self), b],
                &ty.with(DType::Bool),
            );
            return Node::of(Op::Select, vec![condition, a, own(self)], ty);
        }
        Node::operator(self.symbol(ty.dtype), a, b, ty)
    }

    fn symbol(&mut self, dtype: DType) -> &'static str {
        match dtype {
            DType::Bool => self.random.of(&["&", "|", "^"]),
            dtype if dtype.is_float() => self.random.of(&["+", "-", "*"]),
            _ => self.random.of(&["+", "-", "*", "+", "-", "*", "&", "|", "^"]),
        }
    }

    /// The shapes of two operands that broadcast to a shape.
    fn operand_shapes(&mut self, shape: &[usize]) -> [Vec<usize>; 2] {
        let mut other = shape.to_vec();
        match self.random.below(6) {
            0 | 1 => other.clear(),
            2 if !shape.is_empty() => other[self.random.below(shape.len())] = 1,
            3 if shape.len() > 1 => {
                other.remove(0);
            }
            _ => {}
        }
        if self.random.below(2) == 0 { [shape.to_vec(), other] } else { [other, shape.to_vec()] }
    }

    fn operands(&mut self, ty: &Type, depth: usize) -> [Node; 2] {
        let [first, second] = self.operand_shapes(&ty.shape);
        let (first, second) = (Type::new(ty.dtype, &first), Type::new(ty.dtype, &second));
        let a = if first.shape.is_empty() && !ty.shape.is_empty() && self.random.below(3) == 0 {
            self.number(ty.dtype)
        } else {
            self.varying(&first, depth)
        };
        let b = if second.shape.is_empty() && self.random.below(2) == 0 && !self.is_constant(&a) {
            self.number(ty.dtype)
        } else {
            self.varying(&second, depth)
        };
        [a, b]
    }

    pub fn expression(&mut self, ty: &Type, depth: usize) -> Node {
        if depth == 0 {
            return self.leaf(ty);
        }
        let depth = depth - 1;
        match self.random.below(12) {
            0 | 1 => self.leaf(ty),
            2..=5 => self.arithmetic(ty, depth),
            6 => self.select(ty, depth),
            7 => self.converted(ty, depth),
            8 => self.load(ty, depth),
            9 => self.call(ty, depth),
            _ => self.structural(ty, depth),
        }
    }

    fn arithmetic(&mut self, ty: &Type, depth: usize) -> Node {
        let dtype = ty.dtype;
        if dtype == DType::Bool {
            return match self.random.below(4) {
                0 => {
                    let [a, b] = self.operands(ty, depth);
                    Node::operator(self.symbol(dtype), a, b, ty)
                }
                1 => {
                    let value = self.varying(ty, depth);
                    Node::of(Op::Prefix("not"), vec![value], ty)
                }
                _ => {
                    let compared = self.number_type();
                    let [a, b] = self.operands(&ty.with(compared), depth);
                    Node::of(Op::Compare(self.random.of(&COMPARISONS)), vec![a, b], ty)
                }
            };
        }
        let signed = dtype.is_float() || wrap(dtype, -1) < 0;
        let choice = self.random.below(10);
        let unary = |generator: &mut Generator, op: Op| {
            let value = generator.varying(ty, depth);
            Node::of(op, vec![value], ty)
        };
        match choice {
            0 if signed => unary(self, Op::Prefix("neg")),
            1 if !dtype.is_float() => unary(self, Op::Prefix("not")),
            1 => {
                let name = self.random.of(&["floor", "ceil", "trunc", "round", "round_ties_even", "sqrt"]);
                unary(self, Op::Lanewise(name))
            }
            2 if signed => unary(self, Op::Lanewise("abs")),
            2 => {
                let name = self.random.of(&["popc", "clz", "ffs", "brev"]);
                unary(self, Op::Lanewise(name))
            }
            3 => {
                let [a, b] = self.operands(ty, depth);
                let name = self.random.of(&["maximum", "minimum"]);
                Node::of(Op::Lanewise(name), vec![a, b], ty)
            }
            4 if !dtype.is_float() => {
                let [a, b] = self.operands(ty, depth);
                let name = self.random.of(&["cdiv", "mulhi", "umulhi"]);
                Node::of(Op::Lanewise(name), vec![a, b], ty)
            }
            5 if !dtype.is_float() => {
                let [a, b] = self.operands(ty, depth);
                Node::operator(self.random.of(&["/", "%"]), a, b, ty)
            }
            6 if !dtype.is_float() => {
                let a = self.varying(ty, depth);
                let b = if self.random.below(2) == 0 {
                    Node::literal(dtype, self.random.below(8 * dtype.bytes() as usize) as i128)
                } else {
                    self.varying(ty, depth)
                };
                Node::operator(self.random.of(&["<<", ">>"]), a, b, ty)
            }
            _ => {
                let [a, b] = self.operands(ty, depth);
                Node::operator(self.symbol(dtype), a, b, ty)
            }
        }
    }

    /// An element type that can be compared, mostly one in use.
    fn number_type(&mut self) -> DType {
        match self.dtype() {
            DType::Bool => DType::I32,
            dtype => dtype,
        }
    }

    fn select(&mut self, ty: &Type, depth: usize) -> Node {
        let [a, b] = self.operands(ty, depth);
        let condition = self.expression(&ty.with(DType::Bool), depth);
        if self.is_constant(&condition) {
            return a_of_shape(a, b, ty);
        }
        Node::of(Op::Select, vec![condition, a, b], ty)
    }

    fn converted(&mut self, ty: &Type, depth: usize) -> Node {
        let same_size = [
            [DType::I8, DType::U8],
            [DType::I16, DType::U16],
            [DType::I32, DType::U32],
            [DType::I64, DType::U64],
        ];
        let partner = same_size.iter().find(|pair| pair.contains(&ty.dtype));
        if let Some(&[a, b]) = partner
            && self.random.below(4) == 0
        {
            let value = self.varying(&ty.with(if ty.dtype == a { b } else { a }), depth);
            return Node::of(Op::Bitcast, vec![value], ty);
        }
        let from = self.dtype();
        if from == ty.dtype {
            return self.arithmetic(ty, depth);
        }
        let value = self.varying(&ty.with(from), depth);
        Node::of(Op::Cast, vec![value], ty)
    }

    fn call(&mut self, ty: &Type, depth: usize) -> Node {
        let fitting: Vec<usize> =
            (0..self.functions.len()).filter(|&i| self.functions[i].body.ty == *ty).collect();
        if fitting.is_empty() {
            return self.structural(ty, depth);
        }
        let function = self.random.of(&fitting);
        let params = self.functions[function].params.len();
        let args = (0..params).map(|_| self.varying(ty, depth)).collect();
        Node::of(Op::Call(function), args, ty)
    }

    /// Where a block of a view begins along an axis.
    pub fn block_start(&mut self) -> Node {
        let ty = Type::scalar(DType::I32);
        match self.random.below(5) {
            0 => Node::literal(DType::I32, self.random.of(&[0, 0, 4, 16, -3, 100])),
            1 => {
                let program = Node::of(Op::ProgramId(0), vec![], &ty);
                Node::operator("*", program, Node::literal(DType::I32, 8), &ty)
            }
            2 => Node::of(Op::Scalar(self.random.below(2)), vec![], &ty),
            3 => {
                let value = self.varying(&ty, 2);
                self.masked(value, 15)
            }
            _ => self.varying(&ty, 2),
        }
    }

    fn load(&mut self, ty: &Type, depth: usize) -> Node {
        let view = |memory: &Memory| {
            !memory.written && memory.dtype == ty.dtype && memory.view == Some(ty.shape.len())
        };
        if let Some(memory) = self.memory.iter().position(view)
            && self.random.below(2) == 0
        {
            let offsets = (0..ty.shape.len()).map(|_| self.block_start()).collect();
            return Node::of(Op::LoadView(memory), offsets, ty);
        }
        let written = self.random.below(5) == 0;
        let own =
            |memory: &Memory| memory.written == written && memory.dtype == ty.dtype && memory.view.is_none();
        let Some(memory) = self.memory.iter().position(own) else { return self.data(ty) };
        let mut args = vec![if written {
            self.written_offsets(&ty.shape, depth)
        } else {
            self.offsets(&ty.shape, depth)
        }];
        if self.random.below(2) == 0 {
            let mask = match self.random.below(2) {
                0 => {
                    let limit = Node::of(Op::Scalar(1), vec![], &Type::scalar(DType::I32));
                    let iota = if ty.shape.is_empty() {
                        Node::of(Op::Scalar(0), vec![], &Type::scalar(DType::I32))
                    } else {
                        self.iota(&ty.shape)
                    };
                    Node::of(
                        Op::Compare(self.random.of(&COMPARISONS)),
                        vec![iota, limit],
                        &ty.with(DType::Bool),
                    )
                }
                _ => {
                    let shape = if self.random.below(4) == 0 { vec![] } else { ty.shape.clone() };
                    self.varying(&Type::new(DType::Bool, &shape), depth)
                }
            };
            args.push(mask);
            if self.random.below(2) == 0 {
                args.push(self.number(ty.dtype));
            }
        }
        Node::of(Op::Load(memory), args, ty)
    }

    /// Offsets that only this program writes.
    fn written_offsets(&mut self, shape: &[usize], depth: usize) -> Node {
        if count(shape) <= MAX_STORED && self.random.below(2) == 0 {
            return self.own_offsets(shape);
        }
        let (ty, scalar) = (Type::new(DType::I32, shape), Type::scalar(DType::I32));
        let wild = self.varying(&ty, depth);
        let wild = self.masked(wild, 1023);
        let program = Node::of(Op::ProgramId(0), vec![], &scalar);
        let base = Node::operator("*", program, Node::literal(DType::I32, PROGRAM_STRIDE), &scalar);
        Node::operator("+", base, wild, &ty)
    }

    /// Offsets of any kind.
    fn offsets(&mut self, shape: &[usize], depth: usize) -> Node {
        let dtype = self.random.of(&[DType::I32, DType::I32, DType::I32, DType::I64]);
        let (ty, scalar) = (Type::new(dtype, shape), Type::scalar(dtype));
        let literal = |value: i128| Node::literal(dtype, value);
        match self.random.below(8) {
            0 | 1 => {
                let ty = Type::new(DType::I32, shape);
                let offsets = self.simple_offsets(shape);
                let start = self.varying(&Type::scalar(DType::I32), depth.min(1));
                Node::operator("+", offsets, start, &ty)
            }
            2 => {
                let wild = self.varying(&ty, depth);
                self.masked(wild, 255)
            }
            3 => {
                let wild = self.varying(&ty, depth);
                Node::operator("%", wild, literal(200), &ty)
            }
            4 => {
                let wild = self.varying(&ty, depth);
                Node::of(Op::Lanewise("clamp"), vec![wild, literal(0), literal(150)], &ty)
            }
            5 => {
                let wild = self.varying(&ty, depth);
                let shift = literal(8 * i128::from(dtype.bytes()) - 8);
                Node::operator(">>", wild, shift, &ty)
            }
            6 => {
                let multiplier = self.varying(&scalar, depth.min(1));
                let wild = self.varying(&ty, depth);
                let wild = self.masked(wild, 15);
                Node::operator("*", wild, multiplier, &ty)
            }
            _ => self.varying(&ty, depth),
        }
    }
}

/// The operand that has the wanted shape.
fn a_of_shape(a: Node, b: Node, ty: &Type) -> Node {
    if a.ty == *ty { a } else { b }
}

// ---- operations with a structure

impl Generator {
    fn structural(&mut self, ty: &Type, depth: usize) -> Node {
        for _ in 0..4 {
            let found = match self.random.below(8) {
                0 | 1 => self.reduced(ty, depth),
                2 => self.scanned(ty, depth),
                3 | 4 => self.reshaped(ty, depth),
                5 => self.picked(ty, depth),
                6 => self.joined(ty, depth),
                _ => self.sorted(ty, depth),
            };
            if let Some(node) = found {
                return node;
            }
        }
        self.arithmetic(ty, depth)
    }

    fn inserted(&mut self, shape: &[usize]) -> Option<(usize, Vec<usize>)> {
        let axis = self.random.below(shape.len() + 1);
        let mut longer = shape.to_vec();
        longer.insert(axis, self.random.of(&[1, 2, 3, 4, 8, 16, 12]));
        (count(&longer) <= 2 * MAX_STORED && longer.len() <= 4).then_some((axis, longer))
    }

    fn reduced(&mut self, ty: &Type, depth: usize) -> Option<Node> {
        let dtype = ty.dtype;
        let unit_axis = ty.shape.iter().position(|&extent| extent == 1);
        let (axis, keep, shape) = match (unit_axis, self.random.below(3)) {
            (Some(axis), 0 | 1) => {
                let mut shape = ty.shape.clone();
                shape[axis] = self.random.of(&[2, 4, 8, 5]);
                (Some(axis), true, shape)
            }
            _ if ty.shape.is_empty() => (None, false, self.shape()),
            _ => {
                let (axis, shape) = self.inserted(&ty.shape)?;
                (Some(axis), false, shape)
            }
        };
        if dtype.is_integer()
            && self.random.below(5) == 0
            && let (Some(axis), false) = (axis, keep)
        {
            let value = self.varying(&Type::new(dtype, &shape), depth);
            let combine = self.random.of(&[
                Combine::Operator("+"),
                Combine::Operator("*"),
                Combine::Operator("^"),
                Combine::Larger,
            ]);
            return Some(Node::of(Op::ReduceBy { combine, axis }, vec![value], ty));
        }
        let (name, from) = match dtype {
            DType::Bool => (self.random.of(&["any", "all", "xor_sum"]), DType::Bool),
            dtype if dtype.is_float() => (self.random.of(&["max", "min"]), dtype),
            DType::I32 if self.random.below(4) == 0 => {
                (self.random.of(&["argmax", "argmin"]), self.number_type())
            }
            _ => {
                let name =
                    self.random.of(&["sum", "sum", "max", "min", "xor_sum", "reduce_or", "reduce_and"]);
                let from = match dtype {
                    DType::I32 => {
                        self.random.of(&[DType::I32, DType::I32, DType::I16, DType::I8, DType::Bool])
                    }
                    DType::U32 => self.random.of(&[DType::U32, DType::U32, DType::U16, DType::U8]),
                    dtype => dtype,
                };
                let narrow = matches!(dtype, DType::I8 | DType::I16 | DType::U8 | DType::U16);
                match name {
                    // The sum of these is of a wider type.
                    "sum" if narrow => ("max", dtype),
                    "sum" => ("sum", from),
                    other => (other, dtype),
                }
            }
        };
        let value = self.varying(&Type::new(from, &shape), depth);
        Some(Node::of(Op::Reduce { name, axis, keep }, vec![value], ty))
    }

    fn scanned(&mut self, ty: &Type, depth: usize) -> Option<Node> {
        let rank = ty.shape.len();
        if rank == 0 || ty.dtype == DType::Bool {
            return None;
        }
        let (axis, reverse) = (self.random.below(rank), self.random.below(2) == 0);
        let value = self.varying(ty, depth);
        if ty.dtype.is_integer() && self.random.below(3) == 0 {
            let combine = self.random.of(&[
                Combine::Operator("+"),
                Combine::Operator("^"),
                Combine::Operator("*"),
                Combine::Larger,
                Combine::Last,
            ]);
            return Some(Node::of(Op::ScanBy { combine, axis, reverse }, vec![value], ty));
        }
        let narrow = ty.dtype.is_float() || ty.dtype.bytes() < 4;
        let name = if narrow {
            self.random.of(&["cummax", "cummin"])
        } else {
            self.random.of(&["cumsum", "cumsum", "cumprod", "cummax", "cummin"])
        };
        Some(Node::of(Op::Scan { name, axis, reverse }, vec![value], ty))
    }

    fn sorted(&mut self, ty: &Type, depth: usize) -> Option<Node> {
        let rank = ty.shape.len();
        let axis = if rank == 0 { return None } else { self.random.below(rank) };
        if !ty.shape[axis].is_power_of_two() || ty.dtype == DType::Bool {
            return None;
        }
        let descending = self.random.below(2) == 0;
        if ty.dtype == DType::I32 && self.random.below(3) == 0 {
            let from = self.number_type();
            let value = self.varying(&ty.with(from), depth);
            return Some(Node::of(Op::Argsort { axis, descending }, vec![value], ty));
        }
        let value = self.varying(ty, depth);
        // Zeros of either sign are equal, so that their order would be undefined.
        let value = if ty.dtype.is_float() {
            Node::operator("+", value, Node::literal(ty.dtype, 0), ty)
        } else {
            value
        };
        Some(Node::of(Op::Sort { axis, descending }, vec![value], ty))
    }

    fn reshaped(&mut self, ty: &Type, depth: usize) -> Option<Node> {
        let shape = &ty.shape;
        let rank = shape.len();
        if rank == 0 {
            return None;
        }
        match self.random.below(5) {
            0 => {
                let count = count(shape);
                let divisors: Vec<usize> = (1..=count)
                    .filter(|&d| count.is_multiple_of(d) && legal(d) && legal(count / d))
                    .collect();
                let rows = if divisors.is_empty() { return None } else { self.random.of(&divisors) };
                let other = if self.random.below(3) == 0 && legal(count) {
                    vec![count]
                } else {
                    vec![rows, count / rows]
                };
                let value = self.varying(&Type::new(ty.dtype, &other), depth);
                Some(Node::of(Op::Reshape, vec![value], ty))
            }
            1 if rank > 1 => {
                let mut order: Vec<usize> = (0..rank).collect();
                let (first, second) = (self.random.below(rank), self.random.below(rank));
                order.swap(first, second);
                let mut source = vec![0; rank];
                order.iter().zip(shape).for_each(|(&axis, &extent)| source[axis] = extent);
                let value = self.varying(&Type::new(ty.dtype, &source), depth);
                Some(Node::of(Op::Permute(order), vec![value], ty))
            }
            2 => {
                let axis = shape.iter().position(|&extent| extent == 1).filter(|_| rank > 1)?;
                let mut source = shape.clone();
                source.remove(axis);
                let value = self.varying(&Type::new(ty.dtype, &source), depth);
                Some(Node::of(Op::ExpandDims(axis), vec![value], ty))
            }
            3 if rank < 4 => {
                let axis = self.random.below(rank + 1);
                let mut source = shape.clone();
                source.insert(axis, 1);
                let value = self.varying(&Type::new(ty.dtype, &source), depth);
                Some(Node::of(Op::Squeeze(axis), vec![value], ty))
            }
            _ => {
                let [first, second] = self.operand_shapes(shape);
                let source = if first.len() < rank || first != *shape { first } else { second };
                let value = self.varying(&Type::new(ty.dtype, &source), depth);
                Some(Node::of(Op::Broadcast, vec![value], ty))
            }
        }
    }

    fn picked(&mut self, ty: &Type, depth: usize) -> Option<Node> {
        let shape = &ty.shape;
        let rank = shape.len();
        if self.random.below(3) == 0 || rank == 0 {
            let (axis, longer) = self.inserted(shape)?;
            let position = self.random.below(longer[axis]);
            let value = self.varying(&Type::new(ty.dtype, &longer), depth);
            return Some(Node::of(Op::Index { axis, position }, vec![value], ty));
        }
        let axis = self.random.below(rank);
        let mut source = shape.clone();
        source[axis] = self.random.of(&[2, 4, 8, 16, 32, 3]);
        if count(&source) > 2 * MAX_STORED {
            return None;
        }
        match self.random.below(4) {
            0 => {
                let value = self.varying(ty, depth);
                Some(Node::of(Op::Flip(axis), vec![value], ty))
            }
            1 if source[axis] >= shape[axis] => {
                let start = self.random.below(source[axis] - shape[axis] + 1);
                let value = self.varying(&Type::new(ty.dtype, &source), depth);
                Some(Node::of(Op::Slice { axis, start }, vec![value], ty))
            }
            _ => {
                let index = self.varying(&Type::new(DType::I32, shape), depth);
                let index =
                    if self.random.below(4) == 0 { index } else { self.masked(index, source[axis] as i128) };
                let value = self.varying(&Type::new(ty.dtype, &source), depth);
                Some(Node::of(Op::Gather(axis), vec![value, index], ty))
            }
        }
    }

    fn joined(&mut self, ty: &Type, depth: usize) -> Option<Node> {
        let shape = &ty.shape;
        let rank = shape.len();
        if rank == 1 && ty.dtype == DType::I32 && self.random.below(2) == 0 {
            let (dtype, source) = (self.random.of(&[DType::I32, DType::I64]), self.shape());
            let value = self.varying(&Type::new(dtype, &source), depth);
            return Some(Node::of(Op::Histogram, vec![value], ty));
        }
        let axis = if rank == 0 { return None } else { self.random.below(rank) };
        if self.random.below(2) == 0 && shape[axis].is_multiple_of(2) {
            let mut half = ty.clone();
            half.shape[axis] /= 2;
            let values = [0, 1].map(|_| self.varying(&half, depth));
            return Some(Node::of(Op::Cat(axis), values.to_vec(), ty));
        }
        let last = rank - 1;
        let mut half = ty.clone();
        if shape[last] == 2 && rank > 1 {
            half.shape.pop();
            let values = [0, 1].map(|_| self.varying(&half, depth));
            return Some(Node::of(Op::Join, values.to_vec(), ty));
        }
        if !shape[last].is_multiple_of(2) {
            return None;
        }
        half.shape[last] /= 2;
        let values = [0, 1].map(|_| self.varying(&half, depth));
        Some(Node::of(Op::Interleave, values.to_vec(), ty))
    }
}
