//! [`GraphBuffers`]: the memory that a graph owns.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::dtype::{DType, Element};
use crate::slice::{SharedBytes, Slice, SliceMut, UniqueBytes};

/// Memory that a [`Graph`](crate::Graph) owns or borrows for the kernels it runs: a [`Buffer`], owned or borrowed, an `Arc` of one to
/// read, a [`Slice`] or [`SliceMut`]; a tuple of up to eight of these, a `Vec` or an array.
pub trait GraphBuffers: sealed::SealedBuffers {
    /// Calls the visitor with each memory region.
    #[doc(hidden)]
    fn visit<'h>(&'h mut self, visitor: &mut dyn FnMut(MemoryRegion<'h>));
}

/// A memory region, for the launcher.
#[doc(hidden)]
pub struct MemoryRegion<'h> {
    pub(crate) bytes: RegionBytes<'h>,
    pub(crate) dtype: DType,
}

pub(crate) enum RegionBytes<'h> {
    Shared(SharedBytes<'h>),
    Unique(UniqueBytes<'h>),
}

mod sealed {
    pub trait SealedBuffers {}
}

fn shared<T: Element>(slice: Slice<'_, T>) -> MemoryRegion<'_> {
    MemoryRegion { bytes: RegionBytes::Shared(slice.bytes()), dtype: T::DTYPE }
}

fn unique<T: Element>(slice: SliceMut<'_, T>) -> MemoryRegion<'_> {
    MemoryRegion { bytes: RegionBytes::Unique(slice.into_bytes()), dtype: T::DTYPE }
}

macro_rules! graph_buffers {
    ($([$($generics:tt)*] $type:ty, |$own:ident| $region:expr;)*) => {$(
        impl<$($generics)*> sealed::SealedBuffers for $type {}
        impl<$($generics)*> GraphBuffers for $type {
            fn visit<'h>(&'h mut self, visitor: &mut dyn FnMut(MemoryRegion<'h>)) {
                let $own = self;
                visitor($region);
            }
        }
    )*};
}

graph_buffers! {
    [T: Element] Buffer<T>, |own| unique(own.slice_mut(..));
    [T: Element] &mut Buffer<T>, |own| unique(own.slice_mut(..));
    [T: Element] &Buffer<T>, |own| shared(own.slice(..));
    [T: Element] Arc<Buffer<T>>, |own| shared(own.slice(..));
    [T: Element] Slice<'_, T>, |own| shared(own.slice(..));
    [T: Element] SliceMut<'_, T>, |own| unique(own.reborrow());
}

impl<H: GraphBuffers> sealed::SealedBuffers for Vec<H> {}
impl<H: GraphBuffers> GraphBuffers for Vec<H> {
    fn visit<'h>(&'h mut self, visitor: &mut dyn FnMut(MemoryRegion<'h>)) {
        self.iter_mut().for_each(|item| item.visit(visitor));
    }
}

impl<H: GraphBuffers, const N: usize> sealed::SealedBuffers for [H; N] {}
impl<H: GraphBuffers, const N: usize> GraphBuffers for [H; N] {
    fn visit<'h>(&'h mut self, visitor: &mut dyn FnMut(MemoryRegion<'h>)) {
        self.iter_mut().for_each(|item| item.visit(visitor));
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: GraphBuffers),*> sealed::SealedBuffers for ($($name,)*) {}
        impl<$($name: GraphBuffers),*> GraphBuffers for ($($name,)*) {
            #[allow(non_snake_case, unused_variables)]
            fn visit<'h>(&'h mut self, visitor: &mut dyn FnMut(MemoryRegion<'h>)) {
                let ($($name,)*) = self;
                $($name.visit(visitor);)*
            }
        }
    )*};
}

tuples! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}
