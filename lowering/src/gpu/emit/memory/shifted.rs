//! Vectors of misaligned rows (`transform/rotate_rows`, `transform/read_unrotated`).
//!
//! A vector whose elements are contiguous and all active is moved whole: by one instruction where the row was rotated for it,
//! and otherwise read as the two aligned vectors around it. The rest, the ends of rows, is moved element by element behind a
//! branch that few warps take. Rows that were not rotated may end inside any vector: it is read wherever both aligned vectors
//! are inside the slice, and inactive elements are dropped.

use std::collections::HashMap;

use tile_ir::ir::{Block, Op, Value};
use tile_ir::ops::{Effect, Kind, Load, MemAccess, Operation, Shift, Store, VectorStart};
use tile_ir::support::dtype::DType;

use super::readable_range::ReadableRange;
use super::statement::{LoadStatement, Modifiers, StoreStatement};
use super::words::{VectorWords, pack, unpack};
use crate::gpu::emit::offset_address::OffsetAddress;
use crate::gpu::emit::operation::opaque;
use crate::gpu::emit::rotated_rows::RowEnd;
use crate::gpu::emit::{Asm, Builder, Gpu, IntPredicate};
use crate::mlir::builder::Val;
use crate::mlir::types::{Elem, Ty};

/// Bytes of a word.
const WORD: u32 = 4;

/// The elements of one thread that may be moved together.
struct ShiftedVector {
    /// The address of the first.
    start: OffsetAddress,
    /// The offset of each.
    offsets: Vec<Val>,
    /// `None` where the element is always moved.
    masks: Vec<Option<Val>>,
    /// The length of the active prefix, if the masks say nothing else.
    count: Option<Val>,
    /// How its offsets are computed at the ends of a row.
    end: Option<RowEnd>,
    /// Whether all are moved together; `None` where they always are.
    whole: Option<Val>,
    /// Whether some are moved one by one; `None` where none ever is.
    partial: Option<Val>,
}

impl ShiftedVector {
    /// Whether an element is moved by itself.
    fn is_active(&self, b: &mut Builder, i: usize) -> Option<Val> {
        let mask = self.count.map_or(self.masks[i], |count| {
            let index = b.int(count.ty, i as i64);
            Some(b.icmp(IntPredicate::Ult, index, count))
        });
        b.both(self.partial, mask)
    }
}

/// The vectors of an access; elements that are not `active` in this thread are masked off.
fn vectors(
    gpu: &mut Gpu,
    b: &mut Builder,
    op: &Op,
    access: &MemAccess,
    active: Option<Val>,
) -> Vec<ShiftedVector> {
    let dtype = gpu.func.slice(access.param).0;
    let shift = access.shift.expect("the access is of a row");
    let elements = gpu.addresses(b, &MemAccess { vector: 1, ..*access }, dtype);
    gpu.report(b, op, &elements);
    let offsets = gpu.registers(access.offset);
    let count = access.vector as usize;
    let readable_range = (shift.start == VectorStart::Unrotated).then(|| ReadableRange::new(gpu, b, access));
    let chunks = offsets.chunks(count).zip(elements.masks.chunks(count));
    chunks
        .map(|(offsets, masks)| {
            let contiguous = are_contiguous(gpu, b, shift, offsets);
            let same_mask =
                masks.iter().all(|mask| mask.map(|mask| mask.id()) == masks[0].map(|mask| mask.id()));
            let own: Vec<Option<Val>> = masks.iter().map(|&mask| b.both(mask, active)).collect();
            if let Some(readable_range) = &readable_range {
                let count = gpu.active_count(b, &own);
                let any =
                    if same_mask || count.is_some() { own[0] } else { any_active(b, shift, &own, true) };
                let start = element_address(gpu, b, access, offsets[0]);
                let first = start.pointer(b);
                let readable = readable_range.contains(b, first);
                let unreadable = b.not(readable);
                let (whole, partial) = (b.both(any, Some(readable)), b.both(any, Some(unreadable)));
                return ShiftedVector {
                    start,
                    offsets: offsets.to_vec(),
                    masks: own,
                    count,
                    end: None,
                    whole,
                    partial,
                };
            }
            if let Some(end) = gpu.facts.rows.row_ends.get(&offsets[0].id()).copied()
                && let Some(shared) = gpu.mask_besides_bound(b, offsets, masks, end.bound)
            {
                let shared = b.both(shared, active);
                let start = element_address(gpu, b, access, end.whole.offset);
                let (whole, partial) =
                    (b.both(shared, Some(end.whole.holds)), b.both(shared, Some(end.is_end)));
                let (offsets, end) = (offsets.to_vec(), Some(end));
                return ShiftedVector { start, offsets, masks: own, count: None, end, whole, partial };
            }
            let unskipped = gpu.whole_vector(offsets[0], masks[0]).filter(|_| same_mask);
            let start = element_address(gpu, b, access, unskipped.map_or(offsets[0], |whole| whole.offset));
            let (all, any) = if same_mask {
                // Aligned vectors of a row that was cut at one are moved or are not.
                (own[0], own[0])
            } else {
                (all_active(b, shift, &own), any_active(b, shift, &own, contiguous.is_none()))
            };
            let whole = b.both(all, contiguous);
            let divided = if same_mask { contiguous } else { whole };
            let partial = divided.and_then(|whole| {
                let partial = b.not(whole);
                b.both(Some(partial), any)
            });
            ShiftedVector {
                start,
                offsets: offsets.to_vec(),
                masks: own,
                count: None,
                end: None,
                whole,
                partial,
            }
        })
        .collect()
}

