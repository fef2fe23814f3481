//! Passes over laid-out tile IR that make it faster on a GPU and never change a result.

pub mod batch_reductions;
pub mod delay_fp8_upcast;
pub mod dot_refusal;
pub mod elide_selects;
pub mod hoist_conversions;
pub mod hoist_loads;
pub mod remat_narrow;
pub mod remat_ranges;
pub mod select_copied_wgmma;
pub mod select_tma_store;
pub mod select_wgmma;
pub mod thread_local_reductions;
pub mod tma_box;
pub mod view_pointers;
