//! Launches on a GPU, of PTX written by hand; without a GPU they are skipped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use expect_test::expect;

use super::trace::{SpecializationTrace, Trace, narrow};
use super::*;
use crate::bench::{BenchOptions, do_bench};
use crate::dtype::DType;
use crate::kernel::{
    Access, Arch, Guard, Module, Packed, Param, ParamKind, Specialization, Symbol, TensorMap, Term,
};
use crate::module::Occupancy;
use crate::{Buffer, Device, View};

/// The first GPU, or a note that the test is skipped.
pub(crate) fn gpu() -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// While one test captures a stream, no other can wait for the whole GPU.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `out[i] = flag ? -factor * x[i] : factor * x[i]`, plus `grid.x`, for `i < n`; a program handles 128 elements. The
/// aligned specialization runs two programs a block, passes each value through its last 1024 bytes of shared memory, and adds 0.5.
const SCALE_PTX: &str = r#"
.version 7.0
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 memory[];

.visible .entry scale_aligned(
    .param .u64 x, .param .u64 x_len, .param .u64 out, .param .u64 out_len,
    .param .u32 n, .param .f32 factor, .param .u8 flag,
    .param .u32 grid_x, .param .u32 grid_y, .param .u32 grid_z)
{
    .reg .pred %p<3>;
    .reg .b16 %h<2>;
    .reg .f32 %f<6>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r0, [n];
    ld.param.f32 %f0, [factor];
    ld.param.u8 %h0, [flag];
    ld.param.u32 %r1, [grid_x];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    shl.b32 %r4, %r2, 8;
    add.u32 %r4, %r4, %r3;
    setp.ge.s32 %p0, %r4, %r0;
    @%p0 ret;
    mul.wide.u32 %rd2, %r4, 4;
    cvta.to.global.u64 %rd0, %rd0;
    cvta.to.global.u64 %rd1, %rd1;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    setp.ne.u16 %p1, %h0, 0;
    neg.f32 %f2, %f0;
    selp.f32 %f2, %f2, %f0, %p1;
    cvt.rn.f32.u32 %f3, %r1;
    add.f32 %f3, %f3, 0f3F000000;
    fma.rn.f32 %f4, %f1, %f2, %f3;
    shl.b32 %r5, %r3, 2;
    mov.u32 %r6, memory;
    add.u32 %r6, %r6, %r5;
    st.shared.f32 [%r6+64512], %f4;
    ld.shared.f32 %f5, [%r6+64512];
    st.global.f32 [%rd4], %f5;
    ret;
}

.visible .entry scale_general(
    .param .u64 x, .param .u64 x_len, .param .u64 out, .param .u64 out_len,
    .param .u32 n, .param .f32 factor, .param .u8 flag,
    .param .u32 grid_x, .param .u32 grid_y, .param .u32 grid_z)
{
    .reg .pred %p<4>;
    .reg .b16 %h<2>;
    .reg .f32 %f<6>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd5, [x_len];
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd6, [out_len];
    ld.param.u32 %r0, [n];
    ld.param.f32 %f0, [factor];
    ld.param.u8 %h0, [flag];
    ld.param.u32 %r1, [grid_x];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    shl.b32 %r4, %r2, 7;
    add.u32 %r4, %r4, %r3;
    setp.ge.s32 %p0, %r4, %r0;
    @%p0 ret;
    cvt.u64.u32 %rd7, %r4;
    setp.ge.s64 %p1, %rd7, %rd5;
    @%p1 ret;
    setp.ge.s64 %p2, %rd7, %rd6;
    @%p2 ret;
    mul.wide.u32 %rd2, %r4, 4;
    cvta.to.global.u64 %rd0, %rd0;
    cvta.to.global.u64 %rd1, %rd1;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    setp.ne.u16 %p3, %h0, 0;
    neg.f32 %f2, %f0;
    selp.f32 %f2, %f2, %f0, %p3;
    cvt.rn.f32.u32 %f3, %r1;
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd4], %f4;
    ret;
}
"#;

const N: &[Term] = &[Term { coefficient: 1, factors: &[Symbol::Scalar(2)] }];
const X_LEN: &[Term] = &[Term { coefficient: 1, factors: &[Symbol::Length(0)] }];
const OUT_LEN: &[Term] = &[Term { coefficient: 1, factors: &[Symbol::Length(1)] }];