/// The address of the element at an offset.
fn element_address(gpu: &mut Gpu, b: &mut Builder, access: &MemAccess, offset: Val) -> OffsetAddress {
    let dtype = gpu.func.slice(access.param).0;
    let (offset, constant) = gpu.base_and_constant(offset);
    let base = gpu.address_of_element(b, access, dtype, offset);
    OffsetAddress { base, bytes: constant as i32 * dtype.bytes() as i32 }
}

/// Whether offsets are contiguous; `None` where they are known to be.
fn are_contiguous(gpu: &Gpu, b: &mut Builder, shift: Shift, offsets: &[Val]) -> Option<Val> {
    let [first, last] = [offsets[0], offsets[offsets.len() - 1]];
    if let Some(&is_head) = gpu.facts.rows.heads.get(&first.id()) {
        return Some(b.not(is_head));
    }
    let distance = offsets.len() as i64 - 1;
    let ((from, start), (to, end)) = (gpu.base_and_constant(first), gpu.base_and_constant(last));
    if from.id() == to.id() && end - start == distance {
        return None;
    }
    // A smaller vector of the head may be misaligned.
    if !gpu.facts.rows.cuts.is_empty() && (offsets.len() as u32) < shift.limit {
        return Some(b.int(Ty::I1, 0));
    }
    let found = b.sub(last, first);
    let distance = b.int(found.ty, distance);
    Some(b.icmp(IntPredicate::Eq, found, distance))
}

/// The addresses of a vector's elements and their masks, rematerialized at each use: live from one access to the next they
/// would take registers.
fn element_accesses(
    gpu: &mut Gpu,
    b: &mut Builder,
    access: &MemAccess,
    vector: &ShiftedVector,
) -> Vec<(Val, Option<Val>)> {
    let dtype = gpu.func.slice(access.param).0;
    let offsets = &vector.offsets;
    if let Some(end) = vector.end {
        let indices = end.indices(b, offsets.len());
        let elements = indices.into_iter().map(|index| {
            let below = b.icmp(IntPredicate::Slt, index, end.bound);
            (gpu.address_of_element(b, access, dtype, index), b.both(vector.partial, Some(below)))
        });
        return elements.collect();
    }
    let split: Vec<(Val, i64)> = offsets.iter().map(|&offset| gpu.base_and_constant(offset)).collect();
    let mut emitted: Vec<(usize, Val)> = vec![];
    let elements = split.into_iter().enumerate().map(|(i, (offset, constant))| {
        let known = emitted.iter().find(|(known, _)| *known == offset.id()).map(|(_, start)| *start);
        let start = known.unwrap_or_else(|| {
            let opaque = opaque(b, offset);
            let start = gpu.address_of_element(b, access, dtype, opaque);
            emitted.push((offset.id(), start));
            start
        });
        let pointer = b.offset_bytes(start, constant as i32 * dtype.bytes() as i32);
        (pointer, vector.is_active(b, i))
    });
    elements.collect()
}

/// Whether all elements are active: if the first and the last are, where a mask is an interval.
fn all_active(b: &mut Builder, shift: Shift, masks: &[Option<Val>]) -> Option<Val> {
    let ends = [masks[0], masks[masks.len() - 1]];
    let tested = if shift.interval { &ends[..] } else { masks };
    tested.iter().fold(None, |all, &mask| b.both(all, mask))
}

