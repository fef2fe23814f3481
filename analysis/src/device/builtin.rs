//! Devices whose ceilings are known without having one.
//!
//! **How good they are.** They are of PyTorch's kernels (`bench/ceilings.py`), so they are independent of the library. Beside times of the
//! library that memory bounds, 28 of 31 chains of `measured/pairs_h200.json`, and of the layers' files 25 of 28 chains and operations on
//! an H200 and 27 of 29 on an H100, are within 15 % of the prediction. Longer rows, and rows that no vector divides, take longer than their bytes, which no ceiling says.

use std::collections::BTreeMap;

use super::ceilings::{Ceiling, Device};

const H200_DATA_SHEET: &str = "NVIDIA H200 data sheet, without sparsity";
/// PyTorch's kernels, so they are independent of the library.
const CEILINGS: &str = "bench/ceilings.py";
const H100_DATA_SHEET: &str = "NVIDIA H100 SXM data sheet, without sparsity";

fn both(nominal: f64, measured: f64, source: &str) -> Ceiling {
    Ceiling { nominal: Some(nominal), measured: Some(measured), source: source.to_owned() }
}

fn measured(value: f64, source: &str) -> Ceiling {
    Ceiling { nominal: None, measured: Some(value), source: source.to_owned() }
}

/// The GPU die of H100 and H200 is the same: only their memories differ.
fn hopper(data_sheet: &str) -> BTreeMap<String, Ceiling> {
    let attained = format!("{data_sheet}; measured: products of 4096^3 and larger, book/src/performance.md");
    let tensor = [
        ("f16", both(989e12, 800e12, &attained)),
        ("bf16", both(989e12, 800e12, &attained)),
        ("tf32", both(495e12, 413e12, CEILINGS)),
        ("f8e4m3", both(1979e12, 1280e12, &attained)),
        ("i8", both(1979e12, 1400e12, &attained)),
    ];
    tensor.into_iter().map(|(name, ceiling)| (name.to_owned(), ceiling)).collect()
}

/// NVIDIA H200.
pub fn h200() -> Device {
    Device {
        name: "NVIDIA H200".to_owned(),
        bandwidth: both(4.8e12, 4.18e12, "data sheet; measured: bench/ceilings.py"),
        l2_bandwidth: Some(measured(7.3e12, CEILINGS)),
        l2_bytes: 50 << 20,
        tensor: hopper(H200_DATA_SHEET),
        scalar: [("f32".to_owned(), both(67e12, 51e12, CEILINGS))].into(),
        launch_overhead: measured(3.9e-6, CEILINGS),
        following_launch: Some(measured(2.6e-6, CEILINGS)),
        product_overhead: Some(measured(5.8e-6, CEILINGS)),
        multiprocessors: 132,
        registers_per_thread: 255,
        on_chip_bytes: 256 << 10,
    }
}

/// NVIDIA H100 with HBM3 (SXM).
pub fn h100() -> Device {
    Device {
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        bandwidth: both(3.35e12, 2.98e12, "data sheet; measured: bench/ceilings.py"),
        l2_bandwidth: Some(measured(6.3e12, CEILINGS)),
        l2_bytes: 50 << 20,
        tensor: hopper(H100_DATA_SHEET),
        scalar: [("f32".to_owned(), both(67e12, 51e12, CEILINGS))].into(),
        launch_overhead: measured(4.95e-6, CEILINGS),
        following_launch: Some(measured(3.2e-6, CEILINGS)),
        product_overhead: Some(measured(7.1e-6, CEILINGS)),
        multiprocessors: 132,
        registers_per_thread: 255,
        on_chip_bytes: 256 << 10,
    }
}

/// All of them.
pub fn all() -> Vec<Device> {
    vec![h200(), h100()]
}
