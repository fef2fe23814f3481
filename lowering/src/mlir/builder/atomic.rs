//! Atomics: one operation each, or a compare-exchange loop.

use super::{Builder, IntPredicate, LoopPart, Ty, Val};

/// The operation of an `atomicrmw`, as the `llvm` dialect numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicKind {
    Exchange = 0,
    Add = 1,
    And = 3,
    Or = 5,
    Xor = 6,
    Max = 7,
    Min = 8,
    UnsignedMax = 9,
    UnsignedMin = 10,
    FloatAdd = 11,
}

/// Acquire and release.
const ACQ_REL: i64 = 6;

impl Builder<'_> {
    /// Sets a word that is 0 to 1, unless another thread was first; whether this thread did.
    pub fn claim(&mut self, word: Val) -> Val {
        const MONOTONIC: i64 = 2;
        let ordering = self.i64_attribute(MONOTONIC);
        // A load before the exchange, so that a thousand late threads do not contend for it.
        let attributes = [(self.name("alignment"), self.i64_attribute(4)), (self.name("ordering"), ordering)];
        let current = self.one("llvm.load", &[word], Ty::I32, &attributes);
        let (zero, one) = (self.int(Ty::I32, 0), self.int(Ty::I32, 1));
        let free = self.icmp(IntPredicate::Eq, current, zero);
        let exchange = |b: &mut Self| {
            let parts = [Ty::I32, Ty::I1];
            let types = parts.map(|ty| b.mlir_type(ty));
            let pair = melior::dialect::llvm::r#type::r#struct(b.context, &types, false);
            let attributes = [(b.name("success_ordering"), ordering), (b.name("failure_ordering"), ordering)];
            let raw = b.append("llvm.cmpxchg", &[word, zero, one], &[pair], &attributes, vec![])[0];
            vec![b.fields(raw, &parts)[1]]
        };
        self.if_else(free, &[Ty::I1], exchange, |b| vec![b.int(Ty::I1, 0)])[0]
    }

    /// Stores a word so that whoever reads it also finds what this thread stored before.
    pub fn publish(&mut self, value: Val, word: Val) {
        const RELEASE: i64 = 5;
        let attributes = [
            (self.name("alignment"), self.i64_attribute(4)),
            (self.name("ordering"), self.i64_attribute(RELEASE)),
        ];
        self.append("llvm.store", &[value, word], &[], &attributes, vec![]);
    }

    /// An atomic read-modify-write on the CPU; returns the old value.
    pub fn atomic(&mut self, kind: AtomicKind, pointer: Val, value: Val) -> Val {
        let attributes = [
            (self.name("bin_op"), self.i64_attribute(kind as i64)),
            (self.name("ordering"), self.i64_attribute(ACQ_REL)),
            (self.name("alignment"), self.i64_attribute(i64::from(value.ty.elem.bits() / 8))),
        ];
        self.one("llvm.atomicrmw", &[pointer, value], value.ty, &attributes)
    }

    /// An atomic compare-exchange of an integer on the CPU; returns the old value.
    pub fn compare_exchange(&mut self, pointer: Val, compare: Val, value: Val) -> Val {
        const ACQUIRE: i64 = 4;
        let parts = [value.ty, Ty::I1];
        let types = parts.map(|ty| self.mlir_type(ty));
        let pair = melior::dialect::llvm::r#type::r#struct(self.context, &types, false);
        let attributes = [
            (self.name("success_ordering"), self.i64_attribute(ACQ_REL)),
            (self.name("failure_ordering"), self.i64_attribute(ACQUIRE)),
            (self.name("alignment"), self.i64_attribute(i64::from(value.ty.elem.bits() / 8))),
        ];
        let raw = self.append("llvm.cmpxchg", &[pointer, compare, value], &[pair], &attributes, vec![])[0];
        self.fields(raw, &parts)[0]
    }

    /// Calls `exchange` with the value it expects until it finds that; `exchange` returns what it found, an integer.
    pub fn retry(&mut self, first: Val, mut exchange: impl FnMut(&mut Self, Val) -> Val) -> Val {
        let yes = self.int(Ty::I1, 1);
        self.while_loop(&[yes, first], |b, part, carried| match part {
            LoopPart::Test => vec![carried[0]],
            LoopPart::Body => {
                let found = exchange(b, carried[1]);
                let again = b.icmp(IntPredicate::Ne, found, carried[1]);
                vec![again, found]
            }
        })[1]
    }
}
