//! Launching: what the code that `#[fuse_kernel]` generates calls.
//!
//! A [`Launch`] holds a kernel's variant, its arguments and a grid. `.launch(&device)` checks them, selects the best code
//! for the device and the first specialization whose guards hold, and runs it. Nothing is allocated on the way, unless a trace is
//! asked for or the variant is to be chosen by measured time or by the device.

mod arg;
mod call;
pub(crate) mod cpu;
mod cuda;
mod driver;
mod environment;
mod param;
mod run;
mod tensor_map;
mod trace;
mod trials;

#[cfg(test)]
mod cpu_tests;
#[cfg(test)]
mod cuda_tests;
#[cfg(test)]
mod stream_order_tests;
#[cfg(test)]
mod work_counter_tests;

#[cfg(test)]
pub(crate) use cuda_tests::{exclusive, gpu};

pub use arg::{Arg, ViewArgs};
pub(crate) use environment::blocking;
pub use param::{IntoSlice, IntoSliceMut, IntoView, IntoViewMut};
pub use trace::{NarrowAccess, SpecializationTrace, Trace, trace_choice};

use crate::device::On;
use crate::error::{Error, Result};
use crate::grid::IntoGrid;
use crate::guard::KernelArg;
use crate::kernel::{Kernel, MAX_MAPS, Variant};
use crate::select_variant::Chosen;
use crate::stream::{LaunchOn, Target};
use crate::tune::{self, TuneRequest, TuningSpace};
use call::{GridSpec, KernelCall};
use run::run;
use trials::TrialCalls;

/// A call of a kernel that was not made yet: give it a [`grid`](Launch::grid), then [`launch`](Launch::launch) it.
///
/// It borrows its arguments as any call would. On a GPU the launch returns before the kernel has run; later uses of the
/// same memory, also on other streams, wait for it by themselves.
#[must_use = "a kernel runs when it is launched: `.grid(..).launch(&device)?`"]
pub struct Launch<'a, const N: usize> {
    kernel: &'static Kernel,
    selection: VariantSelection<'a>,
    args: [Arg<'a>; N],
    grid_spec: GridSpec<'a>,
}

/// The variant of a launch.
enum VariantSelection<'a> {
    Fixed(&'static Variant),
    /// To be chosen by measured time.
    Tuned(Box<TuningSpace>),
    /// To be chosen once the device is known.
    ByDevice(Box<DeviceChoice<'a>>),
    /// The error of choosing one at run time waits for the launch.
    Failed(Box<Error>),
}

/// The variant for a device.
type DeviceChoice<'a> = dyn Fn(Target<'_>) -> Result<&'static Variant> + Send + Sync + 'a;

impl<'a> VariantSelection<'a> {
    fn failed(error: Error) -> Self {
        VariantSelection::Failed(Box::new(error))
    }

    fn of(variant: Result<&'static Variant>) -> Self {
        variant.map_or_else(Self::failed, VariantSelection::Fixed)
    }
}

/// The variant, if its label has each part of `config`.
fn only_one(kernel: &'static Kernel, variant: &'static Variant, config: &str) -> Result<&'static Variant> {
    TuningSpace { candidates: vec![variant], key: vec![] }.only(kernel, config).map(|_| variant)
}

