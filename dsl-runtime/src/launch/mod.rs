//! Launching: what the code that `#[fuse_kernel]` generates calls.
//!
//! A [`Launch`] holds a kernel's variant, its arguments and a grid. `.launch(&device)` checks them, selects the best code
//! for the device and the first specialization whose guards hold, and runs it. Nothing is allocated on the way, unless a trace is
//! asked for or the variant is to be chosen by measured time.

mod arg;
pub(crate) mod cpu;
mod cuda;
mod driver;
mod param;
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
pub use param::{IntoSlice, IntoSliceMut, IntoView, IntoViewMut};
pub use trace::{NarrowAccess, SpecializationTrace, Trace, trace_choice};

use crate::error::{Error, Result};
use crate::graph::{self, MemoryRange, RecordedLaunch, RecordedWork};
use crate::grid::{Grid, IntoGrid};
use crate::guard::KernelArg;
use crate::kernel::{Kernel, MAX_MAPS, Variant};
use crate::select_variant::Chosen;
use crate::stream::{LaunchOn, On, Target};
use crate::tune::{self, TuneRequest, TuningSpace};
use trials::TrialCalls;

/// A call of a kernel that was not made yet: give it a [`grid`](Launch::grid), then [`launch`](Launch::launch) it.
///
/// It borrows its arguments as any call would. On a GPU the launch returns before the kernel has run; later uses of the
/// same memory, also on other streams, wait for it by themselves.
#[must_use = "a kernel runs when it is launched: `.grid(..).launch(&device)?`"]
pub struct Launch<'a, const N: usize> {
    kernel: &'static Kernel,
    selection: VariantSelection,
    args: [Arg<'a>; N],
    grid_spec: GridSpec<'a>,
}

/// The variant of a launch.
enum VariantSelection {
    Fixed(&'static Variant),
    /// To be chosen by measured time.
    Tuned(Box<TuningSpace>),
    /// The error of choosing one at run time waits for the launch.
    Failed(Box<Error>),
}

impl VariantSelection {
    fn failed(error: Error) -> VariantSelection {
        VariantSelection::Failed(Box::new(error))
    }
}

/// The grid of a launch.
enum GridSpec<'a> {
    Missing,
    Fixed(Grid),
    /// A function of the chosen variant.
    PerVariant(Box<dyn Fn(Chosen) -> Grid + Send + Sync + 'a>),
}

impl GridSpec<'_> {
    fn of(&self, kernel: &'static Kernel, variant: &'static Variant, on: On<'_>) -> Result<[u32; 3]> {
        match self {
            GridSpec::Missing => Err(Error::NoGrid { kernel: kernel.name }),
            GridSpec::Fixed(grid) => grid.check(kernel),
            GridSpec::PerVariant(grid) => {
                grid(Chosen { kernel, variant, parallelism: on.parallelism() }).check(kernel)
            }
        }
    }
}

/// A launch whose grid is known, without its arguments.
#[derive(Clone, Copy)]
struct KernelCall {
    kernel: &'static Kernel,
    variant: &'static Variant,
    /// In programs.
    grid: [u32; 3],
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
        let selection = variant.map_or_else(VariantSelection::failed, VariantSelection::Fixed);
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
            VariantSelection::Fixed(variant) => TuningSpace { candidates: vec![variant], key: Vec::new() }
                .only(self.kernel, config)
                .map_or_else(VariantSelection::failed, |_| VariantSelection::Fixed(variant)),
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
        let mut call = self.check(on)?;
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
        let Target { on, recorder } = on.target();
        let mut call = self.check(on)?;
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
    fn check(&self, on: On<'_>) -> Result<KernelCall> {
        let variant = match &self.selection {
            VariantSelection::Fixed(variant) => variant,
            VariantSelection::Tuned(space) => space.candidates[0],
            VariantSelection::Failed(error) => return Err(Error::clone(error)),
        };
        arg::check(self.kernel, variant, &self.args, on)?;
        Ok(KernelCall { kernel: self.kernel, variant, grid: self.grid_spec.of(self.kernel, variant, on)? })
    }
}

/// Runs a call whose arguments were checked.
fn run<'g, const N: usize>(call: KernelCall, target: Target<'g>, args: &'g mut [Arg<'_>; N]) -> Result<()> {
    let Target { on, recorder } = target;
    let used = match recorder {
        Some(recorder) => {
            let used = used(call, on, args);
            recorder.check(call.kernel, &used)?;
            used
        }
        None => Vec::new(),
    };
    let mut values = ArgStorage::<u64, N>::filled(0);
    let work = match on {
        On::Cpu if recorder.is_some() => {
            RecordedWork::Host(cpu::Replay::new(call, args, values.as_mut_slice())?)
        }
        On::Cpu => return cpu::launch(call, args, values.as_mut_slice()),
        On::Cuda(device, stream) => {
            let mut pointers = ArgStorage::<_, N>::filled(std::ptr::null_mut());
            let mut frame = cuda::LaunchFrame {
                kernel_args: &mut [KernelArg::Scalar { dtype: crate::DType::Bool, bits: 0 }; N],
                uses: &mut [const { None }; N],
                values: values.as_mut_slice(),
                maps: &mut [const { None }; MAX_MAPS],
                pointers: pointers.as_mut_slice(),
            };
            let launch_stream = cuda::LaunchStream { device, stream, captured: recorder.is_some() };
            if recorder.is_none() {
                return cuda::launch(call, launch_stream, args, &mut frame);
            }
            RecordedWork::Cuda(cuda::record(call, launch_stream, args, &mut frame)?)
        }
    };
    if let Some(recorder) = recorder {
        recorder.push(RecordedLaunch { kernel: call.kernel, variant: call.variant, used, work });
    }
    Ok(())
}

/// The memory that a launch uses, by parameter.
fn used(call: KernelCall, on: On<'_>, args: &[Arg<'_>]) -> Vec<(&'static str, MemoryRange)> {
    let pairs = call.kernel.params.iter().zip(args);
    let ranges = pairs.filter_map(|(param, arg)| {
        let range = match &arg.value {
            arg::ArgValue::Shared(bytes) => graph::shared_range(bytes, on),
            arg::ArgValue::Unique(bytes) => graph::unique_range(bytes, on),
            arg::ArgValue::Scalar(_) => None,
        };
        range.map(|range| (param.name, range))
    });
    ranges.collect()
}

/// Storage for the values of `N` parameters, at most two each, of the grid, a work counter and tensor maps.
#[repr(C)]
struct ArgStorage<T, const N: usize> {
    params: [[T; 2]; N],
    grid: [T; 3],
    counter: T,
    maps: [T; MAX_MAPS],
}

impl<T: Copy, const N: usize> ArgStorage<T, N> {
    fn filled(value: T) -> Self {
        ArgStorage { params: [[value; 2]; N], grid: [value; 3], counter: value, maps: [value; MAX_MAPS] }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `repr(C)` lays out the fields one after the other; all of it is `T`, so there is no padding, and the
        // borrow covers them all.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), 2 * N + 3 + 1 + MAX_MAPS) }
    }
}

/// Whether a variable of the environment is set to something but 0, read once.
macro_rules! flag {
    ($name:literal) => {{
        static SET: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *SET.get_or_init(|| std::env::var_os($name).is_some_and(|value| !value.is_empty() && value != "0"))
    }};
}

/// Whether each launch prints a line.
fn tracing() -> bool {
    flag!("FUSE_TRACE")
}

/// Whether each launch waits for its kernel.
pub(crate) fn blocking() -> bool {
    flag!("FUSE_LAUNCH_BLOCKING")
}
