//! Vectors of rows that begin anywhere (`analysis/rotate`).
//!
//! A vector whose elements are neighbours in memory and all take part is moved whole: by one instruction where the row was rotated
//! for it, and otherwise read as the two aligned vectors that it lies in. What is left, the ends of rows, is moved element by element
//! behind a branch that few warps take.

use super::{LoadStatement, Modifiers, StoreStatement, Words, pack, unpack};
use crate::dtype::DType;
use crate::mlir::builder::Val;
use crate::mlir::gpu::emit::opaque;
use crate::mlir::gpu::{Builder, Gpu, IntPredicate};
use crate::mlir::types::{Elem, Ty};
use crate::ops::{Place, Shift};
use crate::tile::Op;

/// Bytes of a word.
const WORD: u32 = 4;

/// The elements of one thread that may be moved together.
struct Vector {
    /// Where all of them begin.
    start: Val,
    /// The offset of each.
    offsets: Vec<Val>,
    /// `None` where the element is always moved.
    masks: Vec<Option<Val>>,
    /// Whether all are moved together; `None` where they always are.
    whole: Option<Val>,
    /// Whether some are moved one by one; `None` where none ever is.
    parted: Option<Val>,
}

/// The vectors of an access; what does not take part for this thread is masked off.
fn vectors(gpu: &mut Gpu, b: &mut Builder, op: &Op, place: &Place, takes_part: Option<Val>) -> Vec<Vector> {
    let dtype = gpu.func.slice(place.param).0;
    let shift = place.shift.expect("the access is of a row");
    let each = gpu.addresses(b, &Place { vector: 1, ..*place }, dtype);
    gpu.report(b, op, &each);
    let offsets = gpu.registers(place.offset);
    let count = place.vector as usize;
    let pieces = offsets.chunks(count).zip(each.pointers.chunks(count)).zip(each.masks.chunks(count));
    pieces
        .map(|((offsets, pointers), masks)| {
            let neighbours = neighbours(gpu, b, shift, offsets);
            let alike = masks.iter().all(|mask| mask.map(|mask| mask.id()) == masks[0].map(|mask| mask.id()));
            let own: Vec<Option<Val>> = masks.iter().map(|&mask| b.both(mask, takes_part)).collect();
            let (all, any) = if alike {
                // Aligned vectors of a row that was cut at one are moved or are not.
                (own[0], own[0])
            } else {
                (whole(b, shift, &own), any(b, shift, &own, neighbours.is_none()))
            };
            let whole = b.both(all, neighbours);
            let divided = if alike { neighbours } else { whole };
            let parted = divided.and_then(|whole| {
                let parted = b.not(whole);
                b.both(Some(parted), any)
            });
            Vector { start: pointers[0], offsets: offsets.to_vec(), masks: own, whole, parted }
        })
        .collect()
}

/// Whether numbers follow each other; `None` where they are known to.
fn neighbours(gpu: &Gpu, b: &mut Builder, shift: Shift, numbers: &[Val]) -> Option<Val> {
    let [first, last] = [numbers[0], numbers[numbers.len() - 1]];
    if let Some(&is_head) = gpu.rotated.heads.get(&first.id()) {
        return Some(b.not(is_head));
    }
    let distance = numbers.len() as i64 - 1;
    let ((from, start), (to, end)) = (gpu.displacement(first), gpu.displacement(last));
    if from.id() == to.id() && end - start == distance {
        return None;
    }
    // A part of the head could be one that is not aligned.
    if !gpu.rotated.cuts.is_empty() && (numbers.len() as u32) < shift.limit {
        return Some(b.int(Ty::I1, 0));
    }
    let found = b.sub(last, first);
    let distance = b.int(found.ty, distance);
    Some(b.icmp(IntPredicate::Eq, found, distance))
}

