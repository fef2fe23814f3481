//! Scans. The coordinate along the axis is a number whose bits live in registers, lanes and warps; the scan goes through
//! them from the lowest up. At each step it knows, of every run of elements passed so far, the total, and of every
//! element the combination within its own run. Longer runs put an *offset* before elements instead of combining each
//! one at once: offsets add up, and every element meets its own once, at the end.

use std::collections::BTreeMap;

use crate::gpu::emit::emit::GpuEmit;
use crate::gpu::emit::reduce::{compress, load, store};
use crate::gpu::emit::{Builder, Gpu, IntPredicate, ShuffleMode};
use crate::gpu::layout::{Coord, Distributed, Layout, Segment};
use crate::ir::Op;
use crate::mlir::builder::Val;
use crate::mlir::shared::CombinedElement;
use crate::mlir::types::Ty;
use crate::ops::Scan;

/// What comes before some elements; where the condition does not hold, nothing does.
#[derive(Clone)]
struct ScanOffset {
    element: CombinedElement,
    holds: Option<Val>,
}

/// Registers whose elements are combined with those before them in the leaf, and what is before the leaf.
struct ScanLeaf {
    registers: Vec<usize>,
    offset: Option<ScanOffset>,
}

/// A run of elements along the axis, over several threads once lanes were passed.
struct ScanGroup {
    leaves: Vec<ScanLeaf>,
    total: CombinedElement,
}

/// A group's place: its coordinates along the other axes, and along the axis with the bits passed so far cleared.
type ScanGroups = BTreeMap<(Coord, u32), ScanGroup>;

fn leaves(groups: &ScanGroups) -> impl Iterator<Item = &ScanLeaf> {
    groups.values().flat_map(|group| &group.leaves)
}

/// How the totals of warps lie in shared memory: for each group and each thread that no bit passed so far tells apart,
/// those of all warps follow each other.
struct WarpTotals {
    /// Lane bits that were passed, or do not matter: of the lanes that differ in them one writes.
    alike: u32,
    /// Lane bits that tell totals apart, and warp bits beside those of the segment.
    lanes: u32,
    others: u32,
    /// Totals side by side.
    warps: u32,
}

impl WarpTotals {
    fn new(layout: &Layout, axis: usize, segment: &[u32]) -> WarpTotals {
        let first = segment.iter().map(|&bit| layout.warp_bases()[bit as usize].get(axis)).min().unwrap_or(0);
        let passed =
            layout.lane_bases().iter().enumerate().filter(|(_, basis)| (1..first).contains(&basis.get(axis)));
        let alike = passed.map(|(bit, _)| 1 << bit).sum::<u32>() | layout.replicated_lanes();
        let own: u32 = segment.iter().map(|bit| 1 << bit).sum();
        WarpTotals {
            alike,
            lanes: 31 & !alike,
            others: (layout.num_warps() - 1) & !own,
            warps: 1 << segment.len(),
        }
    }

    /// Totals of one group.
    fn slots(&self) -> u32 {
        self.warps << (self.lanes.count_ones() + self.others.count_ones())
    }
}

impl Scan {
    /// `before`, where it holds, then `element`.
    fn after(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        before: &ScanOffset,
        element: &CombinedElement,
    ) -> CombinedElement {
        let both = self.combination.apply(gpu.func, b, &before.element, element);
        match before.holds {
            None => both,
            Some(holds) => both.iter().zip(element).map(|(&both, &own)| b.select(holds, both, own)).collect(),
        }
    }

    /// `before`, then the offset there was.
    fn further(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        before: &ScanOffset,
        offset: Option<&ScanOffset>,
    ) -> ScanOffset {
        let Some(offset) = offset else { return before.clone() };
        let both = self.combination.apply(gpu.func, b, &before.element, &offset.element);
        // Where only one of the two holds it is that one.
        let with =
            |b: &mut Builder, holds: Option<Val>, yes: &CombinedElement, no: &CombinedElement| match holds {
                None => yes.clone(),
                Some(holds) => yes.iter().zip(no).map(|(&yes, &no)| b.select(holds, yes, no)).collect(),
            };
        let inner = with(b, offset.holds, &both, &before.element);
        let element = with(b, before.holds, &inner, &offset.element);
        let holds = before.holds.zip(offset.holds).map(|(one, other)| b.or(one, other));
        ScanOffset { element, holds }
    }

    /// The scan's order of a list.
    fn ordered<T>(&self, mut list: Vec<T>) -> Vec<T> {
        if self.reverse {
            list.reverse();
        }
        list
    }

