//! [`Arg`]: one argument of a launch, without its Rust type.

use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result, param_type};
use crate::kernel::{Kernel, ParamKind, Variant};
use crate::slice::{SharedBytes, Slice, SliceMut, UniqueBytes, context_of};
use crate::stream::On;

/// An argument: borrowed memory or a number.
pub struct Arg<'a> {
    pub(super) dtype: DType,
    /// In elements; 0 for a number.
    pub(super) len: usize,
    pub(super) value: Value<'a>,
}

pub(super) enum Value<'a> {
    Shared(SharedBytes<'a>),
    Unique(UniqueBytes<'a>),
    Scalar(u64),
}

impl<'a> Arg<'a> {
    /// For a `&[T]` parameter.
    pub fn slice<T: Element>(slice: impl Into<Slice<'a, T>>) -> Arg<'a> {
        let slice = slice.into();
        Arg { dtype: T::DTYPE, len: slice.len(), value: Value::Shared(slice.bytes()) }
    }

    /// For a `&mut [T]` parameter.
    pub fn slice_mut<T: Element>(slice: impl Into<SliceMut<'a, T>>) -> Arg<'a> {
        let slice = slice.into();
        Arg { dtype: T::DTYPE, len: slice.len(), value: Value::Unique(slice.into_bytes()) }
    }

    /// For a number or a `bool`.
    pub fn scalar<T: Element>(value: T) -> Arg<'a> {
        Arg { dtype: T::DTYPE, len: 0, value: Value::Scalar(value.bits()) }
    }

    fn kind(&self) -> ParamKind {
        match self.value {
            Value::Shared(_) => ParamKind::Slice,
            Value::Unique(_) => ParamKind::SliceMut,
            Value::Scalar(_) => ParamKind::Scalar,
        }
    }

    /// Whether a launch there can reach it.
    fn is_within(&self, on: On<'_>) -> bool {
        let context = match &self.value {
            Value::Scalar(_) => return true,
            Value::Shared(SharedBytes::Cuda(view)) => Some(context_of(view)),
            Value::Unique(UniqueBytes::Cuda(view)) => Some(context_of(view)),
            Value::Shared(SharedBytes::Host(_)) | Value::Unique(UniqueBytes::Host(_)) => None,
        };
        match (on, context) {
            (On::Cpu, None) => true,
            (On::Cuda(device, _), Some(context)) => device.owns(context),
            _ => false,
        }
    }

    /// Where it is, in words.
    fn place(&self) -> String {
        let context = match &self.value {
            Value::Shared(SharedBytes::Cuda(view)) => context_of(view),
            Value::Unique(UniqueBytes::Cuda(view)) => context_of(view),
            _ => return "host memory".to_string(),
        };
        format!("cuda:{}", context.ordinal())
    }
}

/// Whether the arguments are what the variant takes, where the launch can reach them.
pub(super) fn check(
    kernel: &'static Kernel,
    variant: &'static Variant,
    args: &[Arg<'_>],
    on: On<'_>,
) -> Result<()> {
    if args.len() != kernel.params.len() || args.len() != variant.dtypes.len() {
        return Err(Error::ArgumentCount {
            kernel: kernel.name,
            wanted: kernel.params.len(),
            found: args.len(),
        });
    }
    for ((arg, param), &dtype) in args.iter().zip(kernel.params).zip(variant.dtypes) {
        if arg.kind() != param.kind || arg.dtype != dtype {
            return Err(Error::Argument {
                kernel: kernel.name,
                param: param.name,
                wanted: param_type(param.kind, dtype),
                found: param_type(arg.kind(), arg.dtype),
            });
        }
        if !arg.is_within(on) {
            let wanted = match on {
                On::Cpu => Device::cpu(),
                On::Cuda(device, _) => Device::of(device),
            };
            return Err(Error::WrongDevice {
                kernel: kernel.name,
                param: param.name,
                found: arg.place(),
                wanted: wanted.to_string(),
            });
        }
    }
    Ok(())
}
