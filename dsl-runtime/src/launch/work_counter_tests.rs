//! Launches of specializations whose blocks take programs from a counter, of PTX written by hand; without a GPU they are
//! skipped.

use super::cuda_tests::{GENERAL, ONE_EACH, SM_80, module};
use super::*;
use crate::dtype::DType;
use crate::kernel::{Param, ParamKind, Specialization};
use crate::libcuda::driver_version;
use crate::{Buffer, Device, SliceMut};

/// A program adds 1 to its element of `out`, and a block of the specialization with a counter 1 to the element behind those. Some
/// programs sleep some microseconds first.
const TALLY_PTX: &str = r#"
.version 7.0
.target sm_80
.address_size 64

.visible .entry tally_counted(
    .param .u64 out, .param .u64 out_len,
    .param .u32 grid_x, .param .u32 grid_y, .param .u32 grid_z,
    .param .u64 counter)
{
    .reg .pred %p<3>;
    .reg .b32 %r<7>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out];
    ld.param.u32 %r0, [grid_x];
    ld.param.u32 %r1, [grid_y];
    ld.param.u32 %r2, [grid_z];
    ld.param.u64 %rd1, [counter];
    cvta.to.global.u64 %rd0, %rd0;
    mul.lo.u32 %r0, %r0, %r1;
    mul.lo.u32 %r0, %r0, %r2;
    setp.ne.u64 %p0, %rd1, 0;
    mov.u32 %r3, %tid.x;
    setp.eq.u32 %p1, %r3, 0;
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd2, %rd0, %rd2;
    @%p1 red.global.add.u32 [%rd2], 1;
    mov.u32 %r4, %ctaid.x;
    @!%p0 bra.uni program;
    cvta.to.global.u64 %rd1, %rd1;
    // Each block asks once in vain, and the last to do so leaves 0.
    mov.u32 %r5, %nctaid.x;
    add.u32 %r5, %r5, %r0;
    sub.u32 %r5, %r5, 1;
next:
    @%p1 atom.global.inc.u32 %r4, [%rd1], %r5;
    shfl.sync.idx.b32 %r4, %r4, 0, 31, 0xffffffff;
    setp.ge.u32 %p2, %r4, %r0;
    @%p2 bra.uni done;
program:
    and.b32 %r6, %r4, 63;
    shl.b32 %r6, %r6, 7;
    nanosleep.u32 %r6;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd3, %rd0, %rd3;
    @%p1 red.global.add.u32 [%rd3], 1;
    @%p0 bra.uni next;
done:
    ret;
}

.visible .entry tally_general(
    .param .u64 out, .param .u64 out_len,
    .param .u32 grid_x, .param .u32 grid_y, .param .u32 grid_z)
{
    .reg .pred %p<1>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<6>;
    mov.u32 %r0, %tid.x;
    setp.ne.u32 %p0, %r0, 0;
    @%p0 ret;
    ld.param.u64 %rd0, [out];
    cvta.to.global.u64 %rd0, %rd0;
    mov.u32 %r0, %ctaid.z;
    mov.u32 %r1, %nctaid.y;
    mov.u32 %r2, %ctaid.y;
    cvt.u64.u32 %rd1, %r2;
    mad.wide.u32 %rd1, %r0, %r1, %rd1;
    mov.u32 %r0, %nctaid.x;
    mov.u32 %r1, %ctaid.x;
    cvt.u64.u32 %rd2, %r0;
    cvt.u64.u32 %rd3, %r1;
    mad.lo.u64 %rd4, %rd1, %rd2, %rd3;
    shl.b64 %rd4, %rd4, 2;
    add.u64 %rd5, %rd0, %rd4;
    red.global.add.u32 [%rd5], 1;
    ret;
}
"#;

static TALLY: Kernel = Kernel {
    name: "tally",
    params: &[Param { name: "out", kind: ParamKind::SliceMut }],
    variants: &[Variant {
        label: "",
        types: &[],
        consts: &[],
        dtypes: &[DType::U32],
        source: 0,
        modules: &[module(SM_80, TALLY_PTX, COUNTED), module(SM_80, TALLY_PTX, PLAIN)],
        hosts: &[],
        sites: &[],
    }],
    ..Kernel::TEST
};

const PLAIN: Specialization = Specialization { entry: "tally_general", threads: 32, ..GENERAL };

const PERSISTENT: Specialization = Specialization { persistent: true, ..PLAIN };

const COUNTED: Specialization =
    Specialization { entry: "tally_counted", uses_work_counter: true, ..PERSISTENT };

const COUNTER: Option<u64> = Some(0x1000);

#[test]
fn with_a_counter_there_are_as_many_blocks_as_run_at_once() {
    assert_eq!(cuda::blocks([1000, 3, 2], &COUNTED, ONE_EACH, COUNTER), [132, 1, 1]);
    assert_eq!(cuda::blocks([5, 3, 2], &COUNTED, ONE_EACH, COUNTER), [30, 1, 1]);
    assert_eq!(cuda::blocks([i32::MAX as u32, 1, 1], &COUNTED, ONE_EACH, COUNTER), [132, 1, 1]);
}

#[test]
fn without_a_counter_there_is_a_block_for_each_program() {
    assert_eq!(cuda::blocks([1000, 3, 2], &COUNTED, ONE_EACH, None), [6000, 1, 1]);
    assert_eq!(cuda::blocks([5, 3, 2], &COUNTED, ONE_EACH, None), [30, 1, 1]);
    assert_eq!(cuda::blocks([i32::MAX as u32, 1, 1], &COUNTED, ONE_EACH, None), [i32::MAX as u32, 1, 1]);
    // Other specializations never have one.
    assert_eq!(cuda::blocks([1000, 3, 2], &PERSISTENT, ONE_EACH, None), [131, 1, 1]);
    assert_eq!(cuda::blocks([1000, 3, 2], &PLAIN, ONE_EACH, None), [1000, 3, 2]);
}

