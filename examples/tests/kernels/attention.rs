//! `attention`.

use dsl_runtime::prelude::*;
use fused_kernels::attention::{Attention, Sequences, attention, reference};
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal, shifted};

/// Blocks that are full, cut on either side by one and by more, and hardly touched; fewer keys than queries, and none.
const SEQUENCES: [Sequences; 10] = [
    Sequences { heads: 2, queries: 128, keys: 128 },
    Sequences { heads: 1, queries: 129, keys: 191 },
    Sequences { heads: 3, queries: 1, keys: 100 },
    Sequences { heads: 2, queries: 70, keys: 1 },
    Sequences { heads: 1, queries: 200, keys: 65 },
    Sequences { heads: 1, queries: 5, keys: 0 },
    Sequences { heads: 0, queries: 5, keys: 5 },
    Sequences { heads: 1, queries: 64, keys: 320 },
    Sequences { heads: 2, queries: 127, keys: 257 },
    Sequences { heads: 1, queries: 257, keys: 255 },
];

/// How the rows of heads lie in memory.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Head after head.
    Heads,
    /// The first rows of all heads, then the second ones.
    Rows,
    /// Head after head, and so many elements between rows.
    Apart(usize),
}

impl Order {
    fn strides(self, [heads, rows, elements]: [usize; 3]) -> [usize; 3] {
        match self {
            Order::Heads => [rows * elements, elements, 1],
            Order::Rows => [elements, heads * elements, 1],
            Order::Apart(by) => [rows * (elements + by), elements + by, 1],
        }
    }

    /// On `device`, `shift` elements after a boundary.
    fn laid_out<T: Float>(
        self,
        device: Device,
        elements: &[T],
        shape: [usize; 3],
        shift: usize,
    ) -> Buffer<T> {
        let [head, row, _] = self.strides(shape);
        let len =
            if shape.contains(&0) { 0 } else { (shape[0] - 1) * head + (shape[1] - 1) * row + shape[2] };
        let mut memory = vec![T::from_f64(f64::NAN); len];
        for (i, own) in elements.chunks(shape[2]).enumerate() {
            let start = i / shape[1] * head + i % shape[1] * row;
            memory[start..start + shape[2]].copy_from_slice(own);
        }
        shifted(device, &memory, shift)
    }
}

fn check_one<T: Float, const D: usize, const CAUSAL: bool>()
where
    attention::Choice<T, D, CAUSAL, 128, 128>: attention::Declared,
{
    for sequences in SEQUENCES {
        check_order::<T, D, CAUSAL>(sequences, Order::Heads);
    }
    for order in [Order::Rows, Order::Apart(8), Order::Apart(3)] {
        check_order::<T, D, CAUSAL>(Sequences { heads: 3, queries: 131, keys: 140 }, order);
    }
}

