//! Kernels one behind the other in a stream, each of which reads what the one before it wrote, in other blocks, where the
//! one before that had read: on every device there is, launched one by one and as a graph.
//!
//! On GPUs whose kernels start early a read that does not wait finds what was there two kernels ago: the first programs read
//! what the last ones wrote.

use dsl_runtime::Result;
use dsl_runtime::kernel::Kernel;
use dsl_runtime::prelude::*;

use fuse_tests::{alone, devices};

/// Elements of a row, and the K step of a dot.
const COLS: usize = 128;
/// Rows that a program reads.
const ROWS: usize = 64;
/// Kernels of a chain; numbers up to 2048 are exact in `f16`.
const LONGEST: usize = 1000;

/// `out[r, c] = x[n - 1 - r, c] + 1`, with several programs to a block.
#[fuse_kernel(num_warps = 1)]
pub fn shift(x: &[f16], out: &mut [f16], n: i32) {
    let (row, cols) = (tl::program_id(0), tl::arange(0, 128));
    let x = tl::load(x + (n - 1 - row) * 128 + cols).to::<f32>();
    tl::store(out + row * 128 + cols, (x + 1.0).to::<f16>());
}

/// The same of the largest element of the last 64 rows, read by a software-pipelined loop.
#[fuse_kernel]
pub fn reduce(x: &[f16], out: &mut [f16], n: i32) {
    let (row, cols) = (tl::program_id(0), tl::arange(0, 128));
    let mut largest = tl::zeros::<f32>([128]);
    for step in 0..64 {
        largest = tl::maximum(largest, tl::load(x + (n - 64 + step) * 128 + cols).to::<f32>());
    }
    tl::store(out + row * 128 + cols, (tl::max(largest, 0) + largest * 0.0 + 1.0).to::<f16>());
}

/// The same of 64 rows, by a cluster of blocks.
#[fuse_kernel(num_ctas = 4)]
pub fn cluster(x: &[f16], out: &mut [f16], n: i32) {
    let program = tl::program_id(0);
    let at = tl::arange(0, 8192);
    let x = tl::load(x + (n * 128 - 8192 * (program + 1)) + at).to::<f32>();
    let largest = tl::max(x, 0);
    tl::store(out + program * 8192 + at, (largest + (x - largest) + 1.0).to::<f16>());
}

/// The same as a matmul with a permutation matrix of the columns, with TMA loads.
#[fuse_kernel]
pub fn product(x: &View<f16, 2>, order: &View<f16, 2>, out: &mut View<f16, 2>, n: i32) {
    let row = tl::program_id(0) * 64;
    let from = (row + 64) % n;
    let mut sum = tl::zeros::<f32>([64, 128]);
    for start in (0..128).step_by(64) {
        sum = tl::dot(x.load::<64, 64>(from, start), order.load::<64, 128>(start, 0), sum);
    }
    out.store((sum + 1.0).to::<f16>(), row, 0);
}

/// The kernels of this file, in the order in which a chain alternates between them.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    Shift,
    Reduce,
    Cluster,
    Product,
}

const LINKS: [Link; 4] = [Link::Shift, Link::Reduce, Link::Cluster, Link::Product];

/// Two matrices that kernels read and write alternately, and operand B of the dot.
type Buffers = (Buffer<f16>, Buffer<f16>, Buffer<f16>);

impl Link {
    /// Adds 1.
    fn launch(
        self,
        (x, out): (&Buffer<f16>, &mut Buffer<f16>),
        order: &Buffer<f16>,
        stream: &Stream,
    ) -> Result<()> {
        let rows = x.len() / COLS;
        let n = rows as i32;
        match self {
            Link::Shift => shift(x, out, n).grid(rows).launch(stream),
            Link::Reduce => reduce(x, out, n).grid(rows).launch(stream),
            Link::Cluster => cluster(x, out, n).grid(rows / ROWS).launch(stream),
            Link::Product => {
                let (x, order) = (x.view([rows, COLS])?, order.view([COLS, COLS])?);
                let out = out.view_mut([rows, COLS])?;
                product(x, order, out, n).grid(rows / ROWS).launch(stream)
            }
        }
    }
}

/// Launches an even number of kernels, the result of which is in the first matrix.
fn chain(links: &[Link], count: usize, (x, y, order): &mut Buffers, stream: &Stream) -> Result<()> {
    for pair in 0..count / 2 {
        let link = |i: usize| links[(2 * pair + i) % links.len()];
        link(0).launch((&*x, &mut *y), order, stream)?;
        link(1).launch((&*y, &mut *x), order, stream)?;
    }
    Ok(())
}