#[test]
fn a_persistent_specialization_runs_as_many_programs_as_an_i32_counts() {
    for specialization in [PERSISTENT, COUNTED] {
        assert_eq!(cuda::excess_programs([i32::MAX as u32, 1, 1], &specialization), None);
        assert_eq!(cuda::excess_programs([1 << 30, 2, 1], &specialization), Some(1 << 31));
        assert_eq!(
            cuda::excess_programs([i32::MAX as u32, 65535, 65535], &specialization),
            Some(0x7fff_ffff * 65535 * 65535)
        );
        assert_eq!(cuda::excess_programs([u32::MAX; 3], &specialization), Some(u64::MAX));
    }
    assert_eq!(cuda::excess_programs([i32::MAX as u32, 65535, 65535], &PLAIN), None);
}

/// The first GPU, if streams of its driver have counters.
fn gpu_with_counters() -> Option<Device> {
    let device = gpu()?;
    let has_counters = driver_version().unwrap() >= 12000;
    if !has_counters {
        eprintln!("skipped: the driver is older than CUDA 12");
    }
    has_counters.then_some(device)
}

/// A launch of `out.len() - 1` programs at most.
fn tally<'a>(out: impl Into<SliceMut<'a, u32>>, grid: (u32, u32, u32)) -> Launch<'a, 1> {
    // SAFETY: both specializations take this argument; the programs and the element behind theirs are what callers allocate, or
    // they only ask for a trace.
    unsafe { Launch::new(&TALLY, Ok(&TALLY.variants[0]), [Arg::slice_mut(out)]) }.grid(grid)
}

/// More programs than blocks run at once, as a grid, and how many blocks run at once.
fn many(device: &Device) -> ((u32, u32, u32), u32) {
    let mut out = device.zeros::<u32>(1).unwrap();
    let trace = tally(&mut out, (i32::MAX as u32, 1, 1)).trace(device).unwrap();
    let [occupancy, 1, 1] = trace.specialization.unwrap().blocks else { panic!("it is one row of blocks") };
    ((occupancy + 3, 3, 2), occupancy)
}

fn tallies(device: &Device, (x, y, z): (u32, u32, u32)) -> Buffer<u32> {
    device.zeros((x * y * z + 1) as usize).unwrap()
}

/// That each launch ran each program once, in so many blocks.
fn check(out: &Buffer<u32>, launches: u32, blocks: u32) {
    let found = out.download().unwrap();
    let (ran, programs) = found.split_last().unwrap();
    let wrong = programs.iter().enumerate().find(|&(_, &times)| times != launches);
    assert_eq!((wrong, *ran), (None, launches * blocks));
}

#[test]
fn blocks_take_programs_from_a_counter() {
    let Some(device) = gpu_with_counters() else { return };
    let (grid, occupancy) = many(&device);
    let mut out = tallies(&device, grid);
    for _ in 0..20 {
        tally(&mut out, grid).launch(&device).unwrap();
    }
    check(&out, 20, occupancy);
    let mut few = tallies(&device, (5, 1, 1));
    for _ in 0..20 {
        tally(&mut few, (5, 1, 1)).launch(&device).unwrap();
    }
    check(&few, 20, 5);
}

#[test]
fn streams_do_not_share_a_counter() {
    let Some(device) = gpu_with_counters() else { return };
    let (grid, occupancy) = many(&device);
    let streams = [device.new_stream().unwrap(), device.new_stream().unwrap()];
    let mut outs = [tallies(&device, grid), tallies(&device, grid)];
    for _ in 0..20 {
        for (stream, out) in streams.iter().zip(&mut outs) {
            tally(out, grid).launch(stream).unwrap();
        }
    }
    outs.iter().for_each(|out| check(out, 20, occupancy));
    // Nor does a stream with one that was destroyed while its kernel runs, whose handle it may have.
    let mut outs: Vec<_> = (0..8).map(|_| tallies(&device, grid)).collect();
    for out in &mut outs {
        tally(out, grid).launch(&device.new_stream().unwrap()).unwrap();
    }
    outs.iter().for_each(|out| check(out, 1, occupancy));
}

#[test]
fn a_graph_has_no_counter() {
    let Some(device) = gpu_with_counters() else { return };
    let _exclusive = exclusive();
    let (grid, _) = many(&device);
    let programs = grid.0 * grid.1 * grid.2;
    let mut graph = device
        .stream()
        .capture(tallies(&device, grid), |out, stream| {
            for _ in 0..2 {
                let mut launch = tally(&mut *out, grid);
                assert_eq!(launch.trace(stream)?.specialization.unwrap().blocks, [programs, 1, 1]);
                launch.launch(stream)?;
            }
            Ok(())
        })
        .unwrap();
    for _ in 0..3 {
        graph.launch().unwrap();
    }
    check(graph.buffers(), 6, programs);
}

#[test]
fn with_too_many_programs_the_next_specialization_is_taken() {
    let Some(device) = gpu() else { return };
    let mut out = device.zeros::<u32>(1).unwrap();
    let specialization =
        tally(&mut out, (i32::MAX as u32, 2, 1)).trace(&device).unwrap().specialization.unwrap();
    let why = "it runs at most 2147483647 programs, not 4294967294".to_string();
    assert_eq!(
        (specialization.entry, specialization.blocks, specialization.passed_over),
        ("tally_general", [i32::MAX as u32, 2, 1], vec![("tally_counted", why)])
    );
}
