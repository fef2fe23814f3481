//! Operations of a GPU schedule: what the hardware does asynchronously, and who waits for whom.
//!
//! The frontend never makes them; the passes of `gpu::schedule` rewrite laid-out tile IR with them. Names follow PTX and CUTLASS.
//! A buffer in shared memory and a list of `mbarrier` objects are values, as pipeline states are: an operation on one stage of a
//! buffer names the buffer and the state.

mod barriers;
mod buffers;
mod copies;
mod loops;
mod operand_tile;
mod reduce_batch;
mod roles;
mod stage_operands;
mod tma;
mod wgmma;

use super::Operation;
use crate::ir::{Func, Storage, Value};

pub use barriers::{
    Barrier, ClusterArrive, ClusterWait, ExpectTx, InitVisibility, MbarArrive, MbarArriveForPeer, MbarInit,
    MbarWait, MmaOrder, MmaOrderStep, PdlWait, ProxyFence, WarpBarrier,
};
pub use buffers::{MbarAlloc, Pack, PipeNext, PipeStart, Poison, SmemAlloc, SmemLoadWords, Stage, Unpack};
pub use copies::{
    AsyncCopy, AsyncGroup, AsyncWait, CopyCache, CopyRing, CopyTarget, GroupIssue, MaskedElements, RingStart,
    SlotAt, SlotLoad, SlotNeighbor, SlotStep, SlotStore, SlotTile, ThreadPart,
};
pub use loops::{Induction, IterationBound, Loop, TripCount, loop_variable};
pub use operand_tile::{CHUNK_BYTES, LineOrder, OperandTile, Panels, RowBits};
pub use reduce_batch::{PartialExchange, ReduceBatch};
pub use roles::{PeerShares, Publish, Role, TileQuotient, WarpSpecialize, WorkTiles};
pub use stage_operands::{StageOperands, StagedForm, StagedValue};
pub use tma::{StoreWait, TmaLoad, WaitedStores};
pub use wgmma::{
    AfterIssue, DotWait, RescaleRows, SmemPlace, StagedOperand, WarpgroupPosition, Wgmma, WgmmaOperandA,
};

/// A part of an operation that holds values.
trait Operands {
    fn collect(&self, to: &mut Vec<Value>);
    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value);
}

impl Operands for Value {
    fn collect(&self, to: &mut Vec<Value>) {
        to.push(*self);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        *self = by(*self);
    }
}

impl<T: Operands> Operands for Option<T> {
    fn collect(&self, to: &mut Vec<Value>) {
        self.iter().for_each(|value| value.collect(to));
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.iter_mut().for_each(|value| value.change(by));
    }
}

impl<T: Operands> Operands for Vec<T> {
    fn collect(&self, to: &mut Vec<Value>) {
        self.iter().for_each(|value| value.collect(to));
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.iter_mut().for_each(|value| value.change(by));
    }
}

impl<A: Operands, B: Operands> Operands for (A, B) {
    fn collect(&self, to: &mut Vec<Value>) {
        self.0.collect(to);
        self.1.collect(to);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.0.change(by);
        self.1.change(by);
    }
}

impl Operands for super::ViewTile {
    fn collect(&self, to: &mut Vec<Value>) {
        to.extend(&self.offsets);
    }

    fn change(&mut self, by: &mut dyn FnMut(Value) -> Value) {
        self.map(by);
    }
}

/// The methods of [`Operation`] that follow from the fields with operands, listed in the order in which they print.
macro_rules! operand_fields {
    ($($field:ident),* $(,)?) => {
        fn operands(&self) -> Vec<$crate::ir::Value> {
            #[allow(unused_mut)]
            let mut values = vec![];
            $($crate::ops::schedule::Operands::collect(&self.$field, &mut values);)*
            values
        }

        fn map(&mut self, change: &mut dyn FnMut($crate::ir::Value) -> $crate::ir::Value) {
            let _ = &change;
            $($crate::ops::schedule::Operands::change(&mut self.$field, change);)*
        }
    };
}

pub(crate) use operand_fields;

/// The methods of an operation that threads run in order among all others with effects.
macro_rules! ordered {
    () => {
        fn effect(&self) -> $crate::ops::Effect {
            $crate::ops::Effect::Write
        }

        fn layout_relation(
            &self,
            _: &$crate::ir::Func,
            _: &[$crate::ir::Value],
        ) -> $crate::ir::layout_relation::LayoutRelation {
            $crate::ir::layout_relation::LayoutRelation::Free
        }
    };
}

pub(crate) use ordered;

/// An error unless a value is stored so.
fn expect_storage(what: &str, func: &Func, value: Value, is: fn(Storage) -> bool) -> Result<(), String> {
    let ty = func.ty(value);
    if is(ty.storage) { Ok(()) } else { Err(format!("{what} is of type {ty}")) }
}

fn is_pipe(storage: Storage) -> bool {
    matches!(storage, Storage::Pipe { .. })
}

fn is_smem(storage: Storage) -> bool {
    matches!(storage, Storage::Smem { .. })
}

fn is_mbarrier(storage: Storage) -> bool {
    matches!(storage, Storage::Mbarrier { .. })
}

fn is_slot(storage: Storage) -> bool {
    matches!(storage, Storage::Slot { .. })
}

/// The stages of a buffer, of barriers or of a pipeline state.
pub fn stages(func: &Func, value: Value) -> Option<u32> {
    match func.ty(value).storage {
        Storage::Smem { stages } | Storage::Mbarrier { stages, .. } | Storage::Pipe { stages } => {
            Some(stages)
        }
        Storage::Registers | Storage::Words | Storage::Slot { .. } | Storage::Copies => None,
    }
}

/// An error unless a pipeline state runs over as many stages as what it selects from.
fn expect_stages(func: &Func, of: Value, pipe: Value) -> Result<(), String> {
    expect_storage("the pipeline state", func, pipe, is_pipe)?;
    super::expect_types(
        "the number of stages",
        stages(func, of).unwrap_or_default(),
        stages(func, pipe).unwrap_or_default(),
    )
}
