//! Measuring kernels, as Triton's `triton.testing.do_bench` does: warm up for some time, then repeat for some time, each
//! repetition on cold caches and timed by itself.
//!
//! On a GPU the times are the device's own, between two CUDA events on the stream; on the CPU they are wall-clock times.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream};
use rayon::iter::ParallelIterator;
use rayon::slice::ParallelSliceMut;

use crate::cuda::{CudaDevice, elapsed_ms};
use crate::device::On;
use crate::error::{Error, Result};
use crate::host::HostMemory;
use crate::stream::LaunchOn;
use crate::threads;

/// How long to measure, and on what caches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BenchOptions {
    /// How long to run before measuring, in milliseconds.
    pub warmup_ms: f64,
    /// How long to measure, in milliseconds; at least one repetition is made.
    pub rep_ms: f64,
    /// Bytes to clear before each repetition, so that it finds nothing of its own in the caches; with 0 they stay warm.
    pub flush_bytes: usize,
}

impl Default for BenchOptions {
    /// Triton's: 25 ms, 100 ms, 256 MB.
    fn default() -> Self {
        BenchOptions { warmup_ms: 25.0, rep_ms: 100.0, flush_bytes: 256_000_000 }
    }
}

/// The times of all repetitions, in milliseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Timing {
    samples: Vec<f64>,
    sorted: Vec<f64>,
}

/// Measures what `run` puts on the device or stream, which it must launch on itself: a launch on another stream is not
/// waited for.
///
/// ```
/// use dsl_runtime::bench::{BenchOptions, do_bench};
/// use dsl_runtime::Device;
///
/// let options = BenchOptions { warmup_ms: 1.0, rep_ms: 5.0, flush_bytes: 1 << 20 };
/// let source = vec![1.0f32; 1 << 16];
/// let mut target = vec![0.0f32; 1 << 16];
/// let timing = do_bench(&Device::cpu(), options, || {
///     target.copy_from_slice(&source);
///     Ok(())
/// })?;
/// println!("{:.3} ms, {:.1} GB/s", timing.median_ms(), timing.gb_per_s(2 * 4 << 16));
/// # Ok::<(), dsl_runtime::Error>(())
/// ```
///
/// # Errors
/// Those of `run`; if there is no memory to flush the caches with; a CUDA error.
pub fn do_bench(
    on: impl LaunchOn,
    options: BenchOptions,
    mut run: impl FnMut() -> Result<()>,
) -> Result<Timing> {
    do_bench_work(on.target().on, options, &mut run)
}

/// The same, compiled once for all closures.
fn do_bench_work(on: On<'_>, options: BenchOptions, work: &mut dyn BenchWork) -> Result<Timing> {
    match on {
        On::Cpu => measure(&mut CpuClock::new(options)?, options, work),
        On::Cuda(device, stream) => measure(&mut CudaClock::new(device, stream, options)?, options, work),
    }
}

/// What is measured.
pub(crate) trait BenchWork {
    /// Comes before each timed run, and is not timed.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn run(&mut self) -> Result<()>;
}

impl<F: FnMut() -> Result<()>> BenchWork for F {
    fn run(&mut self) -> Result<()> {
        self()
    }
}

/// Something that can tell how long work takes.
pub(crate) trait Clock {
    /// Prepares, evicts what the caches hold and runs the work, `times` times; says how long each run took, in
    /// milliseconds.
    fn time(&mut self, times: usize, work: &mut dyn BenchWork) -> Result<Vec<f64>>;

    /// How long `times` runs take together with the flushes before them, in milliseconds.
    fn time_with_flush(&mut self, times: usize, work: &mut dyn BenchWork) -> Result<f64>;
}

fn measure(clock: &mut impl Clock, options: BenchOptions, work: &mut dyn BenchWork) -> Result<Timing> {
    const TRIAL: usize = 5;
    clock.time_with_flush(1, work)?;
    let once_ms = clock.time_with_flush(TRIAL, work)? / TRIAL as f64;
    let repetitions = |ms: f64| ((ms / once_ms.max(1e-6)) as usize).clamp(1, 1_000_000);
    clock.time_with_flush(repetitions(options.warmup_ms), work)?;
    Ok(Timing::new(clock.time(repetitions(options.rep_ms), work)?))
}

pub(crate) struct CpuClock {
    flushed: HostMemory<u8>,
}

impl CpuClock {
    pub(crate) fn new(options: BenchOptions) -> Result<Self> {
        threads::count()?;
        Ok(CpuClock { flushed: HostMemory::zeros(options.flush_bytes)? })
    }

    /// On all threads, as each core has caches of its own.
    fn flush(&mut self) {
        self.flushed.par_chunks_mut(1 << 20).for_each(|chunk| chunk.fill(0));
        std::hint::black_box(&*self.flushed);
    }
}

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

impl Clock for CpuClock {
    fn time(&mut self, times: usize, work: &mut dyn BenchWork) -> Result<Vec<f64>> {
        let mut samples = Vec::with_capacity(times);
        for _ in 0..times {
            work.prepare()?;
            self.flush();
            let start = Instant::now();
            work.run()?;
            samples.push(ms_since(start));
        }
        Ok(samples)
    }

    fn time_with_flush(&mut self, times: usize, work: &mut dyn BenchWork) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..times {
            self.flush();
            work.run()?;
        }
        Ok(ms_since(start))
    }
}

pub(crate) struct CudaClock<'s> {
    device: &'static CudaDevice,
    stream: &'s Arc<CudaStream>,
    flushed: CudaSlice<u8>,
}

