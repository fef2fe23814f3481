//! How long it takes to lower one variant of LayerNorm, stage by stage: `cargo run --release -p lowering --example
//! lowering_time`. Medians of several runs in one process, the MLIR context made before.

use std::time::{Duration, Instant};

use lowering::backend::host_asm::Family;
use lowering::backend::llvm::{LlvmModule, StrengthReduction};
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit as cpu_emit;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::emit as gpu_emit;
use lowering::mlir::{Machine, Session};
use tile_ir::frontend::syntax;
use tile_ir::frontend::typeck::{self, Variant};
use tile_ir::support::diagnostic::Errors;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

const SOURCE: &str = include_str!("../src/tests/layer_norm.txt");
const RUNS: usize = 15;

fn main() {
    let block = std::env::args().nth(1).unwrap_or_else(|| "1024".into());
    let source = SOURCE.replace("4096", &block);
    let session = Session::new();
    let mut times: Vec<Vec<(&str, Duration)>> = vec![];
    for _ in 0..RUNS {
        times.push(lower(&session, &source));
    }
    let mut total = Duration::ZERO;
    for stage in 0..times[0].len() {
        let mut samples: Vec<Duration> = times.iter().map(|run| run[stage].1).collect();
        samples.sort();
        total += samples[RUNS / 2];
        report(&format!("{:28} {:8.2} ms", times[0][stage].0, samples[RUNS / 2].as_secs_f64() * 1e3));
    }
    report(&format!("{:28} {:8.2} ms", format!("BLOCK = {block}, all"), total.as_secs_f64() * 1e3));
}

fn lower(session: &Session, source: &str) -> Vec<(&'static str, Duration)> {
    let mut times = vec![];
    let mut last = Instant::now();
    let mut lap = |name| {
        times.push((name, last.elapsed()));
        last = Instant::now();
    };
    let (attribute, item) = source.split_once("]\n").expect("an attribute");
    let attribute = attribute.trim_start_matches("#[fuse_kernel(").trim_end_matches(')');
    let mut errors = Errors::new();
    let tokens = |text: &str| text.parse().expect("tokens");
    let attribute = format!("{attribute}{}", if attribute.ends_with(']') { "" } else { "]" });
    let kernel = syntax::parse(tokens(&attribute), tokens(item), &mut errors).expect("a kernel");
    let variants: Vec<Variant> = typeck::variants(&kernel, &mut errors);
    let checked = typeck::check(&kernel, &variants[0]).expect("a valid kernel");
    lap("parse and check");
    let specializations = specializations(&checked.func, KernelRequests::default()).expect("bodies");
    lap("analysis and layout");
    let mut module = session.module(Machine::Nvptx);
    gpu_emit::declare(&mut module, specializations.iter().map(|specialization| &specialization.plan));
    for specialization in &specializations {
        specialization.plan.emit(&mut module, specialization.name);
    }
    let built = module.finish().expect("valid MLIR");
    lap("GPU: emission");
    let lowered = built.lower().expect("MLIR's passes");
    lap("GPU: MLIR passes");
    let llvm = LlvmModule::translate(&lowered, Arch::SM_80.target_cpu(), StrengthReduction::Always)
        .expect("LLVM IR");
    lap("GPU: LLVM IR, cleaned up");
    for arch in [Arch::SM_80, Arch::SM_90A] {
        llvm.assemble(arch.target_cpu()).expect("PTX");
        lap(if arch == Arch::SM_80 { "GPU: sm_80" } else { "GPU: sm_90a" });
    }
    let mut func = checked.func;
    legalize_index(&mut func, BoundsPolicy::Masked);
    let plan = cpu_emit::CpuPlan::new(func);
    lowering::backend::host_asm::emit(session, &plan, "entry", Family::X86_64).expect("assembly");
    lap("host: three levels");
    times
}

#[expect(clippy::print_stdout, reason = "the report is what this is for")]
fn report(line: &str) {
    println!("{line}");
}
