//! Products and attention on the CPU beside the `gemm` crate and candle, on the same threads:
//! `FUSE_ARCH=none RAYON_NUM_THREADS=2 cargo run --release --manifest-path bench/cpu/Cargo.toml`
//!
//! The contenders run alternately, and the shortest of many runs of each counts: other work on the machine only adds time.
//! Neither of the others multiplies `bf16`; it stands beside their `f32`.

use std::time::{Duration, Instant};

use candle_core::{D, Tensor};
use dsl_runtime::prelude::*;
use fused_kernels::attention::Attention;
use fused_kernels::float::{HalfFloat, LibraryFloat};
use fused_kernels::matmul::Matmul;
use gemm::Parallelism;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// How long the contenders of a row alternate.
const BUDGET: Duration = Duration::from_secs(3);

fn main() -> Result {
    let device = Device::cpu();
    println!("{}, {} threads", device.name(), device.parallelism());
    println!("| product | shape | ours, us | GFLOP/s | gemm, us | GFLOP/s | ours, of gemm |");
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for [m, k, n] in [[1024, 1024, 1024], [2048, 512, 1024], [1000, 1000, 1000]] {
        for columns in [false, true] {
            matmul::<f32, f32>([m, k, n], columns)?;
            matmul::<f16, gemm::f16>([m, k, n], columns)?;
            matmul::<bf16, f32>([m, k, n], columns)?;
        }
    }
    println!(
        "\n| attention | heads x rows x D | ours, us | GFLOP/s | candle f16, us | candle f32, us | ours, of these |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for [heads, rows, elements] in [[8, 1024, 64], [8, 1024, 128], [2, 4096, 64]] {
        attention::<f16>([heads, rows, elements])?;
        attention::<bf16>([heads, rows, elements])?;
    }
    Ok(())
}

/// The shortest time of each contender, in seconds.
fn shortest(contenders: &mut [&mut dyn FnMut() -> Result]) -> Result<Vec<f64>> {
    let mut least = vec![f64::INFINITY; contenders.len()];
    let begin = Instant::now();
    while begin.elapsed() < BUDGET {
        for (contender, least) in contenders.iter_mut().zip(&mut least) {
            let start = Instant::now();
            contender()?;
            *least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least)
}

/// Numbers from -1 to 1 that look random.
fn numbers<T: Float>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..len).map(|_| T::from_f64(next())).collect()
}

/// A matmul of `T` beside one of `P` by `gemm`. Operand B is row-major or column-major.
fn matmul<T: LibraryFloat, P: Peer>([m, k, n]: [usize; 3], columns: bool) -> Result {
    let device = Device::cpu();
    let (a, b) = (numbers::<T>(m * k, 1), numbers::<T>(k * n, 2));
    let [operand_a, operand_b] =
        [&a, &b].map(|of| of.iter().map(|x| P::from_f64(x.to_f64())).collect::<Vec<P>>());
    let (a, b) = (device.upload(&a)?, device.upload(&b)?);
    let mut out = device.zeros::<T>(m * n)?;
    let mut theirs = vec![P::from_f64(0.0); m * n];
    let strides = if columns { [1, k] } else { [n, 1] };
    let mut ours = || -> Result {
        let b = b.view_strided([k, n], strides)?;
        Matmul::new(a.view([m, k])?, b).launch(&device, out.view_mut([m, n])?)?;
        Ok(())
    };
    let mut peer = || -> Result {
        // SAFETY: the pointers and strides are those of the matrices above.
        unsafe { P::multiply([m, k, n], &mut theirs, &operand_a, &operand_b, strides) };
        Ok(())
    };
    let times = shortest(&mut [&mut ours, &mut peer])?;
    let found = out.download()?;
    let unit = if T::DTYPE == DType::F32 { 1e-5 } else { 2e-2 };
    for (found, wanted) in found.iter().zip(&theirs) {
        let (found, wanted) = (found.to_f64(), wanted.to_f64());
        assert!(
            (found - wanted).abs() <= unit * (k as f64).sqrt().max(wanted.abs()),
            "{found} is not {wanted}"
        );
    }
    let rate = |seconds: f64| 2e-9 * (m * k * n) as f64 / seconds;
    let layout = if columns { ", b in columns" } else { "" };
    println!(
        "| {} | {m} x {k} x {n}{layout} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} |",
        T::DTYPE,
        times[0] * 1e6,
        rate(times[0]),
        times[1] * 1e6,
        rate(times[1]),
        times[1] / times[0],
    );
    Ok(())
}

