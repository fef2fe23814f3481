//! Dots of warpgroups on tiles that threads copy: their schedules do what the kernels do, however copies and dots are timed.

use tile_ir::ir::Func;

use super::{first, ptx_of};
use lowering::backend::nvptx::Arch;
use lowering::devtools::schedule_simulator::{Launch, check_schedule, number::Number};
use lowering::driver::pipeline::{DisabledPasses, shared};
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::{Gpus, Specialization};

/// The first specialization whose warpgroups multiply what threads copy, although TMA could.
fn with_wgmma(source: &str) -> Specialization {
    let (mut func, requests) = first(source);
    let disabled_passes = DisabledPasses::parse("-view_pointers").expect("the name of a pass");
    let requests = KernelRequests { disabled_passes, ..requests };
    shared(&mut func, requests).expect("valid tile IR");
    let found = specializations(&func, requests).expect("bodies that fit");
    found.into_iter().find(|body| body.gpus == Gpus::WithWgmma).expect("a body with warpgroups")
}

/// Small integers, so that sums are exact in any order.
pub(super) fn small(i: usize) -> f64 {
    (i * 7 % 11) as f64 - 5.0
}

pub(super) fn int(value: usize) -> Number {
    Number::Int(value as i128)
}

/// Simulates a kernel with each of these launches, made for its function.
fn check(source: &str, words: &[&str], tolerance: f64, launches: &[&dyn Fn(&Func) -> Launch]) {
    let body = with_wgmma(source);
    let (schedule, laid_out) = (&body.plan.schedule, &body.plan.laid_out);
    let text = schedule.to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "{word}:\n{text}"));
    for (number, launch) in launches.iter().enumerate() {
        check_schedule(&schedule.distributed.func, laid_out, &launch(laid_out), tolerance)
            .unwrap_or_else(|fault| panic!("launch {number}: {fault}\n{text}"));
    }
}

/// The dot of an iteration runs while that of the next one is issued; rows wrap around, and the end of K is masked.
#[test]
fn a_product_by_pointers() {
    let launch = |func: &Func, [m, n, k]: [usize; 3]| {
        let launch = Launch::new([2, 1, 1], 4).slice(func, "a", (0..m * k).map(small));
        let launch = launch.slice(func, "b", (0..k * n).map(small)).slice(func, "c", vec![-1.0; m * n]);
        launch.scalar(func, "m", int(m)).scalar(func, "n", int(n)).scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(a: &[bf16], b: &[bf16], c: &mut [f32], m: i32, n: i32, k: i32) {
            let rows = tl::program_id(0) * 64 + tl::arange(0, 64);
            let (columns, inner) = (tl::arange(0, 64), tl::arange(0, 64));
            let mut a_ptrs = a + ((rows % m).col() * k + inner.row());
            let mut b_ptrs = b + (inner.col() * n + columns.row());
            let mut acc = tl::zeros::<f32>([64, 64]);
            for step in 0..tl::cdiv(k, 64) {
                let left = tl::load(a_ptrs, inner.row() < k - step * 64, 0.0);
                acc = tl::dot(left, tl::load(b_ptrs, inner.col() < k - step * 64, 0.0), acc);
                a_ptrs += 64;
                b_ptrs += 64 * n;
            }
            tl::store(c + (rows.col() * n + columns.row()), acc, (rows < m).col() & (columns < n).row());
        }",
        &["proxy_fence", "async :", "dot_wait"],
        0.0,
        &[&|func| launch(func, [128, 64, 64]), &|func| launch(func, [72, 64, 136]), &|func| {
            launch(func, [128, 64, 512])
        }],
    );
}

