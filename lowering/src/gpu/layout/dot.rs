//! Layouts of dot operands and accumulators.
//!
//! An mma instruction of a warp takes fragments: a small tile of A, of B and of the accumulator, of which every lane
//! holds the elements that [`Fragment`] says. The result of a dot is laid out in such fragments, distributed over warps
//! and then registers. Each operand follows the result's layout; warps that share its rows or columns hold the same
//! elements. An extent below the instruction's is repeated: the lanes and registers beyond it hold copies of those
//! within it, and so do their accumulators. Where there is no instruction, each thread multiplies blocks of its own by
//! FMA. A warpgroup takes the fragments of one warp, sixteen rows for each of its four warps.
//!
//! Everything here follows from the element type, the shapes and the number of warps. Emission chooses how an operand
//! gets to its fragments.

use tile_ir::ir::{Block, Func, Op, Shape, Type, Value};
use tile_ir::ops::{Dot, DotOperand, DotUnit, InputPrecision, Kind, WarpGroupDot};
use tile_ir::support::dtype::DType;

use super::access::Alignment;
use super::distributed::Distributed;
use super::linear::{Coord, LANE_BITS, Layout, odd};
use crate::gpu::layout::warpgroup::{WARPGROUP_WARPS, WGMMA_M, WarpGroupTiling};

/// What a bit of a register or lane index adds to the coordinate along one of a matrix's two axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CoordBit {
    Row(u32),
    Column(u32),
}

use CoordBit::{Column, Row};

impl CoordBit {
    /// As a basis of a tile of this rank, whose last two axes are the matrix's.
    pub fn basis(self, rank: usize) -> Coord {
        match self {
            Row(value) => Coord::along(rank - 2, value),
            Column(value) => Coord::along(rank - 1, value),
        }
    }
}

/// The tile of a matrix that an instruction takes, over the lanes of a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    pub registers: &'static [CoordBit],
    pub lanes: [CoordBit; LANE_BITS],
}

/// `m x k` times `k x n`, by all lanes of a warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MmaShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: Fragment,
    pub b: Fragment,
    pub acc: Fragment,
}

/// How operands of a type are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DotMethod {
    /// By tensor cores, one warp at a time.
    Mma(&'static MmaShape),
    /// By the arithmetic of single threads.
    Fma,
}

const EIGHT_ROWS_OF_PAIRS: [CoordBit; LANE_BITS] = [Column(2), Column(4), Row(1), Row(2), Row(4)];

/// `mma.m16n8k16` of 16-bit floats.
pub static M16N8K16: MmaShape = MmaShape {
    m: 16,
    n: 8,
    k: 16,
    a: Fragment { registers: &[Column(1), Row(8), Column(8)], lanes: EIGHT_ROWS_OF_PAIRS },
    b: Fragment { registers: &[Row(1), Row(8)], lanes: [Row(2), Row(4), Column(1), Column(2), Column(4)] },
    acc: Fragment { registers: &[Column(1), Row(8)], lanes: EIGHT_ROWS_OF_PAIRS },
};

/// `mma.m16n8k32` of bytes, and two [`M16N8K16`] of upcast 8-bit floats: both operands have the same order along K.
static M16N8K32: MmaShape = MmaShape {
    m: 16,
    n: 8,
    k: 32,
    a: Fragment {
        registers: &[Column(1), Column(2), Row(8), Column(16)],
        lanes: [Column(4), Column(8), Row(1), Row(2), Row(4)],
    },
    b: Fragment {
        registers: &[Row(1), Row(2), Row(16)],
        lanes: [Row(4), Row(8), Column(1), Column(2), Column(4)],
    },
    acc: Fragment { registers: &[Column(1), Row(8)], lanes: EIGHT_ROWS_OF_PAIRS },
};

