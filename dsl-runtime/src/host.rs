//! Host memory that starts on a 64-byte boundary: a cache line, and the widest vector a CPU loads.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use cudarc::driver::ValidAsZeroBits;

use crate::error::{Error, Result};

const ALIGN: usize = 64;

/// A boxed slice whose first element lies on a 64-byte boundary.
pub(crate) struct HostMemory<T> {
    start: NonNull<T>,
    len: usize,
    owned: PhantomData<T>,
}

// SAFETY: it owns its elements as a `Box<[T]>` does.
unsafe impl<T: Send> Send for HostMemory<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostMemory<T> {}

impl<T: Copy + ValidAsZeroBits> HostMemory<T> {
    /// Zeros.
    pub(crate) fn zeros(len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let bytes = len as u128 * size_of::<T>() as u128;
        let refused = || Error::OutOfMemory { device: "the host".to_string(), bytes, free: None };
        let layout = usize::try_from(bytes).ok().and_then(|bytes| Layout::from_size_align(bytes, ALIGN).ok());
        let layout = layout.ok_or_else(refused)?;
        let start = if layout.size() == 0 {
            layout.dangling_ptr().cast()
        } else {
            // SAFETY: the layout is not of size zero.
            NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<T>()).ok_or_else(refused)?
        };
        Ok(HostMemory { start, len, owned: PhantomData })
    }

    pub(crate) fn copy_of(elements: &[T]) -> Result<Self> {
        let mut memory = Self::zeros(elements.len())?;
        memory.copy_from_slice(elements);
        Ok(memory)
    }
}

impl<T> Drop for HostMemory<T> {
    fn drop(&mut self) {
        let bytes = self.len * size_of::<T>();
        if bytes > 0 {
            // SAFETY: allocated in `zeros` with this very layout, which was valid there; `T` is `Copy`, so there is
            // nothing to drop in it.
            unsafe {
                dealloc(self.start.as_ptr().cast(), Layout::from_size_align_unchecked(bytes, ALIGN));
            }
        }
    }
}

impl<T> Deref for HostMemory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were allocated at `start` and are initialized: zeros are valid, and so is whatever was
        // written since.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for HostMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the memory is borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_starts_on_a_cache_line() {
        for len in [0, 1, 63, 64, 65, 1000] {
            let mut memory = HostMemory::<u8>::zeros(len).unwrap();
            assert_eq!(memory.as_ptr().addr() % 64, 0, "{len}");
            assert!(memory.iter().all(|&byte| byte == 0), "{len}");
            memory.fill(7);
            assert_eq!(HostMemory::copy_of(&memory).unwrap().as_ref(), vec![7u8; len], "{len}");
        }
    }

    #[test]
    fn more_than_can_be_had_is_an_error() {
        let bytes = |len| match HostMemory::<u64>::zeros(len) {
            Err(Error::OutOfMemory { bytes, .. }) => bytes,
            other => panic!("{:?}", other.map(|memory| memory.len())),
        };
        assert_eq!(bytes(usize::MAX), usize::MAX as u128 * 8);
        assert_eq!(bytes(usize::MAX / 16), (usize::MAX / 16) as u128 * 8);
    }
}
