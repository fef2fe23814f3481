//! Layouts as linear maps over bits.
//!
//! A tile of extents `odd * 2^k` is split into power-of-two blocks, one for each combination of the odd counts. Within
//! a block, an element's coordinate is the exclusive or of the bases of the bits that are set in the register, lane
//! and warp indices of the thread that holds it. Every block has the same layout; its registers follow those of the
//! block before. A basis of zero means that the bit does not matter: the element is replicated.
//!
//! Where the number of warps is no power of two either, `odd * 2^k` again, they form `odd` sets of `2^k` warps. Along
//! an axis whose odd count is the number of sets, each set holds its own blocks; where there is no such axis, all
//! sets hold the same.
//!
//! Law: every element has a position, and all positions that map to its coordinate hold it.

use std::fmt;

use tile_ir::ir::{MAX_RANK, Shape};

/// Lanes of a warp, as bits.
pub const LANE_BITS: usize = 5;

/// A coordinate, or what one bit contributes to it; axes past the tile's rank are 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Coord([u32; MAX_RANK]);

impl Coord {
    pub const ZERO: Coord = Coord([0; MAX_RANK]);

    pub fn along(axis: usize, value: u32) -> Coord {
        let mut coord = Coord::ZERO;
        coord.0[axis] = value;
        coord
    }

    pub fn xor(self, other: Coord) -> Coord {
        let mut coord = self;
        for (a, b) in coord.0.iter_mut().zip(other.0) {
            *a ^= b;
        }
        coord
    }

    pub fn plus(self, other: Coord) -> Coord {
        let mut coord = self;
        for (a, b) in coord.0.iter_mut().zip(other.0) {
            *a += b;
        }
        coord
    }

    pub fn get(self, axis: usize) -> u32 {
        self.0[axis]
    }

    /// With another value along `axis`.
    pub fn set(mut self, axis: usize, value: u32) -> Coord {
        self.0[axis] = value;
        self
    }

    /// Without the value along `axis`; later axes move up.
    pub fn remove(self, axis: usize) -> Coord {
        let mut coord = Coord::ZERO;
        let kept = self.0.iter().enumerate().filter(|(a, _)| *a != axis);
        for (to, (_, &value)) in coord.0.iter_mut().zip(kept) {
            *to = value;
        }
        coord
    }

    /// 0 along the axes where `shape` has extent 1.
    pub fn clamp(self, shape: &Shape) -> Coord {
        (0..shape.rank()).fold(self, |coord, axis| if shape[axis] == 1 { coord.set(axis, 0) } else { coord })
    }

    /// The coordinate before axes were reordered so that axis `i` came from `order[i]`.
    pub fn unpermute(self, order: &[usize]) -> Coord {
        order.iter().enumerate().fold(Coord::ZERO, |coord, (to, &from)| coord.set(from, self.get(to)))
    }

    /// The coordinate of the same element under another shape in row-major order.
    pub fn reshape(self, from: &Shape, to: &Shape) -> Coord {
        let mut flat = (0..from.rank())
            .fold(0u64, |flat, axis| flat * u64::from(from[axis]) + u64::from(self.get(axis)));
        let mut coord = Coord::ZERO;
        for axis in (0..to.rank()).rev() {
            coord = coord.set(axis, (flat % u64::from(to[axis])) as u32);
            flat /= u64::from(to[axis]);
        }
        coord
    }

    /// With a 0 along a new `axis`; later axes move down.
    pub fn insert(self, axis: usize) -> Coord {
        let mut coord = Coord::ZERO;
        for (from, &value) in self.0.iter().enumerate().take(MAX_RANK - 1) {
            coord.0[from + usize::from(from >= axis)] = value;
        }
        coord
    }
}

impl fmt::Debug for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Which thread holds which elements of a tile. See the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    shape: Shape,
    registers: Vec<Coord>,
    lanes: [Coord; LANE_BITS],
    warps: Vec<Coord>,
    sets: u32,
    /// The axis along which each set of warps has its own blocks.
    set_axis: Option<usize>,
}

/// How `stmatrix` writes a tile: the elements at which the rows of its matrices begin, one for each lane, and whether the registers of a
/// thread are across these rows.
#[derive(Debug)]
pub struct MatrixRows {
    pub layout: Layout,
    pub transposed: bool,
}

