//! [`fuse_ports::attention`].

use dsl_runtime::prelude::*;
use fuse_ports::attention::{attention_by_views, flash_attention, paged_decode};

use crate::data::{Expected, Output, SINGLE, devices, integers, normal};

/// Elements of a head's row.
const D: usize = 128;

/// Attention of one query: the row, by how much rounding may move each element, and the logarithm to base 2 of the sum of exponentials.
pub fn attend<T: Element>(
    q: &[bf16],
    keys: &[&[T]],
    values: &[&[T]],
    scale: f64,
    unit: f64,
) -> (Vec<Expected>, f64) {
    attend_changed(q, keys, values, scale, unit, |score| score)
}

/// The same of scores that a function changes by no more than they change.
fn attend_changed<T: Element>(
    q: &[bf16],
    keys: &[&[T]],
    values: &[&[T]],
    scale: f64,
    unit: f64,
    change: impl Fn(f64) -> f64,
) -> (Vec<Expected>, f64) {
    let products = |k: &[T]| -> Vec<f64> { q.iter().zip(k).map(|(q, k)| q.to_f64() * k.to_f64()).collect() };
    let scores: Vec<f64> = keys.iter().map(|k| change(products(k).iter().sum::<f64>() * scale)).collect();
    let sizes = keys.iter().map(|k| products(k).iter().map(|x| x.abs()).sum::<f64>() * scale);
    let size = sizes.fold(0.0, f64::max);
    let peak = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = scores.iter().map(|s| (s - peak).exp()).sum();
    let moved = 2.0 * (q.len() as f64 + 8.0) * 2.0 * SINGLE * size;
    let relative = unit + moved + (keys.len() as f64 + 64.0) * 2.0 * SINGLE;
    let row = (0..values[0].len()).map(|i| {
        let weighted = || scores.iter().zip(values).map(|(s, v)| (s - peak).exp() / total * v[i].to_f64());
        let magnitude: f64 = weighted().map(f64::abs).sum();
        Expected::rounded::<bf16>(weighted().sum(), relative * magnitude)
    });
    (row.collect(), (peak + total.ln()) / std::f64::consts::LN_2)
}

fn check_flash<const CAUSAL: bool>(batch: usize, heads: usize, n: usize)
where
    flash_attention::Choice<CAUSAL, 128, 128, 64>: flash_attention::Declared,
{
    let scale = (D as f32).powf(-0.5);
    for device in devices() {
        let count = batch * heads * n * D;
        let [q, k, v] = [1, 2, 3].map(|seed| normal::<bf16>(count, seed));
        let mut out = Output::<bf16>::poisoned(&device, count);
        let mut lse = Output::<f32>::poisoned(&device, batch * heads * n);
        let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
        let [z, h, row, heads_arg, n_arg] = [heads * n * D, n * D, D, heads, n].map(|n| n as i32);
        flash_attention::<CAUSAL, 128, 128, 64>(
            &q_in,
            &k_in,
            &v_in,
            out.slot(),
            lse.slot(),
            scale,
            z,
            h,
            row,
            heads_arg,
            n_arg,
        )
        .grid((n.div_ceil(128), batch * heads))
        .launch(&device)
        .unwrap();
        let rows = |x| -> Vec<&[bf16]> { <[bf16]>::chunks(x, D).collect() };
        let (q, k, v) = (rows(&q), rows(&k), rows(&v));
        let (mut expected, mut sums) = (vec![], vec![]);
        for (i, q) in q.iter().enumerate() {
            let first = i / n * n;
            let seen = first..if CAUSAL { i + 1 } else { first + n };
            let found = attend(q, &k[seen.clone()], &v[seen], f64::from(scale), 1.0 / 256.0);
            expected.extend(found.0);
            let within = 2f64.powi(-12) + 2f64.powi(-20) * found.1.abs();
            sums.push(Expected { value: found.1, within });
        }
        let what = format!("{batch} x {heads} x {n}, causal {CAUSAL}, on {device}");
        out.check(&what, &expected);
        lse.check(&format!("lse of {what}"), &sums);
    }
}

#[test]
fn flash_attention_sees_every_key() {
    check_flash::<false>(1, 2, 45);
    check_flash::<false>(1, 1, 256);
}

