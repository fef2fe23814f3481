//! TMA stores: a warpgroup writes its part of a tile to epilogue buffers row by row, and one of its threads issues
//! the TMA store while the warpgroup goes on.
//!
//! Each warpgroup has buffers for two chunks, of as many rows as one wgmma has and as many columns as a swizzled row
//! holds. It writes there when TMA has read what was there before.

use super::SmemBufferAddress;
use super::barriers::proxy_fence;
use crate::gpu::emit::dot::wgmma::WarpgroupShare;
use crate::gpu::emit::memory::pack;
use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::threads::bits;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::layout::Coord;
use crate::gpu::layout::dot::wgmma_fragments;
use crate::gpu::layout::warpgroup::{SWIZZLE_ROW_BYTES, WARPGROUP_WARPS, WGMMA_M};
use crate::gpu::schedule::epilogue::{CHUNK_BYTES, MAX_CHUNKS, StoreChunks};
use crate::gpu::schedule::named_barrier::NamedBarrier;
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use tile_ir::ir::{Op, Shape};
use tile_ir::ops::TmaStore;
use tile_ir::support::dtype::DType;

/// Rows and columns of the matrices of which `stmatrix` writes four.
const MATRIX: u32 = 8;
/// Elements of a thread in as many columns as one of them has: two of one row, two of another.
const THREAD_ELEMENTS: usize = 4;

impl GpuEmit for TmaStore {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, _: &Op) {
        let num_warps = gpu.plan.schedule.distributed.num_warps;
        let StoreChunks { tiling, origins, width, share } = StoreChunks::new(gpu.func, self, num_warps);
        let [row_group, column_group] = gpu.warpgroup_position(b, tiling);
        let warpgroup = gpu.warpgroup(b);
        let buffer = self.through.expect("the schedule gives a TMA store its buffer");
        let SmemBufferAddress { start, stride } = gpu.buffer(buffer);
        let address = gpu.at(b, start, warpgroup, stride);
        let mut shares = [
            WarpgroupShare { group: row_group, extent: WGMMA_M },
            WarpgroupShare { group: column_group, extent: share },
        ];
        if self.transposed {
            shares.reverse();
        }
        let origin = tile_origin(self, gpu, b, shares);
        let writer = if self.transposed {
            FragmentWriter::of_transpose(gpu, b, gpu.func.ty(self.value).dtype, address)
        } else {
            FragmentWriter::new(gpu, b, gpu.func.ty(self.value).dtype, address)
        };
        let first = gpu.first_of(b, 31, WARPGROUP_WARPS - 1).expect("a warpgroup has many threads");
        let map = gpu.entry.tensor_maps[self.map.expect("the schedule gives a TMA store its map")];
        for (round, chunks) in origins.chunks(MAX_CHUNKS).enumerate() {
            // Threads of a transpose write to one of two chunks.
            let own = if self.transposed { &chunks[..1] } else { chunks };
            let values: Vec<Vec<Val>> = own.iter().map(|&chunk| elements(self, gpu, chunk, width)).collect();
            if round > 0 {
                // Computed while TMA reads the chunks before.
                b.sink(&values.concat());
            }
            statement(b, "@$0 cp.async.bulk.wait_group.read 0;", "b,~{memory}", &[first], &[]);
            gpu.warpgroup_barrier(b, warpgroup);
            for (slot, values) in values.iter().enumerate() {
                writer.write(b, slot as u32 * CHUNK_BYTES, values);
            }
            // The fence makes the writes of all threads visible to TMA.
            proxy_fence(b);
            gpu.warpgroup_barrier(b, warpgroup);
            for (slot, &[row, column]) in chunks.iter().enumerate() {
                let from = b.offset_bytes(address, (slot as u32 * CHUNK_BYTES) as i32);
                let rank = origin.len();
                let mut to = TmaBox { map, offsets: origin.clone() };
                for (axis, offset) in [(rank - 2, row), (rank - 1, column)] {
                    let offset = b.int(Ty::I32, i64::from(offset));
                    to.offsets[axis] = b.add(to.offsets[axis], offset);
                }
                to.store(b, first, from);
            }
            statement(b, "@$0 cp.async.bulk.commit_group;", "b,~{memory}", &[first], &[]);
        }
    }
}

/// The elements of this thread in the chunk that begins at a row and column: [`THREAD_ELEMENTS`] of each
/// [`MATRIX`] columns; of a transpose in chunks side by side, of each [`MATRIX`] rows.
fn elements(store: &TmaStore, gpu: &Gpu, [row, column]: [u32; 2], width: u32) -> Vec<Val> {
    let layout = gpu.layout(store.value);
    let (values, registers) = (gpu.registers(store.value), layout.registers_by_coord());
    let [fragment, _] = wgmma_fragments();
    let (first, width, order) =
        if store.transposed { ([column, row], WGMMA_M, [1, 0]) } else { ([row, column], width, [0, 1]) };
    let shape = Shape::new(order.map(|axis| layout.shape()[axis]));
    let offsets = fragment.offsets(&shape);
    let columns = (first[1]..first[1] + width).step_by(MATRIX as usize);
    let fragments = columns.map(|column| Coord::along(0, first[0]).set(1, column));
    fragments
        .flat_map(|first| offsets.iter().map(move |&offset| first.plus(offset)))
        .map(|coord| values[registers[&coord.unpermute(&order)]])
        .collect()
}

