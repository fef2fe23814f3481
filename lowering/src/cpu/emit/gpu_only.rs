//! Operations of tile IR that only the GPU has: its passes make them, or `transform::legalize_index` has lowered them.

use crate::cpu::emit::CpuEmit;
use tile_ir::ops::*;

macro_rules! never_emitted {
    ($($op:ident),* $(,)?) => {$(impl CpuEmit for $op {})*};
}

never_emitted! {
    LoadView, StoreView, AddView, WarpGroupDot, TmaStore,
    SmemAlloc, MbarAlloc, MbarInit, MbarWait, MbarArrive, MbarArriveForPeer, ExpectTx,
    WarpBarrier, Barrier, ProxyFence, PdlWait, ClusterArrive, ClusterWait, MmaOrder, PipeStart, PipeNext, SmemLoadWords, Poison, Pack, Unpack,
    TmaLoad, StoreWait, WarpgroupPosition, Wgmma, DotWait, RescaleRows, TripCount, Induction,
    Loop, IterationBound, WarpSpecialize, WorkTiles, Publish, TileQuotient, PeerShares,
    RingStart, SlotAt, SlotStep, AsyncCopy, AsyncGroup, AsyncWait, SlotLoad, SlotStore, SlotTile, ReduceBatch, StageOperands,
}
