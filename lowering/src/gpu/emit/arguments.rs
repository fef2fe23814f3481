//! The entry of a kernel: its name and its arguments.

use tile_ir::ir::{Func, ParamId, ParamKind, Value};
use tile_ir::support::dtype::DType;

use crate::gpu::emit::GpuPlan;
use crate::mlir::builder::{Builder, IntPredicate, Val};
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

/// A slice parameter in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceArg {
    pub pointer: Val,
    pub length: Val,
}

/// A scalar parameter in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScalarArg {
    pub value: Value,
    pub argument: Val,
}

/// What a kernel is called, and what it is launched with.
pub(super) struct KernelEntry {
    /// The kernel's name in its module.
    pub name: String,
    /// By the index of the parameter; `None` of scalars.
    slices: Vec<Option<SliceArg>>,
    pub scalars: Vec<ScalarArg>,
    pub grid: [Val; 3],
    /// The address of the tile counter, or 0.
    pub tile_counter: Option<Val>,
    pub tensor_maps: Vec<Val>,
}

impl KernelEntry {
    /// Reads the arguments in the order of [`arguments`].
    pub fn read(plan: &GpuPlan, name: &str, b: &mut Builder, args: &[Val]) -> KernelEntry {
        let (mut slices, mut scalars) = (vec![], vec![]);
        let mut rest = args.iter().copied();
        let mut next = || rest.next().expect("as many arguments as `arguments` listed");
        for param in &plan.schedule.distributed.func.params {
            match param.kind {
                ParamKind::Slice { .. } => slices.push(Some(SliceArg { pointer: next(), length: next() })),
                ParamKind::Scalar { value, dtype } => {
                    let mut argument = next();
                    if dtype == DType::Bool {
                        let zero = b.int(Ty::I8, 0);
                        argument = b.icmp(IntPredicate::Ne, argument, zero);
                    }
                    scalars.push(ScalarArg { value, argument });
                    slices.push(None);
                }
            }
        }
        let grid = [next(), next(), next()];
        let tile_counter = plan.is_dynamic_persistent().then(&mut next);
        let tensor_maps = rest.collect();
        KernelEntry { name: name.to_string(), slices, scalars, grid, tile_counter, tensor_maps }
    }

    pub fn slice(&self, param: ParamId) -> SliceArg {
        self.slices[param.index()].expect("memory operations name slices")
    }

    /// The length of a slice, whichever comes first.
    pub fn any_length(&self) -> Option<Val> {
        self.slices.iter().flatten().next().map(|slice| slice.length)
    }
}
