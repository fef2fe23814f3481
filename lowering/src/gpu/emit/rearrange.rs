//! Elements brought together: within the thread where it holds them, by shuffles within the warp, else by way of shared
//! memory.

use crate::gpu::emit::convert::SmemTile;
use crate::gpu::emit::emit::GpuEmit;
use crate::gpu::emit::reduce::load;
use crate::gpu::emit::{Builder, Gpu, IntPredicate, ShuffleMode as Shuffled};
use crate::gpu::layout::{Coord, Distributed, Layout, Segment};
use crate::ir::{Op, Shape, Value};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};
use crate::ops::{Exchange, Gather, Index, Join};
use crate::support::dtype::DType;

/// The bits of a number along an axis, by what holds them.
#[derive(Default)]
struct Bits {
    /// The part of the coordinate that registers hold, blocks included.
    registers: u32,
    lanes: u32,
    warps: u32,
}

impl Bits {
    fn new(layout: &Layout, axis: usize, number: u32) -> Bits {
        let mut bits = Bits::default();
        for segment in layout.segments(axis) {
            match segment {
                Segment::Registers { first, bits: count } => {
                    bits.registers |= number & (((1 << count) - 1) << first);
                }
                Segment::Blocks { first } => bits.registers |= number >> first << first,
                Segment::Lanes { first, lane, bits: count } => {
                    bits.lanes |= (number >> first & ((1 << count) - 1)) << lane;
                }
                Segment::Warps { first, warps } => {
                    for (i, warp) in warps.iter().enumerate() {
                        bits.warps |= (number >> first >> i & 1) << warp;
                    }
                }
            }
        }
        bits
    }

    /// All lanes and warps along the axis.
    fn all(layout: &Layout, axis: usize) -> Bits {
        Bits::new(layout, axis, u32::MAX)
    }
}

/// Where the elements of a tile lie, or a scalar.
fn line(shape: &Shape, dtype: DType) -> SmemTile {
    if shape.rank() == 0 { SmemTile::dense(&Shape::new(vec![1])) } else { SmemTile::padded(shape, dtype) }
}

fn tile_bytes(distributed: &Distributed, value: Value) -> u32 {
    let ty = distributed.func.ty(value);
    line(&ty.shape, ty.dtype).elements * ty.dtype.bytes()
}

