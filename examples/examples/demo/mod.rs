//! What the demos share: where to run, `.npy` files in and out, random data, and the report.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use dsl_runtime::bench::{BenchOptions, Timing, do_bench};
use dsl_runtime::prelude::*;
use fused_kernels::reference::{Expected, compare};
use npyz::WriterBuilder;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand_distr::{Distribution, StandardNormal};

/// The options of every demo.
#[derive(Parser, Clone, Debug)]
pub struct Common {
    /// The element type; files of another float type are converted
    #[arg(long, default_value = "f32")]
    pub dtype: Type,
    /// Where to run: best, cpu, cuda or cuda:1
    #[arg(long, default_value = "best", value_parser = device)]
    pub device: Device,
    /// Writes the result to this .npy file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Computes and checks, and measures nothing
    #[arg(long)]
    pub once: bool,
}

/// The element types that the kernels are built for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Type {
    F32,
    F16,
    Bf16,
}

fn device(name: &str) -> Result<Device> {
    let ordinal = name.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
    Ok(match (name, ordinal) {
        ("best", _) => Device::best()?,
        ("cpu", _) => Device::cpu(),
        ("cuda", _) => Device::cuda(0)?,
        (_, Some(ordinal)) => Device::cuda(ordinal)?,
        _ => bail!("devices are best, cpu, cuda and cuda:1"),
    })
}

/// A matrix in row-major order.
pub struct Matrix<T> {
    pub rows: usize,
    pub cols: usize,
    pub elements: Vec<T>,
}

impl<T: Float> Matrix<T> {
    /// Normally distributed, the same for the same seed.
    pub fn normal(rows: usize, cols: usize, seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed);
        let values = StandardNormal.sample_iter(rng).take(rows * cols);
        Matrix { rows, cols, elements: values.map(|value: f64| T::from_f64(value)).collect() }
    }

    /// The array of a `.npy` file; all axes but the last are its rows.
    pub fn read(path: &Path) -> Result<Self> {
        let of_file = || path.display().to_string();
        let file = File::open(path).with_context(of_file)?;
        let npy = npyz::NpyFile::new(BufReader::new(file)).with_context(of_file)?;
        if npy.order() == npyz::Order::Fortran && npy.shape().len() > 1 {
            bail!("{}: the array is in column-major order; save np.ascontiguousarray(it)", path.display());
        }
        let cols = npy.shape().last().map_or(1, |&cols| cols as usize);
        let (dtype, len) = (npy.dtype().descr(), npy.len() as usize);
        let elements = elements(npy).with_context(|| format!("{}: elements are {dtype}", path.display()))?;
        Ok(Matrix { rows: len.checked_div(cols).unwrap_or(0), cols, elements })
    }

    /// The file's array if there is a file, and random elements otherwise.
    pub fn read_or_normal(path: Option<&Path>, shape: (usize, usize), seed: u64) -> Result<Self> {
        path.map_or_else(|| Ok(Matrix::normal(shape.0, shape.1, seed)), Matrix::read)
    }

    /// Writes a `.npy` file, of `f16` for `f16` and of `f32` otherwise, which holds every `bf16` exactly.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut file = BufWriter::new(File::create(path).with_context(|| path.display().to_string())?);
        let shape = [self.rows as u64, self.cols as u64];
        let values = self.elements.iter().map(|element| element.to_f64());
        if T::DTYPE == DType::F16 {
            let builder = npyz::WriteOptions::new().default_dtype().shape(&shape);
            let mut writer = builder.writer(&mut file).begin_nd()?;
            writer.extend(values.map(f16::from_f64))?;
            writer.finish()?;
        } else {
            let builder = npyz::WriteOptions::new().default_dtype().shape(&shape);
            let mut writer = builder.writer(&mut file).begin_nd()?;
            writer.extend(values.map(|value| value as f32))?;
            writer.finish()?;
        }
        file.flush().with_context(|| path.display().to_string())
    }
}

/// Whatever float type the file has, as `T`.
fn elements<T: Float>(npy: npyz::NpyFile<BufReader<File>>) -> Result<Vec<T>> {
    let npyz::DType::Plain(plain) = npy.dtype() else { bail!("not a plain type") };
    Ok(match (plain.type_char(), plain.size_field()) {
        (npyz::TypeChar::Float, 2) => {
            npy.into_vec::<f16>()?.iter().map(|v| T::from_f64(v.to_f64())).collect()
        }
        (npyz::TypeChar::Float, 4) => {
            npy.into_vec::<f32>()?.iter().map(|v| T::from_f64(v.to_f64())).collect()
        }
        (npyz::TypeChar::Float, 8) => npy.into_vec::<f64>()?.iter().map(|&v| T::from_f64(v)).collect(),
        _ => bail!("float16, float32 and float64 are read"),
    })
}

/// Launches an operation with this result: one type for all closures, so that a demo is compiled once for each element type.
pub type DynLaunch<'l, T> = dyn FnMut(&Device, &mut Buffer<T>) -> dsl_runtime::Result<()> + 'l;

/// One run of a demo.
pub struct Demo<'d> {
    pub common: &'d Common,
    /// The operation and its shapes.
    pub title: String,
    /// The bytes that it must move.
    pub traffic: usize,
}

impl Demo<'_> {
    /// Runs the operation, compares its result with what was expected, measures it, and prints all of that.
    pub fn run<T: Float>(
        &self,
        out: &mut Matrix<T>,
        expected: &[Expected],
        launch: &mut DynLaunch<T>,
    ) -> Result<()> {
        let device = self.common.device;
        let mut print = std::io::stdout().lock();
        writeln!(print, "{}", self.title)?;
        writeln!(print, "  device     {device}: {}", device.name())?;

        let mut memory = device.upload(&vec![T::from_f64(f64::NAN); expected.len()])?;
        launch(&device, &mut memory)?;
        out.elements = memory.download()?;
        let deviation =
            compare(&out.elements, expected).map_err(anyhow::Error::msg).context("wrong result")?;
        writeln!(
            print,
            "  error      at most {:.2e} against float64, {:.0} % of what rounding allows",
            deviation.max_error,
            100.0 * deviation.max_share
        )?;

        if !self.common.once {
            let options = BenchOptions { warmup_ms: 200.0, rep_ms: 1000.0, ..BenchOptions::default() };
            let timing = do_bench(&device, options, || launch(&device, &mut memory))?;
            self.report(&timing, &mut print)?;
        }
        if let Some(path) = &self.common.output {
            out.write(path)?;
            writeln!(print, "  output     {}", path.display())?;
        }
        Ok(())
    }

    fn report(&self, timing: &Timing, print: &mut impl Write) -> Result<()> {
        let (low, high) = (timing.quantile_ms(0.2), timing.quantile_ms(0.8));
        writeln!(
            print,
            "  time       {:.4} ms, the median of {} runs on cold caches (20 % to 80 %: {low:.4} to {high:.4})",
            timing.median_ms(),
            timing.samples().len()
        )?;
        writeln!(
            print,
            "  bandwidth  {:.1} GB/s for the {:.1} MB that must be read and written",
            timing.gb_per_s(self.traffic),
            self.traffic as f64 / 1e6
        )?;
        Ok(())
    }
}
