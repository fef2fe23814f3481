//! 8-bit floats stay bytes until their fragments are read.
//!
//! `mma` takes `f16`, to which 8-bit floats are upcast exactly: a dot of them is a dot of upcast operands. Where both
//! are loaded in vectors along K, as rows and the weights of a linear layer are, the upcast waits until a warp has read
//! its fragments. Loops then copy the bytes as they are, and shared memory holds half as much.

use std::collections::HashMap;

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir::{Block, Func, Op, Value, dce};
use tile_ir::ops::{Dot, DotOperand, Kind, Permute, Reshape};
use tile_ir::support::limits::MAX_ACCESS_BYTES;

use crate::gpu::layout::access::{Alignment, width};
use crate::gpu::opt::select_wgmma::upcast_source;

/// K must be a multiple of this: that of the instruction for bytes.
const K_MULTIPLE: u32 = 32;

/// Lets dots take 8-bit floats instead of their upcasts, where they can.
pub fn delay_fp8_upcast(func: &mut Func, assumptions: &LaunchAssumptions) {
    let axes = AxisInfoMap::analyze(func, assumptions);
    let operands = Fp8Operands { definitions: func.definitions(), axes, func };
    let mut found = HashMap::new();
    func.body.walk(&mut |op| {
        if let Kind::Dot(dot) = &op.kind {
            found.extend(operands.bytes(dot).map(|bytes| (op.results[0], bytes)));
        }
    });
    if !found.is_empty() {
        replace(&mut func.body, &found);
        dce(func);
    }
}

fn replace(block: &mut Block, found: &HashMap<Value, [Value; 2]>) {
    for op in &mut block.ops {
        if let Kind::Dot(dot) = &mut op.kind
            && let Some(bytes) = found.get(&op.results[0])
        {
            [dot.a, dot.b] = *bytes;
        }
        op.kind.operation_mut().blocks_mut().into_iter().for_each(|block| replace(block, found));
    }
}

struct Fp8Operands<'f> {
    definitions: HashMap<Value, &'f Op>,
    axes: AxisInfoMap,
    func: &'f Func,
}

impl Fp8Operands<'_> {
    /// The operands of a dot as they were loaded, if the dot can take them.
    fn bytes(&self, dot: &Dot) -> Option<[Value; 2]> {
        if dot.unit.is_warpgroup() {
            return None;
        }
        let [a, b] =
            DotOperand::ALL.map(|which| upcast_source(self.func, &self.definitions, dot.operand(which)));
        let (a, b) = (a?, b?);
        let [a_ty, b_ty] = [a, b].map(|value| self.func.ty(value));
        let rank = a_ty.shape.rank();
        let fits = a_ty.dtype == b_ty.dtype && dot.inner(self.func).is_multiple_of(K_MULTIPLE);
        let along_k = self.is_loaded_along(a, rank - 1) && self.is_loaded_along(b, rank - 2);
        (fits && along_k).then_some([a, b])
    }

    /// Whether a tile is loaded in the widest vectors there are, along this axis.
    fn is_loaded_along(&self, value: Value, axis: usize) -> bool {
        let Some(op) = self.definitions.get(&value) else { return false };
        if let Kind::Permute(Permute { value, order }) = &op.kind {
            return self.is_loaded_along(*value, order[axis]);
        }
        if let Kind::Reshape(Reshape { value: from }) = &op.kind {
            let [before, after] = [*from, value].map(|value| &self.func.ty(value).shape);
            let along =
                before.kept_axes(after).and_then(|kept| kept.iter().position(|&new| new == Some(axis)));
            return along.is_some_and(|axis| self.is_loaded_along(*from, axis));
        }
        let Kind::Load(load) = &op.kind else { return false };
        let width = width(self.func, &self.axes, &load.access, Alignment::Checked);
        width.axis == axis && width.elements == MAX_ACCESS_BYTES
    }
}
