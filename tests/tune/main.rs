//! Choosing among configs by measured time, with real kernels on every device there is.

mod kernels;

use std::sync::{MutexGuard, Once};

use dsl_runtime::prelude::*;
use dsl_runtime::{Error, Result, tune};

use fuse_tests::devices;
use kernels::by_device::{Reduction, reduced_rows};
use kernels::{
    Block, careless_row_sums, chosen_row_sums, count, double, double_blocks, double_chosen, optional_parts,
    row_sums, scaled_row_sums, shipped, unmasked,
};

/// One test at a time, with a folder of choices that is theirs.
fn alone() -> MutexGuard<'static, ()> {
    static START: Once = Once::new();
    let guard = fuse_tests::alone();
    START.call_once(|| {
        let folder = std::env::temp_dir().join(format!("fuse-tune-test-{}", std::process::id()));
        // SAFETY: no test has begun, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var("FUSE_TUNE_DIR", folder) };
        // SAFETY: as above.
        unsafe { std::env::remove_var("FUSE_TUNE") };
    });
    tune::clear().unwrap();
    guard
}

/// What was decided for a kernel on a device: the key and all candidates.
fn decisions(kernel: &str, device: &Device) -> Vec<tune::Decision> {
    let all = tune::decisions().unwrap().into_iter();
    all.filter(|one| one.kernel.ends_with(&format!("::{kernel}")) && one.device == device.name()).collect()
}

fn labels(decision: &tune::Decision) -> Vec<&str> {
    decision.candidates.iter().map(|(label, _)| label.as_str()).collect()
}

#[test]
fn a_call_chooses_its_config_and_its_grid() {
    let _alone = alone();
    for device in devices() {
        for n in [1usize, 1000, 100_000] {
            let host: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let x = device.upload(&host).unwrap();
            for round in 0..3 {
                let mut out = device.zeros::<f32>(n).unwrap();
                double(&x, &mut out, n as i32)
                    .grid_by(|chosen| n.div_ceil(chosen.constant("BLOCK")))
                    .launch(&device)
                    .unwrap();
                let wanted: Vec<f32> = host.iter().map(|x| x + x).collect();
                assert_eq!(out.download().unwrap(), wanted, "{device}, {n}, round {round}");
            }
        }
        let found = decisions("double", &device);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[1].key, [1000, 1000]);
        assert_eq!(
            labels(&found[1]),
            [
                "T = f32, BLOCK = 64, num_warps = 1",
                "T = f32, BLOCK = 1024",
                "T = f32, BLOCK = 1024, num_warps = 8, maxnreg = 32"
            ]
        );
        assert!(found.iter().flat_map(|one| &one.candidates).all(|(_, time)| time.is_ok()), "{found:?}");
        assert!(found.iter().all(|one| one.source == tune::Source::Measured));
    }
}

#[test]
fn a_kernel_that_works_in_place_does_so_once_for_each_launch() {
    let _alone = alone();
    for device in devices() {
        let n = 5000;
        let mut x = device.upload(&vec![10i32; n]).unwrap();
        let mut seen = device.upload(&vec![1i32; n]).unwrap();
        for launch in 1..4 {
            count(&mut x, &mut seen, n as i32)
                .grid_by(|chosen| n.div_ceil(chosen.constant("BLOCK")))
                .launch(&device)
                .unwrap();
            assert_eq!(x.download().unwrap(), vec![10 + launch; n], "{device}");
            let sum: i32 = (1..=launch).map(|launch| 10 + launch).sum();
            assert_eq!(seen.download().unwrap(), vec![1 + sum; n], "{device}");
        }
        assert_eq!(decisions("count", &device).len(), 1);
    }
}

fn rows(device: &Device, n_cols: usize) -> (Buffer<f32>, Vec<f32>) {
    let host: Vec<f32> = (0..7 * n_cols).map(|i| (i % 13) as f32).collect();
    (device.upload(&host).unwrap(), host.chunks(n_cols).map(|row| row.iter().sum()).collect())
}

#[test]
fn configs_that_do_not_suit_the_arguments_are_left_out() {
    let _alone = alone();
    for device in devices() {
        for (n_cols, candidates) in [(10, 4), (64, 4), (65, 3), (256, 3), (257, 1), (1000, 1)] {
            let (x, wanted) = rows(&device, n_cols);
            let mut out = device.zeros::<f32>(7).unwrap();
            row_sums(&x, &mut out, n_cols as i32).grid(7).launch(&device).unwrap();
            assert_eq!(out.download().unwrap(), wanted, "{device}, {n_cols}");
            let found = decisions("row_sums", &device);
            let found = found.iter().find(|one| one.key == [n_cols as i128]);
            // With one config there is nothing to measure.
            assert_eq!(found.map_or(1, |one| one.candidates.len()), candidates, "{device}, {n_cols}");
        }
        let (x, _) = rows(&device, 1025);
        let mut out = device.zeros::<f32>(7).unwrap();
        let error = row_sums(&x, &mut out, 1025).grid(7).launch(&device).unwrap_err();
        assert!(matches!(error, Error::NoVariant { kernel: "row_sums", .. }), "{error}");
    }
}

