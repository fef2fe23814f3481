//! Warpgroup dots (`wgmma`), which read operands from shared memory as TMA wrote them, with its 128-byte swizzle.

use tile_ir::ir::{Op, Shape, Value};
use tile_ir::ops::{DotOperand, OperandA, SmemOperand, WarpGroupDot};

use crate::gpu::emit::dot::wgmma_statement::{
    AfterIssue, SmemDescriptor, WgmmaShape, WgmmaStatement, field, letter,
};
use crate::gpu::emit::dot::{outer_axis, per_word};
use crate::gpu::emit::memory::pack;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::warp_specialize::bits;
use crate::gpu::emit::{Gpu, Space, statement};
use crate::gpu::layout::Coord;
use crate::gpu::layout::dot::wgmma_fragments;
use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WGMMA_K_BYTES, WGMMA_M, WarpGroupTiling};
use crate::mlir::builder::{Builder, Val};
use crate::mlir::types::{Elem, Ty};

/// The row and the K step of each word of a fragment of operand A in TF32, from the lane's own on.
const TF32_OPERAND_A: [[u32; 2]; 4] = [[0, 0], [8, 0], [0, 4], [8, 4]];

/// The words of each step of an operand A, for each of the warpgroup's sets of rows.
pub(in crate::gpu::emit) type OperandWords = Vec<Vec<Vec<Val>>>;

/// The most words of operand A that a thread preloads for a loop, and for how many warpgroups there are registers.
const MAX_PRELOADED_WORDS: u32 = 32;
const MAX_PRELOAD_WARPGROUPS: u32 = 2;

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

impl GpuEmit for WarpGroupDot {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        if self.promotes() {
            return promoted(self, gpu, b, op);
        }
        let issued = issue(self, gpu, b, op, (None, AfterIssue::Wait));
        complete(self, gpu, b, op, &issued);
    }
}

/// These K steps of a dot, added to `acc`; with `again` only if this holds.
struct WgmmaSteps {
    steps: std::ops::Range<u32>,
    acc: Option<Value>,
    again: Option<Val>,
    then: AfterIssue,
}

/// Issues the dot, after a wait for its operands. With `again` it adds to the accumulator only if this holds.
pub(in crate::gpu::emit) fn issue(
    dot: &WarpGroupDot,
    gpu: &mut Gpu,
    b: &mut Builder,
    op: &Op,
    (again, then): (Option<Val>, AfterIssue),
) -> IssuedWgmma {
    issue_steps(dot, gpu, b, op, WgmmaSteps { steps: 0..dot.inner(), acc: dot.acc, again, then })
}

/// The dot in parts of K, each with an accumulator of its own, which is then added in the type of the result.
fn promoted(dot: &WarpGroupDot, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
    let (inner, most) = (dot.inner(), dot.promotion_interval());
    let mut accs = dot.acc.map(|acc| gpu.registers(acc).to_vec());
    for first in (0..inner).step_by(most as usize) {
        let steps = first..inner.min(first + most);
        let issued = issue_steps(
            dot,
            gpu,
            b,
            op,
            WgmmaSteps { steps, acc: None, again: None, then: AfterIssue::Wait },
        );
        if first + most >= inner {
            gpu.consumer_release(b, dot, op);
        }
        define(gpu, op, &issued);
        let own = gpu.registers(op.results[0]).to_vec();
        accs = Some(match accs {
            Some(accs) => accs.into_iter().zip(own).map(|(sum, own)| b.fadd(sum, own)).collect(),
            None => own,
        });
    }
    gpu.define(op.results[0], accs.expect("a product has a part"));
}

