//! Differential test: one kernel through the whole compiler, its results on this CPU compared with the reference.

use std::time::Duration;

use tile_ir::frontend::syntax;
use tile_ir::frontend::typeck;
use tile_ir::frontend::typeck::Variant;
use tile_ir::ir;
use tile_ir::ir::Func;
use tile_ir::support::diagnostic::Errors;
use tile_ir::support::dtype::DType;
use tile_ir::testing::{holds, render, tokens};
use tile_ir::transform::check_overflow::check_overflow;
use tile_ir::transform::legalize_index::BoundsPolicy;

use super::element::Element;
use super::evaluate::{Contents, Launch, evaluate};
use super::generate::launch;
use super::program::Program;
use super::simulate;
use crate::run::{Arg, Loaded, levels, load_levels, load_plan};
use lowering::backend::host_asm::CpuLevel;
use lowering::backend::nvptx;
use lowering::backend::nvptx::Arch;
use lowering::cpu::emit::CpuPlan;
use lowering::driver::pipeline::refusal::{InvalidBehind, Refusal};
use lowering::driver::pipeline::{host_plan, shared};
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;
use lowering::mlir::{Session, report};

/// Launches of each kernel, each with its own arguments.
const LAUNCHES: u64 = 3;

/// The outcome of a test.
#[derive(Clone, Debug)]
pub struct Report {
    pub statements: usize,
    /// CPU time from tokens to the last assembly text.
    pub lowering: Duration,
    /// Runs of host code that were compared.
    pub compared: usize,
    /// Launches whose offsets or comparisons overflow 64 bits, where the law of indices defines nothing.
    pub undefined: usize,
    /// Whether a block would need more shared memory than there is.
    pub too_large: bool,
}

/// Takes a kernel through all stages; the error is the finding.
pub fn compare(program: &Program, seed: u64) -> Result<Report, String> {
    let source = program.source();
    let start = cpu_time();
    let Checked { func, reporting, requests } = front(&source, program.variant())?;
    let mut report = Report {
        statements: program.statements(),
        lowering: Duration::ZERO,
        compared: 0,
        undefined: 0,
        too_large: false,
    };
    let specializations = match specializations(&func, requests) {
        Ok(specializations) => specializations,
        Err(Refusal::SharedMemory(_)) => {
            report.too_large = true;
            vec![]
        }
        Err(refusal) => return Err(refusal.to_string()),
    };
    for specialization in &specializations {
        ir::verify(&specialization.plan.laid_out)
            .map_err(|what| format!("the {} body is not valid: {what}", specialization.name))?;
        gpu_code(specialization)?;
    }
    let bounds = if requests.unchecked { BoundsPolicy::Unchecked } else { BoundsPolicy::Masked };
    let host = load_plan(&host_plan(&func, bounds));
    let reporting = reporting.map(|func| load_reporting(&func));
    report.lowering = cpu_time().saturating_sub(start);
    let best: Vec<CpuLevel> = levels().into_iter().rev().take(1).collect();
    let loaded: Vec<(&Specialization, Vec<Loaded>)> = specializations
        .iter()
        .filter(|specialization| !simulate::is_for_tensor_cores(specialization))
        .map(|specialization| {
            (specialization, load_levels(&CpuPlan::new(specialization.plan.laid_out.clone()), &best))
        })
        .collect();
    for number in 0..LAUNCHES {
        let launch = launch(program, seed.wrapping_mul(LAUNCHES).wrapping_add(number));
        let wanted = evaluate(program, &launch);
        if !wanted.well_defined {
            report.undefined += 1;
            continue;
        }
        for level in &host {
            run(program, &launch, level)
                .same(program, &wanted.memory)
                .map_err(|what| format!("launch {number}, host code, {:?}: {what}", level.level))?;
            report.compared += 1;
        }
        if let Some(level) = &reporting {
            let result = run(program, &launch, level);
            result
                .same(program, &wanted.memory)
                .map_err(|what| format!("launch {number}, debug build: {what}"))?;
            if result.reports != wanted.outside {
                return Err(format!(
                    "launch {number}, debug build: reports {}, should {}",
                    result.reports, wanted.outside
                ));
            }
            report.compared += 1;
        }
        let known = known(program, &launch, &func);
        let holds = |specialization: &&Specialization| {
            specialization.guards.iter().all(|guard| holds(guard, &known, launch.grid))
        };
        for specialization in specializations.iter().filter(holds) {
            if simulate::is_for_tensor_cores(specialization) {
                simulate::compare(program, &launch, (specialization, seed), &wanted.memory).map_err(
                    |what| format!("launch {number}, the {} schedule: {what}", specialization.label()),
                )?;
                report.compared += 1;
            }
        }
        for (specialization, levels) in &loaded {
            if !holds(specialization) {
                continue;
            }
            for level in levels {
                run(program, &launch, level).same(program, &wanted.memory).map_err(|what| {
                    format!(
                        "launch {number}, the {} body on the host, {:?}: {what}",
                        specialization.label(),
                        level.level
                    )
                })?;
                report.compared += 1;
            }
        }
    }
    Ok(report)
}

