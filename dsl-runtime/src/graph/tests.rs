//! Graphs on the CPU, of host code written by hand; with real kernels, also on a GPU, in `tests/graph`.

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use super::*;
use crate::dtype::{DType, Element};
use crate::kernel::{Host, Kernel, Level, Param, ParamKind, Variant};
use crate::launch::{Arg, Launch};
use crate::{Buffer, Device, LaunchOn, Slice, SliceMut};

/// Adds `x[i]` to `out[i]`; the shorter of the two decides how many.
unsafe extern "C" fn add(args: *const u64, _: u32, _: u32, _: u32, _: u32, _: *const u32, _: *mut u8) {
    // SAFETY: called as `ADD` says: `&[u32]`, `&mut [u32]`.
    unsafe {
        let x: *mut u32 = with_exposed_provenance_mut(*args as usize);
        let out: *mut u32 = with_exposed_provenance_mut(*args.add(2) as usize);
        for i in 0..(*args.add(1)).min(*args.add(3)) as usize {
            *out.add(i) += *x.add(i);
        }
    }
}

const SLICE: Param = Param { name: "x", kind: ParamKind::Slice };
const SLICE_MUT: Param = Param { name: "out", kind: ParamKind::SliceMut };

static ADD: Kernel = Kernel {
    name: "add",
    params: &[SLICE, SLICE_MUT],
    variants: &[Variant {
        label: "",
        types: &[],
        consts: &[],
        dtypes: &[DType::U32, DType::U32],
        source: 0,
        modules: &[],
        hosts: &[Host { level: Level::Baseline, entry: add, scratch_bytes: 0, reports: false, noted: &[] }],
        sites: &[],
    }],
    ..Kernel::TEST
};

fn launch_add<'a>(x: &'a Buffer<u32>, out: impl Into<SliceMut<'a, u32>>, on: impl LaunchOn) -> Result<()> {
    add_slices(x.slice(..), out, on)
}

fn add_slices<'a>(x: Slice<'a, u32>, out: impl Into<SliceMut<'a, u32>>, on: impl LaunchOn) -> Result<()> {
    let args = [Arg::slice::<u32>(x), Arg::slice_mut::<u32>(out)];
    // SAFETY: `add` reads and writes within its arguments alone.
    unsafe { Launch::new(&ADD, Ok(&ADD.variants[0]), args) }.grid(1).launch(on)
}

fn buffer(value: u32) -> Buffer<u32> {
    Device::cpu().upload(&[value; 4]).unwrap()
}

fn values(buffer: &Buffer<u32>) -> u32 {
    let all = buffer.download().unwrap();
    assert!(all.iter().all(|value| *value == all[0]), "{all:?}");
    all[0]
}

fn reason<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Capture { reason }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is an error"),
    }
}

