//! [`Buffer`]: memory of a device, owned.

use std::fmt;
use std::ops::RangeBounds;

use cudarc::driver::CudaSlice;

use crate::cuda;
use crate::device::{Backend, Device, On};
use crate::dtype::Element;
use crate::error::Result;
use crate::host::HostMemory;
use crate::slice::{Slice, SliceMut, resolve};
use crate::view::{View, ViewMut};

/// Elements in the memory of a device, made by [`Device::upload`] or [`Device::zeros`].
///
/// Kernels take it as `&buffer` and `&mut buffer`, or in parts. Dropping it while a kernel still runs is fine: the
/// memory goes back when the work that was launched before is done.
///
/// ```
/// # use dsl_runtime::{Device, Result};
/// # fn main() -> Result<()> {
/// let mut buffer = Device::cpu().upload(&[1.0f32, 2.0, 3.0])?;
/// buffer.slice_mut(1..).copy_from_host(&[5.0, 6.0])?;
/// assert_eq!(buffer.download()?, [1.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
pub struct Buffer<T: Element> {
    device: Device,
    memory: Memory<T>,
}

enum Memory<T> {
    /// Starts on a 64-byte boundary.
    Host(HostMemory<T>),
    Cuda(CudaSlice<T>),
}

impl<T: Element> Buffer<T> {
    pub(crate) fn zeros(device: Device, len: usize) -> Result<Self> {
        let memory = match device.backend() {
            Backend::Cpu => Memory::Host(HostMemory::zeros(len)?),
            Backend::Cuda(cuda) => Memory::Cuda(cuda.zeros(len)?),
        };
        Ok(Buffer { device, memory })
    }

    /// Memory of a stream, with whatever it held before.
    pub(crate) fn uninit(on: On<'_>, len: usize) -> Result<Self> {
        Ok(match on {
            On::Cpu => Buffer { device: Device::cpu(), memory: Memory::Host(HostMemory::zeros(len)?) },
            On::Cuda(device, stream) => {
                let memory = Memory::Cuda(device.uninit(stream, len)?);
                Buffer { device: Device::of(device), memory }
            }
        })
    }

    pub(crate) fn upload(device: Device, elements: &[T]) -> Result<Self> {
        let memory = match device.backend() {
            Backend::Cpu => Memory::Host(HostMemory::copy_of(elements)?),
            Backend::Cuda(cuda) => Memory::Cuda(cuda.upload(elements)?),
        };
        Ok(Buffer { device, memory })
    }