impl GpuEmit for Join {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let operands = [self.left, self.right].map(|operand| gpu.registers(operand));
        // A scalar has the one register.
        let places = if gpu.func.ty(self.left).is_scalar() {
            [(Coord::ZERO, 0)].into_iter().collect()
        } else {
            gpu.layout(self.left).registers_by_coord()
        };
        let own = Bits::all(&layout, self.axis);
        // The thread's own side, where threads hold the axis.
        let mut is_right = None;
        for (source, mask) in [(gpu.lane, own.lanes), (gpu.warp, own.warps)] {
            if mask != 0 {
                let (mask, zero) = (b.int(Ty::I32, i64::from(mask)), b.int(Ty::I32, 0));
                let bit = b.and(source, mask);
                is_right = Some(b.icmp(IntPredicate::Ne, bit, zero));
            }
        }
        let registers = (0..layout.register_count())
            .map(|register| {
                let coord = layout.register(register);
                let place = places[&coord.remove(self.axis)];
                match is_right {
                    Some(is_right) => b.select(is_right, operands[1][place], operands[0][place]),
                    None => operands[coord.get(self.axis) as usize][place],
                }
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Index {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let bits = Bits::all(&distributed.layouts[&self.value], self.axis);
        if bits.warps == 0 { 0 } else { tile_bytes(distributed, op.results[0]) }
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(self.value).clone();
        let all = Bits::all(&layout, self.axis);
        let values = gpu.registers(self.value);
        let places = layout.registers_by_coord();
        let result = layout.without(&[self.axis]);
        let at = Bits::new(&layout, self.axis, self.index);
        let place = Coord::along(self.axis, at.registers);
        let mut registers: Vec<Val> = (0..result.register_count())
            .map(|register| {
                let coord = result.register(register).insert(self.axis).plus(place);
                values[places[&coord]]
            })
            .collect();
        if all.warps != 0 {
            return self.staged(gpu, b, op, (&result, &registers), [all, at]);
        }
        if all.lanes != 0 {
            let (others, own) =
                (b.int(Ty::I32, i64::from(31 & !all.lanes)), b.int(Ty::I32, i64::from(at.lanes)));
            let lane = b.and(gpu.lane, others);
            let lane = b.or(lane, own);
            for register in &mut registers {
                *register = gpu.shuffle(b, *register, Shuffled::Index, lane);
            }
        }
        gpu.define(op.results[0], registers);
    }
}

impl Index {
    /// By way of shared memory, from the threads that hold the place: these registers, which lie as the result does.
    fn staged(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        op: &Op,
        (result, registers): (&Layout, &[Val]),
        [all, at]: [Bits; 2],
    ) {
        let ty = gpu.func.ty(op.results[0]).clone();
        let staging = line(&ty.shape, ty.dtype);
        let writer = gpu.writer(b, Some(gpu.layout(self.value)));
        let own = gpu.holds(b, [all.lanes, all.warps], [at.lanes, at.warps]);
        let holds = b.both(writer, own);
        let base = gpu.exchanged(b, op, |gpu, b, base| {
            gpu.write_registers(b, (result, registers, ty.dtype), holds, (&staging, base))
        });
        let registers =
            if ty.is_scalar() { load(b, base, ty.dtype, 1) } else { gpu.read_staged(b, op, base, &staging) };
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Exchange {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        let layout = &distributed.layouts[&op.results[0]];
        let bits = Bits::new(layout, self.axis, self.mask);
        if bits.warps == 0 { 0 } else { tile_bytes(distributed, self.value) }
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let values = gpu.registers(self.value);
        let bits = Bits::new(&layout, self.axis, self.mask);
        if bits.warps != 0 {
            return self.staged(gpu, b, op);
        }
        let places = layout.registers_by_coord();
        let distance = Coord::along(self.axis, bits.registers);
        let lanes = b.int(Ty::I32, i64::from(bits.lanes));
        let registers = (0..values.len())
            .map(|register| {
                let value = values[places[&layout.register(register).xor(distance)]];
                if bits.lanes == 0 { value } else { gpu.shuffle(b, value, Shuffled::Butterfly, lanes) }
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

impl Exchange {
    fn staged(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let ty = gpu.func.ty(self.value).clone();
        let staging = SmemTile::padded(&ty.shape, ty.dtype);
        let base = gpu.write_staged(b, op, self.value, &staging);
        let mask = b.int(Ty::I32, i64::from(self.mask));
        let registers = (0..layout.register_count())
            .map(|register| {
                let pointer = staging.pointer(b, base, ty.dtype, |b, axis| {
                    let coord = gpu.coord(b, &layout, register, axis);
                    if axis == self.axis { b.xor(coord, mask) } else { coord }
                });
                load(b, pointer, ty.dtype, 1)[0]
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

impl GpuEmit for Gather {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        tile_bytes(distributed, self.value)
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(op.results[0]).clone();
        let ty = gpu.func.ty(self.value).clone();
        let staging = SmemTile::padded(&ty.shape, ty.dtype);
        let base = gpu.write_staged(b, op, self.value, &staging);
        let indices = gpu.registers(self.index);
        let signed = gpu.func.ty(self.index).dtype.is_signed();
        let zero_index = b.int(Ty::I32, 0);
        let registers = (0..layout.register_count())
            .map(|register| {
                let index = indices[register];
                let index = if signed { b.sext(index, widest(index)) } else { b.zext(index, widest(index)) };
                let extent = b.int(index.ty, i64::from(ty.shape[self.axis]));
                // A negative one is a large one.
                let inside = b.icmp(IntPredicate::Ult, index, extent);
                let index = b.trunc(index, Elem::I32);
                let index = b.select(inside, index, zero_index);
                let pointer = staging.pointer(b, base, ty.dtype, |b, axis| {
                    if axis == self.axis { index } else { gpu.coord(b, &layout, register, axis) }
                });
                let value = load(b, pointer, ty.dtype, 1)[0];
                let zero = if value.ty.elem.is_float() { b.float(value.ty, 0.0) } else { b.int(value.ty, 0) };
                b.select(inside, value, zero)
            })
            .collect();
        gpu.define(op.results[0], registers);
    }
}

/// At least 32 bits.
fn widest(index: Val) -> Elem {
    if index.ty.elem.bits() == 64 { Elem::I64 } else { Elem::I32 }
}
