//! Where the producer publishes work tiles to the consumers in shared memory: the tiles of [`WORK_TILE_STAGES`] stages, a full
//! barrier of each, an empty barrier of each, and a slot for the tile counter's last index.

/// An `mbarrier` object.
pub const MBARRIER_BYTES: u32 = 8;
/// Work tiles that are published before consumers take them.
pub const WORK_TILE_STAGES: u32 = 2;
/// Bytes of a work tile's index and coordinates.
pub const COORD_BYTES: u32 = 16;
/// Bytes of a published scalar.
pub const SCALAR_BYTES: u32 = 8;
/// Alignment of the first work tile.
pub const WORK_TILE_ALIGNMENT: u32 = 16;

/// Published work tiles of so many scalars, from an address on that is a multiple of [`WORK_TILE_ALIGNMENT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkTileLayout {
    pub address: u32,
    pub scalars: u32,
}

impl WorkTileLayout {
    /// Bytes of a work tile.
    pub fn tile_bytes(self) -> u32 {
        (COORD_BYTES + SCALAR_BYTES * self.scalars).next_multiple_of(WORK_TILE_ALIGNMENT)
    }

    /// The offset of a scalar in a work tile.
    pub fn scalar_offset(index: usize) -> u32 {
        COORD_BYTES + SCALAR_BYTES * index as u32
    }

    /// The full barriers, one a stage.
    pub fn full_barriers(self) -> u32 {
        self.address + WORK_TILE_STAGES * self.tile_bytes()
    }

    /// The empty barriers, one a stage.
    pub fn empty_barriers(self) -> u32 {
        self.full_barriers() + WORK_TILE_STAGES * MBARRIER_BYTES
    }

    /// The slot of the tile counter's last index.
    pub fn counter_slot(self) -> u32 {
        self.empty_barriers() + WORK_TILE_STAGES * MBARRIER_BYTES
    }

    /// The end of it all where the scheduler is static, which needs no slot.
    pub fn static_end(self) -> u32 {
        self.counter_slot()
    }

    /// The end of it all where the scheduler is dynamic.
    pub fn dynamic_end(self) -> u32 {
        self.counter_slot() + MBARRIER_BYTES
    }
}
