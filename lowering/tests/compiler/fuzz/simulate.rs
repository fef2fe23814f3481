//! Schedules for tensor cores, which no host runs: in the simulator, against the reference.

use tile_ir::ops::Kind;

use super::element::Element;
use super::evaluate::{Contents, Launch};
use super::program::Program;
use lowering::devtools::schedule_simulator::machine::{self, Timing};
use lowering::devtools::schedule_simulator::number::Number;
use lowering::devtools::schedule_simulator::{GlobalMemory, Launch as SimulatedLaunch};
use lowering::gpu::specialization::Specialization;
use tile_ir::ir::{Func, ParamId};

/// Whether the body has operations that only a GPU does: `wgmma`, or TMA of views.
pub fn is_for_tensor_cores(specialization: &Specialization) -> bool {
    let mut found = false;
    specialization.plan.laid_out.body.walk(&mut |op| {
        found |= matches!(
            op.kind,
            Kind::WarpGroupDot(_)
                | Kind::LoadView(_)
                | Kind::StoreView(_)
                | Kind::AddView(_)
                | Kind::TmaStore(_)
        );
    });
    found
}

fn number(element: &Element) -> Number {
    match *element {
        Element::Integer { value, .. } => Number::Int(value),
        float => Number::Float(float.float()),
    }
}

/// The launch as the simulator takes it.
fn simulated(program: &Program, launch: &Launch, func: &Func, num_warps: u32) -> SimulatedLaunch {
    let mut simulated = SimulatedLaunch::new(launch.grid.map(|extent| extent as u32), num_warps);
    simulated.blocks = 2;
    for (i, (memory, contents)) in program.memory.iter().zip(&launch.memory).enumerate() {
        let lengths = |extents: &[i64]| extents.iter().map(|&extent| extent as usize).collect::<Vec<usize>>();
        let layout = match memory.view {
            Some(_) => [lengths(&contents.shape), lengths(&contents.strides)],
            None => [vec![contents.data.len()], vec![1]],
        };
        simulated = match memory.view {
            Some(_) => {
                simulated.strided_view(func, &memory.name(i), layout, contents.data.iter().map(number))
            }
            None => {
                simulated.slice(func, &memory.name(i), contents.data.iter().map(|element| element.float()))
            }
        };
    }
    launch
        .scalars
        .iter()
        .enumerate()
        .fold(simulated, |simulated, (i, scalar)| simulated.scalar(func, &format!("s{i}"), number(scalar)))
}

/// Runs the schedule with one timing and one interleaving, both by the seed, and compares memory.
pub fn compare(
    program: &Program,
    launch: &Launch,
    (specialization, seed): (&Specialization, u64),
    wanted: &[Contents],
) -> Result<(), String> {
    let distributed = &specialization.plan.schedule.distributed;
    let timing = [Timing::Early, Timing::Late, Timing::Random][(seed / 2 % 3) as usize];
    let simulated = simulated(program, launch, &distributed.func, distributed.num_warps)
        .with_computed_views(&distributed.func);
    let found = machine::run(&distributed.func, &simulated, timing, seed)
        .map_err(|fault| format!("{fault} ({timing:?})"))?;
    let mut position = 0;
    for (i, (memory, contents)) in program.memory.iter().zip(wanted).enumerate() {
        let param = ParamId(position);
        position += 1 + 2 * memory.view.unwrap_or(0) as u32;
        let GlobalMemory { elements, .. } = &found[&param];
        for (index, wanted) in contents.data.iter().enumerate() {
            let found = match elements.get(index) {
                Number::Int(value) => Element::whole(value),
                Number::Float(value) => Element::Float(value),
            };
            if !found.same(*wanted) {
                return Err(format!("`{}[{index}]` is {found:?}, should be {wanted:?}", memory.name(i)));
            }
        }
    }
    Ok(())
}
