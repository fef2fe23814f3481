//! How a tile gets from one layout to another: derived from the two maps, never from their names.

use std::collections::HashMap;

use super::linear::{Coord, LANE_BITS, Layout};

/// How a conversion is done, cheapest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conversion {
    /// Every thread holds what it needs: the source register of each register.
    Registers(Vec<usize>),
    /// Every warp holds what it needs.
    Shuffle(Shuffle),
    /// Through shared memory.
    Shared,
}

/// Moves within a warp. The element that lane `l` needs in register `r` is in the lane and register given by the
/// exclusive or of `constant[r]` and the contributions of the bits of `l`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shuffle {
    /// For each register: source register and source lane for lane 0.
    pub constant: Vec<(usize, u32)>,
    /// For each lane bit: what it adds to the source register and source lane.
    pub lane_bits: [(usize, u32); LANE_BITS],
}

impl Shuffle {
    /// The source registers that the lanes of a warp need for register `r`, with the lane bits that choose among them.
    pub fn sources(&self, r: usize) -> Vec<usize> {
        let mut sources = vec![self.constant[r].0];
        for &(flip, _) in self.lane_bits.iter().filter(|(flip, _)| *flip != 0) {
            let flipped: Vec<usize> = sources.iter().map(|source| source ^ flip).collect();
            for source in flipped {
                if !sources.contains(&source) {
                    sources.push(source);
                }
            }
        }
        sources
    }
}

/// More shuffles than this for each register, and shared memory is cheaper.
const MAX_SOURCES: usize = 4;

/// The cheapest conversion from `from` to `to`, two layouts of one shape and number of warps.
pub fn conversion(from: &Layout, to: &Layout) -> Conversion {
    debug_assert_eq!(from.shape(), to.shape());
    if from.warp_bases() != to.warp_bases() || from.set_axis() != to.set_axis() {
        return Conversion::Shared;
    }
    if from.lane_bases() == to.lane_bases() {
        let positions = from.registers_by_coord();
        let sources: Option<Vec<usize>> =
            (0..to.register_count()).map(|register| positions.get(&to.register(register)).copied()).collect();
        if let Some(sources) = sources {
            return Conversion::Registers(sources);
        }
    }
    match shuffle(from, to) {
        Some(shuffle) if (0..to.register_count()).all(|r| shuffle.sources(r).len() <= MAX_SOURCES) => {
            Conversion::Shuffle(shuffle)
        }
        _ => Conversion::Shared,
    }
}

/// The linear map from a register and lane of `to` to those of `from`, if no element leaves its warp.
fn shuffle(from: &Layout, to: &Layout) -> Option<Shuffle> {
    // A preimage for every coordinate that warp 0 holds in the first block; later blocks are alike.
    let per_block = 1usize << from.register_bases().len();
    let mut positions: HashMap<Coord, (usize, u32)> = HashMap::new();
    for lane in (0..1u32 << LANE_BITS).rev() {
        for register in (0..per_block).rev() {
            positions.insert(from.within_block(register).xor(from.thread(lane, 0)), (register, lane));
        }
    }
    let mut lane_bits = [(0, 0); LANE_BITS];
    for (bit, &basis) in to.lane_bases().iter().enumerate() {
        lane_bits[bit] = *positions.get(&basis)?;
    }
    let to_bits = to.register_bases().len();
    let constant = (0..to.register_count())
        .map(|register| {
            let (block, within) = (register >> to_bits, to.within_block(register));
            let &(source, lane) = positions.get(&within)?;
            Some((block * per_block + source, lane))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Shuffle { constant, lane_bits })
}
