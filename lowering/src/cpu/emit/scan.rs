//! Scans: one element after the other along the axis, vectors of them along another one where there is one.

use crate::cpu::emit::nest::Point;
use crate::cpu::emit::{Builder, CpuEmit, Host, Ty, Val};
use crate::ir::Op;
use crate::mlir::shared::CombinedElement;
use crate::ops::Scan;

impl CpuEmit for Scan {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let shape = self.combination.shape(host.func).clone();
        let lines = shape.without(self.axis);
        if lines.rank() == 0 {
            self.line(host, b, op, &Point::scalar());
        } else {
            host.each(b, &lines, &mut |host, b, point| self.line(host, b, op, point));
        }
    }

    fn is_statement(&self) -> bool {
        true
    }
}

impl Scan {
    /// Every element at `line`, a point of the tile without the axis.
    fn line(&self, host: &mut Host, b: &mut Builder, op: &Op, line: &Point) {
        let extent = i64::from(self.combination.shape(host.func)[self.axis]);
        let zero = b.int(Ty::I64, 0);
        let first = self.step(host, b, op, (line, zero), None);
        let bounds = [1, extent, 1].map(|bound| b.int(Ty::I64, bound));
        b.for_range(bounds, &first, |b, index, carried| {
            host.scope(|host| self.step(host, b, op, (line, index), Some(carried)))
        });
    }

    /// Combines element `index` of a line, in the scan's order, with those before it, and stores it.
    fn step(
        &self,
        host: &mut Host,
        b: &mut Builder,
        op: &Op,
        (line, index): (&Point, Val),
        before: Option<&[Val]>,
    ) -> CombinedElement {
        let position = if self.reverse {
            let last = i64::from(self.combination.shape(host.func)[self.axis]) - 1;
            let last = b.int(Ty::I64, last);
            b.sub(last, index)
        } else {
            index
        };
        let mut coords = line.coords.clone();
        coords.insert(self.axis, position);
        let axis = line.axis + usize::from(line.axis >= self.axis && line.lanes > 1);
        let point = Point { coords, axis, lanes: line.lanes };
        let own: CombinedElement =
            self.combination.inputs.iter().map(|&input| host.at(b, input, &point)).collect();
        let element = match before {
            Some(before) => self.combination.apply(host.func, b, before, &own),
            None => own,
        };
        for (&result, &element) in op.results.iter().zip(&element) {
            host.write_buffer(b, result, &point, element);
        }
        element
    }
}
