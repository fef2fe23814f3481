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
            LineScan { scan: self, op, line: &Point::scalar() }.run(host, b);
        } else {
            host.each(b, &lines, &mut |host, b, line| LineScan { scan: self, op, line }.run(host, b));
        }
    }

    fn is_statement(&self) -> bool {
        true
    }
}

/// A scan of one line, or of as many as its point has lanes.
struct LineScan<'s> {
    scan: &'s Scan,
    op: &'s Op,
    /// A point of the tile without the axis.
    line: &'s Point,
}

impl LineScan<'_> {
    fn run(&self, host: &mut Host, b: &mut Builder) {
        let extent = i64::from(self.scan.combination.shape(host.func)[self.scan.axis]);
        let zero = b.int(Ty::I64, 0);
        let first = self.step(host, b, zero, None);
        let bounds = [1, extent, 1].map(|bound| b.int(Ty::I64, bound));
        b.for_range(bounds, &first, |b, index, carried| {
            host.scope(|host| self.step(host, b, index, Some(carried)))
        });
    }

    /// Combines element `index`, in the scan's order, with those before it, and stores it.
    fn step(&self, host: &mut Host, b: &mut Builder, index: Val, before: Option<&[Val]>) -> CombinedElement {
        let Scan { combination, axis, reverse } = self.scan;
        let position = if *reverse {
            let last = i64::from(combination.shape(host.func)[*axis]) - 1;
            let last = b.int(Ty::I64, last);
            b.sub(last, index)
        } else {
            index
        };
        let point = self.point(position);
        let own: CombinedElement =
            combination.inputs.iter().map(|&input| host.at(b, input, &point)).collect();
        let element = match before {
            Some(before) => combination.apply(host.func, b, before, &own),
            None => own,
        };
        for (&result, &element) in self.op.results.iter().zip(&element) {
            host.write_buffer(b, result, &point, element);
        }
        element
    }

    /// The point of the tile at a position of the line.
    fn point(&self, position: Val) -> Point {
        let Point { coords, axis, lanes } = self.line;
        let mut coords = coords.clone();
        coords.insert(self.scan.axis, position);
        let axis = axis + usize::from(*axis >= self.scan.axis && *lanes > 1);
        Point { coords, axis, lanes: *lanes }
    }
}