#[test]
fn nothing_runs_before_the_graph_is_launched_and_then_everything_in_order() {
    let mut graph = Device::cpu()
        .stream()
        .capture((buffer(1), buffer(10), buffer(100)), |(x, y, z), stream| {
            launch_add(x, &mut *y, stream)?;
            launch_add(y, &mut *z, stream)?;
            launch_add(x, &mut *z, stream)
        })
        .unwrap();
    assert_eq!((graph.len(), format!("{graph:?}").as_str()), (3, r#"graph of ["add", "add", "add"]"#));
    assert_eq!(values(&graph.buffers().2), 100);
    graph.launch().unwrap();
    graph.launch().unwrap();
    assert_eq!(values(&graph.buffers().2), 100 + 11 + 1 + 12 + 1);
    graph.buffers_mut().0.copy_from_host(&[1000; 4]).unwrap();
    graph.launch().unwrap();
    let (x, y, z) = graph.into_buffers();
    assert_eq!([&x, &y, &z].map(values), [1000, 1012, 125 + 1012 + 1000]);
}

#[test]
fn a_graph_owns_the_temporaries_of_its_launches() {
    let through = |x: &Buffer<u32>, out: &mut Buffer<u32>, stream: &Stream| {
        let mut sum = stream.temporary::<u32>(4)?;
        launch_add(x, sum.slice_mut(), stream)?;
        launch_add(x, sum.slice_mut(), stream)?;
        assert_eq!(sum.slice().len(), 4);
        add_slices(sum.slice(), &mut *out, stream)
    };
    let stream = Device::cpu().stream();
    let mut graph =
        stream.capture((buffer(3), buffer(0)), |(x, out), stream| through(x, out, stream)).unwrap();
    graph.launch().unwrap();
    assert_eq!(values(&graph.buffers().1), 6);
    // What was in it stays there: the launches add to it.
    graph.launch().unwrap();
    assert_eq!(values(&graph.buffers().1), 6 + 12);
    let (x, mut out) = (buffer(5), buffer(1));
    through(&x, &mut out, &stream).unwrap();
    assert_eq!(values(&out), 11);
}

#[test]
fn every_way_to_keep_memory() {
    let (borrowed, shared) = (buffer(1), Arc::new(buffer(2)));
    let (mut unique, mut whole) = (buffer(0), buffer(0));
    let whole = whole.slice_mut(..);
    let held =
        ((&borrowed, shared.clone()), (&mut unique, whole), vec![buffer(3)], [buffer(4), buffer(5)], ());
    let mut graph = Device::cpu()
        .stream()
        .capture(held, |((borrowed, shared), (unique, whole), list, array, ()), stream| {
            for x in [*borrowed, &**shared, &list[0], &array[0], &array[1]] {
                launch_add(x, &mut **unique, stream)?;
                launch_add(x, whole.reborrow(), stream)?;
            }
            Ok(())
        })
        .unwrap();
    graph.launch().unwrap();
    drop(graph);
    assert_eq!(values(&unique), 15);
    assert_eq!(values(&shared), 2);
}

#[test]
fn memory_that_the_graph_does_not_keep_is_an_error() {
    let stream = Device::cpu().stream();
    let (x, mut y) = (buffer(1), buffer(2));
    let foreign = stream.capture(buffer(0), |own, stream| launch_add(&x, &mut *own, stream));
    assert_eq!(reason(foreign), "kernel `add`: `x` is not kept by the graph");
    let foreign = stream.capture(buffer(0), |own, stream| launch_add(own, &mut y, stream));
    assert_eq!(reason(foreign), "kernel `add`: `out` is not kept by the graph");
    let read_only = stream.capture((x.slice(..2), &x), |_, stream| launch_add(&x, &mut y, stream));
    assert_eq!(reason(read_only), "kernel `add`: `out` is not kept by the graph");
    let mut half = y.slice_mut(..2);
    let whole = stream.capture((&x, half.reborrow()), |(x, half), stream| {
        launch_add(x, half.reborrow(), stream)?;
        launch_add(x, &mut buffer(0), stream)
    });
    assert_eq!(reason(whole), "kernel `add`: `out` is not kept by the graph");
    // To write what is kept to be read.
    let owned = Arc::new(buffer(7));
    let recorder = Recorder::new(ranges(&mut owned.clone(), On::Cpu).unwrap());
    let range = MemoryRange { writes: true, ..ranges(&mut owned.clone(), On::Cpu).unwrap()[0] };
    let written = recorder.check(&ADD, &[("out", range)]);
    assert_eq!(reason(written), "kernel `add`: `out` is kept by the graph to be read only");
}

#[test]
fn a_buffer_that_was_replaced_is_an_error_of_the_launch() {
    let mut graph = Device::cpu()
        .stream()
        .capture((buffer(1), vec![buffer(2)]), |(x, list), stream| launch_add(x, &mut list[0], stream))
        .unwrap();
    let old = std::mem::replace(&mut graph.buffers_mut().1[0], buffer(3));
    assert_eq!(reason(graph.launch()), "kernel `add`: `out` is not kept by the graph");
    // What is still there may move.
    graph.buffers_mut().1.push(old);
    graph.launch().unwrap();
    assert_eq!(values(&graph.buffers().1[1]), 3);
    graph.buffers_mut().1.clear();
    assert!(graph.launch().is_err());
}

#[test]
fn an_error_of_a_launch_ends_the_capture() {
    let stream = Device::cpu().stream();
    let mut owned = None;
    let failed = stream.capture(buffer(0), |own, capturing| {
        owned = Some(capturing.clone());
        assert!(matches!(capturing.synchronize(), Err(Error::Capture { .. })));
        let nested = capturing.capture((), |_, _| Ok(()));
        assert_eq!(reason(nested), "the stream is being captured already");
        // SAFETY: the launch fails before anything runs.
        unsafe { Launch::new(&ADD, Ok(&ADD.variants[0]), [Arg::slice_mut::<u32>(&mut *own)]) }
            .grid(1)
            .launch(capturing)
    });
    assert!(matches!(failed, Err(Error::ArgumentCount { .. })));
    let ended = owned.unwrap();
    assert_eq!(
        reason(launch_add(&buffer(1), &mut buffer(2), &ended)),
        "the capture of this stream has ended"
    );
    let empty = stream.capture((), |(), _| Ok(())).unwrap();
    assert!(empty.is_empty());
}

#[test]
fn a_buffer_of_another_type_at_the_same_address_is_an_error_of_the_launch() {
    /// Memory that is `T` for as long as it is borrowed.
    fn as_other<T: Element>(memory: &mut [u32]) -> &mut [T] {
        const { assert!(size_of::<T>() == size_of::<u32>()) };
        // SAFETY: numbers of 32 bits, aligned alike, of which any bits are one.
        unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len()) }
    }
    let (x, mut memory) = (buffer(1), vec![5u32; 4]);
    let address: *mut u32 = memory.as_mut_ptr();
    // SAFETY: the vector outlives the graph, and nothing else uses it meanwhile.
    let borrowed = || unsafe { std::slice::from_raw_parts_mut(address, 4) };
    let buffers = (&x, vec![SliceMut::from(borrowed())], Vec::<SliceMut<'_, f32>>::new());
    let mut graph = Device::cpu()
        .stream()
        .capture(buffers, |(x, numbers, _), stream| launch_add(x, numbers[0].reborrow(), stream))
        .unwrap();
    graph.launch().unwrap();
    graph.buffers_mut().1.clear();
    graph.buffers_mut().2.push(SliceMut::from(as_other::<f32>(borrowed())));
    assert_eq!(
        reason(graph.launch()),
        "kernel `add`: `out` has elements of u32, and the graph keeps f32 there"
    );
    graph.buffers_mut().2.clear();
    graph.buffers_mut().1.push(SliceMut::from(&mut borrowed()[..3]));
    assert_eq!(reason(graph.launch()), "kernel `add`: `out` is not kept by the graph");
    graph.buffers_mut().1[0] = SliceMut::from(borrowed());
    graph.launch().unwrap();
    drop(graph);
    assert_eq!(memory, [7; 4]);
}
