//! Blocks that leave: a group of warps writes its part of a matrix to shared memory line by line, and one of its
//! threads has the GPU copy it out while the group goes on.
//!
//! Memory for two pieces, of as many rows as one product has and as many columns as a line holds, belongs to each
//! group. It writes there when the GPU has read what was there before.

use super::{SWIZZLE_ROW_BYTES, TmaPipeline};
use crate::gpu::emit::emit::GpuEmit;
use crate::gpu::emit::memory::pack;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::layout::dot::wgmma_fragments;
use crate::gpu::layout::warpgroup::{WARPGROUP_WARPS, WGMMA_M, WarpGroupTiling};
use crate::gpu::layout::{Coord, Distributed};
use crate::ir::{Func, Op, ParamId, Shape};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use crate::ops::TmaStore;
use crate::support::dtype::DType;

/// Rows and columns of the matrices of which `stmatrix` writes four.
const MATRIX: u32 = 8;
/// Elements of a thread in as many columns as one of them has: two of one row, two of another.
const EACH: usize = 4;
/// Bytes of a piece.
const PIECE: u32 = WGMMA_M * SWIZZLE_ROW_BYTES;
/// Pieces that a group has memory for.
const PIECES: usize = 2;
/// The number of the first group's barrier, behind those of turns.
const FIRST_BARRIER: u32 = 8;

/// What leaves.
#[derive(Clone, Default, Debug)]
pub(super) struct EpilogueBuffers {
    /// The maps of views that blocks are written to.
    maps: Vec<(ParamId, usize)>,
    /// Memory of all groups.
    pub bytes: u32,
    pub start: u32,
}

impl EpilogueBuffers {
    /// The numbers of the maps.
    pub(super) fn maps(&self) -> impl Iterator<Item = usize> {
        self.maps.iter().map(|&(_, map)| map)
    }
}

/// A matrix in pieces.
struct StoreChunks {
    groups: WarpGroupTiling,
    /// The first row and column of each, of the first group's.
    places: Vec<[u32; 2]>,
    /// Columns of a piece.
    width: u32,
    /// Columns, of a transpose rows, that a group has.
    share: u32,
}

/// Pieces side by side of a transpose: of the rows of a group's product.
const HALVES: u32 = WGMMA_M * 4 / SWIZZLE_ROW_BYTES;

impl StoreChunks {
    fn new(func: &Func, store: &TmaStore, num_warps: u32) -> StoreChunks {
        let ty = func.ty(store.value);
        let [rows, columns] = [ty.shape[0], ty.shape[1]];
        if store.transposed {
            return StoreChunks::of_transpose([rows, columns], num_warps);
        }
        let groups = WarpGroupTiling::new(rows, num_warps);
        let (width, share) = (SWIZZLE_ROW_BYTES / ty.dtype.bytes(), columns / groups.along_columns);
        let sets = (0..rows).step_by((WGMMA_M * groups.along_rows) as usize);
        let columns = || (0..share).step_by(width as usize);
        let places = sets.flat_map(|row| columns().map(move |column| [row, column])).collect();
        StoreChunks { groups, places, width, share }
    }

    fn of_transpose([rows, columns]: [u32; 2], num_warps: u32) -> StoreChunks {
        let groups = WarpGroupTiling::new(columns, num_warps);
        let (width, share) = (WGMMA_M / HALVES, rows / groups.along_columns);
        let each = WGMMA_M as usize;
        let sets = (0..columns).step_by(each * groups.along_rows as usize);
        let halves = |column: u32| (0..HALVES).map(move |half| column + half * width);
        let rows = || (0..share).step_by(each);
        let places =
            sets.flat_map(|set| rows().flat_map(move |row| halves(set).map(move |column| [row, column])));
        StoreChunks { groups, places: places.collect(), width, share }
    }
}

impl TmaPipeline {
    /// Finds a map and memory for a block that leaves.
    pub(super) fn leaves(&mut self, distributed: &Distributed, store: &TmaStore) {
        let StoreChunks { groups, places, width, .. } =
            StoreChunks::new(&distributed.func, store, distributed.num_warps);
        let map = self.map_of(&distributed.func, &store.window, [WGMMA_M, width], false);
        self.outgoing.maps.push((store.window.memory, map));
        let own = places.len().min(PIECES) as u32 * PIECE;
        self.outgoing.bytes = self.outgoing.bytes.max(groups.along_rows * groups.along_columns * own);
    }
}

