//! [`TuningSpace`]: the variants that a call of a tuned kernel leaves open.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};
use crate::select_variant::Choice;

/// The variants that a call may run, and what the choice among them depends on. Made by what `#[fuse_kernel]` generates.
pub struct TuningSpace {
    pub(crate) candidates: Vec<&'static Variant>,
    pub(crate) key: Vec<i128>,
}

impl TuningSpace {
    /// The variants that [`Kernel::candidates`] finds, with the values of the key.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(
        kernel: &'static Kernel,
        types: &[DType],
        choices: &[Choice],
        allows: impl Fn(usize) -> bool,
        key: Vec<i128>,
    ) -> Result<TuningSpace> {
        Ok(TuningSpace { candidates: kernel.candidates(types, choices, allows)?, key })
    }

    /// Leaves those whose label has each of the settings of `config`, such as `BLOCK = 1024, num_warps = 4`.
    pub(crate) fn only(mut self, kernel: &'static Kernel, config: &str) -> Result<TuningSpace> {
        let parts =
            |label: &str| -> Vec<String> { label.split(',').map(|part| part.trim().to_string()).collect() };
        let wanted = parts(config);
        let declared = self.candidates.iter().map(|variant| variant.label).collect();
        self.candidates.retain(|variant| {
            let own = parts(variant.label);
            wanted.iter().all(|part| own.contains(part))
        });
        if self.candidates.is_empty() {
            return Err(Error::NoVariant { kernel: kernel.name, wanted: config.to_string(), declared });
        }
        Ok(self)
    }
}
