//! Dots: their layouts, what a kernel with them becomes, and their results on the host.

use std::cell::Cell;
use std::collections::HashSet;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use tile_ir::ir::{Shape, Type};
use tile_ir::ops::schedule::{LineOrder, OperandTile};
use tile_ir::ops::{DotOperand, InputPrecision, Kind};
use tile_ir::support::dtype::DType;
use tile_ir::testing::func;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use super::layout::check_covers;
use super::run::{Arg, load};
use super::specialization::print;
use super::{first, ptx, ptx_of};
use lowering::backend::host_asm;
use lowering::backend::host_asm::Family;
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit::CpuPlan;
use lowering::driver::pipeline::{DisabledPasses, host_plan};
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::layout::dot::{
    DotMethod, MmaShape, WarpTiling, fma_acc_layout, method, mma_acc_layout, mma_operand_layout,
};
use lowering::gpu::layout::{Conversion, Coord, Layout, conversion};
use lowering::gpu::specialization::Gpus;
use lowering::mlir::Session;

// ---- layouts

/// The row and column that element `i` of lane `lane` has in a fragment, as the PTX manual has it.
#[derive(Clone, Copy)]
struct Documented {
    a: fn(u32, u32) -> (u32, u32),
    b: fn(u32, u32) -> (u32, u32),
    acc: fn(u32, u32) -> (u32, u32),
}

fn documented(dtype: DType) -> Documented {
    match dtype {
        DType::F64 => Documented {
            a: |lane, _| (lane >> 2, lane % 4),
            b: |lane, _| (lane % 4, lane >> 2),
            acc: |lane, i| (lane >> 2, lane % 4 * 2 + (i & 1)),
        },
        // As TF32.
        DType::F32 => Documented {
            a: |lane, i| ((lane >> 2) + 8 * (i & 1), lane % 4 + 4 * (i >> 1)),
            b: |lane, i| (lane % 4 + 4 * i, lane >> 2),
            acc: |lane, i| (if i < 2 { lane >> 2 } else { (lane >> 2) + 8 }, lane % 4 * 2 + (i & 1)),
        },
        DType::I8 => Documented {
            a: |lane, i| {
                let row = if i < 4 || (8..12).contains(&i) { lane >> 2 } else { (lane >> 2) + 8 };
                (row, lane % 4 * 4 + (i & 3) + if i >= 8 { 16 } else { 0 })
            },
            b: |lane, i| (lane % 4 * 4 + (i & 3) + if i >= 4 { 16 } else { 0 }, lane >> 2),
            acc: |lane, i| (if i < 2 { lane >> 2 } else { (lane >> 2) + 8 }, lane % 4 * 2 + (i & 1)),
        },
        _ => Documented {
            a: |lane, i| {
                let row = if i < 2 || (4..6).contains(&i) { lane >> 2 } else { (lane >> 2) + 8 };
                (row, lane % 4 * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
            },
            b: |lane, i| (lane % 4 * 2 + (i & 1) + if i >= 2 { 8 } else { 0 }, lane >> 2),
            acc: |lane, i| (if i < 2 { lane >> 2 } else { (lane >> 2) + 8 }, lane % 4 * 2 + (i & 1)),
        },
    }
}

fn instruction(dtype: DType) -> &'static MmaShape {
    match method(dtype, InputPrecision::Tf32) {
        DotMethod::Mma(instruction) => instruction,
        DotMethod::Fma => panic!("{dtype} has no instruction"),
    }
}

#[test]
fn fragments_are_those_of_the_manual() {
    for dtype in [DType::F16, DType::BF16, DType::I8, DType::F32, DType::F64] {
        let (own, manual) = (instruction(dtype), documented(dtype));
        let (rows, columns, inner) = (own.m, own.n, own.k);
        let parts = [
            (&own.a, [rows, inner], manual.a),
            (&own.b, [inner, columns], manual.b),
            (&own.acc, [rows, columns], manual.acc),
        ];
        for (fragment, shape, manual) in parts {
            let shape = Shape::new(shape);
            let lanes = Layout::of_bases(&shape, &[], fragment.lanes.map(|bit| bit.basis(2)), &[]);
            for (i, offset) in fragment.offsets(&shape).into_iter().enumerate() {
                for lane in 0..32 {
                    let coord = lanes.thread(lane, 0).xor(offset);
                    assert_eq!((coord.get(0), coord.get(1)), manual(lane, i as u32), "{dtype} {i} {lane}");
                }
            }
        }
    }
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F16, DType::I8, DType::F32, DType::F64])
}

/// Extents of a dot: M, N and K steps of the instruction.
fn extents() -> impl Strategy<Value = [u32; 3]> {
    let extent = || (0u32..7, prop::sample::select(vec![1u32, 1, 3, 5])).prop_map(|(k, odd)| odd << k);
    (extent(), extent(), 1u32..4)
        .prop_filter("small", |(m, n, _)| m * n <= 8192)
        .prop_map(|(m, n, steps)| [m, n, steps])
}

