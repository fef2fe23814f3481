//! Warpgroup dots (`wgmma`), which read operands from shared memory as TMA wrote them, with its 128-byte swizzle.

use tile_ir::ir::{Shape, Value};
use tile_ir::ops::DotOperand;
use tile_ir::ops::schedule::AfterIssue;
use tile_ir::support::dtype::DType;

use crate::gpu::emit::dot::fragment::per_word;
use crate::gpu::emit::dot::smem_descriptor::{SmemDescriptor, field};
use crate::gpu::emit::dot::wgmma_statement::{WgmmaShape, WgmmaStatement, letter};
use crate::gpu::emit::memory::pack;
use crate::gpu::emit::threads::bits;
use crate::gpu::emit::{Gpu, Space, statement};
use crate::gpu::layout::Coord;
use crate::gpu::layout::dot::{outer_axis, wgmma_fragments};
use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WGMMA_K_BYTES, WGMMA_M, WarpGroupTiling};
use crate::mlir::builder::{Builder, Val};
use crate::mlir::types::{Elem, Ty};

/// The row and the K step of each word of a fragment of operand A in TF32, from the lane's own on.
const TF32_OPERAND_A: [[u32; 2]; 4] = [[0, 0], [8, 0], [0, 4], [8, 4]];

/// The words of each step of an operand A, for each of the warpgroup's sets of rows.
pub(in crate::gpu::emit) type OperandWords = Vec<Vec<Vec<Val>>>;

/// A tile in shared memory that a dot reads.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct StagedTile {
    /// Where it starts in shared memory, an `i32`.
    pub address: Val,
    /// Rows, and elements of a row.
    pub lines: [u32; 2],
    pub dtype: DType,
    /// Whether the operand is the transpose of the tile.
    pub transposed: bool,
}

impl StagedTile {
    /// The extents of the operand.
    fn extents(&self) -> [u32; 2] {
        let [rows, columns] = self.lines;
        if self.transposed { [columns, rows] } else { [rows, columns] }
    }
}

/// Where operand A is before the dot.
pub(in crate::gpu::emit) enum WgmmaSource {
    /// A tile in registers.
    Regs(Value),
    /// Words in registers.
    Words(OperandWords),
    Smem(StagedTile),
}

/// Operand A where the instructions read it from.
enum WgmmaA {
    Smem(SmemDescriptor),
    Registers(OperandWords),
    Gathered(StridedFragment),
}

/// An MN-major tile of `f32`: where a thread finds the words of a fragment, from the first row and step on.
struct StridedFragment {
    addresses: Vec<Val>,
    /// Bytes of a chunk that is one swizzled row wide.
    piece: u32,
}

/// An issued wgmma.
pub(in crate::gpu::emit) struct IssuedWgmma {
    accs: Vec<Val>,
    /// The registers of each set of rows, as the instruction lists them.
    lists: Vec<Vec<usize>>,
    /// The registers that it reads.
    words: Vec<Val>,
}

/// A dot over some K steps, whose operands have arrived.
pub(in crate::gpu::emit) struct WgmmaIssue {
    pub a: WgmmaSource,
    pub b: StagedTile,
    pub acc: Option<Value>,
    /// It adds to `acc` only if this holds.
    pub again: Option<Val>,
    pub k: [u32; 2],
    /// The result, which may be the transpose of `a · b`.
    pub result: Value,
    pub transposed: bool,
    pub then: AfterIssue,
}

impl WgmmaIssue {
    /// The rows of `a · b`.
    fn rows(&self, gpu: &Gpu) -> u32 {
        self.dot_shape(gpu.layout(self.result).shape())[0]
    }

    /// How warpgroups tile `a · b`.
    pub fn tiling(&self, gpu: &Gpu) -> WarpGroupTiling {
        WarpGroupTiling::new(self.rows(gpu), gpu.plan.schedule.distributed.num_warps)
    }

    /// K of an instruction.
    fn at_once(&self) -> u32 {
        WGMMA_K_BYTES / self.b.dtype.bytes()
    }