fn issue_steps(dot: &WarpGroupDot, gpu: &mut Gpu, b: &mut Builder, op: &Op, part: WgmmaSteps) -> IssuedWgmma {
    let WgmmaSteps { steps, acc, again, then } = part;
    let dtype = dot.dtype(gpu.func);
    let at_once = WGMMA_K_BYTES / dtype.bytes();
    let layout = gpu.layout(op.results[0]).clone();
    let [inner, columns] = dot.b.extents();
    let shape = dot_shape(dot, layout.shape());
    let rows = shape[0];
    let groups = WarpGroupTiling::new(rows, gpu.plan.distributed.num_warps);
    let [row_group, column_group] = gpu.warpgroup_position(b, groups);
    let sets: Vec<u32> = (0..rows).step_by((WGMMA_M * groups.along_rows) as usize).collect();
    gpu.consumer_wait(b, dot);
    let left = match &dot.a {
        OperandA::Smem(staged) if gpu.preloaded_words(staged).is_some() => {
            WgmmaA::Registers(gpu.preloaded_words(staged).cloned().expect("it was seen"))
        }
        OperandA::Smem(staged) if dot.a_in_fragments(gpu.func).is_some() => {
            WgmmaA::Gathered(gpu.gathered(b, staged, row_group))
        }
        OperandA::Smem(staged) => WgmmaA::Smem(gpu.matrix(b, staged, DotOperand::A, (row_group, WGMMA_M))),
        OperandA::Regs(value) => WgmmaA::Registers(gpu.operand_a_words(b, *value, &sets, (inner, at_once))),
    };
    let columns = columns / groups.along_columns;
    let right = gpu.matrix(b, &dot.b, DotOperand::B, (column_group, columns));
    let places = layout.registers_by_coord();
    let [fragment, _] = wgmma_fragments();
    let offsets = fragment.offsets(&shape);
    let lists: Vec<Vec<usize>> = sets
        .iter()
        .map(|&row| {
            let fragments = (0..columns).step_by(8).map(|column| Coord::along(0, row).set(1, column));
            fragments.flat_map(|first| offsets.iter().map(move |offset| first.plus(*offset))).collect()
        })
        .map(|coords: Vec<Coord>| coords.iter().map(|&coord| places[&place_in_result(dot, coord)]).collect())
        .collect();
    let instruction = WgmmaShape { columns, inner: at_once, dtype };
    let mut accs: Option<Vec<Val>> = acc.map(|acc| {
        let registers = gpu.registers(acc);
        lists.iter().flatten().map(|&register| registers[register]).collect()
    });
    let mut words = vec![];
    let all: Vec<u32> = steps.clone().step_by(at_once as usize).collect();
    // Operands that threads load for a step come while the wgmma of the step before runs.
    let parts: Vec<&[u32]> =
        if matches!(left, WgmmaA::Gathered(_)) { all.chunks(1).collect() } else { vec![&all] };
    for (number, part) in parts.iter().enumerate() {
        let fragments = left.fragments(b, &sets, part, at_once);
        words.extend(fragments.iter().flatten().flatten().flatten());
        let mut asm = WgmmaStatement::new(&lists, accs.as_deref());
        asm.add_if(b, again.filter(|_| number == 0));
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
                let adds = match (step == steps.start, acc, again) {
                    (true, None, _) => "none",
                    (true, Some(_), Some(_)) => "again",
                    _ => "all",
                };
                asm.multiply(&instruction, set, [left, right], adds);
            }
        }
        let then = if number + 1 == parts.len() { then } else { AfterIssue::Continue };
        accs = Some(asm.finish(b, gpu.register_type(op.results[0]), then));
    }
    IssuedWgmma { accs: accs.expect("a product has a step"), lists, words }
}

/// The shape of `a · b`, whose result has this one.
fn dot_shape(dot: &WarpGroupDot, result: &Shape) -> Shape {
    if dot.transposed { Shape::new([result[1], result[0]]) } else { result.clone() }
}

/// Where an element of `a · b` is in the result.
fn place_in_result(dot: &WarpGroupDot, coord: Coord) -> Coord {
    if dot.transposed { coord.unpermute(&[1, 0]) } else { coord }
}

/// Waits until no more than the last `pending` issued wgmma groups are in flight. `unread` values are not used
/// before; returns them.
pub(in crate::gpu::emit) fn wait_group(
    b: &mut Builder,
    issued: &mut IssuedWgmma,
    pending: u32,
    unread: &[Val],
) -> Vec<Val> {
    let changed: Vec<Val> = issued.accs.iter().chain(unread).copied().collect();
    let text = format!("wgmma.wait_group.sync.aligned {pending};");
    // Registers that wgmma reads stay as they are until then.
    let mut waited = in_place(b, &text, &changed, &issued.words);
    let unread = waited.split_off(issued.accs.len());
    issued.accs = waited;
    unread
}

/// Waits for accumulators in flight; all are 0 if nothing was issued. One statement, so that they stay in their
/// registers, and a branch, because ptxas makes a selection of each move with a predicate.
pub(in crate::gpu::emit) fn wait_all(b: &mut Builder, accs: &[Val], any: Option<Val>) -> Vec<Val> {
    let Some(any) = any else {
        return in_place(b, "wgmma.wait_group.sync.aligned 0;", accs, &[]);
    };
    let any = b.zext(any, Elem::I32);
    // Read operands come behind the accumulators, which are listed twice.
    let count = accs.len();
    let cleared: String = (0..count).map(|i| format!("mov.b32 ${i}, 0;\n")).collect();
    let text = format!(
        "{{\n.reg .pred any;\nsetp.ne.b32 any, ${}, 0;\nwgmma.wait_group.sync.aligned 0;\n\
         @any bra.uni ADDED;\n{cleared}ADDED:\n}}",
        2 * count
    );
    in_place(b, &text, accs, &[any])
}

