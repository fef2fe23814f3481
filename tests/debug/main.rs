//! Assertions, assumptions and output of kernels: in a debug build what they say, on every device; in a release build,
//! that nothing is left of them.

mod kernels;
mod prints;
mod races;

use dsl_runtime::kernel::Site;
use dsl_runtime::prelude::*;
use dsl_runtime::{Error, Result};

use fuse_tests::{alone, devices};
use kernels::{below, periodic, scalars, shown, squares, total, trusting, used, without};

/// Whether this build checks.
fn checks() -> bool {
    below::KERNEL.variants[0].hosts.iter().any(|host| host.reports)
}

/// Launches and waits.
fn run<const N: usize>(launch: Launch<'_, N>, device: &Device, grid: usize) -> Result<()> {
    launch.grid(grid).launch(device)?;
    device.synchronize()
}

/// What a launch that fails a check comes to.
fn check(found: Result<()>, message: &str) {
    if checks() {
        assert_eq!(found.expect_err("a check fails").to_string(), message);
    } else {
        assert_eq!(found, Ok(()));
    }
}

#[test]
fn debug_builds_check_and_release_builds_have_nothing_of_it() {
    let wanted = match option_env!("FUSE_BOUNDS_REPORT") {
        Some("0") => false,
        Some("1") => true,
        _ => cfg!(debug_assertions),
    };
    let variants = [&below::KERNEL, &scalars::KERNEL, &trusting::KERNEL, &periodic::KERNEL, &shown::KERNEL]
        .into_iter()
        .flat_map(|kernel| kernel.variants);
    for variant in variants {
        assert!(!variant.hosts.is_empty());
        assert!(variant.hosts.iter().all(|host| host.reports == wanted));
        assert_ne!(variant.sites.is_empty(), wanted);
        let prints = variant.sites.iter().any(|site| matches!(site, Site::Print { .. }));
        let calls = variant.modules.iter().any(|module| {
            let ptx = module.ptx.unpack().expect("the macro packed it");
            String::from_utf8_lossy(&ptx).contains("vprintf")
        });
        assert!(variant.modules.is_empty() || calls == prints);
    }
}

/// Copies numbers up to 129 that are all below 100, but `at`.
fn copied<T: Number>(device: &Device, at: &[usize]) -> Result<()>
where
    below::Choice<T, 64>: below::Declared,
{
    let mut x: Vec<T> = (0..130).map(|i| T::from_f64(f64::from(i % 100))).collect();
    for &at in at {
        x[at] = T::from_f64(100.0);
    }
    let device_x = device.upload(&x)?;
    let mut out = device.zeros::<T>(130)?;
    let result = run(below::<T, 64>(&device_x, &mut out, T::from_f64(100.0), 130), device, 3);
    // The kernel ran to its end.
    assert_eq!(out.download()?, x);
    result
}

#[test]
fn a_failure_names_the_condition_the_program_the_element_and_the_line() {
    let _alone = alone();
    let failure = |program: u32, element: u32| {
        format!(
            "kernel `below`: program ({program}, 0, 0): `tl::device_assert(value < limit)` fails for element ({element}): a value is too large (tests/debug/kernels.rs:10:5)"
        )
    };
    for device in devices() {
        check(copied::<f32>(&device, &[129]), &failure(2, 1));
        check(copied::<bf16>(&device, &[0]), &failure(0, 0));
        check(copied::<i64>(&device, &[127]), &failure(1, 63));
        check(copied::<u8>(&device, &[70]), &failure(1, 6));
        assert_eq!(copied::<f32>(&device, &[]), Ok(()));
    }
    // Of several in one program a CPU takes the first.
    check(copied::<f32>(&Device::cpu(), &[126, 100, 127]), &failure(1, 36));
}