/// Whether any element is active; `None` if one always is.
fn any_active(b: &mut Builder, shift: Shift, masks: &[Option<Val>], contiguous: bool) -> Option<Val> {
    let ends = [masks[0], masks[masks.len() - 1]];
    let tested = if shift.one_sided && contiguous { &ends[..] } else { masks };
    let mut found = tested[0]?;
    for &mask in &tested[1..] {
        found = b.or(found, mask?);
    }
    Some(found)
}

/// Whether any of these vectors is moved element by element.
fn any_partial(b: &mut Builder, vectors: &[&ShiftedVector]) -> Option<Val> {
    let partial = vectors.iter().filter_map(|vector| vector.partial);
    partial.reduce(|one, other| b.or(one, other))
}

/// The elements of a load; inactive ones are `other`, or 0.
pub(super) fn load(gpu: &mut Gpu, b: &mut Builder, op: &Op, load: &Load) -> Vec<Val> {
    let reads = ShiftedReads::new(gpu, b, op, load);
    let (partial, rest): (Vec<usize>, Vec<usize>) =
        (0..reads.vectors.len()).partition(|&i| reads.vectors[i].partial.is_some());
    let mut words = HashMap::new();
    // All of a row is read before the branch; other slices' vectors behind it, so that they are not live across it.
    let at_once = load.access.misalignment().is_none();
    let (before, behind): (&[usize], &[usize]) = if at_once { (&rest, &[]) } else { (&[], &rest) };
    reads.read_whole(gpu, b, before, &mut words);
    reads.read_whole(gpu, b, &partial, &mut words);
    let elements = gpu.facts.rows.elements.remove(&op.results[0]).unwrap_or_else(|| {
        let beside = loads_at_same_offsets(gpu, op, load);
        let others: Vec<ShiftedReads> =
            beside.iter().map(|(op, load)| ShiftedReads::new(gpu, b, op, load)).collect();
        let all: Vec<&ShiftedReads> = std::iter::once(&reads).chain(&others).collect();
        let mut found = ShiftedReads::read_partial(&all, gpu, b, &partial).into_iter();
        let own = found.next().expect("the load is the first of them");
        gpu.facts.rows.elements.extend(beside.iter().map(|(op, _)| op.results[0]).zip(found));
        own
    });
    reads.read_whole(gpu, b, behind, &mut words);
    for (i, elements) in partial.into_iter().zip(elements) {
        let by_element = reads.vectors[i].partial.expect("it is one of those");
        let whole = &words[&i];
        let merged = elements.into_iter().zip(whole).map(|(own, &word)| b.select(by_element, own, word));
        let merged = merged.collect();
        words.insert(i, merged);
    }
    let count = load.access.vector as usize;
    (0..reads.vectors.len()).flat_map(|i| unpack(b, &words[&i], reads.dtype, count)).collect()
}

/// The loads behind this one in the same block that read other slices at the same offsets: their partial vectors are read
/// behind the same branch.
fn loads_at_same_offsets<'f>(gpu: &Gpu<'f>, op: &Op, load: &Load) -> Vec<(&'f Op, &'f Load)> {
    let mut found = vec![];
    if load.access.misalignment().is_none() || gpu.func.reports {
        return found;
    }
    let reads_same_offsets = |other: &Load| {
        let (one, two) = (&load.access, &other.access);
        let shift_of =
            |access: &MemAccess| access.shift.map(|shift| Shift { start: VectorStart::Unrotated, ..shift });
        let same = (one.offset, one.mask, one.vector) == (two.offset, two.mask, two.vector)
            && (shift_of(one), one.bounded) == (shift_of(two), two.bounded);
        let known = |value: Option<Value>| value.is_none_or(|value| gpu.values.contains_key(&value));
        same && two.misalignment().is_some()
            && other.effect() == Effect::Pure
            && known(two.base)
            && known(other.other)
    };
    fn visit<'f>(block: &'f Block, op: &Op, found: &mut Vec<(&'f Op, &'f Load)>) {
        if let Some(at) =
            block.ops.iter().position(|own| own.results == op.results && !own.results.is_empty())
        {
            found.extend(block.ops[at + 1..].iter().filter_map(|op| {
                let Kind::Load(load) = &op.kind else { return None };
                Some((op, load))
            }));
        }
        let blocks = block.ops.iter().flat_map(|op| op.kind.operation().blocks());
        blocks.for_each(|block| visit(block, op, found));
    }
    visit(&gpu.func.body, op, &mut found);
    found.retain(|(_, other)| reads_same_offsets(other));
    found
}

