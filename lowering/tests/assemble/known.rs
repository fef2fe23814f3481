//! The LLVM IR whose PTX passed this test.
//!
//! LLVM prints the same PTX for the same IR, as `ptxas` gives the same for the same PTX. So IR with a recorded hash is not printed
//! again, but for a sample.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lowering::backend::nvptx::TranslatedModule;
use lowering::gpu::specialization::Specialization;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The hash of a module, and of what its PTX is checked against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct IrHash(u64);

/// One of so many modules is printed though it is known.
const SAMPLE: u64 = 32;

impl IrHash {
    pub fn of(module: &TranslatedModule, Specialization { plan, .. }: &Specialization) -> IrHash {
        let expected = format!("{:016x} {} {:?}", module.hash(), plan.uses_pdl(), plan.limit);
        IrHash(xxh3_64(expected.as_bytes()))
    }
}

/// The hashes of a file, one in a line.
#[derive(Default)]
pub struct KnownIr(BTreeSet<IrHash>);

impl KnownIr {
    pub fn read(path: &Path) -> KnownIr {
        let text = fs::read_to_string(path).unwrap_or_default();
        KnownIr(text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).map(IrHash).collect())
    }

    /// Whether the module's PTX passed, and it is not in the sample.
    pub fn skips(&self, hash: IrHash) -> bool {
        !hash.0.is_multiple_of(SAMPLE) && self.0.contains(&hash)
    }

    /// Compares what was found with the file; `UPDATE_EXPECT=1` writes it.
    pub fn record(&self, found: BTreeSet<IrHash>, path: &Path) {
        if found != self.0 && std::env::var_os("UPDATE_EXPECT").is_some() {
            let lines: String = found.iter().map(|IrHash(hash)| format!("{hash:016x}\n")).collect();
            fs::write(path, lines).expect("the hashes are written");
        }
    }
}
