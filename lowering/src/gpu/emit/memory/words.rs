//! The words that one instruction moves, and the elements in them.

use tile_ir::support::dtype::DType;

use crate::gpu::emit::{Builder, IntPredicate, statement};
use crate::mlir::builder::Val;
use crate::mlir::machine;
use crate::mlir::types::{Elem, Ty};

/// The words one instruction moves.
#[derive(Clone, Copy)]
pub(in crate::gpu::emit) struct VectorWords {
    pub(super) count: u16,
    pub(super) elem: Elem,
    pub(super) bytes: u32,
}

impl VectorWords {
    pub(in crate::gpu::emit) fn of(bytes: u32) -> VectorWords {
        let (count, elem) = match bytes {
            1 => (1, Elem::I8),
            2 => (1, Elem::I16),
            4 => (1, Elem::I32),
            8 => (2, Elem::I32),
            _ => (4, Elem::I32),
        };
        VectorWords { count, elem, bytes }
    }

    pub(super) fn ty(self) -> Ty {
        if self.count == 1 { Ty::scalar(self.elem) } else { Ty::vector(self.elem, self.count) }
    }

    /// The type of one word.
    pub(super) fn word_type(self) -> Ty {
        Ty::scalar(self.elem)
    }

    /// The register that PTX moves a word in: bytes travel in 16-bit registers.
    pub(super) fn register(self) -> (Ty, &'static str) {
        match self.elem {
            Elem::I8 | Elem::I16 => (Ty::I16, "h"),
            _ => (Ty::I32, "r"),
        }
    }

    /// `.v4.b32`
    pub(super) fn suffix(self) -> String {
        let vector = match self.count {
            1 => "",
            2 => ".v2",
            _ => ".v4",
        };
        format!("{vector}.b{}", self.elem.bits())
    }

    /// `$0`, or `{$0, $1}`; and the constraints of as many results.
    pub(super) fn results(self) -> (String, Vec<String>) {
        let (_, letter) = self.register();
        let names: Vec<String> = (0..self.count).map(|i| format!("${i}")).collect();
        let text = if self.count == 1 { names[0].clone() } else { format!("{{{}}}", names.join(", ")) };
        (text, vec![format!("={letter}"); usize::from(self.count)])
    }

    /// Loads them from `start` bytes behind an address in shared memory, ordered among other statements.
    pub(in crate::gpu::emit) fn load_shared(self, b: &mut Builder, address: Val, start: u32) -> Vec<Val> {
        let (ty, _) = self.register();
        let (target, mut constraints) = self.results();
        let text = format!("ld.shared{} {target}, [${} + {start}];", self.suffix(), self.count);
        constraints.extend(["r".into(), "~{memory}".into()]);
        statement(b, &text, &constraints.join(","), &[address], &vec![ty; usize::from(self.count)])
    }
}

/// Elements of one type as words; a `bool` is a byte of 0 or 1.
pub(in crate::gpu::emit) fn pack(b: &mut Builder, values: &[Val], dtype: DType) -> Vec<Val> {
    let values: Vec<Val> = values.iter().map(|&value| bits(b, value, dtype)).collect();
    match dtype.bytes() {
        8 => values
            .iter()
            .flat_map(|&value| {
                let words = b.bitcast(value, Ty::vector(Elem::I32, 2));
                b.unpack(words)
            })
            .collect(),
        4 => values,
        size if values.len() as u32 * size < 4 => vec![join(b, &values, size)],
        size => values.chunks(4 / size as usize).map(|chunk| join(b, chunk, size)).collect(),
    }
}

/// The element's bits as an integer of its size.
fn bits(b: &mut Builder, value: Val, dtype: DType) -> Val {
    if dtype == DType::Bool {
        b.zext(value, Elem::I8)
    } else {
        b.bitcast(value, value.ty.with(value.ty.elem.as_int()))
    }
}

/// Small integers side by side, the first in the low bits.
fn join(b: &mut Builder, values: &[Val], size: u32) -> Val {
    let elem = match values.len() as u32 * size {
        1 => return values[0],
        2 => Elem::I16,
        _ => Elem::I32,
    };
    if size == 2 && elem == Elem::I32 {
        let pair = b.pack(values);
        return b.bitcast(pair, Ty::I32);
    }
    if values.len() == 1 {
        return values[0];
    }
    let mut word = b.zext(values[0], elem);
    for (i, &value) in values.iter().enumerate().skip(1) {
        let wide = b.zext(value, elem);
        let amount = b.int(wide.ty, i as i64 * i64::from(size) * 8);
        let shifted = b.shl(wide, amount);
        word = b.or(word, shifted);
    }
    word
}

/// The inverse of [`pack`]: `count` elements.
pub(in crate::gpu::emit) fn unpack(b: &mut Builder, words: &[Val], dtype: DType, count: usize) -> Vec<Val> {
    let elem = machine::elem(dtype, b.machine);
    let size = dtype.bytes();
    if size == 8 {
        let pairs = words.chunks(2);
        return pairs
            .map(|pair| {
                let pair = b.pack(pair);
                b.bitcast(pair, Ty::scalar(elem))
            })
            .collect();
    }
    let per_word = count.div_ceil(words.len());
    let mut values = vec![];
    for &word in words {
        if size == 2 && word.ty.elem == Elem::I32 {
            let pair = b.bitcast(word, Ty::vector(elem, 2));
            let halves = b.unpack(pair);
            b.words.insert(halves[0].id(), word);
            values.extend(halves);
            continue;
        }
        for i in 0..per_word {
            let amount = b.int(word.ty, i as i64 * i64::from(size) * 8);
            let shifted = if i == 0 { word } else { b.lshr(word, amount) };
            let int = b.trunc(
                shifted,
                if size == 1 {
                    Elem::I8
                } else if size == 2 {
                    Elem::I16
                } else {
                    Elem::I32
                },
            );
            values.push(if dtype == DType::Bool {
                let zero = b.int(int.ty, 0);
                b.icmp(IntPredicate::Ne, int, zero)
            } else {
                b.bitcast(int, Ty::scalar(elem))
            });
        }
    }
    values.truncate(count);
    values
}
