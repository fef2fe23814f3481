use std::time::{Duration, Instant};
use lowering::backend::host_asm::{self, Family};
use lowering::driver::compile::{host_plan, transform};
use lowering::mlir::Session;
use tile_ir::frontend::typeck;
use tile_ir::ir::pass::PassRunner;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::sources::kernels;
use tile_ir::ir::{Block, Func};
use tile_ir::ops::CacheModifier;
use tile_ir::transform::legalize_index::BoundsPolicy;

fn quiet(func: &Func, block: &mut Block) {
    for op in &mut block.ops {
        for b in op.kind.operation_mut().blocks_mut() { quiet(func, b); }
        let operation = op.kind.operation();
        let param = operation.access().map(|a| a.param).or(operation.view_tile().map(|t| t.memory));
        if let Some(param) = param && func.slice(param).1 && let Some(cache) = op.kind.operation_mut().cache_mut() {
            cache.modifier = CacheModifier::Volatile;
        }
    }
}

fn main() {
    let session = Session::new();
    let mut total = [Duration::ZERO; 2];
    let mut n = [0usize; 3];
    for path in std::env::args().skip(1) {
        for kernel in kernels(&std::fs::read_to_string(&path).unwrap()) {
            for variant in typeck::variants(&kernel, &mut Errors::new()).iter().take(1) {
                let mut func = typeck::check(&kernel, variant).unwrap().func;
                func.reports = !kernel.options.unreported && !kernel.options.unchecked;
                tile_ir::transform::check_overflow::check_overflow(&mut func);
                transform(&mut func, PassRunner::default()).ok().unwrap();
                let mut other = func.clone();
                let mut body = std::mem::take(&mut other.body);
                quiet(&func, &mut body);
                other.body = body;
                n[0] += 1;
                let mut best = [Duration::MAX; 2];
                for run in 0..6 {
                    let which = run % 2;
                    let plan = host_plan(if which == 0 { &other } else { &func }, BoundsPolicy::Masked);
                    n[1] += usize::from(run == 1 && !plan.noted().is_empty());
                    n[2] += usize::from(run == 0 && !plan.noted().is_empty());
                    let start = Instant::now();
                    host_asm::emit(&session, &plan, "entry", Family::X86_64).unwrap();
                    best[which] = best[which].min(start.elapsed());
                }
                for i in 0..2 { total[i] += best[i]; }
            }
        }
    }
    println!("{n:?} without {:?} with {:?} ratio {}", total[0], total[1], total[1].as_secs_f64() / total[0].as_secs_f64());
}