    /// Issues the dot in a warpgroup at this position.
    pub fn issue(&self, gpu: &mut Gpu, b: &mut Builder, [row_group, column_group]: [Val; 2]) -> IssuedWgmma {
        let groups = self.tiling(gpu);
        let step_by = (WGMMA_M * groups.along_rows) as usize;
        let sets: Vec<u32> = (0..self.rows(gpu)).step_by(step_by).collect();
        let left = match self.operand_a(gpu, b, &sets, row_group) {
            WgmmaA::Registers(words) if gpu.plan.held_operands.contains(&self.result) => {
                WgmmaA::Registers(made_again(b, &words))
            }
            left => left,
        };
        let columns = self.b.extents()[1] / groups.along_columns;
        let share = WarpgroupShare { group: column_group, extent: columns };
        let right = gpu.matrix(b, &self.b, DotOperand::B, share);
        let lists = self.accumulator_lists(gpu, &sets, columns);
        let instruction = WgmmaShape { columns, inner: self.at_once(), dtype: self.b.dtype };
        let mut accs: Option<Vec<Val>> = self.acc.map(|acc| {
            let registers = gpu.registers(acc);
            lists.iter().flatten().map(|&register| registers[register]).collect()
        });
        let mut words = vec![];
        let all: Vec<u32> = (self.k[0]..self.k[1]).step_by(self.at_once() as usize).collect();
        // Operands that threads load for a step come while the wgmma of the step before runs.
        let parts: Vec<&[u32]> =
            if matches!(left, WgmmaA::Gathered(_)) { all.chunks(1).collect() } else { vec![&all] };
        for (number, part) in parts.iter().enumerate() {
            let fragments = left.fragments(b, &sets, part, self.at_once());
            words.extend(fragments.iter().flatten().flatten().flatten());
            let mut asm = WgmmaStatement::new(&lists, accs.as_deref());
            asm.add_if(b, self.again.filter(|_| number == 0));
            for (place, &step) in part.iter().enumerate() {
                for (set, &row) in sets.iter().enumerate() {
                    let left = match (&left, &fragments) {
                        (WgmmaA::Smem(matrix), _) => {
                            asm.matrix("left", matrix, field(matrix.distance(row)) + matrix.step(step))
                        }
                        (_, fragments) => {
                            let fragments = fragments.as_ref().expect("words of a factor in registers");
                            asm.fragment(&fragments[set][place])
                        }
                    };
                    let right = asm.matrix("right", &right, right.step(step));
                    asm.multiply(&instruction, set, [left, right], self.adds(step));
                }
            }
            let then = if number + 1 == parts.len() { self.then } else { AfterIssue::Continue };
            accs = Some(asm.finish(b, gpu.register_type(self.result), then));
        }
        IssuedWgmma { accs: accs.expect("a product has a step"), lists, words }
    }

    /// Where the instructions read operand A from.
    fn operand_a(&self, gpu: &mut Gpu, b: &mut Builder, sets: &[u32], row_group: Val) -> WgmmaA {
        match &self.a {
            WgmmaSource::Words(words) => WgmmaA::Registers(words.clone()),
            WgmmaSource::Smem(staged) if staged.transposed && staged.dtype == DType::F32 => {
                WgmmaA::Gathered(gpu.gathered(b, staged, row_group))
            }
            WgmmaSource::Smem(staged) => {
                let share = WarpgroupShare { group: row_group, extent: WGMMA_M };
                WgmmaA::Smem(gpu.matrix(b, staged, DotOperand::A, share))
            }
            WgmmaSource::Regs(value) => {
                let inner = self.b.extents()[0];
                WgmmaA::Registers(gpu.operand_a_words(b, *value, sets, (inner, self.at_once())))
            }
        }
    }

