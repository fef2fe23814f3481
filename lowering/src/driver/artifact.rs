//! The artifacts of a variant: its specializations and their code.

use serde::{Deserialize, Serialize};
use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck::Variant;
use tile_ir::ops::Site;
use tile_ir::support::warning::Warning;

use crate::backend::compress::Deflated;
use crate::backend::ptxas::Cubin;
use crate::cpu::emit::NotedAccesses;
use crate::gpu::specialization::Specialization;

/// Everything known about one variant after lowering.
#[derive(Debug)]
pub struct LoweredVariant {
    pub specializations: Vec<Specialization>,
    pub scratch_bytes: u64,
    /// Whether the host code has a record.
    pub host_reports: bool,
    /// What the host code notes to find races.
    pub noted: NotedAccesses,
    /// What its operations of a debug build say.
    pub sites: Vec<Site>,
    /// Likely mistakes.
    pub warnings: Vec<Warning>,
    /// Identifies the tile IR and how it is lowered: it changes with every edit that matters.
    pub source: u64,
    pub code: VariantCode,
}

/// The code of one variant: what the cache stores.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct VariantCode {
    pub modules: Vec<GpuModule>,
    /// Assembly for each level, by the level's name.
    pub hosts: Vec<(String, String)>,
}

/// GPU code of one specialization for one architecture: the CUDA driver loads no more of a kernel than is launched.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GpuModule {
    pub capability: u32,
    pub exact: bool,
    /// Its index among the variant's specializations.
    pub specialization: usize,
    pub ptx: Deflated,
    pub cubin: Option<Cubin>,
}

/// `layer_norm_bf16_1024_aligned`
pub fn entry_name(kernel: &Kernel, variant: &Variant, specialization: &Specialization) -> String {
    let types = variant.types.iter().map(|(_, dtype)| dtype.to_string());
    let consts = variant.consts.iter().map(|(_, value)| value.to_string().replace('-', "minus_"));
    let parts: Vec<String> = std::iter::once(kernel.name.to_string())
        .chain(types)
        .chain(consts)
        .chain(variant.named.iter().map(|(name, value)| format!("{name}_{value}")))
        .chain([specialization.name.to_string()])
        .collect();
    parts.join("_")
}