static SCALE: Kernel = Kernel {
    name: "scale",
    params: &[
        Param { name: "x", kind: ParamKind::Slice },
        Param { name: "out", kind: ParamKind::SliceMut },
        Param { name: "n", kind: ParamKind::Scalar },
        Param { name: "factor", kind: ParamKind::Scalar },
        Param { name: "flag", kind: ParamKind::Scalar },
    ],
    variants: &[
        variant("good", &[module(SM_80, SCALE_PTX, ALIGNED), module(SM_80, SCALE_PTX, GENERAL)]),
        variant("old", &[module(SM_10A, SCALE_PTX, ALIGNED), module(SM_10A, SCALE_PTX, GENERAL)]),
        variant("bad", &[module(SM_80, ".version 7.0\n.target sm_80\nnonsense", GENERAL)]),
        variant("hungry", &[module(SM_80, SCALE_PTX, HUNGRY)]),
    ],
    ..Kernel::TEST
};

const ALIGNED: Specialization = Specialization {
    entry: "scale_aligned",
    threads: 256,
    programs_per_block: 2,
    blocks_per_program: 1,
    persistent: false,
    uses_work_counter: false,
    uses_pdl: false,
    shared_bytes: 64 << 10,
    guards: &[
        Guard::AtMost { low: N, high: X_LEN },
        Guard::AtMost { low: N, high: OUT_LEN },
        Guard::Divisible { value: N, by: 4 },
        Guard::Aligned { param: 0, bytes: 16 },
        Guard::Aligned { param: 1, bytes: 16 },
    ],
    maps: &[],
    accesses: &[Access { line: 12, param: 0, bytes: 16 }, Access { line: 13, param: 1, bytes: 4 }],
    refused_dots: &[],
    resources: None,
};

pub(super) const GENERAL: Specialization = Specialization {
    entry: "scale_general",
    threads: 128,
    programs_per_block: 1,
    blocks_per_program: 1,
    persistent: false,
    uses_work_counter: false,
    uses_pdl: false,
    shared_bytes: 0,
    guards: &[],
    maps: &[],
    accesses: &[Access { line: 12, param: 0, bytes: 4 }, Access { line: 13, param: 1, bytes: 4 }],
    refused_dots: &[],
    resources: None,
};

/// More shared memory than a block has anywhere.
const HUNGRY: Specialization = Specialization { shared_bytes: 1 << 30, ..GENERAL };

pub(super) const SM_80: Arch = Arch { capability: 80, exact: false };
/// For a device that nobody has.
const SM_10A: Arch = Arch { capability: 10, exact: true };

pub(super) const fn module(arch: Arch, ptx: &'static str, specialization: Specialization) -> Module {
    Module { arch, ptx: Packed::Plain(ptx.as_bytes()), cubins: &[], specialization, reports: false }
}

const fn variant(label: &'static str, modules: &'static [Module]) -> Variant {
    let dtypes = &[DType::F32, DType::F32, DType::I32, DType::F32, DType::Bool];
    Variant { label, types: &[], consts: &[], dtypes, source: 0, modules, hosts: &[], sites: &[] }
}

/// With as many programs as `n` elements need.
pub(super) fn scale<'a>(
    variant: usize,
    x: impl Into<crate::Slice<'a, f32>>,
    out: impl Into<crate::SliceMut<'a, f32>>,
    n: i32,
) -> Launch<'a, 5> {
    let args = [Arg::slice(x), Arg::slice_mut(out), Arg::scalar(n), Arg::scalar(2.0f32), Arg::scalar(true)];
    // SAFETY: both specializations take these arguments and check their bounds, the first by its guards.
    let launch = unsafe { Launch::new(&SCALE, Ok(&SCALE.variants[variant]), args) };
    launch.grid(n.unsigned_abs().div_ceil(128))
}