/// The coordinates of this warpgroup's part of the tile in the view.
fn tile_origin(store: &TmaStore, gpu: &mut Gpu, b: &mut Builder, shares: [WarpgroupShare; 2]) -> Vec<Val> {
    let mut origin: Vec<Val> =
        store.tile.offsets.iter().map(|&offset| gpu.tma_coordinate(b, offset)).collect();
    let matrix = origin.len() - 2;
    for (begin, share) in origin[matrix..].iter_mut().zip(shares) {
        let extent = b.int(Ty::I32, i64::from(share.extent));
        let offset = b.mul_nsw(share.group, extent);
        *begin = b.add(*begin, offset);
    }
    origin
}

/// A box of a tensor map, with the coordinates of its first element, outermost first.
struct TmaBox {
    map: Val,
    offsets: Vec<Val>,
}

impl TmaBox {
    /// Issues the TMA store of a chunk, in the thread for which `condition` holds.
    fn store(&self, b: &mut Builder, condition: Val, from: Val) {
        let TmaBox { map, offsets } = self;
        let rank = offsets.len();
        let names: Vec<String> = (0..rank).map(|axis| format!("${}", axis + 3)).collect();
        let text = format!(
            "@$2 cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$0, {{{}}}], [$1];",
            names.join(", ")
        );
        let constraints = format!("l,l,b{},~{{memory}}", ",r".repeat(rank));
        let operands: Vec<Val> =
            [*map, from, condition].into_iter().chain(offsets.iter().rev().copied()).collect();
        statement(b, &text, &constraints, &operands, &[]);
    }
}

/// Writes fragments to rows whose chunks of 16 bytes are swizzled, as TMA has them with 128-byte swizzle.
struct FragmentWriter {
    dtype: DType,
    /// This thread's address for each pair of neighboring fragments of a row, or for each fragment; of a transpose
    /// for each element of a fragment.
    addresses: Vec<Val>,
    transposed: bool,
}

impl FragmentWriter {
    fn new(gpu: &mut Gpu, b: &mut Builder, dtype: DType, address: Val) -> FragmentWriter {
        // A lane has the address of a row of a matrix, or of its own two elements.
        let halves = dtype.bytes() == 2;
        let addresses = if halves {
            gpu.matrix_row_addresses(b, address)
        } else {
            let [row, chunk, within] =
                [(2, 3), (1, 1), (0, 1)].map(|(from, count)| bits(b, gpu.thread.lane, from, count));
            let eight = b.int(Ty::I32, 8);
            let offset = b.mul_nsw(within, eight);
            let start = b.offset(address, offset, 1);
            gpu.swizzled_row_addresses(b, start, [row, chunk])
        };
        FragmentWriter { dtype, addresses, transposed: false }
    }

    /// For rows of a warpgroup that become columns of two chunks, 16 of each warp. No two elements of a warp share a
    /// bank: eight rows take two 16-byte chunks, which are swizzled differently in four rows, every other one.
    fn of_transpose(gpu: &Gpu, b: &mut Builder, dtype: DType, address: Val) -> FragmentWriter {
        let (pair, two) = (bits(b, gpu.thread.lane, 0, 2), b.int(Ty::I32, 2));
        let first = b.mul_nsw(pair, two);
        // As a fragment has them: the second column of a pair, and the row eight behind.
        let addresses = [[0, 0], [0, 1], [8, 0], [8, 1]].map(|[row, column]| {
            let column = b.int(Ty::I32, i64::from(column));
            let line = b.add_nsw(first, column);
            let offset = gpu.mn_major_offset(b, (row, CHUNK_BYTES), line);
            b.offset(address, offset, 1)
        });
        FragmentWriter { dtype, addresses: addresses.to_vec(), transposed: true }
    }