fn tilings() -> impl Strategy<Value = WarpTiling> {
    prop::sample::select(vec![WarpTiling::Square, WarpTiling::Rows])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn dot_layouts_cover_their_tiles(
        dtype in dtypes(), [m, n, steps] in extents(), batch in 0u32..3, warps in 0u32..4, tiling in tilings(),
    ) {
        let own = instruction(dtype);
        let inner = steps * own.k;
        let shape = |rows: u32, columns: u32| match batch {
            0 => Shape::new([rows, columns]),
            batch => Shape::new([1 << batch, rows, columns]),
        };
        let sum = mma_acc_layout(own, &shape(m, n), 1 << warps, tiling);
        check_covers(&sum)?;
        check_covers(&mma_operand_layout(own, DotOperand::A, &shape(m, inner), &sum))?;
        check_covers(&mma_operand_layout(own, DotOperand::B, &shape(inner, n), &sum))?;
        check_covers(&fma_acc_layout(&shape(m, n), 1 << warps, tiling))?;
    }

    /// Every element of the result is the sum of the products of its row and column, as the lanes of the manual combine
    /// them.
    #[test]
    fn fragments_agree_along_k(
        dtype in dtypes(), [m, n, steps] in extents(), warps in 0u32..4, tiling in tilings(),
    ) {
        let (own, manual) = (instruction(dtype), documented(dtype));
        let inner = steps * own.k;
        let sum = mma_acc_layout(own, &Shape::new([m, n]), 1 << warps, tiling);
        let a = mma_operand_layout(own, DotOperand::A, &Shape::new([m, inner]), &sum);
        let b = mma_operand_layout(own, DotOperand::B, &Shape::new([inner, n]), &sum);
        let offsets = [own.a.offsets(a.shape()), own.b.offsets(b.shape()), own.acc.offsets(sum.shape())];
        // The lane and element that the manual has at a position of a fragment.
        let at = |of: fn(u32, u32) -> (u32, u32), count: usize, place: (u32, u32)| {
            (0..32).flat_map(|lane| (0..count as u32).map(move |i| (lane, i))).find(|&(lane, i)| of(lane, i) == place)
        };
        let present = offsets[2].iter().collect::<HashSet<_>>().len();
        for warp in 0..1 << warps {
            for first in (0..sum.register_count()).step_by(present) {
                let tile = sum.register(first);
                for (i, &offset) in offsets[2].iter().enumerate() {
                    let lane = (first as u32 * 7 + warp * 5 + i as u32) % 32;
                    let result = tile.plus(offset).plus(sum.thread(lane, warp));
                    let (row, column) = (manual.acc)(lane, i as u32);
                    let mut summed = vec![];
                    for step in (0..inner).step_by(own.k as usize) {
                        for k in 0..own.k {
                            let (lane, i) = at(manual.a, offsets[0].len(), (row, k)).expect("a place");
                            let a = tile.set(1, step).plus(offsets[0][i as usize]).plus(a.thread(lane, warp));
                            let (lane, i) = at(manual.b, offsets[1].len(), (k, column)).expect("a place");
                            let b = tile.set(0, step).plus(offsets[1][i as usize]).plus(b.thread(lane, warp));
                            prop_assert_eq!(a.get(0), result.get(0));
                            prop_assert_eq!(b.get(1), result.get(1));
                            prop_assert_eq!(a.get(1), b.get(0));
                            summed.push(a.get(1));
                        }
                    }
                    summed.sort_unstable();
                    prop_assert_eq!(summed, (0..inner).collect::<Vec<_>>());
                }
            }
        }
    }
}

/// What was made of a dot is operand A of the next one in the registers of its accumulator, where rows stay in their
/// warps.
#[test]
fn a_result_is_operand_a_of_the_next_dot_in_registers() {
    let own = instruction(DType::BF16);
    for (rows, middle, columns, warps) in
        [(64, 64, 128, 4), (128, 64, 64, 8), (16, 32, 8, 1), (64, 48, 96, 2)]
    {
        let first = mma_acc_layout(own, &Shape::new([rows, middle]), warps, WarpTiling::Rows);
        let second = mma_acc_layout(own, &Shape::new([rows, columns]), warps, WarpTiling::Rows);
        let operand = mma_operand_layout(own, DotOperand::A, &Shape::new([rows, middle]), &second);
        assert!(matches!(conversion(&first, &operand), Conversion::Registers(_)), "{first}\n{operand}");
    }
}

/// The ldmatrix addresses of lanes are split into a thread's offset and a constant one. Eight rows of a matrix are in
/// different banks, and so are eight 16-byte chunks of a row, which eight threads copy together.
#[test]
fn operand_tiles_use_all_banks() {
    let shapes = [[64, 64], [32, 8], [128, 16], [16, 32], [64, 256], [48, 96], [8, 128], [96, 192], [24, 40]];
    let cases = shapes
        .iter()
        .flat_map(|&shape| [(shape, DType::F16, 1), (shape, DType::F32, 1), (shape, DType::F16, 0)]);
    let orders = [LineOrder::Swizzled, LineOrder::Panels];
    for ((shape, dtype, fast), order) in cases.flat_map(|case| orders.map(|order| (case, order))) {
        let ty = Type::tile(dtype, Shape::new(shape));
        let tile = OperandTile::new(&ty, fast, order);
        let piece = 16 / dtype.bytes();
        let at = |line: u32, column: u32| Coord::along(1 - fast, line).plus(Coord::along(fast, column));
        let place = |coord: Coord| {
            let (within, beyond) = tile.distance(|axis| coord.get(axis));
            within + beyond
        };
        let [lines, columns] = [shape[1 - fast], shape[fast]];
        let mut seen = HashSet::new();
        for (line, column) in
            (0..lines).flat_map(|line| (0..columns).step_by(piece as usize).map(move |c| (line, c)))
        {
            let own = place(at(line, column));
            assert!(own + 16 <= tile.bytes && own % 16 == 0 && seen.insert(own), "{shape:?} {dtype}");
            // The parts of a coordinate that has no bit twice.
            let [low, high] = [7, !7].map(|mask| at(line & mask, column & mask));
            let (within, beyond) = tile.distance(|axis| high.get(axis));
            assert_eq!((place(low) ^ within) + beyond, own, "{shape:?} {dtype} {line} {column}");
            let banks = |coords: &mut dyn Iterator<Item = Coord>| {
                coords.map(|coord| place(coord) / 16 % 8).collect::<HashSet<u32>>().len()
            };
            if line % 8 == 0 {
                assert_eq!(banks(&mut (line..line + 8).map(|line| at(line, column))), 8, "{shape:?} {dtype}");
            }
            if column % (8 * piece) == 0 && column + 8 * piece <= columns {
                let pieces = (0..8).map(|i| at(line, column + i * piece));
                assert_eq!(banks(&mut { pieces }), 8, "{shape:?} {dtype}");
            }
        }
    }
}

