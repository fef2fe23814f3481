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

/// Optional passes that are turned off.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DisabledPasses(u32);

impl DisabledPasses {
    /// `-overlap_chained_dots,-ping_pong`: the passes to leave out.
    pub fn parse(text: &str) -> Result<DisabledPasses, String> {
        let mut disabled = 0;
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let position = item
                .strip_prefix('-')
                .and_then(|name| PASSES.iter().position(|pass| pass.optional && pass.name == name.trim()));
            let Some(position) = position else {
                let optional =
                    PASSES.iter().filter(|pass| pass.optional).map(|pass| format!("-{}", pass.name));
                let known = optional.collect::<Vec<String>>();
                let known = list(known.iter().map(String::as_str));
                return Err(format!("`{item}` turns off no pass: what can be turned off is {known}"));
            };
            disabled |= 1 << position;
        }
        Ok(DisabledPasses(disabled))
    }

    /// All but these are on.
    pub fn all() -> DisabledPasses {
        let optional = PASSES.iter().enumerate().filter(|(_, pass)| pass.optional);
        DisabledPasses(optional.fold(0, |set, (position, _)| set | 1 << position))
    }

    /// Whether the pass of this name is turned off.
    pub fn contains(self, name: &str) -> bool {
        PASSES.iter().position(|pass| pass.name == name).is_some_and(|position| self.has(position))
    }

    fn has(self, position: usize) -> bool {
        self.0 >> position & 1 == 1
    }
}

/// Runs the passes that are not turned off. The error names the pass behind which the function breaks a law.
pub fn run(schedule: &mut Schedule, disabled: DisabledPasses, runner: PassRunner) -> Result<(), String> {
    for (_, pass) in PASSES.iter().enumerate().filter(|&(position, _)| !disabled.has(position)) {
        runner.run(pass.name, schedule, pass.run);
        let Distributed { func, num_warps, .. } = &schedule.distributed;
        let obeys = verify(func).and_then(|()| verify_schedule(func, *num_warps));
        obeys.map_err(|what| format!("{}: {what}", pass.name))?;
    }
    // As a pass, so that whoever measures them sees what it takes.
    runner.run("verify_barriers", schedule, |schedule| verify_barriers(schedule))
}