#[test]
fn a_config_with_another_result_is_not_timed_and_not_taken() {
    let _alone = alone();
    for device in devices() {
        for (n_cols, wrong) in [(50, 0), (100, 1), (500, 2)] {
            let (x, wanted) = rows(&device, n_cols);
            for _ in 0..2 {
                let mut out = device.zeros::<f32>(7).unwrap();
                careless_row_sums(&x, &mut out, n_cols as i32).grid(7).launch(&device).unwrap();
                assert_eq!(out.download().unwrap(), wanted, "{device}, {n_cols}");
            }
            let found = decisions("careless_row_sums", &device);
            let found = found.iter().find(|one| one.key == [n_cols as i128]).unwrap();
            let notes: Vec<&String> =
                found.candidates.iter().filter_map(|(_, time)| time.as_ref().err()).collect();
            assert_eq!(notes.len(), wrong, "{device}, {n_cols}: {notes:?}");
            assert!(notes.iter().all(|note| note.starts_with("it gives another result: element 0 of 7 is ")));
        }
    }
}

#[test]
fn a_config_that_fails_is_left_out() {
    let _alone = alone();
    let reports = unmasked::KERNEL.variants[0].hosts.iter().any(|host| host.reports);
    for device in devices() {
        // 128 elements: the block of 1024 leaves its slices.
        let x = device.upload(&[3.0f32; 128]).unwrap();
        let mut out = device.zeros::<f32>(128).unwrap();
        unmasked(&x, &mut out)
            .grid_by(|chosen| 128usize.div_ceil(chosen.constant("BLOCK")))
            .launch(&device)
            .unwrap();
        assert_eq!(out.download().unwrap(), [6.0; 128]);
        let found = &decisions("unmasked", &device)[0];
        assert_eq!(found.candidates[0].1.is_err(), reports, "{found:?}");
        assert!(found.candidates[1..].iter().all(|(_, time)| time.is_ok()), "{found:?}");
        // Where all fail, the launch does.
        let mut short = device.zeros::<f32>(10).unwrap();
        tune::clear().unwrap();
        let failed = unmasked(&x, &mut short).grid(1).launch(&device);
        if reports {
            assert!(matches!(failed, Err(Error::OutOfBounds { kernel: "unmasked", .. })), "{failed:?}");
            assert_eq!(short.download().unwrap(), [0.0; 10], "the outputs are as before");
        } else {
            assert_eq!(failed, Ok(()));
        }
    }
}

#[test]
fn expressions_and_measurements_share_the_choice() {
    let _alone = alone();
    for device in devices() {
        for (n_cols, block) in [(30usize, 64), (200, 256)] {
            let host: Vec<i32> = (0..7 * n_cols as i32).collect();
            let x = device.upload(&host).unwrap();
            let mut out = device.zeros::<i32>(7).unwrap();
            scaled_row_sums::<3>(&x, &mut out, n_cols as i32).grid(7).launch(&device).unwrap();
            let wanted: Vec<i32> = host.chunks(n_cols).map(|row| 3 * row.iter().sum::<i32>()).collect();
            assert_eq!(out.download().unwrap(), wanted);
            let found = decisions("scaled_row_sums", &device);
            let found = found.iter().find(|one| one.key == [n_cols as i128]).unwrap();
            let label = |warps| format!("BLOCK = {block}, SCALE = 3, num_warps = {warps}");
            assert_eq!(labels(found), [1, 2, 4].map(label));
        }
    }
}

#[test]
fn arguments_choose_a_config() {
    let _alone = alone();
    for device in devices() {
        for (rows, n_cols, config) in [
            (7, 64, "BLOCK = 64, num_warps = 1"),
            (2, 65, "BLOCK = 256, num_warps = 4"),
            (7, 256, "BLOCK = 256, num_warps = 1"),
            (3, 1000, "BLOCK = 1024"),
        ] {
            let host: Vec<i32> = (0..(rows * n_cols) as i32).collect();
            let x = device.upload(&host).unwrap();
            let mut out = device.zeros::<i32>(rows).unwrap();
            let mut launch = chosen_row_sums::<i32>(&x, &mut out, n_cols as i32).grid(rows);
            assert_eq!(launch.trace(&device).unwrap().variant, format!("T = i32, {config}"));
            launch.launch(&device).unwrap();
            let wanted: Vec<i32> = host.chunks(n_cols).map(|row| row.iter().sum()).collect();
            assert_eq!(out.download().unwrap(), wanted);
        }
        let x = device.zeros::<f32>(2000).unwrap();
        let mut out = device.zeros::<f32>(1).unwrap();
        let failed = chosen_row_sums::<f32>(&x, &mut out, 2000).grid(1).launch(&device);
        assert!(matches!(failed, Err(Error::NoVariant { .. })), "{failed:?}");
        assert_eq!(decisions("chosen_row_sums", &device), [], "nothing was measured");
    }
}