/// Defines the result and releases the operands.
pub(in crate::gpu::emit) fn complete(
    dot: &WarpGroupDot,
    gpu: &mut Gpu,
    b: &mut Builder,
    op: &Op,
    issued: &IssuedWgmma,
) {
    gpu.consumer_release(b, dot, op);
    define(gpu, op, issued);
}

pub(in crate::gpu::emit) fn define(gpu: &mut Gpu, op: &Op, issued: &IssuedWgmma) {
    let IssuedWgmma { accs, lists, .. } = issued;
    let mut registers = vec![accs[0]; gpu.register_count(op.results[0])];
    lists.iter().flatten().zip(accs).for_each(|(&register, &sum)| registers[register] = sum);
    gpu.define(op.results[0], registers);
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

    /// The descriptor of an operand tile, of which each warpgroup reads so many rows or columns of the result.
    fn matrix(
        &mut self,
        b: &mut Builder,
        staged: &SmemOperand,
        side: DotOperand,
        (group, share): (Val, u32),
    ) -> SmemDescriptor {
        let place = self.smem_operand_address(b, staged);
        let [lines, _] = staged.lines();
        let width = SWIZZLE_ROW_BYTES / self.func.slice(staged.tile.memory).0.bytes();
        let mn_major = match side {
            DotOperand::A => staged.transposed,
            DotOperand::B => !staged.transposed,
        };
        let mut matrix = SmemDescriptor { descriptor: place, mn_major, lines, width };
        let share = b.int(Ty::I32, i64::from(matrix.distance(share)));
        let distance = b.mul_nsw(group, share);
        let first = b.add(place, distance);
        // The address in units of 16 bytes, without the upper bits, which are the block of a cluster, and the offset
        // between chunks.
        let [four, own] = [4, (1 << 14) - 1].map(|number| b.int(Ty::I32, number));
        let address = b.lshr(first, four);
        let address = b.and(address, own);
        let piece = if mn_major { field(lines * SWIZZLE_ROW_BYTES) } else { 1 };
        let piece = b.int(Ty::I32, piece << 16);
        matrix.descriptor = b.or(address, piece);
        matrix
    }

    /// How many words a thread would preload of operand A for a dot of so many rows; `None` where they are too many.
    pub(in crate::gpu::emit) fn preload_word_count(&self, staged: &SmemOperand, rows: u32) -> Option<u32> {
        let groups = WarpGroupTiling::new(rows, self.plan.distributed.num_warps);
        let [_, inner] = staged.lines();
        let words = rows / (WGMMA_M * groups.along_rows) * inner / 4;
        let is_half = self.func.slice(staged.tile.memory).0.is_half();
        let few = words <= MAX_PRELOADED_WORDS
            && groups.along_rows * groups.along_columns <= MAX_PRELOAD_WARPGROUPS;
        (is_half && few).then_some(words)
    }

    /// These words, loaded from shared memory.
    pub(in crate::gpu::emit) fn preload_words(
        &mut self,
        b: &mut Builder,
        staged: &SmemOperand,
        rows: u32,
    ) -> Option<OperandWords> {
        self.preload_word_count(staged, rows)?;
        let groups = WarpGroupTiling::new(rows, self.plan.distributed.num_warps);
        let [lines, inner] = staged.lines();
        let dtype = self.func.slice(staged.tile.memory).0;
        let (width, at_once) = (SWIZZLE_ROW_BYTES / dtype.bytes(), WGMMA_K_BYTES / dtype.bytes());
        let each = WGMMA_M * groups.along_rows;
        let [row_group, _] = self.warpgroup_position(b, groups);
        let address = self.smem_operand_address(b, staged);
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
        Some(sets.map(|row| steps().map(|step| load(row, step)).collect()).collect())
    }

    /// The addresses of this thread in an MN-major operand A of `f32`. Two elements of a warp share a bank: rows of
    /// 128 bytes begin at the same one, and four of them swizzle the 16-byte chunks of which eight rows take two.
    fn gathered(&mut self, b: &mut Builder, staged: &SmemOperand, row_group: Val) -> StridedFragment {
        let [lines, _] = staged.lines();
        let width = SWIZZLE_ROW_BYTES / 4;
        let block = self.smem_operand_address(b, staged);
        let piece = lines * SWIZZLE_ROW_BYTES;
        let each = b.int(Ty::I32, i64::from(WGMMA_M / width * piece));
        let group = b.mul_nsw(row_group, each);
        let start = b.add_nsw(block, group);
        let inner = bits(b, self.lane, 0, 2);
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