    /// Writes this thread's elements of the chunk at `start`.
    fn write(&self, b: &mut Builder, start: u32, values: &[Val]) {
        let dtype = self.dtype;
        let columns: Vec<&[Val]> = values.chunks(THREAD_ELEMENTS).collect();
        if self.transposed {
            for (number, own) in columns.iter().enumerate() {
                let offset = start + number as u32 * MATRIX * SWIZZLE_ROW_BYTES;
                for (&value, &address) in own.iter().zip(&self.addresses) {
                    let word = pack(b, &[value], dtype)[0];
                    statement(
                        b,
                        &format!("st.shared.b32 [$0 + {offset}], $1;"),
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
                    format!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0 + {start}], {{$1, $2, $3, $4}};");
                let operands: Vec<Val> = [address].into_iter().chain(words).collect();
                statement(b, &text, "l,r,r,r,r,~{memory}", &operands, &[]);
            }
            return;
        }
        for (own, &address) in columns.iter().zip(&self.addresses) {
            let words = pack(b, own, dtype);
            for (half, words) in words.chunks(2).enumerate() {
                let offset = start + half as u32 * MATRIX * SWIZZLE_ROW_BYTES;
                let text = format!("st.shared.v2.b32 [$0 + {offset}], {{$1, $2}};");
                let operands: Vec<Val> = [address].into_iter().chain(words.iter().copied()).collect();
                statement(b, &text, "l,r,r,~{memory}", &operands, &[]);
            }
        }
    }
}

impl Gpu<'_> {
    /// The row addresses of a lane for `stmatrix` or `ldmatrix` of four matrices, two above each other and two beside
    /// them: for each pair of matrices of a row, where the warpgroup's rows of 128 bytes start at `address`.
    pub(in crate::gpu::emit) fn matrix_row_addresses(&self, b: &mut Builder, address: Val) -> Vec<Val> {
        let [row, chunk] = [(0, 4), (4, 1)].map(|(from, count)| bits(b, self.thread.lane, from, count));
        self.swizzled_row_addresses(b, address, [row, chunk])
    }

    /// Swizzled addresses in a row of this warp: of a 16-byte chunk, and of those two, four and six behind it.
    fn swizzled_row_addresses(&self, b: &mut Builder, address: Val, [row, chunk]: [Val; 2]) -> Vec<Val> {
        let warp = bits(b, self.thread.warp, 0, WARPGROUP_WARPS.ilog2());
        let [sixteen, length] = [16, SWIZZLE_ROW_BYTES].map(|number| b.int(Ty::I32, i64::from(number)));
        let before = b.mul_nsw(warp, sixteen);
        let line = b.add_nsw(before, row);
        let offset = b.mul_nsw(line, length);
        let start = b.offset(address, offset, 1);
        let swizzle = bits(b, row, 0, 3);
        let first = b.xor(chunk, swizzle);
        let addresses = (0..SWIZZLE_ROW_BYTES / 32).map(|pair| {
            let pair = b.int(Ty::I32, i64::from(2 * pair));
            let chunk = b.xor(first, pair);
            let offset = b.mul_nsw(chunk, sixteen);
            b.offset(start, offset, 1)
        });
        addresses.collect()
    }

    /// The offset of an element of `f32` in an MN-major tile whose chunks are so many bytes apart: in the row that
    /// this thread has of its warpgroup's, or in one behind it, in one of the first eight rows of memory. Sixteen
    /// rows of the dot are a warp's, two warps share a chunk, and its 16-byte parts are swizzled by the row in
    /// memory.
    pub(in crate::gpu::emit) fn mn_major_offset(
        &self,
        b: &mut Builder,
        (row, chunk): (u32, u32),
        line: Val,
    ) -> Val {
        let [odd, pair] = [0, 1].map(|from| bits(b, self.thread.warp, from, 1));
        let [within, next] = [(2, 2), (4, 1)].map(|(from, count)| bits(b, self.thread.lane, from, count));
        let int = |b: &mut Builder, number: u32| b.int(Ty::I32, i64::from(number));
        let [four, sixteen, length, chunk, behind] =
            [4, 16, SWIZZLE_ROW_BYTES, chunk, row / 4].map(|number| int(b, number));
        let first = b.mul_nsw(odd, four);
        let chunk_index = [next, behind].into_iter().fold(first, |offset, more| b.add_nsw(offset, more));
        let swizzled = b.xor(chunk_index, line);
        let scaled = [(pair, chunk), (line, length), (swizzled, sixteen), (within, four)];
        let offsets = scaled.map(|(number, by)| b.mul_nsw(number, by));
        offsets.into_iter().reduce(|offset, more| b.add_nsw(offset, more)).expect("there are four")
    }

    /// Waits for the other warps of this warpgroup.
    fn warpgroup_barrier(&self, b: &mut Builder, warpgroup: Val) {
        let (threads, first) = (WARPGROUP_WARPS * 32, NamedBarrier::Store(0).number());
        // A barrier whose number is not a constant would reserve all sixteen for the block.
        if self.plan.schedule.distributed.num_warps == WARPGROUP_WARPS {
            let text = format!("bar.sync {first}, {threads};");
            statement(b, &text, "~{memory}", &[], &[]);
            return;
        }
        let first = b.int(Ty::I32, i64::from(first));
        let number = b.add(warpgroup, first);
        statement(b, &format!("bar.sync $0, {threads};"), "r,~{memory}", &[number], &[]);
    }
}