/// A `while` that counts up to an argument is a loop that the pipeline looks ahead in, and the pointers that it carries are offsets.
#[test]
fn a_product_in_a_while() {
    let launch = |func: &Func, k: usize| {
        let launch = Launch::new([2, 1, 1], 4).slice(func, "a", (0..128 * k).map(small));
        let launch = launch.slice(func, "b", (0..k * 64).map(small)).slice(func, "c", vec![-1.0; 128 * 64]);
        launch.scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(a: &[bf16], b: &[bf16], c: &mut [f32], k: i32) {
            let rows = tl::program_id(0) * 64 + tl::arange(0, 64);
            let (columns, inner) = (tl::arange(0, 64), tl::arange(0, 64));
            let mut b_ptrs = b + (inner.col() * 64 + columns.row());
            let mut acc = tl::zeros::<f32>([64, 64]);
            let mut start = 0;
            while start < k {
                let left = tl::load(a + (rows.col() * k + (start + inner).row()), inner.row() < k - start, 0.0);
                acc = tl::dot(left, tl::load(b_ptrs, inner.col() < k - start, 0.0), acc);
                b_ptrs += 64 * 64;
                start += 64;
            }
            tl::store(c + (rows.col() * 64 + columns.row()), acc);
        }",
        &["proxy_fence", "async :", "dot_wait"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 136), &|func| launch(func, 512)],
    );
}

/// The second dot of an iteration runs beside the first one of the next.
#[test]
fn attention_by_pointers() {
    let launch = |func: &Func, keys: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "q", (0..64 * 64).map(|i| small(i) / 16.0));
        let launch = launch.slice(func, "k", (0..keys * 64).map(small));
        let launch = launch.slice(func, "v", (0..keys * 64).map(|i| small(i + 3)));
        launch.slice(func, "out", vec![-1.0; 64 * 64]).scalar(func, "keys", int(keys))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn attend(q: &[bf16], k: &[bf16], v: &[bf16], out: &mut [f32], keys: i32) {
            let (rows, dims) = (tl::arange(0, 64), tl::arange(0, 64));
            let q = tl::load(q + (rows.col() * 64 + dims.row()));
            let mut acc = tl::zeros::<f32>([64, 64]);
            let (mut l, mut m) = (tl::zeros::<f32>([64]), tl::full([64], f32::NEG_INFINITY));
            for start in (0..keys).step_by(64) {
                let cols = start + tl::arange(0, 64);
                let kt = tl::load(k + (cols.row() * 64 + dims.col()), (cols < keys).row(), 0.0);
                let s = tl::select((cols < keys).row(), tl::dot(q, kt), f32::NEG_INFINITY);
                let next = tl::maximum(m, tl::max(s, 1));
                let p = tl::exp2(s - next.col());
                let alpha = tl::exp2(m - next);
                l = l * alpha + tl::sum(p, 1);
                let values = tl::load(v + (cols.col() * 64 + dims.row()), (cols < keys).col(), 0.0);
                acc = tl::dot(p.to::<bf16>(), values, acc * alpha.col());
                m = next;
            }
            tl::store(out + (rows.col() * 64 + dims.row()), acc / l.col());
        }",
        &["overlapped", "dot_wait", "proxy_fence"],
        1e-5,
        &[&|func| launch(func, 64), &|func| launch(func, 100), &|func| launch(func, 512)],
    );
}

/// A loop over tiles around the one over K: the result leaves by memory that the copies of the next tile take again.
#[test]
fn a_persistent_product() {
    let launch = |func: &Func, [m, k]: [usize; 2]| {
        let launch = Launch::new([2, 1, 1], 4).slice(func, "a", (0..m * k).map(small));
        let launch = launch.slice(func, "b", (0..k * 64).map(small)).slice(func, "c", vec![-1.0; m * 64]);
        launch.scalar(func, "m", int(m)).scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(a: &[bf16], b: &[bf16], c: &mut [bf16], m: i32, k: i32) {
            let columns = tl::arange(0, 64);
            for tile in (tl::program_id(0)..tl::cdiv(m, 64)).step_by(2) {
                let rows = tile * 64 + tl::arange(0, 64);
                let mut acc = tl::zeros::<f32>([64, 64]);
                for start in (0..k).step_by(64) {
                    let inner = start + tl::arange(0, 64);
                    let mask = (rows < m).col() & (inner < k).row();
                    let left = tl::load(a + (rows.col() * k + inner.row()), mask, 0.0);
                    let right = tl::load(b + (inner.col() * 64 + columns.row()), (inner < k).col(), 0.0);
                    acc = tl::dot(left, right, acc);
                }
                tl::store(c + (rows.col() * 64 + columns.row()), acc.to::<bf16>(), (rows < m).col());
            }
        }",
        &["proxy_fence", "convert_layout", "async :"],
        0.0,
        &[&|func| launch(func, [64, 64]), &|func| launch(func, [320, 200])],
    );
}

