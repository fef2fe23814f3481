//! Chains of lanewise functions over a grid of three axes, and atomic operations.

use tile_ir::support::dtype::DType;

use crate::fuzz::data::Data;
use crate::fuzz::element::Element;
use crate::fuzz::program::{Node, Op, Plan, PlannedMemory};
use crate::fuzz::sketch::{Sketch, arange, float, int, num_programs, program_id};

/// The number of a program of a grid of three axes.
fn program(sketch: &mut Sketch, axes: usize) -> Node {
    let mut number = program_id(0);
    if axes > 1 {
        number = program_id(1) * num_programs(0) + number;
    }
    if axes > 2 {
        number = program_id(2) * (num_programs(0) * num_programs(1)) + number;
    }
    sketch.bind(number)
}

fn grid(sketch: &mut Sketch, axes: usize) -> [i64; 3] {
    [0, 1, 2].map(|axis| if axis < axes { 1 + sketch.random.below(3) as i64 } else { 1 })
}

/// A function of a value, within its domain.
fn step(sketch: &mut Sketch, x: Node, y: Node) -> Node {
    let dtype = x.ty.dtype;
    let number = |value: f64| float(value, dtype);
    let call = |name: &'static str, x: Node| Node::call(name, vec![x]);
    match sketch.random.below(20) {
        16 => {
            let name = sketch.random.of(&["atan", "asinh", "cbrt", "erfc"]);
            call(name, x)
        }
        17 => {
            let name = sketch.random.of(&["sinh", "cosh", "expm1"]);
            call(name, Node::call("clamp", vec![x, number(-10.0), number(10.0)]))
        }
        18 => call("log1p", x.clone() * x),
        19 => {
            let name = sketch.random.of(&["hypot", "atan2"]);
            Node::call(name, vec![y, x.clone() * x + number(0.5)])
        }
        0 => call("exp", Node::call("minimum", vec![x, number(10.0)])),
        1 => call("log", x.clone() * x + number(0.5)),
        2 => call("sin", x),
        3 => call("tanh", x),
        4 => call("erf", x),
        5 => call("sigmoid", x),
        6 => y / (x.clone() * x + number(0.5)),
        7 => Node::call("fma", vec![x.clone(), y, x]),
        8 => call("rsqrt", x.clone() * x + number(0.25)),
        9 => call("cos", x),
        10 => call("gelu", x),
        11 => call("silu", x),
        12 => call("softplus", x),
        13 => call("exp2", Node::call("clamp", vec![x, number(-20.0), number(10.0)])),
        14 => x / number(3.0),
        _ => x.clone() * y + x,
    }
}

pub fn elementwise(sketch: &mut Sketch) {
    let from = sketch.random.of(&[
        DType::F32,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F64,
    ]);
    let computed = if from == DType::F64 {
        DType::F64
    } else if from.is_half() && sketch.chance(2) {
        from
    } else {
        DType::F32
    };
    let to = match computed {
        DType::F64 | DType::F16 | DType::BF16 => computed,
        _ => sketch.random.of(&[DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2]),
    };
    let block = sketch.random.of(&[32, 128, 256, 1024, 2048, 4096]);
    let (x, y, out) = (sketch.slice(from, false), sketch.slice(from, false), sketch.slice(to, true));
    let n = sketch.scalar(DType::I32);
    let axes = 1 + sketch.random.below(3);
    let number = program(sketch, axes);
    let strided = axes == 1 && sketch.chance(2);
    let steps = 1 + sketch.random.below(3);
    let extent = sketch.extent(block);
    let seed = sketch.chance(4).then(|| sketch.scalar(DType::I64));
    let body = |sketch: &mut Sketch, start: Node| {
        let at = sketch.bind(start + arange(block));
        let inside = sketch.bind(at.clone().less(n.clone()));
        let [x, y] = [x, y].map(|memory| {
            let hint = sketch.load_hint();
            let value = sketch.load(memory, at.clone(), vec![inside.clone()]).hinted(hint).to(computed);
            sketch.bind(value)
        });
        let mut value = x;
        for _ in 0..steps {
            let next = step(sketch, value, y.clone());
            value = sketch.bind(next);
        }
        if let Some(seed) = &seed {
            value = dropped(sketch, value, seed.clone(), at.clone());
        }
        sketch.store(out, at, value, Some(inside));
    };
    if strided {
        let step = num_programs(0) * extent.clone();
        sketch.repeat([number * extent, n.clone(), step], body);
    } else {
        body(sketch, number * extent);
    }
    if sketch.chance(5) {
        sketch.settings.push("unchecked".into());
    }
    for launch in 0..3 {
        let grid = grid(sketch, axes);
        let room = grid.iter().product::<i64>() * block as i64 * if strided { 3 } else { 1 };
        let n = match launch {
            0 => room,
            1 => (room - 16).max(1),
            _ if sketch.chance(4) => 0,
            _ => sketch.random.below(room as usize + 1) as i64,
        };
        let data = sketch.random.of(&[Data::Fraction, Data::Whole { limit: 4 }, Data::Scaled]);
        let operand = || PlannedMemory::slice(n as usize, data);
        let memory = vec![operand(), operand(), PlannedMemory::slice(n as usize, Data::Whole { limit: 3 })];
        let mut scalars = vec![Element::whole(n.into())];
        if seed.is_some() {
            scalars.push(Element::whole(sketch.random.of(&[0, 7, -1, 1 << 40])));
        }
        sketch.plans.push(Plan { grid, scalars, memory });
    }
}