#[test]
fn enums_and_the_device_choose_the_variant() {
    let _alone = alone();
    for device in devices() {
        for (n_cols, reduction) in [(50, Reduction::Sum), (50, Reduction::Maximum), (100, Reduction::Sum)] {
            let (is_sum, is_cpu) = (reduction == Reduction::Sum, (&device).shared_bytes().is_none());
            let settings = match n_cols <= 64 && (is_cpu || is_sum) {
                true => "reduction = {}, BLOCK = 64, num_warps = 1",
                false => "reduction = {}, BLOCK = 256",
            };
            let host: Vec<i32> = (0..4 * n_cols as i32).map(|i| i * 7919 % 1000).collect();
            let x = device.upload(&host).unwrap();
            let mut out = device.zeros::<i32>(4).unwrap();
            let mut launch = reduced_rows(&x, reduction, n_cols as i32, &mut out).grid(4);
            let wanted = settings.replace("{}", &(reduction as i32).to_string());
            assert_eq!(launch.trace(&device).unwrap().variant, wanted);
            launch.launch(&device).unwrap();
            let of_row = |row: &[i32]| if is_sum { row.iter().sum() } else { *row.iter().max().unwrap() };
            assert_eq!(out.download().unwrap(), host.chunks(n_cols).map(of_row).collect::<Vec<i32>>());
        }
        let x = device.zeros::<i32>(400).unwrap();
        let mut out = device.zeros::<i32>(1).unwrap();
        let failed = reduced_rows(&x, Reduction::Sum, 400, &mut out).grid(1).launch(&device);
        assert!(matches!(failed, Err(Error::NoVariant { .. })), "{failed:?}");
        let failed =
            reduced_rows(&x, Reduction::Sum, 50, &mut out).only("BLOCK = 256").grid(1).launch(&device);
        assert!(matches!(failed, Err(Error::NoVariant { .. })), "{failed:?}");
    }
}

#[test]
fn values_of_the_host_choose_the_variant() {
    let _alone = alone();
    for device in devices() {
        let (rows, cols) = (6, 100);
        let host: Vec<i32> = (0..rows as i32 * cols as i32).collect();
        let x = device.upload(&host).unwrap();
        let mut out = device.zeros::<i32>(rows * cols).unwrap();
        let mut run = |block: Block, preferred| {
            let (x, out) = (x.view([rows, cols]).unwrap(), out.view_mut([rows, cols]).unwrap());
            let grid = (rows.div_ceil(block.rows), cols.div_ceil(block.cols));
            let mut launch = double_chosen(x, block, out, preferred).grid(grid);
            let variant = launch.trace(&device).map(|trace| trace.variant.to_string());
            launch.launch(&device).and(variant)
        };
        let label = |rows, cols| match rows {
            1 => format!("T = i32, ROWS = 1, COLS = {cols}, num_warps = 1"),
            _ => format!("T = i32, ROWS = {rows}, COLS = {cols}"),
        };
        for (rows, cols) in [(1, 16), (4, 16), (1, 64), (4, 64)] {
            assert_eq!(run(Block { rows, cols }, None), Ok(label(rows, cols)), "{device}");
        }
        let unknown = Block { rows: 2, cols: 64 };
        assert!(matches!(run(unknown, None), Err(Error::NoVariant { .. })), "{device}");
        assert_eq!(run(Block { rows: 1, cols: 16 }, Some(Block { rows: 1, cols: 16 })), Ok(label(1, 16)));
        assert_eq!(out.download().unwrap(), host.iter().map(|x| x + x).collect::<Vec<i32>>(), "{device}");
    }
}

