//! The JSON manifest of a kernel: entries, guards, arguments and tensor maps.

use serde::Serialize;

use crate::dtype::DType;
use crate::guard::{name, power};
use crate::kernel::{
    Arch, Guard, Kernel, Module, Multicast, Param, ParamKind, Polynomial, Resources, Specialization, Symbol,
    TensorMap, Term, Variant,
};

/// Counts up when a reader of an older file would misread it.
const FORMAT: u32 = 9;

/// The names of the files, relative to the JSON file.
pub(super) struct ImageFiles {
    pub(super) ptx: String,
    /// With the compute capability of each.
    pub(super) cubins: Vec<(u32, String)>,
}

/// A variant of a kernel on one architecture.
#[derive(Serialize)]
pub(super) struct KernelRecord<'k> {
    format: u32,
    kernel: &'k str,
    module: &'k str,
    label: &'k str,
    types: Vec<&'static str>,
    consts: &'k [i128],
    arch: ArchRecord,
    params: Vec<ParamRecord<'k>>,
    /// What an entry takes, in order.
    arguments: Vec<ArgumentRecord>,
    /// From the one with the most guards to the one without.
    #[serde(rename = "bodies")]
    specializations: Vec<SpecializationRecord<'k>>,
}

impl<'k> KernelRecord<'k> {
    pub(super) fn new(
        kernel: &'k Kernel,
        variant: &'k Variant,
        arch: Arch,
        specializations: Vec<(&'k Module, ImageFiles)>,
    ) -> Self {
        let params = || kernel.params.iter().zip(variant.dtypes.iter().copied());
        let extents = ["x", "y", "z"].map(|axis| ArgumentRecord::new(format!("grid.{axis}"), "grid", "u32"));
        KernelRecord {
            format: FORMAT,
            kernel: kernel.name,
            module: kernel.module,
            label: variant.label,
            types: variant.types.iter().map(|dtype| dtype.name()).collect(),
            consts: variant.consts,
            arch: ArchRecord { name: arch.to_string(), capability: arch.capability, exact: arch.exact },
            params: params().map(|(param, dtype)| ParamRecord::new(param, dtype)).collect(),
            arguments: params()
                .flat_map(|(param, dtype)| ArgumentRecord::of(param, dtype))
                .chain(extents)
                .collect(),
            specializations: specializations
                .into_iter()
                .map(|(module, images)| {
                    SpecializationRecord::new(&module.specialization, images, kernel.params)
                })
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct ArchRecord {
    name: String,
    capability: u32,
    exact: bool,
}

#[derive(Serialize)]
struct CubinRecord {
    capability: u32,
    file: String,
}

#[derive(Serialize)]
struct ParamRecord<'k> {
    name: &'k str,
    kind: &'static str,
    dtype: &'static str,
    /// Of a view, whose extents and strides are the scalars that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u8>,
}

impl<'k> ParamRecord<'k> {
    fn new(param: &'k Param, dtype: DType) -> Self {
        let (kind, rank) = match param.kind {
            ParamKind::Slice => ("slice", None),
            ParamKind::SliceMut => ("slice_mut", None),
            ParamKind::View(rank) => ("view", Some(rank)),
            ParamKind::ViewMut(rank) => ("view_mut", Some(rank)),
            ParamKind::Scalar => ("scalar", None),
        };
        ParamRecord { name: param.name, kind, dtype: dtype.name(), rank }
    }
}

#[derive(Serialize)]
struct ArgumentRecord {
    name: String,
    kind: &'static str,
    r#type: &'static str,
}

impl ArgumentRecord {
    fn new(name: String, kind: &'static str, r#type: &'static str) -> Self {
        ArgumentRecord { name, kind, r#type }
    }

    /// What a parameter becomes.
    fn of(param: &Param, dtype: DType) -> Vec<ArgumentRecord> {
        let name = param.name.to_string();
        match param.kind {
            ParamKind::Slice | ParamKind::SliceMut | ParamKind::View(_) | ParamKind::ViewMut(_) => {
                let length = ArgumentRecord::new(format!("len({name})"), "length", "i64");
                vec![ArgumentRecord::new(name, "address", "u64"), length]
            }
            ParamKind::Scalar => {
                let r#type = if dtype == DType::Bool { "u8" } else { dtype.name() };
                vec![ArgumentRecord::new(name, "value", r#type)]
            }
        }
    }
}

#[derive(Serialize)]
struct SpecializationRecord<'k> {
    entry: &'k str,
    ptx: String,
    cubins: Vec<CubinRecord>,
    threads: u32,
    programs_per_block: u32,
    blocks_per_program: u32,
    persistent: bool,
    #[serde(rename = "counted")]
    uses_work_counter: bool,
    /// The attribute of a launch that it may have: see [`Specialization::uses_pdl`].
    #[serde(rename = "follows")]
    uses_pdl: bool,
    shared_bytes: u32,
    #[serde(rename = "facts")]
    guards: Vec<GuardRecord>,
    /// What it takes behind the arguments, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    maps: Vec<MapRecord>,
    resources: Option<ResourcesRecord>,
}

impl<'k> SpecializationRecord<'k> {
    fn new(specialization: &'k Specialization, images: ImageFiles, params: &[Param]) -> Self {
        let cubin = |(capability, file)| CubinRecord { capability, file };
        let sums = |sums: &[Polynomial]| sums.iter().map(|&sum| terms(sum, params)).collect();
        let map =
            |&TensorMap { param, extents, strides, block, swizzle, tf32, multicast }: &TensorMap| MapRecord {
                param: name(params, param),
                extents: sums(extents),
                strides: sums(strides),
                block,
                swizzle,
                tf32,
                multicast: multicast.map(|Multicast { axis, step, bytes }| MulticastRecord {
                    axis,
                    step,
                    bytes,
                }),
            };
        let guard =
            |guard: &Guard| GuardRecord { text: guard.text(params), guard: GuardKind::new(guard, params) };
        SpecializationRecord {
            entry: specialization.entry,
            ptx: images.ptx,
            cubins: images.cubins.into_iter().map(cubin).collect(),
            threads: specialization.threads,
            programs_per_block: specialization.programs_per_block,
            blocks_per_program: specialization.blocks_per_program,
            persistent: specialization.persistent,
            uses_work_counter: specialization.uses_work_counter,
            uses_pdl: specialization.uses_pdl,
            shared_bytes: specialization.shared_bytes,
            guards: specialization.guards.iter().map(guard).collect(),
            maps: specialization.maps.iter().map(map).collect(),
            resources: specialization.resources.map(ResourcesRecord::from),
        }
    }
}

#[derive(Serialize)]
struct MapRecord {
    param: &'static str,
    extents: Vec<Vec<TermRecord>>,
    strides: Vec<Vec<TermRecord>>,
    block: &'static [u32],
    swizzle: u32,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tf32: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    multicast: Option<MulticastRecord>,
}

#[derive(Serialize)]
struct MulticastRecord {
    axis: u8,
    step: u32,
    bytes: u32,
}

#[derive(Serialize)]
struct GuardRecord {
    text: String,
    #[serde(flatten)]
    guard: GuardKind,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum GuardKind {
    Aligned { param: &'static str, bytes: u32 },
    Divisible { value: Vec<TermRecord>, by: u32 },
    Equal { param: &'static str, value: i64 },
    Magnitude { param: &'static str, least: f32, most: f32 },
    AtMost { low: Vec<TermRecord>, high: Vec<TermRecord> },
}

impl GuardKind {
    fn new(guard: &Guard, params: &[Param]) -> Self {
        match *guard {
            Guard::Aligned { param, bytes } => GuardKind::Aligned { param: name(params, param), bytes },
            Guard::Divisible { value, by } => GuardKind::Divisible { value: terms(value, params), by },
            Guard::Equal { param, value } => GuardKind::Equal { param: name(params, param), value },
            Guard::Magnitude { param, least, most } => {
                GuardKind::Magnitude { param: name(params, param), least: power(least), most: power(most) }
            }
            Guard::AtMost { low, high } => {
                GuardKind::AtMost { low: terms(low, params), high: terms(high, params) }
            }
        }
    }
}

#[derive(Serialize)]
struct TermRecord {
    coefficient: i64,
    factors: Vec<FactorRecord>,
}

/// A scalar or a slice's length by the parameter's name, the grid's extent along an axis by its index, `ceil(of / by)`, or `of / by` rounded down.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum FactorRecord {
    Scalar(&'static str),
    Length(&'static str),
    Grid(u8),
    CeilDiv { of: TermRecord, by: TermRecord },
    Div { of: TermRecord, by: TermRecord },
}

fn terms(polynomial: Polynomial, params: &[Param]) -> Vec<TermRecord> {
    polynomial.iter().map(|one| term(one, params)).collect()
}

fn term(one: &Term, params: &[Param]) -> TermRecord {
    let factor = |&factor: &Symbol| match factor {
        Symbol::Scalar(param) => FactorRecord::Scalar(name(params, param)),
        Symbol::Length(param) => FactorRecord::Length(name(params, param)),
        Symbol::Grid(axis) => FactorRecord::Grid(axis),
        Symbol::CeilDiv { of, by } => FactorRecord::CeilDiv { of: term(&of, params), by: term(&by, params) },
        Symbol::Div { of, by } => FactorRecord::Div { of: term(&of, params), by: term(&by, params) },
    };
    TermRecord { coefficient: one.coefficient, factors: one.factors.iter().map(factor).collect() }
}

#[derive(Serialize)]
struct ResourcesRecord {
    capability: u32,
    registers: u32,
    spill_store_bytes: u32,
    spill_load_bytes: u32,
    stack_bytes: u32,
    static_shared_bytes: u32,
}

impl From<Resources> for ResourcesRecord {
    fn from(resources: Resources) -> Self {
        ResourcesRecord {
            capability: resources.capability,
            registers: resources.registers,
            spill_store_bytes: resources.spill_store_bytes,
            spill_load_bytes: resources.spill_load_bytes,
            stack_bytes: resources.stack_bytes,
            static_shared_bytes: resources.static_shared_bytes,
        }
    }
}
