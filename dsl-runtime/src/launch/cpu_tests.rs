//! Launches on the CPU, of hand-written host code instead of generated code.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::time::Instant;

use expect_test::{Expect, expect};

use super::*;
use crate::Device;
use crate::cpu_level::level;
use crate::dtype::{DType, f16};
use crate::kernel::{Host, HostEntry, Level, Param, ParamKind};

const fn param(name: &'static str, kind: ParamKind) -> Param {
    Param { name, kind }
}

const fn variant(dtypes: &'static [DType], hosts: &'static [Host]) -> Variant {
    Variant { label: "T = f32", types: &[], consts: &[], dtypes, source: 0, modules: &[], hosts, sites: &[] }
}

const fn host(level: Level, entry: HostEntry, scratch_bytes: usize) -> Host {
    Host { level, entry, scratch_bytes, reports: false, noted: &[] }
}

/// Adds 1 to `out[i]` for each program `i` of the grid's linear order; what is beyond the end is dropped.
unsafe extern "C" fn count(
    args: *const u64,
    first: u32,
    last: u32,
    y: u32,
    z: u32,
    grid: *const u32,
    _scratch: *mut u8,
) {
    // SAFETY: called as `COUNT` says: a `&mut [u32]`, and a grid of three extents.
    unsafe {
        let out: *mut u32 = with_exposed_provenance_mut(*args as usize);
        let row = (z as u64 * *grid.add(1) as u64 + y as u64) * *grid as u64;
        for x in first..last {
            let program = row + x as u64;
            if program < *args.add(1) {
                *out.add(program as usize) += 1;
            }
        }
    }
}

static COUNT: Kernel = Kernel {
    name: "count",
    params: &[param("out", ParamKind::SliceMut)],
    variants: &[variant(&[DType::U32], &[host(Level::Baseline, count, 0)])],
    ..Kernel::TEST
};

/// Runs a test again in a process with this environment, by the name of the test.
fn in_environment(name: &str, variable: &str, value: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(program);
    command.args(["--exact", &format!("launch::cpu_tests::{name}"), "--test-threads=1", "--nocapture"]);
    let output = command.env(variable, value).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn threads_that_cannot_be_started_are_an_error() {
    // Stacks of so many bytes are more than any process can have.
    let (variable, bytes) = ("RUST_MIN_STACK", (1u64 << 60).to_string());
    if std::env::var(variable) != Ok(bytes.clone()) {
        return in_environment("threads_that_cannot_be_started_are_an_error", variable, &bytes);
    }
    let mut out = [0; 100];
    for _ in 0..2 {
        let error = launch_count(&mut out).grid(100).launch(&Device::cpu()).unwrap_err();
        let Error::Threads { reason } = &error else { panic!("{error}") };
        assert_eq!(error.to_string(), format!("the threads that kernels run on cannot be started: {reason}"));
    }
    assert_eq!((Device::cpu().parallelism(), out), (1, [0; 100]));
}

fn launch_count(out: &mut [u32]) -> Launch<'_, 1> {
    // SAFETY: `count` writes within its argument alone.
    unsafe { Launch::new(&COUNT, Ok(&COUNT.variants[0]), [Arg::slice_mut::<u32>(out)]) }
}

#[test]
fn every_program_runs_exactly_once() {
    let grids = [
        (1, 1, 1),
        (2, 1, 1),
        (7, 5, 3),
        (1, 37, 1),
        (1, 1, 41),
        (1_000_003, 1, 1),
        (3, 65_535, 2),
        (101, 3, 7),
    ];
    for grid in grids {
        let mut out = vec![0; (grid.0 * grid.1 * grid.2) as usize];
        launch_count(&mut out).grid(grid).launch(&Device::cpu()).unwrap();
        assert!(out.iter().all(|&runs| runs == 1), "{grid:?}");
    }
}

#[test]
fn every_program_runs_exactly_once_also_when_its_cost_is_known() {
    for _ in 0..20 {
        for programs in [1u32, 5, 300, 200_000] {
            let mut out = vec![0; programs as usize];
            launch_count(&mut out).grid(programs).launch(&Device::cpu()).unwrap();
            assert!(out.iter().all(|&runs| runs == 1), "{programs}");
        }
    }
}