    /// The registers of each set of rows, as the instruction lists them.
    fn accumulator_lists(&self, gpu: &Gpu, sets: &[u32], columns: u32) -> Vec<Vec<usize>> {
        let layout = gpu.layout(self.result);
        let places = layout.registers_by_coord();
        let [fragment, _] = wgmma_fragments();
        let offsets = fragment.offsets(&self.dot_shape(layout.shape()));
        let of_set = |&row: &u32| {
            let fragments = (0..columns).step_by(8).map(|column| Coord::along(0, row).set(1, column));
            let coords = fragments.flat_map(|first| offsets.iter().map(move |offset| first.plus(*offset)));
            coords.map(|coord| places[&self.place(coord)]).collect()
        };
        sets.iter().map(of_set).collect()
    }

    /// The predicate by which the instructions of a step add to the accumulator.
    fn adds(&self, step: u32) -> &'static str {
        match (step == self.k[0], self.acc, self.again) {
            (true, None, _) => "none",
            (true, Some(_), Some(_)) => "again",
            _ => "all",
        }
    }

    /// The shape of `a · b`, whose result has this one.
    fn dot_shape(&self, result: &Shape) -> Shape {
        if self.transposed { Shape::new([result[1], result[0]]) } else { result.clone() }
    }

    /// Where an element of `a · b` is in the result.
    fn place(&self, coord: Coord) -> Coord {
        if self.transposed { coord.unpermute(&[1, 0]) } else { coord }
    }
}

impl IssuedWgmma {
    /// Waits until no more than the last `pending` issued wgmma groups are in flight. `unread` values are not used
    /// before; returns them.
    pub fn wait_group(&mut self, b: &mut Builder, pending: u32, unread: &[Val]) -> Vec<Val> {
        let changed: Vec<Val> = self.accs.iter().chain(unread).copied().collect();
        let text = format!("wgmma.wait_group.sync.aligned {pending};");
        // Registers that wgmma reads stay as they are until then.
        let mut waited = in_place(b, &text, &changed, &self.words);
        let unread = waited.split_off(self.accs.len());
        self.accs = waited;
        unread
    }

    /// Defines a result of the dot.
    pub fn define(&self, gpu: &mut Gpu, result: Value) {
        let mut registers = vec![self.accs[0]; gpu.register_count(result)];
        self.lists.iter().flatten().zip(&self.accs).for_each(|(&register, &acc)| registers[register] = acc);
        gpu.define(result, registers);
    }
}

/// Waits for accumulators in flight, until no more than the last `pending` groups are; all are 0 if nothing was issued.
/// One statement, so that they stay in their registers, and a branch, because ptxas makes a selection of each move with
/// a predicate.
pub(in crate::gpu::emit) fn wait_all(
    b: &mut Builder,
    accs: &[Val],
    pending: u32,
    any: Option<Val>,
) -> Vec<Val> {
    let wait = format!("wgmma.wait_group.sync.aligned {pending};");
    let Some(any) = any else {
        return in_place(b, &wait, accs, &[]);
    };
    let any = b.zext(any, Elem::I32);
    // Read operands come behind the accumulators, which are listed twice.
    let count = accs.len();
    let cleared: String = (0..count).map(|i| format!("mov.b32 ${i}, 0;\n")).collect();
    let text = format!(
        "{{\n.reg .pred any;\nsetp.ne.b32 any, ${}, 0;\n{wait}\n@any bra.uni ADDED;\n{cleared}ADDED:\n}}",
        2 * count
    );
    in_place(b, &text, accs, &[any])
}

/// A statement that changes registers where they are, and reads words.
fn in_place(b: &mut Builder, text: &str, changed: &[Val], read: &[Val]) -> Vec<Val> {
    let results = changed.iter().map(|value| format!("={}", letter(value.ty)));
    let same = (0..changed.len()).map(|i| i.to_string());
    let words = read.iter().map(|_| "r".to_string());
    let constraints: Vec<String> =
        results.chain(same).chain(words).chain(["~{memory}".to_string()]).collect();
    let operands: Vec<Val> = changed.iter().chain(read).copied().collect();
    let types: Vec<Ty> = changed.iter().map(|value| value.ty).collect();
    statement(b, text, &constraints.join(","), &operands, &types)
}