pub(super) fn iota(device: &Device, n: usize) -> Buffer<f32> {
    device.upload(&(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap()
}

/// What the kernel computes from a ramp that starts at `first`.
pub(super) fn scaled(first: usize, n: usize, extra: f32) -> Vec<f32> {
    (first..first + n).map(|i| i as f32 * -2.0 + n.div_ceil(128) as f32 + extra).collect()
}

#[test]
fn the_first_specialization_whose_guards_hold_runs() {
    let Some(device) = gpu() else { return };
    let x = iota(&device, 1001);
    let mut out = device.zeros::<f32>(1001).unwrap();
    scale(0, &x, &mut out, 1000).launch(&device).unwrap();
    assert_eq!(out.slice(..1000).download().unwrap(), scaled(0, 1000, 0.5));
    assert_eq!(out.slice(1000..).download().unwrap(), [0.0]);
    scale(0, &x, &mut out, 1001).launch(&device).unwrap();
    assert_eq!(out.download().unwrap(), scaled(0, 1001, 0.0));
    scale(0, x.slice(1..), &mut out, 1000).launch(&device).unwrap();
    assert_eq!(out.slice(..1000).download().unwrap(), scaled(1, 1000, 0.0));

    let passed_over = |mut launch: Launch<'_, 5>| {
        let specialization = launch.trace(&device).unwrap().specialization.unwrap();
        (specialization.entry, specialization.blocks, specialization.passed_over)
    };
    assert_eq!(passed_over(scale(0, &x, &mut out, 1000)), ("scale_aligned", [4, 1, 1], vec![]));
    let why = "4 does not divide n (1001)".to_string();
    assert_eq!(
        passed_over(scale(0, &x, &mut out, 1001)),
        ("scale_general", [8, 1, 1], vec![("scale_aligned", why)])
    );
    let (_, _, why) = passed_over(scale(0, x.slice(1..), &mut out, 1000));
    assert!(why[0].1.starts_with("x is not 16-byte aligned (0x"), "{why:?}");
}

#[test]
fn parts_of_one_buffer_are_separate_outputs() {
    let Some(device) = gpu() else { return };
    let x = iota(&device, 512);
    let mut out = device.zeros::<f32>(512).unwrap();
    let (mut head, tail) = out.split_at_mut(256);
    scale(0, x.slice(..256), head.reborrow(), 256).launch(&device).unwrap();
    scale(0, &head, tail, 256).launch(&device).unwrap();
    let first = scaled(0, 256, 0.5);
    let second: Vec<f32> = first.iter().map(|value| value * -2.0 + 2.5).collect();
    assert_eq!(out.download().unwrap(), [first, second].concat());
    scale(0, &x, &mut out, 0).launch(&device).unwrap();
    let nothing = device.zeros::<f32>(0).unwrap();
    scale(0, &nothing, &mut out, 128).launch(&device).unwrap();
}

#[test]
fn streams_wait_for_each_other_s_buffers() {
    let Some(device) = gpu() else { return };
    let n = 1 << 22;
    let x = iota(&device, n);
    let (mut first, mut second) = (device.zeros::<f32>(n).unwrap(), device.zeros::<f32>(n).unwrap());
    for _ in 0..20 {
        let (one, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        scale(0, &x, &mut first, n as i32).launch(&one).unwrap();
        drop(one);
        scale(0, &first, &mut second, n as i32).launch(&other).unwrap();
        drop(other);
        let found = second.download().unwrap();
        let once = |i: usize| i as f32 * -2.0 + (n / 128) as f32 + 0.5;
        let wrong = (0..n).find(|&i| found[i] != once(i).mul_add(-2.0, (n / 128) as f32 + 0.5));
        assert_eq!(wrong, None);
        second = device.zeros(n).unwrap();
    }
}

#[test]
fn what_cannot_run_on_the_gpu_is_an_error_in_words() {
    let Some(device) = gpu() else { return };
    let (x, mut host) = (iota(&device, 128), vec![0.0f32; 128]);
    let mut out = device.zeros::<f32>(128).unwrap();
    let on_host = scale(0, &x, &mut host, 128).launch(&device).unwrap_err();
    let expected = "kernel `scale`: `out` is in host memory, and the launch is on cuda:0";
    assert_eq!(on_host.to_string(), expected);
    let on_cpu = scale(0, &x, &mut out, 128).launch(&Device::cpu()).unwrap_err();
    assert_eq!(on_cpu.to_string(), "kernel `scale`: `x` is in cuda:0, and the launch is on cpu");
    let old = scale(1, &x, &mut out, 128).launch(&device).unwrap_err();
    assert!(old.to_string().ends_with("built for sm_10a"), "{old}");
    let bad = scale(2, &x, &mut out, 128).launch(&device).unwrap_err();
    assert!(
        matches!(&bad, Error::Load { reason, log, .. } if reason.starts_with("CUDA_ERROR_INVALID_PTX") && !log.is_empty()),
        "{bad}"
    );
    let oversized = scale(3, &x, &mut out, 128).launch(&device).unwrap_err();
    assert!(oversized.to_string().contains("it needs 1.0 GiB of shared memory"), "{oversized}");
    let large = device.zeros::<f64>(1 << 50).unwrap_err();
    assert!(matches!(large, Error::OutOfMemory { free: Some(_), .. }), "{large}");
    scale(0, &x, &mut out, 128).launch(&device).unwrap();
    assert_eq!(out.download().unwrap(), scaled(0, 128, 0.5));
}

#[test]
fn a_launch_takes_little_time() {
    let Some(device) = gpu() else { return };
    let _exclusive = exclusive();
    let n = 1 << 26;
    let (x, mut out) = (device.zeros::<f32>(n).unwrap(), device.zeros::<f32>(n).unwrap());
    let timing =
        do_bench(&device, BenchOptions::default(), || scale(0, &x, &mut out, n as i32).launch(&device))
            .unwrap();
    eprintln!("scale of {n}: {:.4} ms, {:.0} GB/s", timing.median_ms(), timing.gb_per_s(8 * n));
    assert!(timing.min_ms() > 0.0);
    for round in 0..3 {
        const LAUNCHES: u32 = 500;
        device.synchronize().unwrap();
        let start = std::time::Instant::now();
        for _ in 0..LAUNCHES {
            scale(0, &x, &mut out, 128).launch(&device).unwrap();
        }
        let each = start.elapsed() / LAUNCHES;
        device.synchronize().unwrap();
        eprintln!("round {round}: {} ns a launch", each.as_nanos());
    }
}

#[test]
fn a_trace_is_one_line() {
    let trace = Trace {
        kernel: "scale",
        variant: "T = f32",
        device: "cuda:0".to_string(),
        code: "cubin for sm_90a".to_string(),
        grid: [11, 2, 1],
        specialization: Some(SpecializationTrace {
            entry: "scale_general",
            blocks: [11, 2, 1],
            cluster: 1,
            threads: 128,
            shared_bytes: 65536,
            passed_over: vec![("scale_aligned", "4 does not divide n (1001)".to_string())],
            narrow: narrow(SCALE.params, [&ALIGNED, &GENERAL].into_iter(), &GENERAL),
            refused_dots: vec![(14, "its tiles have 3 axes")],
        }),
    };
    expect!["scale [T = f32] on cuda:0, cubin for sm_90a: 11 x 2 x 1 programs, scale_general in 11 x 2 x 1 blocks of 128 threads, 64.0 KiB shared; not scale_aligned: 4 does not divide n (1001); `x` on line 12 by 4 bytes, by more in scale_aligned; `out` on line 13 by 4 bytes in every body; the dot on line 14 without wgmma: its tiles have 3 axes"].assert_eq(&trace.to_string());
}

/// Of a device that runs one block on each of its multiprocessors.
pub const ONE_EACH: Occupancy = Occupancy { blocks_per_multiprocessor: 1, multiprocessors: 132 };

#[test]
fn a_block_runs_several_programs() {
    assert_eq!(cuda::blocks([1000, 3, 2], &ALIGNED, ONE_EACH, None), [500, 3, 2]);
    assert_eq!(cuda::blocks([1001, 3, 2], &ALIGNED, ONE_EACH, None), [501, 3, 2]);
    assert_eq!(cuda::blocks([i32::MAX as u32, 1, 1], &GENERAL, ONE_EACH, None), [i32::MAX as u32, 1, 1]);
    const PERSISTENT: Specialization = Specialization { persistent: true, ..GENERAL };
    assert_eq!(cuda::blocks([5, 3, 2], &PERSISTENT, ONE_EACH, None), [30, 1, 1]);
    assert_eq!(cuda::blocks([u32::MAX; 3], &PERSISTENT, ONE_EACH, None), [132, 1, 1]);
}

#[test]
fn blocks_run_equally_many_programs() {
    const PERSISTENT: Specialization = Specialization { persistent: true, ..GENERAL };
    let of = |programs, occupancy| cuda::blocks([programs, 1, 1], &PERSISTENT, occupancy, None)[0];
    for (programs, blocks) in
        [(1, 1), (132, 132), (133, 67), (264, 132), (512, 128), (1792, 128), (2048, 128)]
    {
        assert_eq!(of(programs, ONE_EACH), blocks, "{programs}");
    }
    let two = Occupancy { blocks_per_multiprocessor: 2, ..ONE_EACH };
    for (programs, blocks) in [(133, 133), (264, 264), (300, 264), (512, 264)] {
        assert_eq!(of(programs, two), blocks, "{programs}");
    }
}

/// The first GPU, if it has tensor maps.
fn gpu_with_maps() -> Option<Device> {
    let device = gpu()?;
    let has_maps = device.capability() >= Some(90);
    if !has_maps {
        eprintln!("skipped: {device} has no tensor maps");
    }
    has_maps.then_some(device)
}

/// The block of 8 by 8 elements of `x` from `row` and `col` on, a multiple of 4, as a map copies it: row by row, with
/// the halves of the last four rows exchanged. The plain specialization fills `out` with -1.
const BLOCK_PTX: &str = r#"
.version 8.0
.target sm_90
.address_size 64

.visible .entry block_mapped(
    .param .u64 x, .param .u64 x_len, .param .u64 rows, .param .u64 cols,
    .param .u64 row_stride, .param .u64 col_stride, .param .u64 out, .param .u64 out_len,
    .param .u32 row, .param .u32 col,
    .param .u32 grid_x, .param .u32 grid_y, .param .u32 grid_z,
    .param .align 64 .b8 map[128])
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    .shared .align 256 .b8 tile[256];
    .shared .align 8 .b64 arrived;
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r0, [row];
    ld.param.u32 %r1, [col];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, tile;
    mov.u32 %r4, arrived;
    setp.ne.u32 %p0, %r2, 0;
    @%p0 bra copied;
    mbarrier.init.shared::cta.b64 [%r4], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd1, [%r4], 256;
    mov.b64 %rd2, map;
    cvta.param.u64 %rd2, %rd2;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r3], [%rd2, {%r1, %r0}], [%r4];
copied:
    bar.sync 0;
arriving:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
    @!%p1 bra arriving;
    shl.b32 %r5, %r2, 2;
    add.u32 %r3, %r3, %r5;
    ld.shared.b32 %r5, [%r3];
    mul.wide.u32 %rd3, %r2, 4;
    cvta.to.global.u64 %rd0, %rd0;
    add.u64 %rd0, %rd0, %rd3;
    st.global.b32 [%rd0], %r5;
    ret;
}

