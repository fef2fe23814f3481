//! The walk over a role, and what each operation needs and changes.

use std::collections::{BTreeMap, BTreeSet};

use super::flow::{FlowState, OpRef, Visibility, stage_key};
use super::{BarrierUses, ScheduleVerifier};
use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::schedule::{AfterIssue, Role, Stage};
use tile_ir::ops::*;

/// For each buffer that the producer fills, what its empty barrier may be: those that it waited on before.
pub type EmptyBarriers = BTreeMap<Value, BTreeSet<Value>>;

/// The walk over a role.
pub struct RoleFlow<'v, 'f> {
    pub verifier: &'v ScheduleVerifier<'f>,
    pub uses: &'v BarrierUses<'f>,
    pub role: Role,
    pub empty: EmptyBarriers,
}

/// The block of a loop with the values that the loop carries.
struct CarryingBlock<'f> {
    body: &'f Block,
    /// The values of the first iteration.
    inits: &'f [Value],
    /// The arguments of the block that stand for them.
    args: &'f [Value],
}

/// What an operation needs and changes.
trait FlowRule {
    fn apply<'f>(
        &'f self,
        flow: &mut RoleFlow<'_, 'f>,
        op: &'f Op,
        state: &mut FlowState<'f>,
    ) -> Result<(), String>;
}

macro_rules! flow_rules {
    ($($name:ident),* $(,)?) => {
        fn flow_rule(kind: &Kind) -> &dyn FlowRule {
            match kind {
                $(Kind::$name(op) => op,)*
            }
        }
    };
}

for_each_op!(flow_rules);

/// Operations that only compute, or change memory that no role shares by barriers.
macro_rules! no_flow {
    ($($name:ident),* $(,)?) => {
        $(impl FlowRule for $name {
            fn apply<'f>(
                &'f self,
                _: &mut RoleFlow<'_, 'f>,
                _: &'f Op,
                _: &mut FlowState<'f>,
            ) -> Result<(), String> {
                Ok(())
            }
        })*
    };
}

no_flow! {
    Constant, ProgramId, NumPrograms, Length, Arange, Rotate, Splat, Scalar, Cast, Bitcast, Broadcast, ExpandDims, Reshape, Permute,
    Load, Store, Atomic, LoadView, StoreView, AddView, InlinePtx, ReadRegister, AxisHint, Reduce, Convert, RematBarrier, Random, Philox, Scan, Join,
    Index, Exchange, Gather, Histogram, Dot, WarpGroupDot, SmemAlloc, MbarAlloc, MbarInit, MbarArriveForPeer, PdlWait, ClusterArrive, ClusterWait, MmaOrder,
    PipeStart, PipeNext, Poison, Pack, Unpack, RescaleRows, TripCount, Induction, IterationBound, WarpSpecialize, Publish,
    TileQuotient, PeerShares, WarpgroupPosition, SlotAt, SlotStep, AsyncCopy, AsyncGroup, SlotLoad, SlotTile, ReduceBatch, StageOperands, Assert, Print,
}

