//! Tests of every stage: a small kernel's source in, the whole output out. `UPDATE_EXPECT=1 cargo test` blesses.

mod assemble;
mod assign;
mod async_copy;
mod atomic;
mod axis_info;
mod bounded;
mod cache;
mod check_overflow;
mod cluster;
mod compile_time;
mod contract_floats;
mod conversion;
mod debug;
mod defer_scale;
mod dot;
mod early_exit;
mod effort;
mod elide_selects;
mod emit;
mod errors;
mod flags;
mod fold;
mod functions;
mod fuzz;
mod fuzzgen;
mod guarded_bounds;
mod inline;
mod iteration_split;
mod language;
mod layout;
mod legalize_index;
mod library;
mod longest_first;
mod lower_view_access;
mod math;
mod messages_syntax;
mod messages_typeck;
mod modules;
mod odd_extents;
mod oracle;
mod pdl;
mod random;
mod report;
mod robustness;
mod rotate_rows;
mod rounding;
mod run;
mod sandbox;
mod scan;
mod site;
mod slsr;
mod specialization;
mod store;
mod strength_reduce;
mod tl_reference;
mod typeck;
mod view_tiles;
mod wgmma;

use proc_macro2::{TokenStream, TokenTree};
use tile_ir::frontend::syntax;
use tile_ir::frontend::typeck as checker;
use tile_ir::frontend::typeck::Variant;
use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::support::diagnostic::Errors;

use self::site::lowering_beside;
use crate::backend::StageTexts;
use crate::backend::nvptx;
use crate::backend::nvptx::Arch;
use crate::driver::specialize::{KernelRequests, specializations};
use crate::driver::variant_errors::MergedErrors;
use crate::gpu::specialization::Specialization;
use crate::mlir::Session;

/// Splits `#[fuse_kernel(..)] fn ..` into the attribute's and the function's tokens.
fn tokens(source: &str) -> (TokenStream, TokenStream) {
    let mut all: Vec<TokenTree> = source.parse::<TokenStream>().expect("tokens").into_iter().collect();
    let item = all.split_off(2);
    let attribute = match &all[1] {
        TokenTree::Group(group) => match group.stream().into_iter().nth(1) {
            Some(TokenTree::Group(arguments)) => arguments.stream(),
            _ => TokenStream::new(),
        },
        _ => panic!("an attribute comes first"),
    };
    (attribute, item.into_iter().collect())
}

/// The first variant of a kernel, if it checks.
fn try_func(source: &str) -> Option<Func> {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let kernel = syntax::parse(attribute, item, &mut errors)?;
    let variants: Vec<Variant> = checker::variants(&kernel, &mut errors);
    Some(checker::check(&kernel, variants.first()?).ok()?.func)
}

/// Every mistake of a kernel, those of its variants together, as a build reports them.
fn mistakes(source: &str) -> Errors {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let Some(kernel) = syntax::parse(attribute, item, &mut errors) else { return errors };
    let variants = checker::variants(&kernel, &mut errors);
    let mut found = MergedErrors::default();
    for variant in &variants {
        if let Err(list) = checker::check(&kernel, variant) {
            found.add(variant, list);
        }
    }
    found.report(variants.len(), &mut errors);
    errors
}

/// The kernels of a module marked `#[fuse_module]`, checked for their first variants, and every mistake found.
fn module(source: &str) -> (Vec<Func>, Errors) {
    let mut errors = Errors::new();
    let tokens = source.parse::<TokenStream>().expect("tokens");
    let mut funcs = vec![];
    let Some(module) = syntax::parse_module(TokenStream::new(), tokens, &mut errors) else {
        return (funcs, errors);
    };
    for part in module.parts {
        let syntax::ModuleItem::Kernel { attribute, item, .. } = part else { continue };
        let Some(mut kernel) = syntax::parse(attribute, item, &mut errors) else { continue };
        kernel.items = module.items.clone();
        let variants = checker::variants(&kernel, &mut errors);
        let mut found = MergedErrors::default();
        for (i, variant) in variants.iter().enumerate() {
            match checker::check(&kernel, variant) {
                Ok(checked) if i == 0 => {
                    ir::verify(&checked.func).expect("valid tile IR");
                    funcs.push(checked.func);
                }
                Ok(_) => {}
                Err(list) => found.add(variant, list),
            }
        }
        found.report(variants.len(), &mut errors);
    }
    (funcs, errors)
}

/// The first variant of a kernel, checked.
fn func(source: &str) -> Func {
    first(source).0
}

/// The first variant of a kernel, checked, and the requests of its attribute.
fn first(source: &str) -> (Func, KernelRequests) {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let kernel = syntax::parse(attribute, item, &mut errors).expect("a kernel");
    let variants: Vec<Variant> = checker::variants(&kernel, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    let checked =
        checker::check(&kernel, &variants[0]).unwrap_or_else(|errors| panic!("{}", render(&errors, source)));
    ir::verify(&checked.func).expect("valid tile IR");
    (checked.func, KernelRequests::of(&kernel, &variants[0]))
}

/// The PTX of a kernel's first specialization for an architecture, compiled together with others as in a build.
fn ptx(source: &str, arch: Arch) -> String {
    ptx_of(source, arch, |specialization| specialization.gpus.include(arch.capability))
}

/// The PTX of the first specialization that is accepted.
fn ptx_of(source: &str, arch: Arch, accepts: impl Fn(&Specialization) -> bool) -> String {
    let _beside = lowering_beside();
    let (func, requests) = first(source);
    let specializations =
        specializations(&func, KernelRequests { programs: Some(1), ..requests }).expect("bodies that fit");
    let specialization =
        specializations.iter().find(|specialization| accepts(specialization)).expect("a body for each GPU");
    let named = [("entry".into(), specialization)];
    let archs =
        [Arch::SM_80, Arch::SM_90A].into_iter().filter(|arch| specialization.gpus.include(arch.capability));
    let archs: Vec<Arch> = archs.collect();
    let texts = nvptx::emit(&Session::new(), &named, &archs, &mut StageTexts::default()).expect("PTX");
    texts.into_iter().find(|(own, _)| *own == arch).expect("one of them").1
}

/// The lines that contain any of these words.
fn lines_with(text: &str, words: &[&str]) -> String {
    let lines = text.lines().map(str::trim).filter(|line| words.iter().any(|word| line.contains(word)));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Mistakes with the tokens of their spans.
fn render(errors: &Errors, source: &str) -> String {
    errors
        .iter()
        .map(|error| {
            let (from, to) = (error.loc.start.start(), error.loc.end.end());
            let line: Vec<char> = source.lines().nth(from.line - 1).unwrap_or_default().chars().collect();
            let end = if from.line == to.line { to.column } else { line.len() };
            let cut: String = line[from.column.min(end)..end].iter().collect();
            format!("{}: `{cut}`: {}\n", from.line, error.text().replace('\n', "\n    "))
        })
        .collect()
}
