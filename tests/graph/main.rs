//! Graphs of real kernels, on every device there is.

use dsl_runtime::prelude::*;
use dsl_runtime::{Error, Result};

use fuse_tests::{alone, devices};

/// `out = x * factor + out`.
#[fuse_kernel(BLOCK = [256])]
pub fn accumulate<const BLOCK: usize>(x: &[f32], out: &mut [f32], factor: f32, n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let sum = tl::load(x + offsets, mask) * factor + tl::load(out + offsets, mask);
    tl::store(out + offsets, sum, mask);
}

/// `out = x + x` in blocks of either size.
#[fuse_kernel(BLOCK = _ in [64, 128], tune(key = [n]))]
pub fn double<const BLOCK: usize>(x: &[f32], out: &mut [f32], n: i32) {
    let offsets = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    let mask = offsets < n;
    let x = tl::load(x + offsets, mask);
    tl::store(out + offsets, x + x, mask);
}

/// `out = x * factor + out` of matrices.
#[fuse_kernel]
pub fn accumulate_blocks(x: &View<f32, 2>, out: &mut View<f32, 2>, factor: f32) {
    let (row, col) = (tl::program_id(0) * 4, tl::program_id(1) * 64);
    let sum = x.load::<4, 64>(row, col) * factor + out.load::<4, 64>(row, col);
    out.store(sum, row, col);
}

fn add(x: &Buffer<f32>, out: &mut Buffer<f32>, factor: f32, stream: &Stream) -> Result<()> {
    let n = x.len();
    accumulate::<256>(x, out, factor, n as i32).grid(n.div_ceil(256)).launch(stream)
}

fn filled(device: Device, n: usize, value: f32) -> Buffer<f32> {
    device.upload(&vec![value; n]).unwrap()
}

#[test]
fn a_graph_runs_again_on_what_its_buffers_hold_then() {
    let _alone = alone();
    for device in devices() {
        for stream in [device.stream(), device.new_stream().unwrap()] {
            // Aligned and not.
            for n in [4096usize, 1001] {
                let buffers = (filled(device, n, 1.0), filled(device, n, 0.0), filled(device, n, 0.0));
                let mut graph = stream
                    .capture(buffers, |(x, y, z), stream| {
                        add(x, y, 2.0, stream)?;
                        add(y, z, 10.0, stream)
                    })
                    .unwrap();
                assert_eq!(graph.buffers().2.download().unwrap(), vec![0.0; n], "{device}: nothing ran");
                graph.launch().unwrap();
                graph.launch().unwrap();
                assert_eq!(graph.buffers().2.download().unwrap(), vec![20.0 + 40.0; n], "{device}");
                graph.buffers_mut().0.copy_from_host(&vec![3.0; n]).unwrap();
                graph.launch().unwrap();
                let (_, y, z) = graph.into_buffers();
                assert_eq!(y.download().unwrap(), vec![10.0; n], "{device}");
                assert_eq!(z.download().unwrap(), vec![160.0; n], "{device}");
            }
        }
    }
}

