//! Barriers: `mbarrier` objects, and the order in which warpgroups issue their dots.

use super::{Operation, Stage, expect_storage, is_mbarrier, operand_fields, ordered};
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Func, ParseError, TextReader, Type, Value};
use crate::ops::expect_types;
use crate::ops::syntax::syntax;
use crate::support::dtype::DType;

/// Where all threads of the block, and of the cluster, see that barriers are initialized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitVisibility {
    /// Behind the initialization, which waits for them.
    Init,
    /// Behind the [`ClusterWait`], which they come to anyway.
    ClusterWait,
}

/// One thread initializes `mbarrier` objects and prefetches tensor maps.
#[derive(Clone, Debug)]
pub struct MbarInit {
    pub barriers: Vec<Value>,
    /// The tensor maps to prefetch, by index.
    pub prefetched: Vec<usize>,
    pub visible: InitVisibility,
}

syntax!(MbarInit: "mbar_init" barriers ["prefetch" prefetched] ["visible_behind" visible]);

impl Operation for MbarInit {
    operand_fields!(barriers);

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        self.barriers.iter().try_for_each(|&barrier| expect_storage("a barrier", func, barrier, is_mbarrier))
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// Waits until the phase of a pipeline state is complete at its stage's barrier.
#[derive(Clone, Copy, Debug)]
pub struct MbarWait {
    pub barrier: Stage,
}

syntax!(MbarWait: "mbar_wait" barrier);

impl Operation for MbarWait {
    operand_fields!(barrier);

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        self.barrier.verify_barrier(func)
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// Arrives at a stage's barrier: one thread of each warp, also at the other block's of the cluster if arrivals of both are counted.
#[derive(Clone, Copy, Debug)]
pub struct MbarArrive {
    pub barrier: Stage,
    /// Only where this scalar holds.
    pub only_if: Option<Value>,
}

syntax!(MbarArrive: "mbar_arrive" barrier ["if" only_if]);

impl Operation for MbarArrive {
    operand_fields!(barrier, only_if);

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        self.barrier.verify_barrier(func)?;
        let flag = Type::scalar(DType::Bool);
        self.only_if.map_or(Ok(()), |condition| expect_types("the condition", func.ty(condition), &flag))
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// The producer arrives at a stage's empty barrier for the warps of a missing block of the cluster, from the iteration on in which
/// this program's own loads come around to the stage.
#[derive(Clone, Copy, Debug)]
pub struct MbarArriveForPeer {
    pub barrier: Stage,
    /// Whether the block is missing.
    pub missing: Value,
    /// The index of the iteration.
    pub iteration: Value,
}

syntax!(MbarArriveForPeer: "mbar_arrive_for_peer" barrier ["if" missing] [iteration]);

impl Operation for MbarArriveForPeer {
    operand_fields!(barrier, missing, iteration);

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        self.barrier.verify_barrier(func)?;
        expect_types("the condition", func.ty(self.missing), &Type::scalar(DType::Bool))?;
        expect_types("the iteration", func.ty(self.iteration), &Type::scalar(DType::I64))
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

/// The producer expects so many bytes of TMA at a stage's full barrier, and arrives there.
#[derive(Clone, Copy, Debug)]
pub struct ExpectTx {
    pub barrier: Stage,
    pub bytes: u32,
}

syntax!(ExpectTx: "mbar_expect" barrier [bytes]);

impl Operation for ExpectTx {
    operand_fields!(barrier);

    fn verify(&self, func: &Func, _: &[Value]) -> Result<(), String> {
        self.barrier.verify_barrier(func)
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

macro_rules! without_operands {
    ($(#[doc = $doc:literal])+ $name:ident, $text:literal) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        syntax!($name: $text);

        impl Operation for $name {
            operand_fields!();

            fn verify(&self, _: &Func, _: &[Value]) -> Result<(), String> {
                Ok(())
            }

            fn result_count(&self) -> usize {
                0
            }

            ordered!();
        }
    };
}

without_operands! {
    /// Waits for the other lanes of this warp.
    WarpBarrier, "warp_barrier"
}

without_operands! {
    /// Waits for the other warps of this role, and makes what they wrote visible.
    Barrier, "barrier"
}

without_operands! {
    /// Lets `wgmma` and TMA, which read by another proxy, see what this thread has written and copied to shared memory.
    ProxyFence, "proxy_fence"
}

without_operands! {
    /// Waits until the writes of the kernel before this one are visible (programmatic dependent launch).
    PdlWait, "pdl_wait"
}

without_operands! {
    /// Arrives at the barrier of the cluster: this block has started.
    ClusterArrive, "cluster_arrive"
}

without_operands! {
    /// Waits until all blocks of the cluster have started.
    ClusterWait, "cluster_wait"
}

/// A warpgroup's step in the order of dots (ping-pong).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmaOrderStep {
    /// Before the first program: the last warpgroup lets the first one begin.
    Init,
    /// Waits until the warpgroup before lets this one begin.
    Wait,
    /// Lets the next warpgroup begin.
    Arrive,
}

/// The warpgroups issue their dots in turn: one issues while the others work on their results.
#[derive(Clone, Copy, Debug)]
pub struct MmaOrder {
    pub step: MmaOrderStep,
}

syntax!(MmaOrder: "mma_order" step);

impl Operation for MmaOrder {
    operand_fields!();

    fn verify(&self, _: &Func, _: &[Value]) -> Result<(), String> {
        Ok(())
    }

    fn result_count(&self) -> usize {
        0
    }

    ordered!();
}

impl FieldText for InitVisibility {
    fn write(&self, out: &mut TextWriter) {
        out.word("cluster_wait");
    }

    fn read(input: &mut TextReader) -> Result<InitVisibility, ParseError> {
        input.expect("cluster_wait")?;
        Ok(InitVisibility::ClusterWait)
    }

    fn absent() -> Option<InitVisibility> {
        Some(InitVisibility::Init)
    }

    fn is_absent(&self) -> bool {
        *self == InitVisibility::Init
    }
}

impl FieldText for MmaOrderStep {
    fn write(&self, out: &mut TextWriter) {
        out.word(match self {
            MmaOrderStep::Init => "init",
            MmaOrderStep::Wait => "wait",
            MmaOrderStep::Arrive => "arrive",
        });
    }

    fn read(input: &mut TextReader) -> Result<MmaOrderStep, ParseError> {
        let steps =
            [("init", MmaOrderStep::Init), ("wait", MmaOrderStep::Wait), ("arrive", MmaOrderStep::Arrive)];
        input.one_of(&steps)
    }
}
