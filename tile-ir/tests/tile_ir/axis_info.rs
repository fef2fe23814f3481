//! The axis info analysis against the values themselves: random index expressions, evaluated element by element, have every
//! property that it states.

use proptest::prelude::*;

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir::{Func, ParamKind, Value};
use tile_ir::ops::{ConstantValue, Kind};
use tile_ir::support::dtype::DType;
use tile_ir::testing::try_func;

/// An index expression over a program id, an argument and a range, as source.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("pid".to_string()),
        Just("n".to_string()),
        Just("tl::arange(0, 32)".to_string()),
        Just("tl::arange(8, 40)".to_string()),
        (0i32..65).prop_map(|value| format!("{value}")),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        let op = prop::sample::select(vec!["+", "-", "*", "/", "%"]);
        prop_oneof![
            (inner.clone(), op, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("tl::minimum({a}, {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("tl::maximum({a}, {b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("tl::select({a} < {b}, {a}, {b})")),
        ]
    })
}

/// What a launch gives a program.
struct Inputs {
    argument: i128,
    program: i128,
}

/// Elements of a value of rank 0 or 1, as the IR's operations define them.
fn evaluate(func: &Func, value: Value, known: &Inputs) -> Vec<i128> {
    let mut definition = None;
    func.body.walk(&mut |op| {
        if op.results.first() == Some(&value) {
            definition = Some(op.kind.clone());
        }
    });
    let ty = func.ty(value);
    match definition {
        None => vec![known.argument],
        Some(Kind::Constant(constant)) => match constant.value {
            ConstantValue::Int(value) => vec![value],
            ConstantValue::Float(_) => unreachable!("index expressions are integers"),
        },
        Some(Kind::ProgramId(_)) => vec![known.program],
        Some(Kind::Arange(arange)) => {
            (0..ty.shape[0]).map(|i| i128::from(arange.start) + i128::from(i)).collect()
        }
        Some(Kind::Splat(splat)) => vec![evaluate(func, splat.value, known)[0]; ty.shape[0] as usize],
        Some(Kind::Scalar(scalar)) => {
            let args: Vec<Vec<i128>> = scalar.args.iter().map(|&arg| evaluate(func, arg, known)).collect();
            let dtype = scalar.dtype(func);
            let int = scalar.op.int.expect("an integer operation").function;
            (0..args[0].len())
                .map(|i| {
                    let operands: Vec<i128> = args.iter().map(|arg| arg[i]).collect();
                    let result = int(&operands, dtype);
                    if ty.dtype == DType::Bool { result } else { ty.dtype.wrap(result) }
                })
                .collect()
        }
        Some(other) => unreachable!("{}", other.operation().name()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn axis_info_is_sound(expr in expression(), program in prop_oneof![0i32..50, Just(i32::MAX)], n in prop_oneof![Just(0i32), Just(16), Just(48), Just(-16), 1i32..200, Just(i32::MAX - 15)]) {
        let source = format!(
            "#[fuse_kernel(BLOCK = [32])]
            fn index<const BLOCK: usize>(x: &mut [i32], n: i32) {{
                let pid = tl::program_id(0);
                tl::store(x + tl::arange(0, BLOCK), {expr} + tl::zeros::<i32>([BLOCK]));
            }}"
        );
        // Constants alone may overflow or fold to something that is no index: the checker says so, which is its own test.
        let Some(func) = try_func(&source) else { return Ok(()) };
        let ParamKind::Scalar { value: argument, .. } = func.params[1].kind else { unreachable!("n is a scalar") };
        let mut assumptions = LaunchAssumptions::default();
        if n % 16 == 0 {
            assumptions.multiples.insert(argument, 16);
        }
        if n >= 0 {
            assumptions.ranges.insert(argument, (0, i32::MAX.into()));
        }
        let axes = AxisInfoMap::analyze(&func, &assumptions);
        let known = Inputs { argument: i128::from(n), program: i128::from(program) };
        for index in 0..func.value_count() {
            let value = func.value_at(index);
            let mut defined = value == argument;
            func.body.walk(&mut |op| defined |= op.results.contains(&value));
            if !defined || func.ty(value).dtype.is_float() {
                continue;
            }
            let elements = evaluate(&func, value, &known);
            let info = axes.get(&func, value);
            for &element in &elements {
                prop_assert!(element >= info.range.0 && element <= info.range.1, "range {:?} of {element} in {source}", info.range);
                prop_assert_eq!(element.rem_euclid(i128::from(info.divisor)), 0, "divisor {} in {}", info.divisor, source);
            }
            let Some(axis) = info.axes.first() else { continue };
            let (c, k) = (axis.contiguity as usize, axis.constancy.min(1 << 20) as usize);
            for (i, &element) in elements.iter().enumerate() {
                let start = elements[i - i % c];
                prop_assert_eq!(element, start + (i % c) as i128, "contiguity {} in {}", c, source);
                prop_assert_eq!(start.rem_euclid(i128::from(axis.divisibility)), 0, "divisibility {} in {}", axis.divisibility, source);
                prop_assert_eq!(element, elements[i - i % k.min(elements.len())], "constancy {} in {}", k, source);
            }
        }
    }
}