/// The induction variable of a loop is no dot, though it is carried beside one.
#[test]
fn an_accumulator_is_tiled_in_squares() {
    let tilings = |after: &str| {
        let source = format!(
            "#[fuse_kernel(num_warps = 8)] fn k(a: &[f16], b: &[f16], out: &mut [f32], k: i32) {{
                let (rows, cols) = (tl::arange(0, 128), tl::arange(0, 128));
                let mut sum = tl::zeros::<f32>([128, 128]);
                for start in (0..k).step_by(32) {{
                    let inner = start + tl::arange(0, 32);
                    let left = tl::load(a + rows.col() * k + inner.row());
                    sum = tl::dot(left, tl::load(b + inner.col() * 128 + cols.row()), sum);
                }}
                tl::store(out + rows.col() * 128 + cols.row(), {after});
            }}"
        );
        let (func, requests) = first(&source);
        let specializations = specializations(&func, requests).expect("bodies that fit");
        let of_warps = specializations.iter().find(|body| body.gpus != Gpus::WithWgmma);
        let plan = &of_warps.expect("a body for all GPUs").plan;
        let (dot, layouts) = (Cell::new(None), &plan.schedule.distributed.layouts);
        plan.laid_out.body.walk(&mut |op| {
            if matches!(op.kind, Kind::Dot(_)) {
                dot.set(Some(op.results[0]));
            }
        });
        let layout = &layouts[&dot.get().expect("a product")];
        layout.warp_bases().iter().map(|basis| (basis.get(0), basis.get(1))).collect::<Vec<_>>()
    };
    assert_eq!(tilings("sum"), [(32, 0), (0, 64), (64, 0)]);
    assert_eq!(tilings("sum - tl::max(sum, 1).col()"), [(16, 0), (32, 0), (64, 0)]);
}

// ---- bodies and code

const LOOP: &str = "#[fuse_kernel(num_warps = 4)]
    fn product(a: &[f16], b: &[f16], out: &mut [f32], k: i32) {
        let (rows, cols, inner) = (tl::arange(0, 32), tl::arange(0, 32), tl::arange(0, 32));
        let mut acc = tl::zeros::<f32>([32, 32]);
        for start in (0..k).step_by(32) {
            let a = tl::load(a + rows.col() * k + (start + inner).row());
            let b = tl::load(b + cols.col() * k + (start + inner).row());
            acc = tl::dot(a, tl::trans(b), acc);
        }
        tl::store(out + rows.col() * 32 + cols.row(), acc);
    }";

const CHAIN: &str = "#[fuse_kernel(num_warps = 4)]
    fn chain(q: &[bf16], k: &[bf16], v: &[bf16], out: &mut [f32], n: i32) {
        let (rows, cols) = (tl::arange(0, 64), tl::arange(0, 64));
        let q = tl::load(q + rows.col() * 64 + cols.row());
        let mut acc = tl::zeros::<f32>([64, 64]);
        for start in 0..n {
            let at = start * 4096 + rows.col() * 64 + cols.row();
            let scores = tl::dot(q, tl::trans(tl::load(k + at)));
            let p = tl::exp2(scores - tl::max(scores, 1).col());
            acc = tl::dot(p.to::<bf16>(), tl::load(v + at), acc);
        }
        tl::store(out + rows.col() * 64 + cols.row(), acc);
    }";

/// The first specialization, of copies where TMA could load as well.
fn check_body(source: &str, expected: Expect) {
    let (func, requests) = first(source);
    let disabled_passes = DisabledPasses::parse("-view_pointers").expect("the name of a pass");
    let requests = KernelRequests { disabled_passes, ..requests };
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let specializations = specializations(&func, requests).expect("bodies that fit");
    expected.assert_eq(&print(&specializations[0], &params));
}