/// `mma.m16n8k8` of TF32.
static M16N8K8: MmaShape = MmaShape {
    m: 16,
    n: 8,
    k: 8,
    a: Fragment { registers: &[Row(8), Column(4)], lanes: [Column(1), Column(2), Row(1), Row(2), Row(4)] },
    b: Fragment { registers: &[Row(4)], lanes: [Row(1), Row(2), Column(1), Column(2), Column(4)] },
    acc: Fragment { registers: &[Column(1), Row(8)], lanes: EIGHT_ROWS_OF_PAIRS },
};

/// `mma.m8n8k4` of `f64`.
static M8N8K4: MmaShape = MmaShape {
    m: 8,
    n: 8,
    k: 4,
    a: Fragment { registers: &[], lanes: [Column(1), Column(2), Row(1), Row(2), Row(4)] },
    b: Fragment { registers: &[], lanes: [Row(1), Row(2), Column(1), Column(2), Column(4)] },
    acc: Fragment { registers: &[Column(1)], lanes: EIGHT_ROWS_OF_PAIRS },
};

/// How operands of an element type are multiplied.
pub fn method(elem: DType, input: InputPrecision) -> DotMethod {
    match (elem.bytes(), input) {
        (1, _) => DotMethod::Mma(&M16N8K32),
        (2, _) => DotMethod::Mma(&M16N8K16),
        (8, _) => DotMethod::Mma(&M8N8K4),
        (_, InputPrecision::Tf32 | InputPrecision::Tf32x3) => DotMethod::Mma(&M16N8K8),
        (_, InputPrecision::Ieee) => DotMethod::Fma,
    }
}

/// The K axis of an operand.
pub fn inner_axis(rank: usize, side: DotOperand) -> usize {
    match side {
        DotOperand::A => rank - 1,
        DotOperand::B => rank - 2,
    }
}

/// The axis that the operand shares with the result.
pub fn outer_axis(rank: usize, side: DotOperand) -> usize {
    match side {
        DotOperand::A => rank - 2,
        DotOperand::B => rank - 1,
    }
}

/// Whether the instruction reads rows of 16 bytes along `fast`.
pub fn reads_matrices(side: DotOperand, ty: &Type, fast: usize) -> bool {
    let transposed = fast != inner_axis(ty.shape.rank(), side);
    match ty.dtype.bytes() {
        1 | 4 => !transposed,
        2 => !transposed || ty.shape[fast].is_multiple_of(8),
        _ => false,
    }
}

impl MmaShape {
    pub fn operand(&self, which: DotOperand) -> &Fragment {
        match which {
            DotOperand::A => &self.a,
            DotOperand::B => &self.b,
        }
    }
}

impl Fragment {
    /// The bases that a tile of this shape has room for, in the order of the registers, with 0 for others.
    pub fn bases(&self, shape: &Shape) -> Vec<Coord> {
        let rank = shape.rank();
        let fits = |basis: Coord| (0..rank).all(|axis| basis.get(axis) < 1 << shape[axis].trailing_zeros());
        let within = |basis: Coord| if fits(basis) { basis } else { Coord::ZERO };
        self.registers.iter().map(|bit| within(bit.basis(rank))).collect()
    }

    /// The offset of each element that a lane hands to the instruction, from the fragment's first on. Those that the
    /// tile has no room for wrap around within it.
    pub fn offsets(&self, shape: &Shape) -> Vec<Coord> {
        let bases = self.bases(shape);
        let chosen = |index: usize| bases.iter().enumerate().filter(move |(bit, _)| index >> bit & 1 == 1);
        (0..1 << bases.len())
            .map(|index| chosen(index).fold(Coord::ZERO, |sum, (_, &basis)| sum.xor(basis)))
            .collect()
    }

    fn lane_bases(&self, rank: usize) -> [Coord; LANE_BITS] {
        self.lanes.map(|bit| bit.basis(rank))
    }

    fn register_bases(&self, rank: usize) -> Vec<Coord> {
        self.registers.iter().map(|bit| bit.basis(rank)).collect()
    }
}

// ---- results

