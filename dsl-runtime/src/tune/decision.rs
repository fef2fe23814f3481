//! [`Decision`]: which config was chosen, and what was known of the others.

use crate::error::Result;

/// A choice that this process has made or found.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// The kernel, with the path of its module.
    pub kernel: String,
    /// The name of the device.
    pub device: String,
    /// The values of the key.
    pub key: Vec<i128>,
    /// The label of the variant.
    pub chosen: String,
    /// Where it is from.
    pub source: Source,
    /// All that could have been chosen: the label, and the time in milliseconds or why there is none.
    pub candidates: Vec<(String, Result<f64, String>)>,
}

/// Where a choice is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Source {
    /// This process measured it.
    Measured,
    /// An earlier process measured it.
    Disk,
    /// The file that ships with the crate.
    Shipped,
    /// Nothing is known, and `FUSE_TUNE=off`: the first config.
    First,
}
