//! Layouts, on every tile small enough to enumerate: each element has a position.

use std::collections::HashMap;

use proptest::prelude::*;
use tile_ir::ir::Shape;

use lowering::gpu::layout::{Conversion, Coord, Layout, conversion};

/// Extents of a power of two times an odd number.
fn extent() -> impl Strategy<Value = u32> {
    (0u32..6, prop::sample::select(vec![1u32, 1, 1, 3, 5])).prop_map(|(k, odd)| odd << k)
}

pub fn shape() -> impl Strategy<Value = Shape> {
    prop::collection::vec(extent(), 1..=3)
        .prop_filter("small", |extents| extents.iter().product::<u32>() <= 4096)
        .prop_map(Shape::new)
}

pub fn blocked(shape: Shape) -> impl Strategy<Value = Layout> {
    let axes: Vec<usize> = (0..shape.rank()).collect();
    let order = Just(axes.clone()).prop_shuffle();
    let warps = Just(axes).prop_shuffle();
    let num_warps = (0u32..4, prop::sample::select(vec![1u32, 1, 3])).prop_map(|(k, odd)| odd << k);
    (order, warps, 0u32..4, num_warps).prop_map(move |(order, warp_order, vector, num_warps)| {
        Layout::blocked(&shape, &order, &warp_order, 1 << vector, num_warps)
    })
}

fn layout() -> impl Strategy<Value = Layout> {
    shape().prop_flat_map(blocked)
}

/// Checks the law of layouts: every element has a position, and as many as the replicated bits give.
pub fn check_covers(layout: &Layout) -> Result<(), TestCaseError> {
    let mut places: HashMap<Coord, u32> = HashMap::new();
    for register in 0..layout.register_count() {
        for lane in 0..32 {
            for warp in 0..layout.num_warps() {
                let coord = layout.coord(register, lane, warp);
                for axis in 0..layout.shape().rank() {
                    prop_assert!(coord.get(axis) < layout.shape()[axis], "{layout}: {coord:?}");
                }
                *places.entry(coord).or_default() += 1;
            }
        }
    }
    prop_assert_eq!(places.len() as u64, layout.shape().elements(), "{}", layout);
    let idle = [layout.lane_bases(), layout.warp_bases()].concat();
    let sets = if layout.set_axis().is_none() { layout.sets() } else { 1 };
    let replicas = sets << idle.into_iter().filter(|basis| *basis == Coord::ZERO).count();
    prop_assert!(places.values().all(|&count| count == replicas), "{layout}");
    // One of them writes: the one whose replicated bits are 0.
    let mut writers: HashMap<Coord, u32> = HashMap::new();
    let warps = (0..layout.num_warps()).filter(|warp| warp & layout.replicated_warps() == 0);
    for (warp, lane) in warps.flat_map(|warp| (0..32).map(move |lane| (warp, lane))) {
        if lane & layout.replicated_lanes() == 0 {
            for register in 0..layout.register_count() {
                *writers.entry(layout.coord(register, lane, warp)).or_default() += 1;
            }
        }
    }
    prop_assert!(writers.len() == places.len() && writers.values().all(|&count| count == 1), "{layout}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_element_has_a_position(layout in layout()) {
        check_covers(&layout)?;
    }

    #[test]
    fn layouts_for_scans_cover_their_tiles(shape in shape(), axes in (0usize..3, 0usize..3), vector in 0u32..4, warps in 0u32..5) {
        let (fast, axis) = (axes.0 % shape.rank(), axes.1 % shape.rank());
        if fast != axis {
            check_covers(&Layout::for_scan(&shape, fast, axis, 1 << vector, 1 << warps))?;
        }
    }

    #[test]
    fn derived_layouts_cover_their_tiles(layout in layout(), axis in 0usize..3) {
        let rank = layout.shape().rank();
        let axis = axis % rank;
        check_covers(&layout.expand(axis))?;
        prop_assert_eq!(&layout.expand(axis).without(&[axis]), &layout);
        if rank > 1 {
            check_covers(&layout.without(&[axis]))?;
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.rotate_left(axis);
        check_covers(&layout.permute(&order))?;
        let single = Shape::new((0..rank).map(|a| if a == axis { 1 } else { layout.shape()[a] }).collect::<Vec<_>>());
        check_covers(&layout.before_broadcast(&single))?;
        let flat = Shape::new(vec![layout.shape().elements() as u32]);
        if let Some(flattened) = layout.reshape(&flat) {
            check_covers(&flattened)?;
            prop_assert_eq!(flattened.reshape(layout.shape()), Some(layout));
        }
    }

    #[test]
    fn a_layout_needs_no_conversion_to_itself(layout in layout()) {
        let identity: Vec<usize> = (0..layout.register_count()).collect();
        prop_assert_eq!(conversion(&layout, &layout), Conversion::Registers(identity));
    }
}