/// How warps tile the result of a dot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WarpTiling {
    /// Each warp has about as many rows as columns, and reads the least of the operands.
    Square,
    /// Rows first: a row stays in one warp, to be reduced or to be operand A of the next dot.
    Rows,
}

/// The bits of a tile's axes that are still to be distributed.
struct RemainingBits {
    next: Vec<u32>,
    end: Vec<u32>,
}

impl RemainingBits {
    /// What is left beyond blocks of `taken` elements along each axis.
    fn beyond(shape: &Shape, taken: &[u32]) -> RemainingBits {
        let end = shape.iter().map(|extent| 1 << extent.trailing_zeros()).collect();
        RemainingBits { next: taken.to_vec(), end }
    }

    fn take_low(&mut self, axis: usize) -> Option<Coord> {
        let next = self.next[axis];
        (next < self.end[axis]).then(|| {
            self.next[axis] *= 2;
            Coord::along(axis, next)
        })
    }

    /// The bases of `count` bits of the warp index, which rise along each axis.
    fn warps(&mut self, count: u32, tiling: WarpTiling) -> Vec<Coord> {
        let rank = self.next.len();
        let (rows, columns) = (rank - 2, rank - 1);
        let mut bases: Vec<Coord> = (0..count)
            .map(|_| {
                let by_rows = tiling == WarpTiling::Rows || self.end[rows] >= self.end[columns];
                let matrix = if by_rows { [rows, columns] } else { [columns, rows] };
                matrix.into_iter().chain(0..rows).find_map(|axis| self.take_high(axis)).unwrap_or_default()
            })
            .collect();
        bases.reverse();
        bases
    }

    /// The highest bit left along an axis.
    fn take_high(&mut self, axis: usize) -> Option<Coord> {
        (self.end[axis] > self.next[axis]).then(|| {
            self.end[axis] /= 2;
            Coord::along(axis, self.end[axis])
        })
    }

    /// All bits that are left, columns first.
    fn registers(&mut self) -> Vec<Coord> {
        let axes = (0..self.next.len()).rev();
        axes.flat_map(|axis| std::iter::from_fn(|| self.take_low(axis)).collect::<Vec<_>>()).collect()
    }
}

/// The accumulator layout of a dot by `instruction`.
pub fn mma_acc_layout(instruction: &MmaShape, shape: &Shape, num_warps: u32, tiling: WarpTiling) -> Layout {
    let rank = shape.rank();
    let mut taken = vec![1; rank];
    taken[rank - 2] = instruction.m;
    taken[rank - 1] = instruction.n;
    let mut rest = RemainingBits::beyond(shape, &taken);
    let warps = rest.warps(num_warps.trailing_zeros(), tiling);
    let mut registers = instruction.acc.register_bases(rank);
    registers.extend(rest.registers());
    Layout::of_bases(shape, &registers, instruction.acc.lane_bases(rank), &warps).with_sets(odd(num_warps))
}

/// A block of four rows and four columns per thread, lanes over 16 rows and 32 columns.
const FMA_BLOCK: Fragment = Fragment {
    registers: &[Column(1), Column(2), Row(1), Row(2)],
    lanes: [Column(4), Column(8), Column(16), Row(4), Row(8)],
};

/// The accumulator layout of a dot by FMA.
pub fn fma_acc_layout(shape: &Shape, num_warps: u32, tiling: WarpTiling) -> Layout {
    let rank = shape.rank();
    let mut taken = vec![1; rank];
    taken[rank - 2] = 16;
    taken[rank - 1] = 32;
    let mut rest = RemainingBits::beyond(shape, &taken);
    let warps = rest.warps(num_warps.trailing_zeros(), tiling);
    let mut registers = FMA_BLOCK.register_bases(rank);
    registers.extend(rest.registers());
    Layout::of_bases(shape, &registers, FMA_BLOCK.lane_bases(rank), &warps).with_sets(odd(num_warps))
}

