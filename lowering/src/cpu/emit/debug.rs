//! Assertions and output of a debug build, element after element in row-major order.

use tile_ir::ir::Op;
use tile_ir::ops::{Assert, Print};

use crate::cpu::emit::nest::{Point, flat_index, store_elements};
use crate::cpu::emit::{AccessFlags, Builder, CpuEmit, Host, Ty, Val, report};

impl CpuEmit for Assert {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let shape = host.func.ty(self.holds).shape.clone();
        if shape.rank() == 0 {
            let holds = host.scalar(self.holds);
            let failed = b.not(holds);
            let index = b.int(Ty::I64, 0);
            b.if_then(failed, |b| host.fail(b, op, index, 1));
            return;
        }
        host.each_in_order(b, &shape, &mut |host, b, point| {
            let holds = host.at(b, self.holds, point);
            let failed = b.not(holds);
            let first = flat_index(b, &shape, &point.coords);
            if point.lanes == 1 {
                b.if_then(failed, |b| host.fail(b, op, first, shape.elements()));
                return;
            }
            let any = b.op("llvm.intr.vector.reduce.or", &[failed], Ty::I1);
            b.if_then(any, |b| {
                b.for_lanes(point.lanes, &[], |b, lane, _| {
                    let own = b.extract_at(failed, lane);
                    let lane = b.zext(lane, crate::cpu::emit::Elem::I64);
                    let index = b.add(first, lane);
                    b.if_then(own, |b| host.fail(b, op, index, shape.elements()));
                    vec![]
                });
            });
        });
    }

    fn is_statement(&self) -> bool {
        true
    }
}

impl Host<'_> {
    fn fail(&self, b: &mut Builder, op: &Op, index: Val, elements: u64) {
        let record = self.record.expect("code with an assertion has a record");
        let length = b.int(Ty::I64, elements as i64);
        let element = report::ReportedElement { index, length, program: self.program };
        element.write(b, record, self.func, op);
    }
}

impl CpuEmit for Print {
    fn run(&self, host: &mut Host, b: &mut Builder, _: &Op) {
        let shape = host.func.sites[self.site as usize].shape();
        let line = b.stack(report::LINE_WORDS + self.values.len() as u32);
        if shape.rank() == 0 {
            let point = Point { coords: vec![], axis: 0, lanes: 1 };
            let index = b.int(Ty::I64, 0);
            print_element(self, host, b, &point, (line, index));
            return;
        }
        host.each_element(b, &shape, &mut |host, b, point| {
            let index = flat_index(b, &shape, &point.coords);
            print_element(self, host, b, point, (line, index));
        });
    }

    fn is_statement(&self) -> bool {
        true
    }
}

fn print_element(print: &Print, host: &mut Host, b: &mut Builder, point: &Point, (line, index): (Val, Val)) {
    let mask = print.mask.map(|mask| host.at(b, mask, point));
    let values: Vec<Val> = print.values.iter().map(|&value| host.at(b, value, point)).collect();
    let print = |b: &mut Builder| {
        let site = b.int(Ty::I32, i64::from(print.site));
        let mut words = vec![(report::LINE_SITE, site)];
        words.extend((report::LINE_PROGRAM..).step_by(4).zip(host.program));
        for (at, word) in words {
            let pointer = b.offset_bytes(line, at);
            b.store(word, pointer, AccessFlags::aligned(4));
        }
        let pointer = b.offset_bytes(line, report::LINE_INDEX);
        b.store(index, pointer, AccessFlags::aligned(8));
        for ((&value, element), at) in print.values.iter().zip(values).zip((report::LINE_VALUES..).step_by(8))
        {
            let pointer = b.offset_bytes(line, at);
            store_elements(b, element, pointer, host.dtype(value));
        }
        let record = host.record.expect("code that prints has a record");
        let pointer = b.offset_bytes(record, report::PRINT);
        let function = b.load(pointer, record.ty, AccessFlags::aligned(8));
        b.call_address(function, &[record, line]);
    };
    match mask {
        Some(mask) => b.if_then(mask, print),
        None => print(b),
    }
}
