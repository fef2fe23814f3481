//! [`KernelCall`]: which code a launch runs, and how many programs of it.

use crate::device::On;
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::kernel::{Kernel, Variant};
use crate::select_variant::Chosen;

/// The grid of a launch.
pub(super) enum GridSpec<'a> {
    Missing,
    Fixed(Grid),
    /// A function of the chosen variant.
    PerVariant(Box<dyn Fn(Chosen) -> Grid + Send + Sync + 'a>),
}

impl GridSpec<'_> {
    pub(super) fn of(
        &self,
        kernel: &'static Kernel,
        variant: &'static Variant,
        on: On<'_>,
    ) -> Result<[u32; 3]> {
        match self {
            GridSpec::Missing => Err(Error::NoGrid { kernel: kernel.name }),
            GridSpec::Fixed(grid) => grid.check(kernel),
            GridSpec::PerVariant(grid) => {
                grid(Chosen { kernel, variant, parallelism: on.parallelism() }).check(kernel)
            }
        }
    }
}

/// A launch whose grid is known, without its arguments.
#[derive(Clone, Copy)]
pub(super) struct KernelCall {
    pub(super) kernel: &'static Kernel,
    pub(super) variant: &'static Variant,
    /// In programs.
    pub(super) grid: [u32; 3],
}
