//! Emission of scans. The bits of the coordinate along the axis belong to registers, lanes and warps; the scan takes them
//! from the lowest up. At each step it has the total of every run of elements so far, and for every element the scan
//! within its own run. Joining runs records an *offset* for the later elements instead of combining each one at once:
//! offsets are combined with each other, and every element with its own once, at the end.

use std::collections::BTreeMap;

use tile_ir::ir::Op;
use tile_ir::ops::Scan;

use crate::gpu::emit::operation::GpuEmit;
use crate::gpu::emit::reduce::{compress, load, store};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, ShuffleMode};
use crate::gpu::layout::warp_totals::{WarpTotals, group_key};
use crate::gpu::layout::{Coord, Layout, Segment};
use crate::mlir::builder::Val;
use crate::mlir::shared::{CombinedElement, EmitCombination};
use crate::mlir::types::Ty;

/// The combination of all elements before some elements; where the condition does not hold there are none.
#[derive(Clone)]
struct ScanOffset {
    element: CombinedElement,
    holds: Option<Val>,
}

/// Registers whose elements are scanned within the leaf, and the offset before the leaf.
struct ScanLeaf {
    registers: Vec<usize>,
    offset: Option<ScanOffset>,
}

/// A run of elements along the axis, over several threads once lane bits were taken.
struct ScanGroup {
    leaves: Vec<ScanLeaf>,
    total: CombinedElement,
}

impl ScanGroup {
    /// Whether it is one register that no step has changed.
    fn is_register(&self) -> bool {
        matches!(&self.leaves[..], [ScanLeaf { registers, offset: None }] if registers.len() == 1)
    }
}

/// By a group's coordinates: those along the other axes, and that along the axis with the bits taken so far cleared.
type ScanGroups = BTreeMap<(Coord, u32), ScanGroup>;

fn leaves(groups: &ScanGroups) -> impl Iterator<Item = &ScanLeaf> {
    groups.values().flat_map(|group| &group.leaves)
}

impl ScanOffset {
    /// The offset, where it holds, then `element`.
    fn before_element(
        &self,
        scan: &Scan,
        gpu: &Gpu,
        b: &mut Builder,
        element: &CombinedElement,
    ) -> CombinedElement {
        let both = scan.combination.apply(gpu.func, b, &self.element, element);
        match self.holds {
            None => both,
            Some(holds) => both.iter().zip(element).map(|(&both, &own)| b.select(holds, both, own)).collect(),
        }
    }

    /// This offset, then another, if there is one.
    fn before_offset(
        &self,
        scan: &Scan,
        gpu: &Gpu,
        b: &mut Builder,
        offset: Option<&ScanOffset>,
    ) -> ScanOffset {
        let Some(offset) = offset else { return self.clone() };
        let both = scan.combination.apply(gpu.func, b, &self.element, &offset.element);
        // Where only one of the two holds, the result is that one.
        let select =
            |b: &mut Builder, holds: Option<Val>, yes: &CombinedElement, no: &CombinedElement| match holds {
                None => yes.clone(),
                Some(holds) => yes.iter().zip(no).map(|(&yes, &no)| b.select(holds, yes, no)).collect(),
            };
        let inner = select(b, offset.holds, &both, &self.element);
        let element = select(b, self.holds, &inner, &offset.element);
        let holds = self.holds.zip(offset.holds).map(|(one, other)| b.or(one, other));
        ScanOffset { element, holds }
    }
}

/// The scan's order of a list.
fn ordered<T>(scan: &Scan, mut list: Vec<T>) -> Vec<T> {
    if scan.reverse {
        list.reverse();
    }
    list
}

/// A scan under way: what its steps so far have made of the registers.
struct ScanInProgress<'a> {
    scan: &'a Scan,
    groups: ScanGroups,
    /// The element of each register, scanned within its leaf.
    elements: Vec<CombinedElement>,
}