impl<'s> CudaClock<'s> {
    pub(crate) fn new(
        device: &'static CudaDevice,
        stream: &'s Arc<CudaStream>,
        options: BenchOptions,
    ) -> Result<Self> {
        Ok(CudaClock { device, stream, flushed: device.zeros_of(stream, options.flush_bytes)? })
    }

    fn flush(&mut self) -> Result<()> {
        if self.flushed.is_empty() {
            return Ok(());
        }
        self.stream.memset_zeros(&mut self.flushed).map_err(Error::cuda("cuMemsetD8Async"))
    }

    fn event(&self) -> Result<CudaEvent> {
        let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
        self.device.context.new_event(timed).map_err(Error::cuda("cuEventCreate"))
    }

    fn record(&self, event: &CudaEvent) -> Result<()> {
        event.record(self.stream).map_err(|error| self.device.failed("cuEventRecord", error))
    }
}

impl Clock for CudaClock<'_> {
    fn time(&mut self, times: usize, work: &mut dyn BenchWork) -> Result<Vec<f64>> {
        let pair = |_| Ok((self.event()?, self.event()?));
        let events: Vec<_> = (0..times).map(pair).collect::<Result<_>>()?;
        for (start, end) in &events {
            work.prepare()?;
            self.flush()?;
            self.record(start)?;
            work.run()?;
            self.record(end)?;
        }
        self.device.synchronize_stream(self.stream)?;
        events.iter().map(|(start, end)| Ok(f64::from(elapsed_ms(start, end)?))).collect()
    }

    fn time_with_flush(&mut self, times: usize, work: &mut dyn BenchWork) -> Result<f64> {
        let (start, end) = (self.event()?, self.event()?);
        self.device.synchronize_stream(self.stream)?;
        self.record(&start)?;
        for _ in 0..times {
            self.flush()?;
            work.run()?;
        }
        self.record(&end)?;
        Ok(f64::from(elapsed_ms(&start, &end)?))
    }
}

impl Timing {
    fn new(samples: Vec<f64>) -> Self {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        Timing { samples, sorted }
    }

    /// All times in milliseconds, in the order measured; there is at least one.
    pub fn samples(&self) -> &[f64] {
        &self.samples
    }

    /// The median, in milliseconds.
    pub fn median_ms(&self) -> f64 {
        self.quantile_ms(0.5)
    }

    /// The time that a share `q` of all repetitions did not exceed, in milliseconds, interpolated between the two
    /// nearest; `q` is taken into 0 to 1.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        let last = self.sorted.len() - 1;
        let position = q.clamp(0.0, 1.0) * last as f64;
        let (below, share) = (position.floor() as usize, position.fract());
        let above = (below + 1).min(last);
        self.sorted[below] + (self.sorted[above] - self.sorted[below]) * share
    }

    /// The shortest, in milliseconds.
    pub fn min_ms(&self) -> f64 {
        self.sorted[0]
    }

    /// The longest, in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The arithmetic mean, in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.samples.iter().sum::<f64>() / self.samples.len() as f64
    }

    /// The median's bandwidth for so many bytes read and written, in GB/s (10^9 bytes per second).
    pub fn gb_per_s(&self, bytes: usize) -> f64 {
        gb_per_s(bytes, self.median_ms())
    }

    /// The median's arithmetic rate for so many floating-point operations, in TFLOP/s (10^12 per second); a fused
    /// multiply-add counts as two.
    pub fn tflops(&self, operations: f64) -> f64 {
        operations / (self.median_ms() * 1e-3) / 1e12
    }
}

/// The bandwidth of moving so many bytes in so many milliseconds, in GB/s (10^9 bytes per second).
pub fn gb_per_s(bytes: usize, ms: f64) -> f64 {
    bytes as f64 / (ms * 1e-3) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn statistics() {
        let timing = Timing::new(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!(timing.samples(), [4.0, 1.0, 2.0, 3.0]);
        assert_eq!((timing.min_ms(), timing.median_ms(), timing.max_ms()), (1.0, 2.5, 4.0));
        assert_eq!((timing.quantile_ms(0.25), timing.mean_ms()), (1.75, 2.5));
        assert_eq!((timing.quantile_ms(-1.0), timing.quantile_ms(2.0)), (1.0, 4.0));
        assert_eq!(Timing::new(vec![7.0]).quantile_ms(0.9), 7.0);
        assert_eq!(timing.gb_per_s(5_000_000), 2.0);
        assert_eq!(timing.tflops(5e9), 2.0);
    }

    #[test]
    fn repetitions_follow_from_the_time_that_one_takes() {
        let options = BenchOptions { warmup_ms: 1.0, rep_ms: 20.0, flush_bytes: 0 };
        let mut runs = 0;
        let timing = do_bench(&Device::cpu(), options, || {
            runs += 1;
            std::thread::sleep(std::time::Duration::from_millis(2));
            Ok(())
        })
        .unwrap();
        assert!((1..=10).contains(&timing.samples().len()), "{} samples", timing.samples().len());
        assert!(runs >= timing.samples().len() + 7, "{runs} runs");
        assert!(timing.min_ms() >= 2.0, "{timing:?}");
    }

    #[test]
    fn an_error_of_the_work_ends_the_measurement() {
        let options = BenchOptions { flush_bytes: 0, ..BenchOptions::default() };
        let mut runs = 0;
        let failed = do_bench(&Device::cpu(), options, || {
            runs += 1;
            Err(Error::NoDriver)
        });
        assert_eq!((failed.unwrap_err(), runs), (Error::NoDriver, 1));
    }
}
