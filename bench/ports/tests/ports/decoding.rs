//! [`fuse_ports::decoding`].

use dsl_runtime::prelude::*;
use fuse_ports::decoding::{int8_decode, merge_parts, mla_decode};

use crate::attention::attend;
use crate::data::{Output, devices, integers, normal};

/// Elements of a latent key, and of its part with a position.
const LATENT: usize = 512;
const ROW: usize = LATENT + 64;

fn check_mla<const H: usize>(lengths: &[i32], heads: usize, parts: usize)
where
    mla_decode::Choice<H, LATENT, 64, 32>: mla_decode::Declared,
{
    let scale = (192f32).powf(-0.5);
    let (sequences, max_keys) = (lengths.len(), *lengths.iter().max().unwrap() as usize + 3);
    for device in devices() {
        let q = normal::<bf16>(sequences * heads * ROW, 1);
        let cache = normal::<bf16>(sequences * max_keys * ROW, 2);
        let rows = sequences * heads;
        let mut partial = Output::<f32>::poisoned(&device, rows * parts * LATENT);
        let mut lse = Output::<f32>::poisoned(&device, rows * parts);
        let mut out = Output::<bf16>::poisoned(&device, rows * LATENT);
        let [q_in, cache_in] = [&q, &cache].map(|x| device.upload(x).unwrap());
        let lengths_in = device.upload(lengths).unwrap();
        let call = mla_decode::<H, LATENT, 64, 32>(
            &q_in,
            &cache_in,
            &lengths_in,
            partial.slot(),
            lse.slot(),
            scale,
            heads as i32,
            max_keys as i32,
        );
        call.grid((parts, heads.div_ceil(H), sequences)).launch(&device).unwrap();
        let [partial_in, lse_in] = [partial.content(), lse.content()].map(|x| device.upload(&x).unwrap());
        merge_parts::<LATENT>(&partial_in, &lse_in, out.slot(), parts as i32)
            .grid(rows)
            .launch(&device)
            .unwrap();
        let mut expected = vec![];
        for (i, q) in q.chunks(ROW).enumerate() {
            let sequence = i / heads;
            let key = |j: usize| &cache[(sequence * max_keys + j) * ROW..][..ROW];
            let keys: Vec<&[bf16]> = (0..lengths[sequence] as usize).map(key).collect();
            let values: Vec<&[bf16]> = keys.iter().map(|key| &key[..LATENT]).collect();
            expected.extend(attend(q, &keys, &values, f64::from(scale), 1.0 / 256.0).0);
        }
        out.check(&format!("{lengths:?} x {heads} in {parts} parts on {device}"), &expected);
    }
}

#[test]
fn heads_share_a_latent_cache_in_parts() {
    check_mla::<16>(&[37, 1, 160], 20, 3);
    check_mla::<16>(&[128], 16, 2);
    check_mla::<64>(&[131, 90], 70, 2);
}

#[test]
fn an_int8_cache_has_a_scale_for_each_row() {
    const D: usize = 128;
    let scale = (D as f32).powf(-0.5);
    for device in devices() {
        for (lengths, heads, kv_heads) in [(vec![37i32, 1, 160], 6usize, 2usize), (vec![128], 16, 1)] {
            let sequences = lengths.len();
            let max_keys = *lengths.iter().max().unwrap() as usize + 5;
            let rows = sequences * max_keys * kv_heads;
            let q = normal::<bf16>(sequences * heads * D, 1);
            let [k, v] = [2, 3].map(|seed| integers::<i8>(rows * D, -127..128, seed));
            let [k_scales, v_scales] = [4, 5].map(|seed| {
                normal::<f32>(rows, seed).into_iter().map(|x| x.abs() / 64.0).collect::<Vec<_>>()
            });
            let mut out = Output::<bf16>::poisoned(&device, q.len());
            let q_in = device.upload(&q).unwrap();
            let [k_in, v_in] = [&k, &v].map(|x| device.upload(x).unwrap());
            let [k_scales_in, v_scales_in] = [&k_scales, &v_scales].map(|x| device.upload(x).unwrap());
            let lengths_in = device.upload(&lengths).unwrap();
            let call = int8_decode::<128, 16, 64>(
                &q_in,
                &k_in,
                &v_in,
                &k_scales_in,
                &v_scales_in,
                &lengths_in,
                out.slot(),
                scale,
                heads as i32,
                kv_heads as i32,
                max_keys as i32,
            );
            call.grid((kv_heads, sequences)).launch(&device).unwrap();
            let mut expected = vec![];
            for (i, q) in q.chunks(D).enumerate() {
                let (sequence, head) = (i / heads, i % heads * kv_heads / heads);
                let scaled = |x: &[i8], scales: &[f32]| -> Vec<Vec<f64>> {
                    let row = |j: usize| (sequence * max_keys + j) * kv_heads + head;
                    let of = |row: usize| {
                        x[row * D..][..D].iter().map(move |x| f64::from(*x) * f64::from(scales[row]))
                    };
                    (0..lengths[sequence] as usize).map(|j| of(row(j)).collect()).collect()
                };
                let (keys, values) = (scaled(&k, &k_scales), scaled(&v, &v_scales));
                let [keys, values] =
                    [&keys, &values].map(|x| x.iter().map(Vec::as_slice).collect::<Vec<_>>());
                expected.extend(attend(q, &keys, &values, f64::from(scale), 1.0 / 256.0).0);
            }
            out.check(&format!("{lengths:?} x {heads} / {kv_heads} on {device}"), &expected);
        }
    }
}