/// The accumulator layout of wgmma. `M16N8K16` takes the same fragments.
pub fn wgmma_acc_layout(shape: &Shape, num_warps: u32) -> Layout {
    let [rows, columns] = [0, 1];
    let instruction = &M16N8K16;
    let warpgroups = WarpGroupTiling::new(shape[rows], num_warps);
    let within = (0..WARPGROUP_WARPS.trailing_zeros()).map(|bit| Coord::along(rows, instruction.m << bit));
    let mut rest = RemainingBits::beyond(shape, &[instruction.m * WARPGROUP_WARPS, instruction.n]);
    let by_rows: Vec<Coord> =
        (0..warpgroups.along_rows.trailing_zeros()).filter_map(|_| rest.take_low(rows)).collect();
    let mut by_columns: Vec<Coord> =
        (0..warpgroups.along_columns.trailing_zeros()).filter_map(|_| rest.take_high(columns)).collect();
    by_columns.reverse();
    let warps: Vec<Coord> = within.chain(by_rows).chain(by_columns).collect();
    let mut registers = instruction.acc.register_bases(shape.rank());
    registers.extend(rest.registers());
    Layout::of_bases(shape, &registers, instruction.acc.lane_bases(shape.rank()), &warps)
        .with_sets(odd(num_warps))
}

/// The same, or that of a wgmma whose transpose has this shape.
pub fn wgmma_result_layout(shape: &Shape, transposed: bool, num_warps: u32) -> Layout {
    if !transposed {
        return wgmma_acc_layout(shape, num_warps);
    }
    let dot = Shape::new([shape[1], shape[0]]);
    wgmma_acc_layout(&dot, num_warps).permute(&[1, 0])
}

/// The layout of operand A in registers for a wgmma with this accumulator layout (the RS form).
pub fn wgmma_a_layout(shape: &Shape, acc: &Layout) -> Layout {
    mma_operand_layout(&M16N8K16, DotOperand::A, shape, acc)
}

/// What each warp of a warpgroup holds of sixteen rows, eight columns, sixteen along K: of the accumulator, and of
/// operand A in registers.
pub fn wgmma_fragments() -> [&'static Fragment; 2] {
    [&M16N8K16.acc, &M16N8K16.a]
}

/// An operand, as the instruction takes it for a result with the layout `acc`.
pub fn mma_operand_layout(instruction: &MmaShape, which: DotOperand, shape: &Shape, acc: &Layout) -> Layout {
    let rank = shape.rank();
    // The axis of the result that the operand lacks, and the operand's K axis.
    let (other, k_axis) = match which {
        DotOperand::A => (rank - 1, rank - 1),
        DotOperand::B => (rank - 2, rank - 2),
    };
    let shared = |basis: &Coord| basis.get(other) == 0;
    let warps: Vec<Coord> =
        acc.warp_bases().iter().map(|basis| if shared(basis) { *basis } else { Coord::ZERO }).collect();
    let fragment = instruction.operand(which);
    let mut registers = fragment.register_bases(rank);
    let own = instruction.acc.bases(acc.shape());
    registers.extend(acc.register_bases().iter().filter(|basis| shared(basis) && !own.contains(basis)));
    let steps = (0..32).map(|bit| 1u32 << bit).filter(|&step| step >= instruction.k);
    registers.extend(steps.map(|step| Coord::along(k_axis, step)));
    Layout::of_bases(shape, &registers, fragment.lane_bases(rank), &warps).with_sets(acc.sets())
}

/// Whether a dot by `instruction` can produce its result in `layout`.
fn can_produce(instruction: &MmaShape, layout: &Layout) -> bool {
    let rank = layout.shape().rank();
    let own: Vec<Coord> = instruction.acc.bases(layout.shape());
    let own: Vec<Coord> = own.into_iter().filter(|basis| *basis != Coord::ZERO).collect();
    let lanes = Layout::of_bases(layout.shape(), &[], instruction.acc.lane_bases(rank), &[]);
    layout.lane_bases() == lanes.lane_bases() && layout.register_bases().starts_with(&own)
}

