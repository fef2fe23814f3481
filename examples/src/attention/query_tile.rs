//! The queries of a program of attention, and the mask that says which keys they attend to: an enum and a struct for kernels of any crate.

use dsl_runtime::prelude::*;

#[fuse_module]
mod functions {
    use dsl_runtime::prelude::*;

    /// Which keys a query attends to. Positions count so that the last query has that of the last key.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AttentionMask {
        /// All.
        None,
        /// Those up to its own position.
        Causal,
        /// Those from `left` before its position to `right` behind it.
        Window,
    }

    /// The queries of a program, `M` of a head, and where the keys end and begin that they attend to.
    #[fuse_struct]
    pub struct QueryTile {
        mask: AttentionMask,
        /// Counts the heads of all sequences.
        pub batch_head: i32,
        /// The first query.
        pub row: i32,
        /// The position of the first query among the keys.
        pub position: i32,
        /// How many keys there are.
        pub keys: i32,
        /// The last key that the first query attends to.
        causal_limit: i32,
        /// The first key that the first query attends to.
        window_start: i32,
    }

    impl QueryTile {
        /// That of this program, of a grid whose first axis counts heads that run concurrently, one without a mask, the second one tiles of
        /// queries, and the third one such sets of heads. Longest processing time first: of concurrent heads the programs with the most keys
        /// begin, where they differ. `left` and `right` are the window's.
        pub fn of_program<const M: usize>(
            mask: AttentionMask,
            queries: i32,
            keys: i32,
            left: i32,
            right: i32,
        ) -> Self {
            let (batch_head, tile) = match mask {
                AttentionMask::None => (tl::program_id(2), tl::program_id(1)),
                _ => {
                    let batch_head = tl::program_id(2) * tl::num_programs(0) + tl::program_id(0);
                    (batch_head, tl::num_programs(1) - 1 - tl::program_id(1))
                }
            };
            let row = tile * M;
            let position = row + (keys - queries);
            let causal_limit = position
                + match mask {
                    AttentionMask::Window => right,
                    _ => 0,
                };
            let window_start = causal_limit - right - left;
            QueryTile { mask, batch_head, row, position, keys, causal_limit, window_start }
        }

        /// The first key that any of the queries attends to, and the end of these.
        pub fn visible_keys<const M: usize>(&self) -> (Tile<i32>, Tile<i32>) {
            let end = tl::minimum(self.keys, self.causal_limit + M);
            match self.mask {
                AttentionMask::None => (0, self.keys),
                AttentionMask::Causal => (0, end),
                AttentionMask::Window => (tl::maximum(self.window_start, 0) / 16 * 16, end),
            }
        }

        /// Scores `[M, N]` of keys from `start` on, -infinity where a query does not attend to the key, and behind the last key.
        pub fn masked<const M: usize, const N: usize>(&self, scores: Tile<f32>, start: i32) -> Tile<f32> {
            let last = start + (N as i32 - 1);
            // A causal limit is within bounds.
            let is_partial = match self.mask {
                AttentionMask::None => last >= self.keys,
                AttentionMask::Causal => last > self.causal_limit,
                AttentionMask::Window => {
                    let is_cut_left = start < self.window_start + (M as i32 - 1);
                    last >= self.keys || last > self.causal_limit || is_cut_left
                }
            };
            if is_partial {
                let k_positions = start + tl::arange(0, N);
                let is_in_bounds = (k_positions < self.keys).row();
                let is_within_limit = k_positions.row() <= self.causal_limit + tl::arange(0, M).col();
                let is_visible = match self.mask {
                    AttentionMask::None => is_in_bounds,
                    AttentionMask::Causal => is_within_limit,
                    AttentionMask::Window => {
                        let is_in_window = k_positions.row() >= self.window_start + tl::arange(0, M).col();
                        is_in_bounds & is_within_limit & is_in_window
                    }
                };
                tl::select(is_visible, scores, f32::NEG_INFINITY)
            } else {
                scores
            }
        }
    }
}

pub use functions::{AttentionMask, QueryTile};
