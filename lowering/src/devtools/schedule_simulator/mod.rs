//! A simulator of GPU schedules, on the CPU: roles run interleaved, and what is asynchronous happens as early or as late as it may.
//!
//! Takes a laid-out function or a scheduled one, and a launch of small sizes. Gives the memory behind it, or what the schedule does
//! wrong: a stage that is read before its load has been waited for, one that is refilled while somebody may read it, the result of a
//! dot without a wait, a deadlock with the position of each role. A schedule is right where every run gives what the laid-out
//! function gives.
//!
//! - [`machine`]: who goes on, and when loads land.
//! - [`agent`]: who runs operations in order.
//! - [`simulate`]: what each operation does.
//! - [`clock`]: what has happened before what, so that a race shows in every run.
//! - `compute`, `combine`, `dot`, `memory`, `control`: tile IR.
//! - `smem`, `barrier`, `exchange`, `wgmma`, `copies`: what is asynchronous or shared.

pub mod agent;
mod barrier;
mod clock;
mod combine;
mod compute;
mod control;
mod copies;
mod dot;
mod exchange;
pub mod machine;
mod memory;
pub mod number;
mod simulate;
mod smem;
mod tile;
mod wgmma;

use std::collections::HashMap;

pub use machine::{ScheduleFault, Timing};
pub use memory::{GlobalMemory, Launch};

use tile_ir::ir::{Func, ParamId};

/// Seeds of interleavings that are tried of each timing.
const SEEDS: u64 = 4;

/// Memory behind a launch.
pub type Memory = HashMap<ParamId, GlobalMemory>;

/// What a function gives whose operations are done one after the other.
pub fn reference(func: &Func, launch: &Launch) -> Result<Memory, ScheduleFault> {
    machine::run(func, launch, Timing::Early, 0)
}

/// Runs a scheduled function with every timing and several interleavings, and compares what it gives with the laid-out function:
/// floats may differ by so many parts of themselves.
pub fn check_schedule(
    scheduled: &Func,
    laid_out: &Func,
    launch: &Launch,
    tolerance: f64,
) -> Result<(), ScheduleFault> {
    let expected = reference(laid_out, launch)?;
    for timing in [Timing::Early, Timing::Late, Timing::Random] {
        for seed in 0..SEEDS {
            let found = machine::run(scheduled, launch, timing, seed)?;
            for (param, expected) in &expected {
                if let Some(difference) = found[param].difference(expected, tolerance) {
                    let name = &scheduled.params[param.index()].name;
                    return Err(ScheduleFault(format!("{name}{difference} ({timing:?}, seed {seed})")));
                }
            }
        }
    }
    Ok(())
}