/// A value, or 0 where a random number says so; or random bits added.
fn dropped(sketch: &mut Sketch, value: Node, seed: Node, at: Node) -> Node {
    let dtype = value.ty.dtype;
    let random = |name: &'static str, drawn: DType| Node {
        op: Op::Random(name),
        ty: at.ty.with(drawn),
        args: vec![seed.clone(), at.clone()],
    };
    let result = if sketch.chance(2) {
        random("rand", DType::F32).less(float(0.3, DType::F32)).choose(float(0.0, dtype), value)
    } else {
        let bits = random("randint", DType::U32);
        let ty = bits.ty.clone();
        let low = Node::operator("&", bits, Node::literal(DType::U32, 3), &ty);
        value + low.to(dtype)
    };
    sketch.bind(result)
}

/// Sums into few elements in any order, and old values of elements that no other program touches.
pub fn atomics(sketch: &mut Sketch) {
    let dtype = sketch.random.of(&[
        DType::F32,
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U64,
    ]);
    let block = sketch.random.of(&[32, 128, 1024]);
    let x = sketch.slice(dtype, false);
    let (sums, state, old) =
        (sketch.slice(dtype, true), sketch.slice(dtype, true), sketch.slice(dtype, true));
    let [n, bins] = [0, 1].map(|_| sketch.scalar(DType::I32));
    let axes = 1 + sketch.random.below(3);
    let number = program(sketch, axes);
    let at = sketch.bind(number * int(block as i64) + arange(block));
    let inside = sketch.bind(at.clone().less(n));
    let value = sketch.load(x, at.clone(), vec![inside.clone()]);
    let value = sketch.bind(value);
    let bin = Node { op: Op::Operator("%"), ty: at.ty.clone(), args: vec![at.clone(), bins] };
    let order = sketch.random.of(&["", ".sem(\"relaxed\")"]);
    let atomic = |name: &'static str, memory: usize, offset: Node, args: Vec<Node>| {
        let ty = offset.ty.with(dtype);
        Node { op: Op::Atomic { name, memory }, args: [offset].into_iter().chain(args).collect(), ty }
    };
    let kept = inside.clone().choose(value.clone(), Node::literal(dtype, 0));
    let added = atomic("atomic_add", sums, bin, vec![kept]).hinted(order);
    sketch.bind(added);
    let bits_32 = dtype.bytes() >= 4;
    let name = match sketch.random.below(4) {
        0 if bits_32 => "atomic_max",
        1 if bits_32 => "atomic_xchg",
        2 if bits_32 => "atomic_cas",
        _ => "atomic_add",
    };
    let mut args = vec![value];
    if name == "atomic_cas" {
        args.insert(0, Node { op: Op::Full, args: vec![Node::literal(dtype, 1)], ty: at.ty.with(dtype) });
    }
    let before = atomic(name, state, at.clone(), args).hinted(order);
    let before = sketch.bind(before);
    sketch.store(old, at, before, Some(inside));
    sketch.settings.push("unreported".into());
    for launch in 0..3 {
        let grid = grid(sketch, axes);
        let room = grid.iter().product::<i64>() * block as i64;
        let n = if launch == 0 { room } else { 1 + sketch.random.below(room as usize) as i64 };
        let bins = sketch.random.of(&[1, 7, 64, 1000]);
        // Every order of these additions is exact.
        let data = Data::Whole { limit: if dtype.is_half() { 1 } else { 3 } };
        let slice = |len: i64| PlannedMemory::slice(len as usize, data);
        let room_for_sums = if dtype == DType::BF16 { 1000 } else { bins };
        let bins = if dtype.is_half() { 1000 } else { bins };
        let memory = vec![slice(n), slice(room_for_sums.max(bins)), slice(n), slice(n)];
        let scalars = vec![Element::whole(n.into()), Element::whole(bins.into())];
        sketch.plans.push(Plan { grid, scalars, memory });
    }
}