#[test]
fn a_nan_is_not_below_anything() {
    let _alone = alone();
    for device in devices() {
        let x = device.upload(&[f32::NAN]).unwrap();
        let mut out = device.zeros::<f32>(1).unwrap();
        let found = run(below::<f32, 64>(&x, &mut out, f32::INFINITY, 1), &device, 1);
        check(
            found,
            "kernel `below`: program (0, 0, 0): `tl::device_assert(value < limit)` fails for element (0): a value is too large (tests/debug/kernels.rs:10:5)",
        );
    }
}

#[test]
fn elements_have_the_coordinates_of_their_tile() {
    let _alone = alone();
    fn element<const COLS: usize>(device: &Device, bad: &[usize]) -> Vec<Vec<u32>>
    where
        without::Choice<COLS>: without::Declared,
    {
        let mut x = vec![0; 16 * COLS];
        bad.iter().for_each(|&at| x[at] = 7);
        let device_x = device.upload(&x).unwrap();
        let mut out = device.zeros::<i32>(x.len()).unwrap();
        let found = run(without::<COLS>(&device_x, &mut out, 7), device, 1);
        assert_eq!(out.download().unwrap(), x);
        match found {
            Err(Error::Assertion {
                kernel: "without",
                condition: "value != bad",
                message: "",
                element,
                ..
            }) => {
                vec![element]
            }
            Ok(()) => vec![],
            Err(other) => panic!("{other}"),
        }
    }
    let found = |wanted: [u32; 2]| if checks() { vec![wanted.to_vec()] } else { vec![] };
    for device in devices() {
        for row in [0, 3, 15] {
            assert_eq!(element::<2>(&device, &[row * 2 + 1]), found([row as u32, 1]), "{device}");
            assert_eq!(element::<8>(&device, &[row * 8 + 7]), found([row as u32, 7]), "{device}");
            assert_eq!(element::<48>(&device, &[row * 48 + 40]), found([row as u32, 40]), "{device}");
        }
        assert_eq!(element::<48>(&device, &[]), [[0u32; 0]; 0]);
    }
    // The first in row-major order.
    let cpu = Device::cpu();
    assert_eq!(element::<2>(&cpu, &[31, 17, 16]), found([8, 0]));
    assert_eq!(element::<48>(&cpu, &[47, 500, 48]), found([0, 47]));
}

#[test]
fn scalars_branches_and_loops() {
    let _alone = alone();
    let positive = "kernel `scalars`: program (0, 0, 0): `tl::device_assert(n > 0 && n < 1000)` fails (tests/debug/kernels.rs:26:5)";
    let odd = "kernel `scalars`: program (0, 0, 0): `tl::device_assert(value % 2 == 0)` fails: odd (tests/debug/kernels.rs:30:13)";
    for device in devices() {
        let launched = |x: &[i32], n: i32| {
            let device_x = device.upload(x)?;
            let mut out = device.zeros::<i32>(x.len())?;
            let result = run(scalars(&device_x, &mut out, n), &device, 1);
            let wanted = x.iter().enumerate().map(|(i, x)| if (i as i32) < n { 2 * x } else { 0 });
            assert_eq!(out.download()?, wanted.collect::<Vec<i32>>());
            result
        };
        assert_eq!(launched(&[1, 3, 12, 9], 4), Ok(()));
        check(launched(&[1, 3, 13, 9], 4), odd);
        assert_eq!(launched(&[1, 3, 13, 9], 2), Ok(()));
        check(launched(&[1, 3], 0), positive);
        check(launched(&[1, 3], -5), positive);
    }
}

#[test]
fn an_unchecked_kernel_has_its_assertions() {
    let _alone = alone();
    let large = "kernel `trusting`: program (0, 0, 0): `tl::device_assert(n <= 4)` fails (tests/debug/kernels.rs:39:5)";
    for device in devices() {
        for (n, wanted) in [(4, [4; 4]), (1, [1, 0, 0, 0]), (5, [5; 4])] {
            let mut out = device.zeros::<i32>(4).unwrap();
            // SAFETY: the slice has the four elements that the kernel writes.
            let launch = unsafe { trusting(&mut out, n) };
            let found = run(launch, &device, 1);
            if n > 4 {
                check(found, large)
            } else {
                assert_eq!(found, Ok(()))
            }
            assert_eq!(out.download().unwrap(), wanted);
        }
    }
}

