//! Bounds checks of a specialization's accesses, and the guards and unit strides that remove them.

use expect_test::{Expect, expect};
use tile_ir::ir::guard::{Guard, WithNames};
use tile_ir::testing::func;
use tile_ir::transform::strength_reduce::strength_reduce;

use super::first;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;

/// The accesses of the aligned specialization, each with its bounds check and vector width; and its guards.
fn check(source: &str, expected: Expect) {
    let mut func = func(source);
    strength_reduce(&mut func);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let specializations =
        specializations(&func, KernelRequests::default()).expect("specializations that fit");
    let specialization = &specializations[0];
    let mut text = String::new();
    specialization.plan.laid_out.body.walk(&mut |op| {
        let Some(access) = op.kind.operation().access() else { return };
        let check = if access.bounded { "compared" } else { "inside" };
        text += &format!(
            "{} {}: {check}, {} at once\n",
            op.kind.operation().name(),
            params[access.param.index()],
            access.vector
        );
    });
    for guard in &specialization.guards {
        text += &format!("{}\n", WithNames(guard, &params));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_gathered_row_is_checked_by_vectors() {
    check(
        "#[fuse_kernel]
        fn k(table: &[f32], rows: &[i32], out: &mut [f32], d: i32) {
            let (row, columns) = (tl::program_id(0), tl::arange(0, 512));
            let from = tl::load(rows + row);
            let x = tl::load(table + from * d + columns, columns < d, 0.0);
            tl::store(out + row * d + columns, x, columns < d);
        }",
        expect![[r#"
            load rows: inside, 1 at once
            load table: compared, 4 at once
            store out: inside, 4 at once
            table is 16-byte aligned
            out is 16-byte aligned
            4 divides table.len()
            4 divides d
            num_programs(0) <= rows.len()
            0 <= d
            d * num_programs(0) <= out.len()
        "#]],
    );
}

#[test]
fn a_convolution_is_not_checked() {
    check(
        "#[fuse_kernel]
        fn k(x: &[bf16], w: &[bf16], out: &mut [bf16], n: i32, d: i32) {
            let times = tl::program_id(0) * 16 + tl::arange(0, 16);
            let columns = tl::program_id(1) * 256 + tl::arange(0, 256).row();
            let mut sum = tl::zeros::<f32>([16, 256]);
            for j in tl::static_range(0, 4) {
                let at = times - 3 + j;
                let inside = ((at >= 0) & (at < n)).col() & (columns < d);
                let weight = tl::load(w + j * d + columns, columns < d).to::<f32>();
                sum += weight * tl::load(x + at.col() * d + columns, inside, 0.0).to::<f32>();
            }
            tl::store(out + times.col() * d + columns, sum.to::<bf16>(), (times < n).col() & (columns < d));
        }",
        expect![[r#"
            load w: inside, 8 at once
            load x: inside, 8 at once
            load w: inside, 8 at once
            load x: inside, 8 at once
            load w: inside, 8 at once
            load x: inside, 8 at once
            load w: inside, 8 at once
            load x: inside, 8 at once
            store out: inside, 8 at once
            x is 16-byte aligned
            w is 16-byte aligned
            out is 16-byte aligned
            8 divides d
            -1 + 256 * num_programs(1) <= 2147483647
            d <= w.len()
            0 <= d
            n * d <= x.len()
            255 + 15 * d <= 2147483647
            2 * d <= w.len()
            3 * d <= w.len()
            -1 + 16 * num_programs(0) <= 2147483647
            4 * d <= w.len()
            n * d <= out.len()
        "#]],
    );
}

#[test]
fn rows_of_a_matmul_wrap_around() {
    check(
        "#[fuse_kernel]
        fn k(a: &[bf16], b: &[bf16], c: &mut [bf16], m: i32, n: i32, k: i32) {
            let rows = (tl::program_id(0) * 64 + tl::arange(0, 64)) % m;
            let columns = (tl::program_id(1) * 64 + tl::arange(0, 64)) % n;
            let inner = tl::arange(0, 32);
            let mut sum = tl::zeros::<f32>([64, 64]);
            for i in (0..k).step_by(32) {
                let at = tl::load(a + rows.col() * k + (i + inner).row(), (i + inner < k).row(), 0.0);
                let by = tl::load(b + (i + inner).col() * n + columns.row(), (i + inner < k).col(), 0.0);
                sum = tl::dot(at, by, sum);
            }
            let (rows, columns) =
                (tl::program_id(0) * 64 + tl::arange(0, 64), tl::program_id(1) * 64 + tl::arange(0, 64));
            let inside = (rows < m).col() & (columns < n).row();
            tl::store(c + rows.col() * n + columns.row(), sum.to::<bf16>(), inside);
        }",
        expect![[r#"
            load a: inside, 8 at once
            load b: inside, 8 at once
            store c: inside, 8 at once
            a is 16-byte aligned
            b is 16-byte aligned
            c is 16-byte aligned
            8 divides n
            8 divides k
            30 + k <= 2147483647
            0 <= k
            1 <= m
            -1 + 64 * num_programs(0) <= 2147483647
            m * k <= a.len()
            31 + m * k - k <= 2147483647
            1 <= n
            -1 + 64 * num_programs(1) <= 2147483647
            n * k <= b.len()
            -1 + 32 * n <= 2147483647
            m * n <= c.len()
            63 + 63 * n <= 2147483647
        "#]],
    );
}

/// The matmul of Triton's tutorial: pointers that the loop advances, rows and columns by `%`, grouped program order.
#[test]
fn a_matmul_by_pointers_in_grouped_order_is_not_checked() {
    check(
        "#[fuse_kernel]
        fn k(a: &[bf16], b: &[bf16], c: &mut [bf16], m: i32, n: i32, k: i32) {
            let pid = tl::program_id(0);
            let (down, across) = (tl::cdiv(m, 64), tl::cdiv(n, 64));
            let in_group = 8 * across;
            let first = pid / in_group * 8;
            let size = tl::minimum(down - first, 8);
            let row = first + (pid % in_group) % size;
            let column = (pid % in_group) / size;
            let rows = (row * 64 + tl::arange(0, 64)) % m;
            let columns = (column * 64 + tl::arange(0, 64)) % n;
            let steps = tl::arange(0, 32);
            let mut left = a + (rows.col() * k + steps.row());
            let mut right = b + (steps.col() * n + columns.row());
            let mut sum = tl::zeros::<f32>([64, 64]);
            for step in 0..tl::cdiv(k, 32) {
                let x = tl::load(left, steps.row() < k - step * 32, 0.0);
                let y = tl::load(right, steps.col() < k - step * 32, 0.0);
                sum = tl::dot(x, y, sum);
                left += 32;
                right += 32 * n;
            }
            let (rows, columns) = (row * 64 + tl::arange(0, 64), column * 64 + tl::arange(0, 64));
            let inside = (rows < m).col() & (columns < n).row();
            tl::store(c + (rows.col() * n + columns.row()), sum.to::<bf16>(), inside);
        }",
        expect![[r#"
            load a: inside, 8 at once
            load b: inside, 8 at once
            store c: inside, 8 at once
            a is 16-byte aligned
            b is 16-byte aligned
            c is 16-byte aligned
            8 divides n
            8 divides k
            32 * cdiv(k, 32) <= 2147483680 + k
            0 <= k
            1 <= m
            1 <= 8 * cdiv(n, 64)
            8 * cdiv(n, 64) <= 2147483647
            num_programs(0) <= cdiv(m, 64) * cdiv(n, 64)
            cdiv(m, 64) <= 2147483647
            -513 + 512 * cdiv(n, 64) + 512 * cdiv(num_programs(0), 8 * cdiv(n, 64)) <= 2147483647
            m * k <= a.len()
            31 + m * k - k <= 2147483647
            1 <= n
            -1 + 512 * cdiv(n, 64) <= 2147483647
            n * k <= b.len()
            -1 + 32 * n <= 2147483647
            m * n <= c.len()
            63 + 63 * n <= 2147483647
        "#]],
    );
}

/// The last tile of rows may reach beyond them: the mask bounds them, not the grid.
#[test]
fn rows_of_a_tile_are_bounded_by_their_mask() {
    check(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], rows: i32, n: i32) {
            let down = tl::program_id(1) * tl::num_programs(0) + tl::program_id(0);
            let r = down * 8 + tl::arange(0, 8);
            let columns = tl::arange(0, 128);
            let inside = (r < rows).col() & (columns < n).row();
            let at = (r * n).col() + columns.row();
            tl::store(out + at, tl::load(x + at, inside), inside);
        }",
        expect![[r#"
            load x: inside, 4 at once
            store out: inside, 4 at once
            x is 16-byte aligned
            out is 16-byte aligned
            4 divides n
            -1 + 8 * num_programs(0) * num_programs(1) <= 2147483647
            -1 + 8 * num_programs(0) * num_programs(1) <= 9223372036854775807
            0 <= n
            rows * n <= x.len()
            127 + 7 * n <= 2147483647
            rows * n <= out.len()
        "#]],
    );
}

#[test]
fn rows_of_a_table_of_pages() {
    check(
        "#[fuse_kernel]
        fn k(q: &[bf16], keys: &[bf16], pages: &[i32], out: &mut [f32], n: i32, stride: i32) {
            let columns = tl::arange(0, 128).row();
            let q = tl::load(q + columns).to::<f32>();
            let mut sum = tl::zeros::<f32>([16]);
            for i in 0..tl::cdiv(n, 16) {
                let page = tl::load(pages + tl::program_id(0) * stride + i);
                let at = (page * 16 + tl::arange(0, 16)).col() * 128 + columns;
                let inside = i * 16 + tl::arange(0, 16) < n;
                sum += tl::sum(q * tl::load(keys + at, inside.col(), 0.0).to::<f32>(), 1);
            }
            tl::store(out + tl::program_id(0) * 16 + tl::arange(0, 16), sum);
        }",
        expect![[r#"
            load q: inside, 8 at once
            load pages: inside, 1 at once
            load keys: compared, 8 at once
            store out: inside, 1 at once
            q is 16-byte aligned
            keys is 16-byte aligned
            8 divides keys.len()
            128 <= q.len()
            0 <= stride
            -stride + stride * num_programs(0) + cdiv(n, 16) <= pages.len()
            -1 + 16 * cdiv(n, 16) <= 2147483647
            16 * num_programs(0) <= out.len()
        "#]],
    );
}

/// The specializations of a kernel, each with the strides that its guards equate to 1 and the vector widths of its accesses.
fn check_unit_strides(source: &str, expected: Expect) {
    let func = func(source);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let mut text = String::new();
    for specialization in specializations(&func, KernelRequests::default()).expect("specializations that fit")
    {
        let mut widths: Vec<String> = vec![];
        specialization.plan.laid_out.body.walk(&mut |op| {
            let access = op.kind.operation().access();
            widths.extend(access.map(|access| format!("{} {}", params[access.param.index()], access.vector)));
        });
        let ones = specialization.guards.iter().filter(|guard| matches!(guard, Guard::Equal { .. }));
        let ones: Vec<String> = ones.map(|guard| WithNames(guard, &params).to_string()).collect();
        text += &format!("{}: {}; {}\n", specialization.name, ones.join(", "), widths.join(", "));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_strided_copy_is_specialized_for_each_contiguous_axis() {
    check_unit_strides(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], m: i32, n: i32, xm: i32, xn: i32, om: i32, on: i32) {
            let rows = (tl::program_id(0) * 64 + tl::arange(0, 64)).col();
            let columns = (tl::program_id(1) * 64 + tl::arange(0, 64)).row();
            let inside = (rows < m) & (columns < n);
            let x = tl::load(x + rows * xm + columns * xn, inside);
            tl::store(out + rows * om + columns * on, x, inside);
        }",
        expect![[r#"
            unit_strides: xn is 1, on is 1; x 4, out 4
            unit_strides_odd: xn is 1, on is 1; x 1, out 1
            unit_strides_2: xm is 1, on is 1; x 4, out 4
            unit_strides_2_odd: xm is 1, on is 1; x 1, out 1
            unit_strides_3: xn is 1, om is 1; x 4, out 4
            unit_strides_3_odd: xn is 1, om is 1; x 1, out 1
            unit_strides_4: xm is 1, om is 1; x 4, out 4
            unit_strides_4_odd: xm is 1, om is 1; x 1, out 1
            general: ; x 1, out 1
        "#]],
    );
}

#[test]
fn a_strided_matmul_is_specialized_for_each_layout_of_its_operands() {
    check_unit_strides(
        "#[fuse_kernel]
        fn k(
            a: &[bf16], b: &[bf16], c: &mut [bf16], m: i32, n: i32, k: i32, am: i32, ak: i32, bk: i32, bn: i32, cm: i32, cn: i32,
        ) {
            let rows = (tl::program_id(0) * 64 + tl::arange(0, 64)) % m;
            let columns = (tl::program_id(1) * 64 + tl::arange(0, 64)) % n;
            let inner = tl::arange(0, 32);
            let mut sum = tl::zeros::<f32>([64, 64]);
            for i in 0..tl::cdiv(k, 32) {
                let left = k - i * 32;
                let at = (rows.col() * am + (i * 32 + inner).row() * ak, (i * 32 + inner).col() * bk + columns.row() * bn);
                let x = tl::load(a + at.0, (inner < left).row(), 0.0);
                let y = tl::load(b + at.1, (inner < left).col(), 0.0);
                sum = tl::dot(x, y, sum);
            }
            let (rows, columns) =
                (tl::program_id(0) * 64 + tl::arange(0, 64), tl::program_id(1) * 64 + tl::arange(0, 64));
            let inside = (rows < m).col() & (columns < n).row();
            tl::store(c + rows.col() * cm + columns.row() * cn, sum.to::<bf16>(), inside);
        }",
        expect![[r#"
            unit_strides_wgmma: ak is 1, bn is 1, cn is 1; a 8, b 8, c 8
            unit_strides: ak is 1, bn is 1, cn is 1; a 8, b 8, c 8
            unit_strides_scalar_epilogue_wgmma: ak is 1, bn is 1, cn is 1; a 8, b 8, c 1
            unit_strides_scalar_epilogue: ak is 1, bn is 1, cn is 1; a 8, b 8, c 1
            unit_strides_scalar_b_wgmma: ak is 1, bn is 1, cn is 1; a 8, b 1, c 1
            unit_strides_scalar_b: ak is 1, bn is 1, cn is 1; a 8, b 1, c 1
            unit_strides_scalar_a_wgmma: ak is 1, bn is 1, cn is 1; a 1, b 8, c 1
            unit_strides_scalar_a: ak is 1, bn is 1, cn is 1; a 1, b 8, c 1
            unit_strides_odd_wgmma: ak is 1, bn is 1, cn is 1; a 1, b 1, c 1
            unit_strides_odd: ak is 1, bn is 1, cn is 1; a 1, b 1, c 1
            unit_strides_2_wgmma: am is 1, bn is 1, cn is 1; a 8, b 8, c 8
            unit_strides_2: am is 1, bn is 1, cn is 1; a 8, b 8, c 8
            unit_strides_2_scalar_epilogue_wgmma: am is 1, bn is 1, cn is 1; a 8, b 8, c 1
            unit_strides_2_scalar_epilogue: am is 1, bn is 1, cn is 1; a 8, b 8, c 1
            unit_strides_2_scalar_b_wgmma: am is 1, bn is 1, cn is 1; a 8, b 1, c 1
            unit_strides_2_scalar_b: am is 1, bn is 1, cn is 1; a 8, b 1, c 1
            unit_strides_2_scalar_a_wgmma: am is 1, bn is 1, cn is 1; a 1, b 8, c 1
            unit_strides_2_scalar_a: am is 1, bn is 1, cn is 1; a 1, b 8, c 1
            unit_strides_2_odd_wgmma: am is 1, bn is 1, cn is 1; a 1, b 1, c 1
            unit_strides_2_odd: am is 1, bn is 1, cn is 1; a 1, b 1, c 1
            unit_strides_3_wgmma: ak is 1, bk is 1, cn is 1; a 8, b 8, c 8
            unit_strides_3: ak is 1, bk is 1, cn is 1; a 8, b 8, c 8
            unit_strides_3_scalar_epilogue_wgmma: ak is 1, bk is 1, cn is 1; a 8, b 8, c 1
            unit_strides_3_scalar_epilogue: ak is 1, bk is 1, cn is 1; a 8, b 8, c 1
            unit_strides_3_odd_wgmma: ak is 1, bk is 1, cn is 1; a 1, b 1, c 1
            unit_strides_3_odd: ak is 1, bk is 1, cn is 1; a 1, b 1, c 1
            unit_strides_4_wgmma: am is 1, bk is 1, cn is 1; a 8, b 8, c 8
            unit_strides_4: am is 1, bk is 1, cn is 1; a 8, b 8, c 8
            unit_strides_4_scalar_epilogue_wgmma: am is 1, bk is 1, cn is 1; a 8, b 8, c 1
            unit_strides_4_scalar_epilogue: am is 1, bk is 1, cn is 1; a 8, b 8, c 1
            unit_strides_4_scalar_b_wgmma: am is 1, bk is 1, cn is 1; a 8, b 1, c 1
            unit_strides_4_scalar_b: am is 1, bk is 1, cn is 1; a 8, b 1, c 1
            unit_strides_4_scalar_a_wgmma: am is 1, bk is 1, cn is 1; a 1, b 8, c 1
            unit_strides_4_scalar_a: am is 1, bk is 1, cn is 1; a 1, b 8, c 1
            unit_strides_4_odd_wgmma: am is 1, bk is 1, cn is 1; a 1, b 1, c 1
            unit_strides_4_odd: am is 1, bk is 1, cn is 1; a 1, b 1, c 1
            general: ; a 1, b 1, c 1
        "#]],
    );
}

/// Rows of the operands may be aligned to vectors where those of the result are not, and the reverse.
#[test]
fn a_matmul_is_specialized_for_misaligned_results() {
    check_unit_strides(
        "#[fuse_kernel]
        fn k(x: &[f16], w: &[f16], y: &mut [f16], m: i32, n: i32, k: i32) {
            let rows = tl::program_id(0) * 64 + tl::arange(0, 64);
            let columns = tl::program_id(1) * 64 + tl::arange(0, 64);
            let mut sum = tl::zeros::<f32>([64, 64]);
            for start in (0..k).step_by(32) {
                let inner = start + tl::arange(0, 32);
                let left = tl::load(x + rows.col() * k + inner.row(), (rows < m).col() & (inner < k).row(), 0.0);
                let right = tl::load(w + inner.col() + columns.row() * k, (inner < k).col() & (columns < n).row(), 0.0);
                sum = tl::dot(left, right, sum);
            }
            let inside = (rows < m).col() & (columns < n).row();
            tl::store(y + rows.col() * n + columns.row(), sum.to::<f16>(), inside);
        }",
        expect![[r#"
            aligned_wgmma: ; x 8, w 8, y 8
            aligned: ; x 8, w 8, y 8
            scalar_epilogue_wgmma: ; x 8, w 8, y 1
            scalar_epilogue: ; x 8, w 8, y 1
            odd_wgmma: ; x 1, w 1, y 1
            odd: ; x 1, w 1, y 1
            general: ; x 1, w 1, y 1
        "#]],
    );
}

/// The extent of a row is not a candidate for a unit stride.
#[test]
fn an_extent_is_not_a_unit_stride() {
    check_unit_strides(
        "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], m: i32, n: i32, stride: i32) {
            let rows = tl::arange(0, 64);
            let column = tl::load(x + rows * n + tl::program_id(0), rows < m);
            let far = tl::load(x + rows.col() * stride + tl::arange(0, 16).row());
            tl::store(out + tl::program_id(0), tl::sum(column) + tl::sum(tl::sum(far, 1), 0), tl::program_id(0) < n);
        }",
        expect![[r#"
            aligned: ; x 1, x 4, out 1
            odd: ; x 1, x 1, out 1
            general: ; x 1, x 1, out 1
        "#]],
    );
}

/// The layer norm of Triton's tutorial: three loops over a row, which fits one tile in most launches.
#[test]
fn a_row_that_fits_one_tile_is_read_once() {
    check_unit_strides(
        "#[fuse_kernel(num_warps = 8)]
        fn k(x: &[bf16], w: &[bf16], out: &mut [bf16], stride: i32, n: i32, eps: f32) {
            let (row, columns) = (tl::program_id(0), tl::arange(0, 4096));
            let mut sum = tl::zeros::<f32>([4096]);
            for start in (0..n).step_by(4096) {
                let at = start + columns;
                sum += tl::load(x + row * stride + at, at < n, 0.0).to::<f32>();
            }
            let mean = tl::sum(sum, 0) / n as f32;
            let mut squares = tl::zeros::<f32>([4096]);
            for start in (0..n).step_by(4096) {
                let at = start + columns;
                let x = tl::load(x + row * stride + at, at < n, 0.0).to::<f32>();
                let x = tl::select(at < n, x - mean, 0.0);
                squares += x * x;
            }
            let scale = 1.0 / tl::sqrt(tl::sum(squares, 0) / n as f32 + eps);
            for start in (0..n).step_by(4096) {
                let at = start + columns;
                let w = tl::load(w + at, at < n).to::<f32>();
                let x = tl::load(x + row * stride + at, at < n, 0.0).to::<f32>();
                tl::store(out + row * stride + at, ((x - mean) * scale * w).to::<bf16>(), at < n);
            }
        }",
        expect![[r#"
            single_iteration: ; x 8, w 8, out 8
            single_iteration_unaligned: ; x 8, w 8, out 8
            aligned: ; x 8, x 8, w 8, x 8, out 8
            unaligned: ; x 8, x 8, w 8, x 8, out 8
            general: ; x 1, x 1, w 1, x 1, out 1
        "#]],
    );
}

/// With many programs whose loops reread a row no loop is software-pipelined, and only the block limits registers.
#[test]
fn many_programs_reread_rows_through_the_cache() {
    let source = |warps: u32| {
        format!(
            "#[fuse_kernel(num_warps = {warps})]
            fn k(x: &[bf16], out: &mut [bf16], n: i32, stride: i32) {{
                let (row, columns) = (tl::program_id(0), tl::arange(0, 1024));
                let mut sum = tl::zeros::<f32>([1024]);
                for start in (0..n).step_by(1024) {{
                    let at = start + columns;
                    sum += tl::load(x + row * stride + at, at < n, 0.0).to::<f32>();
                }}
                let mean = tl::sum(sum, 0) / n as f32;
                for start in (0..n).step_by(1024) {{
                    let at = start + columns;
                    let x = tl::load(x + row * stride + at, at < n, 0.0).to::<f32>();
                    tl::store(out + row * stride + at, (x - mean).to::<bf16>(), at < n);
                }}
            }}"
        )
    };
    let describe_all = |warps: u32| {
        let (func, requests) = first(&source(warps));
        let describe = |specialization: Specialization| {
            let names: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
            let guards = specialization.guards.iter().map(|guard| WithNames(guard, &names).to_string());
            let programs: Vec<String> = guards.filter(|guard| guard.contains("num_programs")).collect();
            format!("{}: {}; {:?}\n", specialization.name, programs.join(", "), specialization.plan.limit)
        };
        specializations(&func, requests)
            .expect("specializations that fit")
            .into_iter()
            .map(describe)
            .collect::<String>()
    };
    expect![[r#"
        single_iteration: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        single_iteration_unaligned: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        many: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(), 1024 <= num_programs(0) * num_programs(1) * num_programs(2); Some(Registers(255))
        aligned: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        unaligned: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        general: ; None
    "#]]
    .assert_eq(&describe_all(4));
    expect![[r#"
        single_iteration: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        single_iteration_unaligned: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        many: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(), 1024 <= num_programs(0) * num_programs(1) * num_programs(2); Some(Registers(128))
        aligned: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        unaligned: n - stride + stride * num_programs(0) <= x.len(), n - stride + stride * num_programs(0) <= out.len(); None
        general: ; None
    "#]]
    .assert_eq(&describe_all(16));
}

/// Sums of rows are few compared with the rows: that their count is odd does not narrow the rows' vectors.
#[test]
fn a_small_access_requires_no_alignment() {
    check(
        "#[fuse_kernel]
        fn k(x: &[bf16], out: &mut [bf16], sums: &mut [f32], n: i32) {
            let rows = tl::program_id(0) * 64 + tl::arange(0, 64);
            let at = (tl::program_id(1) * n + rows).col() * 128 + tl::arange(0, 128).row();
            let x = tl::load(x + at, (rows < n).col(), 0.0);
            tl::store(out + at, x * 2.0, (rows < n).col());
            tl::store(sums + tl::program_id(1) * n + rows, tl::sum(x.to::<f32>(), 1), rows < n);
        }",
        expect![[r#"
            load x: inside, 8 at once
            store out: inside, 8 at once
            store sums: inside, 1 at once
            x is 16-byte aligned
            out is 16-byte aligned
            -1 + 64 * num_programs(0) <= 2147483647
            0 <= n
            128 * n * num_programs(1) <= x.len()
            128 * n * num_programs(1) <= out.len()
            n * num_programs(1) <= sums.len()
        "#]],
    );
}

/// A slice that is read in two ways has one stride of 1, not one for each way.
#[test]
fn a_slice_has_one_stride_of_one() {
    check_unit_strides(
        "#[fuse_kernel(num_warps = 2)]
        fn k(x: &[f16], rows: &[i32], out: &mut [f16], sm: i32, sn: i32, m: i32, n: i32) {
            let (r, c) = (tl::program_id(0) * 32 + tl::arange(0, 32), tl::arange(0, 64));
            let (from, around) = (tl::load(rows + r, r < m, 0), (c + 5) % n);
            let mask = (r < m).col() & (c < n).row();
            let a = tl::load(x + from.col() * sm + (c * sn).row(), mask);
            let b = tl::load(x + r.col() * sm + (around * sn).row(), mask);
            tl::store(out + r.col() * n + c.row(), a + b, mask);
        }",
        expect![[r#"
            unit_strides: sn is 1; rows 1, x 8, x 1, out 8
            unit_strides_odd: sn is 1; rows 1, x 1, x 1, out 1
            unit_strides_2: sm is 1; rows 1, x 1, x 8, out 8
            unit_strides_2_odd: sm is 1; rows 1, x 1, x 1, out 1
            aligned: ; rows 1, x 1, x 1, out 8
            general: ; rows 1, x 1, x 1, out 1
        "#]],
    );
}
