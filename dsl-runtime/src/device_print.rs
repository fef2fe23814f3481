//! `tl::device_print` on the CPU: a line for each element, in the format of a GPU's.
//!
//! Host code writes a [`PrintLine`] and the values behind it, as `lowering::mlir::report` says, and calls a function with it.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::dtype::{DType, Element, bf16, f8e4m3, f8e5m2, f16};
use crate::kernel::Site;

/// What a line says besides its values, which follow it, eight bytes each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrintLine {
    pub(crate) site: u32,
    pub(crate) program: [u32; 3],
    /// In row-major order.
    pub(crate) index: i64,
}

/// Writes a line to the standard error.
///
/// # Safety
/// `line` must point to a line of one of the sites, with its values behind it.
pub(crate) unsafe fn print(sites: &[Site], line: *const PrintLine) {
    // SAFETY: passed on to the caller.
    let PrintLine { site, program, index } = unsafe { line.read() };
    let Some(Site::Print { label, shape, dtypes }) = sites.get(site as usize) else { return };
    // SAFETY: passed on to the caller.
    let values = unsafe { std::slice::from_raw_parts(line.add(1).cast::<u64>(), dtypes.len()) };
    let values: Vec<String> =
        dtypes.iter().zip(values).map(|(&dtype, &bits)| format_value(dtype, bits)).collect();
    let text = format_line(label, program, &element(shape, index), &values);
    // Nothing can be done about a program that has no standard error.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// `x: program (1, 0, 0), element (7): 0.5`
fn format_line(label: &str, [x, y, z]: [u32; 3], element: &[u32], values: &[String]) -> String {
    let mut line = format!("{label}: program ({x}, {y}, {z})");
    if !element.is_empty() {
        let _ = write!(line, ", element {}", tuple(element));
    }
    if !values.is_empty() {
        let _ = write!(line, ": {}", values.join(", "));
    }
    line + "\n"
}

/// `(3, 0)`
pub(crate) fn tuple(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("({})", numbers.join(", "))
}

/// The coordinates of an element of a tile from its row-major index.
pub(crate) fn element(shape: &[u32], index: i64) -> Vec<u32> {
    let mut rest = index as u64;
    let mut coordinates: Vec<u32> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let extent = u64::from(extent.max(1));
            let coordinate = rest % extent;
            rest /= extent;
            coordinate as u32
        })
        .collect();
    coordinates.reverse();
    coordinates
}

/// The element in the low bytes of `bits`.
fn format_value(dtype: DType, bits: u64) -> String {
    let low = bits & (u64::MAX >> (64 - 8 * dtype.bytes()));
    match dtype {
        DType::F8E5M2 => format_g(f8e5m2::from_bits(low as u8).to_f64(), 2),
        DType::F8E4M3 => format_g(f8e4m3::from_bits(low as u8).to_f64(), 3),
        DType::BF16 => format_g(bf16::from_bits(low as u16).to_f64(), 4),
        DType::F16 => format_g(f16::from_bits(low as u16).to_f64(), 5),
        DType::F32 => format_g(f32::from_bits(low as u32).into(), 9),
        DType::F64 => format_g(f64::from_bits(low), 17),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => dtype.integer(low).unwrap_or_default().to_string(),
    }
}

/// As C's `%.{digits}g`.
fn format_g(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "nan".to_string();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }.to_string()
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    trimmed(&format!("{value:.*}", (digits as i32 - 1 - exponent) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_c_writes_them() {
        let nine =
            [0.1, 1.0, -0.0, 123456789.0, 1234567890.0, 1e-4, 1e-5, 1.5e300, f64::NAN, f64::NEG_INFINITY];
        let texts = nine.map(|value| format_g(value, 9));
        let wanted =
            ["0.1", "1", "-0", "123456789", "1.23456789e+09", "0.0001", "1e-05", "1.5e+300", "nan", "-inf"];
        assert_eq!(texts, wanted);
        assert_eq!(format_g(0.1f32.into(), 9), "0.100000001");
        assert_eq!(format_g(9.999, 3), "10");
        assert_eq!(format_g(0.1, 17), "0.10000000000000001");
    }

    #[test]
    fn every_type_is_read_from_its_own_bytes() {
        let junk = 0xdead_beef_dead_beef << 8;
        let of = |dtype: DType, bits: u64| {
            let own = u64::MAX >> (64 - 8 * dtype.bytes());
            format_value(dtype, bits & own | junk & !own)
        };
        assert_eq!(of(DType::Bool, 1), "1");
        assert_eq!([of(DType::I8, 0xfd), of(DType::U8, 0xfd)], ["-3", "253"]);
        assert_eq!([of(DType::I16, 0x8000), of(DType::U16, 0x8000)], ["-32768", "32768"]);
        assert_eq!([of(DType::I32, 0xffff_ffff), of(DType::U32, 0xffff_ffff)], ["-1", "4294967295"]);
        assert_eq!([of(DType::I64, u64::MAX), of(DType::U64, u64::MAX)], ["-1", "18446744073709551615"]);
        assert_eq!([of(DType::F16, 0x3555), of(DType::BF16, 0x3eab)], ["0.33325", "0.334"]);
        assert_eq!([of(DType::F8E4M3, 0x7e), of(DType::F8E5M2, 0x7b)], ["448", "5.7e+04"]);
        assert_eq!(of(DType::F32, 1.5f32.to_bits().into()), "1.5");
        assert_eq!(of(DType::F64, (1.0f64 / 3.0).to_bits()), "0.33333333333333331");
    }

    #[test]
    fn lines_contain_label_program_element_and_values() {
        assert_eq!(format_line("here", [1, 2, 3], &[], &[]), "here: program (1, 2, 3)\n");
        let values = ["1".to_string(), "x".to_string()];
        assert_eq!(
            format_line("n", [0; 3], &[4, 5], &values),
            "n: program (0, 0, 0), element (4, 5): 1, x\n"
        );
        assert_eq!(element(&[4, 8, 2], 39), [2, 3, 1]);
        assert_eq!(element(&[], 0), [0u32; 0]);
    }
}
