//! Borrowed memory: the arguments of a kernel's `&[T]` and `&mut [T]` parameters.
//!
//! Takes buffers, host memory and memory of the `cudarc` crate; gives views that the borrow checker treats as it treats
//! `&[T]` and `&mut [T]`. The bytes behind them, without the element type, are for the launcher alone.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaView, CudaViewMut, DeviceSlice};

use crate::cuda;
use crate::dtype::Element;
use crate::error::{Error, Result};

/// Memory that can be read: `&[T]` on any device.
///
/// Made from a `&Buffer`, from host memory (`&[T]`, `&Vec<T>`, `&[T; N]`), or from memory of the `cudarc` crate.
#[derive(Clone, Copy)]
pub struct Slice<'a, T: Element>(Shared<'a, T>);

#[derive(Clone, Copy)]
enum Shared<'a, T> {
    Host(&'a [T]),
    Cuda { owner: Owner<'a, T>, start: usize, len: usize },
}

#[derive(Clone, Copy)]
enum Owner<'a, T> {
    Slice(&'a CudaSlice<T>),
    View(&'a CudaView<'a, T>),
    ViewMut(&'a CudaViewMut<'a, T>),
}

/// Memory that can be written, borrowed by nobody else: `&mut [T]` on any device.
///
/// Made from what a [`Slice`] is made from, borrowed mutably. So an output cannot be an input of the same launch:
///
/// ```compile_fail,E0502
/// # use dsl_runtime::{Device, Slice, SliceMut};
/// fn kernel<'a>(x: impl Into<Slice<'a, f32>>, out: impl Into<SliceMut<'a, f32>>) {}
/// let mut x = Device::cpu().zeros::<f32>(10).unwrap();
/// kernel(&x, &mut x);
/// ```
///
/// and two outputs cannot be the same memory:
///
/// ```compile_fail,E0499
/// # use dsl_runtime::Device;
/// # let mut x = Device::cpu().zeros::<f32>(10).unwrap();
/// let (first, second) = (x.slice_mut(..), x.slice_mut(..));
/// drop((first, second));
/// ```
///
/// Parts of one buffer that do not overlap are fine: [`Buffer::split_at_mut`](crate::Buffer::split_at_mut).
pub struct SliceMut<'a, T: Element>(Unique<'a, T>);

enum Unique<'a, T> {
    Host(&'a mut [T]),
    Cuda(CudaViewMut<'a, T>),
}

impl<T: Element> Default for Slice<'_, T> {
    /// No elements.
    fn default() -> Self {
        Slice(Shared::Host(&[]))
    }
}

impl<T: Element> Default for SliceMut<'_, T> {
    /// No elements.
    fn default() -> Self {
        SliceMut(Unique::Host(&mut []))
    }
}

impl<'a, T: Element> Slice<'a, T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self.0 {
            Shared::Host(host) => host.len(),
            Shared::Cuda { len, .. } => len,
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of a range.
    ///
    /// # Panics
    /// If the range does not lie within the slice.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'a, T> {
        let (first, last) = resolve(range, self.len());
        Slice(match self.0 {
            Shared::Host(host) => Shared::Host(&host[first..last]),
            Shared::Cuda { owner, start, .. } => {
                Shared::Cuda { owner, start: start + first, len: last - first }
            }
        })
    }

    /// The elements before `mid` and those from `mid` on.
    ///
    /// # Panics
    /// If `mid` is beyond the end.
    #[track_caller]
    pub fn split_at(&self, mid: usize) -> (Slice<'a, T>, Slice<'a, T>) {
        (self.slice(..mid), self.slice(mid..))
    }

    /// The elements, if they are in host memory.
    pub fn as_host(&self) -> Option<&'a [T]> {
        match self.0 {
            Shared::Host(host) => Some(host),
            Shared::Cuda { .. } => None,
        }
    }

    /// A copy of the elements in host memory; waits for the kernels that write them.
    ///
    /// # Errors
    /// A CUDA error, also that of a kernel launched before.
    pub fn download(&self) -> Result<Vec<T>> {
        match self.bytes() {
            SharedBytes::Host(_) => Ok(self.as_host().unwrap_or_default().to_vec()),
            SharedBytes::Cuda(view) => cuda::download(&view),
        }
    }

    pub(crate) fn bytes(&self) -> SharedBytes<'a> {
        match self.0 {
            // SAFETY: elements have no padding, so each of their bytes is initialized.
            Shared::Host(host) => SharedBytes::Host(unsafe {
                std::slice::from_raw_parts(host.as_ptr().cast(), size_of_val(host))
            }),
            Shared::Cuda { owner, start, len } => {
                let size = size_of::<T>();
                // SAFETY: any bits are a `u8`, and the view is no longer than its owner.
                let bytes = unsafe {
                    match owner {
                        Owner::Slice(owner) => owner.transmute::<u8>(owner.num_bytes()),
                        Owner::View(owner) => owner.transmute::<u8>(owner.num_bytes()),
                        Owner::ViewMut(owner) => owner.transmute::<u8>(owner.num_bytes()),
                    }
                };
                let bytes = bytes.expect("a view of all bytes is as long as its owner");
                SharedBytes::Cuda(bytes.slice(start * size..(start + len) * size))
            }
        }
    }
}