/// The rows of operand A are found by an index vector, which is converted once, ahead of the loop.
#[test]
fn a_product_of_gathered_rows() {
    let launch = |func: &Func, k: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "a", (0..32 * k).map(small));
        let launch = launch.slice(func, "rows", (0..64).map(|i| (i * 5 % 32) as f64));
        let launch = launch.slice(func, "b", (0..k * 64).map(small)).slice(func, "c", vec![-1.0; 64 * 64]);
        launch.scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(a: &[bf16], rows: &[i32], b: &[bf16], c: &mut [f32], k: i32) {
            let (i, columns) = (tl::arange(0, 64), tl::arange(0, 64));
            let rows = tl::load(rows + i);
            let mut acc = tl::zeros::<f32>([64, 64]);
            for start in (0..k).step_by(64) {
                let inner = start + tl::arange(0, 64);
                let left = tl::load(a + (rows.col() * k + inner.row()), (inner < k).row(), 0.0);
                acc = tl::dot(left, tl::load(b + (inner.col() * 64 + columns.row()), (inner < k).col(), 0.0), acc);
            }
            tl::store(c + (i.col() * 64 + columns.row()), acc);
        }",
        &["proxy_fence", "async :"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 328)],
    );
}

/// A row that all warps read is copied once, beside the tiles of the dot; what its mask leaves out is not 0.
#[test]
fn a_row_beside_a_product() {
    let launch = |func: &Func, k: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "x", (0..64 * 64).map(small));
        let launch = launch.slice(func, "c", (0..k * 64).map(small)).slice(func, "norms", (0..k).map(small));
        let launch = launch.slice(func, "labels", vec![-1.0; 64]).slice(func, "nearest", vec![-1.0; 64]);
        launch.scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(x: &[bf16], c: &[bf16], norms: &[f32], labels: &mut [i32], nearest: &mut [f32], k: i32) {
            let (rows, dims) = (tl::arange(0, 64), tl::arange(0, 64));
            let x = tl::load(x + (rows.col() * 64 + dims.row()));
            let mut label = tl::zeros::<i32>([64]);
            let mut least = tl::full([64], f32::INFINITY);
            for start in (0..k).step_by(64) {
                let ids = start + tl::arange(0, 64);
                let c = tl::load(c + (ids.row() * 64 + dims.col()), (ids < k).row(), 0.0);
                let norm = tl::load(norms + ids, ids < k, f32::INFINITY);
                let (distance, id) = tl::min_index(norm.row() - 2.0 * tl::dot(x, c), 1);
                label = tl::select(distance < least, start + id, label);
                least = tl::minimum(least, distance);
            }
            tl::store(labels + rows, label);
            tl::store(nearest + rows, least);
        }",
        &["strides [4] bytes 256", "slot_load", "async :"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 200)],
    );
}

/// Operands that an iteration computes are stored to its slot: weights of bytes, and operand A with a scale for each row.
#[test]
fn a_product_of_computed_operands() {
    let launch = |func: &Func, k: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "x", (0..64 * k).map(small));
        let launch = launch.slice(func, "w", (0..k * 64).map(small)).slice(func, "out", vec![-1.0; 64 * 64]);
        launch.slice(func, "scales", (0..64).map(small)).scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(x: &[bf16], scales: &[f32], w: &[i8], out: &mut [f32], k: i32) {
            let (rows, columns) = (tl::arange(0, 64), tl::arange(0, 64));
            let scales = tl::load(scales + rows);
            let mut acc = tl::zeros::<f32>([64, 64]);
            for start in (0..k).step_by(64) {
                let inner = start + tl::arange(0, 64);
                let x = tl::load(x + (rows.col() * k + inner.row()), (inner < k).row(), 0.0).to::<f32>();
                let w = tl::load(w + (inner.col() * 64 + columns.row()), (inner < k).col(), 0);
                acc = tl::dot((x * scales.col()).to::<bf16>(), w.to::<bf16>(), acc);
            }
            tl::store(out + (rows.col() * 64 + columns.row()), acc);
        }",
        &["slot_store", "proxy_fence", "async :"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 400)],
    );
}