/// `odd * 2^k`
pub(super) fn odd(extent: u32) -> u32 {
    extent >> extent.trailing_zeros()
}

fn power(extent: u32) -> u32 {
    1 << extent.trailing_zeros()
}

impl Layout {
    /// The layout of these bases, for one set of warps. A basis that no block of the tile has room for becomes zero; a
    /// register drops it.
    pub fn of_bases(
        shape: &Shape,
        registers: &[Coord],
        lanes: [Coord; LANE_BITS],
        warps: &[Coord],
    ) -> Layout {
        let fits = |basis: Coord| (0..shape.rank()).all(|axis| basis.get(axis) < power(shape[axis]));
        let within = |basis: Coord| if fits(basis) { basis } else { Coord::ZERO };
        let mut registers: Vec<Coord> = registers.iter().map(|&basis| within(basis)).collect();
        registers.retain(|basis| *basis != Coord::ZERO);
        let warps = warps.iter().map(|&basis| within(basis)).collect();
        Layout { shape: shape.clone(), registers, lanes: lanes.map(within), warps, sets: 1, set_axis: None }
    }

    /// The same for this many sets of warps.
    pub fn with_sets(mut self, sets: u32) -> Layout {
        self.sets = sets;
        self.set_axis = self.shape.iter().position(|&extent| sets > 1 && odd(extent) == sets);
        self
    }

    /// Elements distributed along `order` (fastest axis first): `vector` contiguous ones to a thread, then the lanes,
    /// then the warps, and the rest to registers. `warp_order` says along which axes warps go first.
    pub fn blocked(
        shape: &Shape,
        order: &[usize],
        warp_order: &[usize],
        vector: u32,
        num_warps: u32,
    ) -> Layout {
        let own: Vec<(usize, u32)> = order.first().map(|&axis| (axis, vector)).into_iter().collect();
        Layout::distributed(shape, &own, order, warp_order, num_warps)
    }

    /// As [`Layout::blocked`]; a thread has `own` contiguous elements along these axes, one axis after the other.
    fn distributed(
        shape: &Shape,
        own: &[(usize, u32)],
        order: &[usize],
        warp_order: &[usize],
        num_warps: u32,
    ) -> Layout {
        let mut taken = vec![0u32; shape.rank()];
        let bits: Vec<u32> = shape.iter().map(|extent| extent.trailing_zeros()).collect();
        let mut take = |axis: usize| {
            (taken[axis] < bits[axis]).then(|| {
                taken[axis] += 1;
                Coord::along(axis, 1 << (taken[axis] - 1))
            })
        };
        let own =
            own.iter().flat_map(|&(axis, count)| std::iter::repeat_n(axis, count.trailing_zeros() as usize));
        let mut registers: Vec<Coord> = own.filter_map(&mut take).collect();
        let lanes = std::array::from_fn(|_| order.iter().find_map(|&axis| take(axis)).unwrap_or_default());
        let warps = (0..num_warps.trailing_zeros())
            .map(|_| warp_order.iter().find_map(|&axis| take(axis)).unwrap_or_default())
            .collect();
        while let Some(basis) = order.iter().find_map(|&axis| take(axis)) {
            registers.push(basis);
        }
        Layout { shape: shape.clone(), registers, lanes, warps, sets: 1, set_axis: None }
            .with_sets(odd(num_warps))
    }

    /// At most `vector` contiguous elements along `fast` to a thread; lanes go along that axis first, warps along the
    /// others.
    pub fn of_vectors(shape: &Shape, fast: usize, vector: u32, num_warps: u32) -> Layout {
        let rank = shape.rank();
        let share = (shape.elements() / (32 * u64::from(num_warps))).max(1).next_power_of_two();
        let vector = u64::from(vector).min(share).min(u64::from(power(shape[fast]))) as u32;
        let mut order: Vec<usize> = (0..rank).rev().filter(|&axis| axis != fast).collect();
        order.insert(0, fast);
        let mut warp_order: Vec<usize> = (0..rank).filter(|&axis| axis != fast).collect();
        warp_order.push(fast);
        Layout::blocked(shape, &order, &warp_order, vector, num_warps)
    }