#[test]
fn a_function_s_assertion_stands_in_the_function() {
    let _alone = alone();
    let of_elements = "kernel `total`: program (0, 0, 0): `tl::device_assert(tl::is_finite(x))` fails for element (5): overflow (tests/debug/kernels.rs:51:9)";
    let of_sum = "kernel `total`: program (0, 0, 0): `tl::device_assert(tl::is_finite(x))` fails: overflow (tests/debug/kernels.rs:51:9)";
    for device in devices() {
        let summed = |x: [f32; 64]| {
            let x = device.upload(&x)?;
            let mut out = device.zeros::<f32>(1)?;
            run(total::<64>(&x, &mut out), &device, 1)
        };
        let mut x = [1.0; 64];
        assert_eq!(summed(x), Ok(()));
        x[5] = f32::INFINITY;
        check(summed(x), of_elements);
        check(summed([f32::MAX; 64]), of_sum);
    }
}

/// Adds a bias of `values` elements with a period.
fn with_bias(device: &Device, period: i32, values: usize) -> Result<()> {
    let x: Vec<f32> = (0..1024).map(|i| i as f32).collect();
    let bias: Vec<f32> = (0..values).map(|i| 0.25 * i as f32).collect();
    let (device_x, device_bias) = (device.upload(&x)?, device.upload(&bias)?);
    let mut out = device.zeros::<f32>(1024)?;
    let result = run(periodic::<256>(&device_x, &device_bias, &mut out, period), device, 4);
    let wanted: Vec<f32> = (0..1024).map(|i| i as f32 + bias[(i % 256) % period as usize]).collect();
    assert_eq!(out.download()?, wanted, "{device}, {period}");
    result
}

#[test]
fn a_false_promise_leaves_the_results_right() {
    let _alone = alone();
    let broken = "kernel `periodic`: program (0, 0, 0): `tl::assume(period > 0 && period % 8 == 0 && period <= 4096)` fails (tests/debug/kernels.rs:66:5)";
    for device in devices() {
        for period in [8, 16, 64, 256, 4096] {
            assert_eq!(with_bias(&device, period, 4096), Ok(()), "{device}, {period}");
        }
        for period in [1, 3, 12, 100, 4097, 5000] {
            let found = with_bias(&device, period, 5000).map_err(|error| match error {
                // Every program finds it.
                Error::Assertion {
                    kernel, assumed, condition, message, element, file, line, column, ..
                } => {
                    let program = [0; 3];
                    Error::Assertion {
                        kernel,
                        assumed,
                        condition,
                        message,
                        element,
                        program,
                        file,
                        line,
                        column,
                    }
                }
                other => other,
            });
            check(found, broken);
        }
    }
}

#[test]
fn the_body_that_relies_on_a_promise_runs_where_it_holds() {
    let _alone = alone();
    let Ok(device) = Device::cuda(0) else { return };
    let (x, bias) = (device.zeros::<f32>(1024).unwrap(), device.zeros::<f32>(4096).unwrap());
    let mut out = device.zeros::<f32>(1024).unwrap();
    let mut entry = |period| {
        let trace = periodic::<256>(&x, &bias, &mut out, period).grid(4).trace(&device).unwrap();
        trace.specialization.unwrap().entry
    };
    assert_eq!([8, 24, 4096].map(&mut entry), ["periodic_256_aligned"; 3]);
    assert_eq!([0, -8, 4, 4104].map(&mut entry), ["periodic_256_general"; 4]);
}