/// Bytes of four weights each are copied ahead, and the weights are stored to a slot.
#[test]
fn a_product_of_packed_weights() {
    let launch = |func: &Func, k: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "x", (0..64 * k).map(small));
        let launch = launch.slice(func, "packed", (0..16 * k).map(|i| (i * 37 % 256) as f64));
        launch.slice(func, "out", vec![-1.0; 64 * 64]).scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(x: &[i8], packed: &[u8], out: &mut [i32], k: i32) {
            let (rows, columns) = (tl::arange(0, 64), tl::arange(0, 64));
            let mut acc = tl::zeros::<i32>([64, 64]);
            for start in (0..k).step_by(64) {
                let inner = start + tl::arange(0, 64);
                let x = tl::load(x + (rows.col() * k + inner.row()), (inner < k).row(), 0);
                let bytes = tl::load(packed + (columns.row() * (k / 4) + (inner / 4).col()), (inner < k).col(), 0);
                let w = ((bytes.to::<i32>() >> (inner % 4 * 2).col()) & 3) - 1;
                acc = tl::dot(x, w.to::<i8>(), acc);
            }
            tl::store(out + (rows.col() * 64 + columns.row()), acc);
        }",
        &["async_copy packed", "join", "slot_store"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 400)],
    );
}

/// Where another program fits beside it, an iteration stores its operand where the one before did, behind a barrier.
#[test]
fn a_computed_operand_in_one_buffer() {
    let launch = |func: &Func, k: usize| {
        let launch = Launch::new([1, 1, 1], 8).slice(func, "x", (0..128 * k).map(small));
        let launch =
            launch.slice(func, "w", (0..k * 128).map(small)).slice(func, "out", vec![-1.0; 128 * 128]);
        launch.scalar(func, "k", int(k))
    };
    check(
        "#[fuse_kernel(num_warps = 8, num_stages = 2)]
        fn product(x: &[bf16], w: &[bf16], out: &mut [f32], k: i32) {
            let (rows, columns) = (tl::arange(0, 128), tl::arange(0, 128));
            let mut acc = tl::zeros::<f32>([128, 128]);
            for start in (0..k).step_by(64) {
                let inner = start + tl::arange(0, 64);
                let x = tl::load(x + (inner.row() * 128 + rows.col()), (inner < k).row(), 0.0);
                let w = tl::load(w + (inner.col() * 128 + columns.row()), (inner < k).col(), 0.0);
                acc = tl::dot(x, w * 2.0, acc);
            }
            tl::store(out + (rows.col() * 128 + columns.row()), acc);
        }",
        &["slot_store", "slots 2", "offset 65536", "    barrier\n    slot_store"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 400)],
    );
}

/// Two dots store their operands in one buffer each: the barrier of one is behind the other.
#[test]
fn computed_operands_of_two_dots() {
    let launch = |func: &Func, n: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "k", (0..n * 64).map(small));
        let launch = launch.slice(func, "v", (0..n * 64).map(|i| small(i + 1)));
        launch.slice(func, "out", vec![-1.0; n * 64]).scalar(func, "n", int(n))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn recurrence(k: &[bf16], v: &[bf16], out: &mut [f32], n: i32) {
            let (steps, dims) = (tl::arange(0, 64), tl::arange(0, 64));
            let mut state = tl::zeros::<f32>([64, 64]);
            for start in (0..n).step_by(64) {
                let at = (start + steps).col() * 64 + dims.row();
                let mask = (start + steps < n).col();
                let k = tl::load(k + at, mask, 0.0);
                let v = tl::load(v + at, mask, 0.0);
                tl::store(out + at, tl::dot(k, state.to::<bf16>()), mask);
                let half = (k.to::<f32>() * 0.25).to::<bf16>();
                state = tl::minimum(tl::dot(tl::trans(half), v, state * 0.5), 8.0);
            }
        }",
        &["slot_store", "wgmma", "proxy_fence"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 400)],
    );
}

