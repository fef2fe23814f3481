//! The static data of a variant, as `dsl_runtime::kernel` declares it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use tile_ir::frontend::syntax::{Kernel, ParamType, TypeName};
use tile_ir::frontend::typeck::{ConstValue, Variant};
use tile_ir::ir::guard::{Guard, Symbol, SymbolProduct, SymbolicSum};
use tile_ir::ir::launch_shape::LaunchShape;
use tile_ir::ops::Site;
use tile_ir::support::diagnostic::Loc;
use tile_ir::support::dtype::DType;

use crate::backend::compress::Deflated;
use crate::backend::host_asm::{Family, HostTarget};
use crate::backend::nvptx::Arch;
use crate::cpu::emit::NotedAccess;
use crate::driver::artifact::{GpuModule, LoweredVariant, entry_name};
use crate::driver::options::BuildOptions;
use crate::driver::workers::HOST_ENTRY;
use crate::gpu::layout::warpgroup::SWIZZLE_ROW_BYTES;
use crate::gpu::schedule::{Multicast, TensorMap};
use crate::gpu::specialization::{Gpus, Specialization};

/// A kernel and what the compiler made of it.
pub struct Expansion<'a> {
    pub kernel: &'a Kernel,
    pub variants: &'a [Variant],
    pub lowered: &'a [LoweredVariant],
    pub options: &'a BuildOptions,
    /// Distinguishes the kernel's symbols from those of others: [`place_of`] it.
    pub place: String,
}

/// A `Variant` without code.
pub(super) fn empty_variant(kernel: &Kernel, variant: &Variant) -> TokenStream {
    variant_data(kernel, variant, &CompiledVariant::default())
}

