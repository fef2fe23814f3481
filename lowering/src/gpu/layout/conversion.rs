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

/// Moves within a warp. First pairs of lanes exchange halves of their registers; then the element that lane `l` needs in
/// register `r` is in the lane and register given by the exclusive or of `constant[r]` and the contributions of the bits of `l`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shuffle {
    pub exchanges: Vec<LaneExchange>,
    /// For each register: source register and source lane for lane 0.
    pub constant: Vec<(usize, u32)>,
    /// For each lane bit: what it adds to the source register and source lane.
    pub lane_bits: [(usize, u32); LANE_BITS],
}

/// A bit of the lane and a bit of the register trade places: one shuffle for two registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneExchange {
    pub lane_bit: usize,
    pub register_bit: usize,
}

impl Shuffle {
    /// Whether register `r` is the lane's own after the exchanges.
    pub fn is_own(&self, r: usize) -> bool {
        let moves =
            self.lane_bits.iter().enumerate().any(|(bit, &contribution)| contribution != (0, 1 << bit));
        !moves && self.constant[r].1 == 0
    }

    /// The greatest number of shuffles for two registers.
    fn cost(&self) -> usize {
        let of_register = |r| if self.is_own(r) { 0 } else { 2 * self.sources(r).len() };
        self.exchanges.len() + (0..self.constant.len()).map(of_register).max().unwrap_or(0)
    }

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

/// With more shuffles for two registers than this shared memory is cheaper.
const MAX_COST: usize = 8;

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
        Some(shuffle) if shuffle.cost() <= MAX_COST => Conversion::Shuffle(shuffle),
        _ => Conversion::Shared,
    }
}

/// The linear map from a register and lane of `to` to those of `from`, if no element leaves its warp.
fn shuffle(from: &Layout, to: &Layout) -> Option<Shuffle> {
    let (exchanges, from) = exchanged(from, to);
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
        // A lane reads itself rather than another one that has a copy.
        let is_own = from.lane_bases()[bit] == basis;
        lane_bits[bit] = if is_own { (0, 1 << bit) } else { *positions.get(&basis)? };
    }
    let to_bits = to.register_bases().len();
    let constant = (0..to.register_count())
        .map(|register| {
            let (block, within) = (register >> to_bits, to.within_block(register));
            let &(source, lane) = positions.get(&within)?;
            Some((block * per_block + source, lane))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Shuffle { exchanges, constant, lane_bits })
}

/// Exchanges until no lane has a bit that `to` has in a register for one that it has in a lane, and the layout after them.
fn exchanged(from: &Layout, to: &Layout) -> (Vec<LaneExchange>, Layout) {
    let (mut exchanges, mut layout) = (vec![], from.clone());
    for (lane_bit, wanted) in to.lane_bases().iter().enumerate() {
        if !to.register_bases().contains(&layout.lane_bases()[lane_bit]) {
            continue;
        }
        // A bit that belongs into this lane saves a shuffle of all registers.
        let registers = layout.register_bases();
        let own = registers.iter().position(|basis| basis == wanted);
        let any = || registers.iter().position(|basis| to.lane_bases().contains(basis));
        if let Some(register_bit) = own.or_else(any) {
            layout = layout.with_exchanged(lane_bit, register_bit);
            exchanges.push(LaneExchange { lane_bit, register_bit });
        }
    }
    (exchanges, layout)
}
