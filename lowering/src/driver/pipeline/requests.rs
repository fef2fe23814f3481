//! What the attribute of a kernel and the environment ask of the pipeline.

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck::{Settings, Variant};
use tile_ir::ir::pass::PassRunner;

/// The launch settings that the user asked for.
#[derive(Clone, Copy, Default, Debug)]
pub struct KernelRequests<'a> {
    pub num_warps: Option<u32>,
    pub num_ctas: Option<u32>,
    /// Iterations of a loop whose loads are in flight at once.
    pub num_stages: Option<u32>,
    /// The most registers of a thread, but for a general specialization that is beside another one: it needs more, and
    /// would spill.
    pub maxnreg: Option<u32>,
    /// Programs that share a block; chosen by the compiler unless it is measured.
    pub programs: Option<u32>,
    /// No bounds checks: the launcher is unsafe.
    pub unchecked: bool,
    /// Optional passes that are left out.
    pub disabled_passes: DisabledPasses,
    /// Runs the passes, and tells an observer of each.
    pub runner: PassRunner<'a>,
}

impl KernelRequests<'_> {
    /// The settings of a variant in its attribute.
    pub fn of(kernel: &Kernel, variant: &Variant) -> KernelRequests<'static> {
        let Settings { num_warps, num_ctas, num_stages, maxnreg } = variant.settings;
        let unchecked = kernel.options.unchecked;
        KernelRequests { num_warps, num_ctas, num_stages, maxnreg, unchecked, ..KernelRequests::default() }
    }
}

/// Optional passes that are turned off: a bit for each, in the order of the pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DisabledPasses(pub(super) u64);