impl GpuEmit for Scan {
    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(self.combination.inputs[0]).clone();
        let mut progress = ScanInProgress::new(self, gpu, &layout);
        let segments = layout.segments(self.axis);
        let mut later = None;
        for (i, segment) in segments.iter().enumerate() {
            let is_last = i + 1 == segments.len();
            match segment {
                Segment::Registers { first, bits } => progress.join_groups(gpu, b, first + bits),
                Segment::Blocks { .. } => progress.join_groups(gpu, b, 31),
                Segment::Lanes { lane, bits, .. } => progress.across_lanes(gpu, b, (*lane, *bits), is_last),
                Segment::Warps { warps, .. } => {
                    // Other threads may still read the totals of an earlier segment.
                    if segments[..i].iter().any(|earlier| matches!(earlier, Segment::Warps { .. })) {
                        gpu.barrier(b);
                    }
                    let totals = WarpTotals::new(&layout, self.axis, warps);
                    let are_first = leaves(&progress.groups).all(|leaf| leaf.offset.is_none());
                    let is_later = progress.across_warps(gpu, b, op, &totals);
                    later = (is_last && are_first).then_some(is_later);
                }
            }
        }
        let elements = match later {
            Some(later) => progress.apply_offsets_in_later_warps(gpu, b, later),
            None => progress.apply_offsets(gpu, b),
        };
        for (input, &result) in op.results.iter().enumerate() {
            gpu.define(result, elements.iter().map(|element| element[input]).collect());
        }
    }
}

