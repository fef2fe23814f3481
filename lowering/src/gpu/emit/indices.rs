//! Indices as a base plus a constant, which goes into an instruction's offset instead of a register.

use crate::gpu::emit::{Builder, Gpu};
use crate::mlir::builder::Val;

/// How two indices become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum IndexJoin {
    Sum,
    Difference,
}

impl Gpu<'_> {
    /// `base + constant`, recorded for [`Gpu::base_and_constant`].
    pub(super) fn add_constant(&mut self, b: &mut Builder, base: Val, constant: i64) -> Val {
        if constant == 0 {
            return base;
        }
        let amount = b.int(base.ty, constant);
        let value = b.add_nsw(base, amount);
        self.facts.constant_offsets.insert(value.id(), (base, constant));
        value
    }

    /// A value as a base plus a constant.
    pub(super) fn base_and_constant(&self, value: Val) -> (Val, i64) {
        self.facts.constant_offsets.get(&value.id()).copied().unwrap_or((value, 0))
    }

    /// The base that all these indices share, and a constant for each.
    pub(super) fn constants_beside_one_base(
        &self,
        values: impl Iterator<Item = Val>,
    ) -> Option<(Val, Vec<i64>)> {
        let (bases, constants): (Vec<Val>, Vec<i64>) =
            values.map(|value| self.base_and_constant(value)).unzip();
        bases.iter().all(|base| base.id() == bases[0].id()).then(|| (bases[0], constants))
    }

    /// The sum of two indices, or their difference; their constants stay constants.
    pub(super) fn join_indices(&mut self, b: &mut Builder, join: IndexJoin, left: Val, right: Val) -> Val {
        let ((x, p), (y, q)) = (self.base_and_constant(left), self.base_and_constant(right));
        let key = (join, x.id(), y.id());
        let known = self.cse.find(|scope| scope.indices.get(&key));
        let base = known.unwrap_or_else(|| {
            let base = match join {
                IndexJoin::Sum => b.add_nsw(x, y),
                IndexJoin::Difference => b.sub_nsw(x, y),
            };
            self.cse.innermost().indices.insert(key, base);
            base
        });
        let index = self.add_constant(b, base, if join == IndexJoin::Sum { p + q } else { p - q });
        if let Some(&is_head) =
            self.facts.rows.heads.get(&left.id()).or_else(|| self.facts.rows.heads.get(&right.id()))
        {
            self.facts.rows.heads.insert(index.id(), is_head);
        }
        index
    }
}
