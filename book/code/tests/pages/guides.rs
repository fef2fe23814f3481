//! The guides' kernels.

use dsl_runtime::kernel::{Arch, Kernel, Module, Variant};
use dsl_runtime::prelude::*;
use expect_test::expect_file;
use fuse_book::attention::attention;
use fuse_book::guides::debugging::{doubled, factorial, log_of_sums, smooth};
use fuse_book::guides::libraries::{Reduction, reduced_rows, rms_norm, rms_norm_silu, sum_of_squares};
use fuse_book::guides::masks::{gather, shift};
use fuse_book::guides::tiles::center_rows;
use fuse_book::guides::tuning::{add_bias, double, double_by, increment, negate_all};
use fuse_book::guides::views::transpose_from;
use fuse_book::matmul::matmul;
use fuse_book::softmax::softmax;
use fuse_book::vector_add::vector_add;

use crate::check::numbers;
use crate::reports;
use fuse_tests::{alone, devices};

#[test]
fn rows_are_centered() {
    let _alone = alone();
    let x = numbers::<f32>(20 * 50, 13);
    for device in devices() {
        let device_x = device.upload(&x).unwrap();
        let mut out = device.zeros::<f32>(x.len()).unwrap();
        center_rows::<16, 64>(&device_x, &mut out, 20, 50).grid(2).launch(&device).unwrap();
        for (found, row) in out.download().unwrap().chunks(50).zip(x.chunks(50)) {
            let mean = row.iter().sum::<f32>() / 50.0;
            for (found, x) in found.iter().zip(row) {
                // Two sums of 50 numbers below 2, and the roundings of both means.
                assert!((found - (x - mean)).abs() <= 100.0 * f32::EPSILON, "{device}");
            }
        }
    }
}

#[test]
fn kernels_of_a_library() {
    let _alone = alone();
    let (x, gamma) = (numbers::<f32>(3 * 300, 13), numbers::<f32>(300, 7));
    for device in devices() {
        let [device_x, device_gamma] = [&x, &gamma].map(|values| device.upload(values).unwrap());
        let [mut scaled, mut activated] = [(); 2].map(|()| device.zeros::<f32>(x.len()).unwrap());
        rms_norm(&device_x, &device_gamma, &mut scaled, 300, 1e-5).grid(3).launch(&device).unwrap();
        rms_norm_silu(&device_x, &mut activated, 300, 1e-5).grid(3).launch(&device).unwrap();
        let rows = scaled.download().unwrap().into_iter().zip(activated.download().unwrap());
        for (i, (scaled, activated)) in rows.enumerate() {
            let row = &x[i / 300 * 300..][..300];
            let squares: f64 = row.iter().map(|&x| f64::from(x).powi(2)).sum();
            let y = f64::from(x[i]) / (squares / 300.0 + 1e-5).sqrt();
            let wanted = [y * f64::from(gamma[i % 300]), y / (1.0 + (-y).exp())];
            for (found, wanted) in [scaled, activated].into_iter().zip(wanted) {
                // A sum of 300 squares, a root, a product, and an exponential within 2 ULP.
                assert!(
                    (f64::from(found) - wanted).abs()
                        <= 40.0 * f64::from(f32::EPSILON) * wanted.abs().max(1.0),
                    "{device}"
                );
            }
        }
        let mut sum = device.zeros::<f32>(1).unwrap();
        sum_of_squares(&device_x, &mut sum).grid(1).launch(&device).unwrap();
        let wanted: f32 = x[..256].iter().map(|x| x * x).sum();
        assert!((sum.download().unwrap()[0] - wanted).abs() <= 256.0 * f32::EPSILON * wanted, "{device}");
    }
}

#[test]
fn rows_are_reduced_as_a_call_says() {
    let _alone = alone();
    let x: Vec<f32> = (0..3 * 300).map(|i| (i * 7919 % 1000) as f32).collect();
    for device in devices() {
        let device_x = device.upload(&x).unwrap();
        let mut out = device.zeros::<f32>(3).unwrap();
        // Sums of whole numbers are exact.
        let of = |reduction: Reduction, row: &[f32]| match reduction {
            Reduction::Sum => row.iter().sum::<f32>(),
            Reduction::Maximum => row.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        };
        for reduction in [Reduction::Sum, Reduction::Maximum] {
            reduced_rows(&device_x, &mut out, reduction, 300).grid(3).launch(&device).unwrap();
            let wanted: Vec<f32> = x.chunks(300).map(|row| of(reduction, row)).collect();
            assert_eq!(out.download().unwrap(), wanted, "{device}");
        }
    }
}