/// The gradients of keys and values: four dots of an iteration, of which two read one tile along both of its axes.
#[test]
fn four_dots_of_an_iteration() {
    let launch = |func: &Func, n: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "q", (0..n * 64).map(|i| small(i) / 64.0));
        let launch = launch.slice(func, "k", (0..64 * 64).map(|i| small(i + 1) / 4.0));
        let launch = launch.slice(func, "v", (0..64 * 64).map(|i| small(i + 2)));
        let launch = launch.slice(func, "go", (0..n * 64).map(|i| small(i + 3)));
        let launch = launch.slice(func, "dk", vec![-1.0; 64 * 64]).slice(func, "dv", vec![-1.0; 64 * 64]);
        launch.scalar(func, "n", int(n))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn gradients(q: &[bf16], k: &[bf16], v: &[bf16], go: &[bf16], dk: &mut [f32], dv: &mut [f32], n: i32) {
            let (keys, dims) = (tl::arange(0, 64), tl::arange(0, 64));
            let at = keys.col() * 64 + dims.row();
            let (k, v) = (tl::load(k + at), tl::load(v + at));
            let (mut dk_acc, mut dv_acc) = (tl::zeros::<f32>([64, 64]), tl::zeros::<f32>([64, 64]));
            for start in (0..n).step_by(64) {
                let rows = start + tl::arange(0, 64);
                let at = rows.col() * 64 + dims.row();
                let q = tl::load(q + at, (rows < n).col(), 0.0);
                let go = tl::load(go + at, (rows < n).col(), 0.0);
                let p = tl::exp2(tl::dot(k, tl::trans(q)));
                dv_acc = tl::dot(p.to::<bf16>(), go, dv_acc);
                let ds = p * tl::dot(v, tl::trans(go));
                dk_acc = tl::dot(ds.to::<bf16>(), q, dk_acc);
            }
            tl::store(dk + at, dk_acc);
            tl::store(dv + at, dv_acc);
        }",
        &["wgmma", "transposed", "proxy_fence"],
        1e-5,
        &[&|func| launch(func, 64), &|func| launch(func, 200)],
    );
}

/// 8-bit floats: rows of K are copied, columns of K are stored along it; sums of 32 products are added in `f32`.
#[test]
fn a_product_of_8_bit_floats() {
    let launch = |func: &Func, k: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "x", (0..64 * k).map(small));
        let launch = launch.slice(func, "w", (0..k * 64).map(small)).slice(func, "out", vec![-1.0; 64 * 64]);
        launch.scalar(func, "k", int(k))
    };
    let source = "#[fuse_kernel(num_warps = 4)]
        fn product(x: &[f8e4m3], w: &[f8e4m3], out: &mut [f32], k: i32) {
            let (rows, columns) = (tl::arange(0, 64), tl::arange(0, 64));
            let mut acc = tl::zeros::<f32>([64, 64]);
            for start in (0..k).step_by(64) {
                let inner = start + tl::arange(0, 64);
                let x = tl::load(x + (rows.col() * k + inner.row()), (inner < k).row(), 0.0);
                let w = tl::load(w + (inner.col() * 64 + columns.row()), (inner < k).col(), 0.0);
                acc = tl::dot(x, w, acc).max_num_imprecise_acc(32);
            }
            tl::store(out + (rows.col() * 64 + columns.row()), acc);
        }";
    let launches: [&dyn Fn(&Func) -> Launch; 2] = [&|func| launch(func, 64), &|func| launch(func, 400)];
    check(source, &["slot_store", "k 0..32", "k 32..64", "f8e4m3"], 0.0, &launches);
    let all_digits = source.replace("acc(32)", "acc(0)");
    check(&all_digits, &["slot_store", "f16"], 0.0, &launches);
}

