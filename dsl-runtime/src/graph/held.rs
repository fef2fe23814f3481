//! [`Held`]: the memory that a graph keeps.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::dtype::Element;
use crate::slice::{SharedBytes, Slice, SliceMut, UniqueBytes};

/// Memory that a [`Graph`](crate::Graph) keeps for the kernels it runs: a [`Buffer`], owned or borrowed, an `Arc` of one to
/// read, a [`Slice`] or [`SliceMut`]; a tuple of up to eight of these, a `Vec` or an array.
pub trait Held: sealed::Sealed {
    /// Shows each piece of it.
    #[doc(hidden)]
    fn show<'h>(&'h mut self, each: &mut dyn FnMut(Piece<'h>));
}

/// A piece of memory, for the launcher.
#[doc(hidden)]
pub struct Piece<'h>(pub(crate) Bytes<'h>);

pub(crate) enum Bytes<'h> {
    Shared(SharedBytes<'h>),
    Unique(UniqueBytes<'h>),
}

mod sealed {
    pub trait Sealed {}
}

fn shared<T: Element>(slice: Slice<'_, T>) -> Piece<'_> {
    Piece(Bytes::Shared(slice.bytes()))
}

fn unique<T: Element>(slice: SliceMut<'_, T>) -> Piece<'_> {
    Piece(Bytes::Unique(slice.into_bytes()))
}

macro_rules! held {
    ($([$($generics:tt)*] $type:ty, |$own:ident| $piece:expr;)*) => {$(
        impl<$($generics)*> sealed::Sealed for $type {}
        impl<$($generics)*> Held for $type {
            fn show<'h>(&'h mut self, each: &mut dyn FnMut(Piece<'h>)) {
                let $own = self;
                each($piece);
            }
        }
    )*};
}

held! {
    [T: Element] Buffer<T>, |own| unique(own.slice_mut(..));
    [T: Element] &mut Buffer<T>, |own| unique(own.slice_mut(..));
    [T: Element] &Buffer<T>, |own| shared(own.slice(..));
    [T: Element] Arc<Buffer<T>>, |own| shared(own.slice(..));
    [T: Element] Slice<'_, T>, |own| shared(own.slice(..));
    [T: Element] SliceMut<'_, T>, |own| unique(own.reborrow());
}

impl<H: Held> sealed::Sealed for Vec<H> {}
impl<H: Held> Held for Vec<H> {
    fn show<'h>(&'h mut self, each: &mut dyn FnMut(Piece<'h>)) {
        self.iter_mut().for_each(|held| held.show(each));
    }
}

impl<H: Held, const N: usize> sealed::Sealed for [H; N] {}
impl<H: Held, const N: usize> Held for [H; N] {
    fn show<'h>(&'h mut self, each: &mut dyn FnMut(Piece<'h>)) {
        self.iter_mut().for_each(|held| held.show(each));
    }
}

macro_rules! tuples {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: Held),*> sealed::Sealed for ($($name,)*) {}
        impl<$($name: Held),*> Held for ($($name,)*) {
            #[allow(non_snake_case, unused_variables)]
            fn show<'h>(&'h mut self, each: &mut dyn FnMut(Piece<'h>)) {
                let ($($name,)*) = self;
                $($name.show(each);)*
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
