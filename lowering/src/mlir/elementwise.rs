//! Lanewise operations on machine values of the language's element types: the row's own emission, with 16-bit floats
//! widened where the row or the machine does not compute in them.
//!
//! Emissions stand in the rows themselves (`ops/scalar.rs`), as names of this folder.

use tile_ir::ir::{Block, Func, Value};
use tile_ir::ops::scalar::{ArithKind, HalfPolicy, Scalar, ScalarOp, TypeRule, for_each_lanewise};
use tile_ir::ops::{Bitcast, Cast, Kind};
use tile_ir::support::dtype::DType;

use super::builder::{Builder, Val};
use super::cast::cast;
use super::half;
use super::machine::Machine;
use super::{lanes, math, rounding};

/// How a row is built, the same for both targets.
pub struct Emission {
    /// On scalars or vectors of an element type that the machine computes in.
    pub lanes: fn(&mut Builder, &[Val], DType) -> Val,
    /// A cheaper `lanes` for small operands.
    pub common: Option<Common>,
}

/// The operation on `f32` operands of small magnitude, which most programs have alone.
#[derive(Clone, Copy)]
pub struct Common {
    /// The bound of their magnitudes, exclusive.
    pub below: f64,
    /// The operation on these.
    pub lanes: fn(&mut Builder, Val) -> Val,
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! emissions {
    ($($(#[$doc:meta])+ $name:ident: $base:ident {
        lanes: $lanes:expr $(, common: $common:expr)?;
        $($rest:tt)*
    })*) => {
        /// In the order of the rows.
        static EMISSIONS: &[Emission] = &[
            $(Emission { lanes: $lanes, common: optional!($($common)?) }),*
        ];
    };
}

for_each_lanewise!(emissions);

/// How this row is built.
pub fn emission(op: &ScalarOp) -> &'static Emission {
    &EMISSIONS[op.index]
}

/// Applies a row to operands of element type `dtype`.
pub fn scalar(b: &mut Builder, op: &ScalarOp, args: &[Val], dtype: DType) -> Val {
    let moves_bits = op.arith == ArithKind::Select;
    let lanes = emission(op).lanes;
    let native = op.half_policy == HalfPolicy::Native && b.machine == Machine::Nvptx;
    if !dtype.is_half() || native || moves_bits {
        return lanes(b, args, dtype);
    }
    let wide: Vec<Val> = args.iter().map(|&arg| half::widen(b, arg, dtype)).collect();
    let result = lanes(b, &wide, DType::F32);
    if op.rule == TypeRule::Compare { result } else { half::narrow(b, result, dtype) }
}

/// Applies a row; index arithmetic known to stay in range gets `nsw`, and a product may be fused with a sum if it says so.
pub fn applied(b: &mut Builder, scalar_op: &Scalar, args: &[Val], dtype: DType) -> Val {
    match (scalar_op.exact, scalar_op.op.arith) {
        (true, ArithKind::Add) => b.add_nsw(args[0], args[1]),
        (true, ArithKind::Mul) => b.mul_nsw(args[0], args[1]),
        (_, ArithKind::Mul) if dtype.is_float() && !scalar_op.contract => {
            b.without_contraction(|b| scalar(b, scalar_op.op, args, dtype))
        }
        _ => scalar(b, scalar_op.op, args, dtype),
    }
}

/// Emits a block of lanewise operations, such as a reduction's combination, on machine values for its arguments.
pub fn inline(b: &mut Builder, func: &Func, block: &Block, args: &[Val]) -> Vec<Val> {
    let mut values: std::collections::HashMap<Value, Val> =
        block.args.iter().copied().zip(args.iter().copied()).collect();
    let lanes = args.first().map_or(0, |arg| arg.ty.lanes);
    for op in &block.ops {
        let result = match &op.kind {
            Kind::Scalar(op) => {
                let operands: Vec<Val> = op.args.iter().map(|arg| values[arg]).collect();
                applied(b, op, &operands, op.dtype(func))
            }
            Kind::Cast(Cast { value, .. }) => {
                cast(b, values[value], func.ty(*value).dtype, func.ty(op.results[0]).dtype)
            }
            Kind::Bitcast(Bitcast { value }) => {
                super::cast::bitcast(b, values[value], func.ty(op.results[0]).dtype)
            }
            Kind::Constant(constant) => {
                let ty = super::machine::scalar(func.ty(op.results[0]).dtype, b.machine);
                super::constant(b, constant.value, func.ty(op.results[0]).dtype, super::Ty { lanes, ..ty })
            }
            other => panic!("a combination holds lanewise operations, found {}", other.operation().name()),
        };
        values.insert(op.results[0], result);
    }
    block.yields.iter().map(|value| values[value]).collect()
}