impl<'f> RoleFlow<'_, 'f> {
    /// Checks a role's block.
    pub fn run(&mut self, block: &'f Block) -> Result<(), String> {
        let mut state = FlowState::default();
        self.block(block, &mut state)?;
        if let Some((_, op)) = state.reads.values().next() {
            return self.fault(*op, format!("the {} ends without a wait for it", self.role.name()));
        }
        state.store.map_or(Ok(()), |op| self.fault(op, "the role ends while it may read shared memory"))
    }

    fn fault<T>(&self, op: OpRef, what: impl AsRef<str>) -> Result<T, String> {
        self.verifier.fault(op.0, what)
    }

    fn block(&mut self, block: &'f Block, state: &mut FlowState<'f>) -> Result<(), String> {
        for op in &block.ops {
            self.check_operands(op, state)?;
            flow_rule(&op.kind).apply(self, op, state)?;
        }
        let defined =
            |pipe| block.args.contains(&pipe) || block.ops.iter().any(|op| op.results.contains(&pipe));
        let mut missing =
            state.expected.iter().filter(|((_, pipe), (bytes, _))| *bytes != 0 && defined(*pipe));
        match missing.next() {
            Some((_, (bytes, op))) => self.fault(*op, format!("{bytes} of these bytes are not loaded")),
            None => Ok(()),
        }
    }

    /// Law 7: results of dots in flight are waited for, handed on, or added to.
    fn check_operands(&self, op: &'f Op, state: &FlowState<'f>) -> Result<(), String> {
        let hands_on = matches!(op.kind, Kind::DotWait(_)) || !op.kind.operation().blocks().is_empty();
        let acc = if let Kind::Wgmma(dot) = &op.kind { dot.acc } else { None };
        let operands = op.kind.operation().operands();
        let mut read = operands.iter().filter(|operand| !hands_on && Some(**operand) != acc);
        match read.find(|operand| state.results.contains_key(operand)) {
            Some(&operand) => {
                let name = self.verifier.name(operand);
                self.fault(OpRef(op), format!("reads {name}, the result of a dot that was not waited for"))
            }
            None => Ok(()),
        }
    }

    /// Whether a stage was released by whatever its empty barrier may be.
    fn is_released(&self, buffer: Value, pipe: Value, state: &FlowState) -> bool {
        let barriers = self.empty.get(&buffer).filter(|barriers| !barriers.is_empty());
        barriers.is_some_and(|all| all.iter().all(|barrier| state.released.contains_key(&(*barrier, pipe))))
    }

    /// Law 6.
    fn check_read(&self, op: &'f Op, from: Stage, state: &FlowState) -> Result<(), String> {
        let Some(full) = self.uses.full.get(&from.buffer) else { return Ok(()) };
        let name = self.verifier.name(from.buffer);
        if !full.iter().any(|barrier| state.waited.contains(&(*barrier, from.pipe))) {
            return self
                .fault(OpRef(op), format!("reads a stage of {name} without a wait on its full barrier"));
        }
        if self.is_released(from.buffer, from.pipe, state) {
            return self.fault(OpRef(op), format!("reads a stage of {name} behind its release"));
        }
        Ok(())
    }

    /// Law 7: no dot reads a stage when it is released.
    fn check_release(&self, op: &'f Op, pipe: Value, state: &FlowState<'f>) -> Result<(), String> {
        let in_flight = state.reads.iter().map(|(key, (_, read))| (key, *read));
        let of_lanes = state.lane_reads.iter().map(|(key, read)| (key, *read));
        let mut reads = in_flight.chain(of_lanes).filter(|((_, of), _)| *of == pipe);
        match reads.find(|((buffer, _), _)| self.is_released(*buffer, pipe, state)) {
            Some((_, read)) => {
                let read = self.verifier.text(read.0);
                self.fault(OpRef(op), format!("releases a stage while `{read}` may read it"))
            }
            None => Ok(()),
        }
    }

    /// Runs a body whose arguments are these carried values first, and what it yields from then on. Leaves what holds before each
    /// iteration, which is also what holds behind the last.
    fn iterate(
        &mut self,
        state: &mut FlowState<'f>,
        mut iteration: impl FnMut(&mut Self, &mut FlowState<'f>) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let mut end = state.clone();
            iteration(self, &mut end)?;
            let mut merged = state.clone();
            merged.merge(&end);
            if merged == *state {
                return Ok(());
            }
            *state = merged;
        }
    }

    /// A loop with one block.
    fn carried(
        &mut self,
        op: &'f Op,
        carrying: CarryingBlock<'f>,
        state: &mut FlowState<'f>,
    ) -> Result<(), String> {
        let CarryingBlock { body, inits, args } = carrying;
        state.copy(inits, args);
        self.iterate(state, |flow, state| {
            flow.block(body, state)?;
            state.leave(body, args);
            Ok(())
        })?;
        state.copy(args, &op.results);
        state.forget(&body.defined().into_iter().collect());
        Ok(())
    }
}

macro_rules! flow_rule {
    ($name:ident: |$own:ident, $flow:ident, $op:ident, $state:ident| $rule:expr) => {
        impl FlowRule for $name {
            fn apply<'f>(
                &'f self,
                $flow: &mut RoleFlow<'_, 'f>,
                $op: &'f Op,
                $state: &mut FlowState<'f>,
            ) -> Result<(), String> {
                let $own = self;
                $rule
            }
        }
    };
}

flow_rule!(MbarWait: |own, _flow, _op, state| {
    state.waited.insert(stage_key(own.barrier));
    Ok(())
});

flow_rule!(MbarArrive: |own, flow, op, state| {
    let conditional = own.only_if.is_some();
    let before = state.released.insert(stage_key(own.barrier), conditional);
    if before == Some(false) && !conditional {
        return flow.fault(OpRef(op), "arrives a second time in this phase");
    }
    flow.check_release(op, own.barrier.pipe, state)
});

flow_rule!(ExpectTx: |own, flow, op, state| {
    let bytes = i64::from(own.bytes);
    match state.expected.insert(stage_key(own.barrier), (bytes, OpRef(op))) {
        Some(_) => flow.fault(OpRef(op), "expects bytes a second time in this phase"),
        None => Ok(()),
    }
});