#[test]
fn launches_from_many_threads_do_not_meet() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut out = vec![0; 999];
                    launch_count(&mut out).grid((333, 3)).launch(&Device::cpu().stream()).unwrap();
                    assert_eq!(out, vec![1; 999]);
                }
            });
        }
    });
}

#[test]
fn an_empty_grid_runs_nothing_once_the_arguments_are_checked() {
    let mut out = vec![0; 4];
    for grid in [(0, 1, 1), (4, 0, 1), (4, 1, 0)] {
        launch_count(&mut out).grid(grid).launch(&Device::cpu()).unwrap();
    }
    assert_eq!(out, [0; 4]);
    // SAFETY: the launch fails before anything runs.
    let wrong = unsafe { Launch::new(&COUNT, Ok(&COUNT.variants[0]), [Arg::scalar(1.0f32)]) };
    assert!(wrong.grid(0).launch(&Device::cpu()).is_err());
}

/// Copies its arguments, as it finds them, to `out`.
unsafe extern "C" fn copy_args(
    args: *const u64,
    _first: u32,
    _last: u32,
    _y: u32,
    _z: u32,
    grid: *const u32,
    _scratch: *mut u8,
) {
    // SAFETY: called as `COPY_ARGS` says, with an `out` of 12.
    unsafe {
        let out: *mut i64 = with_exposed_provenance_mut(*args.add(7) as usize);
        let x: *const f16 = with_exposed_provenance(*args as usize);
        let values = [
            (*x).to_f32() as i64,
            *args.add(1) as i64,
            *args.add(2) as u32 as i32 as i64,
            f32::from_bits(*args.add(3) as u32) as i64,
            *args.add(4) as u8 as i64,
            *args.add(5) as i64,
            *args.add(6) as u16 as i16 as i64,
            *args.add(8) as i64,
            *grid as i64,
            *grid.add(1) as i64,
            *grid.add(2) as i64,
        ];
        out.copy_from_nonoverlapping(values.as_ptr(), values.len());
    }
}

static COPY_ARGS: Kernel = Kernel {
    name: "copy_args",
    params: &[
        param("x", ParamKind::Slice),
        param("n", ParamKind::Scalar),
        param("scale", ParamKind::Scalar),
        param("flag", ParamKind::Scalar),
        param("wide", ParamKind::Scalar),
        param("narrow", ParamKind::Scalar),
        param("out", ParamKind::SliceMut),
    ],
    variants: &[variant(
        &[DType::F16, DType::I32, DType::F32, DType::Bool, DType::I64, DType::I16, DType::I64],
        &[host(Level::Baseline, copy_args, 0)],
    )],
    ..Kernel::TEST
};

#[test]
fn arguments_arrive_in_order_and_unchanged() {
    let device = Device::cpu();
    let x: Vec<f16> = (0..10).map(|i| f16::from_f32(i as f32)).collect();
    let x = device.upload(&x).unwrap();
    let mut out = device.zeros::<i64>(12).unwrap();
    let args = [
        Arg::slice::<f16>(x.slice(3..7)),
        Arg::scalar(-5i32),
        Arg::scalar(2.0f32),
        Arg::scalar(true),
        Arg::scalar(i64::MIN),
        Arg::scalar(-1i16),
        Arg::slice_mut::<i64>(&mut out),
    ];
    // SAFETY: `copy_args` takes these and writes 11 elements of 12.
    let launch = unsafe { Launch::new(&COPY_ARGS, Ok(&COPY_ARGS.variants[0]), args) };
    launch.grid((1, 1, 1)).launch(&device).unwrap();
    assert_eq!(out.download().unwrap(), [3, 4, -5, 2, 1, i64::MIN, -1, 12, 1, 1, 1, 0]);
}

const SCRATCH_BYTES: usize = 1000;

/// Fills its scratch memory, waits a little, and writes 1 to `out[x]` if it is still as it was filled.
unsafe extern "C" fn fill_scratch(
    args: *const u64,
    first: u32,
    last: u32,
    _y: u32,
    _z: u32,
    _grid: *const u32,
    scratch: *mut u8,
) {
    // SAFETY: called as `FILL_SCRATCH` says: an `out` with an element per program, and 1000 bytes of scratch.
    unsafe {
        let out: *mut u32 = with_exposed_provenance_mut(*args as usize);
        for x in first..last {
            scratch.write_bytes(x as u8, SCRATCH_BYTES);
            std::thread::yield_now();
            let kept = (0..SCRATCH_BYTES).all(|i| *scratch.add(i) == x as u8);
            *out.add(x as usize) = u32::from(kept && scratch.addr().is_multiple_of(64));
        }
    }
}