#[test]
fn other_streams_wait_for_a_graph_and_a_graph_for_them() {
    let _alone = alone();
    for device in devices() {
        let n = 1 << 20;
        let (one, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        let (mut x, mut y) = (filled(device, n, 1.0), filled(device, n, 0.0));
        let ones = filled(device, n, 1.0);
        let mut graph = one.capture((&mut x, &mut y), |(x, y), stream| add(x, y, 1.0, stream)).unwrap();
        let mut wanted = 0.0;
        for round in 0..50 {
            // `x` grows on another stream, `y` by the graph.
            let (x, _) = graph.buffers_mut();
            add(&ones, x, 1.0, &other).unwrap();
            graph.launch().unwrap();
            wanted += 2.0 + round as f32;
        }
        let mut copy = filled(device, n, 0.0);
        add(graph.buffers().1, &mut copy, 1.0, &other).unwrap();
        assert_eq!(copy.download().unwrap(), vec![wanted; n], "{device}");
    }
}

#[test]
fn what_a_graph_does_not_keep_is_an_error_before_anything_is_recorded() {
    let _alone = alone();
    for device in devices() {
        let mut foreign = filled(device, 100, 0.0);
        let failed = device
            .stream()
            .capture(filled(device, 100, 1.0), |own, stream| add(own, &mut foreign, 1.0, stream));
        assert_eq!(
            failed.map(|_| ()).unwrap_err().to_string(),
            "capture: kernel `accumulate`: `out` is not kept by the graph"
        );
        // The device is as before.
        add(&filled(device, 100, 1.0), &mut foreign, 5.0, &device.stream()).unwrap();
        assert_eq!(foreign.download().unwrap(), [5.0; 100]);
    }
}

#[test]
fn a_tuned_kernel_is_captured_as_the_first_config_and_measured_later() {
    let _alone = alone();
    for device in devices() {
        let buffers = (filled(device, 777, 4.0), filled(device, 777, 0.0));
        let mut graph = device
            .stream()
            .capture(buffers, |(x, out), stream| {
                double(&*x, &mut *out, 777)
                    .grid_by(|chosen| 777usize.div_ceil(chosen.constant("BLOCK")))
                    .launch(stream)
            })
            .unwrap();
        graph.launch().unwrap();
        assert_eq!(graph.buffers().1.download().unwrap(), [8.0; 777], "{device}");
    }
}

#[test]
fn accesses_outside_a_slice_are_reported_at_every_run() {
    let _alone = alone();
    let reports = accumulate::KERNEL.variants[0].hosts.iter().any(|host| host.reports);
    for device in devices() {
        let buffers = (filled(device, 100, 1.0), filled(device, 90, 0.0));
        let mut graph = device
            .stream()
            .capture(buffers, |(x, out), stream| {
                accumulate::<256>(&*x, &mut *out, 1.0, 100).grid(1).launch(stream)
            })
            .unwrap();
        for run in 1..3 {
            let found = graph.launch().and_then(|()| device.synchronize());
            match found {
                Err(Error::OutOfBounds { kernel: "accumulate", param: "out", len: 90, .. }) => {
                    assert!(reports)
                }
                Ok(()) => assert!(!reports, "{device}, run {run}"),
                Err(other) => panic!("{device}: {other}"),
            }
            assert_eq!(graph.buffers().1.download().unwrap(), [run as f32; 90], "{device}");
        }
    }
}

#[test]
fn buffers_that_go_while_the_graph_runs_are_freed_after_it() {
    let _alone = alone();
    for device in devices() {
        let n = 1 << 20;
        let mut last = filled(device, n, 0.0);
        for _ in 0..20 {
            let mut graph = device
                .new_stream()
                .unwrap()
                .capture((filled(device, n, 1.0), &mut last), |(x, last), stream| add(x, last, 1.0, stream))
                .unwrap();
            graph.launch().unwrap();
        }
        assert_eq!(last.download().unwrap(), vec![20.0; n], "{device}");
    }
}

/// A graph records a view's extents and strides like other scalars.
#[test]
fn views_are_recorded() {
    let _alone = alone();
    for device in devices() {
        let stream = device.stream();
        let add = |x: &Buffer<f32>, out: &mut Buffer<f32>, stream: &Stream| {
            let x = x.view_strided([9, 100], [128, 1])?;
            let columns = out.view_strided_mut([100, 9], [9, 1])?.permute([1, 0]);
            accumulate_blocks(x, columns, 2.0).grid((3, 2)).launch(stream)
        };
        let buffers = (filled(device, 9 * 128, 1.5), filled(device, 900, 0.0));
        let mut graph = stream
            .capture(buffers, |(x, out), stream| {
                add(x, out, stream)?;
                add(x, out, stream)
            })
            .unwrap();
        for _ in 0..2 {
            graph.launch().unwrap();
        }
        assert_eq!(graph.buffers().1.download().unwrap(), [12.0; 900], "{device}");
    }
}
