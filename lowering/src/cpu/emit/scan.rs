//! Scans: one element after the other along the axis, vectors of them along another one where there is one.

use tile_ir::ir::Op;
use tile_ir::ops::Scan;

use crate::cpu::emit::nest::Point;
use crate::cpu::emit::{Builder, CpuEmit, Host, Ty, Val};
use crate::mlir::shared::{CombinedElement, EmitCombination};

impl CpuEmit for Scan {
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let shape = self.combination.shape(host.func).clone();
        let lines = shape.without(self.axis);
        if lines.rank() == 0 {
            scan_line(self, host, b, op, &Point::scalar());
        } else {
            host.each(b, &lines, &mut |host, b, point| scan_line(self, host, b, op, point));
        }
    }

    fn is_statement(&self) -> bool {
        true
    }
}

/// Every element at `line`, a point of the tile without the axis.
fn scan_line(scan: &Scan, host: &mut Host, b: &mut Builder, op: &Op, line: &Point) {
    let extent = i64::from(scan.combination.shape(host.func)[scan.axis]);
    let zero = b.int(Ty::I64, 0);
    let first = scan_step(scan, host, b, op, (line, zero), None);
    let bounds = [1, extent, 1].map(|bound| b.int(Ty::I64, bound));
    b.for_range(bounds, &first, |b, index, carried| {
        host.scope(|host| scan_step(scan, host, b, op, (line, index), Some(carried)))
    });
}

/// Combines element `index` of a line, in the scan's order, with those before it, and stores it.
fn scan_step(
    scan: &Scan,
    host: &mut Host,
    b: &mut Builder,
    op: &Op,
    (line, index): (&Point, Val),
    before: Option<&[Val]>,
) -> CombinedElement {
    let position = if scan.reverse {
        let last = i64::from(scan.combination.shape(host.func)[scan.axis]) - 1;
        let last = b.int(Ty::I64, last);
        b.sub(last, index)
    } else {
        index
    };
    let mut coords = line.coords.clone();
    coords.insert(scan.axis, position);
    let axis = line.axis + usize::from(line.axis >= scan.axis && line.lanes > 1);
    let point = Point { coords, axis, lanes: line.lanes };
    let own: CombinedElement =
        scan.combination.inputs.iter().map(|&input| host.at(b, input, &point)).collect();
    let element = match before {
        Some(before) => scan.combination.apply(host.func, b, before, &own),
        None => own,
    };
    for (&result, &element) in op.results.iter().zip(&element) {
        host.write_buffer(b, result, &point, element);
    }
    element
}
