//! How much shared memory there is.

/// Shared memory of a block on the supported architectures (sm_80: 163 KB, sm_90: 227 KB).
pub const MAX_SHARED_BYTES: u32 = 163 * 1024;
/// Shared memory of a block on every GPU that runs this code (sm_86 and sm_89: 99 KB).
pub const MIN_SHARED_BYTES: u32 = 99 * 1024;
/// Stages of copies to tiles that dots read, where the user does not say.
pub const DEFAULT_TILE_STAGES: u32 = 3;
