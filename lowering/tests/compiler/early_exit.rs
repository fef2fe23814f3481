//! `return`, `break`, `continue` and `match` behave as in Rust.

use super::run::{Arg, run};

fn kernel(statements: &str) -> String {
    format!(
        "#[fuse_kernel(ACT = [1])]
        fn k<const ACT: u32>(out: &mut [f32], n: i32) {{
{statements}
        }}"
    )
}

/// How the statements below write, in Rust.
macro_rules! put {
    ($out:ident, $at:expr, $value:expr) => {
        $out[($at) as usize] = $value as f32
    };
}

/// Runs statements as a kernel, and as Rust; both must write the same.
macro_rules! agree {
    (|$out:ident, $n:ident| $($statements:tt)*) => {
        for n in 0..12i32 {
            #[allow(clippy::all, unused)]
            fn rust($out: &mut [f32], $n: i32) {
                const ACT: u32 = 1;
                $($statements)*
            }
            let (mut wanted, mut found) = (vec![0.0f32; 64], vec![0.0f32; 64]);
            rust(&mut wanted, n);
            let text = stringify!($($statements)*).replace("put! (", "put!(");
            let parts = text.split("put!(out, ").enumerate().map(|(i, part)| {
                // The value becomes a float, as in the macro above.
                if i == 0 { part.to_string() } else { format!("put(out, {part}") }
            });
            let text = parts.collect::<String>();
            let put = "fn put(out: &mut [f32], at: i32, value: i32) { tl::store(out + at, value as f32); }";
            run(&kernel(&format!("{put} {text}")), [1, 1, 1], vec![Arg::F32(&mut found), Arg::Scalar(n as u64)]);
            assert_eq!(found, wanted, "n = {n}: {text}");
        }
    };
}

#[test]
fn returns_do_what_they_do_in_rust() {
    agree! { |out, n|
        if n < 2 { put!(out, 0, 1); return; }
        put!(out, 1, 1);
        if n > 6 { put!(out, 2, 1); if n > 9 { put!(out, 3, 1); return; } put!(out, 4, 1); } else { put!(out, 5, 1); }
        put!(out, 6, 1);
        for i in 0..n {
            put!(out, 10 + i, 1);
            if i == 5 { return; }
            put!(out, 30 + i, 1);
        }
        put!(out, 7, 1);
        { put!(out, 8, 1); if n == 4 { return; } }
        put!(out, 9, 1);
    }
}

#[test]
fn breaks_do_what_they_do_in_rust() {
    agree! { |out, n|
        let mut sum = 0;
        for i in 0..n {
            if i == 2 { continue; }
            let mut j = 0;
            while j < n {
                j += 1;
                if j == 3 { continue; }
                if j > 6 { if i > 4 { break; } put!(out, 50, i); }
                if i + j == 13 { return; }
                sum += i * j;
            }
            sum += 1;
            if i == 7 { put!(out, 51, j); break; }
            put!(out, i, sum);
        }
        put!(out, 52, sum);
    }
}

#[test]
fn matches_do_what_they_do_in_rust() {
    agree! { |out, n|
        const FIVE: i32 = 5;
        fn of(x: i32) -> i32 {
            if x < 1 { return 7; }
            match x { 1 | 2 => 10, 3..=4 => { let y = x * 2; y } FIVE => return 3, _ => 20 }
        }
        put!(out, 0, of(n));
        match n { 8 => { put!(out, 1, 1); return; } 9 => put!(out, 2, 1), _ => {} }
        let flag = match n > 3 { true => 1, false => 2 };
        put!(out, 3, flag);
        put!(out, 4, match ACT { 0 => 1, 1 => 2, _ => 3 });
    }
}