/// The addresses of elements, made anew where they are needed: kept from one access to the next they would take registers.
fn pointers(gpu: &mut Gpu, b: &mut Builder, place: &Place, offsets: &[Val]) -> Vec<Val> {
    let dtype = gpu.func.slice(place.param).0;
    let places: Vec<(Val, i64)> = offsets.iter().map(|&offset| gpu.displacement(offset)).collect();
    let mut made: Vec<(usize, Val)> = vec![];
    places
        .into_iter()
        .map(|(offset, constant)| {
            let known = made.iter().find(|(known, _)| *known == offset.id()).map(|(_, start)| *start);
            let start = known.unwrap_or_else(|| {
                let anew = opaque(b, offset);
                let start = gpu.addressed(b, place, dtype, anew);
                made.push((offset.id(), start));
                start
            });
            b.offset_bytes(start, constant as i32 * dtype.bytes() as i32)
        })
        .collect()
}

/// Whether all neighbours take part: if the first and the last do, where a mask lets one run of numbers through.
fn whole(b: &mut Builder, shift: Shift, masks: &[Option<Val>]) -> Option<Val> {
    let ends = [masks[0], masks[masks.len() - 1]];
    let asked = if shift.interval { &ends[..] } else { masks };
    asked.iter().fold(None, |all, &mask| b.both(all, mask))
}

/// Whether any element takes part; `None` if one always does.
fn any(b: &mut Builder, shift: Shift, masks: &[Option<Val>], neighbours: bool) -> Option<Val> {
    let ends = [masks[0], masks[masks.len() - 1]];
    let asked = if shift.one_sided && neighbours { &ends[..] } else { masks };
    let mut found = asked[0]?;
    for &mask in &asked[1..] {
        found = b.or(found, mask?);
    }
    Some(found)
}

/// Whether any of these vectors is moved element by element.
fn any_parted(b: &mut Builder, vectors: &[Vector]) -> Option<Val> {
    let parted = vectors.iter().filter_map(|vector| vector.parted);
    parted.reduce(|one, other| b.or(one, other))
}

/// The elements of a load; those that do not take part are `other`, or 0.
pub(super) fn load(
    gpu: &mut Gpu,
    b: &mut Builder,
    op: &Op,
    place: &Place,
    other: Option<&[Val]>,
    (invariant, modifiers): (bool, Modifiers),
) -> Vec<Val> {
    let dtype = gpu.func.slice(place.param).0;
    let shift = place.shift.expect("the access is of a row");
    let count = place.vector as usize;
    let vectors = vectors(gpu, b, op, place, None);
    let wide = Read { words: Words::of(place.vector * dtype.bytes()), invariant, modifiers };
    let mut words: Vec<Vec<Val>> = vec![];
    for (i, vector) in vectors.iter().enumerate() {
        let other = other.map(|other| pack(b, &other[i * count..(i + 1) * count], dtype));
        words.push(if shift.aligned {
            wide.at(b, vector.start, vector.whole, other)
        } else {
            wide.around(b, vector.start, vector.whole, other, dtype)
        });
    }
    if let Some(any) = any_parted(b, &vectors) {
        let read = Read { words: Words::of(dtype.bytes()), invariant, modifiers };
        let parted: Vec<usize> = (0..vectors.len()).filter(|&i| vectors[i].parted.is_some()).collect();
        let kept: Vec<Val> = parted.iter().flat_map(|&i| words[i].iter().copied()).collect();
        let types: Vec<Ty> = kept.iter().map(|word| word.ty).collect();
        let by_element = |b: &mut Builder| {
            let mut all = vec![];
            for &i in &parted {
                let vector = &vectors[i];
                let pointers = pointers(gpu, b, place, &vector.offsets);
                let elements = unpack(b, &words[i], dtype, count);
                let mut found = vec![];
                for ((element, pointer), &mask) in elements.into_iter().zip(pointers).zip(&vector.masks) {
                    let mask = b.both(vector.parted, mask);
                    let before = pack(b, &[element], dtype);
                    let word = read.at(b, pointer, mask, Some(before));
                    found.push(unpack(b, &word, dtype, 1)[0]);
                }
                all.extend(pack(b, &found, dtype));
            }
            all
        };
        let moved = b.if_else(any, &types, by_element, |_| kept.clone());
        let each = moved.len() / parted.len();
        for (&i, moved) in parted.iter().zip(moved.chunks(each)) {
            words[i] = moved.to_vec();
        }
    }
    words.iter().flat_map(|words| unpack(b, words, dtype, count)).collect()
}