// ---- the products of a function

/// A dot of either kind.
enum AnyDot<'f> {
    Dot(&'f Dot),
    WarpGroupDot(&'f WarpGroupDot),
}

impl AnyDot<'_> {
    fn of(op: &Op) -> Option<AnyDot<'_>> {
        if let Kind::Dot(dot) = &op.kind {
            return Some(AnyDot::Dot(dot));
        }
        let Kind::WarpGroupDot(dot) = &op.kind else { return None };
        Some(AnyDot::WarpGroupDot(dot))
    }

    fn inner(&self, func: &Func) -> u32 {
        match self {
            AnyDot::Dot(dot) => dot.inner(func),
            AnyDot::WarpGroupDot(dot) => dot.inner(),
        }
    }

    /// The layout in which so many warps produce the result.
    fn result_layout(&self, func: &Func, result: Value, num_warps: u32, tiling: WarpTiling) -> Layout {
        let shape = &func.ty(result).shape;
        let dot = match self {
            AnyDot::Dot(dot) => dot,
            AnyDot::WarpGroupDot(dot) => return wgmma_result_layout(shape, dot.transposed, num_warps),
        };
        if dot.unit.is_warpgroup() {
            return wgmma_acc_layout(shape, num_warps);
        }
        match dot_method(func, dot) {
            DotMethod::Mma(instruction) => mma_acc_layout(instruction, shape, num_warps, tiling),
            DotMethod::Fma => fma_acc_layout(shape, num_warps, tiling),
        }
    }
}

/// What `of` says of each dot of a function, with its result.
fn dots<T>(func: &Func, mut of: impl FnMut(AnyDot, Value) -> T) -> Vec<T> {
    let mut found = vec![];
    func.body.walk(&mut |op| found.extend(AnyDot::of(op).map(|dot| of(dot, op.results[0]))));
    found
}

/// The layouts of the results of all dots, those with the most multiplications first.
pub(super) fn layouts(func: &Func, num_warps: u32) -> Vec<(Value, Layout)> {
    let tiling = warp_tiling(func);
    let mut dots = dots(func, |dot, result| {
        let work = func.ty(result).shape.elements() * u64::from(dot.inner(func));
        (std::cmp::Reverse(work), result, dot.result_layout(func, result, num_warps, tiling))
    });
    dots.sort_by_key(|(work, result, _)| (*work, *result));
    dots.into_iter().map(|(_, result, layout)| (result, layout)).collect()
}

/// Registers of a thread for the accumulator of a dot by FMA and its share of both operands on their way to shared
/// memory: the most of a function, if it has such dots.
pub fn fma_registers(distributed: &Distributed) -> Option<u32> {
    let func = &distributed.func;
    let words = |value: Value| {
        let bytes = distributed.layouts[&value].register_count() as u32 * func.ty(value).dtype.bytes();
        bytes.div_ceil(4)
    };
    let of = |dot: AnyDot, result| match dot {
        AnyDot::Dot(dot) if dot_method(func, dot) == DotMethod::Fma => {
            Some(words(result) + words(dot.a) + words(dot.b))
        }
        _ => None,
    };
    dots(func, of).into_iter().flatten().max()
}

fn dot_method(func: &Func, dot: &Dot) -> DotMethod {
    method(func.ty(dot.a).dtype, dot.input)
}

/// The layout in which a dot produces its result, if its users want `layout`: that one where the instruction can.
pub(super) fn produced_layout(func: &Func, op: &Op, layout: &Layout) -> Layout {
    let Some(dot) = AnyDot::of(op) else { return layout.clone() };
    let own = || dot.result_layout(func, op.results[0], layout.num_warps(), warp_tiling(func));
    let dot = match &dot {
        AnyDot::Dot(dot) if !dot.unit.is_warpgroup() => dot,
        AnyDot::Dot(_) | AnyDot::WarpGroupDot(_) => return own(),
    };
    match dot_method(func, dot) {
        DotMethod::Mma(instruction) if !can_produce(instruction, layout) => own(),
        DotMethod::Mma(_) | DotMethod::Fma => layout.clone(),
    }
}

