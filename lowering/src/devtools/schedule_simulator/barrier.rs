//! Barriers: `mbarrier` objects with their phases and bytes, barriers of a warp, and the order of dots.

use super::agent::{AgentRole, PipeState, Step};
use super::clock::VectorClock;
use super::machine::Cx;
use super::simulate::Simulate;
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::gpu::schedule::named_barrier::NamedBarrier;
use tile_ir::ir::{Op, Storage, Value};
use tile_ir::ops::schedule::{InitVisibility, MmaOrderStep, Stage, stages};
use tile_ir::ops::{
    Barrier, ClusterArrive, ClusterWait, ExpectTx, MbarAlloc, MbarArrive, MbarArriveForPeer, MbarInit,
    MbarWait, MmaOrder, PdlWait, ProxyFence, WarpBarrier,
};

/// An `mbarrier` object.
#[derive(Clone, Default, Debug)]
pub struct MbarState {
    /// Arrivals that complete a phase; 0 before it is initialized.
    arrivals: i64,
    /// Arrivals and bytes that the current phase misses. Bytes may land before they are expected.
    missing: i64,
    bytes: i64,
    /// How many phases are complete.
    phases: u64,
    /// What has happened before the arrivals of the current phase, and of all complete ones.
    current: VectorClock,
    complete: VectorClock,
}

impl MbarState {
    pub fn arrive(&mut self, count: i64, clock: &VectorClock) -> Result<(), String> {
        self.missing -= count;
        if self.missing < 0 {
            return Err(format!("more than {} arrivals in a phase", self.arrivals));
        }
        self.current.join(clock);
        self.complete_phase();
        Ok(())
    }

    pub fn expect(&mut self, bytes: u32) {
        self.bytes += i64::from(bytes);
    }

    /// All arrivals and bytes of a phase that this block waits for at once.
    pub fn complete(&mut self, clock: &VectorClock) -> Result<(), String> {
        self.arrive(self.missing, clock)
    }

    /// So many bytes have landed.
    pub fn land(&mut self, bytes: u32, clock: &VectorClock) {
        self.bytes -= i64::from(bytes);
        self.current.join(clock);
        self.complete_phase();
    }

    fn complete_phase(&mut self) {
        if self.missing == 0 && self.bytes == 0 {
            self.phases += 1;
            self.missing = self.arrivals;
            self.complete.join(&std::mem::take(&mut self.current));
        }
    }

    /// Whether the phase of a parity is the last complete one.
    fn is_complete(&self, parity: u64) -> bool {
        self.phases % 2 != parity
    }
}

/// What agents did at a named barrier.
#[derive(Clone, Default, Debug)]
pub struct NamedBarrierState {
    arrived: usize,
    /// Whether somebody among those that arrived waits.
    waits: bool,
    generation: u64,
    clock: VectorClock,
}

impl NamedBarrierState {
    /// One more of so many agents arrives.
    fn arrive(&mut self, of: usize, clock: &VectorClock) -> Result<(), String> {
        self.arrived += 1;
        self.clock.join(clock);
        if self.arrived < of {
            return Ok(());
        }
        if !self.waits {
            return Err("lets the next warpgroup begin, which has not begun since it was last let".into());
        }
        (self.arrived, self.waits, self.generation) = (0, false, self.generation + 1);
        Ok(())
    }
}

