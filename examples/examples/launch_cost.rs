//! What a launch costs: CPU time for each of many, small shapes in a graph beside a kernel that does nothing, and the time of
//! the first in a fresh process, from machine code and from PTX, the creation of the CUDA context apart. `cargo run --release --example launch_cost`

use std::ffi::CStr;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use dsl_runtime::bench::{BenchOptions, do_bench};
use dsl_runtime::cudarc::driver::result;
use dsl_runtime::kernel::{Module, Variant};
use dsl_runtime::prelude::*;
use dsl_runtime::{Arg, Choice};
use fused_kernels::add_mul::add_mul;
use fused_kernels::norm_kernels::norm;

/// Kernels of a graph.
const IN_GRAPH: usize = 100;

/// Launches between two waits: less than the driver's queue takes, so that no launch waits for a kernel.
const BATCH: usize = 200;

/// Measures what launching a kernel costs
#[derive(Parser)]
struct Options {
    /// How many launches of each kernel
    #[arg(long, default_value_t = 100_000)]
    launches: usize,
    /// How many fresh processes for each kind of image
    #[arg(long, default_value_t = 7)]
    processes: usize,
    /// Be such a process, and print milliseconds: context, first launch, second launch
    #[arg(long, hide = true)]
    first: Option<Image>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Image {
    Cubin,
    Ptx,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(image) = options.first {
        return first_launch(image);
    }
    let device = Device::best()?;
    let mut print = std::io::stdout().lock();
    writeln!(print, "{device}: {}", device.name())?;
    let and_runs = if device.is_cuda() { "" } else { ", which runs its one program as well" };
    writeln!(print, "CPU time of a launch{and_runs}, the median of batches of {BATCH} (20 % to 80 %):")?;
    for (name, samples) in each_launch(&device, options.launches)? {
        writeln!(print, "  {name:<28} {}", summary(&samples, "us"))?;
    }
    writeln!(
        print,
        "a kernel in a graph of {IN_GRAPH}, layer_norm of bf16 in rows of 4096, on warm caches:"
    )?;
    for rows in [1, 4, 16, 64] {
        let [nothing, kernel] = in_a_graph(&device, rows)?;
        let ratio = kernel / nothing;
        writeln!(
            print,
            "  {rows:>2} rows {kernel:>8.3} us, {ratio:.2} of the {nothing:.3} us of one that does nothing"
        )?;
    }
    if !device.is_cuda() {
        writeln!(print, "the first launch in a fresh process is measured on a GPU")?;
        return Ok(());
    }
    writeln!(
        print,
        "a fresh process, layer_norm of bf16 in blocks of 4096, {} processes each:",
        options.processes
    )?;
    for image in [Image::Cubin, Image::Ptx] {
        let Some([context, first, second]) = fresh_processes(image, options.processes)? else {
            writeln!(print, "  {image:?}: none was built; a build with FUSE_PTXAS has them")?;
            continue;
        };
        writeln!(print, "  context creation             {}", summary(&context, "ms"))?;
        writeln!(print, "  first launch, from {:<9?} {}", image, summary(&first, "ms"))?;
        writeln!(print, "  second launch                {}", summary(&second, "ms"))?;
    }
    Ok(())
}

/// `1.234 us (1.200 to 1.300)`
fn summary(samples: &[f64], unit: &str) -> String {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    format!("{:.3} {unit} ({:.3} to {:.3})", at(0.5), at(0.2), at(0.8))
}

// ---- many launches

/// Microseconds of a launch in each batch, by kernel.
fn each_launch(device: &Device, launches: usize) -> Result<Vec<(&'static str, Vec<f64>)>> {
    const N: usize = 1024;
    let input = device.upload(&[1.0f32; N])?;
    let mut out = device.zeros::<f32>(N)?;
    let n = N as i32;
    let add_mul_us = batches(device, launches, || {
        add_mul::<f32, N>(&input, &input, &input, &mut out, n).grid(1).launch(device)?;
        Ok(())
    })?;
    let by_host_us = batches(device, launches, || {
        scale_by_host(&input, &mut out, 2.0, n, N).grid(1).launch(device)?;
        Ok(())
    })?;
    let by_device_us = batches(device, launches, || {
        scale_by_device(&input, &mut out, 2.0, n).grid(1).launch(device)?;
        Ok(())
    })?;
    let layer_norm_us = batches(device, launches, || {
        let beta = Some(Slice::from(&input));
        norm::<f32>(&input, &input, beta, &mut out, n, n, n, 1e-5).grid(1).launch(device)?;
        Ok(())
    })?;
    let mut all = vec![
        ("add_mul, 5 parameters", add_mul_us),
        ("4 parameters, by the host", by_host_us),
        ("4 parameters, by the device", by_device_us),
        ("layer_norm, chosen variant", layer_norm_us),
    ];
    if let Some(driver_us) = driver_alone(device, launches)? {
        all.push(("the driver's call alone", driver_us));
    }
    Ok(all)
}

/// `out = x * scale`; a value of the host chooses among as many variants as a matmul has.
#[fuse_kernel(
    BLOCK = [32, 64, 128, 256, 512, 1024], when = BLOCK == block,
    configs = [{ num_warps: 1 }, { num_warps: 2 }],
)]
pub fn scale_by_host<const BLOCK: usize>(
    x: &[f32],
    out: &mut [f32],
    scale: f32,
    n: i32,
    #[host] block: usize,
) {
    let at = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(out + at, tl::load(x + at, at < n) * scale, at < n);
}

