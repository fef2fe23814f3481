//! Streams of contexts that someone else made, on a GPU: they stay as they were, and uses of memory keep their order.

use std::sync::Arc;

use cudarc::driver::result::stream::{StreamKind, create};
use cudarc::driver::{CudaContext, CudaStream};

use super::cuda_tests::{exclusive, gpu, iota, scale, scaled};
use crate::{Buffer, Device, Stream};

/// A context as another crate makes it, after ours, which [`Device::cuda`] goes on to give.
fn foreign() -> Option<Arc<CudaContext>> {
    let ours = gpu()?;
    let context = CudaContext::new(0).unwrap();
    assert_ne!(Device::from_context(&context).unwrap(), ours);
    Some(context)
}

/// With the number of its streams, and whether it records events.
fn state(context: &CudaContext) -> String {
    format!("{context:?}")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Null,
    PerThread,
    /// Of a library that is not ours nor `cudarc`.
    Wrapped,
    /// By `cudarc`, which counts it.
    Counted,
}

const KINDS: [Kind; 4] = [Kind::Null, Kind::PerThread, Kind::Wrapped, Kind::Counted];

impl Kind {
    fn make(self, context: &Arc<CudaContext>) -> Arc<CudaStream> {
        match self {
            Kind::Null => context.default_stream(),
            Kind::PerThread => context.per_thread_stream(),
            Kind::Wrapped => {
                context.bind_to_thread().unwrap();
                let raw = create(StreamKind::NonBlocking).unwrap();
                // SAFETY: the stream was made in this context, and lives as long as the process.
                unsafe { context.wrap_borrowed_stream(raw) }
            }
            Kind::Counted => context.new_stream().unwrap(),
        }
    }
}

#[test]
fn a_context_stays_as_its_owner_has_it() {
    let Some(context) = foreign() else { return };
    let _exclusive = exclusive();
    for kind in KINDS {
        let without = state(&context);
        let theirs = kind.make(&context);
        let before = state(&context);
        assert_eq!(before == without, kind != Kind::Counted, "{kind:?}");
        {
            let stream = Stream::from_cuda(theirs.clone()).unwrap();
            assert_eq!(state(&context), before, "{kind:?}");
            let x = Buffer::from_cuda(theirs.clone_htod(&[1.0f32; 256]).unwrap()).unwrap();
            let mut out = stream.device().zeros::<f32>(256).unwrap();
            scale(0, &x, &mut out, 256).launch(&stream).unwrap();
            scale(0, &x, &mut out, 256).launch(&stream.device()).unwrap();
            assert_eq!(out.download().unwrap(), [0.5; 256]);
            let mut graph = stream
                .capture((x, out), |(x, out), stream| scale(0, &*x, &mut *out, 128).launch(stream))
                .unwrap();
            assert_eq!(state(&context), before, "{kind:?}");
            graph.launch().unwrap();
            let values = graph.buffers().1.download().unwrap();
            assert_eq!((values[127], values[128]), (-0.5, 0.5));
            assert_eq!(state(&context), before, "{kind:?}");
        }
        drop(theirs);
        assert_eq!(state(&context), without, "{kind:?}");
    }
}

/// Enough that kernels are still running when the next one has been launched.
const N: usize = 1 << 22;
const TIMES: usize = 30;

/// Memory of a stream, all zeros.
fn zeros(stream: &Arc<CudaStream>) -> Buffer<f32> {
    Buffer::from_cuda(stream.alloc_zeros(N).unwrap()).unwrap()
}

/// A long use of `x` and `out`, on a stream that is given up at once.
fn write(x: &Buffer<f32>, out: &mut Buffer<f32>, on: Arc<CudaStream>) {
    let stream = Stream::from_cuda(on).unwrap();
    for _ in 0..TIMES {
        scale(0, x, &mut *out, N as i32).launch(&stream).unwrap();
    }
}

#[test]
fn streams_wait_for_each_other_s_memory_of_any_allocation_stream() {
    let Some(context) = foreign() else { return };
    let _exclusive = exclusive();
    let device = Device::from_context(&context).unwrap();
    let x = iota(&device, N);
    let once = scaled(0, N, 0.5);
    let again = |value: &f32| value.mul_add(-2.0, (N / 128) as f32 + 0.5);
    let twice: Vec<f32> = once.iter().map(again).collect();
    let alloc_streams = [Kind::Null, Kind::PerThread, Kind::Wrapped].map(|kind| (kind, kind.make(&context)));
    for (alloc_stream, memory) in &alloc_streams {
        for writer in KINDS {
            for reader in KINDS {
                let (mut first, mut second) = (zeros(memory), zeros(memory));
                context.synchronize().unwrap();
                write(&x, &mut first, writer.make(&context));
                write(&first, &mut second, reader.make(&context));
                let found = second.download().unwrap();
                let wrong = (0..N).find(|&at| found[at] != twice[at]);
                assert_eq!(wrong, None, "of {alloc_stream:?}, {writer:?} before {reader:?}");
            }
        }
    }
}

#[test]
fn memory_goes_back_when_no_stream_uses_it_any_more() {
    let Some(context) = foreign() else { return };
    let _exclusive = exclusive();
    let device = Device::from_context(&context).unwrap();
    let x = iota(&device, N);
    for alloc_stream in [Kind::Null, Kind::PerThread, Kind::Wrapped] {
        let memory = alloc_stream.make(&context);
        for writer in KINDS {
            let mut first = zeros(&memory);
            context.synchronize().unwrap();
            write(&x, &mut first, writer.make(&context));
            drop(first);
            // The driver gives the same memory again.
            let next = zeros(&memory);
            context.synchronize().unwrap();
            assert!(
                next.download().unwrap().iter().all(|&value| value == 0.0),
                "of {alloc_stream:?}, {writer:?}"
            );
        }
    }
}