impl<'f> Cx<'_, 'f> {
    /// A stage's barrier, of this block or of another one.
    pub fn barrier(&mut self, cta: usize, barrier: Value, stage: usize) -> Result<&mut MbarState, String> {
        let name = self.shared.names.name(barrier);
        let of = self.shared.ctas[cta].barriers.get_mut(&barrier);
        let state = of.and_then(|stages| stages.get_mut(stage));
        let state = state.ok_or_else(|| format!("{name} has no stage {stage} here"))?;
        if state.arrivals == 0 { Err(format!("{name} is not initialized")) } else { Ok(state) }
    }

    /// Whether arrivals in both blocks of the cluster count at a barrier.
    fn counts_cluster(&self, barrier: Value) -> bool {
        let counted = matches!(self.shared.func.ty(barrier).storage, Storage::Mbarrier { cluster: true, .. });
        counted && self.shared.launch.clusters
    }

    fn arrive(&mut self, at: Stage, count: i64) -> Result<Step, String> {
        let PipeState { stage, .. } = self.pipe(at.pipe)?;
        let own = self.agent.cta;
        let peer = self.counts_cluster(at.buffer).then_some(own ^ 1);
        self.agent.tick();
        let clock = self.agent.clock.clone();
        for cta in [own].into_iter().chain(peer) {
            self.barrier(cta, at.buffer, stage)?.arrive(count, &clock)?;
        }
        self.shared.events += 1;
        Ok(Step::Next)
    }
}

impl Simulate for MbarAlloc {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let count = stages(cx.shared.func, op.results[0]).unwrap_or(1) as usize;
        cx.cta_mut().barriers.insert(op.results[0], vec![MbarState::default(); count]);
        Ok(Step::Next)
    }
}

/// Initializes the barriers of a block.
fn initialize(init: &MbarInit, cx: &mut Cx) -> Result<(), String> {
    for &barrier in &init.barriers {
        let Storage::Mbarrier { arrivals, .. } = cx.shared.func.ty(barrier).storage else {
            return Err(format!("{} is no barrier", cx.shared.names.name(barrier)));
        };
        let blocks = if cx.counts_cluster(barrier) { 2 } else { 1 };
        let arrivals = i64::from(arrivals * blocks);
        let states = cx.cta_mut().barriers.get_mut(&barrier).ok_or("there is no such barrier")?;
        // Again, if it has waited for the other block of the cluster, which may have arrived since.
        for state in states.iter_mut().filter(|state| state.arrivals == 0) {
            (state.arrivals, state.missing) = (arrivals, arrivals);
        }
    }
    if init.visible == InitVisibility::ClusterWait {
        cx.cta_mut().unseen.extend(&init.barriers);
    }
    if !cx.cta().initialized {
        cx.cta_mut().initialized = true;
        cx.shared.events += 1;
    }
    Ok(())
}

impl Simulate for MbarInit {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        initialize(self, cx)?;
        // Threads of both blocks of a cluster meet behind it.
        let peer = cx.agent.cta ^ 1;
        let meet = self.visible == InitVisibility::Init && cx.shared.launch.clusters;
        if meet && !cx.shared.ctas[peer].initialized {
            return cx.blocked("the other block of the cluster");
        }
        Ok(Step::Next)
    }
}

impl Simulate for MbarWait {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let PipeState { stage, phase } = cx.pipe(self.barrier.pipe)?;
        let state = cx.barrier(cx.agent.cta, self.barrier.buffer, stage)?;
        if state.is_complete(phase) {
            let clock = state.complete.clone();
            cx.agent.clock.join(&clock);
            return Ok(Step::Next);
        }
        let (missing, bytes) = (state.missing, state.bytes);
        cx.blocked(format!("stage {stage}, phase {phase}: {missing} arrivals and {bytes} bytes are missing"))
    }
}

impl Simulate for MbarArrive {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        if let Some(condition) = self.only_if
            && !cx.tile(condition)?.is_true()
        {
            return Ok(Step::Next);
        }
        let warps = match cx.agent.role {
            AgentRole::Producer => 1,
            AgentRole::Consumer { .. } => WARPGROUP_WARPS,
            AgentRole::AllWarps => cx.shared.launch.num_warps,
        };
        cx.arrive(self.barrier, warps.into())
    }
}

impl Simulate for MbarArriveForPeer {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let count = stages(cx.shared.func, self.barrier.buffer).unwrap_or(1);
        let is_own = cx.tile(self.iteration)?.int() >= i128::from(count);
        if !is_own || !cx.tile(self.missing)?.is_true() {
            return Ok(Step::Next);
        }
        let PipeState { stage, .. } = cx.pipe(self.barrier.pipe)?;
        let (warps, clock) = (cx.shared.launch.num_warps, cx.agent.clock.clone());
        cx.barrier(cx.agent.cta, self.barrier.buffer, stage)?.arrive(warps.into(), &clock)?;
        cx.shared.events += 1;
        Ok(Step::Next)
    }
}

