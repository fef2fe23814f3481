//! What a body makes of accesses whose bounds are not known at launch.

use expect_test::{Expect, expect};

use super::func;
use crate::analysis::fact::Named;
use crate::body::{Requests, bodies};

/// The accesses of the aligned body, each with how it is compared with the slice's length and how wide it is; and its facts.
fn check(source: &str, expected: Expect) {
    let func = func(source);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let bodies = bodies(&func, Requests::default()).expect("bodies that fit");
    let body = &bodies[0];
    let mut text = String::new();
    body.plan.distributed.func.body.walk(&mut |op| {
        let Some(place) = op.kind.operation().place() else { return };
        let how = if place.bounded { "compared" } else { "inside" };
        text += &format!(
            "{} {}: {how}, {} at once\n",
            op.kind.operation().name(),
            params[place.param.index()],
            place.vector
        );
    });
    for fact in &body.facts {
        text += &format!("{}\n", Named(fact, &params));
    }
    expected.assert_eq(&text);
}

#[test]
fn a_gathered_row_is_compared_by_vectors() {
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
fn a_convolution_is_not_compared() {
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
fn rows_of_a_product_wrap_around() {
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
            load pages: compared, 1 at once
            load keys: compared, 8 at once
            store out: inside, 1 at once
            q is 16-byte aligned
            keys is 16-byte aligned
            8 divides keys.len()
            128 <= q.len()
            16 * num_programs(0) <= out.len()
        "#]],
    );
}