.visible .entry block_plain(
    .param .u64 x, .param .u64 x_len, .param .u64 rows, .param .u64 cols,
    .param .u64 row_stride, .param .u64 col_stride, .param .u64 out, .param .u64 out_len,
    .param .u32 row, .param .u32 col,
    .param .u32 grid_x, .param .u32 grid_y, .param .u32 grid_z)
{
    .reg .b32 %r<1>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    cvta.to.global.u64 %rd0, %rd0;
    add.u64 %rd0, %rd0, %rd1;
    st.global.f32 [%rd0], 0fBF800000;
    ret;
}
"#;

const ROW_STRIDE: &[Term] = &[Term { coefficient: 1, factors: &[Symbol::Scalar(3)] }];

static BLOCK: Kernel = Kernel {
    name: "block",
    params: &[
        Param { name: "x", kind: ParamKind::View(2) },
        Param { name: "x.shape(0)", kind: ParamKind::Scalar },
        Param { name: "x.shape(1)", kind: ParamKind::Scalar },
        Param { name: "x.stride(0)", kind: ParamKind::Scalar },
        Param { name: "x.stride(1)", kind: ParamKind::Scalar },
        Param { name: "out", kind: ParamKind::SliceMut },
        Param { name: "row", kind: ParamKind::Scalar },
        Param { name: "col", kind: ParamKind::Scalar },
    ],
    variants: &[Variant {
        dtypes: &[
            DType::F32,
            DType::I64,
            DType::I64,
            DType::I64,
            DType::I64,
            DType::F32,
            DType::I32,
            DType::I32,
        ],
        ..variant("", &[module(SM_90, BLOCK_PTX, MAPPED), module(SM_90, BLOCK_PTX, PLAIN)])
    }],
    ..Kernel::TEST
};