    /// How many groups a thread has when the coordinate bits below `first` are passed.
    fn group_count(&self, layout: &Layout, first: u32) -> u32 {
        let mut keys: Vec<(Coord, u32)> =
            (0..layout.register_count()).map(|register| self.key(layout, register, first)).collect();
        keys.sort();
        keys.dedup();
        keys.len() as u32
    }

    fn key(&self, layout: &Layout, register: usize, first: u32) -> (Coord, u32) {
        let coord = layout.register(register);
        (coord.remove(self.axis), coord.get(self.axis) >> first << first)
    }

    /// Bytes of one input's totals in a segment of warps.
    fn total_bytes(
        &self,
        distributed: &Distributed,
        input: usize,
        groups: u32,
        exchanged: &WarpTotals,
    ) -> u32 {
        let size = distributed.func.ty(self.combination.inputs[input]).dtype.bytes();
        (groups * exchanged.slots() * size).next_multiple_of(16)
    }
}

impl GpuEmit for Scan {
    fn scratch(&self, distributed: &Distributed, _: &Op) -> u32 {
        let layout = &distributed.layouts[&self.combination.inputs[0]];
        let bytes = |segment: &Segment| match segment {
            Segment::Warps { first, warps } => {
                let exchanged = WarpTotals::new(layout, self.axis, warps);
                let groups = self.group_count(layout, *first);
                (0..self.combination.inputs.len())
                    .map(|i| self.total_bytes(distributed, i, groups, &exchanged))
                    .sum()
            }
            Segment::Registers { .. } | Segment::Lanes { .. } | Segment::Blocks { .. } => 0,
        };
        layout.segments(self.axis).iter().map(bytes).max().unwrap_or(0)
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let layout = gpu.layout(self.combination.inputs[0]).clone();
        let inputs: Vec<_> = self.combination.inputs.iter().map(|&input| gpu.registers(input)).collect();
        let mut elements: Vec<CombinedElement> = (0..layout.register_count())
            .map(|register| inputs.iter().map(|input| input[register]).collect())
            .collect();
        let mut groups: ScanGroups = (0..elements.len())
            .map(|register| {
                let leaf = ScanLeaf { registers: vec![register], offset: None };
                (
                    self.key(&layout, register, 0),
                    ScanGroup { leaves: vec![leaf], total: elements[register].clone() },
                )
            })
            .collect();
        let segments = layout.segments(self.axis);
        let mut later = None;
        for (i, segment) in segments.iter().enumerate() {
            let is_last = i + 1 == segments.len();
            match segment {
                Segment::Registers { first, bits } => {
                    groups = self.join(gpu, b, groups, first + bits, &mut elements);
                }
                Segment::Blocks { .. } => groups = self.join(gpu, b, groups, 31, &mut elements),
                Segment::Lanes { lane, bits, .. } => {
                    self.across_lanes(gpu, b, &mut groups, (*lane, *bits), is_last)
                }
                Segment::Warps { warps, .. } => {
                    let exchanged = WarpTotals::new(&layout, self.axis, warps);
                    let are_first = leaves(&groups).all(|leaf| leaf.offset.is_none());
                    let is_later = self.across_warps(gpu, b, op, &mut groups, (warps, &exchanged));
                    later = (is_last && are_first).then_some(is_later);
                }
            }
        }
        let elements = match later {
            Some(later) => self.in_later_warps(gpu, b, later, &mut groups, elements),
            None => self.behind_offsets(gpu, b, &groups, elements),
        };
        for (input, &result) in op.results.iter().enumerate() {
            gpu.define(result, elements.iter().map(|element| element[input]).collect());
        }
    }
}

impl Scan {
    /// Every element with what is before its leaf.
    fn behind_offsets(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        groups: &ScanGroups,
        mut elements: Vec<CombinedElement>,
    ) -> Vec<CombinedElement> {
        for leaf in leaves(groups) {
            let Some(offset) = &leaf.offset else { continue };
            for &register in &leaf.registers {
                elements[register] = self.after(gpu, b, offset, &elements[register]);
            }
        }
        elements
    }

