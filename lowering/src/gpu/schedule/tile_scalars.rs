//! The scalars of a program that the producer computes for all warps.

use std::collections::HashMap;

use crate::gpu::opt::select_wgmma::is_scalar_arithmetic;
use tile_ir::ir::{Func, Op, Value, backward_slice};
use tile_ir::ops::scalar::ArithKind;
use tile_ir::ops::{Kind, Scalar};

/// The quotients and remainders among a kernel's own scalars that differ between programs.
pub fn quotients(func: &Func, definitions: &HashMap<Value, &Op>) -> Vec<Value> {
    let ops = func.body.ops.iter().filter(|op| {
        let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { return false };
        let (result, ty) = (op.results[0], func.ty(op.results[0]));
        let by_constant =
            || matches!(definitions.get(&args[1]), Some(op) if matches!(op.kind, Kind::Constant(_)));
        matches!(row.arith, ArithKind::Div | ArithKind::Rem)
            && ty.is_scalar()
            && ty.dtype.is_integer()
            && ty.dtype.bytes() >= 4
            && !by_constant()
            && varies_by_program(result, definitions)
            && is_scalar_arithmetic(func, definitions, result, None)
    });
    ops.map(|op| op.results[0]).collect()
}

/// Whether a scalar differs from program to program.
pub fn varies_by_program(value: Value, definitions: &HashMap<Value, &Op>) -> bool {
    backward_slice(value, definitions).iter().filter_map(|value| definitions.get(value)).any(|op| {
        matches!(op.kind, Kind::ProgramId(_) | Kind::ReadRegister(_))
            || op.kind.operation().access().is_some()
    })
}