// Law 5.
flow_rule!(TmaLoad: |own, flow, op, state| {
    let pipe = own.to.pipe;
    let waited = state.waited.iter().filter(|(_, of)| *of == pipe).map(|(barrier, _)| *barrier);
    let waited: Vec<Value> = waited.filter(|barrier| flow.uses.released.contains(barrier)).collect();
    if waited.is_empty() {
        return flow.fault(OpRef(op), "fills a stage without a wait on its empty barrier");
    }
    flow.empty.entry(own.to.buffer).or_default().extend(waited);
    let ty = flow.verifier.func.ty(own.to.buffer);
    let bytes = (ty.shape.elements() * u64::from(ty.dtype.bytes())) as i64;
    let Some((missing, _)) = state.expected.get_mut(&(own.signal, pipe)) else {
        let signal = flow.verifier.name(own.signal);
        return flow.fault(OpRef(op), format!("its bytes are not expected at {signal}"));
    };
    *missing -= bytes;
    let more = -*missing;
    if more > 0 { flow.fault(OpRef(op), format!("loads {more} bytes more than are expected")) } else { Ok(()) }
});

flow_rule!(SmemLoadWords: |own, flow, op, state| {
    flow.check_read(op, own.from, state)?;
    state.lane_reads.insert(stage_key(own.from), OpRef(op));
    Ok(())
});

flow_rule!(WarpBarrier: |_own, _flow, _op, state| {
    state.lane_reads.clear();
    Ok(())
});

flow_rule!(Barrier: |_own, _flow, _op, state| {
    state.lane_reads.clear();
    if state.copies == Visibility::Fenced {
        state.copies = Visibility::Warpgroups;
    }
    Ok(())
});

flow_rule!(AsyncWait: |_own, _flow, _op, state| {
    state.copies = Visibility::Threads;
    Ok(())
});

flow_rule!(RingStart: |_own, _flow, _op, state| {
    state.copies = Visibility::Threads;
    Ok(())
});

flow_rule!(SlotStore: |_own, _flow, _op, state| {
    state.copies = Visibility::Threads;
    Ok(())
});

flow_rule!(ProxyFence: |_own, _flow, _op, state| {
    state.copies = state.copies.max(Visibility::Fenced);
    Ok(())
});

flow_rule!(Wgmma: |own, flow, op, state| {
    own.stages().into_iter().try_for_each(|stage| flow.check_read(op, stage, state))?;
    let reads_slots = own.smem_operands().iter().any(|operand| operand.stage().is_none());
    if reads_slots && state.copies != Visibility::Warpgroups {
        return flow.fault(OpRef(op), "reads a slot without a proxy fence and a barrier behind what was copied or stored there");
    }
    state.issue();
    if own.then == AfterIssue::Wait {
        state.complete(0);
        return Ok(());
    }
    state.results.insert(op.results[0], 0);
    state.reads.extend(own.stages().into_iter().map(|stage| (stage_key(stage), (0, OpRef(op)))));
    Ok(())
});

flow_rule!(DotWait: |own, _flow, op, state| {
    for (value, &result) in own.values.iter().zip(&op.results) {
        if let Some(&behind) = state.results.get(value).filter(|behind| **behind < own.pending) {
            state.results.insert(result, behind);
        }
    }
    state.complete(own.pending);
    Ok(())
});

flow_rule!(TmaStore: |_own, _flow, op, state| {
    state.store = Some(OpRef(op));
    Ok(())
});

flow_rule!(StoreWait: |_own, _flow, _op, state| {
    state.store = None;
    Ok(())
});

flow_rule!(If: |own, flow, op, state| {
    let mut other = state.clone();
    for (block, state) in [(&own.then, &mut *state), (&own.otherwise, &mut other)] {
        flow.block(block, state)?;
        state.leave(block, &op.results);
    }
    state.merge(&other);
    Ok(())
});

flow_rule!(For: |own, flow, op, state| {
    flow.carried(op, CarryingBlock { body: &own.body, inits: &own.inits, args: &own.body.args[1..] }, state)
});

flow_rule!(Loop: |own, flow, op, state| {
    flow.carried(op, CarryingBlock { body: &own.body, inits: &own.inits, args: &own.body.args[1..] }, state)
});

flow_rule!(WorkTiles: |own, flow, op, state| {
    flow.carried(op, CarryingBlock { body: &own.body, inits: &own.inits, args: own.states() }, state)
});

flow_rule!(While: |own, flow, op, state| {
    let (test, body) = (&own.test, &own.body);
    state.copy(&own.inits, &test.args);
    flow.iterate(state, |flow, state| {
        flow.block(test, state)?;
        state.copy(&test.args, &body.args);
        flow.block(body, state)?;
        state.leave(body, &test.args);
        Ok(())
    })?;
    state.copy(&test.args, &op.results);
    state.forget(&test.defined().into_iter().chain(body.defined()).collect());
    Ok(())
});