#[test]
fn arguments_choose_a_variant() {
    let _alone = alone();
    for device in devices() {
        let mut x = device.upload(&[-3.0f32, 1.0, 2.0]).unwrap();
        let bias = device.upload(&[5.0f32, 1.0, -4.0]).unwrap();
        add_bias::<1024>(&mut x, Some((&bias).into()), 3).grid(1).launch(&device).unwrap();
        assert_eq!(x.download().unwrap(), [2.0, 2.0, 0.0], "{device}");
        add_bias::<1024>(&mut x, None, 3).grid(1).launch(&device).unwrap();
        assert_eq!(x.download().unwrap(), [2.0, 2.0, 0.0], "{device}");
        for n in [3usize, 5000] {
            let mut x = device.zeros::<f32>(n).unwrap();
            increment(&mut x, n as i32)
                .grid_by(|chosen| n.div_ceil(chosen.constant("BLOCK")))
                .launch(&device)
                .unwrap();
            assert!(x.download().unwrap().iter().all(|&x| x == 1.0), "{device}");
            negate_all(&device, &mut x).unwrap();
            assert!(x.download().unwrap().iter().all(|&x| x == -1.0), "{device}");
        }
    }
}

#[test]
fn a_mask_on_what_was_loaded() {
    let _alone = alone();
    for device in devices() {
        let table = device.upload(&[10.0f32, 11.0, 12.0]).unwrap();
        let index = device.upload(&[2i32, -1, 0]).unwrap();
        let mut out = device.zeros::<f32>(3).unwrap();
        gather::<256>(&table, &index, &mut out, 3).grid(1).launch(&device).unwrap();
        assert_eq!(out.download().unwrap(), [12.0, -1.0, 10.0], "{device}");
    }
}

#[test]
fn outside_a_slice_is_nothing_to_read() {
    let _alone = alone();
    for device in devices() {
        let x = device.upload(&[1.0f32, 2.0, 3.0]).unwrap();
        let mut out = device.zeros::<f32>(3).unwrap();
        shift::<256>(&x, &mut out, 2).grid(1).launch(&device).unwrap();
        device.synchronize().unwrap();
        assert_eq!(out.download().unwrap(), [3.0, 0.0, 0.0], "{device}");
    }
}

#[test]
fn a_part_of_a_matrix_is_transposed() {
    let _alone = alone();
    let (rows, cols) = (40, 100);
    let values: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
    for device in devices() {
        let matrix = device.upload(&values).unwrap();
        let found = transpose_from(&device, &matrix, [rows, cols], 30).unwrap();
        let expected: Vec<f32> = (0..70 * rows).map(|i| values[i % rows * cols + 30 + i / rows]).collect();
        assert_eq!(found, expected, "{device}");
    }
}

#[test]
fn each_config_gives_the_same() {
    let _alone = alone();
    let labels: Vec<String> =
        double::KERNEL.variants.iter().map(|variant| format!("{}\n", variant.label)).collect();
    expect_file!["../../output/configs.txt"].assert_eq(&labels.concat());
    let x = numbers::<f32>(5000, 14);
    let doubled: Vec<f32> = x.iter().map(|x| x + x).collect();
    for device in devices() {
        let device_x = device.upload(&x).unwrap();
        for config in ["BLOCK = 512", "BLOCK = 2048, num_warps = 8", "maxnreg = 64"] {
            let mut out = device.zeros::<f32>(x.len()).unwrap();
            double_by(&device, config, &device_x, &mut out).unwrap();
            assert_eq!(out.download().unwrap(), doubled, "{device}, {config}");
        }
    }
}

// ANCHOR: host_memory
#[test]
fn host_memory_is_an_argument_on_the_cpu() {
    let (x, y) = (vec![1.0f32; 3000], vec![2.0f32; 3000]);
    let mut out = vec![0.0f32; 3000];
    vector_add::<f32, 1024>(&x, &y, &mut out, 3000).grid(3).launch(&Device::cpu()).unwrap();
    assert_eq!(out, [3.0; 3000]);
}
// ANCHOR_END: host_memory

#[test]
fn the_trace_of_a_launch_names_its_code() {
    let (x, mut out) = ([0.0f32; 2048], [0.0f32; 2048]);
    let trace = vector_add::<f32, 1024>(&x, &x, &mut out, 2048).grid(2).trace(&Device::cpu()).unwrap();
    let level = trace.code.clone();
    let line = trace.to_string().replace(&level, "x86-64-v3");
    expect_file!["../../output/trace.txt"].assert_eq(&format!("{line}\n"));
}

