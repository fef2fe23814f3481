//! A launch that is repeated to find its fastest variant: the devices and arguments behind `tune`.

use cudarc::driver::CudaSlice;
use cudarc::driver::sys::CUstreamCaptureStatus;

use super::arg::{Arg, ArgValue};
use super::call::{GridSpec, KernelCall};
use super::run::run;
use crate::bench::{BenchOptions, BenchWork, Clock, CpuClock, CudaClock};
use crate::device::On;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};
use crate::slice::UniqueBytes;
use crate::stream::Target;
use crate::tune::{self, Output, Ready, Trials};

/// One call, to be run as each of several variants.
pub(super) struct TrialCalls<'c, 'a, const N: usize> {
    pub(super) kernel: &'static Kernel,
    pub(super) candidates: &'c [&'static Variant],
    pub(super) grid_spec: &'c GridSpec<'a>,
    pub(super) target: Target<'c>,
    pub(super) args: &'c mut [Arg<'a>; N],
    /// The initial contents of the outputs, by argument.
    pub(super) saved: Vec<(usize, SavedOutput)>,
    pub(super) clock: Option<Timer<'c>>,
}

pub(super) enum SavedOutput {
    Host(Vec<u8>),
    Cuda(CudaSlice<u8>),
}

pub(super) enum Timer<'c> {
    Cpu(CpuClock),
    Cuda(CudaClock<'c>),
}

impl<const N: usize> TrialCalls<'_, '_, N> {
    fn launch(&mut self, candidate: usize) -> Result<()> {
        let variant = self.candidates[candidate];
        let grid = self.grid_spec.of(self.kernel, variant, self.target.on)?;
        run(KernelCall { kernel: self.kernel, variant, grid }, self.target, self.args)
    }

    fn wait(&self) -> Result<()> {
        match self.target.on {
            On::Cpu => Ok(()),
            On::Cuda(device, stream) => device.synchronize_stream(stream),
        }
    }

    fn save(&mut self) -> Result<()> {
        for (position, arg) in self.args.iter_mut().enumerate() {
            let ArgValue::Unique(bytes) = &mut arg.value else { continue };
            let copy = match (bytes, self.target.on) {
                (UniqueBytes::Host(bytes), _) => SavedOutput::Host(copy_of(bytes)?),
                (UniqueBytes::Cuda(view), On::Cuda(device, stream)) => {
                    SavedOutput::Cuda(device.copy_of_bytes(view, stream)?)
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

impl<const N: usize> tune::TunableCall for TrialCalls<'_, '_, N> {
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
            let ArgValue::Unique(bytes) = &mut self.args[*position].value else { continue };
            match (bytes, saved, self.target.on) {
                (UniqueBytes::Host(bytes), SavedOutput::Host(saved), _) => bytes.copy_from_slice(saved),
                (UniqueBytes::Cuda(view), SavedOutput::Cuda(saved), On::Cuda(device, stream)) => {
                    device.copy_back(saved, view, stream)?;
                }
                _ => unreachable!("an output is where its copy is"),
            }
        }
        Ok(())
    }
}

impl<const N: usize> Trials for TrialCalls<'_, '_, N> {
    fn run(&mut self, candidate: usize) -> Result<Vec<Output>> {
        tune::TunableCall::restore(self)?;
        self.launch(candidate)?;
        self.wait()?;
        let mut outputs = Vec::with_capacity(self.saved.len());
        for (position, _) in &self.saved {
            let Arg { dtype, value, .. } = &self.args[*position];
            let bytes = match value {
                ArgValue::Unique(UniqueBytes::Host(bytes)) => copy_of(bytes)?,
                ArgValue::Unique(UniqueBytes::Cuda(view)) => crate::cuda::download_bytes(view)?,
                ArgValue::Shared(_) | ArgValue::Scalar(_) => continue,
            };
            outputs.push(Output { dtype: *dtype, bytes });
        }
        Ok(outputs)
    }

    fn time(&mut self, candidate: usize, times: usize) -> Result<Vec<f64>> {
        let Some(mut clock) = self.clock.take() else { return Ok(Vec::new()) };
        let mut repeated = RepeatedCall { calls: self, candidate };
        let samples = match &mut clock {
            Timer::Cpu(clock) => clock.time(times, &mut repeated),
            Timer::Cuda(clock) => clock.time(times, &mut repeated),
        };
        self.clock = Some(clock);
        samples
    }
}

/// One candidate, for a clock.
struct RepeatedCall<'r, 'c, 'a, const N: usize> {
    calls: &'r mut TrialCalls<'c, 'a, N>,
    candidate: usize,
}

impl<const N: usize> BenchWork for RepeatedCall<'_, '_, '_, N> {
    fn prepare(&mut self) -> Result<()> {
        tune::TunableCall::restore(self.calls)
    }

    fn run(&mut self) -> Result<()> {
        self.calls.launch(self.candidate)
    }
}