/// Zeros, and each column's number taken by the one after the next.
fn buffers(device: Device, rows: usize) -> Buffers {
    let taken = |i: usize| f16::from_f32(f32::from(i / COLS == (i % COLS + 2) % COLS));
    let order: Vec<f16> = (0..COLS * COLS).map(taken).collect();
    let zeros = || device.zeros(rows * COLS).unwrap();
    (zeros(), zeros(), device.upload(&order).unwrap())
}

fn expect(found: &Buffer<f16>, wanted: usize, what: &str) {
    let found: Vec<f32> = found.download().unwrap().into_iter().map(f16::to_f32).collect();
    let wrong = found.iter().filter(|value| **value != wanted as f32).count();
    assert_eq!(wrong, 0, "{what}: {wrong} of {} are not {wanted}: {:?}", found.len(), &found[..4]);
}

/// The chains of one kind of kernel, and of all kinds.
fn chains() -> Vec<Vec<Link>> {
    LINKS.iter().map(|&link| vec![link]).chain([LINKS.to_vec()]).collect()
}

/// Rows, and how many kernels: few and many blocks; a CPU takes its time.
fn sizes(device: Device) -> Vec<(usize, usize)> {
    if device == Device::cpu() { vec![(64, 8)] } else { vec![(64, LONGEST), (1024, LONGEST), (32768, 100)] }
}

/// The chains test PDL: on GPUs that have it all kernels but the matmul start early.
/// Short ones, and matmuls with a producer warp; not where threads load the operands of their dots.
#[test]
fn kernels_that_load_late_start_early() {
    let uses_pdl = |kernel: &Kernel, is_entry: fn(&str) -> bool| {
        let mut modules = kernel.variants.iter().flat_map(|variant| variant.modules);
        modules.any(|module| {
            let specialization = &module.specialization;
            module.arch.capability >= 90 && is_entry(specialization.entry) && specialization.uses_pdl
        })
    };
    assert!(uses_pdl(&shift::KERNEL, |_| true));
    assert!(uses_pdl(&reduce::KERNEL, |_| true));
    assert!(uses_pdl(&cluster::KERNEL, |_| true));
    assert!(uses_pdl(&product::KERNEL, |entry| entry.contains("_tensor")));
    assert!(!uses_pdl(&product::KERNEL, |entry| !entry.contains("_tensor")));
}

#[test]
fn every_kernel_finds_what_the_one_before_it_wrote() {
    let _alone = alone();
    for device in devices() {
        for (rows, count) in sizes(device) {
            for links in chains() {
                let mut buffers = buffers(device, rows);
                chain(&links, count, &mut buffers, &device.stream()).unwrap();
                expect(&buffers.0, count, &format!("{device}, {rows} rows, {links:?}"));
            }
        }
    }
}

#[test]
fn also_in_a_graph_that_runs_again_and_again() {
    let _alone = alone();
    for device in devices() {
        let stream = device.new_stream().unwrap();
        for (rows, count) in sizes(device) {
            for links in chains() {
                let first = count / 10 * 2;
                let mut graph = stream
                    .capture(buffers(device, rows), |held, stream| chain(&links, first, held, stream))
                    .unwrap();
                for _ in 0..5 {
                    graph.launch().unwrap();
                }
                expect(&graph.into_buffers().0, 5 * first, &format!("{device}, {rows} rows, {links:?}"));
            }
        }
    }
}

/// What is no kernel stands between two kernels: a copy of memory, and a wait for another stream.
#[test]
fn copies_and_other_streams_come_between_kernels() {
    let _alone = alone();
    for device in devices() {
        let rows = 1024;
        let (one, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        let (mut x, mut y, order) = buffers(device, rows);
        let mut wanted = 0;
        for round in 0..20 {
            for (link, stream) in LINKS.into_iter().zip([&one, &other, &other, &one]) {
                link.launch((&x, &mut y), &order, stream).unwrap();
                std::mem::swap(&mut x, &mut y);
                wanted += 1;
            }
            if round % 5 == 4 {
                x.copy_from_host(&vec![f16::from_f32(round as f32); rows * COLS]).unwrap();
                wanted = round;
            }
        }
        Link::Shift.launch((&x, &mut y), &order, &other).unwrap();
        expect(&y, wanted + 1, &format!("{device}"));
    }
}