impl WgmmaA {
    /// The words of each of these steps for each set of rows, if they are in registers then.
    fn fragments(&self, b: &mut Builder, sets: &[u32], steps: &[u32], at_once: u32) -> Option<OperandWords> {
        match self {
            WgmmaA::Smem(_) => None,
            WgmmaA::Registers(words) => {
                let of = |set: &Vec<Vec<Val>>| {
                    steps.iter().map(|&step| set[(step / at_once) as usize].clone()).collect()
                };
                Some(words.iter().map(of).collect())
            }
            WgmmaA::Gathered(gathered) => {
                let of = |&row: &u32| steps.iter().map(|&step| gathered.words(b, row, step)).collect();
                Some(sets.iter().map(of).collect())
            }
        }
    }
}

impl StridedFragment {
    /// The words of the fragment that begins at a row of the warpgroup's first set and a step.
    fn words(&self, b: &mut Builder, row: u32, step: u32) -> Vec<Val> {
        let place = row / (SWIZZLE_ROW_BYTES / 4) * self.piece + step * SWIZZLE_ROW_BYTES;
        let text = format!("ld.shared.b32 $0, [$1 + {place}];");
        let mut load = |&address: &Val| statement(b, &text, "=r,r,~{memory}", &[address], &[Ty::I32])[0];
        self.addresses.iter().map(&mut load).collect()
    }
}

/// What a warpgroup computes along an axis of a result.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct WarpgroupShare {
    /// The position of the warpgroup along the axis.
    pub group: Val,
    /// The rows or columns of each warpgroup.
    pub extent: u32,
}

