//! `attention_projection`: both forms, on the CPU and the GPU there is.

use dsl_runtime::prelude::*;
use fused_kernels::attention::AttentionExtents;
use fused_kernels::attention_projection::{AttentionProjection, HostProjection, reference};
use fused_kernels::attention_reference::Rules;
use fused_kernels::float::HalfFloat;
use fused_kernels::form::{Cost, Form};
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal, shifted};

/// Sequences, heads, heads of keys, queries, keys, elements of a head's row and columns: tiles that are full, cut and almost empty;
/// fewer keys than queries, and none; one and two tiles of columns.
const CASES: [[usize; 7]; 13] = [
    [1, 2, 2, 64, 64, 64, 128],
    [2, 4, 2, 70, 33, 64, 100],
    [1, 3, 3, 5, 130, 32, 200],
    [2, 2, 1, 129, 67, 64, 256],
    [1, 2, 2, 33, 40, 64, 300],
    [1, 2, 1, 65, 70, 128, 136],
    [3, 1, 1, 7, 50, 80, 96],
    [1, 2, 2, 100, 30, 17, 9],
    [2, 2, 2, 3, 0, 16, 8],
    [3, 1, 1, 1, 1, 1, 1],
    [0, 2, 2, 4, 4, 16, 8],
    [2, 2, 2, 0, 4, 16, 8],
    [2, 2, 2, 4, 4, 16, 0],
];

fn extents([_, heads, key_heads, queries, keys, elements, _]: [usize; 7]) -> AttentionExtents {
    AttentionExtents { heads, key_heads, queries, keys, elements }
}

/// The inputs of a case, whose weights keep sums of many terms near 1.
struct Data<T> {
    inputs: [Vec<T>; 3],
    weight: Vec<T>,
    bias: Vec<T>,
    residual: Vec<T>,
}

impl<T: Float> Data<T> {
    fn new([sequences, heads, key_heads, queries, keys, elements, n]: [usize; 7]) -> Data<T> {
        let weight = normal::<f64>(heads * elements * n, 4);
        let of_keys = sequences * key_heads * keys * elements;
        Data {
            inputs: [
                normal(sequences * heads * queries * elements, 1),
                normal(of_keys, 2),
                normal(of_keys, 3),
            ],
            weight: weight.into_iter().map(|x| T::from_f64(0.2 * x)).collect(),
            bias: normal(n, 5),
            residual: normal(sequences * queries * n, 6),
        }
    }
}

