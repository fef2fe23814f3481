//! [`Arg`]: one argument of a launch, without its Rust type.

use crate::device::{Device, On};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result, param_type};
use crate::kernel::{Kernel, ParamKind, Variant};
use crate::slice::{SharedBytes, Slice, SliceMut, UniqueBytes, context_of};
use crate::view::{View, ViewMut, launch_strides};

/// An argument: borrowed memory or a number.
pub struct Arg<'a> {
    pub(super) dtype: DType,
    /// In elements; 0 for a number.
    pub(super) len: usize,
    /// Of the view whose memory it is; 0 for anything else.
    rank: u8,
    pub(super) value: ArgValue<'a>,
}

/// What a view becomes: arguments for its memory and for each number, in this order.
pub struct ViewArgs<'a, const R: usize> {
    /// The elements of the view, and those between them.
    pub memory: Arg<'a>,
    /// The extent of each axis.
    pub shape: [i64; R],
    /// The stride of each axis, in elements; of one along which the view has one element, any.
    pub strides: [i64; R],
}

impl<'a, T: Element, const R: usize> From<View<'a, T, R>> for ViewArgs<'a, R> {
    fn from(view: View<'a, T, R>) -> Self {
        let strides = launch_strides(view.shape(), view.strides()).map(as_i64);
        let shape = view.shape().map(as_i64);
        ViewArgs { memory: Arg { rank: R as u8, ..Arg::slice(view.memory()) }, shape, strides }
    }
}

impl<'a, T: Element, const R: usize> From<ViewMut<'a, T, R>> for ViewArgs<'a, R> {
    fn from(view: ViewMut<'a, T, R>) -> Self {
        let strides = launch_strides(view.shape(), view.strides()).map(as_i64);
        let shape = view.shape().map(as_i64);
        ViewArgs { memory: Arg { rank: R as u8, ..Arg::slice_mut(view.into_memory()) }, shape, strides }
    }
}

/// A view's extents and strides are far below 2^63.
fn as_i64(value: usize) -> i64 {
    value as i64
}

pub(super) enum ArgValue<'a> {
    Shared(SharedBytes<'a>),
    Unique(UniqueBytes<'a>),
    Scalar(u64),
}

impl<'a> Arg<'a> {
    /// For a `&[T]` parameter.
    pub fn slice<T: Element>(slice: impl Into<Slice<'a, T>>) -> Arg<'a> {
        let slice = slice.into();
        Arg { dtype: T::DTYPE, len: slice.len(), rank: 0, value: ArgValue::Shared(slice.bytes()) }
    }

    /// For a `&mut [T]` parameter.
    pub fn slice_mut<T: Element>(slice: impl Into<SliceMut<'a, T>>) -> Arg<'a> {
        let slice = slice.into();
        Arg { dtype: T::DTYPE, len: slice.len(), rank: 0, value: ArgValue::Unique(slice.into_bytes()) }
    }

    /// For a number or a `bool`.
    pub fn scalar<T: Element>(value: T) -> Arg<'a> {
        Arg { dtype: T::DTYPE, len: 0, rank: 0, value: ArgValue::Scalar(value.bits()) }
    }

    fn kind(&self) -> ParamKind {
        match (&self.value, self.rank) {
            (ArgValue::Shared(_), 0) => ParamKind::Slice,
            (ArgValue::Shared(_), rank) => ParamKind::View(rank),
            (ArgValue::Unique(_), 0) => ParamKind::SliceMut,
            (ArgValue::Unique(_), rank) => ParamKind::ViewMut(rank),
            (ArgValue::Scalar(_), _) => ParamKind::Scalar,
        }
    }

    /// Whether a launch there can reach it.
    fn is_reachable(&self, on: On<'_>) -> bool {
        // Whoever has no elements to pass need not have memory on the device for them.
        let is_on_host = matches!(
            self.value,
            ArgValue::Shared(SharedBytes::Host(_)) | ArgValue::Unique(UniqueBytes::Host(_))
        );
        if self.len == 0 && is_on_host {
            return true;
        }
        let context = match &self.value {
            ArgValue::Scalar(_) => return true,
            ArgValue::Shared(SharedBytes::Cuda(view)) => Some(context_of(view)),
            ArgValue::Unique(UniqueBytes::Cuda(view)) => Some(context_of(view)),
            ArgValue::Shared(SharedBytes::Host(_)) | ArgValue::Unique(UniqueBytes::Host(_)) => None,
        };
        match (on, context) {
            (On::Cpu, None) => true,
            (On::Cuda(device, _), Some(context)) => device.owns(context),
            _ => false,
        }
    }

    /// Where it is, in words.
    fn location(&self) -> String {
        let context = match &self.value {
            ArgValue::Shared(SharedBytes::Cuda(view)) => context_of(view),
            ArgValue::Unique(UniqueBytes::Cuda(view)) => context_of(view),
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
        if !arg.is_reachable(on) {
            let wanted = match on {
                On::Cpu => Device::cpu(),
                On::Cuda(device, _) => Device::of(device),
            };
            return Err(Error::WrongDevice {
                kernel: kernel.name,
                param: param.name,
                found: arg.location(),
                wanted: wanted.to_string(),
            });
        }
    }
    Ok(())
}