impl Gpu<'_> {
    /// The position of the warpgroup of this warp along rows and columns of the result.
    pub(in crate::gpu::emit) fn warpgroup_position(
        &mut self,
        b: &mut Builder,
        groups: WarpGroupTiling,
    ) -> [Val; 2] {
        let group = self.warpgroup(b);
        let zero = b.int(Ty::I32, 0);
        if groups.along_columns == 1 {
            return [group, zero];
        }
        let along_rows = b.int(Ty::I32, i64::from(groups.along_rows));
        [b.urem(group, along_rows), b.udiv(group, along_rows)]
    }

    /// The descriptor of an operand tile, for a warpgroup's share of the result.
    fn matrix(
        &mut self,
        b: &mut Builder,
        staged: &StagedTile,
        side: DotOperand,
        share: WarpgroupShare,
    ) -> SmemDescriptor {
        let place = staged.address;
        let [lines, columns] = staged.lines;
        let width = columns.min(SWIZZLE_ROW_BYTES / staged.dtype.bytes());
        let mn_major = match side {
            DotOperand::A => staged.transposed,
            DotOperand::B => !staged.transposed,
        };
        let row_bytes = width * staged.dtype.bytes();
        let mut matrix = SmemDescriptor { descriptor: place, mn_major, lines, width, row_bytes };
        let each = b.int(Ty::I32, i64::from(matrix.distance(share.extent)));
        let distance = b.mul_nsw(share.group, each);
        let first = b.add(place, distance);
        // The address in units of 16 bytes, without the upper bits, which are the block of a cluster, and the offset
        // between chunks.
        let [four, own] = [4, (1 << 14) - 1].map(|number| b.int(Ty::I32, number));
        let address = b.lshr(first, four);
        let address = b.and(address, own);
        let piece = if mn_major { field(lines * matrix.row_bytes) } else { 1 };
        let piece = b.int(Ty::I32, piece << 16);
        matrix.descriptor = b.or(address, piece);
        matrix
    }

    /// The words of an operand A for a dot of so many rows, loaded from shared memory.
    pub(in crate::gpu::emit) fn load_operand_words(
        &mut self,
        b: &mut Builder,
        staged: &StagedTile,
        rows: u32,
    ) -> OperandWords {
        let groups = WarpGroupTiling::new(rows, self.plan.schedule.distributed.num_warps);
        let [lines, inner] = staged.lines;
        let dtype = staged.dtype;
        let (width, at_once) = (SWIZZLE_ROW_BYTES / dtype.bytes(), WGMMA_K_BYTES / dtype.bytes());
        let each = WGMMA_M * groups.along_rows;
        let [row_group, _] = self.warpgroup_position(b, groups);
        let address = staged.address;
        let bytes = b.int(Ty::I32, i64::from(WGMMA_M * SWIZZLE_ROW_BYTES));
        let distance = b.mul_nsw(row_group, bytes);
        let address = b.add(address, distance);
        let place = b.op("llvm.inttoptr", &[address], Ty::scalar(Elem::Ptr(Space::Shared)));
        let addresses = self.matrix_row_addresses(b, place);
        let mut load = |row: u32, step: u32| {
            let place = step / width * lines * SWIZZLE_ROW_BYTES + row * SWIZZLE_ROW_BYTES;
            let address = addresses[(step % width / at_once) as usize];
            let text =
                format!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{$0, $1, $2, $3}}, [$4 + {place}];");
            statement(b, &text, "=r,=r,=r,=r,l,~{memory}", &[address], &[Ty::I32; 4])
        };
        let steps = || (0..inner).step_by(at_once as usize);
        let sets = (0..rows).step_by(each as usize);
        sets.map(|row| steps().map(|step| load(row, step)).collect()).collect()
    }

    /// The addresses of this thread in an MN-major operand A of `f32`. Two elements of a warp share a bank: rows of
    /// 128 bytes begin at the same one, and four of them swizzle the 16-byte chunks of which eight rows take two.
    fn gathered(&mut self, b: &mut Builder, staged: &StagedTile, row_group: Val) -> StridedFragment {
        let [lines, _] = staged.lines;
        let width = SWIZZLE_ROW_BYTES / 4;
        let block = staged.address;
        let piece = lines * SWIZZLE_ROW_BYTES;
        let each = b.int(Ty::I32, i64::from(WGMMA_M / width * piece));
        let group = b.mul_nsw(row_group, each);
        let start = b.add_nsw(block, group);
        let inner = bits(b, self.thread.lane, 0, 2);
        let address = |&[row, step]: &[u32; 2]| {
            let step = b.int(Ty::I32, i64::from(step));
            let line = b.add_nsw(inner, step);
            let distance = self.mn_major_offset(b, (row, piece), line);
            b.add_nsw(start, distance)
        };
        StridedFragment { addresses: TF32_OPERAND_A.iter().map(address).collect(), piece }
    }

    /// The words of operand A for each set of rows and each step.
    fn operand_a_words(
        &mut self,
        b: &mut Builder,
        value: Value,
        sets: &[u32],
        (inner, at_once): (u32, u32),
    ) -> OperandWords {
        let layout = self.layout(value).clone();
        let dtype = self.func.ty(value).dtype;
        let values = self.registers(value);
        let places = layout.registers_by_coord();
        let [_, fragment] = wgmma_fragments();
        let offsets = fragment.offsets(layout.shape());
        let outer = outer_axis(2, DotOperand::A);
        let mut words = |row: u32, step: u32| -> Vec<Val> {
            let first = Coord::along(outer, row).set(1 - outer, step);
            let of_word = offsets.chunks(per_word(dtype)).map(|offsets| {
                let own: Vec<Val> =
                    offsets.iter().map(|offset| values[places[&first.plus(*offset)]]).collect();
                pack(b, &own, dtype)[0]
            });
            of_word.collect()
        };
        let steps = || (0..inner).step_by(at_once as usize);
        sets.iter().map(|&row| steps().map(|step| words(row, step)).collect()).collect()
    }
}

/// Makes words again that ptxas takes for others ([`held_operands`](crate::gpu::schedule::held_operands)).
fn made_again(b: &mut Builder, words: &OperandWords) -> OperandWords {
    let inactive = "{\n.reg .b32 active;\nactivemask.b32 active;\nnot.b32 $0, active;\n}";
    let zero = statement(b, inactive, "=r", &[], &[Ty::scalar(Elem::I32)])[0];
    let of_step = |step: &Vec<_>, b: &mut Builder| step.iter().map(|&word| b.xor(word, zero)).collect();
    words.iter().map(|set| set.iter().map(|step| of_step(step, b)).collect()).collect()
}