/// An element type that `gemm` multiplies.
trait Peer: Copy + 'static {
    const ZERO: Self;
    const ONE: Self;
    fn from_f64(value: f64) -> Self;
    fn to_f64(self) -> f64;

    /// # Safety
    /// The slices hold matrices of these extents, the right one with these strides.
    unsafe fn multiply([m, k, n]: [usize; 3], out: &mut [Self], a: &[Self], b: &[Self], strides: [usize; 2]) {
        let [row, column] = strides.map(|stride| stride as isize);
        // SAFETY: the caller's word; the result's rows follow each other.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out.as_mut_ptr(),
                1,
                n as isize,
                false,
                a.as_ptr(),
                1,
                k as isize,
                b.as_ptr(),
                column,
                row,
                Self::ZERO,
                Self::ONE,
                false,
                false,
                false,
                Parallelism::Rayon(0),
            )
        }
    }
}

impl Peer for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Peer for gemm::f16 {
    const ZERO: gemm::f16 = gemm::f16::ZERO;
    const ONE: gemm::f16 = gemm::f16::ONE;
    fn from_f64(value: f64) -> gemm::f16 {
        gemm::f16::from_f64(value)
    }
    fn to_f64(self) -> f64 {
        self.to_f64()
    }
}

fn attention<T: HalfFloat>([heads, rows, elements]: [usize; 3]) -> Result {
    let device = Device::cpu();
    let shape = [heads, rows, elements];
    let inputs = [1, 2, 3].map(|seed| numbers::<T>(heads * rows * elements, seed));
    let wide = inputs.each_ref().map(|of| of.iter().map(|x| x.to_f64() as f32).collect::<Vec<f32>>());
    let cpu = candle_core::Device::Cpu;
    let [q, k, v] = wide.map(|of| Tensor::from_vec(of, (heads, rows, elements), &cpu));
    let single = [q?, k?, v?];
    let [q, k, v] = single.each_ref().map(|of| of.to_dtype(candle_core::DType::F16));
    let half = [q?, k?, v?];
    let [q, k, v] = inputs.each_ref().map(|of| device.upload(of));
    let [q, k, v] = [q?, k?, v?];
    let mut out = device.zeros::<T>(heads * rows * elements)?;
    let mut lse = device.zeros::<f32>(heads * rows)?;
    let mut ours = || -> Result {
        let attention = Attention::new(q.view(shape)?, k.view(shape)?, v.view(shape)?);
        attention.launch_with_lse(&device, out.view_mut(shape)?, &mut lse)?;
        Ok(())
    };
    let scale = 1.0 / (elements as f64).sqrt();
    let candle = |[q, k, v]: &[Tensor; 3]| -> Result<Tensor> {
        let scores = (q.matmul(&k.transpose(D::Minus1, D::Minus2)?)? * scale)?;
        Ok(candle_nn::ops::softmax_last_dim(&scores)?.matmul(v)?)
    };
    let mut with_half = || candle(&half).map(drop);
    let mut with_single = || candle(&single).map(drop);
    let times = shortest(&mut [&mut ours, &mut with_half, &mut with_single])?;
    let wanted = candle(&single)?.flatten_all()?.to_vec1::<f32>()?;
    for (found, wanted) in out.download()?.iter().zip(wanted) {
        let (found, wanted) = (found.to_f64(), f64::from(wanted));
        assert!((found - wanted).abs() < 1e-2, "{found} is not {wanted}");
    }
    let rate = 4e-9 * (heads * rows * rows * elements) as f64 / times[0];
    println!(
        "| {} | {heads} x {rows} x {elements} | {:.0} | {rate:.0} | {:.0} | {:.0} | {:.2} |",
        T::DTYPE,
        times[0] * 1e6,
        times[1] * 1e6,
        times[2] * 1e6,
        times[1].min(times[2]) / times[0],
    );
    Ok(())
}
