//! TMA loads that two blocks of a cluster issue for each other (multicast).
//!
//! L2 coalesces requests of several multiprocessors for one line, but not for parts of its 32-byte sectors. Views whose rows are a
//! multiple of 16 bytes and none of 32 apart therefore read twice as much out of L2 (docs/performance.md, "Rows that begin within
//! sectors"). The launcher runs such a kernel in clusters of two blocks: each block loads half of the rows of a box that both
//! programs take, into the shared memory of both.
//!
//! The blocks of a cluster run programs with neighboring numbers, and loops with equally many iterations. The producer warp
//! computes the offsets of both programs to find the boxes they share. A stage's empty barrier waits for the consumer warps of
//! both blocks, shared or not, so that neither block is a whole ring ahead. The last of an odd number of programs has no peer: its
//! producer warp arrives for the peer.

use std::collections::{HashMap, HashSet};

use super::tensor_map::Multicast;
use super::tile_scalars::varies_by_program;
use super::tma_pipeline::{PipelinedLoad, TmaPipeline, TmaRing, depends_on};
use tile_ir::ir::{Func, Op, Value};

/// Fewest results of a dot whose loads may be multicast. Smaller tiles are those of small dots: clusters seldom pay
/// for them, and their code takes 2 % of their time before the first load (docs/performance.md, "Small products").
const LEAST_RESULTS: u64 = 128 * 128;

impl TmaRing {
    /// Whether a load of the ring may be multicast.
    pub fn has_multicast(&self) -> bool {
        self.loads.iter().any(|load| load.multicast)
    }
}

impl TmaPipeline {
    /// Marks the loads that may be multicast: of large tiles, in loops with equally many iterations in all programs, by tensor maps of
    /// nothing else. Where a program also loads something once, as attention does, and for TF32 the producer warp has no registers for it.
    pub fn mark_multicast(&mut self, func: &Func, definitions: &HashMap<Value, &Op>) {
        if !self.has_room_for_multicast(func) {
            return;
        }
        let ring_loads =
            self.rings.iter().flat_map(|ring| ring.loads.iter().map(|load| (ring.variable, load)));
        let (candidates, others): (Vec<_>, Vec<_>) =
            ring_loads.partition(|&(variable, load)| is_same_for_peers(load, variable, definitions));
        let others = others.into_iter().map(|(_, load)| load.map);
        let others: HashSet<usize> = others.chain(self.epilogue.maps()).collect();
        for (variable, load) in candidates.into_iter().filter(|(_, load)| !others.contains(&load.map)) {
            let moves = |offset: &Value| depends_on(*offset, variable, definitions);
            let axis =
                load.tile.offsets.iter().position(moves).expect("a ring loads another box in each iteration");
            let step = load.tile.extents[axis];
            self.maps[load.map].multicast = Some(Multicast { axis: axis as u32, step, bytes: load.bytes });
        }
        for load in self.rings.iter_mut().flat_map(|ring| &mut ring.loads) {
            load.multicast = self.maps[load.map].multicast.is_some();
        }
    }

    /// Whether tiles are large enough to be worth it, and the producer warp has the registers.
    fn has_room_for_multicast(&self, func: &Func) -> bool {
        let results = |load: &PipelinedLoad| func.ty(load.last_use).shape.elements();
        let small = self.rings.iter().flat_map(|ring| &ring.loads).any(|load| results(load) < LEAST_RESULTS);
        !small && !self.is_dynamic && self.resident.is_empty() && !self.maps.iter().any(|map| map.tf32)
    }

    pub fn has_multicast(&self) -> bool {
        self.rings.iter().any(TmaRing::has_multicast)
    }
}

/// Whether both programs of a cluster load the same boxes in a loop with this variable.
fn is_same_for_peers(load: &PipelinedLoad, variable: Value, definitions: &HashMap<Value, &Op>) -> bool {
    !load
        .tile
        .offsets
        .iter()
        .any(|&offset| depends_on(offset, variable, definitions) && varies_by_program(offset, definitions))
}
