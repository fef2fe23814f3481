//! The modules whose PTX passed this test.
//!
//! MLIR and LLVM make the same PTX of the same module, as `ptxas` gives the same for the same PTX. So a module with a recorded hash goes
//! no further than MLIR, but for a sample.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use lowering::backend::nvptx::{self, PtxModule};
use lowering::gpu::specialization::Specialization;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// What is made of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    LlvmIr,
    Ptx,
}

/// The hash of a module, of what is made of it, and of what that is checked against.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ModuleHash(u64);

/// The hash of what checks PTX.
static CHECKS: LazyLock<u64> = LazyLock::new(|| nvptx::source_hash(&[include_str!("entry.rs")]));

/// One of so many modules goes all the way though it is known.
const SAMPLE: u64 = 32;

impl ModuleHash {
    pub fn of(
        module: &PtxModule,
        product: Product,
        Specialization { plan, .. }: &Specialization,
    ) -> ModuleHash {
        let (hash, checks) = (module.hash(), *CHECKS);
        let expected = format!("{hash:016x} {checks:016x} {product:?} {} {:?}", plan.uses_pdl(), plan.limit);
        ModuleHash(xxh3_64(expected.as_bytes()))
    }
}

/// The hashes of a file, one in a line.
#[derive(Default)]
pub struct KnownModules(BTreeSet<ModuleHash>);

impl KnownModules {
    pub fn read(path: &Path) -> KnownModules {
        let text = fs::read_to_string(path).unwrap_or_default();
        KnownModules(
            text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).map(ModuleHash).collect(),
        )
    }

    /// Whether the module passed, and it is not in the sample.
    pub fn skips(&self, hash: ModuleHash) -> bool {
        !hash.0.is_multiple_of(SAMPLE) && self.0.contains(&hash)
    }

    /// Compares what was found with the file; `UPDATE_EXPECT=1` writes it.
    pub fn record(&self, found: BTreeSet<ModuleHash>, path: &Path) {
        if found != self.0 && std::env::var_os("UPDATE_EXPECT").is_some() {
            let lines: String = found.iter().map(|ModuleHash(hash)| format!("{hash:016x}\n")).collect();
            fs::write(path, lines).expect("the hashes are written");
        }
    }
}
