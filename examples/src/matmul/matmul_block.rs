//! How much of a matmul's result a program computes, and how much of K an iteration.

/// The rows and columns of the result that a program computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileShape {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub cols: usize,
}

impl TileShape {
    /// A tile of so many rows and columns.
    pub const fn new(rows: usize, cols: usize) -> TileShape {
        TileShape { rows, cols }
    }

    /// The number of tiles of results of `m x n` elements.
    pub fn count(self, [batches, m, n]: [usize; 3]) -> usize {
        batches * m.div_ceil(self.rows) * n.div_ceil(self.cols)
    }

    /// The tile for results of `m x n` elements, of a large and a small one: the large one where a small one does not cover
    /// all rows or columns, and where large ones occupy three of four SMs or CPUs.
    pub fn of([large, small]: [TileShape; 2], [batches, m, n]: [usize; 3], parallelism: usize) -> TileShape {
        let fills = m > small.rows && n > small.cols && 4 * large.count([batches, m, n]) >= 3 * parallelism;
        if fills { large } else { small }
    }
}

/// The tile of a program, and the extent along K of an iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Rows and columns of the result.
    pub tile: TileShape,
    /// `BLOCK_K`
    pub k: usize,
}

impl Block {
    /// A tile of so many rows and columns, in iterations of `k`.
    pub const fn new(rows: usize, cols: usize, k: usize) -> Block {
        Block { tile: TileShape::new(rows, cols), k }
    }
}