impl GpuEmit for TmaStore {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let num_warps = gpu.plan.distributed.num_warps;
        let StoreChunks { groups, places, width, share } = StoreChunks::new(gpu.func, self, num_warps);
        let [row_group, column_group] = gpu.group_of_warp(b, groups);
        let group = gpu.warp_group(b);
        let place = gpu.leaving_place(b, group);
        let mut shares = [(row_group, WGMMA_M), (column_group, share)];
        if self.transposed {
            shares.reverse();
        }
        let begins = self.begins(gpu, b, shares);
        let writer = if self.transposed {
            FragmentWriter::of_transpose(gpu, b, gpu.func.ty(self.value).dtype, place)
        } else {
            FragmentWriter::new(gpu, b, gpu.func.ty(self.value).dtype, place)
        };
        let first = gpu.first_of(b, 31, WARPGROUP_WARPS - 1).expect("a group has many threads");
        let map = gpu.map_to(self.window.memory);
        for (turn, pieces) in places.chunks(PIECES).enumerate() {
            // Threads of a transpose write to one of two pieces.
            let own = if self.transposed { &pieces[..1] } else { pieces };
            let values: Vec<Vec<Val>> = own.iter().map(|&piece| self.elements(gpu, piece, width)).collect();
            if turn > 0 {
                // Computed while the GPU reads what was written before.
                b.sink(&values.concat());
            }
            statement(b, "@$0 cp.async.bulk.wait_group.read 0;", "b,~{memory}", &[first], &[]);
            gpu.group_barrier(b, group);
            for (slot, values) in values.iter().enumerate() {
                writer.write(b, slot as u32 * PIECE, values);
            }
            // What threads wrote becomes visible to the copies of one of them.
            statement(b, "fence.proxy.async.shared::cta;", "~{memory}", &[], &[]);
            gpu.group_barrier(b, group);
            for (slot, &[row, column]) in pieces.iter().enumerate() {
                let from = b.offset_bytes(place, (slot as u32 * PIECE) as i32);
                let rank = begins.len();
                let mut offsets = begins.clone();
                for (axis, distance) in [(rank - 2, row), (rank - 1, column)] {
                    let distance = b.int(Ty::I32, i64::from(distance));
                    offsets[axis] = b.add(offsets[axis], distance);
                }
                copy_out(b, first, (map, &offsets), from);
            }
            statement(b, "@$0 cp.async.bulk.commit_group;", "b,~{memory}", &[first], &[]);
        }
    }
}

impl TmaStore {
    /// The elements of this thread in the piece that begins at a row and column: [`EACH`] of each [`MATRIX`] columns; of a transpose in
    /// pieces side by side, of each [`MATRIX`] rows.
    fn elements(&self, gpu: &Gpu, [row, column]: [u32; 2], width: u32) -> Vec<Val> {
        let layout = gpu.layout(self.value);
        let (values, places) = (gpu.registers(self.value), layout.registers_by_coord());
        let [fragment, _] = wgmma_fragments();
        let (first, width, order) =
            if self.transposed { ([column, row], WGMMA_M, [1, 0]) } else { ([row, column], width, [0, 1]) };
        let shape = Shape::new(order.map(|axis| layout.shape()[axis]));
        let offsets = fragment.offsets(&shape);
        let columns = (first[1]..first[1] + width).step_by(MATRIX as usize);
        let fragments = columns.map(|column| Coord::along(0, first[0]).set(1, column));
        fragments
            .flat_map(|first| offsets.iter().map(move |&offset| first.plus(offset)))
            .map(|place| values[places[&place.unpermute(&order)]])
            .collect()
    }

    /// Where this group's part of the block begins in the view.
    fn begins(&self, gpu: &mut Gpu, b: &mut Builder, shares: [(Val, u32); 2]) -> Vec<Val> {
        let mut begins: Vec<Val> =
            self.window.offsets.iter().map(|&offset| gpu.coordinate_of(b, offset)).collect();
        let matrix = begins.len() - 2;
        for (begin, (group, share)) in begins[matrix..].iter_mut().zip(shares) {
            let share = b.int(Ty::I32, i64::from(share));
            let distance = b.mul_nsw(group, share);
            *begin = b.add(*begin, distance);
        }
        begins
    }
}

/// The copy of a piece to where it begins, by the thread for which `condition` holds.
fn copy_out(b: &mut Builder, condition: Val, (map, begins): (Val, &[Val]), from: Val) {
    let rank = begins.len();
    let names: Vec<String> = (0..rank).map(|axis| format!("${}", axis + 3)).collect();
    let text = format!(
        "@$2 cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$0, {{{}}}], [$1];",
        names.join(", ")
    );
    let constraints = format!("l,l,b{},~{{memory}}", ",r".repeat(rank));
    let operands: Vec<Val> = [map, from, condition].into_iter().chain(begins.iter().rev().copied()).collect();
    statement(b, &text, &constraints, &operands, &[]);
}