/// In either form, with everything on a boundary and one element off it.
#[track_caller]
fn check<T: HalfFloat>(case: [usize; 7], causal: bool, data: &Data<T>, forms: &[Form]) {
    let [sequences, heads, key_heads, queries, keys, elements, n] = case;
    let [q, k, v] = &data.inputs;
    let rules = Rules::scaled(0.2);
    let rules = if causal { rules.causal() } else { rules };
    // Causal cases are those without a residual.
    let residual = (!causal).then_some(&data.residual[..]);
    let host = HostProjection { weight: &data.weight, bias: &data.bias, residual };
    let expected = reference([q, k, v], extents(case), rules, host);
    for (device, shift) in devices().into_iter().flat_map(|device| [(device, 0), (device, 1)]) {
        let [q, k, v] = [q, k, v].map(|of| shifted(device, of, shift));
        let [weight, bias, residual] =
            [&data.weight, &data.bias, &data.residual].map(|of| shifted(device, of, shift));
        let q = q.slice(shift..).view([sequences, heads, queries, elements]).unwrap();
        let [k, v] =
            [&k, &v].map(|of| of.slice(shift..).view([sequences, key_heads, keys, elements]).unwrap());
        let weight = weight.slice(shift..).view([heads * elements, n]).unwrap();
        let layer = AttentionProjection::new([q, k, v], weight).scale(0.2).bias(bias.slice(shift..));
        let shape = [sequences * queries, n];
        let layer = if causal {
            layer.causal()
        } else {
            layer.residual(residual.slice(shift..).view(shape).unwrap())
        };
        for &form in forms {
            let mut out = Guarded::<T>::new(device, shape[0] * n, shift);
            layer.launch_as(&device, out.output().view_mut(shape).unwrap(), form).unwrap();
            let found = compare(&out.content(), &expected);
            let what = format!(
                "{form:?}, {case:?}, causal {causal}, of {} on {device}, shifted by {shift}",
                T::DTYPE
            );
            found.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
    }
}

fn check_all<T: HalfFloat>() {
    for case in CASES {
        let data = Data::<T>::new(case);
        for causal in [false, true] {
            check(case, causal, &data, &[Form::Fused, Form::Separate]);
        }
    }
}

#[test]
fn projections_of_f16_are_as_exact_as_stated() {
    check_all::<f16>();
}

#[test]
fn projections_of_bf16_are_as_exact_as_stated() {
    check_all::<bf16>();
}

#[test]
fn long_rows_of_heads_are_separate() {
    let case = [2, 2, 1, 20, 30, 200, 24];
    check(case, true, &Data::<bf16>::new(case), &[Form::Separate]);
}

/// Tiles for few and for many queries, on any device.
#[test]
fn few_and_many_queries_are_as_exact_as_stated() {
    for case in [[1, 1, 1, 20, 40, 16, 40], [150, 1, 1, 130, 3, 16, 8]] {
        let data = Data::<bf16>::new(case);
        // As many CPU cores as a GPU has SMs.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(64).build().unwrap();
        pool.install(|| check(case, true, &data, &[Form::Fused]));
    }
}

/// Values that are all 0, and keys that are all the same.
#[test]
fn constant_inputs_are_as_exact_as_stated() {
    let case = [1, 2, 2, 40, 70, 64, 72];
    let mut data = Data::<f16>::new(case);
    data.inputs[1].fill(f16::from_f32(0.5));
    check(case, true, &data, &[Form::Fused, Form::Separate]);
    data.inputs[2].fill(f16::ZERO);
    check(case, false, &data, &[Form::Fused, Form::Separate]);
}

/// A fully masked query has the bias as its row, to the bit.
#[test]
fn fully_masked_queries_have_no_attention() {
    let case @ [sequences, heads, _, queries, keys, elements, n] = [2, 2, 2, 80, 10, 64, 16];
    let data = Data::<bf16>::new(case);
    for device in devices() {
        let [q, k, v] = [0, 1, 2].map(|i| device.upload(&data.inputs[i]).unwrap());
        let [weight, bias] = [&data.weight, &data.bias].map(|of| device.upload(of).unwrap());
        let q = q.view([sequences, heads, queries, elements]).unwrap();
        let [k, v] = [&k, &v].map(|of| of.view([sequences, heads, keys, elements]).unwrap());
        let weight = weight.view([heads * elements, n]).unwrap();
        for form in [Form::Fused, Form::Separate] {
            let mut out = device.zeros::<bf16>(sequences * queries * n).unwrap();
            let layer = AttentionProjection::new([q, k, v], weight).causal().bias(&bias);
            layer.launch_as(&device, out.view_mut([sequences * queries, n]).unwrap(), form).unwrap();
            let out = out.download().unwrap();
            for sequence in out.chunks(queries * n) {
                let fully_masked = sequence.chunks(n).take(queries - keys);
                fully_masked.for_each(|row| assert_eq!(row, data.bias, "{form:?} on {device}"));
                assert!(sequence.iter().all(|y| y.is_finite()), "{form:?} on {device}");
            }
        }
    }
}

/// Heads that are columns of a packed matrix of tokens, and columns of weights that are contiguous.
#[test]
fn heads_of_packed_rows_are_as_exact_as_stated() {
    let case @ [sequences, heads, key_heads, length, _, elements, n] = [2, 4, 2, 40, 40, 64, 64];
    let data = Data::<bf16>::new(case);
    let all = heads + 2 * key_heads;
    let first = [0, heads, heads + key_heads];
    let mut packed = vec![bf16::ZERO; sequences * length * all * elements];
    for (operand, values) in data.inputs.iter().enumerate() {
        let count = if operand == 0 { heads } else { key_heads };
        for (i, row) in values.chunks(elements).enumerate() {
            let (sequence, head, token) = (i / length / count, i / length % count, i % length);
            let offset = ((sequence * length + token) * all + first[operand] + head) * elements;
            packed[offset..offset + elements].copy_from_slice(row);
        }
    }
    let terms = heads * elements;
    let columns: Vec<bf16> = (0..n * terms).map(|i| data.weight[i % terms * n + i / terms]).collect();
    let host = HostProjection { weight: &data.weight, bias: &data.bias, residual: None };
    let [q, k, v] = &data.inputs;
    let expected = reference([q, k, v], extents(case), Rules::scaled(0.125).causal(), host);
    for device in devices() {
        let [packed, columns, bias] = [&packed, &columns, &data.bias].map(|of| device.upload(of).unwrap());
        let tokens = packed.view([sequences, length, all, elements]).unwrap().permute([0, 2, 1, 3]);
        let of = |operand: usize, count: usize| tokens.slice(1, first[operand]..first[operand] + count);
        let inputs = [of(0, heads), of(1, key_heads), of(2, key_heads)];
        let weight = columns.view([n, terms]).unwrap().permute([1, 0]);
        let layer = AttentionProjection::new(inputs, weight).causal().bias(&bias);
        for form in [Form::Fused, Form::Separate] {
            let mut out = Guarded::<bf16>::new(device, sequences * length * n, 0);
            layer.launch_as(&device, out.output().view_mut([sequences * length, n]).unwrap(), form).unwrap();
            compare(&out.content(), &expected)
                .unwrap_or_else(|error| panic!("{form:?} on {device}: {error}"));
        }
    }
}

#[test]
fn launches_and_bytes_are_counted() {
    let device = Device::cpu();
    let memory = device.zeros::<bf16>(4096).unwrap();
    let view = |shape: [usize; 4]| memory.view(shape).unwrap();
    let (q, k) = (view([3, 2, 5, 16]), view([3, 1, 7, 16]));
    let layer = AttentionProjection::new([q, k, k], memory.view([32, 8]).unwrap());
    let layer = layer.residual(memory.view([15, 8]).unwrap());
    let (attended, keys) = (3 * 2 * 5 * 16, 2 * 3 * 7 * 16);
    let attention = 2 * attended + keys;
    let linear = attended + 32 * 8 + 15 * 8;
    let [ours, separate] = layer.cost(&device);
    assert_eq!(ours, Cost { launches: 2, bytes: 2 * (attention + linear + 15 * 8) });
    assert_eq!(separate, Cost { launches: 3, bytes: 2 * (attention + linear + 3 * 15 * 8) });
    for device in devices().into_iter().filter(|device| device.has_wgmma()) {
        let memory = device.zeros::<bf16>(300 * 64 * 64).unwrap();
        let many = memory.view([300, 1, 64, 64]).unwrap();
        let layer = AttentionProjection::new([many; 3], memory.view([64, 64]).unwrap());
        assert_eq!(layer.cost(&device)[0].launches, 1, "short rows of many sequences on {device}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::cpu();
    let memory = device.zeros::<f16>(16384).unwrap();
    let view = |shape: [usize; 4]| memory.view(shape).unwrap();
    let matrix = |shape: [usize; 2]| memory.view(shape).unwrap();
    let mut out = device.zeros::<f16>(4096).unwrap();
    let mut said = |layer: AttentionProjection<'_, f16>, shape: [usize; 2], form: Form| {
        layer.launch_as(&device, out.view_mut(shape).unwrap(), form).unwrap_err().to_string()
    };
    let (q, k, weight) = (view([2, 6, 3, 16]), view([2, 3, 5, 16]), matrix([96, 8]));
    let plain = AttentionProjection::new([q, k, k], weight);
    let separate = Form::Separate;
    let found = said(AttentionProjection::new([q, k, view([2, 3, 4, 16])], weight), [6, 8], separate);
    assert_eq!(found, "attention_projection: v has the shape [2, 3, 4, 16], expected [2, 3, 5, 16]");
    let found = said(AttentionProjection::new([q, view([1, 3, 5, 16]), k], weight), [6, 8], separate);
    assert_eq!(found, "attention_projection: k has the shape [1, 3, 5, 16], expected [2, 3, 5, 16]");
    let found = said(AttentionProjection::new([q, k, k], matrix([95, 8])), [6, 8], separate);
    assert_eq!(found, "attention_projection: weight has the shape [95, 8], expected [96, 8]");
    let found = said(plain, [5, 8], separate);
    assert_eq!(found, "attention_projection: out has the shape [5, 8], expected [6, 8]");
    let found = said(plain.bias(memory.slice(..7)), [6, 8], separate);
    assert_eq!(found, "attention_projection: bias has the shape [7], expected [8]");
    let found = said(plain.residual(matrix([8, 6])), [6, 8], separate);
    assert_eq!(found, "attention_projection: residual has the shape [8, 6], expected [6, 8]");
    let found = said(plain.scale(-1.0), [6, 8], Form::Fused);
    assert_eq!(found, "attention: scale is -1, expected 0 to 1.7e38");
    let others = view([2, 4, 5, 16]);
    let found = said(AttentionProjection::new([q, others, others], weight), [6, 8], Form::Fused);
    assert_eq!(found, "attention: q has 6 heads and k has 4, which does not divide them");
    let long = view([1, 1, 1, 129]);
    let found = said(AttentionProjection::new([long; 3], matrix([129, 8])), [1, 8], Form::Fused);
    assert_eq!(
        found,
        "attention_projection: rows of heads have 129 elements, the most of the fused form is 128"
    );
}