impl<'a, T: Element> SliceMut<'a, T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Unique::Host(host) => host.len(),
            Unique::Cuda(view) => view.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same memory for a shorter time: what a launch takes when the slice is needed again afterwards.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        self.slice_mut(..)
    }

    /// The elements of a range, to read.
    ///
    /// # Panics
    /// If the range does not lie within the slice.
    #[track_caller]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        Slice::from(self).slice(range)
    }

    /// The elements of a range, to write.
    ///
    /// # Panics
    /// If the range does not lie within the slice.
    #[track_caller]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> SliceMut<'_, T> {
        let (first, last) = resolve(range, self.len());
        SliceMut(match &mut self.0 {
            Unique::Host(host) => Unique::Host(&mut host[first..last]),
            Unique::Cuda(view) => Unique::Cuda(view.slice_mut(first..last)),
        })
    }

    /// The elements before `mid` and those from `mid` on, to write both.
    ///
    /// # Panics
    /// If `mid` is beyond the end.
    #[track_caller]
    pub fn split_at_mut(&mut self, mid: usize) -> (SliceMut<'_, T>, SliceMut<'_, T>) {
        resolve(..mid, self.len());
        match &mut self.0 {
            Unique::Host(host) => {
                let (head, tail) = host.split_at_mut(mid);
                (SliceMut(Unique::Host(head)), SliceMut(Unique::Host(tail)))
            }
            Unique::Cuda(view) => {
                let (head, tail) = view.split_at_mut(mid);
                (SliceMut(Unique::Cuda(head)), SliceMut(Unique::Cuda(tail)))
            }
        }
    }

    /// The elements, if they are in host memory.
    pub fn as_host_mut(&mut self) -> Option<&mut [T]> {
        match &mut self.0 {
            Unique::Host(host) => Some(host),
            Unique::Cuda(_) => None,
        }
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
        if source.len() != self.len() {
            return Err(Error::Length { wanted: self.len(), found: source.len() });
        }
        match &mut self.0 {
            Unique::Host(host) => host.copy_from_slice(source),
            Unique::Cuda(_) if source.is_empty() => {}
            Unique::Cuda(view) => {
                let stream = view.stream().clone();
                let device = cuda::adopt(stream.context())?;
                stream
                    .memcpy_htod(source, view)
                    .map_err(|error| device.failed("cuMemcpyHtoDAsync", error))?;
                device.synchronize_stream(&stream)?;
            }
        }
        Ok(())
    }

    /// The elements from `first` up to `last`, for as long as all of them were borrowed.
    pub(crate) fn into_subslice(self, first: usize, last: usize) -> SliceMut<'a, T> {
        SliceMut(match self.0 {
            Unique::Host(host) => Unique::Host(&mut host[first..last]),
            Unique::Cuda(view) => Unique::Cuda(part_for_life(view, |view| view.slice_mut(first..last))),
        })
    }

    pub(crate) fn into_bytes(self) -> UniqueBytes<'a> {
        match self.0 {
            // SAFETY: elements have no padding. The bytes are only written by kernels, which write elements of type `T`.
            Unique::Host(host) => UniqueBytes::Host(unsafe {
                std::slice::from_raw_parts_mut(host.as_mut_ptr().cast(), size_of_val(host))
            }),
            Unique::Cuda(view) => UniqueBytes::Cuda(erase(view)),
        }
    }
}

/// The bytes of the same memory for as long.
fn erase<T>(view: CudaViewMut<'_, T>) -> CudaViewMut<'_, u8> {
    part_for_life(view, |view| {
        let len = view.num_bytes();
        // SAFETY: any bits are a `u8`, and only kernels write them, as elements of type `T`.
        let bytes = unsafe { view.transmute_mut::<u8>(len) };
        bytes.expect("a view of all bytes is as long as its owner")
    })
}

/// A part of a view, for as long as the view borrows its memory. `cudarc` lends a part for as long as the view itself is borrowed.
fn part_for_life<'a, T, S>(
    mut view: CudaViewMut<'a, T>,
    part: impl for<'v> FnOnce(&'v mut CudaViewMut<'a, T>) -> CudaViewMut<'v, S>,
) -> CudaViewMut<'a, S> {
    let part = part(&mut view);
    // SAFETY: only the lifetime changes, and `view`, which the short borrow of it keeps from being used beside its part, ends here.
    // A part holds copies of the references that `view` holds for `'a`, and none to `view` itself: it is as large as they are
    // (`a_part_of_a_view_holds_the_references_of_the_view`), and `part` has nothing else to return.
    unsafe { std::mem::transmute::<CudaViewMut<'_, S>, CudaViewMut<'a, S>>(part) }
}