fn check_order<T: Float, const D: usize, const CAUSAL: bool>(sequences: Sequences, order: Order)
where
    attention::Choice<T, D, CAUSAL, 128, 128>: attention::Declared,
{
    let Sequences { heads, queries, keys } = sequences;
    let q = normal::<T>(heads * queries * D, 1);
    let [k, v] = [2, 3].map(|seed| normal::<T>(heads * keys * D, seed));
    let [rows, sums] = reference::<T, D, CAUSAL>([&q, &k, &v], sequences, 0.2);
    let shapes = [queries, keys, keys].map(|rows| [heads, rows, D]);
    for device in devices() {
        for shift in [0, 1] {
            let mut inputs = [&q, &k, &v].into_iter().zip(shapes);
            let inputs = [(); 3].map(|()| {
                let (values, shape) = inputs.next().unwrap();
                (order.laid_out(device, values, shape, shift), shape)
            });
            let [q, k, v] = [0, 1, 2].map(|i| {
                let (buffer, shape) = &inputs[i];
                buffer.slice(shift..).view_strided(*shape, order.strides(*shape)).unwrap()
            });
            let mut out = Guarded::<T>::new(device, rows.len(), shift);
            let mut lse = Guarded::<f32>::new(device, sums.len(), shift);
            let mut memory = out.output();
            let result = memory.view_mut(shapes[0]).unwrap();
            let attention = Attention::<T, D, CAUSAL>::new(q, k, v).scale(0.2);
            attention.launch(&device, result, lse.output()).unwrap();
            let what =
                format!("{sequences:?} of {} x {D}, {order:?}, on {device}, shifted by {shift}", T::DTYPE);
            compare(&out.content(), &rows).unwrap_or_else(|found| panic!("{what}: {found}"));
            compare(&lse.content(), &sums).unwrap_or_else(|found| panic!("{what}, lse: {found}"));
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

/// A query, and two keys with values, all of 64 elements; what comes of one head of them.
fn attended(device: Device, [q, k, v]: [&[f16]; 3], scale: f32) -> dsl_runtime::Result<[Vec<f32>; 2]> {
    let rows = |of: &[f16]| [1, of.len() / 64, 64];
    let [bq, bk, bv] = [q, k, v].map(|values| device.upload(values).unwrap());
    let (mut out, mut lse) = (device.zeros::<f16>(q.len())?, device.zeros::<f32>(q.len() / 64)?);
    let [vq, vk, vv] = [(&bq, q), (&bk, k), (&bv, v)].map(|(buffer, of)| buffer.view(rows(of)).unwrap());
    let attention = Attention::<f16, 64, false>::new(vq, vk, vv).scale(scale);
    attention.launch(&device, out.view_mut(rows(q))?, &mut lse)?;
    Ok([out.download()?.into_iter().map(f32::from).collect(), lse.download()?])
}

/// A NaN among a query's elements is one in its row and its `lse`, and in no other.
#[test]
fn nan_stays_in_its_row() {
    let mut q = normal::<f16>(3 * 64, 1);
    q[64 + 5] = f16::NAN;
    let [k, v] = [2, 3].map(|seed| normal::<f16>(2 * 64, seed));
    for device in devices() {
        let [out, lse] = attended(device, [&q, &k, &v], 0.125).unwrap();
        for row in 0..3 {
            let nan = row == 1;
            assert!(
                out[row * 64..][..64].iter().all(|x| x.is_nan() == nan),
                "row {row} on {device}: {out:?}"
            );
            assert_eq!(lse[row].is_nan(), nan, "row {row} on {device}: {lse:?}");
        }
    }
}

/// Scores that are all scaled to 0, or next to it, weigh alike.
#[test]
fn a_factor_may_be_zero() {
    let q = normal::<f16>(3 * 64, 1);
    let [k, v] = [2, 3].map(|seed| normal::<f16>(5 * 64, seed));
    let [rows, sums] = {
        let sequences = Sequences { heads: 1, queries: 3, keys: 5 };
        reference::<f16, 64, false>([&q, &k, &v], sequences, 0.0)
    };
    for device in devices() {
        for scale in [0.0, -0.0, 1e-40] {
            let [out, lse] = attended(device, [&q, &k, &v], scale).unwrap();
            let out: Vec<f16> = out.into_iter().map(f16::from_f32).collect();
            compare(&out, &rows).unwrap_or_else(|found| panic!("{scale} on {device}: {found}"));
            compare(&lse, &sums).unwrap_or_else(|found| panic!("{scale} on {device}, lse: {found}"));
        }
    }
}

#[test]
fn a_factor_is_no_negative_number() {
    let values = normal::<f16>(64, 1);
    let message =
        |scale: f32| attended(Device::cpu(), [&values, &values, &values], scale).unwrap_err().to_string();
    assert_eq!(message(-1.0), "attention: scale is -1, expected 0 to 1.7e38");
    assert_eq!(message(f32::NAN), "attention: scale is NaN, expected 0 to 1.7e38");
    assert_eq!(message(f32::INFINITY), "attention: scale is inf, expected 0 to 1.7e38");
}

#[test]
fn wrong_shapes_are_errors() {
    let device = Device::cpu();
    let (q, k) = (device.zeros::<f16>(64).unwrap(), device.zeros::<f16>(128).unwrap());
    let (mut out, mut lse) = (device.zeros::<f16>(64).unwrap(), device.zeros::<f32>(2).unwrap());
    let (q, k) = (q.view([1, 1, 64]).unwrap(), k.view([1, 2, 64]).unwrap());
    let mut message = |attention: Attention<f16, 64, false>| {
        let out = out.view_mut([1, 1, 64]).unwrap();
        attention.launch(&device, out, &mut lse).unwrap_err().to_string()
    };
    let found = message(Attention::new(q, k, q));
    assert_eq!(found, "attention: v has the shape [1, 1, 64], expected [1, 2, 64]");
    let found = message(Attention::new(q.permute([0, 2, 1]), k, k));
    assert_eq!(found, "attention: q has the shape [1, 64, 1], expected [1, 64, 64]");
    let found = message(Attention::new(q, k, k));
    assert_eq!(found, "attention: lse has 2 elements and heads * queries has 1");
}