/// The layouts of the accumulator and of operand A in registers, given the layout that users of the result want. Other
/// operands may have any layout.
pub fn required_layouts(func: &Func, op: &Op, layout: &Layout) -> Vec<(Value, Layout)> {
    let own = produced_layout(func, op, layout);
    match AnyDot::of(op) {
        Some(AnyDot::Dot(dot)) => {
            let a =
                (dot.unit == DotUnit::WgmmaRs).then(|| (dot.a, wgmma_a_layout(&func.ty(dot.a).shape, &own)));
            a.into_iter().chain(dot.acc.map(|acc| (acc, own.clone()))).collect()
        }
        Some(AnyDot::WarpGroupDot(dot)) => {
            let a = dot.tile().map(|tile| (tile, wgmma_a_layout(&func.ty(tile).shape, &own)));
            a.into_iter().chain(dot.acc.map(|acc| (acc, own.clone()))).collect()
        }
        None => vec![],
    }
}

/// Whether rows of a result should stay in one warp: something made of it is reduced or is an operand of another dot.
fn warp_tiling(func: &Func) -> WarpTiling {
    let mut made = vec![false; func.value_count()];
    // Loop-carried values made of a dot are known once the loop's body was visited.
    let (first, second) =
        (feeds_dot_or_reduce(func, &func.body, &mut made), feeds_dot_or_reduce(func, &func.body, &mut made));
    if first || second { WarpTiling::Rows } else { WarpTiling::Square }
}

/// Marks what is made of dots in a block; whether a reduction or dot takes any of it.
fn feeds_dot_or_reduce(func: &Func, block: &Block, made: &mut [bool]) -> bool {
    use tile_ir::ir::layout_relation::LayoutRelation;
    let mut found = false;
    for op in &block.ops {
        let operation = op.kind.operation();
        let relation = operation.layout_relation(func, &op.results);
        let (takes, makes) = match relation {
            LayoutRelation::Dot { acc } => {
                (operation.operands().into_iter().filter(|value| Some(*value) != acc).collect(), true)
            }
            LayoutRelation::Reduce { .. } | LayoutRelation::Index { .. } => (operation.operands(), false),
            LayoutRelation::Source
            | LayoutRelation::Lanewise { .. }
            | LayoutRelation::View(_)
            | LayoutRelation::Tied(_)
            | LayoutRelation::WarpGroup { .. }
            | LayoutRelation::Free => (vec![], false),
        };
        found |= takes.iter().any(|value: &Value| made[value.index()]);
        for block in operation.blocks() {
            found |= feeds_dot_or_reduce(func, block, made);
        }
        if let LayoutRelation::Tied(groups) = relation {
            for group in groups.iter().filter(|group| !group.is_empty()) {
                if group.iter().any(|value| made[value.index()]) {
                    group.iter().for_each(|value| made[value.index()] = true);
                }
            }
        } else if makes || operation.operands().iter().any(|value| made[value.index()]) {
            op.results.iter().for_each(|value| made[value.index()] = true);
        }
    }
    found
}

/// Bytes of a result that one thread should hold: a warp that has more of it reads less of the operands for each mma.
const BYTES_PER_THREAD: u64 = 512;
/// The same where users compute on the result, or where operands are loaded element by element: both need registers.
const FEWER_BYTES_PER_THREAD: u64 = 128;
/// The same for dots by FMA.
const FMA_BYTES_PER_THREAD: u64 = 256;
/// More warps have too few registers each.
const MAX_WARPS: u64 = 8;

/// Warpgroups where the rows of the largest dot are a multiple of theirs and no power of two.
const ODD_WARPGROUPS: u32 = 3;