/// A [`Slice`] without its element type.
pub(crate) enum SharedBytes<'a> {
    Host(&'a [u8]),
    Cuda(CudaView<'a, u8>),
}

/// A [`SliceMut`] without its element type.
pub(crate) enum UniqueBytes<'a> {
    Host(&'a mut [u8]),
    Cuda(CudaViewMut<'a, u8>),
}

/// Where a launch finds a slice: host memory is of no context.
pub(crate) fn context_of<T>(view: &impl DeviceSlice<T>) -> &Arc<CudaContext> {
    view.stream().context()
}

#[track_caller]
pub(crate) fn resolve(range: impl RangeBounds<usize>, len: usize) -> (usize, usize) {
    let first = match range.start_bound() {
        Bound::Included(&first) => Some(first),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let last = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&last) => Some(last),
        Bound::Unbounded => Some(len),
    };
    match (first, last) {
        (Some(first), Some(last)) if first <= last && last <= len => (first, last),
        _ => panic!("the range {} does not lie within a slice of {len} elements", written(&range)),
    }
}

/// A range as Rust writes it.
fn written(range: &impl RangeBounds<usize>) -> String {
    let first = match range.start_bound() {
        Bound::Included(first) => first.to_string(),
        Bound::Excluded(before) => format!("{before} + 1"),
        Bound::Unbounded => String::new(),
    };
    match range.end_bound() {
        Bound::Included(last) => format!("{first}..={last}"),
        Bound::Excluded(last) => format!("{first}..{last}"),
        Bound::Unbounded => format!("{first}.."),
    }
}

impl<'a, T: Element> From<&'a [T]> for Slice<'a, T> {
    fn from(host: &'a [T]) -> Self {
        Slice(Shared::Host(host))
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for Slice<'a, T> {
    fn from(host: &'a [T; N]) -> Self {
        Slice(Shared::Host(host))
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Slice<'a, T> {
    fn from(host: &'a Vec<T>) -> Self {
        Slice(Shared::Host(host))
    }
}

impl<'a, T: Element> From<&'a CudaSlice<T>> for Slice<'a, T> {
    fn from(memory: &'a CudaSlice<T>) -> Self {
        Slice(Shared::Cuda { owner: Owner::Slice(memory), start: 0, len: memory.len() })
    }
}

impl<'a, T: Element> From<&'a CudaView<'a, T>> for Slice<'a, T> {
    fn from(view: &'a CudaView<'a, T>) -> Self {
        Slice(Shared::Cuda { owner: Owner::View(view), start: 0, len: view.len() })
    }
}

impl<'a, T: Element> From<&'a SliceMut<'_, T>> for Slice<'a, T> {
    fn from(slice: &'a SliceMut<'_, T>) -> Self {
        Slice(match &slice.0 {
            Unique::Host(host) => Shared::Host(host),
            Unique::Cuda(view) => Shared::Cuda { owner: Owner::ViewMut(view), start: 0, len: view.len() },
        })
    }
}

impl<'a, T: Element> From<&'a mut [T]> for SliceMut<'a, T> {
    fn from(host: &'a mut [T]) -> Self {
        SliceMut(Unique::Host(host))
    }
}

impl<'a, T: Element, const N: usize> From<&'a mut [T; N]> for SliceMut<'a, T> {
    fn from(host: &'a mut [T; N]) -> Self {
        SliceMut(Unique::Host(host))
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for SliceMut<'a, T> {
    fn from(host: &'a mut Vec<T>) -> Self {
        SliceMut(Unique::Host(host))
    }
}

impl<'a, T: Element> From<&'a mut CudaSlice<T>> for SliceMut<'a, T> {
    fn from(memory: &'a mut CudaSlice<T>) -> Self {
        SliceMut(Unique::Cuda(memory.as_view_mut()))
    }
}

impl<'a, T: Element> From<CudaViewMut<'a, T>> for SliceMut<'a, T> {
    fn from(view: CudaViewMut<'a, T>) -> Self {
        SliceMut(Unique::Cuda(view))
    }
}

