//! Loops and branches. Carried tiles live in buffers: the body reads its arguments from them, and its yields are stored
//! back at its end.

use tile_ir::ir::{Op, Value};
use tile_ir::ops::{For, If, While};

use crate::cpu::emit::{Builder, CpuEmit, Host, Ty, Val};
use crate::mlir::IntPredicate;
use crate::mlir::builder::{BranchArm, LoopPart};
use crate::mlir::shared::{LoopRange, loop_variable};

impl Host<'_> {
    fn is_tile(&self, value: Value) -> bool {
        !self.func.ty(value).is_scalar()
    }

    fn scalars_of(&self, values: &[Value]) -> Vec<Val> {
        values.iter().filter(|&&value| !self.is_tile(value)).map(|&value| self.scalar(value)).collect()
    }

    fn define_scalars(&mut self, values: &[Value], vals: &[Val]) {
        let scalars: Vec<Value> = values.iter().copied().filter(|&value| !self.is_tile(value)).collect();
        for (value, &val) in scalars.into_iter().zip(vals) {
            self.define(value, val);
        }
    }

    /// Writes tiles into the buffers of others: `from[i]` into `to[i]`. Through the scratch of `via` when a source may
    /// read a target that an earlier copy has overwritten.
    fn copy_tiles(&mut self, b: &mut Builder, from: &[Value], to: &[Value], via: Option<&[Value]>) {
        let scratch = &self.plan.scratch;
        let same_buffer =
            |i: usize| scratch.buffer(from[i]).is_some_and(|own| scratch.buffer(to[i]) == Some(own));
        let tiles: Vec<usize> =
            (0..from.len()).filter(|&i| self.is_tile(from[i]) && !same_buffer(i)).collect();
        if let Some(via) = via {
            for &i in &tiles {
                self.copy_tile(b, from[i], via[i]);
            }
            for &i in &tiles {
                self.copy_buffer(b, via[i], to[i]);
            }
            return;
        }
        for &i in &tiles {
            self.copy_tile(b, from[i], to[i]);
        }
    }

    fn copy_tile(&mut self, b: &mut Builder, from: Value, to: Value) {
        let shape = self.func.ty(from).shape.clone();
        self.each(b, &shape, &mut |host, b, point| {
            let elements = host.at(b, from, point);
            host.write_buffer(b, to, point, elements);
        });
    }

    fn copy_buffer(&mut self, b: &mut Builder, from: Value, to: Value) {
        let ty = self.func.ty(from).clone();
        let bytes = ty.shape.elements() * u64::from(ty.dtype.bytes());
        let origin = vec![b.int(Ty::I64, 0); ty.shape.rank()];
        let (source, target) = (self.buffer_pointer(b, from, &origin), self.buffer_pointer(b, to, &origin));
        let bytes = b.int(Ty::I64, bytes as i64);
        b.effect_with("llvm.intr.memcpy", &[target, source, bytes], &[("isVolatile", "false")]);
    }
}

impl CpuEmit for For {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let ends = [self.low, self.high, self.step].map(|value| host.scalar(value));
        let (low, (count, step)) = (ends[0], LoopRange::of(self, ends).trip_count(b));
        let args = &self.body.args[1..];
        host.copy_tiles(b, &self.inits, args, None);
        let inits = host.scalars_of(&self.inits);
        let (zero, one) = (b.int(Ty::I64, 0), b.int(Ty::I64, 1));
        let results = b.for_range([zero, count, one], &inits, |b, index, carried| {
            host.scope(|host| {
                let variable = loop_variable(b, index, low, step);
                host.define(self.body.args[0], variable);
                host.define_scalars(args, carried);
                // The last iteration prefetches its own operands: there may be nothing where a next one would load indices.
                let next_index = b.add(index, one);
                let exists = b.icmp(IntPredicate::Slt, next_index, count);
                let next_index = b.select(exists, next_index, index);
                let next = loop_variable(b, next_index, low, step);
                host.induction_variables.push((self.body.args[0], next));
                host.block(b, &self.body);
                host.induction_variables.pop();
                host.copy_tiles(b, &self.body.yields, args, Some(&op.results));
                host.scalars_of(&self.body.yields)
            })
        });
        host.copy_tiles(b, args, &op.results, None);
        host.define_scalars(&op.results, &results);
    }

    fn is_statement(&self) -> bool {
        true
    }
}

impl CpuEmit for While {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let args = &self.body.args;
        host.copy_tiles(b, &self.inits, args, None);
        let inits = host.scalars_of(&self.inits);
        let results = b.while_loop(&inits, |b, part, carried| {
            host.scope(|host| match part {
                LoopPart::Test => {
                    host.define_scalars(&self.test.args, carried);
                    host.copy_tiles(b, args, &self.test.args, None);
                    host.block(b, &self.test);
                    host.scalars_of(&self.test.yields)
                }
                LoopPart::Body => {
                    host.define_scalars(args, carried);
                    host.block(b, &self.body);
                    host.copy_tiles(b, &self.body.yields, args, Some(&op.results));
                    host.scalars_of(&self.body.yields)
                }
            })
        });
        host.copy_tiles(b, args, &op.results, None);
        host.define_scalars(&op.results, &results);
    }

    fn is_statement(&self) -> bool {
        true
    }
}

impl CpuEmit for If {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let condition = host.scalar(self.condition);
        let scalars: Vec<Value> = op.results.iter().copied().filter(|&value| !host.is_tile(value)).collect();
        let types: Vec<Ty> = scalars.iter().map(|&value| host.elem_type(b, value)).collect();
        let results = b.branch(condition, &types, |b, arm| {
            host.scope(|host| {
                let block = match arm {
                    BranchArm::Then => &self.then,
                    BranchArm::Else => &self.otherwise,
                };
                host.block(b, block);
                host.copy_tiles(b, &block.yields, &op.results, None);
                host.scalars_of(&block.yields)
            })
        });
        host.define_scalars(&op.results, &results);
    }

    fn is_statement(&self) -> bool {
        true
    }
}