const MAPPED: Specialization = Specialization {
    entry: "block_mapped",
    guards: &[
        Guard::Aligned { param: 0, bytes: 16 },
        Guard::Divisible { value: ROW_STRIDE, by: 4 },
        Guard::Equal { param: 4, value: 1 },
    ],
    maps: &[TensorMap {
        param: 0,
        extents: &[&[Term::of(&[Symbol::Scalar(1)])], &[Term::of(&[Symbol::Scalar(2)])]],
        strides: &[&[Term::of(&[Symbol::Scalar(3)])], &[Term::of(&[Symbol::Scalar(4)])]],
        block: &[8, 8],
        swizzle: 32,
        tf32: false,
        multicast: None,
    }],
    ..PLAIN
};

const PLAIN: Specialization = Specialization { entry: "block_plain", threads: 64, ..GENERAL };

const SM_90: Arch = Arch { capability: 90, exact: false };

/// With an `out` of 64 elements.
fn block<'a>(
    x: impl Into<View<'a, f32, 2>>,
    out: impl Into<crate::SliceMut<'a, f32>>,
    (row, col): (i32, i32),
) -> Launch<'a, 8> {
    let ViewArgs { memory, shape: [rows, cols], strides: [row_stride, col_stride] } = x.into().into();
    let [rows, cols] = [rows, cols].map(Arg::scalar);
    let [row_stride, col_stride] = [row_stride, col_stride].map(Arg::scalar);
    let out = Arg::slice_mut(out);
    let args = [memory, rows, cols, row_stride, col_stride, out, Arg::scalar(row), Arg::scalar(col)];
    // SAFETY: both specializations take these arguments, read inside the view and write 64 elements.
    unsafe { Launch::new(&BLOCK, Ok(&BLOCK.variants[0]), args) }.grid(1)
}

