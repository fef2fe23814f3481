//! Tests of every stage: a small kernel's source in, the whole output out. `UPDATE_EXPECT=1 cargo test` blesses.
//!
//! They are in a crate of their own, so that the compiler is compiled once.

mod assign;
mod async_copy;
mod atomic;
mod book;
mod bounded;
mod cache;
mod carried_pointers;
mod cluster;
mod compile_time;
mod contract_floats;
mod conversion;
mod copied_wgmma;
mod debug;
mod defer_scale;
mod division;
mod dot;
mod early_exit;
mod effort;
mod elide_selects;
mod emit;
mod expansion;
mod filetests;
mod flags;
mod fold;
mod functions;
mod fuzz;
mod fuzzgen;
mod gather;
mod ide_stub;
mod inline;
mod iteration_split;
mod layout;
mod library;
mod loop_facts;
mod math;
mod membar;
mod odd_extents;
mod options;
mod oracle;
mod parse;
mod pdl;
mod pipeline;
mod prefetch;
mod random;
mod reduce_exchange;
mod refused_dots;
mod report;
mod rewrites;
mod rotate_rows;
mod rounding;
mod run;
mod sandbox;
mod scan;
mod schedule_passes;
mod schedule_simulator;
mod scheduled_kernels;
mod site;
mod slsr;
mod software_pipeline;
mod special_register;
mod specialization;
mod stack;
mod store;
mod tl_reference;
mod unsigned_offsets;
mod view_access;
mod view_tiles;
mod wgmma;

use ctor::ctor;
use mimalloc::MiMalloc;
use tile_ir::ir::Func;
use tile_ir::testing::first_variant;
use tile_ir::transform::contract_products::contract_products;

use lowering::backend::llvm;
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;
use lowering::mlir::Session;

/// MLIR allocates each operation. The macro has the allocator of rustc.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Before the first test of this process.
#[ctor(unsafe)]
fn verify_llvm() {
    llvm::verify_after_each_pass();
}

/// The first variant of a kernel, checked, with products that may be fused with sums, and the requests of its attribute.
fn first(source: &str) -> (Func, KernelRequests<'static>) {
    let (mut func, kernel, variant) = first_variant(source);
    contract_products(&mut func);
    let requests = KernelRequests::of(&kernel, &variant);
    (func, requests)
}

/// The PTX of a kernel's first specialization for an architecture, compiled together with others as in a build.
fn ptx(source: &str, arch: Arch) -> String {
    ptx_of(source, arch, |specialization| specialization.gpus.include(arch.capability))
}

/// The PTX of the first specialization that is accepted.
fn ptx_of(source: &str, arch: Arch, accepts: impl Fn(&Specialization) -> bool) -> String {
    let (func, requests) = first(source);
    let specializations =
        specializations(&func, KernelRequests { programs: Some(1), ..requests }).expect("bodies that fit");
    let specialization =
        specializations.iter().find(|specialization| accepts(specialization)).expect("a body for each GPU");
    let named = [("entry".into(), specialization)];
    let archs =
        [Arch::SM_80, Arch::SM_90A].into_iter().filter(|arch| specialization.gpus.include(arch.capability));
    let archs: Vec<Arch> = archs.collect();
    let texts = nvptx::emit(&Session::new(), &named, &archs, None).expect("PTX");
    texts.into_iter().find(|(own, _)| *own == arch).expect("one of them").1
}

/// The lines that contain any of these words.
fn lines_with(text: &str, words: &[&str]) -> String {
    let lines = text.lines().map(str::trim).filter(|line| words.iter().any(|word| line.contains(word)));
    lines.map(|line| format!("{line}\n")).collect()
}