/// The vectors of a load.
struct ShiftedReads<'a> {
    access: &'a MemAccess,
    dtype: DType,
    vectors: Vec<ShiftedVector>,
    /// The words of inactive elements.
    others: Option<Vec<Vec<Val>>>,
    invariant: bool,
    modifiers: Modifiers,
}

impl<'a> ShiftedReads<'a> {
    fn new(gpu: &mut Gpu, b: &mut Builder, op: &Op, load: &'a Load) -> ShiftedReads<'a> {
        let (access, dtype) = (&load.access, gpu.func.slice(load.access.param).0);
        let words = VectorWords::of(access.vector * dtype.bytes());
        let modifiers = Modifiers::of_load(gpu, load, words);
        let invariant = load.effect() == Effect::Pure && !gpu.plan.uses_pdl();
        let other = load.other.map(|other| gpu.registers(other));
        let others = other
            .map(|other| other.chunks(access.vector as usize).map(|other| pack(b, other, dtype)).collect());
        let vectors = vectors(gpu, b, op, access, None);
        ShiftedReads { access, dtype, vectors, others, invariant, modifiers }
    }

    fn read(&self, elements: u32) -> ShiftedRead {
        let ShiftedReads { invariant, modifiers, .. } = *self;
        ShiftedRead { words: VectorWords::of(elements * self.dtype.bytes()), invariant, modifiers }
    }

    fn other(&self, i: usize) -> Option<Vec<Val>> {
        self.others.as_ref().map(|others| others[i].clone())
    }

    /// Reads the whole vectors among these.
    fn read_whole(&self, gpu: &Gpu, b: &mut Builder, of: &[usize], words: &mut HashMap<usize, Vec<Val>>) {
        let shift = self.access.shift.expect("the access is of a row");
        let wide = self.read(self.access.vector);
        if shift.start == VectorStart::Aligned {
            for &i in of {
                let pointer = self.vectors[i].start.pointer(b);
                words.insert(i, wide.at(b, pointer, self.vectors[i].whole, self.other(i)));
            }
            return;
        }
        let mut known = VectorDistances::new(gpu, b, self.access, self.dtype);
        for &i in of {
            let ShiftedVector { start, whole, count, .. } = self.vectors[i];
            let behind = known.of(gpu, b, &self.vectors[i]);
            let around = wide.around(b, start, whole, behind);
            let found = from_byte(b, &around, behind, self.dtype.bytes());
            let found = match (shift.start, count) {
                (VectorStart::Unrotated, Some(count)) => self.keep_prefix(b, i, &found, count),
                (VectorStart::Unrotated, None) => self.select_active(b, i, &found),
                _ => match whole.zip(self.other(i)) {
                    Some((mask, other)) => found
                        .into_iter()
                        .zip(other)
                        .map(|(word, other)| b.select(mask, word, other))
                        .collect(),
                    None => found,
                },
            };
            words.insert(i, found);
        }
    }

    /// The words of a vector with its first `count` elements, if any is active, and the others replaced.
    fn keep_prefix(&self, b: &mut Builder, i: usize, words: &[Val], count: Val) -> Vec<Val> {
        let other = self.other(i);
        let bits = b.int(Ty::I32, 8 * i64::from(self.dtype.bytes()));
        let zero = b.int(Ty::I32, 0);
        let count = self.vectors[i].whole.map_or(count, |whole| b.select(whole, count, zero));
        let end = b.mul(count, bits);
        let mut found = vec![];
        for (i, &word) in words.iter().enumerate() {
            let behind = b.int(Ty::I32, 8 * i64::from(WORD) * (i as i64 + 1));
            let dropped = b.sub(behind, end);
            let dropped = b.op("llvm.intr.smax", &[dropped, zero], Ty::I32);
            // The shift may be 32 bits or more.
            let mask = b.asm("shr.u32 $0, -1, $1;", "=r,r", &[dropped], &[Ty::I32], Asm::Pure)[0];
            let word = b.and(word, mask);
            found.push(match &other {
                Some(other) => {
                    let all = b.int(Ty::I32, -1);
                    let left = b.xor(mask, all);
                    let other = b.and(other[i], left);
                    b.or(word, other)
                }
                None => word,
            });
        }
        found
    }

    /// The words of a vector with inactive elements replaced.
    fn select_active(&self, b: &mut Builder, i: usize, words: &[Val]) -> Vec<Val> {
        let masks = &self.vectors[i].masks;
        let elements = unpack(b, words, self.dtype, masks.len());
        let others = self.other(i).map(|other| unpack(b, &other, self.dtype, masks.len()));
        let selected = elements.into_iter().enumerate().map(|(i, element)| {
            let Some(mask) = masks[i] else { return element };
            let other = others.as_ref().map_or_else(|| b.zero(element.ty), |others| others[i]);
            b.select(mask, element, other)
        });
        let selected: Vec<Val> = selected.collect();
        pack(b, &selected, self.dtype)
    }

    /// Reads the partial vectors among these element by element, of loads with the same masks.
    fn read_partial(
        all: &[&ShiftedReads],
        gpu: &mut Gpu,
        b: &mut Builder,
        of: &[usize],
    ) -> Vec<Vec<Vec<Val>>> {
        let vectors: Vec<&ShiftedVector> = of.iter().map(|&i| &all[0].vectors[i]).collect();
        let Some(any) = any_partial(b, &vectors) else { return vec![vec![]; all.len()] };
        let mut others: Vec<Vec<Val>> = vec![];
        for reads in all {
            let words = VectorWords::of(reads.access.vector * reads.dtype.bytes());
            let zero = b.zero(words.word_type());
            let zeros = || vec![zero; usize::from(words.count)];
            others.extend(of.iter().map(|&i| reads.other(i).unwrap_or_else(zeros)));
        }
        let unchanged: Vec<Val> = others.iter().flatten().copied().collect();
        let types: Vec<Ty> = unchanged.iter().map(|word| word.ty).collect();
        let by_element = |b: &mut Builder| {
            let accesses = all.iter().flat_map(|reads| of.iter().map(move |&i| (reads, i)));
            let mut found = vec![];
            for ((reads, i), others) in accesses.zip(&others) {
                let elements = element_accesses(gpu, b, reads.access, &reads.vectors[i]);
                let others = unpack(b, others, reads.dtype, elements.len());
                let mut loaded = vec![];
                for (other, (pointer, mask)) in others.into_iter().zip(elements) {
                    let other = pack(b, &[other], reads.dtype);
                    let word = reads.read(1).at(b, pointer, mask, Some(other));
                    loaded.push(unpack(b, &word, reads.dtype, 1)[0]);
                }
                found.extend(pack(b, &loaded, reads.dtype));
            }
            found
        };
        let mut loaded = b.if_else(any, &types, by_element, |_| unchanged.clone()).into_iter();
        let mut take = |words: &Vec<Val>| loaded.by_ref().take(words.len()).collect::<Vec<Val>>();
        others.chunks(of.len()).map(|of_load| of_load.iter().map(&mut take).collect()).collect()
    }
}

/// How words are read.
#[derive(Clone, Copy)]
struct ShiftedRead {
    words: VectorWords,
    invariant: bool,
    modifiers: Modifiers,
}

impl ShiftedRead {
    fn at(self, b: &mut Builder, pointer: Val, mask: Option<Val>, other: Option<Vec<Val>>) -> Vec<Val> {
        let ShiftedRead { words, invariant, modifiers } = self;
        LoadStatement { words, mask, other, invariant, modifiers }.emit(b, pointer)
    }