#[test]
fn flash_attention_sees_no_key_ahead() {
    check_flash::<true>(2, 1, 131);
    check_flash::<true>(1, 1, 256);
}

fn check_views<const FORM: usize>(heads: usize, n: usize)
where
    attention_by_views::Choice<FORM, 128, 128, 128>: attention_by_views::Declared,
{
    let (scale, cap) = ((D as f32).powf(-0.5), 3.0f32);
    for device in devices() {
        let [q, k, v] = [1, 2, 3].map(|seed| normal::<bf16>(heads * n * D, seed));
        let mut out = Output::<bf16>::poisoned(&device, heads * n * D);
        let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
        let [q_view, k_view, v_view] = [&q_in, &k_in, &v_in].map(|x| x.view([heads, n, D]).unwrap());
        let mut slot = out.slot();
        let result = slot.view_mut([heads, n, D]).unwrap();
        attention_by_views::<FORM, 128, 128, 128>(q_view, k_view, v_view, result, scale, cap)
            .grid((n.div_ceil(128), heads))
            .launch(&device)
            .unwrap();
        let rows = |x| -> Vec<&[bf16]> { <[bf16]>::chunks(x, D).collect() };
        let (q, k, v) = (rows(&q), rows(&k), rows(&v));
        let capped =
            |score: f64| if FORM == 2 { f64::from(cap) * (score / f64::from(cap)).tanh() } else { score };
        let mut expected = vec![];
        for (i, q) in q.iter().enumerate() {
            let first = i / n * n;
            let seen = first..if FORM == 0 { first + n } else { i + 1 };
            expected.extend(
                attend_changed(q, &k[seen.clone()], &v[seen], f64::from(scale), 1.0 / 256.0, capped).0,
            );
        }
        out.check(&format!("form {FORM}, {heads} x {n} on {device}"), &expected);
    }
}

#[test]
fn attention_by_views_takes_any_length() {
    for (heads, n) in [(2, 45), (1, 256), (1, 301)] {
        check_views::<0>(heads, n);
        check_views::<1>(heads, n);
        check_views::<2>(heads, n);
    }
}

#[test]
fn decoding_reads_the_pages_of_the_table() {
    let scale = (D as f32).powf(-0.5);
    for device in devices() {
        for (lengths, heads) in [(vec![37i32, 1, 160], 3usize), (vec![128, 128], 2)] {
            let (sequences, pages) = (lengths.len(), 64);
            let max_pages = lengths.iter().map(|length| (*length as usize).div_ceil(16)).max().unwrap();
            let q = normal::<bf16>(sequences * heads * D, 1);
            let [k, v] = [2, 3].map(|seed| normal::<bf16>(pages * 16 * heads * D, seed));
            let table = integers::<i32>(sequences * max_pages, 0..pages as i64, 4);
            let mut out = Output::<bf16>::poisoned(&device, q.len());
            let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| device.upload(x).unwrap());
            let [table_in, lengths_in] = [&table, &lengths].map(|x| device.upload(x).unwrap());
            let call = paged_decode::<128>(
                &q_in,
                &k_in,
                &v_in,
                &table_in,
                &lengths_in,
                out.slot(),
                scale,
                heads as i32,
                max_pages as i32,
            );
            call.grid((sequences, heads)).launch(&device).unwrap();
            let mut expected = vec![];
            for (sequence, length) in lengths.iter().enumerate() {
                for head in 0..heads {
                    let place = |i: usize| {
                        let page = table[sequence * max_pages + i / 16] as usize;
                        ((page * 16 + i % 16) * heads + head) * D
                    };
                    let keys: Vec<&[bf16]> = (0..*length as usize).map(|i| &k[place(i)..][..D]).collect();
                    let values: Vec<&[bf16]> = (0..*length as usize).map(|i| &v[place(i)..][..D]).collect();
                    let q = &q[(sequence * heads + head) * D..][..D];
                    expected.extend(attend(q, &keys, &values, f64::from(scale), 0.0).0);
                }
            }
            out.check(&format!("{lengths:?} x {heads} on {device}"), &expected);
        }
    }
}
