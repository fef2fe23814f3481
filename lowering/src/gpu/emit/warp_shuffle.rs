//! Warp shuffles, and values that ptxas must take for uniform or opaque.

use crate::gpu::emit::{Builder, Gpu, statement};
use crate::gpu::layout::warpgroup::WARPGROUP_WARPS;
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};

impl Gpu<'_> {
    /// A warp-uniform value that ptxas knows to be uniform: it comes from a shuffle.
    pub(super) fn uniform(&self, b: &mut Builder, value: Val) -> Val {
        let first = b.int(Ty::I32, 0);
        self.shuffle(b, value, ShuffleMode::Index, first)
    }

    /// The same value, opaque to ptxas: a shuffle that moves nothing. ptxas takes it for divergent if the operand was.
    pub(super) fn opaque_to_ptxas(&self, b: &mut Builder, value: Val) -> Val {
        let text = "shfl.sync.idx.b32 $0, $1, $2, 31, -1;";
        statement(b, text, "=r,r,r", &[value, self.thread.lane], &[Ty::I32])[0]
    }

    /// The index of this thread's warpgroup.
    pub(super) fn warpgroup(&self, b: &mut Builder) -> Val {
        let shift = b.int(Ty::I32, i64::from(WARPGROUP_WARPS.ilog2()));
        let warpgroup = b.lshr(self.thread.warp, shift);
        self.uniform(b, warpgroup)
    }

    /// The value of another lane of the warp, bit by bit.
    pub(super) fn shuffle(&self, b: &mut Builder, value: Val, mode: ShuffleMode, lane: Val) -> Val {
        let bits = value.ty.elem.bits();
        if bits == 64 {
            let words = b.bitcast(value, Ty::vector(Elem::I32, 2));
            let halves: Vec<Val> = b.unpack(words);
            let moved: Vec<Val> = halves.into_iter().map(|word| self.shuffle(b, word, mode, lane)).collect();
            let words = b.pack(&moved);
            return b.bitcast(words, value.ty);
        }
        let word = word(b, value);
        let (all, clamp) = (b.int(Ty::I32, -1), b.int(Ty::I32, 31));
        let kind = match mode {
            ShuffleMode::Butterfly => "#nvvm<shfl_kind bfly>",
            ShuffleMode::Index => "#nvvm<shfl_kind idx>",
        };
        let moved = b.op_with("nvvm.shfl.sync", &[all, word, lane, clamp], Ty::I32, &[("kind", kind)]);
        from_word(b, moved, value.ty)
    }
}

/// The bits of a value of at most 32, and zeros.
pub(super) fn word(b: &mut Builder, value: Val) -> Val {
    let bits = b.bitcast(value, value.ty.with(value.ty.elem.as_int()));
    b.zext(bits, Elem::I32)
}

/// The value of a type whose bits are the low ones of a word.
pub(super) fn from_word(b: &mut Builder, word: Val, ty: Ty) -> Val {
    let bits = b.trunc(word, ty.elem.as_int());
    b.bitcast(bits, ty)
}

/// Which lane a shuffle reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ShuffleMode {
    /// The lane whose index differs in the given bits.
    Butterfly,
    /// The lane given.
    Index,
}