static FILL_SCRATCH: Kernel = Kernel {
    name: "fill_scratch",
    params: &[param("out", ParamKind::SliceMut)],
    variants: &[variant(&[DType::U32], &[host(Level::Baseline, fill_scratch, SCRATCH_BYTES)])],
    ..Kernel::TEST
};

#[test]
fn scratch_is_aligned_and_private_to_a_call() {
    let mut out = vec![0u32; 2000];
    // SAFETY: `fill_scratch` writes an element per program, and there are as many.
    let launch = unsafe {
        Launch::new(&FILL_SCRATCH, Ok(&FILL_SCRATCH.variants[0]), [Arg::slice_mut::<u32>(&mut out)])
    };
    launch.grid(2000).launch(&Device::cpu()).unwrap();
    assert_eq!(out, vec![1; 2000]);
}

macro_rules! level_entry {
    ($name:ident, $number:literal) => {
        unsafe extern "C" fn $name(
            args: *const u64,
            _first: u32,
            _last: u32,
            _y: u32,
            _z: u32,
            _grid: *const u32,
            _scratch: *mut u8,
        ) {
            // SAFETY: called as `LEVELS` says, with an `out` of one element.
            unsafe { *with_exposed_provenance_mut::<u32>(*args as usize) = $number };
        }
    };
}
level_entry!(at_baseline, 1);
level_entry!(at_v3, 3);
level_entry!(at_v4, 4);

static LEVELS: Kernel = Kernel {
    name: "levels",
    params: &[param("out", ParamKind::SliceMut)],
    variants: &[
        variant(
            &[DType::U32],
            &[host(Level::Baseline, at_baseline, 0), host(Level::V3, at_v3, 0), host(Level::V4, at_v4, 0)],
        ),
        variant(&[DType::U32], &[]),
    ],
    ..Kernel::TEST
};

fn launch_levels(variant: usize, out: &mut [u32]) -> Launch<'_, 1> {
    // SAFETY: each entry writes the first element.
    unsafe { Launch::new(&LEVELS, Ok(&LEVELS.variants[variant]), [Arg::slice_mut::<u32>(out)]) }.grid(1)
}

#[test]
fn the_best_code_for_the_processor_runs() {
    if std::env::var_os("FUSE_CPU_LEVEL").is_some() {
        eprintln!("skipped: FUSE_CPU_LEVEL is set");
        return;
    }
    let mut out = [0u32];
    launch_levels(0, &mut out).launch(&Device::cpu()).unwrap();
    let expected = match level() {
        Level::Baseline => 1,
        Level::V3 => 3,
        Level::V4 => 4,
    };
    assert_eq!(out, [expected]);
    let trace = launch_levels(0, &mut out).trace(&Device::cpu()).unwrap();
    assert_eq!(trace.to_string(), format!("levels [T = f32] on cpu, {}: 1 x 1 x 1 programs", level()));
    let missing = launch_levels(1, &mut out).launch(&Device::cpu()).unwrap_err();
    let expected =
        format!("kernel `levels` [T = f32] has no code for this CPU ({}): none was built", level());
    assert_eq!(missing.to_string(), expected);
}

