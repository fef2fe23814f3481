//! [`Executable`]: the instantiated CUDA graph of a capture.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphInstantiate_flags};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

/// A graph, ready to run. The bindings' own keeps the stream that it was captured on, and so its context in the mode in
/// which each launch records events.
pub(super) struct Executable {
    context: Arc<CudaContext>,
    graph: CUgraph,
    exec: CUgraphExec,
}

// SAFETY: the driver takes a graph from any thread as long as it is one at a time, and only `&mut Graph` uses it.
unsafe impl Send for Executable {}

impl Executable {
    /// Ends the capture of a stream; `None` if the driver gives no graph.
    pub(super) fn captured(stream: &CudaStream) -> Result<Option<Executable>, DriverError> {
        let context = stream.context().clone();
        context.bind_to_thread()?;
        // SAFETY: the stream is of this context, which is current.
        let graph = unsafe { result::stream::end_capture(stream.cu_stream()) }?;
        if graph.is_null() {
            return Ok(None);
        }
        // SAFETY: the driver just made the graph, and nobody else knows it.
        let exec = unsafe { result::graph::instantiate(graph, CUgraphInstantiate_flags(0)) };
        let exec = exec.inspect_err(|_| {
            // SAFETY: as above.
            context.record_err(unsafe { result::graph::destroy(graph) });
        })?;
        Ok(Some(Executable { context, graph, exec }))
    }

    pub(super) fn raw(&self) -> CUgraphExec {
        self.exec
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: nobody else has them. One that is still running goes when it has run.
        self.context.record_err(unsafe { result::graph::exec_destroy(self.exec) });
        // SAFETY: as above.
        self.context.record_err(unsafe { result::graph::destroy(self.graph) });
    }
}