    /// A buffer of the CPU. The elements are copied, so that the first lies on a 64-byte boundary.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn from_vec(elements: Vec<T>) -> Result<Self> {
        Buffer::upload(Device::cpu(), &elements)
    }

    /// Takes over memory of the `cudarc` crate, without a copy. Its context becomes a device as
    /// [`Device::from_context`] says.
    ///
    /// # Errors
    /// A CUDA error.
    pub fn from_cuda(memory: CudaSlice<T>) -> Result<Self> {
        let device = Device::from_context(memory.context())?;
        Ok(Buffer { device, memory: Memory::Cuda(memory) })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Host(host) => host.len(),
            Memory::Cuda(memory) => memory.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device whose memory this is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// A copy of the elements in host memory; waits for the kernels that write them.
    ///
    /// # Errors
    /// A CUDA error, also that of a kernel launched before.
    pub fn download(&self) -> Result<Vec<T>> {
        self.slice(..).download()
    }

    /// Replaces all elements; the copy is complete on return.
    ///
    /// # Errors
    /// If `source` has another length; a CUDA error.
    pub fn copy_from_host(&mut self, source: &[T]) -> Result<()> {
        self.slice_mut(..).copy_from_host(source)
    }

    /// Another buffer with the same elements, on the same device.
    ///
    /// # Errors
    /// If there is not enough memory; a CUDA error.
    pub fn try_clone(&self) -> Result<Self> {
        let memory = match &self.memory {
            Memory::Host(host) => Memory::Host(HostMemory::copy_of(host)?),
            Memory::Cuda(memory) => Memory::Cuda(cuda::adopt(memory.context())?.copy_of(memory)?),
        };
        Ok(Buffer { device: self.device, memory })
    }

    /// The elements of a range, to read.
    ///
    /// # Panics
    /// If the range does not lie within the buffer.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        match &self.memory {
            Memory::Host(host) => Slice::from(&**host).slice(range),
            Memory::Cuda(memory) => Slice::from(memory).slice(range),
        }
    }

    /// The elements of a range, to write.
    ///
    /// # Panics
    /// If the range does not lie within the buffer.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        let (first, last) = resolve(range, self.len());
        match &mut self.memory {
            Memory::Host(host) => SliceMut::from(&mut host[first..last]),
            Memory::Cuda(memory) => SliceMut::from(memory.slice_mut(first..last)),
        }
    }

    /// The elements before `mid` and those from `mid` on, to write both: two outputs of one kernel, say.
    ///
    /// # Panics
    /// If `mid` is beyond the end.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        resolve(..mid, self.len());
        match &mut self.memory {
            Memory::Host(host) => {
                let (head, tail) = host.split_at_mut(mid);
                (head.into(), tail.into())
            }
            Memory::Cuda(memory) => {
                let (head, tail) = memory.split_at_mut(mid);
                (head.into(), tail.into())
            }
        }
    }

    /// The elements, if this is memory of the CPU.
    pub fn as_host(&self) -> Option<&[T]> {
        match &self.memory {
            Memory::Host(host) => Some(host),
            Memory::Cuda(_) => None,
        }
    }

    /// The elements, if this is memory of the CPU.
    pub fn as_host_mut(&mut self) -> Option<&mut [T]> {
        match &mut self.memory {
            Memory::Host(host) => Some(host),
            Memory::Cuda(_) => None,
        }
    }

    /// The memory as the `cudarc` crate knows it, if it is a GPU's: for cuBLAS, other kernels, another framework.
    pub fn as_cuda(&self) -> Option<&CudaSlice<T>> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Cuda(memory) => Some(memory),
        }
    }

    /// The memory as the `cudarc` crate knows it, if it is a GPU's.
    pub fn as_cuda_mut(&mut self) -> Option<&mut CudaSlice<T>> {
        match &mut self.memory {
            Memory::Host(_) => None,
            Memory::Cuda(memory) => Some(memory),
        }
    }

    /// Gives the memory to the `cudarc` crate, without a copy.
    ///
    /// # Errors
    /// The buffer itself, if it is the CPU's.
    pub fn into_cuda(self) -> Result<CudaSlice<T>, Buffer<T>> {
        match self.memory {
            Memory::Cuda(memory) => Ok(memory),
            Memory::Host(_) => Err(self),
        }
    }
}

impl Device {
    /// A copy of host memory; it is complete on return.
    ///
    /// # Errors
    /// If there is not enough memory; a CUDA error.
    pub fn upload<T: Element>(&self, elements: &[T]) -> Result<Buffer<T>> {
        Buffer::upload(*self, elements)
    }

    /// A buffer of `len` zeros (`false` for `bool`).
    ///
    /// # Errors
    /// If there is not enough memory; a CUDA error.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        Buffer::zeros(*self, len)
    }
}

impl<T: Element> Buffer<T> {
    /// The first elements in row-major order.
    ///
    /// # Errors
    /// If there are too few.
    pub fn view<const R: usize>(&self, shape: [usize; R]) -> Result<View<'_, T, R>> {
        View::new(self, shape)
    }

    /// The elements at index times stride, summed over the axes.
    ///
    /// # Errors
    /// If one lies outside of the buffer.
    pub fn view_strided<const R: usize>(
        &self,
        shape: [usize; R],
        strides: [usize; R],
    ) -> Result<View<'_, T, R>> {
        View::strided(self, shape, strides)
    }

    /// The first elements in row-major order, to write.
    ///
    /// # Errors
    /// If there are too few.
    pub fn view_mut<const R: usize>(&mut self, shape: [usize; R]) -> Result<ViewMut<'_, T, R>> {
        ViewMut::new(self, shape)
    }

    /// The elements at index times stride, summed over the axes, to write.
    ///
    /// # Errors
    /// Those of [`ViewMut::strided`].
    pub fn view_strided_mut<const R: usize>(
        &mut self,
        shape: [usize; R],
        strides: [usize; R],
    ) -> Result<ViewMut<'_, T, R>> {
        ViewMut::strided(self, shape, strides)
    }
}

