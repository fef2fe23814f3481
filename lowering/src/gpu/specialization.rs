//! A specialization: a kernel's GPU code for the arguments and GPUs that it is right for.

use std::collections::BTreeMap;

use tile_ir::ir::ParamId;
use tile_ir::ir::guard::Guard;
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::limits::MAX_ACCESS_BYTES;

use crate::gpu::emit::GpuPlan;
use crate::gpu::layout::Layout;
use crate::gpu::opt::dot_refusal::DotRefusal;
use crate::mlir::report;

/// A kernel compiled for the GPU under guards.
#[derive(Debug)]
pub struct Specialization {
    /// Its axes, in words.
    pub name: String,
    pub plan: GpuPlan,
    /// What must hold for this specialization to be right.
    pub guards: Vec<Guard>,
    pub gpus: Gpus,
    /// The dots that warpgroups of a GPU with wgmma cannot do, and why.
    pub refused_dots: Vec<(Loc, DotRefusal)>,
}

/// How a specialization accesses a slice or a view on a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VectorAccess {
    pub line: u32,
    pub param: ParamId,
    /// Bytes that one instruction of a thread moves; 0 where TMA does.
    pub bytes: u32,
}

/// The GPUs that a specialization is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gpus {
    All,
    /// CTAs of a cluster access each other's shared memory (DSMEM).
    WithClusters,
    WithoutClusters,
    /// Warpgroups multiply what is in shared memory (`wgmma`).
    WithWgmma,
    WithoutWgmma,
}

impl Gpus {
    /// The first capability with clusters.
    const CLUSTERS: u32 = 90;
    /// The one capability with wgmma.
    const WGMMA: u32 = 90;

    pub fn include(self, capability: u32) -> bool {
        match self {
            Gpus::All => true,
            Gpus::WithClusters => capability >= Gpus::CLUSTERS,
            Gpus::WithoutClusters => capability < Gpus::CLUSTERS,
            Gpus::WithWgmma => capability == Gpus::WGMMA,
            Gpus::WithoutWgmma => capability != Gpus::WGMMA,
        }
    }
}

impl Specialization {
    /// Its name, unique among the variant's specializations.
    pub fn label(&self) -> String {
        match self.gpus {
            Gpus::All | Gpus::WithClusters | Gpus::WithWgmma | Gpus::WithoutWgmma => self.name.clone(),
            Gpus::WithoutClusters => format!("{}.one_block", self.name),
        }
    }

    /// The elements that a thread computes or moves, loops counted once; and where most of them are, with how many.
    pub fn elements(&self) -> (usize, Option<(Loc, usize)>) {
        let (func, layouts) = (&self.plan.laid_out, &self.plan.schedule.distributed.layouts);
        let (mut total, mut most) = (0usize, None);
        func.body.walk(&mut |op| {
            let own = op.kind.operation().access().map(|place| place.offset);
            let tile = op.results.iter().copied().chain(own).find_map(|value| layouts.get(&value));
            let count = tile.map_or(0, Layout::register_count);
            total = total.saturating_add(count);
            if most.is_none_or(|(_, known)| count > known) {
                most = Some((op.loc, count));
            }
        });
        (total, most)
    }

    /// The accesses of tiles by source line, each with the bytes that one instruction of a thread moves, 0 for TMA. Of
    /// several on a line the narrowest.
    pub fn accesses(&self) -> Vec<VectorAccess> {
        let func = &self.plan.laid_out;
        let mut found: BTreeMap<(usize, ParamId), u32> = BTreeMap::new();
        let mut add = |loc: Loc, param: ParamId, bytes: u32| {
            let known = found.entry((loc.line(), param)).or_insert(bytes);
            *known = bytes.min(*known);
        };
        func.body.walk(&mut |op| {
            let operation = op.kind.operation();
            if let Some(place) = operation.access() {
                let each = func.slice(place.param).0.bytes();
                let is_vector =
                    func.ty(place.offset).shape.elements() * u64::from(each) >= u64::from(MAX_ACCESS_BYTES);
                let elements = place.shift.map_or(place.vector.max(1), |shift| shift.elements);
                if is_vector {
                    add(op.loc, place.param, elements * each);
                }
            }
            operation.view_tiles().into_iter().for_each(|window| add(op.loc, window.memory, 0));
        });
        found
            .into_iter()
            .map(|((line, param), bytes)| VectorAccess { line: line as u32, param, bytes })
            .collect()
    }

    /// Whether the code has a record for a failure.
    pub fn reports(&self) -> bool {
        report::reports(&self.plan.laid_out)
    }
}
