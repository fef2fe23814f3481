//! The arguments of a kernel entry.

use tile_ir::ir::{Func, ParamKind};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::GpuPlan;
use crate::mlir::session::{Argument, ArgumentKind};
use crate::mlir::types::{Elem, Space, Ty};
use crate::mlir::{Machine, machine};

/// A slice is its address and length, a scalar its value (a `bool` a byte); then the grid's extents, the address of the
/// tile counter if there is one, and tensor maps.
pub(super) fn arguments(func: &Func, plan: &GpuPlan) -> Vec<Argument> {
    let plain = |ty| Argument { ty, kind: ArgumentKind::Plain };
    let mut list = vec![];
    for param in &func.params {
        match param.kind {
            ParamKind::Slice { mutable, .. } => {
                let kind = match mutable {
                    _ if plan.uses_pdl() => ArgumentKind::Plain,
                    true => ArgumentKind::Exclusive,
                    false => ArgumentKind::ReadOnly,
                };
                list.push(Argument { ty: Ty::scalar(Elem::Ptr(Space::Global)), kind });
                list.push(plain(Ty::I64));
            }
            ParamKind::Scalar { dtype: DType::Bool, .. } => list.push(plain(Ty::I8)),
            ParamKind::Scalar { dtype, .. } => list.push(plain(machine::scalar(dtype, Machine::Nvptx))),
        }
    }
    list.extend([plain(Ty::I32); 3]);
    list.extend(plan.is_dynamic_persistent().then(|| plain(Ty::I64)));
    let map = Argument { ty: Ty::scalar(Elem::Ptr(Space::Generic)), kind: ArgumentKind::TensorMap };
    list.extend(std::iter::repeat_n(map, plan.tensor_maps().len()));
    list
}