/// The `Variant` at `index`.
pub(super) fn variant(expansion: &Expansion, index: usize) -> TokenStream {
    let lowered = &expansion.lowered[index];
    let modules = lowered.code.modules.iter().map(|code| module(expansion, index, code));
    let scratch = Literal::usize_unsuffixed(lowered.scratch_bytes as usize);
    let reports = lowered.host_reports;
    let noted = lowered.noted.iter().map(noted_access);
    let noted = quote! { &[#(#noted),*] };
    let hosts = lowered.code.hosts.iter().map(|(level, _)| {
        let symbol = host_symbol(expansion, index, level);
        let level = level_name(level);
        quote! {
            Host { level: Level::#level, entry: #symbol, scratch_bytes: #scratch, reports: #reports, noted: #noted }
        }
    });
    let sites = lowered.sites.iter().map(site);
    let compiled = CompiledVariant {
        source: lowered.source,
        modules: quote! { #(#modules),* },
        hosts: quote! { #(#hosts),* },
        sites: quote! { #(#sites),* },
    };
    variant_data(expansion.kernel, &expansion.variants[index], &compiled)
}

/// What lowering adds to a variant.
#[derive(Default)]
struct CompiledVariant {
    source: u64,
    modules: TokenStream,
    hosts: TokenStream,
    sites: TokenStream,
}

fn variant_data(kernel: &Kernel, variant: &Variant, compiled: &CompiledVariant) -> TokenStream {
    let CompiledVariant { source, modules, hosts, sites } = compiled;
    let source = Literal::u64_unsuffixed(*source);
    let label = variant.to_string();
    let types = variant.types.iter().map(|(_, ty)| dtype(*ty));
    let consts = variant.consts.iter().map(|(_, value)| match value {
        ConstValue::Int(value) => Literal::i128_unsuffixed(*value),
        ConstValue::Bool(value) => Literal::i128_unsuffixed(i128::from(*value)),
    });
    let dtypes = kernel.params.iter().flat_map(|param| match &param.ty {
        ParamType::Slice { elem, .. } => vec![dtype(resolve(elem, variant))],
        // After the memory an extent and a stride for each axis.
        ParamType::View(view) => {
            let numbers = std::iter::repeat_n(dtype(DType::I64), 2 * view.rank);
            std::iter::once(dtype(resolve(&view.elem, variant))).chain(numbers).collect()
        }
        ParamType::Scalar(ty) => vec![dtype(resolve(ty, variant))],
        ParamType::Enum(_) | ParamType::Host(_) => vec![],
        ParamType::Failed => vec![dtype(DType::F32)],
    });
    quote! {
        Variant {
            label: #label,
            types: &[#(#types),*],
            consts: &[#(#consts),*],
            dtypes: &[#(#dtypes),*],
            source: #source,
            modules: &[#modules],
            hosts: &[#hosts],
            sites: &[#sites],
        }
    }
}

fn resolve(ty: &TypeName, variant: &Variant) -> DType {
    let declared = variant.types.iter().find(|(name, _)| *name == ty.name).map(|(_, dtype)| *dtype);
    declared.or_else(|| DType::parse(&ty.name)).unwrap_or(DType::F32)
}

fn dtype(dtype: DType) -> TokenStream {
    let name = match dtype {
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => dtype.name().to_uppercase(),
        other => {
            let name = other.name();
            name[..1].to_uppercase() + &name[1..]
        }
    };
    let name = Ident::new(&name, Span::call_site());
    quote! { DType::#name }
}

fn noted_access(access: &NotedAccess) -> TokenStream {
    let NotedAccess { param, line, column } = *access;
    let (param, column) = (Literal::u32_unsuffixed(param.0), Literal::i64_unsuffixed(column));
    let line = Literal::i64_unsuffixed(line);
    quote! { NotedAccess { param: #param, line: #line, column: #column } }
}

fn site(site: &Site) -> TokenStream {
    let shape = site.shape();
    let shape = shape.iter().map(|&extent| Literal::u32_unsuffixed(extent));
    let shape = quote! { &[#(#shape),*] };
    match site {
        Site::Assert { condition, message, .. } => {
            quote! { Site::Assert { condition: #condition, message: #message, shape: #shape } }
        }
        Site::Assume { condition } => quote! { Site::Assume { condition: #condition } },
        Site::Overflow { verb, dtype: ty, .. } => {
            let ty = dtype(*ty);
            quote! { Site::Overflow { verb: #verb, dtype: #ty, shape: #shape } }
        }
        Site::Print { label, dtypes, .. } => {
            let dtypes = dtypes.iter().map(|&ty| dtype(ty));
            quote! { Site::Print { label: #label, shape: #shape, dtypes: &[#(#dtypes),*] } }
        }
    }
}

// ---- GPU code

fn module(expansion: &Expansion, index: usize, code: &GpuModule) -> TokenStream {
    let body = &expansion.lowered[index].specializations[code.specialization];
    let entry = entry_name(expansion.kernel, &expansion.variants[index], body);
    let data = body_data(body, &entry, code);
    let reports = body.reports();
    let packed = |code: &Deflated| carried(code, expansion.options.deflate);
    let ptx = packed(&code.ptx);
    let (capability, exact) = (Literal::u32_unsuffixed(code.capability), code.exact);
    let cubins = code.cubin.iter().map(|cubin| {
        let image = packed(&cubin.image);
        quote! { (#capability, #image) }
    });
    quote! {
        Module {
            arch: Arch { capability: #capability, exact: #exact },
            ptx: #ptx,
            cubins: &[#(#cubins),*],
            specialization: #data,
            reports: #reports,
        }
    }
}

fn carried(code: &Deflated, deflated: bool) -> TokenStream {
    if deflated {
        let (bytes, len) = (Literal::byte_string(&code.deflated), Literal::usize_unsuffixed(code.len));
        quote! { Packed::Deflated { bytes: #bytes, len: #len } }
    } else {
        let bytes = Literal::byte_string(&code.unpack());
        quote! { Packed::Plain(#bytes) }
    }
}

fn body_data(body: &Specialization, entry: &str, code: &GpuModule) -> TokenStream {
    let plan = &body.plan;
    let numbers =
        [plan.threads(), plan.programs, plan.blocks(), plan.shared_bytes()].map(Literal::u32_unsuffixed);
    let [threads, programs, blocks, shared_bytes] = numbers;
    let (persistent, counted) = (plan.persistent(), plan.is_dynamic_persistent());
    let arch = Arch { capability: code.capability, exact: code.exact };
    let follows = arch.has_pdl() && plan.uses_pdl();
    let facts = body.guards.iter().map(fact);
    let maps = plan.tensor_maps().iter().map(tensor_map);
    let accesses = body.accesses().into_iter().map(|access| {
        let [line, param, bytes] = [access.line, access.param.0, access.bytes].map(Literal::u32_unsuffixed);
        quote! { Access { line: #line, param: #param, bytes: #bytes } }
    });
    let has_wgmma = Gpus::WithWgmma.include(code.capability);
    let refused_dots = body.refused_dots.iter().filter(|_| has_wgmma).map(|(loc, refusal)| {
        let (line, reason) = (Literal::usize_unsuffixed(loc.line()), refusal.to_string());
        quote! { RefusedDot { line: #line, reason: #reason } }
    });
    let reported = code
        .cubin
        .as_ref()
        .and_then(|cubin| cubin.resources.iter().find(|resources| resources.entry == entry));
    let resources = match reported {
        Some(found) => {
            let numbers = [
                code.capability,
                found.registers,
                found.spill_store_bytes,
                found.spill_load_bytes,
                found.stack_bytes,
                found.static_shared_bytes,
            ];
            let [capability, registers, stores, loads, stack, shared] = numbers.map(Literal::u32_unsuffixed);
            quote! {
                ::core::option::Option::Some(Resources {
                    capability: #capability,
                    registers: #registers,
                    spill_store_bytes: #stores,
                    spill_load_bytes: #loads,
                    stack_bytes: #stack,
                    static_shared_bytes: #shared,
                })
            }
        }
        None => quote! { ::core::option::Option::None },
    };
    quote! {
        Specialization {
            entry: #entry,
            threads: #threads,
            programs_per_block: #programs,
            blocks_per_program: #blocks,
            persistent: #persistent,
            uses_work_counter: #counted,
            uses_pdl: #follows,
            shared_bytes: #shared_bytes,
            guards: &[#(#facts),*],
            maps: &[#(#maps),*],
            accesses: &[#(#accesses),*],
            refused_dots: &[#(#refused_dots),*],
            resources: #resources,
        }
    }
}

fn tensor_map(map: &TensorMap) -> TokenStream {
    let param = Literal::u32_unsuffixed(map.memory.0);
    let block = map.block.iter().map(|&extent| Literal::u32_unsuffixed(extent));
    let line = Literal::u32_unsuffixed(SWIZZLE_ROW_BYTES);
    let tf32 = map.tf32;
    let LaunchShape { extents, strides } = &map.shape;
    let (extents, strides) = (extents.iter().map(sum), strides.iter().map(sum));
    let multicast = match map.multicast {
        Some(Multicast { axis, step, bytes }) => {
            let [axis, step, bytes] = [axis, step, bytes].map(Literal::u32_unsuffixed);
            quote! { Some(Multicast { axis: #axis, step: #step, bytes: #bytes }) }
        }
        None => quote! { None },
    };
    quote! {
        TensorMap {
            param: #param,
            extents: &[#(#extents),*],
            strides: &[#(#strides),*],
            block: &[#(#block),*],
            swizzle: #line,
            tf32: #tf32,
            multicast: #multicast,
        }
    }
}

fn fact(fact: &Guard) -> TokenStream {
    match fact {
        Guard::Aligned { param, bytes } => {
            let (param, bytes) = (Literal::u32_unsuffixed(*param), Literal::u32_unsuffixed(*bytes));
            quote! { Guard::Aligned { param: #param, bytes: #bytes } }
        }
        Guard::Divisible { value, by } => {
            let (value, by) =
                (sum(&SymbolicSum { terms: vec![(1, vec![*value])] }), Literal::u32_unsuffixed(*by));
            quote! { Guard::Divisible { value: #value, by: #by } }
        }
        Guard::Equal { scalar, value } => {
            let (scalar, value) = (Literal::u32_unsuffixed(*scalar), Literal::i64_unsuffixed(*value));
            quote! { Guard::Equal { param: #scalar, value: #value } }
        }
        Guard::Magnitude { scalar, least, most } => {
            let scalar = Literal::u32_unsuffixed(*scalar);
            let [least, most] = [least, most].map(|&exponent| Literal::i8_unsuffixed(exponent));
            quote! { Guard::Magnitude { param: #scalar, least: #least, most: #most } }
        }
        Guard::AtMost { low, high } => {
            let (low, high) = (sum(low), sum(high));
            quote! { Guard::AtMost { low: #low, high: #high } }
        }
    }
}

fn sum(sum: &SymbolicSum) -> TokenStream {
    let terms = sum.terms.iter().map(|(coefficient, factors)| term(*coefficient, factors));
    quote! { &[#(#terms),*] }
}

fn term(coefficient: i64, factors: &[Symbol]) -> TokenStream {
    let product =
        |product: SymbolProduct| term(product.constant.into(), &product.symbols().collect::<Vec<_>>());
    let coefficient = Literal::i64_unsuffixed(coefficient);
    let factors = factors.iter().map(|factor| match *factor {
        Symbol::Scalar(param) => {
            let param = Literal::u32_unsuffixed(param);
            quote! { Symbol::Scalar(#param) }
        }
        Symbol::Length(param) => {
            let param = Literal::u32_unsuffixed(param);
            quote! { Symbol::Length(#param) }
        }
        Symbol::Grid(axis) => {
            let axis = Literal::u8_unsuffixed(axis);
            quote! { Symbol::Grid(#axis) }
        }
        Symbol::CeilDiv { of, by } => {
            let (of, by) = (product(of), product(by));
            quote! { Symbol::CeilDiv { of: #of, by: #by } }
        }
        Symbol::Div { of, by } => {
            let (of, by) = (product(of), product(by));
            quote! { Symbol::Div { of: #of, by: #by } }
        }
    });
    quote! { Term { coefficient: #coefficient, factors: &[#(#factors),*] } }
}

// ---- host code

fn level_name(level: &str) -> Ident {
    match level {
        "v3" => format_ident!("V3"),
        "v4" => format_ident!("V4"),
        _ => format_ident!("Baseline"),
    }
}

/// The linker's name of a variant's host entry at one level. Two kernels of one name and text are told apart by where
/// they stand, and those that a macro makes of one place by their order.
fn host_symbol(expansion: &Expansion, index: usize, level: &str) -> Ident {
    let Expansion { kernel, variants, place, .. } = expansion;
    let variant = &variants[same_host_code(variants, index)];
    let hash = xxhash_rust::xxh3::xxh3_64(format!("{place}|{variant}").as_bytes());
    format_ident!("fuse_{}_{hash:016x}_{level}", kernel.name)
}

/// Returns where a kernel stands, and how many were expanded from there before it in this process, which compiles one crate.
pub fn place_of(name: &Ident, options: &BuildOptions) -> String {
    static EXPANDED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
    let Loc { start, .. } = Loc::of(name);
    let (line, column) = (start.start().line, start.start().column);
    let place = format!("{}|{}|{line}:{column}", options.crate_name, start.file());
    let mut expanded = EXPANDED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = expanded.entry(place.clone()).or_default();
    *before += 1;
    format!("{place}|{before}")
}

/// The first variant with the same host code: settings of a GPU make no difference to it.
fn same_host_code(variants: &[Variant], index: usize) -> usize {
    let Variant { types, consts, .. } = &variants[index];
    variants.iter().position(|other| other.types == *types && other.consts == *consts).unwrap_or(index)
}

/// The assembly of a variant, and the declaration of its entries; nothing where an earlier variant brings them.
pub(super) fn host_code(expansion: &Expansion, index: usize) -> TokenStream {
    if same_host_code(expansion.variants, index) != index {
        return TokenStream::new();
    }
    let raw = match &expansion.options.host {
        Some(HostTarget { family: Family::AArch64, .. }) => quote! { options(raw) },
        _ => quote! { options(att_syntax, raw) },
    };
    let items = expansion.lowered[index].code.hosts.iter().map(|(level, text)| {
        let symbol = host_symbol(expansion, index, level);
        let text = text.replace(&format!("{HOST_ENTRY}_{level}"), &symbol.to_string());
        quote! {
            ::core::arch::global_asm!(#text, #raw);
            // SAFETY: the assembly above defines the symbol with this signature.
            unsafe extern "C" {
                fn #symbol(
                    args: *const u64, first: u32, last: u32, y: u32, z: u32, grid: *const u32, scratch: *mut u8,
                );
            }
        }
    });
    quote! { #(#items)* }
}