/// A kernel as the passes get it.
pub struct Checked {
    pub func: Func,
    /// The kernel of a debug build, if that reports.
    pub reporting: Option<Func>,
    pub requests: KernelRequests<'static>,
}

/// Host code of the best level, with reports.
fn load_reporting(func: &Func) -> Loaded {
    let plan = host_plan(func, BoundsPolicy::Masked);
    let best = levels().pop().expect("a level");
    load_levels(&plan, &[best]).pop().expect("host code")
}

/// Runs the passes that all code shares.
fn transformed(mut func: Func) -> Result<Func, String> {
    shared(&mut func, KernelRequests::default())
        .map_err(|InvalidBehind { pass, what }| format!("not valid behind {pass}: {what}"))?;
    Ok(func)
}

/// Parse and check; a generated kernel has no mistakes.
pub fn front(source: &str, variant: usize) -> Result<Checked, String> {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let render_errors = |errors: &Errors| format!("refused:\n{}", render(errors, source));
    let Some(kernel) = syntax::parse(attribute, item, &mut errors) else {
        return Err(render_errors(&errors));
    };
    let variants: Vec<Variant> = typeck::variants(&kernel, &mut errors);
    if !errors.is_empty() {
        return Err(render_errors(&errors));
    }
    let checked = typeck::check(&kernel, &variants[variant]).map_err(|errors| render_errors(&errors))?;
    let mut func = checked.func;
    ir::verify(&func).map_err(|what| format!("the tile IR is not valid: {what}"))?;
    let mut reporting = None;
    if !kernel.options.unreported && !kernel.options.unchecked {
        let mut func = func.clone();
        func.reports = true;
        check_overflow(&mut func);
        reporting = Some(transformed(func)?);
    }
    func.reports = false;
    ir::strip_debug(&mut func);
    let func = transformed(func)?;
    Ok(Checked { func, reporting, requests: KernelRequests::of(&kernel, &variants[variant]) })
}

fn gpu_code(specialization: &Specialization) -> Result<(), String> {
    let archs =
        [Arch::SM_80, Arch::SM_90A].into_iter().filter(|arch| specialization.gpus.include(arch.capability));
    let archs: Vec<Arch> = archs.collect();
    if archs.is_empty() {
        return Ok(());
    }
    nvptx::emit(&Session::new(), &[("entry".into(), specialization)], &archs, None)
        .map(drop)
        .map_err(|what| format!("no PTX of the {} body: {what}", specialization.name))
}

/// The parameters as guards evaluate them: of memory its length, of a view its shape and strides too.
fn known(program: &Program, launch: &Launch, func: &Func) -> Vec<i64> {
    let memory = launch.memory.iter().flat_map(|contents| {
        std::iter::once(contents.data.len() as i64)
            .chain(contents.shape.iter().copied())
            .chain(contents.strides.iter().copied())
    });
    let scalars = launch.scalars.iter().map(|scalar| scalar_bits(*scalar) as i64);
    let all: Vec<i64> = memory.chain(scalars).collect();
    assert_eq!(all.len(), func.params.len(), "{}", program.source());
    all
}

