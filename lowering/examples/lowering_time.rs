//! How long it takes to lower one variant of LayerNorm, of a product and of attention, stage by stage and pass by pass: `cargo run
//! --release -p lowering --example lowering_time`. Medians of several runs in one process, the MLIR context made before. A pass runs
//! for each specialization, and its time is that of all its runs.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use lowering::backend::host_asm::{self, Family};
use lowering::backend::llvm::{LlvmModule, StrengthReduction};
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit as cpu_emit;
use lowering::driver::pipeline::shared;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::emit as gpu_emit;
use lowering::gpu::specialization::Specialization;
use lowering::mlir::{Machine, Session};
use tile_ir::frontend::syntax;
use tile_ir::frontend::typeck::{self, Variant};
use tile_ir::ir::pass::{PassObserver, PassRunner, RanPass};
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::tokens;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

const LAYER_NORM: &str = include_str!("../tests/compiler/layer_norm.txt");

const MATMUL: &str = "#[fuse_kernel(num_warps = 8, num_stages = 4)]
    fn matmul(a: &View<bf16, 2>, b: &View<bf16, 2>, out: &mut View<bf16, 2>) {
        let (row, col) = (tl::program_id(0) * 128, tl::program_id(1) * 128);
        let mut acc = tl::zeros::<f32>([128, 128]);
        for k in (0..a.shape(1) as i32).step_by(64) {
            acc = tl::dot(a.load::<128, 64>(row, k), b.load::<64, 128>(k, col), acc);
        }
        out.store(acc.to::<bf16>(), row, col);
    }";

const ATTENTION: &str = "#[fuse_kernel(num_warps = 8, num_stages = 3)]
    fn attention(q: &View<bf16, 2>, k: &View<bf16, 2>, v: &View<bf16, 2>, out: &mut View<bf16, 2>, end: i32) {
        let row = tl::program_id(0) * 128;
        let queries = q.load::<128, 64>(row, 0);
        let mut acc = tl::zeros::<f32>([128, 64]);
        let mut m_i = tl::full([128], -1000.0);
        let mut l_i = tl::zeros::<f32>([128]);
        for start in (0..end).step_by(128) {
            let s = tl::dot(queries, tl::trans(k.load::<128, 64>(start, 0))) * 0.125;
            let s = if start >= end - 127 {
                tl::select((start + tl::arange(0, 128)).row() < end, s, -1000.0)
            } else {
                s
            };
            let m_next = tl::maximum(m_i, tl::max(s, 1));
            let alpha = tl::exp(m_i - m_next);
            let p = tl::exp(s - m_next.col());
            l_i = l_i * alpha + tl::sum(p, 1);
            acc = tl::dot(p.to::<bf16>(), v.load::<128, 64>(start, 0), acc * alpha.col());
            m_i = m_next;
        }
        out.store((acc / l_i.col()).to::<bf16>(), row, 0);
    }";

const RUNS: usize = 15;
/// The stage that passes of `transform`, `gpu::opt` and `gpu::schedule` are a part of.
const PASSES: &str = "passes, analysis and layout";

fn main() {
    let block = std::env::args().nth(1).unwrap_or_else(|| "1024".into());
    let layer_norm = LAYER_NORM.replace("4096", &block);
    let kernels = [("layer_norm", layer_norm.as_str()), ("matmul", MATMUL), ("attention", ATTENTION)];
    let session = Session::new();
    for (name, source) in kernels {
        let runs: Vec<Times> = (0..RUNS).map(|_| lower(&session, source)).collect();
        report(&format!("{name}, {} specializations", runs[0].specializations));
        let mut total = Duration::ZERO;
        for &(stage, _) in &runs[0].stages.0 {
            let median = median(runs.iter().map(|run| run.stages.of(stage)));
            total += median;
            line(stage, median);
            if stage == PASSES {
                for &(pass, _) in &runs[0].passes.0 {
                    line(&format!("  {pass}"), self::median(runs.iter().map(|run| run.passes.of(pass))));
                }
            }
        }
        line("all", total);
    }
}