/// Writes fragments to lines whose pieces of 16 bytes are exchanged, as copies of lines of 128 bytes have them.
struct FragmentWriter {
    dtype: DType,
    /// This thread's address for each pair of neighbouring fragments of a line, or for each fragment; of a transpose for each
    /// element of a fragment.
    addresses: Vec<Val>,
    transposed: bool,
}

impl FragmentWriter {
    fn new(gpu: &mut Gpu, b: &mut Builder, dtype: DType, place: Val) -> FragmentWriter {
        // A lane says where a row of a matrix goes, or where its own two elements go.
        let halves = dtype.bytes() == 2;
        let addresses = if halves {
            gpu.matrix_addresses(b, place)
        } else {
            let [row, piece, within] =
                [(2, 3), (1, 1), (0, 1)].map(|(from, count)| bits(b, gpu.lane, from, count));
            let eight = b.int(Ty::I32, 8);
            let distance = b.mul_nsw(within, eight);
            let start = b.offset(place, distance, 1);
            gpu.line_addresses(b, start, [row, piece])
        };
        FragmentWriter { dtype, addresses, transposed: false }
    }

    /// For rows of a group that become columns of two pieces, 16 of each warp. No two elements of a warp share a bank: eight rows take two
    /// pieces of 16 bytes, and of four lines, every other one, these are exchanged with others.
    fn of_transpose(gpu: &Gpu, b: &mut Builder, dtype: DType, place: Val) -> FragmentWriter {
        let (pair, two) = (bits(b, gpu.lane, 0, 2), b.int(Ty::I32, 2));
        let first = b.mul_nsw(pair, two);
        // As a fragment has them: the second column of a pair, and the row eight behind.
        let addresses = [[0, 0], [0, 1], [8, 0], [8, 1]].map(|[row, column]| {
            let column = b.int(Ty::I32, i64::from(column));
            let line = b.add_nsw(first, column);
            let distance = gpu.distance_across(b, (row, PIECE), line);
            b.offset(place, distance, 1)
        });
        FragmentWriter { dtype, addresses: addresses.to_vec(), transposed: true }
    }

    /// Writes this thread's elements of a piece to where it begins.
    fn write(&self, b: &mut Builder, slot: u32, values: &[Val]) {
        let dtype = self.dtype;
        let columns: Vec<&[Val]> = values.chunks(EACH).collect();
        if self.transposed {
            for (number, own) in columns.iter().enumerate() {
                let distance = slot + number as u32 * MATRIX * SWIZZLE_ROW_BYTES;
                for (&value, &address) in own.iter().zip(&self.addresses) {
                    let word = pack(b, &[value], dtype)[0];
                    statement(
                        b,
                        &format!("st.shared.b32 [$0 + {distance}], $1;"),
                        "l,r,~{memory}",
                        &[address, word],
                        &[],
                    );
                }
            }
            return;
        }
        if dtype.bytes() == 2 {
            for (pair, &address) in columns.chunks(2).zip(&self.addresses) {
                let words: Vec<Val> = pair.iter().flat_map(|own| pack(b, own, dtype)).collect();
                let text =
                    format!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0 + {slot}], {{$1, $2, $3, $4}};");
                let operands: Vec<Val> = [address].into_iter().chain(words).collect();
                statement(b, &text, "l,r,r,r,r,~{memory}", &operands, &[]);
            }
            return;
        }
        for (own, &address) in columns.iter().zip(&self.addresses) {
            let words = pack(b, own, dtype);
            for (half, words) in words.chunks(2).enumerate() {
                let distance = slot + half as u32 * MATRIX * SWIZZLE_ROW_BYTES;
                let text = format!("st.shared.v2.b32 [$0 + {distance}], {{$1, $2}};");
                let operands: Vec<Val> = [address].into_iter().chain(words.iter().copied()).collect();
                statement(b, &text, "l,r,r,~{memory}", &operands, &[]);
            }
        }
    }
}

/// So many bits of a number, from one on.
pub(in crate::gpu::emit) fn bits(b: &mut Builder, of: Val, from: u32, count: u32) -> Val {
    let [shift, mask] = [from, (1 << count) - 1].map(|number| b.int(Ty::I32, i64::from(number)));
    let shifted = b.lshr(of, shift);
    b.and(shifted, mask)
}