impl Simulate for ExpectTx {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let PipeState { stage, .. } = cx.pipe(self.barrier.pipe)?;
        cx.barrier(cx.agent.cta, self.barrier.buffer, stage)?.expect(self.bytes);
        let clock = cx.agent.clock.clone();
        cx.barrier(cx.agent.cta, self.barrier.buffer, stage)?.arrive(1, &clock)?;
        cx.shared.events += 1;
        Ok(Step::Next)
    }
}

impl Simulate for WarpBarrier {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let reads = std::mem::take(&mut cx.agent.open_reads);
        cx.end_reads(&reads);
        Ok(Step::Next)
    }
}

impl Simulate for ProxyFence {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        cx.agent.copies.is_fenced = true;
        Ok(Step::Next)
    }
}

/// Waits for other kernels and for the start of other blocks, which a simulation has behind it.
macro_rules! waits_for_nobody {
    ($($name:ident),*) => {$(
        impl Simulate for $name {
            fn run<'f>(&'f self, _: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
                Ok(Step::Next)
            }
        }
    )*};
}

waits_for_nobody!(PdlWait, ClusterArrive);

impl Simulate for ClusterWait {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        cx.cta_mut().unseen.clear();
        Ok(Step::Next)
    }
}

impl Cx<'_, '_> {
    fn named_barrier(&mut self, name: NamedBarrier) -> &mut NamedBarrierState {
        self.cta_mut().named_barriers.entry(name.number()).or_default()
    }

    fn arrive_named(&mut self, name: NamedBarrier, of: usize) -> Result<(), String> {
        let clock = self.agent.clock.clone();
        self.named_barrier(name).arrive(of, &clock)?;
        self.shared.events += 1;
        Ok(())
    }

    /// Arrives at a named barrier and waits there for so many agents, itself among them.
    pub fn meet(&mut self, name: NamedBarrier, of: usize) -> Result<Step, String> {
        let generation = match self.agent.named_wait {
            Some(generation) => generation,
            None => {
                let barrier = self.named_barrier(name);
                barrier.waits = true;
                let generation = barrier.generation;
                self.agent.named_wait = Some(generation);
                self.arrive_named(name, of)?;
                generation
            }
        };
        let barrier = self.named_barrier(name);
        if barrier.generation == generation {
            return self.blocked("other warpgroups");
        }
        let clock = barrier.clock.clone();
        self.agent.clock.join(&clock);
        self.agent.named_wait = None;
        Ok(Step::Next)
    }
}

impl Simulate for Barrier {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let reads = std::mem::take(&mut cx.agent.open_reads);
        cx.end_reads(&reads);
        match cx.agent.role {
            AgentRole::AllWarps | AgentRole::Producer => Ok(Step::Next),
            AgentRole::Consumer { .. } => cx.meet(NamedBarrier::Consumers, cx.shared.warpgroups()),
        }
    }
}

impl Simulate for MmaOrder {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let AgentRole::Consumer { warpgroup } = cx.agent.role else {
            return Err("only consumer warpgroups take part in the order of dots".into());
        };
        let warpgroups = cx.shared.warpgroups();
        let (is_last, next) = (warpgroup + 1 == warpgroups, (warpgroup + 1) % warpgroups);
        // A warpgroup that waits, and the one that lets it begin.
        let pair = 2;
        match self.step {
            MmaOrderStep::Wait => return cx.meet(NamedBarrier::MmaOrder(warpgroup as u32), pair),
            MmaOrderStep::Init if !is_last => {}
            MmaOrderStep::Init | MmaOrderStep::Arrive => {
                cx.arrive_named(NamedBarrier::MmaOrder(next as u32), pair)?;
            }
        }
        Ok(Step::Next)
    }
}
