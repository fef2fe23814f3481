//! What the attribute of a kernel and the environment ask of the pipeline.

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck::{Settings, Variant};
use tile_ir::ir::pass::PassRunner;
use tile_ir::support::diagnostic::list;

use super::PASSES;

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
pub struct DisabledPasses(u64);

impl DisabledPasses {
    /// Reads names of passes to leave out, such as `-overlap_chained_dots,-ping_pong`.
    pub fn parse(text: &str) -> Result<DisabledPasses, String> {
        let mut disabled = DisabledPasses::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let name = item.strip_prefix('-').map(str::trim).unwrap_or_default();
            let bit = DisabledPasses::bit(name);
            if bit == 0 {
                let known = PASSES.iter().filter(|pass| pass.optional).map(|pass| format!("-{}", pass.name));
                let known = known.collect::<Vec<_>>();
                let known = list(known.iter().map(String::as_str));
                return Err(format!("`{item}` turns off no pass: what can be turned off is {known}"));
            }
            disabled.0 |= bit;
        }
        Ok(disabled)
    }

    /// Turns off all optional passes of the schedule.
    pub fn whole_schedule() -> DisabledPasses {
        let optional = super::schedule_passes().filter(|pass| pass.optional);
        DisabledPasses(optional.fold(0, |set, pass| set | DisabledPasses::bit(pass.name)))
    }

    /// Whether the pass of this name is turned off.
    pub fn contains(self, name: &str) -> bool {
        self.0 & DisabledPasses::bit(name) != 0
    }

    /// Returns the bit of an optional pass; 0 for any other name.
    fn bit(name: &str) -> u64 {
        let mut optional = PASSES.iter().filter(|pass| pass.optional);
        optional.position(|pass| pass.name == name).map_or(0, |position| 1 << position)
    }
}