#[test]
fn arguments_that_are_there_choose_the_variant() {
    let _alone = alone();
    for device in devices() {
        let n = 1000;
        let host: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let x = device.upload(&host).unwrap();
        for (has_bias, has_sums) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut out = device.upload(&vec![f32::NAN; n]).unwrap();
            let mut sums = device.upload(&[-1.0f32; 4]).unwrap();
            {
                let sums = has_sums.then(|| sums.view_mut([4]).unwrap());
                let bias = has_bias.then(|| Slice::from(&x));
                optional_parts::<256>(&x, bias, out.view_mut([n]).unwrap(), sums, n as i32)
                    .grid(4)
                    .launch(&device)
                    .unwrap();
            }
            let factor = if has_bias { 2.0 } else { 1.0 };
            let wanted: Vec<f32> = host.iter().map(|x| factor * x).collect();
            assert_eq!(out.download().unwrap(), wanted, "{device}, {has_bias}, {has_sums}");
            let sum_of = |program: &[f32]| program.iter().sum::<f32>();
            let wanted: Vec<f32> =
                wanted.chunks(256).map(|program| if has_sums { sum_of(program) } else { -1.0 }).collect();
            assert_eq!(sums.download().unwrap(), wanted, "{device}, {has_bias}, {has_sums}");
        }
        let x = device.upload(&[1.0f32]).unwrap();
        let mut out = device.zeros::<f32>(1).unwrap();
        let launch = optional_parts::<256>(&x, None, out.view_mut([1]).unwrap(), None, 1);
        launch.grid(1).launch(&device).unwrap();
        assert_eq!(out.download().unwrap(), [1.0]);
    }
}

#[test]
fn a_call_can_name_its_config() {
    let _alone = alone();
    for device in devices() {
        let x = device.upload(&[1i8; 100]).unwrap();
        let mut out = device.zeros::<i8>(100).unwrap();
        let mut launch = double(&x, &mut out, 100).grid(100).only("num_warps = 8");
        assert_eq!(
            launch.trace(&device).unwrap().variant,
            "T = i8, BLOCK = 1024, num_warps = 8, maxnreg = 32"
        );
        launch.launch(&device).unwrap();
        assert_eq!(out.download().unwrap(), [2; 100]);
        assert_eq!(decisions("double", &device), [], "nothing was measured");
        let failed = double(&x, &mut out, 100).grid(100).only("num_warps = 16").launch(&device);
        assert_eq!(
            failed.unwrap_err().to_string(),
            "kernel `double` has no variant with num_warps = 16; declared are [T = i8, BLOCK = 64, num_warps = 1], \
             [T = i8, BLOCK = 1024], [T = i8, BLOCK = 1024, num_warps = 8, maxnreg = 32]"
        );
    }
}

#[test]
fn an_empty_grid_measures_nothing() {
    let _alone = alone();
    let (x, mut out) = ([0.0f32; 4], [0.0f32; 4]);
    double(&x, &mut out, 0).grid(0).launch(&Device::cpu()).unwrap();
    assert_eq!(tune::decisions().unwrap(), []);
}

#[test]
fn choices_are_exported_and_found_on_disk() -> Result<()> {
    let _alone = alone();
    let device = Device::cpu();
    let x = vec![1.0f32; 100_000];
    let mut out = vec![0.0; 100_000];
    let mut run = || {
        shipped(&x, &mut out, 100_000)
            .grid_by(|chosen| 100_000usize.div_ceil(chosen.constant("BLOCK")))
            .launch(&device)
    };
    run()?;
    let path = std::env::temp_dir().join(format!("fuse-tune-test-{}.json", std::process::id()));
    assert_eq!(tune::export(&path)?, 1);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let chosen = decisions("shipped", &device)[0].chosen.clone();
    assert!(text.contains(&format!("\"chosen\": \"{chosen}\"")), "{text}");
    tune::forget()?;
    run()?;
    let found = decisions("shipped", &device);
    assert_eq!((found[0].source, &found[0].chosen), (tune::Source::Disk, &chosen));
    assert_eq!(tune::clear(), Ok(1));
    Ok(())
}

/// Views are arguments like others: expressions see them, and their contents are restored between trials.
#[test]
fn views_choose_and_are_restored() {
    let _alone = alone();
    for device in devices() {
        for (rows, cols) in [(6usize, 60usize), (3, 10), (6, 60)] {
            let host: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
            let x = device.upload(&host).unwrap();
            let mut out = device.upload(&vec![-1.0f32; rows * (cols + 4)]).unwrap();
            let view = out.view_strided_mut([rows, cols], [cols + 4, 1]).unwrap();
            double_blocks(x.view([rows, cols]).unwrap(), view)
                .grid_by(|chosen| rows.div_ceil(chosen.constant("ROWS")))
                .launch(&device)
                .unwrap();
            for (i, value) in out.download().unwrap().into_iter().enumerate() {
                let (row, col) = (i / (cols + 4), i % (cols + 4));
                let wanted = if col < cols { 2.0 * host[row * cols + col] } else { -1.0 };
                assert_eq!(value, wanted, "{device}: {row}, {col} of {rows} by {cols}");
            }
        }
        let made = decisions("double_blocks", &device);
        let keys: Vec<Vec<i128>> = made.iter().map(|decision| decision.key.clone()).collect();
        // For three rows one config is left, which nothing need measure.
        assert_eq!(keys, [[6, 1]], "{device}");
        assert_eq!(labels(&made[0]), ["ROWS = 1, COLS = 64", "ROWS = 4, COLS = 64"], "{device}");
    }
}
