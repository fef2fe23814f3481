//! Which products may be fused with sums.

use super::Builder;

impl Builder<'_> {
    /// Builds float arithmetic that is not contracted.
    pub fn without_contraction<R>(&mut self, build: impl FnOnce(&mut Self) -> R) -> R {
        let contract = std::mem::replace(&mut self.contract, self.strict);
        let result = build(self);
        self.contract = contract;
        result
    }
}