    /// The two aligned vectors around one that begins `behind` bytes after the first; the second is 0 unless part of it is
    /// needed.
    fn around(self, b: &mut Builder, start: OffsetAddress, mask: Option<Val>, behind: Val) -> Vec<Val> {
        let OffsetAddress { base: pointer, bytes } = start;
        let zero = b.int(Ty::I32, 0);
        let back = b.sub(zero, behind);
        let base = b.offset(pointer, back, 1);
        let aligned = b.offset_bytes(base, bytes);
        let crosses = b.icmp(IntPredicate::Ne, behind, zero);
        let second = b.both(mask, Some(crosses));
        let next = b.offset_bytes(base, bytes + self.words.bytes as i32);
        let mut words = self.at(b, aligned, mask, None);
        words.extend(self.at(b, next, second, None));
        words
    }
}

/// The bytes from aligned vectors to the vectors that begin inside them.
struct VectorDistances {
    /// The bytes of a vector less 1.
    low: Val,
    /// The one distance of all vectors, if it is known.
    same: Option<Val>,
    bytes: i64,
    /// By the base of an offset, and its constant modulo the vector.
    known: HashMap<(usize, i64), Val>,
}

impl VectorDistances {
    fn new(gpu: &Gpu, b: &mut Builder, access: &MemAccess, dtype: DType) -> VectorDistances {
        let bytes = i64::from(dtype.bytes());
        let low = b.int(Ty::I32, i64::from(access.vector) * bytes - 1);
        let same = access.misalignment().map(|elements| {
            let elements = gpu.scalar(elements);
            let pointer = b.offset(gpu.slice(access.param).pointer, elements, dtype.bytes());
            low_bits(b, pointer, low)
        });
        VectorDistances { low, same, bytes, known: HashMap::new() }
    }

