//! One choice of a kernel's generics and settings.

use std::fmt;

use crate::frontend::syntax::Kernel;
use crate::support::dtype::DType;

/// One choice of every generic, in the order of the generics.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Variant {
    pub types: Vec<(String, DType)>,
    pub consts: Vec<(String, ConstValue)>,
    pub settings: Settings,
    /// The settings in its config, for its label, if calls leave configs open.
    pub named: Vec<(String, i128)>,
    /// The place of its config among the kernel's.
    pub config: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstValue {
    Int(i128),
    Bool(bool),
}

/// How one variant is compiled; the compiler chooses what is not set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Settings {
    /// Warps of a block: of a program, unless several blocks run it.
    pub num_warps: Option<u32>,
    /// Blocks of a cluster that run one program together, where the GPU has clusters.
    pub num_ctas: Option<u32>,
    /// Iterations of a loop whose loads are in flight at once on a GPU, for loops without `num_stages` of their own; 1 does
    /// not software-pipeline.
    pub num_stages: Option<u32>,
    /// The most registers of a thread, `.maxnreg`, except in the general specialization beside another one. 255 is no
    /// limit.
    pub maxnreg: Option<u32>,
}

impl fmt::Display for ConstValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstValue::Int(value) => write!(f, "{value}"),
            ConstValue::Bool(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.types.iter().map(|(name, dtype)| format!("{name} = {dtype}"));
        let consts = self.consts.iter().map(|(name, value)| format!("{name} = {value}"));
        let named = self.named.iter().map(|(name, value)| format!("{name} = {value}"));
        f.write_str(&types.chain(consts).chain(named).collect::<Vec<_>>().join(", "))
    }
}

impl Variant {
    /// Whether every call that selects one selects the other. Unless they leave configs open, calls select by generics alone.
    pub(super) fn is_indistinguishable_from(&self, other: &Variant, kernel: &Kernel) -> bool {
        self.types == other.types
            && self.consts == other.consts
            && (!kernel.options.leaves_configs_open() || self.settings == other.settings)
    }
}
