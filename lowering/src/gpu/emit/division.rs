//! Emission of quotients and remainders of integers.
//!
//! Elements of a thread that one uniform value divides share what is computed of it ([`UniformDivisor`]). A run of equal quotients
//! is computed once, and so is a contiguous run of remainders: its first one plus constants.

use std::collections::{HashMap, HashSet};

use tile_ir::ir::Value;
use tile_ir::ops::Scalar;

use crate::gpu::emit::{Builder, Gpu};
use crate::mlir::builder::Val;
use crate::mlir::division::{RangedValue, UniformDivisor, divide};

impl Gpu<'_> {
    /// Returns the registers of `result`, if the operation divides integers.
    pub(super) fn divided(&mut self, b: &mut Builder, scalar: &Scalar, result: Value) -> Option<Vec<Val>> {
        if !scalar.divides_integers(self.func) {
            return None;
        }
        let [dividends, divisors] = [0, 1].map(|i| self.operands(scalar.args[i]));
        let is_tile = !self.func.ty(result).is_scalar();
        let (repeats, run) =
            if is_tile { (self.repeats(result), self.contiguous_run(result)) } else { (1, 1) };
        let step = repeats.max(run);
        let heads: Vec<(RangedValue, RangedValue)> =
            dividends.into_iter().zip(divisors).step_by(step).collect();
        let shared = self.shared_divisor(&heads).map(|divisor| UniformDivisor::new(b, divisor));
        let mut known: HashMap<[usize; 2], Val> = HashMap::new();
        let mut registers = vec![];
        for (dividend, divisor) in heads {
            let first = *known.entry([dividend.value.id(), divisor.value.id()]).or_insert_with(|| {
                let division = match &shared {
                    Some(shared) => shared.divide(b, dividend),
                    None => divide(b, dividend, divisor),
                };
                division.result(b, scalar.op.arith)
            });
            let distance = |i: usize| if run > 1 { i as i64 } else { 0 };
            registers.extend((0..step).map(|i| self.add_constant(b, first, distance(i))));
        }
        Some(registers)
    }

    fn operands(&self, value: Value) -> Vec<RangedValue> {
        let range = self.info(value).range;
        self.registers(value).iter().map(|&value| RangedValue { value, range }).collect()
    }

    /// Returns the divisor of all these divisions where a multiplier pays: for several dividends. LLVM has better ones for constants.
    fn shared_divisor(&self, divisions: &[(RangedValue, RangedValue)]) -> Option<RangedValue> {
        let (_, divisor) = *divisions.first()?;
        let is_constant = divisor.range.0 == divisor.range.1;
        let is_shared = divisions.iter().all(|(_, other)| other.value.id() == divisor.value.id());
        let dividends: HashSet<usize> = divisions.iter().map(|(dividend, _)| dividend.value.id()).collect();
        (!is_constant && is_shared && dividends.len() > 1).then_some(divisor)
    }

    /// How many consecutive registers of a tile hold elements that are one more each than the one before.
    fn contiguous_run(&self, value: Value) -> usize {
        let (layout, info) = (self.layout(value), self.info(value));
        let bits = self.func.ty(value).dtype.bytes() * 8;
        // The sums do not wrap as signed numbers.
        if info.range.0 < 0 || info.range.1 >= 1 << (bits - 1) {
            return 1;
        }
        let runs = info
            .axes
            .iter()
            .enumerate()
            .map(|(axis, info)| info.contiguity.min(u64::from(layout.thread_contiguity(axis))));
        runs.max().unwrap_or(1) as usize
    }
}