impl<'a, T: Element> From<&'a mut SliceMut<'_, T>> for SliceMut<'a, T> {
    fn from(slice: &'a mut SliceMut<'_, T>) -> Self {
        slice.reborrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Device};

    fn host<'a>(slice: impl Into<Slice<'a, i32>>) -> &'a [i32] {
        slice.into().as_host().unwrap()
    }

    /// What `part_for_life` relies on: an address, a length and three references, to two events and a stream.
    #[test]
    fn a_part_of_a_view_holds_the_references_of_the_view() {
        type Part = CudaViewMut<'static, u8>;
        assert_eq!((size_of::<Part>(), align_of::<Part>()), (5 * size_of::<u64>(), align_of::<u64>()));
        assert!(!std::mem::needs_drop::<Part>());
        let Some(device) = crate::launch::gpu() else { return };
        let mut buffer = device.zeros::<u32>(8).unwrap();
        let mut view = buffer.as_cuda_mut().unwrap().as_view_mut();
        let own = std::ptr::from_ref(&view).addr()..std::ptr::from_ref(&view).addr() + size_of::<Part>();
        let words = |part: &CudaViewMut<'_, u32>| {
            // SAFETY: five words without padding, as above.
            unsafe { std::ptr::from_ref(part).cast::<[usize; 5]>().read() }
        };
        let (whole, part) = (words(&view), words(&view.slice_mut(2..6)));
        assert!(part.iter().all(|word| !own.contains(word)), "a part refers to its view");
        assert_eq!(part.iter().filter(|word| whole.contains(word)).count(), 3, "a part has other references");
    }

    #[test]
    fn parts_of_a_slice_are_those_of_the_memory() {
        let vec: Vec<i32> = (0..10).collect();
        let whole = Slice::from(&vec);
        assert_eq!((whole.len(), whole.is_empty()), (10, false));
        assert_eq!(host(whole.slice(3..5)), [3, 4]);
        assert_eq!(host(whole.slice(..=2)), [0, 1, 2]);
        assert_eq!(host(whole.slice((Bound::Excluded(7), Bound::Unbounded))), [8, 9]);
        assert_eq!(host(whole.slice(4..).slice(1..3)), [5, 6]);
        assert!(whole.slice(10..).is_empty());
        let (head, tail) = whole.split_at(4);
        assert_eq!((host(head), host(tail)), ([0, 1, 2, 3].as_slice(), [4, 5, 6, 7, 8, 9].as_slice()));
        assert_eq!(whole.slice(8..).download(), Ok(vec![8, 9]));
        assert_eq!(host(&[1, 2]), [1, 2]);
    }

    #[test]
    fn writes_go_to_the_parts_they_were_made_to() {
        let mut vec = vec![0i32; 6];
        let mut whole = SliceMut::from(&mut vec);
        whole.slice_mut(1..3).copy_from_host(&[1, 2]).unwrap();
        {
            let (mut head, mut tail) = whole.split_at_mut(4);
            head.slice_mut(3..).copy_from_host(&[3]).unwrap();
            tail.reborrow().as_host_mut().unwrap()[1] = 5;
            assert_eq!(SliceMut::from(&mut tail).len(), 2);
        }
        assert_eq!(host(&whole), [0, 1, 2, 3, 0, 5]);
        assert_eq!(whole.slice(2..4).download(), Ok(vec![2, 3]));
        let wrong = whole.copy_from_host(&[1]);
        assert_eq!(wrong.unwrap_err().to_string(), "cannot copy 1 elements into a buffer of 6");
        assert_eq!(vec, [0, 1, 2, 3, 0, 5]);
    }

    #[test]
    fn a_range_beyond_the_end_panics_with_both_numbers() {
        let message = |range: (Bound<usize>, Bound<usize>)| {
            let panic = std::panic::catch_unwind(|| resolve(range, 4)).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        let expected = |range: &str| format!("the range {range} does not lie within a slice of 4 elements");
        assert_eq!(message((Bound::Included(2), Bound::Excluded(5))), expected("2..5"));
        assert_eq!(message((Bound::Included(3), Bound::Excluded(2))), expected("3..2"));
        assert_eq!(message((Bound::Excluded(4), Bound::Unbounded)), expected("4 + 1.."));
        let overflow = format!("..={}", usize::MAX);
        assert_eq!(message((Bound::Unbounded, Bound::Included(usize::MAX))), expected(&overflow));
    }

    #[test]
    fn slices_cross_threads() {
        fn check<T: Send + Sync>() {}
        check::<Slice<'_, f32>>();
        check::<SliceMut<'_, f32>>();
        check::<Buffer<f32>>();
        check::<crate::Launch<'_, 3>>();
        check::<Device>();
        check::<crate::Stream>();
    }
}