    /// For scans along `axis`: at most `vector` contiguous elements along `fast` to a thread, and as many along `axis`
    /// as are left for it; lanes and warps along the other axes as long as there are elements.
    pub fn for_scan(shape: &Shape, fast: usize, axis: usize, vector: u32, num_warps: u32) -> Layout {
        let bits: u32 = shape.iter().map(|extent| extent.trailing_zeros()).sum();
        let left = bits.saturating_sub(LANE_BITS as u32 + num_warps.trailing_zeros());
        let vector = 1 << vector.trailing_zeros().min(left).min(shape[fast].trailing_zeros());
        let mut order: Vec<usize> =
            (0..shape.rank()).rev().filter(|other| ![fast, axis].contains(other)).collect();
        order.insert(0, fast);
        order.push(axis);
        Layout::distributed(shape, &[(fast, vector), (axis, (1 << left) / vector)], &order, &order, num_warps)
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn num_warps(&self) -> u32 {
        self.sets << self.warps.len()
    }

    pub fn sets(&self) -> u32 {
        self.sets
    }

    /// The axis along which each set of warps has its own blocks, and the distance between these.
    pub fn set_axis(&self) -> Option<(usize, u32)> {
        self.set_axis.map(|axis| (axis, power(self.shape[axis])))
    }

    pub fn lane_bases(&self) -> &[Coord] {
        &self.lanes
    }

    pub fn warp_bases(&self) -> &[Coord] {
        &self.warps
    }

    pub fn register_bases(&self) -> &[Coord] {
        &self.registers
    }

    /// How many power-of-two blocks a thread has elements of.
    pub fn blocks(&self) -> u32 {
        (0..self.shape.rank()).map(|axis| self.count(axis)).product()
    }

    /// Blocks of a thread along an axis.
    fn count(&self, axis: usize) -> u32 {
        if self.set_axis == Some(axis) { 1 } else { odd(self.shape[axis]) }
    }

    /// Registers that a thread holds.
    pub fn register_count(&self) -> usize {
        (self.blocks() as usize) << self.registers.len()
    }

    /// The contribution of a register to the coordinate; added to that of the thread, which has smaller bits of its own
    /// or is exclusive-ored within the block (see [`Layout::is_disjoint`]).
    pub fn register(&self, register: usize) -> Coord {
        self.block(register >> self.registers.len()).plus(self.within_block(register))
    }

    /// The part of a register's coordinate inside its block.
    pub fn within_block(&self, register: usize) -> Coord {
        span(&self.registers, register as u32 & ((1 << self.registers.len()) - 1))
    }

    /// Where a block starts.
    fn block(&self, block: usize) -> Coord {
        let mut rest = block as u32;
        let mut coord = Coord::ZERO;
        for axis in (0..self.shape.rank()).rev() {
            let count = self.count(axis);
            coord = coord.set(axis, rest % count * power(self.shape[axis]));
            rest /= count;
        }
        coord
    }

    /// A thread's contribution.
    pub fn thread(&self, lane: u32, warp: u32) -> Coord {
        let set = warp >> self.warps.len();
        let own = self.set_axis().map_or(Coord::ZERO, |(axis, distance)| Coord::along(axis, set * distance));
        span(&self.lanes, lane).xor(span(&self.warps, warp)).plus(own)
    }

    /// The coordinate of a register of a thread.
    pub fn coord(&self, register: usize, lane: u32, warp: u32) -> Coord {
        let within = self.within_block(register).xor(self.thread(lane, warp));
        self.block(register >> self.registers.len()).plus(within)
    }

    /// Whether no coordinate bit is touched by a register and by a thread bit: exclusive or is then addition.
    pub fn is_disjoint(&self) -> bool {
        let mask = |bases: &[Coord]| {
            bases
                .iter()
                .fold([0u32; MAX_RANK], |mask, basis| std::array::from_fn(|axis| mask[axis] | basis.0[axis]))
        };
        let (registers, lanes, warps) = (mask(&self.registers), mask(&self.lanes), mask(&self.warps));
        (0..MAX_RANK)
            .all(|axis| registers[axis] & (lanes[axis] | warps[axis]) == 0 && lanes[axis] & warps[axis] == 0)
    }

    /// How many consecutive registers, from register 0, hold contiguous elements along `axis`.
    pub fn thread_contiguity(&self, axis: usize) -> u32 {
        let bits =
            self.registers.iter().enumerate().take_while(|&(i, &basis)| basis == Coord::along(axis, 1 << i));
        1 << bits.count()
    }

    /// How many contiguous elements along `axis` a warp holds: what one of its accesses reaches in one piece.
    pub fn warp_contiguity(&self, axis: usize) -> u32 {
        let run = self.thread_contiguity(axis);
        let lanes = self.lanes.iter().enumerate();
        run << lanes.take_while(|&(i, &basis)| basis == Coord::along(axis, run << i)).count()
    }

    /// Lane bits that do not matter: lanes that hold copies.
    pub fn replicated_lanes(&self) -> u32 {
        replicated(&self.lanes)
    }

    /// Warp bits that do not matter: warps that hold copies.
    pub fn replicated_warps(&self) -> u32 {
        let of_sets =
            if self.set_axis.is_none() { (self.sets.next_power_of_two() - 1) << self.warps.len() } else { 0 };
        replicated(&self.warps) | of_sets
    }

    /// How `stmatrix` writes a tile of 16-bit elements whose rows of memory run along `fast`, if each eight registers of a warp are four
    /// matrices of 8 x 8 as it takes them.
    pub fn matrix_rows(&self, fast: usize) -> Option<MatrixRows> {
        let [pair, upper, right, ref others @ ..] = self.registers[..] else { return None };
        if self.shape.rank() != 2 || self.sets > 1 {
            return None;
        }
        let slow = 1 - fast;
        let is_fragment = |along: usize, across: usize| {
            let bases = [pair, self.lanes[0], self.lanes[1], self.lanes[2], self.lanes[3], self.lanes[4]];
            let wanted = [(along, 1), (along, 2), (along, 4), (across, 1), (across, 2), (across, 4)];
            bases.iter().zip(wanted).all(|(basis, (axis, value))| *basis == Coord::along(axis, value))
        };
        let transposed = is_fragment(slow, fast);
        if !transposed && !is_fragment(fast, slow) {
            return None;
        }
        let [one, two, four] = [1, 2, 4].map(|row| Coord::along(slow, row));
        let lanes = [one, two, four, upper, right];
        Some(MatrixRows { layout: Layout { registers: others.to_vec(), lanes, ..self.clone() }, transposed })
    }

    // ---- layouts of tiles made from this one

    fn map(&self, shape: Shape, change: impl Fn(Coord) -> Coord) -> Layout {
        let mut registers: Vec<Coord> = self.registers.iter().map(|&basis| change(basis)).collect();
        // A register bit that no longer matters would hold every element twice.
        registers.retain(|basis| *basis != Coord::ZERO);
        let set_axis = self.set_axis().and_then(|(axis, distance)| {
            let moved = change(Coord::along(axis, distance));
            (0..shape.rank()).find(|&axis| moved.get(axis) != 0)
        });
        Layout {
            shape,
            registers,
            lanes: self.lanes.map(&change),
            warps: self.warps.iter().map(|&basis| change(basis)).collect(),
            sets: self.sets,
            set_axis,
        }
    }

    /// The layout with axes reduced away: what a reduction leaves.
    pub fn without(&self, axes: &[usize]) -> Layout {
        axes.iter().rev().fold(self.clone(), |layout, &axis| {
            layout.map(layout.shape.without(axis), |basis| basis.remove(axis))
        })
    }

    /// The layout in which a bit of the lane and a bit of the register have traded places.
    pub fn with_exchanged(mut self, lane_bit: usize, register_bit: usize) -> Layout {
        std::mem::swap(&mut self.lanes[lane_bit], &mut self.registers[register_bit]);
        self
    }

    /// The layout in which lanes and warps that hold different elements along `axis` have traded these bits for bits of
    /// their registers, as long as there are such bits along other axes. Those of the largest stride in row-major order go first.
    pub fn with_axis_in_registers(&self, axis: usize) -> Layout {
        let mut layout = self.clone();
        let along = |basis: &Coord| basis.get(axis) != 0;
        let threads = layout.lanes.iter_mut().chain(&mut layout.warps);
        for bit in threads.filter(|basis| along(basis)) {
            let others = layout.registers.iter_mut().filter(|basis| !along(basis));
            let Some(farthest) = others.max() else { break };
            std::mem::swap(bit, farthest);
        }
        layout
    }

    /// The layout with an axis of extent 1 inserted.
    pub fn expand(&self, axis: usize) -> Layout {
        self.map(self.shape.with(axis, 1), |basis| basis.insert(axis))
    }

    /// The layout with an axis of extent 2 inserted, both of whose elements one thread holds: in adjacent registers
    /// where the axis is the last, or the registers run along the one before it.
    pub fn join(&self, axis: usize) -> Layout {
        let mut layout = self.map(self.shape.with(axis, 2), |basis| basis.insert(axis));
        let follows_run = axis > 0 && self.registers.first() == Some(&Coord::along(axis - 1, 1));
        let at = if axis == self.shape.rank() || follows_run { 0 } else { layout.registers.len() };
        layout.registers.insert(at, Coord::along(axis, 1));
        layout
    }

    /// The layout of a tile that broadcasts to this one: zero along the axes where it has extent 1.
    pub fn before_broadcast(&self, from: &Shape) -> Layout {
        self.map(from.clone(), |basis| {
            (0..from.rank())
                .fold(basis, |basis, axis| if from[axis] == 1 { basis.set(axis, 0) } else { basis })
        })
    }

    /// The layout with axes reordered: axis `i` of the result is axis `order[i]` of this one. Blocks are counted along
    /// the new axes, so the registers of a tile with odd counts move.
    pub fn permute(&self, order: &[usize]) -> Layout {
        let shape: Vec<u32> = order.iter().map(|&axis| self.shape[axis]).collect();
        let reordered = |basis: Coord| {
            order.iter().enumerate().fold(Coord::ZERO, |coord, (to, &from)| coord.set(to, basis.get(from)))
        };
        self.map(Shape::new(shape), reordered)
    }

    /// The layout under another shape in row-major order; `None` when an odd count is in the way.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        let long = |shape: &Shape| shape.iter().copied().filter(|&extent| extent != 1).collect::<Vec<u32>>();
        let odd_inside = |shape: &Shape| long(shape).iter().skip(1).any(|&extent| odd(extent) != 1);
        let outer = |shape: &Shape| long(shape).first().map_or(1, |&extent| odd(extent));
        let same = long(&self.shape) == long(shape);
        if !same && (odd_inside(&self.shape) || odd_inside(shape) || outer(&self.shape) != outer(shape)) {
            return None;
        }
        Some(self.map(shape.clone(), |basis| basis.reshape(&self.shape, shape)))
    }

