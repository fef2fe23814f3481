//! Layout conversions: which method is chosen, and that each method maps a tile of its own coordinates to itself.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use tile_ir::ir::Shape;
use tile_ir::support::dtype::DType;

use super::layout::{blocked, shape};
use lowering::gpu::layout::smem_tile::{SmemTile, vector};
use lowering::gpu::layout::{Conversion, Coord, Layout, conversion};

/// Layouts of a shape as the compiler derives them: blocked, permuted, of a reduction's result, reshaped.
fn derived(shape: Shape) -> BoxedStrategy<Layout> {
    let rank = shape.rank();
    let reordered = (Just(shape.clone()), Just((0..rank).collect::<Vec<usize>>()).prop_shuffle());
    let permuted = reordered.prop_flat_map(|(shape, order)| {
        // Axis `order[i]` of the source becomes axis `i`.
        let mut source = vec![1; order.len()];
        for (to, &from) in order.iter().enumerate() {
            source[from] = shape[to];
        }
        blocked(Shape::new(source)).prop_map(move |layout| layout.permute(&order))
    });
    let plain = blocked(shape.clone());
    let flat = Shape::new(vec![shape.elements() as u32]);
    // Not where an odd count prevents a reshape.
    if Layout::blocked(&flat, &[0], &[0], 1, 1).reshape(&shape).is_some() {
        let target = shape.clone();
        let reshaped =
            blocked(flat).prop_map(move |layout| layout.reshape(&target).expect("the same odd counts"));
        return prop_oneof![plain, permuted, reshaped, reduced(shape)].boxed();
    }
    prop_oneof![plain, permuted, reduced(shape)].boxed()
}

/// The layouts of a reduction's result along one axis.
fn reduced(shape: Shape) -> impl Strategy<Value = Layout> {
    let axes = 0..=shape.rank();
    (Just(shape), axes, 0u32..4)
        .prop_flat_map(|(shape, axis, k)| (blocked(shape.with(axis, 1 << k)), Just(axis)))
        .prop_map(|(layout, axis)| layout.without(&[axis]))
}

/// Two layouts of one tile with as many warps.
fn pair() -> impl Strategy<Value = (Layout, Layout)> {
    shape()
        .prop_flat_map(|shape| (derived(shape.clone()), derived(shape)))
        .prop_filter("as many warps", |(from, to)| from.num_warps() == to.num_warps())
}

/// A tile of its own coordinates, register by register.
fn coordinates(layout: &Layout) -> Vec<Coord> {
    registers(layout).map(|(register, lane, warp)| layout.coord(register, lane, warp)).collect()
}

fn registers(layout: &Layout) -> impl Iterator<Item = (usize, u32, u32)> {
    let (count, warps) = (layout.register_count(), layout.num_warps());
    (0..warps).flat_map(move |warp| (0..32).flat_map(move |lane| (0..count).map(move |r| (r, lane, warp))))
}

/// The coordinates after the conversion, as its instructions move them.
fn converted(from: &Layout, to: &Layout, dtype: DType) -> Vec<Coord> {
    match conversion(from, to) {
        Conversion::Registers(sources) => {
            registers(to).map(|(register, lane, warp)| from.coord(sources[register], lane, warp)).collect()
        }
        Conversion::Shuffle(shuffle) => {
            let from = shuffle.exchanges.iter().fold(from.clone(), |from, exchange| {
                from.with_exchanged(exchange.lane_bit, exchange.register_bit)
            });
            registers(to)
                .map(|(register, lane, warp)| {
                    let (mut source, mut source_lane) = shuffle.constant[register];
                    for (bit, &(flip, lanes)) in shuffle.lane_bits.iter().enumerate() {
                        if lane >> bit & 1 == 1 {
                            source ^= flip;
                            source_lane ^= lanes;
                        }
                    }
                    // Code is emitted for these sources alone.
                    assert!(shuffle.sources(register).contains(&source));
                    assert!(
                        !shuffle.is_own(register)
                            || (source, source_lane) == (shuffle.constant[register].0, lane)
                    );
                    from.coord(source, source_lane, warp)
                })
                .collect()
        }
        Conversion::Shared => {
            let tile = SmemTile::between(from, to, dtype);
            let mut memory = vec![None; tile.elements as usize];
            for (at, coord) in accesses(from, dtype, &tile) {
                assert!(memory[at].is_none_or(|other| other == coord), "two elements at one address");
                memory[at] = Some(coord);
            }
            accesses(to, dtype, &tile)
                .into_iter()
                .map(|(at, _)| memory[at].expect("an address that was written"))
                .collect()
        }
    }
}