    fn of(&mut self, gpu: &Gpu, b: &mut Builder, vector: &ShiftedVector) -> Val {
        if let Some(same) = self.same {
            return same;
        }
        let (offset, constant) = gpu.base_and_constant(vector.offsets[0]);
        let left = (constant * self.bytes).rem_euclid(vector.offsets.len() as i64 * self.bytes);
        *self.known.entry((offset.id(), left)).or_insert_with(|| {
            let pointer = vector.start.pointer(b);
            low_bits(b, pointer, self.low)
        })
    }
}

fn low_bits(b: &mut Builder, pointer: Val, mask: Val) -> Val {
    let address = b.convert("llvm.ptrtoint", pointer, Elem::I64);
    let address = b.trunc(address, Elem::I32);
    b.and(address, mask)
}

/// The first half as many words from a byte on, a multiple of an element's size.
fn from_byte(b: &mut Builder, words: &[Val], byte: Val, element: u32) -> Vec<Val> {
    let count = words.len() / 2;
    let within_words = element < WORD;
    let zero = b.int(Ty::I32, 0);
    let mut shifted = words.to_vec();
    let mut step = count / 2;
    while step > 0 {
        let bit = b.int(Ty::I32, i64::from(WORD) * step as i64);
        let bit = b.and(byte, bit);
        let moves = b.icmp(IntPredicate::Ne, bit, zero);
        let needed = count + step - 1 + usize::from(within_words);
        shifted = (0..needed).map(|i| b.select(moves, shifted[i + step], shifted[i])).collect();
        step /= 2;
    }
    if within_words {
        let (low, eight) = (b.int(Ty::I32, i64::from(WORD) - 1), b.int(Ty::I32, 3));
        let within = b.and(byte, low);
        let amount = b.shl(within, eight);
        let pairs = shifted.windows(2).take(count);
        shifted = pairs.map(|pair| b.op("llvm.intr.fshr", &[pair[1], pair[0], amount], Ty::I32)).collect();
    }
    shifted.truncate(count);
    shifted
}

/// Stores the active elements.
pub(super) fn store(gpu: &mut Gpu, b: &mut Builder, op: &Op, store: &Store) {
    let access = &store.access;
    let writer = gpu.writer(b, gpu.access_layout(access));
    let values = gpu.registers(store.value);
    let modifiers = Modifiers::requested(gpu, store.cache);
    let dtype = gpu.func.slice(access.param).0;
    let count = access.vector as usize;
    let vectors = vectors(gpu, b, op, access, writer);
    for (vector, values) in vectors.iter().zip(values.chunks(count)) {
        let data = pack(b, values, dtype);
        let words = VectorWords::of(access.vector * dtype.bytes());
        let pointer = vector.start.pointer(b);
        StoreStatement { words, mask: vector.whole, modifiers }.emit(b, pointer, data);
    }
    let all: Vec<&ShiftedVector> = vectors.iter().collect();
    let Some(any) = any_partial(b, &all) else { return };
    b.if_then(any, |b| {
        for (vector, values) in vectors.iter().zip(values.chunks(count)) {
            if vector.partial.is_none() {
                continue;
            }
            let elements = element_accesses(gpu, b, access, vector);
            for (&value, (pointer, mask)) in values.iter().zip(elements) {
                let data = pack(b, &[value], dtype);
                let words = VectorWords::of(dtype.bytes());
                StoreStatement { words, mask, modifiers }.emit(b, pointer, data);
            }
        }
    });
}