    /// The same where the offsets are those of the warps before this one alone, and all hold or none does: a branch for all
    /// elements, not a selection for each.
    fn in_later_warps(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        is_later: Val,
        groups: &mut ScanGroups,
        elements: Vec<CombinedElement>,
    ) -> Vec<CombinedElement> {
        let offsets =
            groups.values_mut().flat_map(|group| &mut group.leaves).filter_map(|leaf| leaf.offset.as_mut());
        offsets.for_each(|offset| offset.holds = None);
        let flat: Vec<Val> = elements.iter().flatten().copied().collect();
        let types: Vec<Ty> = flat.iter().map(|value| value.ty).collect();
        let yes =
            |b: &mut Builder| self.behind_offsets(gpu, b, groups, elements).into_iter().flatten().collect();
        let behind = b.if_else(is_later, &types, yes, |_| flat);
        behind.chunks(self.combination.inputs.len()).map(<[Val]>::to_vec).collect()
    }

    /// Joins the groups of a thread that differ in coordinate bits below `end` alone.
    fn join(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        groups: ScanGroups,
        end: u32,
        elements: &mut [CombinedElement],
    ) -> ScanGroups {
        let mut lists: BTreeMap<(Coord, u32), Vec<ScanGroup>> = BTreeMap::new();
        for ((line, place), group) in groups {
            lists.entry((line, place >> end << end)).or_default().push(group);
        }
        lists
            .into_iter()
            .map(|(key, list)| {
                let list = self.ordered(list);
                let single = |group: &ScanGroup| matches!(group.leaves.as_slice(), [ScanLeaf { registers, offset: None }] if registers.len() == 1);
                let group =
                    if list.iter().all(single) { self.chain(gpu, b, list, elements) } else { self.offset(gpu, b, list) };
                (key, group)
            })
            .collect()
    }

    /// Single registers, each combined with the one before it.
    fn chain(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        list: Vec<ScanGroup>,
        elements: &mut [CombinedElement],
    ) -> ScanGroup {
        let registers: Vec<usize> = list.iter().flat_map(|group| group.leaves[0].registers.clone()).collect();
        for pair in registers.windows(2) {
            elements[pair[1]] = self.combination.apply(gpu.func, b, &elements[pair[0]], &elements[pair[1]]);
        }
        let total = elements[registers[registers.len() - 1]].clone();
        ScanGroup { leaves: vec![ScanLeaf { registers, offset: None }], total }
    }

    /// Runs one after the other, each with the totals of those before it as offset.
    fn offset(&self, gpu: &Gpu, b: &mut Builder, list: Vec<ScanGroup>) -> ScanGroup {
        let mut list = list.into_iter();
        let mut joined = list.next().expect("a group has members");
        for group in list {
            let before = ScanOffset { element: joined.total.clone(), holds: None };
            for leaf in group.leaves {
                let offset = self.further(gpu, b, &before, leaf.offset.as_ref());
                joined.leaves.push(ScanLeaf { offset: Some(offset), ..leaf });
            }
            joined.total = self.combination.apply(gpu.func, b, &joined.total, &group.total);
        }
        joined
    }

    /// Kogge and Stone's scan of the totals over `bits` lane bits from `lane` on.
    fn across_lanes(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        groups: &mut ScanGroups,
        (lane, bits): (u32, u32),
        is_last: bool,
    ) {
        let field = b.int(Ty::I32, i64::from(((1u32 << bits) - 1) << lane));
        let place = b.and(gpu.lane, field);
        let (zero, end) = (b.int(Ty::I32, 0), field);
        // Whether there is a lane that far before this one, and which it is.
        let before = |b: &mut Builder, distance: u32| {
            let distance = b.int(Ty::I32, i64::from(distance << lane));
            if self.reverse {
                let room = b.sub(end, place);
                (b.icmp(IntPredicate::Uge, room, distance), b.add(gpu.lane, distance))
            } else {
                (b.icmp(IntPredicate::Uge, place, distance), b.sub(gpu.lane, distance))
            }
        };
        for group in groups.values_mut() {
            for bit in 0..bits {
                let (holds, source) = before(b, 1 << bit);
                let element = read(gpu, b, &group.total, source);
                group.total = self.after(gpu, b, &ScanOffset { element, holds: Some(holds) }, &group.total);
            }
            let (holds, source) = before(b, 1);
            let offset = ScanOffset { element: read(gpu, b, &group.total, source), holds: Some(holds) };
            for leaf in &mut group.leaves {
                leaf.offset = Some(self.further(gpu, b, &offset, leaf.offset.as_ref()));
            }
            if !is_last {
                let rest = b.sub(gpu.lane, place);
                let edge = if self.reverse { zero } else { end };
                let last = b.add(rest, edge);
                group.total = read(gpu, b, &group.total, last);
            }
        }
    }