/// A scalar argument as a slot holds it; floats are `f32`.
fn scalar_bits(scalar: Element) -> u64 {
    match scalar {
        Element::Integer { value, .. } => value as u64,
        float => (float.float() as f32).to_bits().into(),
    }
}

/// Bytes of a parameter, between guard bytes that must not change.
struct Guarded {
    words: Vec<u128>,
    start: usize,
    bytes: usize,
}

/// A record of a failure, in words of eight bytes: then the runtime's print function, its shadow memory and its function for races.
const RECORD_WORDS: usize = report::BYTES as usize / 8 + 3;

const GUARD: u8 = 0xa5;
const ALIGNMENT: usize = 256;

impl Guarded {
    fn new(contents: &Contents, dtype: DType) -> Guarded {
        let bytes: Vec<u8> = contents.data.iter().flat_map(|element| element.bytes(dtype)).collect();
        let guard = u128::from_le_bytes([GUARD; 16]);
        let words = vec![guard; (bytes.len() + 4 * ALIGNMENT) / 16];
        let address = words.as_ptr() as usize;
        let start = (address + ALIGNMENT).next_multiple_of(ALIGNMENT) - address;
        let mut guarded = Guarded { words, start, bytes: bytes.len() };
        guarded.all_mut()[start..start + bytes.len()].copy_from_slice(&bytes);
        guarded
    }

    fn all(&self) -> &[u8] {
        // SAFETY: every byte of the words is initialized, and a byte has no alignment.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.words.len() * 16) }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the words are borrowed as long as the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.words.len() * 16) }
    }

    fn is_whole(&self) -> bool {
        let all = self.all();
        all[..self.start].iter().chain(&all[self.start + self.bytes..]).all(|&byte| byte == GUARD)
    }
}

/// Memory after a run, and whether it reported something.
struct MemoryAfter {
    memory: Vec<Guarded>,
    reports: bool,
}

fn run(program: &Program, launch: &Launch, code: &Loaded) -> MemoryAfter {
    let memory = program.memory.iter().zip(&launch.memory);
    let mut guarded: Vec<Guarded> =
        memory.map(|(memory, contents)| Guarded::new(contents, memory.dtype)).collect();
    let mut args: Vec<Arg> = vec![];
    for (own, contents) in guarded.iter_mut().zip(&launch.memory) {
        let start = own.start;
        args.push(Arg::Memory(own.all_mut()[start..].as_mut_ptr(), contents.data.len()));
        args.extend(contents.shape.iter().chain(&contents.strides).map(|&number| Arg::Scalar(number as u64)));
    }
    args.extend(launch.scalars.iter().map(|scalar| Arg::Scalar(scalar_bits(*scalar))));
    // Code without reports does not look at it.
    let mut record = [0u64; RECORD_WORDS];
    args.push(Arg::Scalar(record.as_mut_ptr() as u64));
    code.call(launch.grid.map(|extent| extent as u32), &mut args);
    MemoryAfter { memory: guarded, reports: record[0] != 0 }
}

impl MemoryAfter {
    fn same(&self, program: &Program, wanted: &[Contents]) -> Result<(), String> {
        for (i, (memory, contents)) in program.memory.iter().zip(wanted).enumerate() {
            let (own, name) = (&self.memory[i], memory.name(i));
            if !own.is_whole() {
                return Err(format!("wrote outside of `{name}`"));
            }
            let size = memory.dtype.bytes() as usize;
            let bytes = own.all()[own.start..own.start + own.bytes].chunks(size);
            let found = bytes.map(|bytes| Element::of_bytes(bytes, memory.dtype));
            for (index, (found, wanted)) in found.zip(&contents.data).enumerate() {
                if !found.same(*wanted) {
                    return Err(format!("`{name}[{index}]` is {found:?}, should be {wanted:?}"));
                }
            }
        }
        Ok(())
    }
}

/// CPU time of this thread, which other processes on the machine do not lengthen.
pub fn cpu_time() -> Duration {
    let mut time = nix::libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and the structure is ours.
    unsafe { nix::libc::clock_gettime(nix::libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
