//! `attention`.

use dsl_runtime::prelude::*;
use fused_kernels::attention::{Attention, Sequences, attention, reference};
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal, shifted};

/// Blocks that are full, cut on either side, and hardly touched; fewer keys than queries, and none.
const SEQUENCES: [Sequences; 8] = [
    Sequences { heads: 2, queries: 128, keys: 128 },
    Sequences { heads: 1, queries: 129, keys: 191 },
    Sequences { heads: 3, queries: 1, keys: 100 },
    Sequences { heads: 2, queries: 70, keys: 1 },
    Sequences { heads: 1, queries: 200, keys: 65 },
    Sequences { heads: 1, queries: 5, keys: 0 },
    Sequences { heads: 0, queries: 5, keys: 5 },
    Sequences { heads: 1, queries: 64, keys: 320 },
];

fn check_one<T: Float, const D: usize, const CAUSAL: bool>()
where
    attention::Choice<T, D, CAUSAL, 128, 64>: attention::Declared,
{
    for sequences in SEQUENCES {
        let Sequences { heads, queries, keys } = sequences;
        let q = normal::<T>(heads * queries * D, 1);
        let [k, v] = [2, 3].map(|seed| normal::<T>(heads * keys * D, seed));
        let [rows, sums] = reference::<T, D, CAUSAL>([&q, &k, &v], sequences, 0.2);
        for device in devices() {
            for shift in [0, 1] {
                let [bq, bk, bv] = [&q, &k, &v].map(|values| shifted(device, values, shift));
                let mut out = Guarded::<T>::new(device, rows.len(), shift);
                let mut lse = Guarded::<f32>::new(device, sums.len(), shift);
                Attention::<T, D, CAUSAL>::new(
                    bq.slice(shift..),
                    bk.slice(shift..),
                    bv.slice(shift..),
                    sequences,
                )
                .scale(0.2)
                .launch(&device, out.output(), lse.output())
                .unwrap();
                let what = format!("{sequences:?} of {} x {D} on {device}, shifted by {shift}", T::DTYPE);
                compare(&out.content(), &rows).unwrap_or_else(|found| panic!("{what}: {found}"));
                compare(&lse.content(), &sums).unwrap_or_else(|found| panic!("{what}, lse: {found}"));
            }
        }
    }
}

#[test]
fn attention_is_as_exact_as_stated() {
    check_one::<f16, 64, false>();
    check_one::<bf16, 64, false>();
    check_one::<bf16, 32, false>();
    check_one::<bf16, 128, false>();
}

#[test]
fn causal_attention_is_as_exact_as_stated() {
    check_one::<f16, 64, true>();
    check_one::<bf16, 64, true>();
    check_one::<f16, 128, true>();
}

/// A NaN among a query's elements is one in its row and its `lse`, and in no other.
#[test]
fn nan_stays_in_its_row() {
    let sequences = Sequences { heads: 1, queries: 3, keys: 2 };
    let mut q = normal::<f16>(3 * 64, 1);
    q[64 + 5] = f16::NAN;
    let [k, v] = [2, 3].map(|seed| normal::<f16>(2 * 64, seed));
    for device in devices() {
        let [q, k, v] = [&q, &k, &v].map(|values| device.upload(values).unwrap());
        let (mut out, mut lse) = (device.zeros::<f16>(3 * 64).unwrap(), device.zeros::<f32>(3).unwrap());
        Attention::<f16, 64, false>::new(&q, &k, &v, sequences).launch(&device, &mut out, &mut lse).unwrap();
        let (out, lse) = (out.download().unwrap(), lse.download().unwrap());
        for row in 0..3 {
            let nan = row == 1;
            assert!(out[row * 64..][..64].iter().all(|x| x.is_nan() == nan), "row {row} on {device}: {out:?}");
            assert_eq!(lse[row].is_nan(), nan, "row {row} on {device}: {lse:?}");
        }
    }
}

#[test]
fn wrong_lengths_are_errors() {
    let device = Device::cpu();
    let (q, k) = (device.zeros::<f16>(64).unwrap(), device.zeros::<f16>(128).unwrap());
    let (mut out, mut lse) = (device.zeros::<f16>(64).unwrap(), device.zeros::<f32>(2).unwrap());
    let sequences = Sequences { heads: 1, queries: 1, keys: 2 };
    let found = Attention::<f16, 64, false>::new(&q, &k, &q, sequences).launch(&device, &mut out, &mut lse);
    assert_eq!(found.unwrap_err().to_string(), "attention: v has 64 elements and heads * keys * D has 128");
    let found = Attention::<f16, 64, false>::new(&q, &k, &k, sequences).launch(&device, &mut out, &mut lse);
    assert_eq!(found.unwrap_err().to_string(), "attention: lse has 2 elements and heads * queries has 1");
}
