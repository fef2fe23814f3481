//! Rounding of constants to the element types.

use tile_ir::support::dtype::{DType, Float8Format, to_bf16, to_f16};

#[test]
fn float8_conversions_saturate() {
    let bits = |dtype: DType, values: [f64; 6]| values.map(|value| Float8Format::of(dtype).bits(value));
    let e4m3 = bits(DType::F8E4M3, [448.0, 464.1, -1e9, f64::NEG_INFINITY, f64::NAN, -0.0]);
    assert_eq!(e4m3, [0x7e, 0x7e, 0xfe, 0xfe, 0x7f, 0x80]);
    let e5m2 = bits(DType::F8E5M2, [57344.0, 61441.0, -1e9, f64::INFINITY, f64::NAN, 1.0]);
    assert_eq!(e5m2, [0x7b, 0x7b, 0xfb, 0x7b, 0x7f, 0x3c]);
    let tie = 2f64.powi(-10);
    let small = bits(DType::F8E4M3, [tie, tie.next_up(), 3.0 * tie, 15.0 * tie, 2f64.powi(-6), 1e-300]);
    assert_eq!(small, [0, 1, 2, 8, 8, 0]);
}

#[test]
fn values_next_to_a_tie_round_to_nearest() {
    let tie = 1.0 + f64::from(half::f16::EPSILON) / 2.0;
    assert_eq!([tie.next_down(), tie, tie.next_up()].map(|v| to_f16(v).to_bits()), [0x3c00, 0x3c00, 0x3c01]);
    let tie = 1.0 + f64::from(half::bf16::EPSILON) / 2.0;
    assert_eq!(
        [tie.next_down(), tie, -tie.next_up()].map(|v| to_bf16(v).to_bits()),
        [0x3f80, 0x3f80, 0xbf81]
    );
    assert_eq!([65519.99, 65520.0, 1e300].map(|v| to_f16(v).to_bits()), [0x7bff, 0x7c00, 0x7c00]);
    assert_eq!(
        [2f64.powi(-25), 2f64.powi(-25).next_up(), -1e-300].map(|v| to_f16(v).to_bits()),
        [0, 1, 0x8000]
    );
}
