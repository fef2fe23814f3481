//! The passes of the schedule in their order, which may be turned off by name.

use super::Schedule;
use super::verify::{verify_barriers, verify_schedule};
use crate::gpu::layout::Distributed;
use tile_ir::ir::pass::PassRunner;
use tile_ir::ir::verify;
use tile_ir::support::diagnostic::list;

/// A pass: what it does in a line, and whether a kernel is right without it.
pub struct Pass {
    pub name: &'static str,
    pub summary: &'static str,
    pub optional: bool,
    pub run: fn(&mut Schedule),
}

/// Declares the passes in their order, from their modules: each has a function of the module's name.
macro_rules! define_passes {
    ($($name:ident $kind:ident: $summary:literal,)*) => {
        /// All passes, in their order.
        pub static PASSES: &[Pass] = &[
            $(Pass {
                name: stringify!($name),
                summary: $summary,
                optional: define_passes!(@$kind),
                run: super::$name::$name,
            },)*
        ];
    };
    (@optional) => { true };
    (@required) => { false };
}

define_passes! {
    warp_specialize required: "a producer warp issues TMA loads, consumer warpgroups issue dots",
    overlap_chained_dots optional: "issue the second of two chained dots in the next iteration, beside the first one",
    ping_pong optional: "let warpgroups issue chained dots in turn",
    async_dot optional: "issue the dot of the next iteration while that of this one runs",
    iteration_split optional: "split overlapped loops into iterations with and without branches",
    software_pipeline optional: "copy the loads of later iterations to shared memory while this one runs",
    stage_operands required: "write what a loop's dots read and the loop does not change to shared memory before it",
    position_before_waits optional: "find a warpgroup's position in a dot ahead of the waits for its operands",
    reduce_batch optional: "let reductions exchange partial results side by side at one barrier, and in buffers by parity",
    pdl required: "wait for the kernel before this one ahead of the first access of memory",
    cluster_wait required: "initialize the barriers of a cluster, and wait until its blocks have started ahead of stores to them",
    membar required: "put barriers where accesses of two threads may conflict",
}

/// Passes ahead of the schedule that may be turned off: kernels are right without them.
pub const OPTIONAL_BEFORE_SCHEDULE: [&str; 12] = [
    "strength_reduce",
    "split_full_tiles",
    "defer_scale",
    "contract_floats",
    "delay_fp8_upcast",
    "hoist_operand_conversion",
    "batch_reductions",
    "hoist_loads",
    "remat_narrow",
    "elide_selects",
    "thread_local_reductions",
    "remat_ranges",
];

/// Optional passes that are turned off: a bit for each name of `optional_names`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DisabledPasses(u64);

/// Names of all optional passes, in the order in which they run.
fn optional_names() -> impl Iterator<Item = &'static str> {
    let of_schedule = PASSES.iter().filter(|pass| pass.optional).map(|pass| pass.name);
    OPTIONAL_BEFORE_SCHEDULE.into_iter().chain(of_schedule)
}

impl DisabledPasses {
    /// Reads names of passes to leave out, such as `-overlap_chained_dots,-ping_pong`.
    pub fn parse(text: &str) -> Result<DisabledPasses, String> {
        let mut disabled = DisabledPasses::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let name = item.strip_prefix('-').map(str::trim).unwrap_or_default();
            let bit = DisabledPasses::bit(name);
            if bit == 0 {
                let known: Vec<String> = optional_names().map(|name| format!("-{name}")).collect();
                let known = list(known.iter().map(String::as_str));
                return Err(format!("`{item}` turns off no pass: what can be turned off is {known}"));
            }
            disabled.0 |= bit;
        }
        Ok(disabled)
    }

    /// Turns off all optional passes of the schedule.
    pub fn whole_schedule() -> DisabledPasses {
        let optional = PASSES.iter().filter(|pass| pass.optional);
        DisabledPasses(optional.fold(0, |set, pass| set | DisabledPasses::bit(pass.name)))
    }

    /// Whether the pass of this name is turned off.
    pub fn contains(self, name: &str) -> bool {
        self.0 & DisabledPasses::bit(name) != 0
    }

    /// Returns the bit of an optional pass; 0 for any other name.
    fn bit(name: &str) -> u64 {
        optional_names().position(|optional| optional == name).map_or(0, |position| 1 << position)
    }
}

/// Runs the passes that are not turned off. The error names the pass behind which the function breaks a law.
pub fn run(schedule: &mut Schedule, disabled: DisabledPasses, runner: PassRunner) -> Result<(), String> {
    for pass in PASSES.iter().filter(|pass| !disabled.contains(pass.name)) {
        runner.run(pass.name, schedule, pass.run);
        let Distributed { func, num_warps, .. } = &schedule.distributed;
        let obeys = verify(func).and_then(|()| verify_schedule(func, *num_warps));
        obeys.map_err(|what| format!("{}: {what}", pass.name))?;
    }
    // As a pass, so that whoever measures them sees what it takes.
    runner.run("verify_barriers", schedule, |schedule| verify_barriers(schedule))
}