/// The same; the device chooses.
#[fuse_kernel(BLOCK = [512, 1024], when = BLOCK == 1024 || !device.has_wgmma())]
pub fn scale_by_device<const BLOCK: usize>(x: &[f32], out: &mut [f32], scale: f32, n: i32) {
    let at = tl::program_id(0) * BLOCK + tl::arange(0, BLOCK);
    tl::store(out + at, tl::load(x + at, at < n) * scale, at < n);
}

/// A kernel that does nothing with as many arguments as add-mul's entry has.
const EMPTY: &CStr = c".version 7.0
.target sm_80
.address_size 64
.visible .entry empty(
    .param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u64 f, .param .u64 g,
    .param .u64 h, .param .u32 i, .param .u32 j, .param .u32 k, .param .u32 l
)
{
    ret;
}
";

/// Microseconds of `cuLaunchKernel` itself: what no launcher can go below.
fn driver_alone(device: &Device, launches: usize) -> Result<Option<Vec<f64>>> {
    let Some(context) = device.context() else { return Ok(None) };
    context.bind_to_thread()?;
    let stream = context.default_stream();
    let mut values = [0u64; 12];
    let mut pointers = values.each_mut().map(|value| std::ptr::from_mut(value).cast());
    // SAFETY: the context is current; the image ends in NUL and has an entry of that name with twelve parameters of at
    // most eight bytes, which the driver copies from live values. The module is not unloaded.
    let samples = unsafe {
        let module = result::module::load_data(EMPTY.as_ptr().cast())?;
        let function = result::module::get_function(module, c"empty".to_owned())?;
        batches(device, launches, || {
            result::launch_kernel(function, (1, 1, 1), (128, 1, 1), 0, stream.cu_stream(), &mut pointers)?;
            Ok(())
        })?
    };
    Ok(Some(samples))
}

fn batches(device: &Device, launches: usize, mut launch: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut samples = Vec::new();
    for _ in 0..BATCH {
        launch()?;
    }
    for _ in 0..launches.div_ceil(BATCH) {
        device.synchronize()?;
        let start = Instant::now();
        for _ in 0..BATCH {
            launch()?;
        }
        samples.push(start.elapsed().as_secs_f64() * 1e6 / BATCH as f64);
    }
    device.synchronize()?;
    Ok(samples)
}

// ---- small shapes

/// Takes what LayerNorm takes and does nothing.
#[fuse_kernel(T = [bf16], num_warps = 8)]
pub fn nothing<T: Float>(_x: &[T], _gamma: &[T], _beta: &[T], _out: &mut [T], _n_cols: i32, _eps: f32) {}