#[test]
fn an_accumulator_stays_in_its_registers() {
    check_body(
        LOOP,
        expect![[r#"
        aligned: 4 warps, 1 programs a block, 12288 bytes shared
        kernel product(a: &[f16], b: &[f16], out: &mut [f32], %0 k: i32) {
          %1 = arange 0 : i32[32]  ; reg(1 8) lane(2 4 - - -) warp(16 -)
          %2 = arange 0 : i32[32]  ; reg(8) lane(- - 1 2 4) warp(- 16)
          %3 = arange 0 : i32[32]  ; reg(1 2 4) lane(8 16 - - -) warp(- -)
          %4 = arange 0 : i32[32]  ; reg() lane(- - 1 2 4) warp(8 16)
          %5 = constant 0.0 : f32
          %6 = splat %5 : f32[32, 32]  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@1 16@0)
          %7 = constant 0 : i32
          %8 = constant 32 : i32
          %9 = for %7..%0 step %8 carry %6 : f32[32, 32] { |%10, %11|  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@1 16@0)
            %12 = expand_dims %4 axis 1 : i32[32, 1]  ; reg() lane(- - 1@0 2@0 4@0) warp(8@0 16@0)
            %13 = splat %0 : i32[32, 1]  ; reg() lane(- - 1@0 2@0 4@0) warp(8@0 16@0)
            %14 = mul %12, %13 exact : i32[32, 1]  ; reg() lane(- - 1@0 2@0 4@0) warp(8@0 16@0)
            %15 = broadcast %14 : i32[32, 32]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 1@0 2@0 4@0) warp(8@0 16@0)
            %16 = cast %10 : i64
            %17 = expand_dims %3 axis 0 : i32[1, 32]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 - - -) warp(- -)
            %18 = broadcast %17 : i32[32, 32]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 1@0 2@0 4@0) warp(8@0 16@0)
            %19 = add %15, %18 exact : i32[32, 32]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 1@0 2@0 4@0) warp(8@0 16@0)
            %20 = load a[%16 + %19] inside vector 8 : f16[32, 32]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 1@0 2@0 4@0) warp(8@0 16@0)
            %21 = load b[%16 + %19] inside vector 8 : f16[32, 32]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 1@0 2@0 4@0) warp(8@0 16@0)
            %22 = permute %21 order [1, 0] : f16[32, 32]  ; reg(1@0 2@0 4@0) lane(8@0 16@0 1@1 2@1 4@1) warp(8@1 16@1)
            %23 = dot %20, %22 add %11 : f32[32, 32]  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@1 16@0)
            yield %23
          }
          %24 = expand_dims %2 axis 1 : i32[32, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp(- 16@0)
          %25 = splat %8 : i32[32, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp(- 16@0)
          %26 = expand_dims %1 axis 0 : i32[1, 32]  ; reg(1@1 8@1) lane(2@1 4@1 - - -) warp(16@1 -)
          %27 = broadcast %26 : i32[32, 32]  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@1 16@0)
          %28 = mul %24, %25 exact : i32[32, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp(- 16@0)
          %29 = broadcast %28 : i32[32, 32]  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@1 16@0)
          %30 = add %29, %27 exact : i32[32, 32]  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@1 16@0)
          store %9, out[%30] inside vector 2
        }
        a is 16-byte aligned
        b is 16-byte aligned
        out is 8-byte aligned
        8 divides k
        0 <= k
        31 + 32 * k <= a.len()
        31 + 31 * k <= 2147483647
        31 + 32 * k <= b.len()
        1024 <= out.len()
    "#]],
    );
}

