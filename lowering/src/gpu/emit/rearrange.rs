//! Emission of join, index, exchange and gather: within the thread where it holds the elements, by shuffles within the
//! warp, else through shared memory.

use std::collections::HashMap;

use tile_ir::ir::Op;
use tile_ir::ops::{Exchange, Gather, Index, Join};

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::load;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, ShuffleMode, TileRegisters};
use crate::gpu::layout::Coord;
use crate::gpu::layout::coord_bits::CoordBits;
use crate::gpu::layout::gather::{GatherSource, GatherSources, warp_gather};
use crate::gpu::layout::smem_tile::SmemTile;
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};

impl GpuEmit for Join {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let operands = [self.left, self.right].map(|operand| gpu.registers(operand));
        // A scalar has the one register.
        let register_of = if gpu.func.ty(self.left).is_scalar() {
            [(Coord::ZERO, 0)].into_iter().collect()
        } else {
            gpu.layout(self.left).registers_by_coord()
        };
        let own = CoordBits::all(&layout, self.axis);
        // Which operand the thread takes, where threads hold the axis.
        let mut is_right = None;
        for (source, mask) in [(gpu.thread.lane, own.lanes), (gpu.thread.warp, own.warps)] {
            if mask != 0 {
                let (mask, zero) = (b.int(Ty::I32, i64::from(mask)), b.int(Ty::I32, 0));
                let bit = b.and(source, mask);
                is_right = Some(b.icmp(IntPredicate::Ne, bit, zero));
            }
        }
        let registers = (0..layout.register_count())
            .map(|register| {
                let coord = layout.register(register);
                let register = register_of[&coord.remove(self.axis)];
                match is_right {
                    Some(is_right) => b.select(is_right, operands[1][register], operands[0][register]),
                    None => operands[coord.get(self.axis) as usize][register],
                }
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Index {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(self.value).clone();
        let all = CoordBits::all(&layout, self.axis);
        let values = gpu.registers(self.value);
        let register_of = layout.registers_by_coord();
        let result = layout.without(&[self.axis]);
        let at = CoordBits::new(&layout, self.axis, self.index);
        let along = Coord::along(self.axis, at.registers);
        let mut registers: Vec<Val> = (0..result.register_count())
            .map(|register| {
                let coord = result.register(register).insert(self.axis).plus(along);
                values[register_of[&coord]]
            })
            .collect();
        if all.warps != 0 {
            // Through shared memory, from the threads that hold the index.
            let writer = gpu.writer(b, Some(&layout));
            let own = gpu.is_thread(b, [all.lanes, all.warps], [at.lanes, at.warps]);
            let holds = b.both(writer, own);
            let ty = gpu.func.ty(op.results[0]).clone();
            let tile = gpu.scratch_tile(b, op, SmemTile::of_tile_or_scalar(&ty.shape, ty.dtype), ty.dtype);
            gpu.write_registers(b, TileRegisters { layout: &result, values: &registers }, holds, &tile);
            gpu.barrier(b);
            registers = if ty.is_scalar() {
                load(b, tile.address, ty.dtype, 1)
            } else {
                gpu.read_smem_tile(b, op, &tile)
            };
            return gpu.define(op.results[0], registers);
        }
        if all.lanes != 0 {
            let (others, own) =
                (b.int(Ty::I32, i64::from(31 & !all.lanes)), b.int(Ty::I32, i64::from(at.lanes)));
            let lane = b.and(gpu.thread.lane, others);
            let lane = b.or(lane, own);
            for register in &mut registers {
                *register = gpu.shuffle(b, *register, ShuffleMode::Index, lane);
            }
        }
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Exchange {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let values = gpu.registers(self.value);
        let bits = CoordBits::new(&layout, self.axis, self.mask);
        if bits.warps != 0 {
            return exchange_through_smem(self, gpu, b, op);
        }
        let register_of = layout.registers_by_coord();
        let distance = Coord::along(self.axis, bits.registers);
        let lanes = b.int(Ty::I32, i64::from(bits.lanes));
        let registers = (0..values.len())
            .map(|register| {
                let value = values[register_of[&layout.register(register).xor(distance)]];
                if bits.lanes == 0 { value } else { gpu.shuffle(b, value, ShuffleMode::Butterfly, lanes) }
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

fn exchange_through_smem(exchange: &Exchange, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
    let layout = gpu.layout(op.results[0]).clone();
    let ty = gpu.func.ty(exchange.value).clone();
    let tile = gpu.write_to_scratch(b, op, exchange.value, SmemTile::padded(&ty.shape, ty.dtype));
    let mask = b.int(Ty::I32, i64::from(exchange.mask));
    let registers = (0..layout.register_count())
        .map(|register| {
            let pointer = tile.pointer(b, |b, axis| {
                let coord = gpu.coord(b, &layout, register, axis);
                if axis == exchange.axis { b.xor(coord, mask) } else { coord }
            });
            load(b, pointer, ty.dtype, 1)[0]
        })
        .collect();
    gpu.define(op.results[0], registers);
}

impl GpuEmit for Gather {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        if let Some(sources) = warp_gather(&gpu.plan.schedule.distributed, self, op.results[0]) {
            let values = gpu.registers(self.value);
            let registers = gpu.gather_in_warp(b, &values, &sources);
            return gpu.define(op.results[0], registers);
        }
        let layout = gpu.layout(op.results[0]).clone();
        let ty = gpu.func.ty(self.value).clone();
        let tile = gpu.write_to_scratch(b, op, self.value, SmemTile::padded(&ty.shape, ty.dtype));
        let indices = gpu.registers(self.index);
        let signed = gpu.func.ty(self.index).dtype.is_signed();
        let zero_index = b.int(Ty::I32, 0);
        let registers = (0..layout.register_count())
            .map(|register| {
                let index = indices[register];
                let elem = at_least_32_bits(index);
                let index = if signed { b.sext(index, elem) } else { b.zext(index, elem) };
                let extent = b.int(index.ty, i64::from(ty.shape[self.axis]));
                // A negative index is a large unsigned one.
                let inside = b.icmp(IntPredicate::Ult, index, extent);
                let index = b.trunc(index, Elem::I32);
                let index = b.select(inside, index, zero_index);
                let pointer = tile.pointer(b, |b, axis| {
                    if axis == self.axis { index } else { gpu.coord(b, &layout, register, axis) }
                });
                let value = load(b, pointer, ty.dtype, 1)[0];
                let zero = zero(b, value.ty);
                b.select(inside, value, zero)
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

impl Gpu<'_> {
    /// Selects each register of a gather's result from its sources; lanes that take the same register of another lane share a shuffle.
    fn gather_in_warp(&self, b: &mut Builder, values: &[Val], sources: &[GatherSources]) -> Vec<Val> {
        let mut moved: HashMap<GatherSource, Val> = HashMap::new();
        let one = b.int(Ty::I32, 1);
        let mut register = |sources: &GatherSources| {
            let mut result = None;
            for (&source, &lanes) in sources {
                let value = *moved.entry(source).or_insert_with(|| match source {
                    GatherSource::Zero => zero(b, values[0].ty),
                    GatherSource::Own { register } => values[register],
                    GatherSource::Lane { register, distance } => {
                        let distance = b.int(Ty::I32, i64::from(distance));
                        let lane = b.add(self.thread.lane, distance);
                        self.shuffle(b, values[register], ShuffleMode::Index, lane)
                    }
                });
                result = Some(match result {
                    None => value,
                    Some(others) => {
                        let lanes = b.int(Ty::I32, i64::from(lanes));
                        let lanes = b.lshr(lanes, self.thread.lane);
                        let bit = b.and(lanes, one);
                        let takes = b.icmp(IntPredicate::Eq, bit, one);
                        b.select(takes, value, others)
                    }
                });
            }
            result.expect("every lane has a source")
        };
        sources.iter().map(&mut register).collect()
    }
}

/// Zero of a register's type.
fn zero(b: &mut Builder, ty: Ty) -> Val {
    if ty.elem.is_float() { b.float(ty, 0.0) } else { b.int(ty, 0) }
}

/// The integer type of an index, widened to 32 bits or more.
fn at_least_32_bits(index: Val) -> Elem {
    if index.ty.elem.bits() == 64 { Elem::I64 } else { Elem::I32 }
}