impl Gpu<'_> {
    /// The addresses that a lane gives `stmatrix` or `ldmatrix` for four matrices, two above each other and two beside
    /// them: for each pair of matrices of a line, where a group's lines of 128 bytes begin at `place`.
    pub(in crate::gpu::emit) fn matrix_addresses(&self, b: &mut Builder, place: Val) -> Vec<Val> {
        let [row, piece] = [(0, 4), (4, 1)].map(|(from, count)| bits(b, self.lane, from, count));
        self.line_addresses(b, place, [row, piece])
    }

    /// Addresses in a row of this warp's lines, whose pieces of 16 bytes are exchanged: of a piece, and those that are
    /// two, four and six behind it.
    fn line_addresses(&self, b: &mut Builder, place: Val, [row, piece]: [Val; 2]) -> Vec<Val> {
        let within_group = bits(b, self.warp, 0, WARPGROUP_WARPS.ilog2());
        let [sixteen, length] = [16, SWIZZLE_ROW_BYTES].map(|number| b.int(Ty::I32, i64::from(number)));
        let before = b.mul_nsw(within_group, sixteen);
        let line = b.add_nsw(before, row);
        let distance = b.mul_nsw(line, length);
        let start = b.offset(place, distance, 1);
        let turned = bits(b, row, 0, 3);
        let first = b.xor(piece, turned);
        let addresses = (0..SWIZZLE_ROW_BYTES / 32).map(|pair| {
            let pair = b.int(Ty::I32, i64::from(2 * pair));
            let piece = b.xor(first, pair);
            let distance = b.mul_nsw(piece, sixteen);
            b.offset(start, distance, 1)
        });
        addresses.collect()
    }

    /// How far it is to an element of `f32` where a product's rows lie across lines, pieces of lines so many bytes apart: of the row that
    /// this thread has of its group's, or of one behind it, in one of the first eight lines. Sixteen rows are a warp's, two warps share a
    /// piece, and parts of 16 bytes are exchanged with the line's number.
    pub(in crate::gpu::emit) fn distance_across(
        &self,
        b: &mut Builder,
        (row, piece): (u32, u32),
        line: Val,
    ) -> Val {
        let [odd, pair] = [0, 1].map(|from| bits(b, self.warp, from, 1));
        let [within, next] = [(2, 2), (4, 1)].map(|(from, count)| bits(b, self.lane, from, count));
        let int = |b: &mut Builder, number: u32| b.int(Ty::I32, i64::from(number));
        let [four, sixteen, length, piece, behind] =
            [4, 16, SWIZZLE_ROW_BYTES, piece, row / 4].map(|number| int(b, number));
        let first = b.mul_nsw(odd, four);
        let part = [next, behind].into_iter().fold(first, |sum, more| b.add_nsw(sum, more));
        let exchanged = b.xor(part, line);
        let scaled = [(pair, piece), (line, length), (exchanged, sixteen), (within, four)];
        let distances = scaled.map(|(number, by)| b.mul_nsw(number, by));
        distances.into_iter().reduce(|sum, more| b.add_nsw(sum, more)).expect("there are four")
    }

    /// Waits until the GPU has read all that it copies out: a block's memory goes when its last thread ends.
    pub(super) fn await_departure(&self, b: &mut Builder) {
        if self.plan.pipeline().outgoing.bytes > 0 {
            statement(b, "cp.async.bulk.wait_group.read 0;", "~{memory}", &[], &[]);
        }
    }

    /// Waits until what this thread has the GPU copy out is in memory.
    pub(in crate::gpu::emit) fn complete_departure(&self, b: &mut Builder) {
        if self.plan.pipeline.as_ref().is_some_and(|pipeline| pipeline.outgoing.bytes > 0) {
            statement(b, "cp.async.bulk.wait_group 0;", "~{memory}", &[], &[]);
        }
    }

    /// Where a group writes what leaves.
    fn leaving_place(&self, b: &mut Builder, group: Val) -> Val {
        let TmaPipeline { outgoing, .. } = self.plan.pipeline();
        let groups = self.plan.distributed.num_warps / WARPGROUP_WARPS;
        self.at(b, outgoing.start, group, outgoing.bytes / groups)
    }

    fn map_to(&self, memory: ParamId) -> Val {
        let mut maps = self.plan.pipeline().outgoing.maps.iter();
        let (_, map) = maps.find(|(own, _)| *own == memory).expect("a block that leaves has a map");
        self.tensor_maps[*map]
    }

    /// Waits for the other warps of this warp's group.
    fn group_barrier(&self, b: &mut Builder, group: Val) {
        let threads = WARPGROUP_WARPS * 32;
        // A barrier whose number is not a constant would reserve all sixteen for the block.
        if self.plan.distributed.num_warps == WARPGROUP_WARPS {
            let text = format!("bar.sync {FIRST_BARRIER}, {threads};");
            statement(b, &text, "~{memory}", &[], &[]);
            return;
        }
        let first = b.int(Ty::I32, i64::from(FIRST_BARRIER));
        let number = b.add(group, first);
        statement(b, &format!("bar.sync $0, {threads};"), "r,~{memory}", &[number], &[]);
    }
}