    /// Every warp writes the totals of its groups, and all read those of the warps along the axis. Gives whether there is a warp
    /// before this one.
    fn across_warps(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        op: &Op,
        groups: &mut ScanGroups,
        (warps, exchanged): (&[u32], &WarpTotals),
    ) -> Val {
        let place = gpu.smem.scratch(op.results[0]);
        let base = gpu.smem_base();
        let dtypes: Vec<_> = self.combination.inputs.iter().map(|&input| gpu.func.ty(input).dtype).collect();
        let own = warps.iter().map(|bit| 1 << bit).sum();
        let warp = compress(b, gpu.warp, own);
        let lane = compress(b, gpu.lane, exchanged.lanes);
        let other = compress(b, gpu.warp, exchanged.others);
        let lanes = b.int(Ty::I32, 1 << exchanged.lanes.count_ones());
        let row = b.mul(other, lanes);
        let row = b.add(row, lane);
        // The totals of a group's warps start here, for each input; those of group `g` lie further on.
        let mut start = place.start;
        let mut rows = vec![];
        for (input, dtype) in dtypes.iter().enumerate() {
            let pitch = b.int(Ty::I32, i64::from(exchanged.warps * dtype.bytes()));
            let offset = b.mul(row, pitch);
            let pointer = b.offset(base, offset, 1);
            rows.push(b.offset_bytes(pointer, start as i32));
            start += self.total_bytes(&gpu.plan.distributed, input, groups.len() as u32, exchanged);
        }
        let further =
            |group: usize, input: usize| (group as u32 * exchanged.slots() * dtypes[input].bytes()) as i32;
        gpu.before_write(b, place);
        let write = |b: &mut Builder| {
            for (g, group) in groups.values().enumerate() {
                for (input, &value) in group.total.iter().enumerate() {
                    let size = b.int(Ty::I32, i64::from(dtypes[input].bytes()));
                    let within = b.mul(warp, size);
                    let pointer = b.offset(rows[input], within, 1);
                    let pointer = b.offset_bytes(pointer, further(g, input));
                    let dtype = dtypes[input];
                    gpu.everywhere(b, [pointer], |b, [place]| {
                        store(b, &[value], dtype, place, dtype.bytes())
                    });
                }
            }
        };
        let writer = gpu.first_of(b, exchanged.alike, 0);
        b.guarded(writer, write);
        gpu.barrier(b);
        gpu.membar.read(place);
        let first = if self.reverse { exchanged.warps - 1 } else { 0 };
        let first = b.int(Ty::I32, i64::from(first));
        let is_later = b.icmp(IntPredicate::Ne, warp, first);
        for (g, group) in groups.values_mut().enumerate() {
            let columns: Vec<Vec<Val>> = (0..dtypes.len())
                .map(|input| {
                    let pointer = b.offset_bytes(rows[input], further(g, input));
                    load(b, pointer, dtypes[input], exchanged.warps as usize)
                })
                .collect();
            self.after_warps(gpu, b, group, &columns, (warp, is_later));
        }
        is_later
    }

    /// Puts the totals of the warps before this one before a group.
    fn after_warps(
        &self,
        gpu: &Gpu,
        b: &mut Builder,
        group: &mut ScanGroup,
        columns: &[Vec<Val>],
        (warp, is_later): (Val, Val),
    ) {
        let count = columns[0].len();
        let order = self.ordered((0..count).collect());
        let total = |w: usize| -> CombinedElement { columns.iter().map(|column| column[w]).collect() };
        let mut upto = total(order[0]);
        let mut before = upto.clone();
        for (i, &w) in order.iter().enumerate().skip(1) {
            if i > 1 {
                let number = b.int(Ty::I32, w as i64);
                let is_own = b.icmp(IntPredicate::Eq, warp, number);
                before =
                    upto.iter().zip(&before).map(|(&upto, &before)| b.select(is_own, upto, before)).collect();
            }
            upto = self.combination.apply(gpu.func, b, &upto, &total(w));
        }
        let offset = ScanOffset { element: before, holds: Some(is_later) };
        for leaf in &mut group.leaves {
            leaf.offset = Some(self.further(gpu, b, &offset, leaf.offset.as_ref()));
        }
        group.total = upto;
    }
}

/// The element that another lane holds.
fn read(gpu: &Gpu, b: &mut Builder, element: &CombinedElement, lane: Val) -> CombinedElement {
    element.iter().map(|&value| gpu.shuffle(b, value, ShuffleMode::Index, lane)).collect()
}