/// The offset in shared memory of each register of a layout, vectors as one access, and its element.
fn accesses(layout: &Layout, dtype: DType, tile: &SmemTile) -> Vec<(usize, Coord)> {
    let run = vector(layout, dtype);
    registers(layout)
        .map(|(register, lane, warp)| {
            let first = tile.offset_of(layout.coord(register / run * run, lane, warp));
            let bytes = run as u32 * dtype.bytes();
            assert_eq!(first * dtype.bytes() % bytes, 0, "an access of {bytes} bytes is aligned");
            (first as usize + register % run, layout.coord(register, lane, warp))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn a_conversion_of_coordinates_is_the_identity(
        (from, to) in pair(),
        dtype in prop::sample::select(vec![DType::I8, DType::F16, DType::F32, DType::F64]),
    ) {
        prop_assert!(converted(&from, &to, dtype) == coordinates(&to), "{} to {} of {}", from, to, dtype);
    }
}

/// A blocked layout: the order of axes, fastest first, and elements of a thread's vector.
fn blocked_in(shape: &[u32], order: &[usize], vector: u32) -> Layout {
    let reversed: Vec<usize> = order.iter().rev().copied().collect();
    Layout::blocked(&Shape::new(shape.to_vec()), order, &reversed, vector, 4)
}

/// The method of a conversion, and how much it moves.
fn check_method(from: &Layout, to: &Layout, expected: Expect) {
    let method = match conversion(from, to) {
        Conversion::Registers(sources) if sources.iter().enumerate().all(|(i, &source)| i == source) => {
            "nothing".into()
        }
        Conversion::Registers(sources) => format!("registers {sources:?}"),
        Conversion::Shuffle(shuffle) => {
            let moved = (0..shuffle.constant.len()).filter(|&r| !shuffle.is_own(r));
            let count: usize = moved.map(|r| shuffle.sources(r).len()).sum();
            let exchanges = shuffle.exchanges.len() * shuffle.constant.len() / 2;
            format!("{} shuffles for {} registers", exchanges + count, shuffle.constant.len())
        }
        Conversion::Shared => {
            format!("shared, {} bytes of f32", SmemTile::padded(from.shape(), DType::F32).elements * 4)
        }
    };
    expected.assert_eq(&format!("{from}\n{to}\n{method}\n"));
}

#[test]
fn conversions_use_the_cheapest_method() {
    let rows = blocked_in(&[32, 128], &[1, 0], 4);
    check_method(
        &rows,
        &rows,
        expect![[r#"
        reg(1@1 2@1 4@0 8@0 16@0) lane(4@1 8@1 16@1 32@1 64@1) warp(1@0 2@0)
        reg(1@1 2@1 4@0 8@0 16@0) lane(4@1 8@1 16@1 32@1 64@1) warp(1@0 2@0)
        nothing
    "#]],
    );
    // A vector more or less: lanes exchange.
    check_method(
        &rows,
        &blocked_in(&[32, 128], &[1, 0], 2),
        expect![[r#"
            reg(1@1 2@1 4@0 8@0 16@0) lane(4@1 8@1 16@1 32@1 64@1) warp(1@0 2@0)
            reg(1@1 64@1 4@0 8@0 16@0) lane(2@1 4@1 8@1 16@1 32@1) warp(1@0 2@0)
            48 shuffles for 32 registers
        "#]],
    );
    // Columns instead of rows: warps exchange.
    check_method(
        &rows,
        &blocked_in(&[32, 128], &[0, 1], 4),
        expect![[r#"
        reg(1@1 2@1 4@0 8@0 16@0) lane(4@1 8@1 16@1 32@1 64@1) warp(1@0 2@0)
        reg(1@0 2@0 16@1 32@1 64@1) lane(4@0 8@0 16@0 1@1 2@1) warp(4@1 8@1)
        shared, 16896 bytes of f32
    "#]],
    );
    // Reordered axes: the lanes that hold rows hold columns.
    let blocks = blocked_in(&[12, 96], &[1, 0], 4);
    check_method(
        &blocked_in(&[96, 12], &[0, 1], 4).permute(&[1, 0]),
        &blocks,
        expect![[r#"
        reg(1@1 2@1) lane(4@1 8@1 16@1 1@0 2@0) warp(- -) x9
        reg(1@1 2@1) lane(4@1 8@1 16@1 1@0 2@0) warp(- -) x9
        nothing
    "#]],
    );
    // A reduction's result is replicated over threads.
    let column = blocked_in(&[32, 16], &[1, 0], 1).without(&[1]);
    check_method(
        &column,
        &blocked_in(&[32], &[0], 1),
        expect![[r#"
        reg(8 16) lane(- - - - 1) warp(2 4)
        reg() lane(1 2 4 8 16) warp(- -)
        shared, 128 bytes of f32
    "#]],
    );
    check_method(
        &blocked_in(&[32], &[0], 1),
        &column,
        expect![[r#"
        reg() lane(1 2 4 8 16) warp(- -)
        reg(8 16) lane(- - - - 1) warp(2 4)
        shared, 128 bytes of f32
    "#]],
    );
}

/// Rows that a warp writes at once are a power of two apart: with padding of each row they would share banks. Two rows of
/// `f32` still do, because vectors that are read at once begin at multiples of 16 bytes.
#[test]
fn a_transposition_is_written_and_read_with_few_conflicts() {
    for (dtype, extent) in [(DType::BF16, 64), (DType::F32, 64), (DType::F32, 32), (DType::I8, 128)] {
        let shape = Shape::new([extent, extent]);
        let vector = 16 / dtype.bytes();
        let rows = Layout::of_vectors(&shape, 1, vector, 4);
        let columns = rows.permute(&[1, 0]);
        let tile = SmemTile::between(&columns, &rows, dtype);
        let (written, read) =
            (tile.wavefronts(&columns, dtype, 1), tile.wavefronts(&rows, dtype, vector as usize));
        let registers = rows.register_count() as u32;
        // Each instruction that writes moves 32 elements, and one that reads 32 vectors, 128 bytes at a time.
        assert!(written <= registers * dtype.bytes().div_ceil(2), "{dtype} of {extent}: {written}");
        assert_eq!(read, registers / vector * 4, "{dtype} of {extent}");
        let padded = SmemTile::padded(&shape, dtype);
        assert!(4 * written <= padded.wavefronts(&columns, dtype, 1), "{dtype} of {extent}: {written}");
        assert!(tile.elements < extent * (extent + 2 * vector), "{dtype} of {extent}");
    }
}
