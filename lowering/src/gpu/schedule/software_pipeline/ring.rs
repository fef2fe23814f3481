//! The shared memory that the copies of a loop ask for, and what they have got.

/// Shared memory for the asynchronous copies of a loop.
#[derive(Clone)]
pub struct SmemRing {
    /// The best first.
    pub choices: Vec<RingChoice>,
    /// What its start is a multiple of.
    pub alignment: u32,
    /// Identifies which thread uses which bytes, if each thread uses bytes of its own: rings of the same shape may follow each
    /// other without a barrier.
    pub shape: Option<u64>,
}

/// A size that a ring may have, and where shared memory may end then.
#[derive(Clone, Copy, Debug)]
pub struct RingChoice {
    pub bytes: u32,
    pub limit: u32,
}

/// The shared memory that a loop's ring has got.
#[derive(Clone, Copy, Debug)]
pub struct AllocatedRing {
    pub start: u32,
    pub bytes: u32,
    pub shape: Option<u64>,
}
