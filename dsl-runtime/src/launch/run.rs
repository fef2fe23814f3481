//! Runs a launch whose variant and grid are known, or records it where its stream is being captured.

use super::arg::{Arg, ArgValue};
use super::call::KernelCall;
use super::{cpu, cuda};
use crate::device::On;
use crate::error::Result;
use crate::graph::{MemoryRange, RecordedLaunch, RecordedWork, shared_range, unique_range};
use crate::guard::KernelArg;
use crate::kernel::MAX_MAPS;
use crate::stream::Target;

/// Runs a call whose arguments were checked.
pub(super) fn run<'g, const N: usize>(
    call: KernelCall,
    target: Target<'g>,
    args: &'g mut [Arg<'_>; N],
) -> Result<()> {
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
            ArgValue::Shared(bytes) => shared_range(bytes, arg.dtype, on),
            ArgValue::Unique(bytes) => unique_range(bytes, arg.dtype, on),
            ArgValue::Scalar(_) => None,
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