#[test]
fn an_invariant_operand_is_converted_before_the_loop() {
    check_body(
        CHAIN,
        expect![[r#"
            aligned_wgmma: 4 warps, 1 programs a block, 74752 bytes shared
            kernel chain(q: &[bf16], k: &[bf16], v: &[bf16], out: &mut [f32], %0 n: i32) {
              %1 = arange 0 : i32[64]  ; reg(1 8 16 32) lane(2 4 - - -) warp(- -)
              %2 = arange 0 : i32[64]  ; reg(1 2 4) lane(8 16 32 - -) warp(- -)
              %3 = arange 0 : i32[64]  ; reg(8) lane(- - 1 2 4) warp(16 32)
              %4 = arange 0 : i32[64]  ; reg(16 32) lane(- - - 1 2) warp(4 8)
              %5 = expand_dims %3 axis 1 : i32[64, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp(16@0 32@0)
              %6 = expand_dims %4 axis 1 : i32[64, 1]  ; reg(16@0 32@0) lane(- - - 1@0 2@0) warp(4@0 8@0)
              %7 = constant 64 : i32
              %8 = splat %7 : i32[64, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp(16@0 32@0)
              %9 = splat %7 : i32[64, 1]  ; reg(16@0 32@0) lane(- - - 1@0 2@0) warp(4@0 8@0)
              %10 = expand_dims %1 axis 0 : i32[1, 64]  ; reg(1@1 8@1 16@1 32@1) lane(2@1 4@1 - - -) warp(- -)
              %11 = expand_dims %2 axis 0 : i32[1, 64]  ; reg(1@1 2@1 4@1) lane(8@1 16@1 32@1 - -) warp(- -)
              %12 = broadcast %10 : i32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
              %13 = broadcast %11 : i32[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
              %14 = mul %5, %8 exact : i32[64, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp(16@0 32@0)
              %15 = mul %6, %9 exact : i32[64, 1]  ; reg(16@0 32@0) lane(- - - 1@0 2@0) warp(4@0 8@0)
              %16 = broadcast %14 : i32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
              %17 = broadcast %15 : i32[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
              %18 = add %16, %12 exact : i32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
              %19 = add %17, %13 exact : i32[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
              %20 = load q[%19] inside vector 8 : bf16[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
              %21 = constant 0.0 : f32
              %22 = splat %21 : f32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
              %23 = constant 0 : i32
              %24 = constant 1 : i32
              %25 = convert_layout %20 : bf16[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
              %26 = for %23..%0 step %24 carry %22 : f32[64, 64] { |%27, %28|  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
                %29 = cast %27 : i64
                %30 = constant 4096 : i64
                %31 = mul %29, %30 : i64
                %32 = load k[%31 + %19] inside vector 8 : bf16[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
                %33 = permute %32 order [1, 0] : bf16[64, 64]  ; reg(1@0 2@0 4@0 16@1 32@1) lane(8@0 16@0 32@0 1@1 2@1) warp(4@1 8@1)
                %34 = dot %25, %33 by wgmma_rs : f32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
                %35 = reduce %34 axes [1] : f32[64] { |%36, %37|  ; reg(8) lane(- - 1 2 4) warp(16 32)
                  %38 = maximum %36, %37 : f32
                  yield %38
                }
                %39 = expand_dims %35 axis 1 : f32[64, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp(16@0 32@0)
                %40 = broadcast %39 : f32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
                %41 = sub %34, %40 : f32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
                %42 = exp2 %41 : f32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
                %43 = cast %42 : bf16[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
                %44 = load v[%31 + %19] inside vector 8 : bf16[64, 64]  ; reg(1@1 2@1 4@1 16@0 32@0) lane(8@1 16@1 32@1 1@0 2@0) warp(4@0 8@0)
                %45 = dot %43, %44 add %28 by wgmma_rs : f32[64, 64]  ; reg(1@1 8@0 8@1 16@1 32@1) lane(2@1 4@1 1@0 2@0 4@0) warp(16@0 32@0)
                yield %45
              }
              store %26, out[%18] inside vector 2
            }
            q is 16-byte aligned
            k is 16-byte aligned
            v is 16-byte aligned
            out is 8-byte aligned
            4096 <= q.len()
            4096 * n <= k.len()
            4096 * n <= v.len()
            4096 <= out.len()
        "#]],
    );
}

/// How often each of these words is in a kernel's PTX.
fn count_words(source: &str, words: &[&str]) -> String {
    count_words_on(Arch::SM_80, source, words)
}

fn count_words_on(arch: Arch, source: &str, words: &[&str]) -> String {
    let text = ptx(source, arch);
    words.iter().map(|word| format!("{} {word}\n", text.matches(word).count())).collect()
}

/// One of the loop's two barriers is between the writes and the reads of shared memory, one before the next writes.
#[test]
fn tensor_cores_multiply() {
    let words = ["mma.sync.aligned.m16n8k16", "ldmatrix", "st.shared", "bar.sync", "st.global"];
    expect![[r#"
        4 mma.sync.aligned.m16n8k16
        4 ldmatrix
        0 st.shared
        1 bar.sync
        4 st.global
    "#]]
    .assert_eq(&count_words(LOOP, &words));
    let words = ["mma.sync", "ldmatrix", "st.shared", "ld.shared.b", "bar.sync", "shfl.sync.bfly"];
    expect![[r#"
        64 mma.sync
        32 ldmatrix
        4 st.shared
        16 ld.shared.b
        2 bar.sync
        4 shfl.sync.bfly
    "#]]
    .assert_eq(&count_words(CHAIN, &words));
}

/// What tensor cores do not take is done by FMA.
#[test]
fn dots_without_tensor_cores_use_fma() {
    let source = LOOP.replace("f16", "f32");
    expect![[r#"
        512 fma.rn
        0 mma
        16 st.shared
        68 ld.shared.v4
        2 bar.sync
    "#]]
    .assert_eq(&count_words(&source, &["fma.rn", "mma", "st.shared", "ld.shared.v4", "bar.sync"]));
}

/// Rows along the elements of one FMA step are read where the async copies put them: no write, and one barrier. So are
/// elements that are copied one by one, whatever is contiguous in memory.
#[test]
fn fma_reads_what_async_copies_loaded() {
    let source = |[a, b]: [&str; 2]| {
        format!(
            "#[fuse_kernel(num_warps = 4)]
            fn product(a: &[f32], b: &[f32], out: &mut [f32], k: i32, n: i32) {{
                let (at, inner) = (tl::arange(0, 64), tl::arange(0, 16));
                let mut acc = tl::zeros::<f32>([64, 64]);
                for start in (0..k).step_by(16) {{
                    let step = start + inner;
                    let a = tl::load(a + {a});
                    let b = tl::load(b + {b});
                    acc = tl::dot(a, b, acc);
                }}
                tl::store(out + at.col() * 64 + at.row(), acc);
            }}"
        )
    };
    let counts = |name: &str, source: &str| {
        let text = ptx_of(source, Arch::SM_90A, |specialization| specialization.name == name);
        let copies = |bytes: &str| {
            text.lines().filter(|line| line.contains("cp.async.c") && line.contains(bytes)).count()
        };
        let [stores, barriers] = ["st.shared", "bar.sync"].map(|word| text.matches(word).count());
        [copies("], 16"), copies("], 4"), stores, barriers]
    };
    // Both K-major; A column-major; the same for rows of any length.
    let by_lines = ["at.col() + (step * 64).row()", "at.row() + (step * 64).col()"];
    let across = ["(at * k).col() + step.row()", by_lines[1]];
    let odd = ["(at * n).col() + step.row()", "at.row() + (step * n).col()"];
    let [by_lines, across, odd] = [by_lines, across, odd].map(source);
    assert_eq!(counts("aligned", &by_lines), [12, 0, 0, 1]);
    assert_eq!(counts("aligned", &across), [12, 0, 8, 2]);
    assert_eq!(counts("odd", &odd), [0, 48, 0, 1]);
}

/// Operands are rounded to TF32 where fragments are read; for three dots the remainder is rounded too.
#[test]
fn tensor_cores_multiply_tf32() {
    let words = [
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        "cvt.rna.tf32.f32",
        "sub.rn.f32",
        "ldmatrix",
        "ld.shared",
        "fma.rn",
    ];
    let of_precision = |name: &str| {
        let source = LOOP.replace("f16", "f32");
        let product = format!("(b), acc).input_precision(\"{name}\");");
        assert!(source.contains("(b), acc);"));
        count_words(&source.replace("(b), acc);", &product), &words)
    };
    expect![[r#"
        8 mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
        32 cvt.rna.tf32.f32
        0 sub.rn.f32
        8 ldmatrix
        0 ld.shared
        0 fma.rn
    "#]]
    .assert_eq(&of_precision("tf32"));
    expect![[r#"
        24 mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
        64 cvt.rna.tf32.f32
        32 sub.rn.f32
        8 ldmatrix
        0 ld.shared
        0 fma.rn
    "#]]
    .assert_eq(&of_precision("tf32x3"));
}

/// Each factor is split into parts once, and their largest products go through the tensor cores.
#[test]
fn tensor_cores_multiply_parts_of_f32() {
    let words = ["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "fma.rn", "wgmma"];
    let of_precision = |name: &str| {
        let source = LOOP.replace("f16", "f32");
        let product = format!("(b), acc).input_precision(\"{name}\");");
        count_words(&source.replace("(b), acc);", &product), &words)
    };
    expect![[r#"
        12 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        0 fma.rn
        0 wgmma
    "#]]
    .assert_eq(&of_precision("bf16x3"));
    expect![[r#"
        24 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
        0 fma.rn
        0 wgmma
    "#]]
    .assert_eq(&of_precision("bf16x6"));
}

/// 8-bit floats are copied as bytes, and fragments of them upcast, where both operands are K-major; elsewhere, and
/// where one was computed, tiles are upcast first.
#[test]
fn fragments_of_8_bit_floats_are_upcast() {
    let words = [
        "cp.async.cg",
        "ldmatrix",
        "cvt.rn.f16x2",
        "prmt",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ];
    let long =
        LOOP.replace("step_by(32)", "step_by(128)").replace("tl::arange(0, 32));", "tl::arange(0, 128));");
    let narrow = |dtype: &str| long.replace("f16", dtype);
    let straight = narrow("f8e4m3")
        .replace("cols.col() * k + (start + inner).row()", "(start + inner).col() * k + cols.row()")
        .replace("tl::trans(b)", "b");
    let computed = narrow("f8e4m3").replace("dot(a", "dot((a.to::<f32>() * 2.0).to::<f8e4m3>()");
    let cases =
        [(Arch::SM_90A, narrow("f8e4m3")), (Arch::SM_80, narrow("f8e4m3")), (Arch::SM_80, narrow("f8e5m2"))];
    let others = [(Arch::SM_90A, straight), (Arch::SM_90A, computed)];
    let text: Vec<String> =
        cases.iter().chain(&others).map(|(arch, source)| count_words_on(*arch, source, &words)).collect();
    expect![[r#"
        12 cp.async.cg
        8 ldmatrix
        64 cvt.rn.f16x2
        0 prmt
        16 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32

        12 cp.async.cg
        8 ldmatrix
        0 cvt.rn.f16x2
        64 prmt
        16 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32

        12 cp.async.cg
        8 ldmatrix
        0 cvt.rn.f16x2
        64 prmt
        16 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32

        0 cp.async.cg
        16 ldmatrix
        32 cvt.rn.f16x2
        32 prmt
        16 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32

        0 cp.async.cg
        16 ldmatrix
        48 cvt.rn.f16x2
        16 prmt
        16 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    "#]]
    .assert_eq(&text.join("\n"));
}

/// An accumulator whose initial value has other users is converted; one that only the dot uses is made in its layout.
#[test]
fn dots_of_other_types_share_a_tile() {
    check_body(
        "#[fuse_kernel(num_warps = 1)]
        fn k(x: &[f64], y: &[f16], out: &mut [f32]) {
            let (rows, cols) = (tl::arange(0, 16), tl::arange(0, 16));
            let x = tl::load(x + rows.col() * 16 + cols.row());
            let y = tl::load(y + rows.col() * 16 + cols.row());
            tl::store(out + rows.col() * 16 + cols.row(), tl::dot(y, y, tl::dot(x, x).to::<f32>()));
        }",
        expect![[r#"
            aligned: 1 warps, 4 programs a block, 18432 bytes shared
            kernel k(x: &[f64], y: &[f16], out: &mut [f32]) {
              %0 = arange 0 : i32[16]  ; reg(1 8) lane(2 4 - - -) warp()
              %1 = arange 0 : i32[16]  ; reg(1 2 4) lane(8 - - - -) warp()
              %2 = arange 0 : i32[16]  ; reg(1) lane(2 4 8 - -) warp()
              %3 = arange 0 : i32[16]  ; reg(8) lane(- - 1 2 4) warp()
              %4 = arange 0 : i32[16]  ; reg() lane(- 1 2 4 8) warp()
              %5 = arange 0 : i32[16]  ; reg(4 8) lane(- - - 1 2) warp()
              %6 = expand_dims %3 axis 1 : i32[16, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp()
              %7 = expand_dims %4 axis 1 : i32[16, 1]  ; reg() lane(- 1@0 2@0 4@0 8@0) warp()
              %8 = expand_dims %5 axis 1 : i32[16, 1]  ; reg(4@0 8@0) lane(- - - 1@0 2@0) warp()
              %9 = constant 16 : i32
              %10 = splat %9 : i32[16, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp()
              %11 = splat %9 : i32[16, 1]  ; reg() lane(- 1@0 2@0 4@0 8@0) warp()
              %12 = splat %9 : i32[16, 1]  ; reg(4@0 8@0) lane(- - - 1@0 2@0) warp()
              %13 = expand_dims %0 axis 0 : i32[1, 16]  ; reg(1@1 8@1) lane(2@1 4@1 - - -) warp()
              %14 = expand_dims %1 axis 0 : i32[1, 16]  ; reg(1@1 2@1 4@1) lane(8@1 - - - -) warp()
              %15 = expand_dims %2 axis 0 : i32[1, 16]  ; reg(1@1) lane(2@1 4@1 8@1 - -) warp()
              %16 = broadcast %13 : i32[16, 16]  ; reg(1@1 8@1 8@0) lane(2@1 4@1 1@0 2@0 4@0) warp()
              %17 = broadcast %14 : i32[16, 16]  ; reg(1@1 2@1 4@1) lane(8@1 1@0 2@0 4@0 8@0) warp()
              %18 = broadcast %15 : i32[16, 16]  ; reg(1@1 4@0 8@0) lane(2@1 4@1 8@1 1@0 2@0) warp()
              %19 = mul %6, %10 exact : i32[16, 1]  ; reg(8@0) lane(- - 1@0 2@0 4@0) warp()
              %20 = mul %7, %11 exact : i32[16, 1]  ; reg() lane(- 1@0 2@0 4@0 8@0) warp()
              %21 = mul %8, %12 exact : i32[16, 1]  ; reg(4@0 8@0) lane(- - - 1@0 2@0) warp()
              %22 = broadcast %19 : i32[16, 16]  ; reg(1@1 8@1 8@0) lane(2@1 4@1 1@0 2@0 4@0) warp()
              %23 = broadcast %20 : i32[16, 16]  ; reg(1@1 2@1 4@1) lane(8@1 1@0 2@0 4@0 8@0) warp()
              %24 = broadcast %21 : i32[16, 16]  ; reg(1@1 4@0 8@0) lane(2@1 4@1 8@1 1@0 2@0) warp()
              %25 = add %22, %16 exact : i32[16, 16]  ; reg(1@1 8@1 8@0) lane(2@1 4@1 1@0 2@0 4@0) warp()
              %26 = add %23, %17 exact : i32[16, 16]  ; reg(1@1 2@1 4@1) lane(8@1 1@0 2@0 4@0 8@0) warp()
              %27 = add %24, %18 exact : i32[16, 16]  ; reg(1@1 4@0 8@0) lane(2@1 4@1 8@1 1@0 2@0) warp()
              %28 = load x[%27] inside vector 2 : f64[16, 16]  ; reg(1@1 4@0 8@0) lane(2@1 4@1 8@1 1@0 2@0) warp()
              %29 = load y[%26] inside vector 8 : f16[16, 16]  ; reg(1@1 2@1 4@1) lane(8@1 1@0 2@0 4@0 8@0) warp()
              %30 = dot %28, %28 : f64[16, 16]  ; reg(1@1 8@1 8@0) lane(2@1 4@1 1@0 2@0 4@0) warp()
              %31 = cast %30 : f32[16, 16]  ; reg(1@1 8@1 8@0) lane(2@1 4@1 1@0 2@0 4@0) warp()
              %32 = convert_layout %31 : f32[16, 16]  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp()
              %33 = dot %29, %29 add %32 : f32[16, 16]  ; reg(1@1 8@0 8@1) lane(2@1 4@1 1@0 2@0 4@0) warp()
              %34 = convert_layout %33 : f32[16, 16]  ; reg(1@1 8@1 8@0) lane(2@1 4@1 1@0 2@0 4@0) warp()
              store %34, out[%25] inside vector 2
            }
            x is 16-byte aligned
            y is 16-byte aligned
            out is 8-byte aligned
            256 <= x.len()
            256 <= y.len()
            256 <= out.len()
        "#]],
    );
}

// ---- on the processor

/// `2 a[m, k] · b[k, n]`, the second of which starts from the first.
fn product(elem: &str, sum: &str, [m, n, k]: [usize; 3], transposed: bool) -> String {
    let b = if transposed {
        format!("tl::trans(tl::load(b + cols.col() * {k} + inner.row()))")
    } else {
        format!("tl::load(b + inner.col() * {n} + cols.row())")
    };
    format!(
        "#[fuse_kernel] fn k(a: &[{elem}], b: &[{elem}], out: &mut [{sum}]) {{
            let (rows, cols, inner) = (tl::arange(0, {m}), tl::arange(0, {n}), tl::arange(0, {k}));
            let a = tl::load(a + rows.col() * {k} + inner.row());
            let b = {b};
            let once = tl::dot(a, b);
            tl::store(out + rows.col() * {n} + cols.row(), tl::dot(a, b, once));
        }}"
    )
}

fn whole(count: usize, seed: usize) -> Vec<i64> {
    (0..count).map(|i| ((i * 7 + seed * 3 + i / 5) % 13) as i64 - 6).collect()
}

/// Twice the dot of small integers, which is exact in every type.
fn check<T: Copy, S: Copy + PartialEq + std::fmt::Debug>(
    [elem, sum]: [&str; 2],
    shape: [usize; 3],
    (from, to, nothing): (impl Fn(i64) -> T, impl Fn(i64) -> S, S),
) {
    let [m, n, k] = shape;
    for transposed in [false, true] {
        let (x, y) = (whole(m * k, 1), whole(k * n, 2));
        let b = |inner: usize, col: usize| if transposed { y[col * k + inner] } else { y[inner * n + col] };
        let wanted: Vec<S> = (0..m * n)
            .map(|i| to(2 * (0..k).map(|inner| x[i / n * k + inner] * b(inner, i % n)).sum::<i64>()))
            .collect();
        let mut a: Vec<T> = x.iter().copied().map(&from).collect();
        let mut b: Vec<T> = y.iter().copied().map(&from).collect();
        for loaded in load(&product(elem, sum, shape, transposed)) {
            let mut out = vec![nothing; m * n];
            loaded.call([1, 1, 1], &mut [Arg::of(&mut a), Arg::of(&mut b), Arg::of(&mut out)]);
            assert_eq!(out, wanted, "{elem} {shape:?} {transposed} {:?}", loaded.level);
        }
    }
}

#[test]
fn whole_numbers_multiply_exactly_on_the_host() {
    let half = || (|x: i64| half::f16::from_f64(x as f64), |x: i64| x as f32, f32::NAN);
    check(["f16", "f32"], [16, 16, 16], half());
    check(["f16", "f32"], [1, 8, 16], half());
    check(["f16", "f32"], [12, 40, 48], half());
    check(
        ["bf16", "f32"],
        [64, 32, 32],
        (|x: i64| half::bf16::from_f64(x as f64), |x: i64| x as f32, f32::NAN),
    );
    let single = || (|x: i64| x as f32, |x: i64| x as f32, f32::NAN);
    check(["f32", "f32"], [32, 64, 16], single());
    check(["f32", "f32"], [7, 3, 5], single());
    check(["f32", "f32"], [1, 1, 1], single());
    // One and two vectors side by side, rows that blocks do and do not divide, and squares that are transposed.
    check(["f32", "f32"], [52, 96, 32], single());
    check(["f32", "f32"], [5, 48, 32], single());
    check(["f16", "f32"], [24, 32, 48], half());
    check(["f64", "f64"], [20, 32, 16], (|x: i64| x as f64, |x: i64| x as f64, f64::NAN));
    check(["f64", "f64"], [16, 24, 4], (|x: i64| x as f64, |x: i64| x as f64, f64::NAN));
    check(["i8", "i32"], [16, 16, 32], (|x: i64| x as i8, |x: i64| x as i32, i32::MIN));
}

/// An iteration prefetches the operands of the next one, where their addresses follow from the loop's induction
/// variable.
#[test]
fn operands_of_the_next_iteration_are_prefetched_on_the_host() {
    let fetches = |changes: &[[&str; 2]]| {
        let source = changes.iter().fold(LOOP.to_string(), |text, [from, to]| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let mut func = func(&source);
        legalize_index(&mut func, BoundsPolicy::Masked);
        let texts =
            host_asm::emit(&Session::new(), &CpuPlan::new(func), "entry", Family::X86_64).expect("assembly");
        let counts: Vec<String> = texts
            .iter()
            .map(|(level, text)| format!("{level:?} {}", text.matches("prefetch").count()))
            .collect();
        counts.join(", ") + "\n"
    };
    let carried = [
        ["let mut acc", "let mut at = 0;\n let mut acc"],
        ["(start + inner)", "(at + inner)"],
        ["acc = tl::dot", "at = at + 32;\n acc = tl::dot"],
    ];
    let a = ["+ rows.col() * k + (start + inner).row()", "+ rows.col() * k + inner.row()"];
    expect![[r#"
        Baseline 0, V3 6, V4 22
        Baseline 0, V3 0, V4 0
        Baseline 0, V3 3, V4 11
    "#]]
    .assert_eq(&[fetches(&[]), fetches(&carried), fetches(&[a])].concat());
}

/// All versions of a kernel call the same blocks: 64 rows are blocks of one row for the baseline, of six and five, and of twelve and eleven.
/// Operands that are contiguous along the other axis are transposed by one function.
#[test]
fn versions_share_the_blocks_of_their_dots() {
    let source = "#[fuse_kernel]
        fn k(a: &View<f32, 2>, b: &View<f32, 2>, out: &mut View<f32, 2>, n: i32) {
            let mut acc = tl::zeros::<f32>([64, 32]);
            for start in (0..n).step_by(32) {
                acc = tl::dot(a.load::<64, 32>(0, start), b.load::<32, 32>(start, 0), acc);
            }
            out.store(tl::dot(a.load::<64, 32>(0, 0), b.load::<32, 32>(0, 0), acc), 0, 0);
        }";
    let plan = host_plan(&func(source), BoundsPolicy::Masked);
    let texts = host_asm::emit(&Session::new(), &plan, "entry", Family::X86_64).expect("assembly");
    let counts = texts.iter().map(|(level, text)| {
        let lines = |what: &str, name: &str| {
            text.lines().filter(|line| line.contains(what) && line.contains(name)).count()
        };
        let functions = ["program", "dot_block", "transpose"].map(|name| lines("@function", name));
        let calls = ["dot_block", "transpose"].map(|name| lines("call", name));
        format!("{level:?}: {functions:?} functions, {calls:?} calls\n")
    });
    expect![[r#"
        Baseline: [5, 1, 0] functions, [10, 0] calls
        V3: [5, 2, 1] functions, [20, 8] calls
        V4: [5, 2, 1] functions, [20, 8] calls
    "#]]
    .assert_eq(&counts.collect::<String>());
}

/// Billions of operations a second of one thread, which `cargo test -p lowering --release -- --ignored --nocapture fast`
/// prints.
#[test]
#[ignore = "a measurement"]
fn how_fast_the_host_multiplies() {
    for (elem, tile) in
        [("f32", [64, 64, 64]), ("f32", [128, 128, 32]), ("bf16", [64, 64, 64]), ("f16", [16, 64, 64])]
    {
        let [m, n, k] = tile;
        let source = format!(
            "#[fuse_kernel] fn k(a: &[{elem}], b: &[{elem}], out: &mut [f32], n: i32, k: i32) {{
                let (rows, cols) = (tl::program_id(0) * {m} + tl::arange(0, {m}), tl::program_id(1) * {n} + tl::arange(0, {n}));
                let mut acc = tl::zeros::<f32>([{m}, {n}]);
                for start in (0..k).step_by({k}) {{
                    let inner = start + tl::arange(0, {k});
                    let a = tl::load(a + rows.col() * k + inner.row(), inner.row() < k);
                    let b = tl::load(b + inner.col() * n + cols.row(), (inner.col() < k) & (cols.row() < n));
                    acc = tl::dot(a, b, acc);
                }}
                tl::store(out + rows.col() * n + cols.row(), acc, cols.row() < n);
            }}"
        );
        let size = 512usize;
        let bytes = if elem == "f32" { 4 } else { 2 };
        let (mut a, mut b) = (vec![0u8; size * size * bytes], vec![0u8; size * size * bytes]);
        let mut out = vec![0f32; size * size];
        for loaded in load(&source) {
            let mut run = || {
                let start = std::time::Instant::now();
                let (a, b) =
                    (Arg::Memory(a.as_mut_ptr(), size * size), Arg::Memory(b.as_mut_ptr(), size * size));
                let sizes = [Arg::Scalar(size as u64), Arg::Scalar(size as u64)];
                let [n, k] = sizes;
                loaded.call(
                    [(size / m) as u32, (size / tile[1]) as u32, 1],
                    &mut [a, b, Arg::of(&mut out), n, k],
                );
                start.elapsed().as_secs_f64()
            };
            let best = (0..5).map(|_| run()).fold(f64::INFINITY, f64::min);
            let rate = 2.0 * (size as f64).powi(3) / best / 1e9;
            eprintln!("{elem} {tile:?} {:?}: {rate:.1}", loaded.level);
        }
    }
}
