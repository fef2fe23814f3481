//! The grid: how many programs a launch runs along `x`, `y` and `z`.

use crate::error::{Error, Result};
use crate::kernel::Kernel;

/// The most programs along each axis.
const LIMITS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// A number of programs of any integer type; what no device can run is an error of the launch.
pub trait Extent: sealed::SealedExtent + Copy {
    #[doc(hidden)]
    fn extent(self) -> i128;
}

mod sealed {
    pub trait SealedExtent {}
}

macro_rules! extents {
    ($($type:ty)*) => {$(
        impl sealed::SealedExtent for $type {}
        impl Extent for $type {
            fn extent(self) -> i128 {
                self as i128
            }
        }
    )*};
}

extents!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);

/// A grid: `n`, `(n, m)` or `(n, m, k)`, in integers of any type.
#[diagnostic::on_unimplemented(
    message = "expected a grid, found `{Self}`",
    label = "not a grid",
    note = "a grid is one to three integers of any types: `n`, `(x, y)` or `(x, y, z)`; `.grid_by(|chosen| ..)` computes it from the chosen variant"
)]
pub trait IntoGrid {
    #[doc(hidden)]
    fn into_grid(self) -> Grid;
}

/// Three extents that were not checked yet.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Grid(pub(crate) [i128; 3]);

#[diagnostic::do_not_recommend]
impl<X: Extent> IntoGrid for X {
    fn into_grid(self) -> Grid {
        Grid([self.extent(), 1, 1])
    }
}

#[diagnostic::do_not_recommend]
impl<X: Extent, Y: Extent> IntoGrid for (X, Y) {
    fn into_grid(self) -> Grid {
        Grid([self.0.extent(), self.1.extent(), 1])
    }
}

#[diagnostic::do_not_recommend]
impl<X: Extent, Y: Extent, Z: Extent> IntoGrid for (X, Y, Z) {
    fn into_grid(self) -> Grid {
        Grid([self.0.extent(), self.1.extent(), self.2.extent()])
    }
}

#[diagnostic::do_not_recommend]
impl<X: Extent> IntoGrid for [X; 3] {
    fn into_grid(self) -> Grid {
        Grid(self.map(Extent::extent))
    }
}

impl Grid {
    /// The extents, if a device can run them.
    pub(crate) fn check(self, kernel: &'static Kernel) -> Result<[u32; 3]> {
        let mut checked = [0; 3];
        for (i, (extent, limit)) in self.0.into_iter().zip(LIMITS).enumerate() {
            checked[i] = u32::try_from(extent).ok().filter(|&extent| extent <= limit).ok_or(Error::Grid {
                kernel: kernel.name,
                axis: ['x', 'y', 'z'][i],
                extent,
                limit,
            })?;
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static KERNEL: Kernel = Kernel { name: "add", ..Kernel::TEST };

    fn check(grid: impl IntoGrid) -> Result<[u32; 3], String> {
        grid.into_grid().check(&KERNEL).map_err(|error| error.to_string())
    }

    #[test]
    fn grids_of_any_integers_are_taken() {
        assert_eq!(check(7), Ok([7, 1, 1]));
        assert_eq!(check(1000usize.div_ceil(64)), Ok([16, 1, 1]));
        assert_eq!(check((3u32, 4usize)), Ok([3, 4, 1]));
        assert_eq!(check((3i64, 0u8, 5i32)), Ok([3, 0, 5]));
        assert_eq!(check([1u64, 2, 3]), Ok([1, 2, 3]));
        assert_eq!(check((i32::MAX, 65_535, 65_535)), Ok([i32::MAX as u32, 65_535, 65_535]));
    }

    #[test]
    fn a_grid_beyond_the_limits_is_an_error_with_its_number() {
        let expected = |text: &str| Err(format!("kernel `add`: grid {text}"));
        assert_eq!(check(1u64 << 31), expected("x is 2147483648, the limit is 2147483647"));
        assert_eq!(check(u64::MAX), expected("x is 18446744073709551615, the limit is 2147483647"));
        assert_eq!(check((1, 65_536)), expected("y is 65536, the limit is 65535"));
        assert_eq!(check((1, 1, 70_000usize)), expected("z is 70000, the limit is 65535"));
        assert_eq!(check((1, -2)), expected("y is -2, and cannot be negative"));
    }
}
