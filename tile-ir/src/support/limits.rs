//! What the hardware's instructions can take, as far as more than one stage has to know.

/// The most bytes that one access of a thread moves.
pub const MAX_ACCESS_BYTES: u32 = 16;

/// The fewest bytes that an asynchronous copy (`cp.async`) moves.
pub const MIN_ASYNC_COPY_BYTES: u32 = 4;