/// Microseconds of each kernel in a graph: of one that does nothing, and of LayerNorm.
fn in_a_graph(device: &Device, rows: usize) -> Result<[f64; 2]> {
    const COLS: usize = 4096;
    let input = device.upload(&vec![bf16::ONE; rows * COLS])?;
    let vector = device.upload(&[bf16::ONE; COLS])?;
    let mut out = device.zeros::<bf16>(rows * COLS)?;
    let warm = BenchOptions { flush_bytes: 0, ..BenchOptions::default() };
    let mut us = [0.0; 2];
    for (us, works) in us.iter_mut().zip([false, true]) {
        let captured = (&input, &vector, &mut out);
        let mut graph = device.stream().capture(captured, |(x, vector, out), stream| {
            for _ in 0..IN_GRAPH {
                if works {
                    let (beta, n) = (Some(Slice::from(*vector)), COLS as i32);
                    norm::<bf16>(*x, *vector, beta, &mut **out, n, n, n, 1e-5).grid(rows).launch(stream)?;
                } else {
                    nothing::<bf16>(*x, *vector, *vector, &mut **out, COLS as i32, 1e-5)
                        .grid(rows)
                        .launch(stream)?;
                }
            }
            Ok(())
        })?;
        let timing = do_bench(device, warm, || graph.launch())?;
        *us = timing.median_ms() * 1e3 / IN_GRAPH as f64;
    }
    Ok(us)
}

// ---- the first launch

/// Milliseconds of context creation, first and second launch, or nothing where there is no such image.
fn fresh_processes(image: Image, count: usize) -> Result<Option<[Vec<f64>; 3]>> {
    let mut samples = [const { Vec::new() }; 3];
    for _ in 0..count {
        let name = image.to_possible_value().context("every image has a name")?;
        // The driver would keep what it made of PTX, and the second process would not pay for it.
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.args(["--first", name.get_name()]).env("CUDA_CACHE_DISABLE", "1").output()?;
        if !output.status.success() {
            bail!("the fresh process failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8(output.stdout)?;
        if text.trim() == "none" {
            return Ok(None);
        }
        for (samples, number) in samples.iter_mut().zip(text.split_whitespace()) {
            samples.push(number.parse()?);
        }
    }
    Ok(Some(samples))
}

/// What a fresh process does.
fn first_launch(image: Image) -> Result<()> {
    const COLS: usize = 4096;
    let start = Instant::now();
    let device = Device::cuda(0)?;
    let context = start.elapsed();

    let input = device.upload(&[bf16::ONE; COLS])?;
    let mut out = device.zeros::<bf16>(COLS)?;
    device.synchronize()?;
    let variant =
        norm::KERNEL.smallest(&[DType::BF16], &[Choice::AtLeast(COLS as i128), Choice::Exact(1)])?;
    let variant = match image {
        Image::Ptx => without_cubins(variant),
        Image::Cubin => variant,
    };
    let start = Instant::now();
    call(variant, &input, &mut out).launch(&device)?;
    device.synchronize()?;
    let first = start.elapsed();
    let start = Instant::now();
    call(variant, &input, &mut out).launch(&device)?;
    device.synchronize()?;
    let second = start.elapsed();
    let code = call(variant, &input, &mut out).trace(&device)?.code;

    let mut print = std::io::stdout().lock();
    if image == Image::Cubin && !code.starts_with("cubin") {
        writeln!(print, "none")?;
    } else {
        let [context, first, second] = [context, first, second].map(|time| time.as_secs_f64() * 1e3);
        writeln!(print, "{context} {first} {second}")?;
    }
    Ok(())
}

/// One row, by a variant chosen here.
fn call<'b>(variant: &'static Variant, input: &'b Buffer<bf16>, out: &'b mut Buffer<bf16>) -> Launch<'b, 8> {
    let cols = input.len() as i32;
    let args = [
        Arg::slice::<bf16>(input),
        Arg::slice::<bf16>(input),
        Arg::slice::<bf16>(input),
        Arg::slice_mut::<bf16>(out),
        Arg::scalar::<i32>(cols),
        Arg::scalar::<i32>(cols),
        Arg::scalar::<i32>(cols),
        Arg::scalar::<f32>(1e-5),
    ];
    // SAFETY: these are the parameters of the kernel that `KERNEL` describes, and the variant is one of its own, at
    // most with fewer images.
    unsafe { Launch::new(&norm::KERNEL, Ok(variant), args) }.grid(1)
}

/// The same variant, for the driver to compile.
fn without_cubins(variant: &'static Variant) -> &'static Variant {
    let modules = variant.modules.iter().map(|module| Module { cubins: &[], ..*module });
    Box::leak(Box::new(Variant {
        label: variant.label,
        types: variant.types,
        consts: variant.consts,
        dtypes: variant.dtypes,
        source: variant.source,
        modules: modules.collect::<Vec<_>>().leak(),
        hosts: &[],
        sites: variant.sites,
    }))
}
