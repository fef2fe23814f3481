//! A launch that is repeated to find its fastest variant: what `tune` needs to know of devices and arguments.

use cudarc::driver::CudaSlice;
use cudarc::driver::sys::CUstreamCaptureStatus;

use super::arg::{Arg, Value};
use super::{Call, Extents, run};
use crate::bench::{BenchOptions, Clock, CpuClock, CudaClock, Work};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};
use crate::slice::UniqueBytes;
use crate::stream::{On, Target};
use crate::tune::{self, Output, Ready, Trials};

/// One call, to be run as each of several variants.
pub(super) struct Calls<'c, 'a, const N: usize> {
    pub(super) kernel: &'static Kernel,
    pub(super) candidates: &'c [&'static Variant],
    pub(super) extents: &'c Extents<'a>,
    pub(super) target: Target<'c>,
    pub(super) args: &'c mut [Arg<'a>; N],
    /// What the outputs held at first, by argument.
    pub(super) saved: Vec<(usize, Saved)>,
    pub(super) clock: Option<Timer<'c>>,
}

pub(super) enum Saved {
    Host(Vec<u8>),
    Cuda(CudaSlice<u8>),
}

pub(super) enum Timer<'c> {
    Cpu(CpuClock),
    Cuda(CudaClock<'c>),
}

impl<const N: usize> Calls<'_, '_, N> {
    fn launch(&mut self, candidate: usize) -> Result<()> {
        let variant = self.candidates[candidate];
        let grid = self.extents.of(self.kernel, variant, self.target.on)?;
        run(Call { kernel: self.kernel, variant, grid }, self.target, self.args)
    }

    fn wait(&self) -> Result<()> {
        match self.target.on {
            On::Cpu => Ok(()),
            On::Cuda(device, stream) => device.synchronize_stream(stream),
        }
    }

    fn save(&mut self) -> Result<()> {
        for (position, arg) in self.args.iter_mut().enumerate() {
            let Value::Unique(bytes) = &mut arg.value else { continue };
            let copy = match (bytes, self.target.on) {
                (UniqueBytes::Host(bytes), _) => Saved::Host(copy_of(bytes)?),
                (UniqueBytes::Cuda(view), On::Cuda(device, stream)) => {
                    Saved::Cuda(device.copy_of_bytes(view, stream)?)
                }
                (UniqueBytes::Cuda(_), On::Cpu) => unreachable!("`arg::check` found GPU memory"),
            };
            self.saved.push((position, copy));
        }
        self.wait()
    }
}

/// A CPU's caches are kept warm: to clear them takes longer than most kernels.
const WARM: BenchOptions = BenchOptions { warmup_ms: 0.0, rep_ms: 0.0, flush_bytes: 0 };

fn copy_of(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Error::OutOfMemory {
        device: "the host".to_string(),
        bytes: bytes.len() as u128,
        free: None,
    })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl<const N: usize> tune::Call for Calls<'_, '_, N> {
    fn prepare(&mut self) -> Result<Ready> {
        if self.target.recorder.is_some() {
            return Ok(Ready::No("its stream is being captured".to_string()));
        }
        if let On::Cuda(device, stream) = self.target.on {
            let status = stream.capture_status().map_err(Error::cuda("cuStreamIsCapturing"))?;
            if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
                return Ok(Ready::No("its stream is being captured".to_string()));
            }
            // Whatever earlier launches have to report is not the fault of a config.
            device.synchronize()?;
        }
        match self.save() {
            Ok(()) => {}
            Err(Error::OutOfMemory { .. }) => {
                self.saved.clear();
                return Ok(Ready::No("there is no memory to keep its outputs".to_string()));
            }
            Err(error) => return Err(error),
        }
        self.clock = Some(match self.target.on {
            On::Cpu => Timer::Cpu(CpuClock::new(WARM)?),
            On::Cuda(device, stream) => {
                let cold = CudaClock::new(device, stream, BenchOptions::default());
                Timer::Cuda(cold.or_else(|_| CudaClock::new(device, stream, WARM))?)
            }
        });
        Ok(Ready::Yes)
    }

    fn restore(&mut self) -> Result<()> {
        for (position, saved) in &self.saved {
            let Value::Unique(bytes) = &mut self.args[*position].value else { continue };
            match (bytes, saved, self.target.on) {
                (UniqueBytes::Host(bytes), Saved::Host(saved), _) => bytes.copy_from_slice(saved),
                (UniqueBytes::Cuda(view), Saved::Cuda(saved), On::Cuda(device, stream)) => {
                    device.copy_back(saved, view, stream)?;
                }
                _ => unreachable!("an output is where its copy is"),
            }
        }
        Ok(())
    }
}

impl<const N: usize> Trials for Calls<'_, '_, N> {
    fn run(&mut self, candidate: usize) -> Result<Vec<Output>> {
        tune::Call::restore(self)?;
        self.launch(candidate)?;
        self.wait()?;
        let mut outputs = Vec::with_capacity(self.saved.len());
        for (position, _) in &self.saved {
            let Arg { dtype, value, .. } = &self.args[*position];
            let bytes = match value {
                Value::Unique(UniqueBytes::Host(bytes)) => copy_of(bytes)?,
                Value::Unique(UniqueBytes::Cuda(view)) => crate::cuda::download_bytes(view)?,
                Value::Shared(_) | Value::Scalar(_) => continue,
            };
            outputs.push(Output { dtype: *dtype, bytes });
        }
        Ok(outputs)
    }

    fn time(&mut self, candidate: usize, times: usize) -> Result<Vec<f64>> {
        let Some(mut clock) = self.clock.take() else { return Ok(Vec::new()) };
        let mut repeated = Repeated { calls: self, candidate };
        let samples = match &mut clock {
            Timer::Cpu(clock) => clock.time(times, &mut repeated),
            Timer::Cuda(clock) => clock.time(times, &mut repeated),
        };
        self.clock = Some(clock);
        samples
    }
}

/// One candidate, for a clock.
struct Repeated<'r, 'c, 'a, const N: usize> {
    calls: &'r mut Calls<'c, 'a, N>,
    candidate: usize,
}

impl<const N: usize> Work for Repeated<'_, '_, '_, N> {
    fn prepare(&mut self) -> Result<()> {
        tune::Call::restore(self.calls)
    }

    fn run(&mut self) -> Result<()> {
        self.calls.launch(self.candidate)
    }
}