fn check_refused<const N: usize>(args: [Arg<'_>; N], expected: Expect) {
    // SAFETY: the launch fails before anything runs.
    let launch = unsafe { Launch::new(&COPY_ARGS, Ok(&COPY_ARGS.variants[0]), args) };
    expected.assert_eq(&launch.grid(1).launch(&Device::cpu()).unwrap_err().to_string());
}

#[test]
fn arguments_of_another_number_kind_or_type_are_refused() {
    let (x, mut out) = (vec![0u16; 1], vec![0i64; 1]);
    check_refused([Arg::slice::<u16>(&x)], expect!["kernel `copy_args` takes 7 arguments, found 1"]);
    let rest = || [(); 5].map(|()| Arg::scalar(0u8));
    let [a, b, c, d, e] = rest();
    check_refused(
        [Arg::slice::<u16>(&x), a, b, c, d, e, Arg::slice_mut::<i64>(&mut out)],
        expect!["kernel `copy_args`: `x` takes &[f16], found &[u16]"],
    );
    let [a, b, c, d, e] = rest();
    check_refused(
        [Arg::scalar(f16::ONE), a, b, c, d, e, Arg::slice_mut::<i64>(&mut out)],
        expect!["kernel `copy_args`: `x` takes &[f16], found f16"],
    );
    let half = vec![f16::ONE];
    let [a, b, c, d, e] = rest();
    check_refused(
        [Arg::slice::<f16>(&half), a, b, c, d, e, Arg::slice_mut::<i64>(&mut out)],
        expect!["kernel `copy_args`: `n` takes i32, found u8"],
    );
}

#[test]
fn a_launch_needs_a_grid_that_can_run() {
    let mut out = vec![0; 4];
    let message = |launch: Launch<'_, 1>| launch.launch(&Device::cpu()).unwrap_err().to_string();
    expect!["kernel `count` was launched without a grid: say how many programs run with `.grid(..)`"]
        .assert_eq(&message(launch_count(&mut out)));
    expect!["kernel `count`: grid x is -1, and cannot be negative"]
        .assert_eq(&message(launch_count(&mut out).grid(-1)));
    expect!["kernel `count`: grid z is 65536, the limit is 65535"]
        .assert_eq(&message(launch_count(&mut out).grid((1, 1, 1 << 16))));
}

#[test]
fn anything_that_holds_elements_can_be_an_argument() {
    let device = Device::cpu();
    let (buffer, mut written) = (device.zeros::<f32>(4).unwrap(), device.zeros::<f64>(4).unwrap());
    let (array, vec, mut vec_mut) = ([0i8; 3], vec![false; 2], vec![0u8; 5]);
    let (mut head, tail) = written.split_at_mut(1);
    let args = [
        Arg::slice::<i8>(&array),
        Arg::slice::<bool>(&vec),
        Arg::slice::<bool>(&vec[1..]),
        Arg::slice::<f32>(&buffer),
        Arg::slice::<f32>(buffer.slice(2..)),
        Arg::slice_mut::<u8>(&mut vec_mut),
        Arg::slice_mut::<f64>(&mut head),
        Arg::slice_mut::<f64>(tail),
    ];
    let found: Vec<_> = args.iter().map(|arg| (arg.dtype.name(), arg.len)).collect();
    let expected =
        [("i8", 3), ("bool", 2), ("bool", 1), ("f32", 4), ("f32", 2), ("u8", 5), ("f64", 1), ("f64", 3)];
    assert_eq!(found, expected);
}

/// Writes the time to `out[i]` for each program `i` of a row.
unsafe extern "C" fn times(
    args: *const u64,
    first: u32,
    last: u32,
    _y: u32,
    _z: u32,
    _grid: *const u32,
    _scratch: *mut u8,
) {
    // SAFETY: called as `TIMES` says: a `&mut [i64]`, and a record with the address of the clock.
    unsafe {
        let out: *mut i64 = with_exposed_provenance_mut(*args as usize);
        let record: *const unsafe extern "C" fn(*mut i64) = with_exposed_provenance(*args.add(2) as usize);
        let clock = *record.add(9);
        for program in first..last {
            clock(out.add(program as usize));
        }
    }
}

static TIMES: Kernel = Kernel {
    name: "times",
    params: &[param("out", ParamKind::SliceMut)],
    variants: &[variant(
        &[DType::I64],
        &[Host { level: Level::Baseline, entry: times, scratch_bytes: 0, reports: true, noted: &[] }],
    )],
    ..Kernel::TEST
};

/// The time does not go back, and is that of a clock on the host.
#[test]
fn host_code_reads_the_clock() {
    let start = Instant::now();
    let times: Vec<i64> = (0..8)
        .map(|_| {
            let mut out = [-1i64];
            // SAFETY: `times` writes within its argument alone.
            let launch =
                unsafe { Launch::new(&TIMES, Ok(&TIMES.variants[0]), [Arg::slice_mut::<i64>(&mut out)]) };
            launch.grid(1).launch(&Device::cpu()).unwrap();
            out[0]
        })
        .collect();
    let elapsed = start.elapsed().as_nanos() as i64;
    assert!(times[0] >= 0 && times.is_sorted() && times[7] - times[0] <= elapsed, "{times:?}");
}