    /// The register that holds each coordinate which thread 0 holds.
    pub fn registers_by_coord(&self) -> std::collections::HashMap<Coord, usize> {
        (0..self.register_count()).rev().map(|register| (self.register(register), register)).collect()
    }
}

fn replicated(bases: &[Coord]) -> u32 {
    bases.iter().enumerate().filter(|(_, basis)| **basis == Coord::ZERO).map(|(bit, _)| 1 << bit).sum()
}

/// The exclusive or of the bases whose bits are set.
fn span(bases: &[Coord], bits: u32) -> Coord {
    bases
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .fold(Coord::ZERO, |sum, (_, &basis)| sum.xor(basis))
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.shape.rank();
        let list = |bases: &[Coord]| {
            let parts: Vec<String> = bases
                .iter()
                .map(|basis| {
                    let axes: Vec<usize> = (0..rank).filter(|&axis| basis.get(axis) != 0).collect();
                    match axes.as_slice() {
                        [] => "-".to_string(),
                        [axis] if rank == 1 => basis.get(*axis).to_string(),
                        axes => axes
                            .iter()
                            .map(|&axis| format!("{}@{axis}", basis.get(axis)))
                            .collect::<Vec<_>>()
                            .join("^"),
                    }
                })
                .collect();
            parts.join(" ")
        };
        write!(f, "reg({}) lane({}) warp({})", list(&self.registers), list(&self.lanes), list(&self.warps))?;
        if self.sets > 1 {
            let own =
                self.set_axis().map_or("-".to_string(), |(axis, distance)| format!("{distance}@{axis}"));
            write!(f, " sets({}: {own})", self.sets)?;
        }
        if self.blocks() > 1 { write!(f, " x{}", self.blocks()) } else { Ok(()) }
    }
}
