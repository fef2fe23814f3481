//! Counting, one element after the other.

use tile_ir::ir::Op;
use tile_ir::ops::Histogram;
use tile_ir::support::dtype::DType;

use crate::cpu::emit::nest::{load_elements, splat, store_elements};
use crate::cpu::emit::{Builder, CpuEmit, Elem, Host, Ty, Val};
use crate::mlir::IntPredicate;

impl CpuEmit for Histogram {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let counts = op.results[0];
        let bins = host.func.ty(counts).shape.clone();
        host.each(b, &bins, &mut |host, b, point| {
            let zero = b.int(Ty::I32, 0);
            let zeros = splat(b, zero, point);
            host.write_buffer(b, counts, point, zeros);
        });
        let shape = host.func.ty(self.value).shape.clone();
        host.each_element(b, &shape, &mut |host, b, point| {
            let value = host.at(b, self.value, point);
            count_in_buffer(host, b, op, value);
        });
    }

    fn is_statement(&self) -> bool {
        true
    }
}

fn count_in_buffer(host: &mut Host, b: &mut Builder, op: &Op, value: Val) {
    let bins = b.int(Ty::I32, i64::from(host.func.ty(op.results[0]).shape[0]));
    let inside = b.icmp(IntPredicate::Ult, value, bins);
    let index = b.zext(value, Elem::I64);
    let pointer = host.buffer_pointer(b, op.results[0], &[index]);
    b.if_then(inside, |b| {
        let one = b.int(Ty::I32, 1);
        let count = load_elements(b, pointer, DType::I32, 0);
        let count = b.add(count, one);
        store_elements(b, count, pointer, DType::I32);
    });
}
