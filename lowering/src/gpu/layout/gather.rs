//! Gathers that stay within each warp: those of elements at indices that are known, as shifted and sliced rows have them.

use std::collections::{BTreeMap, HashMap, HashSet};

use tile_ir::ir::Value;
use tile_ir::ops::Gather;

use super::distributed::Distributed;
use super::known_elements::KnownElements;
use super::linear::{Coord, LANE_BITS};

/// The elements that a register of the result takes, in lanes that are bits of a mask.
pub type GatherSources = BTreeMap<GatherSource, u32>;

/// An element that a thread takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GatherSource {
    /// That of an index outside the axis.
    Zero,
    /// The thread's own register.
    Own { register: usize },
    /// A register of the lane `distance` further on, modulo the lanes of a warp.
    Lane { register: usize, distance: u32 },
}

const LANES: u32 = 1 << LANE_BITS;
/// The most sources of a register: one is selected after the other.
const MAX_SOURCES: usize = 4;
/// The most registers of a thread whose indices are evaluated.
const MAX_REGISTERS: usize = 32;

/// Returns the sources of each register of the result. `None` where an index is unknown, an element is in another warp, or shuffles are
/// more than the loads from shared memory that they replace.
pub fn warp_gather(distributed: &Distributed, gather: &Gather, result: Value) -> Option<Vec<GatherSources>> {
    let (from, to) = (&distributed.layouts[&gather.value], &distributed.layouts[&result]);
    if to.register_count() > MAX_REGISTERS {
        return None;
    }
    let extent = i128::from(distributed.func.ty(gather.value).shape[gather.axis]);
    let copies = from.replicated_lanes();
    let mut indices = KnownElements::new(&distributed.func);
    let mut sources = vec![GatherSources::new(); to.register_count()];
    for warp in 0..distributed.num_warps {
        let mut held: HashMap<Coord, (usize, u32)> = HashMap::new();
        for lane in 0..LANES {
            for (register, sources) in sources.iter_mut().enumerate() {
                let coord = to.coord(register, lane, warp);
                let index = indices.at(gather.index, coord)?;
                let source = if (0..extent).contains(&index) {
                    if held.is_empty() {
                        held = elements_of_warp(distributed, gather.value, warp);
                    }
                    let &(register, holder) = held.get(&coord.set(gather.axis, index as u32))?;
                    match (holder | lane & copies).wrapping_sub(lane) % LANES {
                        0 => GatherSource::Own { register },
                        distance => GatherSource::Lane { register, distance },
                    }
                } else {
                    GatherSource::Zero
                };
                *sources.entry(source).or_default() |= 1 << lane;
            }
        }
    }
    // A lane takes the same in every warp.
    let is_one =
        |sources: &GatherSources| sources.values().map(|lanes| lanes.count_ones()).sum::<u32>() == LANES;
    let fits = sources.iter().all(|sources| sources.len() <= MAX_SOURCES && is_one(sources));
    let moved = sources.iter().flat_map(GatherSources::keys);
    let shuffles: HashSet<_> = moved.filter(|source| matches!(source, GatherSource::Lane { .. })).collect();
    (fits && shuffles.len() <= sources.len()).then_some(sources)
}

/// The register and the lane of each element of a value that a warp holds: of copies the first lane.
fn elements_of_warp(distributed: &Distributed, value: Value, warp: u32) -> HashMap<Coord, (usize, u32)> {
    let layout = &distributed.layouts[&value];
    let lanes = (0..LANES).filter(|lane| lane & layout.replicated_lanes() == 0);
    let places = lanes.flat_map(|lane| (0..layout.register_count()).map(move |register| (register, lane)));
    places.map(|(register, lane)| (layout.coord(register, lane, warp), (register, lane))).collect()
}