#[test]
fn an_assertion_names_the_element() {
    let _alone = alone();
    for device in devices() {
        let x = device.upload(&[1.0f32, -1.0, 2.0]).unwrap();
        let mut out = device.zeros::<f32>(1).unwrap();
        let launched =
            log_of_sums::<64>(&x, &mut out, 3).grid(1).launch(&device).and_then(|()| device.synchronize());
        assert_eq!(launched.is_err(), reports());
        if let Err(error) = launched {
            expect_file!["../../output/assertion.txt"].assert_eq(&format!("{error}\n"));
        }
    }
}

#[test]
fn an_overflow_names_the_operation() {
    let _alone = alone();
    for device in devices() {
        for (n, fits) in [(12, true), (13, false)] {
            let mut out = device.zeros::<i32>(1).unwrap();
            let launched = factorial(&mut out, n).grid(1).launch(&device).and_then(|()| device.synchronize());
            assert_eq!(launched.is_err(), !fits && reports(), "{device}, {n}");
            let product = (1..=n).fold(1i32, |product, i| product.wrapping_mul(i));
            assert_eq!(out.download().unwrap(), [product]);
            if let Err(error) = launched {
                expect_file!["../../output/overflow.txt"].assert_eq(&format!("{error}\n"));
            }
        }
    }
}

#[test]
fn a_race_names_both_programs() {
    // Two programs meet at one element: the last one of the first program.
    let cpu = Device::cpu();
    let mut x = cpu.upload(&numbers::<f32>(128, 5)).unwrap();
    let launched = smooth::<64>(&mut x, 128).grid(2).launch(&cpu);
    assert_eq!(launched.is_err(), reports());
    if let Err(error) = launched {
        expect_file!["../../output/race.txt"].assert_eq(&format!("{error}\n"));
    }
    let mut x = cpu.upload(&numbers::<f32>(64, 5)).unwrap();
    assert_eq!(smooth::<64>(&mut x, 64).grid(1).launch(&cpu), Ok(()));
}

#[test]
fn a_debug_build_has_a_parameter_more() {
    let _alone = alone();
    let x = numbers::<f32>(100, 7);
    for device in devices() {
        let device_x = device.upload(&x).unwrap();
        let mut out = device.zeros::<f32>(100).unwrap();
        let mut ran = device.zeros::<i32>(1).unwrap();
        let launch = doubled::<64>(
            &device_x,
            &mut out,
            100,
            #[cfg(debug_assertions)]
            &mut ran,
        );
        launch.grid(2).launch(&device).unwrap();
        assert_eq!(out.download().unwrap(), x.iter().map(|x| x * 2.0).collect::<Vec<f32>>());
        assert_eq!(ran.download().unwrap(), [if cfg!(debug_assertions) { 2 } else { 0 }]);
    }
}

// ANCHOR: export
#[test]
fn a_kernel_is_written_to_files() {
    let folder = std::env::temp_dir().join(format!("fuse-book-{}", std::process::id()));
    let files = vector_add::KERNEL.write(&folder).unwrap();
    // Cubins are there where the build found a `ptxas`.
    let mut names: Vec<String> = files
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension != "cubin"))
        .map(|path| format!("{}\n", path.file_name().unwrap().to_string_lossy()))
        .collect();
    names.sort();
    // `FUSE_ARCH` may have asked for other architectures.
    if names.iter().any(|name| name.contains(".sm_80.")) && names.iter().any(|name| name.contains(".sm_90a."))
    {
        expect_file!["../../output/export.txt"].assert_eq(&names.concat());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
// ANCHOR_END: export

/// The entries of a variant, by architecture, and which of them load by TMA.
fn entries(variant: &Variant) -> String {
    let line = |module: &Module| {
        let Arch { capability, exact } = module.arch;
        let by = if module.specialization.maps.is_empty() { "" } else { ", TMA" };
        let suffix = if exact { "a" } else { "" };
        format!("sm_{capability}{suffix}: {}{by}\n", module.specialization.entry)
    };
    variant.modules.iter().map(line).collect()
}

#[test]
fn specializations_of_pages() {
    let archs = |variant: &Variant| variant.modules.iter().any(|module| module.arch.exact);
    if !archs(&matmul::KERNEL.variants[0]) {
        eprintln!("there is no code for sm_90a");
        return;
    }
    let all = |kernel: &Kernel| kernel.variants.iter().map(entries).collect::<Vec<_>>().concat();
    expect_file!["../../output/matmul.entries"].assert_eq(&all(&matmul::KERNEL));
    expect_file!["../../output/vector_add.entries"].assert_eq(&entries(&vector_add::KERNEL.variants[0]));
    expect_file!["../../output/softmax.entries"].assert_eq(&entries(&softmax::KERNEL.variants[1]));
    expect_file!["../../output/attention.entries"].assert_eq(&entries(&attention::KERNEL.variants[1]));
}