fn median(samples: impl Iterator<Item = Duration>) -> Duration {
    let mut samples: Vec<Duration> = samples.collect();
    samples.sort();
    samples[samples.len() / 2]
}

fn line(what: &str, time: Duration) {
    report(&format!("{what:32} {:8.3} ms", time.as_secs_f64() * 1e3));
}

/// Named times, in the order of their first.
#[derive(Default)]
struct NamedTimes(Vec<(&'static str, Duration)>);

impl NamedTimes {
    fn add(&mut self, name: &'static str, time: Duration) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += time,
            None => self.0.push((name, time)),
        }
    }

    fn of(&self, name: &str) -> Duration {
        self.0.iter().find(|(known, _)| *known == name).map_or(Duration::ZERO, |&(_, time)| time)
    }
}

/// The times of one run.
struct Times {
    stages: NamedTimes,
    passes: NamedTimes,
    specializations: usize,
}

/// What the passes of a run took.
#[derive(Default)]
struct PassTimes(RefCell<NamedTimes>);

impl PassObserver for PassTimes {
    fn ran(&self, pass: RanPass) {
        self.0.borrow_mut().add(pass.name, pass.took);
    }
}

/// The stages of a run, each from the end of the one before.
struct Laps {
    times: NamedTimes,
    last: Instant,
}

impl Laps {
    fn end(&mut self, stage: &'static str) {
        self.times.add(stage, self.last.elapsed());
        self.last = Instant::now();
    }
}

fn lower(session: &Session, source: &str) -> Times {
    let mut laps = Laps { times: NamedTimes::default(), last: Instant::now() };
    let mut errors = Errors::new();
    let (attribute, item) = tokens(source);
    let kernel = syntax::parse(attribute, item, &mut errors).expect("a kernel");
    let variants: Vec<Variant> = typeck::variants(&kernel, &mut errors);
    let mut func = typeck::check(&kernel, &variants[0]).expect("a valid kernel").func;
    laps.end("parse and check");
    let passes = PassTimes::default();
    let runner = PassRunner::observed_by(&passes);
    let requests = KernelRequests { runner, ..KernelRequests::of(&kernel, &variants[0]) };
    shared(&mut func, requests).expect("passes that keep functions valid");
    let specializations = specializations(&func, requests).expect("specializations that fit");
    laps.end(PASSES);
    for specialization in &specializations {
        lower_gpu(session, specialization, &mut laps);
    }
    legalize_index(&mut func, BoundsPolicy::Masked);
    let plan = cpu_emit::CpuPlan::new(func);
    host_asm::emit(session, &plan, "entry", Family::X86_64).expect("assembly");
    laps.end("host: three levels");
    let passes = passes.0.into_inner();
    Times { stages: laps.times, passes, specializations: specializations.len() }
}

fn lower_gpu(session: &Session, specialization: &Specialization, laps: &mut Laps) {
    let archs = [(Arch::SM_80, "GPU: sm_80"), (Arch::SM_90A, "GPU: sm_90a")];
    let mut archs = archs.into_iter().filter(|(arch, _)| specialization.gpus.include(arch.capability));
    let (first, stage) = archs.next().expect("a GPU for each specialization");
    let mut module = session.module(Machine::Nvptx);
    module.capability = first.capability;
    gpu_emit::declare(&mut module, std::iter::once(&specialization.plan));
    specialization.plan.emit(&mut module, &specialization.name);
    let built = module.finish().expect("valid MLIR");
    laps.end("GPU: emission");
    let lowered = built.lower().expect("MLIR's passes");
    laps.end("GPU: MLIR passes");
    let llvm = LlvmModule::translate(&lowered, StrengthReduction::Always);
    let llvm = llvm.expect("LLVM IR");
    llvm.optimize(first.target_cpu()).expect("optimized LLVM IR");
    laps.end("GPU: LLVM IR, cleaned up");
    for (arch, stage) in std::iter::once((first, stage)).chain(archs) {
        llvm.assemble(arch.target_cpu()).expect("PTX");
        laps.end(stage);
    }
}

#[expect(clippy::print_stdout, reason = "the report is what this is for")]
fn report(line: &str) {
    println!("{line}");
}
