//! [`Temporary`]: a workspace that one launch writes and the next reads.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::device::On;
use crate::dtype::Element;
use crate::error::Result;
use crate::graph::Recorder;
use crate::slice::{Slice, SliceMut};

/// A workspace of launches, made by [`LaunchOn::temporary`](crate::LaunchOn::temporary). Its initial contents are
/// unspecified. It may be dropped as soon as the launches are made: it is freed in the order of its stream, and a graph owns it
/// while it lives.
pub struct Temporary<T: Element> {
    /// There until it is dropped.
    buffer: Option<Buffer<T>>,
    recorder: Option<Arc<Recorder>>,
}

impl<T: Element> Temporary<T> {
    /// On a stream, which `recorder` records where it is being captured.
    pub(crate) fn new(on: On<'_>, recorder: Option<&Arc<Recorder>>, len: usize) -> Result<Self> {
        let mut buffer = match recorder {
            // A graph's launches find it where it is now.
            Some(_) => Buffer::uninit(on.without_stream(), len)?,
            None => Buffer::uninit(on, len)?,
        };
        if let Some(recorder) = recorder {
            recorder.register(buffer.slice_mut(..).into_bytes(), T::DTYPE, on);
        }
        Ok(Temporary { buffer: Some(buffer), recorder: recorder.cloned() })
    }

    fn buffer(&self) -> &Buffer<T> {
        self.buffer.as_ref().expect("it is there until it is dropped")
    }

    /// All of it, to read.
    pub fn slice(&self) -> Slice<'_, T> {
        self.buffer().slice(..)
    }

    /// All of it, to write.
    pub fn slice_mut(&mut self) -> SliceMut<'_, T> {
        self.buffer.as_mut().expect("it is there until it is dropped").slice_mut(..)
    }
}

impl<T: Element> Drop for Temporary<T> {
    fn drop(&mut self) {
        if let (Some(recorder), Some(buffer)) = (&self.recorder, self.buffer.take()) {
            recorder.adopt(Box::new(buffer));
        }
    }
}