/// An operand that a loop does not change is stored once, behind the slots: A of the first dot, B of the second one.
#[test]
fn invariant_operands() {
    let launch = |func: &Func, n: usize| {
        let launch = Launch::new([1, 1, 1], 4).slice(func, "x", (0..64 * 256).map(small));
        let launch = launch.slice(func, "c", (0..n * 256).map(|i| small(i + 1)));
        let launch = launch.slice(func, "w", (0..64 * 64).map(|i| small(i + 2)));
        launch.slice(func, "out", vec![-1.0; 64 * 64]).scalar(func, "n", int(n))
    };
    check(
        "#[fuse_kernel(num_warps = 4)]
        fn product(x: &[bf16], c: &[bf16], w: &[bf16], out: &mut [f32], n: i32) {
            let (rows, inner, columns) = (tl::arange(0, 64), tl::arange(0, 256), tl::arange(0, 64));
            let x = tl::load(x + (rows.col() * 256 + inner.row()));
            let w = tl::load(w + (rows.col() * 64 + columns.row()));
            let mut acc = tl::zeros::<f32>([64, 64]);
            for start in (0..n).step_by(64) {
                let at = start + tl::arange(0, 64);
                let c = tl::load(c + (at.row() * 256 + inner.col()), (at < n).row(), 0.0);
                let s = tl::minimum(tl::dot(x, c), 100.0);
                acc = tl::dot(s.to::<bf16>(), w, acc);
            }
            tl::store(out + (rows.col() * 64 + columns.row()), acc);
        }",
        &["slot_store", "proxy_fence", "wgmma"],
        0.0,
        &[&|func| launch(func, 64), &|func| launch(func, 400)],
    );
}

/// A value that several dots read, as it is and transposed, is stored once.
#[test]
fn a_value_is_stored_once_for_all_dots() {
    let launch = |func: &Func| {
        let launch = Launch::new([2, 1, 1], 4).slice(func, "x", (0..2 * 64 * 64).map(|i| small(i) / 64.0));
        launch.slice(func, "out", vec![-1.0; 2 * 64 * 64])
    };
    let source = "#[fuse_kernel(num_warps = 4)]
        fn polynomial(x: &[f32], out: &mut [f32]) {
            let rows = tl::program_id(0) * 64 + tl::arange(0, 64);
            let offsets = rows.col() * 64 + tl::arange(0, 64).row();
            let mut x = tl::load(x + offsets);
            for _ in 0..3 {
                let half = x.to::<f16>();
                let square = tl::dot(half, tl::trans(half));
                x = tl::dot(square.to::<f16>(), half, 0.5 * x);
            }
            tl::store(out + offsets, x);
        }";
    check(source, &[" slot_bytes 8192 "], 1e-3, &[&launch]);
    let schedule = with_wgmma(source).plan.schedule.to_string();
    assert_eq!(schedule.matches("slot_store").count(), 1, "{schedule}");
}

/// Invariant operands A in registers are made again in each iteration where another dot has such operands: ptxas would give it their
/// registers.
#[test]
fn invariant_words_are_made_again() {
    let kernel = |second: &str| {
        format!(
            "#[fuse_kernel(num_warps = 4)]
            fn k(x: &[bf16], c: &[bf16], w: &[bf16], out: &mut [f32], n: i32) {{
                let (rows, inner, columns) = (tl::arange(0, 64), tl::arange(0, 128), tl::arange(0, 64));
                let x = tl::load(x + (rows.col() * 128 + inner.row()));
                let mut acc = tl::zeros::<f32>([64, 64]);
                for start in (0..n).step_by(64) {{
                    let at = start + tl::arange(0, 64);
                    let c = tl::load(c + (at.row() * 128 + inner.col()), (at < n).row(), 0.0);
                    let w = tl::load(w + (at.col() * 64 + columns.row()), (at < n).col(), 0.0);
                    let s = tl::minimum(tl::dot(x, c), 100.0);
                    {second}
                }}
                tl::store(out + (rows.col() * 64 + columns.row()), acc);
            }}"
        )
    };
    let made_again = |second: &str| {
        let ptx = ptx_of(&kernel(second), Arch::SM_90A, |body| body.gpus == Gpus::WithWgmma);
        ptx.contains("activemask")
    };
    assert!(made_again("acc = tl::dot(s.to::<bf16>(), w, acc * 0.5) + 1.0;"));
    assert!(!made_again("acc += s;"));
}
