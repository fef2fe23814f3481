//! `rope` and `qk_norm_rope`.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::reference::compare;
use fused_kernels::rope::{Angles, Heads, HostAngles, QkNormRope, Rope, packed_reference, reference};

use crate::data::{Guarded, check, devices, normal, shifted};

/// Cosines and sines of `half` angles for 50 positions, and positions that go to and fro.
fn tables(half: usize, tokens: usize) -> (Vec<i32>, Vec<f32>, Vec<f32>) {
    let angle = |i: usize| (i / half) as f64 * 10_000f64.powf(-((i % half) as f64) / half as f64);
    let cos = (0..50 * half).map(|i| angle(i).cos() as f32).collect();
    let sin = (0..50 * half).map(|i| angle(i).sin() as f32).collect();
    ((0..tokens).map(|token| (token * 17 % 50) as i32).collect(), cos, sin)
}

fn check_heads<T: LibraryFloat, const INTERLEAVED: bool>() {
    // Tokens, heads, elements of a head, rotated pairs: all of them, some, odd numbers.
    for [tokens, heads, dim, half] in [
        [0, 2, 64, 32],
        [1, 1, 2, 1],
        [5, 3, 64, 32],
        [3, 2, 80, 20],
        [7, 5, 100, 33],
        [2, 3, 256, 128],
        [20, 9, 128, 64],
    ] {
        let x = normal::<T>(tokens * heads * dim, 1);
        let (positions, cos, sin) = tables(half, tokens);
        let angles =
            HostAngles { positions: &positions, cos: &cos, sin: &sin, half, interleaved: INTERLEAVED };
        let expected = [reference(&x, angles, heads, dim)];
        let what =
            format!("{tokens} tokens, {heads} heads of {dim}, {half} pairs, interleaved {INTERLEAVED}");
        check(&what, &[&x], &expected, |on, inputs, outs| {
            let (positions, cos, sin) = (on.upload(&positions)?, on.upload(&cos)?, on.upload(&sin)?);
            let angles =
                Angles { positions: positions.slice(..), cos: cos.slice(..), sin: sin.slice(..), half };
            Rope::<T, INTERLEAVED>::new(inputs[0], angles, heads, dim).launch(on, &mut outs[0])
        });
    }
}

#[test]
fn heads_turn_as_exactly_as_stated() {
    check_heads::<f32, false>();
    check_heads::<f32, true>();
    check_heads::<f16, false>();
    check_heads::<f16, true>();
    check_heads::<bf16, false>();
    check_heads::<bf16, true>();
}

fn check_packed<T: LibraryFloat, const INTERLEAVED: bool>() {
    for (tokens, queries, keys, half) in
        [(0, 2, 1, 32), (1, 1, 1, 1), (5, 8, 2, 64), (7, 3, 1, 33), (3, 4, 4, 128)]
    {
        let heads = Heads { queries, keys };
        let qkv = normal::<T>(tokens * (queries + 2 * keys) * 2 * half, 1);
        let gammas = normal::<T>(4 * half, 2);
        let (positions, cos, sin) = tables(half, tokens);
        let angles =
            HostAngles { positions: &positions, cos: &cos, sin: &sin, half, interleaved: INTERLEAVED };
        let expected = packed_reference(&qkv, angles, heads, (&gammas, 1e-6));
        for device in devices() {
            for shift in [0, 1] {
                let mut packed = Guarded::of(device, &qkv, shift);
                let gammas = shifted(device, &gammas, shift);
                let (positions, cos, sin) = (
                    device.upload(&positions).unwrap(),
                    device.upload(&cos).unwrap(),
                    device.upload(&sin).unwrap(),
                );
                let angles =
                    Angles { positions: positions.slice(..), cos: cos.slice(..), sin: sin.slice(..), half };
                let op = QkNormRope::<T, INTERLEAVED>::new(angles, heads, gammas.slice(shift..));
                op.launch(&device, packed.output()).unwrap();
                if let Err(found) = compare(&packed.content(), &expected) {
                    panic!("{tokens} tokens, {heads:?}, {half} pairs of {} on {device}: {found}", T::DTYPE);
                }
            }
        }
    }
}

#[test]
fn queries_and_keys_are_normed_and_turned_in_place() {
    check_packed::<f32, false>();
    check_packed::<f32, true>();
    check_packed::<f16, false>();
    check_packed::<f16, true>();
    check_packed::<bf16, false>();
    check_packed::<bf16, true>();
}

/// The reference itself: a rotation keeps lengths, and pairs are where they should be.
#[test]
fn a_quarter_turn_trades_the_elements_of_a_pair() {
    let x = [1.0f32, 2.0, 3.0, 4.0];
    let rotated = |interleaved: bool| -> Vec<f64> {
        let angles = HostAngles { positions: &[0], cos: &[0.0; 2], sin: &[1.0; 2], half: 2, interleaved };
        reference(&x, angles, 1, 4).iter().map(|y| y.value).collect()
    };
    assert_eq!(rotated(false), [-3.0, -4.0, 1.0, 2.0]);
    assert_eq!(rotated(true), [-2.0, 1.0, -4.0, 3.0]);
}

#[test]
fn lengths_that_do_not_fit_are_an_error_in_words() {
    let device = Device::cpu();
    let (positions, table) = ([0i32, 1], [1.0f32; 8]);
    let angles = |half: usize| Angles {
        positions: (&positions).into(),
        cos: (&table).into(),
        sin: (&table).into(),
        half,
    };
    let say = |half: usize, heads: usize, dim: usize| {
        let (x, mut out) = ([1.0f32; 16], [0.0f32; 16]);
        let rope = Rope::<f32, false>::new(&x, angles(half), heads, dim);
        rope.launch(&device, &mut out).map_err(|error| error.to_string())
    };
    let error = |reason: &str| Err(format!("rope: {reason}"));
    assert_eq!(say(4, 1, 8), Ok(()));
    assert_eq!(say(4, 1, 7), error("4 pairs do not fit heads of 7"));
    assert_eq!(say(0, 1, 8), error("0 pairs turn, from 1 to 128 can"));
    assert_eq!(say(3, 1, 8), error("cos has 8 elements, which are no whole rows of 3"));
    assert_eq!(say(4, 2, 8), error("x has 16 elements and all heads has 32"));
}