#[test]
fn a_graph_reports_at_every_run() {
    let _alone = alone();
    for device in devices() {
        let buffers = (device.upload(&[200.0f32]).unwrap(), device.zeros::<f32>(1).unwrap());
        let mut graph = device
            .stream()
            .capture(buffers, |(x, out), stream| {
                below::<f32, 64>(&*x, &mut *out, 100.0, 1).grid(1).launch(stream)
            })
            .unwrap();
        for _ in 0..2 {
            check(
                graph.launch().and_then(|()| device.synchronize()),
                "kernel `below`: program (0, 0, 0): `tl::device_assert(value < limit)` fails for element (0): a value is too large (tests/debug/kernels.rs:10:5)",
            );
            assert_eq!(graph.buffers().1.download().unwrap(), [200.0]);
        }
    }
}

/// Squares less one of sixteen numbers, of which `n` are stored.
fn squared<T: Integer>(device: &Device, x: [T; 16], n: i32) -> Result<Vec<T>>
where
    squares::Choice<T>: squares::Declared,
{
    let device_x = device.upload(&x)?;
    let mut out = device.zeros::<T>(16)?;
    let found = run(squares::<T>(&device_x, &mut out, n, 1 << 20), device, 1);
    let written = out.download()?;
    found.map(|()| written)
}

#[test]
fn an_integer_that_does_not_fit_is_named_where_it_is_computed() {
    let _alone = alone();
    let overflow = |verb: &str, dtype: &str, element: u32, place: &str| {
        format!(
            "kernel `squares`: program (0, 0, 0): attempt to {verb} with overflow of {dtype} for element ({element}) (tests/debug/kernels.rs:{place})"
        )
    };
    for device in devices() {
        let mut x = [3i32; 16];
        x[9] = 46341;
        check(squared(&device, x, 16).map(|_| ()), &overflow("multiply", "i32", 9, "86:22"));
        // What is not stored does not count.
        assert_eq!(squared(&device, x, 9).unwrap(), [[8; 9].as_slice(), &[0; 7]].concat());
        let mut x = [1u8; 16];
        x[2] = 0;
        check(squared(&device, x, 3).map(|_| ()), &overflow("subtract", "u8", 2, "86:30"));
        let mut x = [-3_000_000_000i64; 16];
        assert_eq!(squared(&device, x, 16).unwrap()[3], 8_999_999_999_999_999_999);
        x[0] = 3_100_000_000;
        check(squared(&device, x, 16).map(|_| ()), &overflow("multiply", "i64", 0, "86:22"));
        let mut x = [4_294_967_295u64; 16];
        x[15] = 4_294_967_297;
        check(squared(&device, x, 16).map(|_| ()), &overflow("multiply", "u64", 15, "86:22"));
    }
}

#[test]
fn sums_loops_and_branches_use_their_numbers() {
    let _alone = alone();
    for device in devices() {
        let found = |x: [i32; 16], kind: i32| {
            let device_x = device.upload(&x).unwrap();
            let mut out = device.zeros::<i32>(16).unwrap();
            run(used(&device_x, &mut out, kind), &device, 1)
        };
        let overflow = |what: &str| {
            format!("kernel `used`: program (0, 0, 0): attempt to {what} (tests/debug/kernels.rs:PLACE)")
        };
        check(found([i32::MAX / 8; 16], 0), &overflow("sum with overflow of i32").replace("PLACE", "95:28"));
        assert_eq!(found([i32::MAX / 16; 16], 0), Ok(()));
        check(found([70000; 16], 1), &overflow("multiply with overflow of i32").replace("PLACE", "100:23"));
        assert_eq!(found([1000; 16], 1), Ok(()));
        assert_eq!(found([i32::MAX; 16], 2), Ok(()));
        let mut x = [70000; 16];
        x[5] = i32::MIN;
        check(
            found(x, 2),
            &overflow("negate with overflow of i32 for element (5)").replace("PLACE", "104:98"),
        );
    }
}