impl<'a, T: Element> From<&'a Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.slice(..)
    }
}

impl<'a, T: Element> From<&'a mut Buffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.slice_mut(..)
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    /// Says what it is, not what it holds: that may still be computed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}; {}] on {}", T::DTYPE, self.len(), self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{bf16, f16};

    /// Round trips on a device, of lengths with and without an end that is left over.
    fn check<T: Element>(device: Device) {
        for len in [0, 1, 7, 1000] {
            let elements: Vec<T> = (0..len).map(|i| T::from_f64((i % 2) as f64)).collect();
            let mut buffer = device.upload(&elements).unwrap();
            assert_eq!((buffer.len(), buffer.is_empty(), buffer.device()), (len, len == 0, device));
            assert_eq!(buffer.download().unwrap(), elements);
            assert_eq!(buffer.try_clone().unwrap().download().unwrap(), elements);
            assert_eq!(buffer.slice(len / 2..).download().unwrap(), elements[len / 2..]);

            let zeros = device.zeros::<T>(len).unwrap();
            assert_eq!(zeros.download().unwrap(), vec![T::default(); len]);
            buffer.copy_from_host(&zeros.download().unwrap()).unwrap();
            assert_eq!(buffer.download().unwrap(), vec![T::default(); len]);

            let (mut head, mut tail) = buffer.split_at_mut(len / 3);
            head.copy_from_host(&elements[..len / 3]).unwrap();
            tail.copy_from_host(&elements[len / 3..]).unwrap();
            assert_eq!(buffer.download().unwrap(), elements);
        }
    }

    fn check_all(device: Device) {
        check::<bool>(device);
        check::<i8>(device);
        check::<i16>(device);
        check::<i32>(device);
        check::<i64>(device);
        check::<u8>(device);
        check::<u16>(device);
        check::<u32>(device);
        check::<u64>(device);
        check::<f16>(device);
        check::<bf16>(device);
        check::<f32>(device);
        check::<f64>(device);
    }

    #[test]
    fn every_element_type_goes_to_the_cpu_and_back() {
        check_all(Device::cpu());
    }

    #[test]
    fn every_element_type_goes_to_the_gpu_and_back() {
        let Some(device) = crate::launch::gpu() else { return };
        check_all(device);
        let memory = device.upload(&[1.0f32, 2.0]).unwrap().into_cuda().unwrap();
        let mut buffer = Buffer::from_cuda(memory).unwrap();
        assert_eq!(buffer.device(), device);
        assert!(buffer.as_host().is_none() && buffer.as_cuda().is_some() && buffer.as_cuda_mut().is_some());
        assert_eq!(Slice::from(buffer.as_cuda().unwrap()).slice(1..).download().unwrap(), [2.0]);
    }

    #[test]
    fn memory_of_the_cpu_is_host_memory() {
        let mut buffer = Buffer::from_vec(vec![1u16, 2, 3]).unwrap();
        assert_eq!(buffer.as_host().unwrap().as_ptr().addr() % 64, 0);
        buffer.as_host_mut().unwrap()[1] = 7;
        assert_eq!(buffer.download().unwrap(), [1, 7, 3]);
        assert!(buffer.as_cuda().is_none() && buffer.as_cuda_mut().is_none());
        assert_eq!(format!("{buffer:?}"), "[u16; 3] on cpu");
        assert_eq!(buffer.into_cuda().unwrap_err().len(), 3);
    }

    #[test]
    fn a_copy_of_another_length_is_an_error() {
        let mut buffer = Device::cpu().zeros::<f32>(3).unwrap();
        let error = buffer.copy_from_host(&[1.0; 4]).unwrap_err();
        assert_eq!(error.to_string(), "cannot copy 4 elements into a buffer of 3");
        let error = Device::cpu().zeros::<f64>(usize::MAX).unwrap_err();
        assert_eq!(error.to_string(), "out of memory on the host: 131072.0 PiB wanted");
    }
}
