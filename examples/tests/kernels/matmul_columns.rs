//! `matmul` into columns of a wider matrix.

use dsl_runtime::prelude::*;
use fused_kernels::float::LibraryFloat;
use fused_kernels::matmul::{Epilogue, Extents, Matmul, reference};
use fused_kernels::reference::compare;

use crate::data::{Guarded, devices, normal};

/// Columns of a wider matrix, which end anywhere: those behind them are another's.
fn check_columns<T: LibraryFloat>() {
    let wide = 304;
    for (Extents { m, k, n }, first) in [
        (Extents { m: 200, k: 64, n: 130 }, 0),
        (Extents { m: 64, k: 128, n: 257 }, 16),
        (Extents { m: 16, k: 128, n: 31 }, 8),
        (Extents { m: 3, k: 4096, n: 100 }, 8),
    ] {
        let (a, b) = (normal::<T>(m * k, 1), normal::<T>(k * n, 2));
        let expected = reference::<T>([&a, &b], Extents { m, k, n }, Epilogue::default());
        for device in devices() {
            let (a_buffer, b_buffer) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
            let mut out = Guarded::<T>::new(device, m * wide, 0);
            let mut memory = out.output();
            let mut columns = memory.view_mut([m, wide]).unwrap();
            let matmul = Matmul::new(a_buffer.view([m, k]).unwrap(), b_buffer.view([k, n]).unwrap());
            matmul.launch(&device, columns.slice_mut(1, first..first + n)).unwrap();
            let (mut found, mut others) = (vec![], vec![]);
            for row in out.content().chunks(wide) {
                found.extend_from_slice(&row[first..first + n]);
                others.extend(row[..first].iter().chain(&row[first + n..]).copied());
            }
            let what = format!("{m} x {k} x {n} of {} on {device}", T::DTYPE);
            compare(&found, &expected).unwrap_or_else(|found| panic!("{what}: {found}"));
            assert!(others.iter().all(|other| other.to_f64().is_nan()), "{what}: other columns were written");
        }
    }
}

#[test]
fn only_columns_of_the_result_are_written() {
    check_columns::<f32>();
    check_columns::<f16>();
    check_columns::<bf16>();
}