impl<'a, const N: usize> Launch<'a, N> {
    /// A call of one variant of a kernel with these arguments, in the order of its parameters. A variant that could not
    /// be chosen becomes the error of the launch.
    ///
    /// # Safety
    /// The kernel's code must do what its description says: take such arguments, write through `&mut` parameters only,
    /// and touch no memory outside of them. What `#[fuse_kernel]` generates does. That the arguments are of the number,
    /// kinds and types that the variant takes, and on the right device, is checked at launch.
    #[inline]
    pub unsafe fn new(
        kernel: &'static Kernel,
        variant: Result<&'static Variant>,
        args: [Arg<'a>; N],
    ) -> Self {
        Launch { kernel, selection: VariantSelection::of(variant), args, grid_spec: GridSpec::Missing }
    }

    /// A call of a kernel whose variant follows from the device too.
    ///
    /// # Safety
    /// That of [`Launch::new`], for every variant that `choose` gives.
    pub unsafe fn by_device(
        kernel: &'static Kernel,
        choose: impl Fn(Target<'_>) -> Result<&'static Variant> + Send + Sync + 'a,
        args: [Arg<'a>; N],
    ) -> Self {
        let selection = VariantSelection::ByDevice(Box::new(choose));
        Launch { kernel, selection, args, grid_spec: GridSpec::Missing }
    }

    /// A call of a kernel whose variant is to be chosen by measured time, see [`crate::tune`].
    ///
    /// # Safety
    /// That of [`Launch::new`], for every variant that is open.
    pub unsafe fn tuned(kernel: &'static Kernel, space: Result<TuningSpace>, args: [Arg<'a>; N]) -> Self {
        let selection =
            space.map_or_else(VariantSelection::failed, |space| VariantSelection::Tuned(Box::new(space)));
        Launch { kernel, selection, args, grid_spec: GridSpec::Missing }
    }

    /// Of a tuned kernel, the configs whose label has each of these parts: `"BLOCK = 1024, num_warps = 4"`. One that is
    /// left is launched without measuring; if none is, that is an error of the launch.
    pub fn only(mut self, config: &str) -> Self {
        self.selection = match self.selection {
            VariantSelection::Tuned(space) => space
                .only(self.kernel, config)
                .map_or_else(VariantSelection::failed, |space| VariantSelection::Tuned(Box::new(space))),
            VariantSelection::Fixed(variant) => VariantSelection::of(only_one(self.kernel, variant, config)),
            VariantSelection::ByDevice(choose) => {
                let (kernel, config) = (self.kernel, config.to_string());
                let choose = move |target: Target<'_>| only_one(kernel, choose(target)?, &config);
                VariantSelection::ByDevice(Box::new(choose))
            }
            failed @ VariantSelection::Failed(_) => failed,
        };
        self
    }

    /// How many programs run: `n`, `(n, m)` or `(n, m, k)`, in integers of any type. A number that no device can run is
    /// an error of the launch.
    #[inline]
    pub fn grid(mut self, grid: impl IntoGrid) -> Self {
        self.grid_spec = GridSpec::Fixed(grid.into_grid());
        self
    }

    /// How many programs run, where that follows from what was chosen: `|chosen| n.div_ceil(chosen.constant("BLOCK"))`.
    pub fn grid_by<G: IntoGrid>(mut self, grid: impl Fn(Chosen) -> G + Send + Sync + 'a) -> Self {
        self.grid_spec = GridSpec::PerVariant(Box::new(move |chosen| grid(chosen).into_grid()));
        self
    }

    /// Runs the kernel on a device (`&device`, on its default stream) or on a stream (`&stream`).
    ///
    /// On the CPU it has run when this returns. On a GPU it was enqueued; a fault inside the kernel, or in a debug build
    /// an access outside a slice, is reported by a later call that waits for it, unless `FUSE_LAUNCH_BLOCKING=1` is set. `FUSE_TRACE=1` prints a line per launch. With an extent of 0
    /// there is nothing to run.
    ///
    /// # Errors
    /// If an argument is on another device or of another type than the variant takes, if there is no grid or it is too
    /// large, if there is no code for the device; a CUDA error. On the CPU, in a debug build, an access outside a slice.
    pub fn launch(mut self, on: impl LaunchOn) -> Result<()> {
        let target = on.target();
        let on = target.on;
        let mut call = self.check(target)?;
        if call.grid.contains(&0) {
            return Ok(());
        }
        if let VariantSelection::Tuned(space) = &self.selection
            && space.candidates.len() > 1
        {
            let mut calls = TrialCalls {
                kernel: self.kernel,
                candidates: &space.candidates,
                grid_spec: &self.grid_spec,
                target,
                args: &mut self.args,
                saved: Vec::new(),
                clock: None,
            };
            let variant =
                tune::tuner()?.choose(TuneRequest { kernel: self.kernel, space, on }, &mut calls)?;
            call = KernelCall { variant, grid: self.grid_spec.of(self.kernel, variant, on)?, ..call };
        }
        run(call, target, &mut self.args)
    }

    /// What [`launch`](Launch::launch) would run there and why, without running it. On a GPU this loads the code. Of a
    /// tuned kernel that was not measured yet, the first config.
    ///
    /// # Errors
    /// Those of the launch.
    pub fn trace(&mut self, on: impl LaunchOn) -> Result<Trace> {
        let target = on.target();
        let Target { on, recorder } = target;
        let mut call = self.check(target)?;
        if let VariantSelection::Tuned(space) = &self.selection
            && space.candidates.len() > 1
        {
            let variant = tune::tuner()?.peek(TuneRequest { kernel: self.kernel, space, on })?;
            call = KernelCall { variant, grid: self.grid_spec.of(self.kernel, variant, on)?, ..call };
        }
        match on {
            On::Cpu => cpu::trace(call),
            On::Cuda(device, stream) => {
                let mut frame = cuda::LaunchFrame {
                    kernel_args: &mut [KernelArg::Scalar { dtype: crate::DType::Bool, bits: 0 }; N],
                    uses: &mut [const { None }; N],
                    values: &mut [],
                    maps: &mut [const { None }; MAX_MAPS],
                    pointers: &mut [],
                };
                let launch_stream = cuda::LaunchStream { device, stream, captured: recorder.is_some() };
                cuda::trace(call, launch_stream, &mut self.args, &mut frame)
            }
        }
    }

    /// The call if it can be made; of several variants, which take the same arguments, the first.
    fn check(&self, target: Target<'_>) -> Result<KernelCall> {
        let on = target.on;
        let variant = match &self.selection {
            VariantSelection::Fixed(variant) => variant,
            VariantSelection::Tuned(space) => space.candidates[0],
            VariantSelection::ByDevice(choose) => choose(target)?,
            VariantSelection::Failed(error) => return Err(Error::clone(error)),
        };
        arg::check(self.kernel, variant, &self.args, on)?;
        Ok(KernelCall { kernel: self.kernel, variant, grid: self.grid_spec.of(self.kernel, variant, on)? })
    }
}