#[test]
fn a_map_copies_blocks_beyond_the_edges_too() {
    let Some(device) = gpu_with_maps() else { return };
    let memory = iota(&device, 20 * 16);
    let x = memory.view_strided([20, 12], [16, 1]).unwrap().slice(0, 1..);
    let mut out = device.zeros::<f32>(64).unwrap();
    for (row, col) in [(0, 0), (3, 4), (16, 8), (-2, -4), (40, 0)] {
        block(x, &mut out, (row, col)).launch(&device).unwrap();
        let expected = (0..64).map(|i| {
            let (row, col) = (row + i / 8, col + ((i % 8) ^ (i / 32 * 4)));
            let inside = (0..19).contains(&row) && (0..12).contains(&col);
            if inside { (16 + row * 16 + col) as f32 } else { 0.0 }
        });
        assert_eq!(out.download().unwrap(), expected.collect::<Vec<_>>(), "from {row}, {col}");
    }
}

#[test]
fn a_specialization_whose_map_is_refused_is_passed_over() {
    let Some(device) = gpu_with_maps() else { return };
    let x = iota(&device, 20 * 16);
    let mut out = device.zeros::<f32>(64).unwrap();
    let mut taken = |shape, strides| {
        let mut launch = block(x.view_strided(shape, strides).unwrap(), &mut out, (0, 0));
        let specialization = launch.trace(&device).unwrap().specialization.unwrap();
        launch.launch(&device).unwrap();
        (specialization.entry, specialization.passed_over, out.slice(1..2).download().unwrap()[0])
    };
    assert_eq!(taken([20, 12], [16, 1]), ("block_mapped", vec![], 1.0));
    let why = |why: &str| vec![("block_mapped", why.to_string())];
    let refused = why("a map of `x` was refused: CUDA_ERROR_INVALID_VALUE");
    assert_eq!(taken([0, 12], [16, 1]), ("block_plain", refused, -1.0));
    let odd = why("4 does not divide x.stride(0) (13)");
    assert_eq!(taken([20, 12], [13, 1]), ("block_plain", odd, -1.0));
}