impl<'a> ScanInProgress<'a> {
    /// Before the first step each register is a leaf of its own.
    fn new(scan: &'a Scan, gpu: &Gpu, layout: &Layout) -> ScanInProgress<'a> {
        let inputs: Vec<_> = scan.combination.inputs.iter().map(|&input| gpu.registers(input)).collect();
        let elements: Vec<CombinedElement> = (0..layout.register_count())
            .map(|register| inputs.iter().map(|input| input[register]).collect())
            .collect();
        let groups = elements.iter().enumerate().map(|(register, element)| {
            let leaf = ScanLeaf { registers: vec![register], offset: None };
            let group = ScanGroup { leaves: vec![leaf], total: element.clone() };
            (group_key(scan, layout, register, 0), group)
        });
        ScanInProgress { scan, groups: groups.collect(), elements }
    }

    /// Every element combined with the offset of its leaf.
    fn apply_offsets(&self, gpu: &Gpu, b: &mut Builder) -> Vec<CombinedElement> {
        let mut elements = self.elements.clone();
        for leaf in leaves(&self.groups) {
            let Some(offset) = &leaf.offset else { continue };
            for &register in &leaf.registers {
                elements[register] = offset.before_element(self.scan, gpu, b, &elements[register]);
            }
        }
        elements
    }

    /// The same where the only offsets are those of the warps before this one, so that all hold or none: one branch for all
    /// elements, not a select for each.
    fn apply_offsets_in_later_warps(
        &mut self,
        gpu: &Gpu,
        b: &mut Builder,
        is_later: Val,
    ) -> Vec<CombinedElement> {
        let leaves = self.groups.values_mut().flat_map(|group| &mut group.leaves);
        leaves.filter_map(|leaf| leaf.offset.as_mut()).for_each(|offset| offset.holds = None);
        let flat: Vec<Val> = self.elements.iter().flatten().copied().collect();
        let types: Vec<Ty> = flat.iter().map(|value| value.ty).collect();
        let yes = |b: &mut Builder| self.apply_offsets(gpu, b).into_iter().flatten().collect();
        let results = b.if_else(is_later, &types, yes, |_| flat);
        results.chunks(self.scan.combination.inputs.len()).map(<[Val]>::to_vec).collect()
    }

    /// Joins the groups of a thread that differ in coordinate bits below `end` alone.
    fn join_groups(&mut self, gpu: &Gpu, b: &mut Builder, end: u32) {
        let mut lists: BTreeMap<(Coord, u32), Vec<ScanGroup>> = BTreeMap::new();
        for ((line, along), group) in std::mem::take(&mut self.groups) {
            lists.entry((line, along >> end << end)).or_default().push(group);
        }
        for (key, list) in lists {
            let list = ordered(self.scan, list);
            let group = if list.iter().all(ScanGroup::is_register) {
                self.scan_registers(gpu, b, list)
            } else {
                concatenate(self.scan, gpu, b, list)
            };
            self.groups.insert(key, group);
        }
    }

    /// A serial scan of single registers.
    fn scan_registers(&mut self, gpu: &Gpu, b: &mut Builder, list: Vec<ScanGroup>) -> ScanGroup {
        let elements = &mut self.elements;
        let registers: Vec<usize> = list.iter().flat_map(|group| group.leaves[0].registers.clone()).collect();
        for pair in registers.windows(2) {
            let combination = &self.scan.combination;
            elements[pair[1]] = combination.apply(gpu.func, b, &elements[pair[0]], &elements[pair[1]]);
        }
        let total = elements[registers[registers.len() - 1]].clone();
        ScanGroup { leaves: vec![ScanLeaf { registers, offset: None }], total }
    }

    /// Kogge and Stone's scan of the totals over `bits` lane bits from `lane` on.
    fn across_lanes(&mut self, gpu: &Gpu, b: &mut Builder, (lane, bits): (u32, u32), is_last: bool) {
        let scan = self.scan;
        let field = b.int(Ty::I32, i64::from(((1u32 << bits) - 1) << lane));
        let along = b.and(gpu.thread.lane, field);
        let (zero, end) = (b.int(Ty::I32, 0), field);
        // Whether there is a lane at that distance before this one, and its index.
        let before = |b: &mut Builder, distance: u32| {
            let distance = b.int(Ty::I32, i64::from(distance << lane));
            if scan.reverse {
                let room = b.sub(end, along);
                (b.icmp(IntPredicate::Uge, room, distance), b.add(gpu.thread.lane, distance))
            } else {
                (b.icmp(IntPredicate::Uge, along, distance), b.sub(gpu.thread.lane, distance))
            }
        };
        for group in self.groups.values_mut() {
            for bit in 0..bits {
                let (holds, source) = before(b, 1 << bit);
                let element = read(gpu, b, &group.total, source);
                let offset = ScanOffset { element, holds: Some(holds) };
                group.total = offset.before_element(scan, gpu, b, &group.total);
            }
            let (holds, source) = before(b, 1);
            let offset = ScanOffset { element: read(gpu, b, &group.total, source), holds: Some(holds) };
            for leaf in &mut group.leaves {
                leaf.offset = Some(offset.before_offset(scan, gpu, b, leaf.offset.as_ref()));
            }
            if !is_last {
                let rest = b.sub(gpu.thread.lane, along);
                let edge = if scan.reverse { zero } else { end };
                let last = b.add(rest, edge);
                group.total = read(gpu, b, &group.total, last);
            }
        }
    }

    /// Every warp writes the totals of its groups, and all read those of the warps along the axis. Returns whether there is a
    /// warp before this one.
    fn across_warps(&mut self, gpu: &mut Gpu, b: &mut Builder, op: &Op, totals: &WarpTotals) -> Val {
        let ScanInProgress { scan, groups, .. } = self;
        let scratch = gpu.scratch(op.results[0]);
        let base = gpu.smem_base();
        let dtypes: Vec<_> = scan.combination.inputs.iter().map(|&input| gpu.func.ty(input).dtype).collect();
        let warp = compress(b, gpu.thread.warp, totals.segment);
        let lane = compress(b, gpu.thread.lane, totals.lanes);
        let other = compress(b, gpu.thread.warp, totals.others);
        let lanes = b.int(Ty::I32, 1 << totals.lanes.count_ones());
        let row = b.mul(other, lanes);
        let row = b.add(row, lane);
        // The totals of the first group's warps, for each input; those of group `g` are `group_offset` further on.
        let mut start = scratch.start;
        let mut rows = vec![];
        for &dtype in &dtypes {
            let pitch = b.int(Ty::I32, i64::from(totals.warps * dtype.bytes()));
            let offset = b.mul(row, pitch);
            let pointer = b.offset(base, offset, 1);
            rows.push(b.offset_bytes(pointer, start as i32));
            start += totals.bytes(dtype, groups.len() as u32);
        }
        let group_offset =
            |group: usize, input: usize| (group as u32 * totals.slots() * dtypes[input].bytes()) as i32;
        let write = |b: &mut Builder| {
            for (g, group) in groups.values().enumerate() {
                for (input, &value) in group.total.iter().enumerate() {
                    let size = b.int(Ty::I32, i64::from(dtypes[input].bytes()));
                    let within = b.mul(warp, size);
                    let pointer = b.offset(rows[input], within, 1);
                    let pointer = b.offset_bytes(pointer, group_offset(g, input));
                    let dtype = dtypes[input];
                    gpu.for_each_cta(b, [pointer], |b, [pointer]| {
                        store(b, &[value], dtype, pointer, dtype.bytes())
                    });
                }
            }
        };
        let writer = gpu.first_of(b, totals.same_total, 0);
        b.guarded(writer, write);
        gpu.barrier(b);
        let first = if scan.reverse { totals.warps - 1 } else { 0 };
        let first = b.int(Ty::I32, i64::from(first));
        let is_later = b.icmp(IntPredicate::Ne, warp, first);
        for (g, group) in groups.values_mut().enumerate() {
            let columns: Vec<Vec<Val>> = (0..dtypes.len())
                .map(|input| {
                    let pointer = b.offset_bytes(rows[input], group_offset(g, input));
                    load(b, pointer, dtypes[input], totals.warps as usize)
                })
                .collect();
            offset_by_warps(scan, gpu, b, group, &columns, (warp, is_later));
        }
        is_later
    }
}

/// Runs one after the other, each with the totals of those before it as offset.
fn concatenate(scan: &Scan, gpu: &Gpu, b: &mut Builder, list: Vec<ScanGroup>) -> ScanGroup {
    let mut list = list.into_iter();
    let mut joined = list.next().expect("a group has members");
    for group in list {
        let before = ScanOffset { element: joined.total.clone(), holds: None };
        for leaf in group.leaves {
            let offset = before.before_offset(scan, gpu, b, leaf.offset.as_ref());
            joined.leaves.push(ScanLeaf { offset: Some(offset), ..leaf });
        }
        joined.total = scan.combination.apply(gpu.func, b, &joined.total, &group.total);
    }
    joined
}

/// Adds the totals of the warps before this one to a group's offsets.
fn offset_by_warps(
    scan: &Scan,
    gpu: &Gpu,
    b: &mut Builder,
    group: &mut ScanGroup,
    columns: &[Vec<Val>],
    (warp, is_later): (Val, Val),
) {
    let count = columns[0].len();
    let order = ordered(scan, (0..count).collect());
    let total = |w: usize| -> CombinedElement { columns.iter().map(|column| column[w]).collect() };
    let mut total_so_far = total(order[0]);
    let mut before = total_so_far.clone();
    for (i, &w) in order.iter().enumerate().skip(1) {
        if i > 1 {
            let index = b.int(Ty::I32, w as i64);
            let is_own = b.icmp(IntPredicate::Eq, warp, index);
            before = total_so_far
                .iter()
                .zip(&before)
                .map(|(&total_so_far, &before)| b.select(is_own, total_so_far, before))
                .collect();
        }
        total_so_far = scan.combination.apply(gpu.func, b, &total_so_far, &total(w));
    }
    let offset = ScanOffset { element: before, holds: Some(is_later) };
    for leaf in &mut group.leaves {
        leaf.offset = Some(offset.before_offset(scan, gpu, b, leaf.offset.as_ref()));
    }
    group.total = total_so_far;
}

/// The element that another lane holds.
fn read(gpu: &Gpu, b: &mut Builder, element: &CombinedElement, lane: Val) -> CombinedElement {
    element.iter().map(|&value| gpu.shuffle(b, value, ShuffleMode::Index, lane)).collect()
}