/// The warps of wgmma for the largest dot of a function, if its rows make them no power of two.
pub fn odd_wgmma_warps(func: &Func) -> Option<u32> {
    let of = |_: AnyDot, result: Value| {
        let shape = &func.ty(result).shape;
        (shape.elements(), shape.rank() == 2 && shape[0] == ODD_WARPGROUPS * WGMMA_M)
    };
    let (_, fits) = dots(func, of).into_iter().max()?;
    fits.then_some(ODD_WARPGROUPS * WARPGROUP_WARPS)
}

/// Whether an operation is a dot that warpgroups do.
pub fn is_warpgroup_dot(op: &Op) -> bool {
    match AnyDot::of(op) {
        Some(AnyDot::Dot(dot)) => dot.unit.is_warpgroup(),
        Some(AnyDot::WarpGroupDot(_)) => true,
        None => false,
    }
}

/// The most registers of a thread that a loop should need for results of dots and operands together: it computes with the others
/// (docs/decisions/0187).
pub const MAX_LOOP_REGISTERS: u32 = 192;

/// Returns the warps of a kernel that asks for `num_warps`: doubled up to [`MAX_WARPS`] as long as the accumulators that a loop carries do not fit
/// into the registers of so few threads, and each warp still has sixteen rows.
pub fn warps_that_hold_accumulators(func: &Func, num_warps: u32) -> u32 {
    let mut wanted = num_warps;
    func.body.walk(&mut |op| {
        for block in op.kind.operation().blocks() {
            let mut results = vec![];
            block.walk(&mut |op| results.extend(AnyDot::of(op).map(|_| func.ty(op.results[0]))));
            let accumulators =
                || block.args.iter().map(|&arg| func.ty(arg)).filter(|ty| results.contains(ty));
            let bytes: u64 = accumulators().map(|ty| ty.shape.elements() * u64::from(ty.dtype.bytes())).sum();
            let rows = accumulators().map(|ty| ty.shape[ty.shape.rank() - 2]).min().unwrap_or(0);
            while bytes > u64::from(wanted) * 32 * 4 * u64::from(MAX_LOOP_REGISTERS)
                && rows >= 2 * wanted * M16N8K16.m
                && 2 * u64::from(wanted) <= MAX_WARPS
            {
                wanted *= 2;
            }
        }
    });
    wanted
}

/// The warps that the largest dot of a function wants; `None` where there is no dot.
pub fn preferred_warps(func: &Func, alignment: Alignment) -> Option<u32> {
    let tiling = warp_tiling(func);
    let wanted = dots(func, |dot, result| {
        let ty = func.ty(result);
        let by_fma = matches!(dot, AnyDot::Dot(dot) if dot_method(func, dot) == DotMethod::Fma);
        let per_thread = match (tiling, alignment) {
            _ if by_fma => FMA_BYTES_PER_THREAD,
            (WarpTiling::Rows, _) | (_, Alignment::Element) => FEWER_BYTES_PER_THREAD,
            (WarpTiling::Square, Alignment::Checked) => BYTES_PER_THREAD,
        };
        let bytes = ty.shape.elements() * u64::from(ty.dtype.bytes());
        // A multiprocessor has four warp schedulers.
        (bytes / (32 * per_thread)).max((bytes / (32 * FEWER_BYTES_PER_THREAD)).min(4))
    });
    Some(wanted.into_iter().max()?.clamp(1, MAX_WARPS).next_power_of_two() as u32)
}

/// The warps that it wants with wgmma: one for sixteen rows.
pub fn wgmma_warps(func: &Func) -> Option<u32> {
    let rows = dots(func, |_, result| func.ty(result).shape.clone());
    let rows = rows.iter().map(|shape| shape[shape.rank() - 2]).max()?;
    Some((rows / M16N8K16.m).clamp(WARPGROUP_WARPS, MAX_WARPS as u32).next_power_of_two())
}