/// How words are read.
#[derive(Clone, Copy)]
struct Read {
    words: Words,
    invariant: bool,
    modifiers: Modifiers,
}

impl Read {
    fn at(self, b: &mut Builder, pointer: Val, mask: Option<Val>, other: Option<Vec<Val>>) -> Vec<Val> {
        let Read { words, invariant, modifiers } = self;
        LoadStatement { words, mask, other, invariant, modifiers }.emit(b, pointer)
    }

    /// From the two aligned vectors around it, of which the second is read if any of it is wanted.
    fn around(
        self,
        b: &mut Builder,
        pointer: Val,
        mask: Option<Val>,
        other: Option<Vec<Val>>,
        dtype: DType,
    ) -> Vec<Val> {
        let width = self.words.bytes;
        let address = b.convert("llvm.ptrtoint", pointer, Elem::I64);
        let address = b.trunc(address, Elem::I32);
        let (low, zero) = (b.int(Ty::I32, i64::from(width) - 1), b.int(Ty::I32, 0));
        let behind = b.and(address, low);
        let back = b.sub(zero, behind);
        let aligned = b.offset(pointer, back, 1);
        let crosses = b.icmp(IntPredicate::Ne, behind, zero);
        let second = b.both(mask, Some(crosses));
        let next = b.offset_bytes(aligned, width as i32);
        let mut words = self.at(b, aligned, mask, None);
        words.extend(self.at(b, next, second, None));
        let found = from_byte(b, &words, behind, dtype.bytes());
        let Some((mask, other)) = mask.zip(other) else { return found };
        found.into_iter().zip(other).map(|(word, other)| b.select(mask, word, other)).collect()
    }
}

/// The first half as many words from a byte on, a multiple of an element's size.
fn from_byte(b: &mut Builder, words: &[Val], byte: Val, element: u32) -> Vec<Val> {
    let count = words.len() / 2;
    let within_words = element < WORD;
    let zero = b.int(Ty::I32, 0);
    let mut window = words.to_vec();
    let mut step = count / 2;
    while step > 0 {
        let bit = b.int(Ty::I32, i64::from(WORD) * step as i64);
        let bit = b.and(byte, bit);
        let moves = b.icmp(IntPredicate::Ne, bit, zero);
        let needed = count + step - 1 + usize::from(within_words);
        window = (0..needed).map(|i| b.select(moves, window[i + step], window[i])).collect();
        step /= 2;
    }
    if within_words {
        let (low, eight) = (b.int(Ty::I32, i64::from(WORD) - 1), b.int(Ty::I32, 3));
        let within = b.and(byte, low);
        let amount = b.shl(within, eight);
        let pairs = window.windows(2).take(count);
        window = pairs.map(|pair| b.op("llvm.intr.fshr", &[pair[1], pair[0], amount], Ty::I32)).collect();
    }
    window.truncate(count);
    window
}

/// Writes the elements that take part.
pub(super) fn store(
    gpu: &mut Gpu,
    b: &mut Builder,
    op: &Op,
    place: &Place,
    (values, writer): (&[Val], Option<Val>),
    modifiers: Modifiers,
) {
    let dtype = gpu.func.slice(place.param).0;
    let count = place.vector as usize;
    let vectors = vectors(gpu, b, op, place, writer);
    for (vector, values) in vectors.iter().zip(values.chunks(count)) {
        let data = pack(b, values, dtype);
        let words = Words::of(place.vector * dtype.bytes());
        StoreStatement { words, mask: vector.whole, modifiers }.emit(b, vector.start, data);
    }
    let Some(any) = any_parted(b, &vectors) else { return };
    b.if_then(any, |b| {
        for (vector, values) in vectors.iter().zip(values.chunks(count)) {
            let Some(parted) = vector.parted else { continue };
            let pointers = pointers(gpu, b, place, &vector.offsets);
            for ((&value, pointer), &mask) in values.iter().zip(pointers).zip(&vector.masks) {
                let mask = b.both(Some(parted), mask);
                let data = pack(b, &[value], dtype);
                let words = Words::of(dtype.bytes());
                StoreStatement { words, mask, modifiers }.emit(b, pointer, data);
            }
        }
    });
}
