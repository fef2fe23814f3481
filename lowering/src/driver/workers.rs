//! The code of a kernel's variants: from the cache, or from child processes that lower what is missing, as many at once as there
//! are CPUs. A crash or a hang of LLVM is then a message.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck::Variant;
use tile_ir::ir::Func;
use tile_ir::support::diagnostic::Diagnostic;
use tile_ir::support::warning::Warning;

use crate::backend::StageTexts;
use crate::backend::cache::{ArtifactCache, CacheKey};
use crate::backend::compress::Deflated;
use crate::backend::host_asm::HostTarget;
use crate::backend::llvm;
use crate::backend::nvptx;
use crate::backend::nvptx::Arch;
use crate::backend::ptxas;
use crate::backend::ptxas::{AssemblyError, WorkDirectory};
use crate::backend::sandbox;
use crate::backend::sandbox::Failure;
use crate::cpu::emit::CpuPlan;
use crate::driver::artifact::{GpuModule, VariantCode, entry_name};
use crate::driver::dump::{dump_gpu, dump_host, dump_path, print_line, save_input};
use crate::driver::options::{BuildOptions, DumpStage};
use crate::driver::variant_errors::{environment_error, internal_error, too_few_registers};
use crate::gpu::specialization::Specialization;
use crate::mlir::Session;

/// Stands for a variant's host entry in cached assembly; the expansion puts a symbol of its own in its place.
pub const HOST_ENTRY: &str = "FUSE_HOST_ENTRY";

/// A variant before its code exists.
pub(super) struct PreparedVariant {
    pub func: Func,
    pub specializations: Vec<Specialization>,
    pub host: Option<CpuPlan>,
    pub key: CacheKey,
    pub source: u64,
    /// Likely mistakes.
    pub warnings: Vec<Warning>,
}

/// A kernel whose variants are lowered.
pub(super) struct KernelLowering<'a> {
    pub kernel: &'a Kernel,
    pub variants: &'a [Variant],
    /// Of each variant.
    pub prepared: &'a [PreparedVariant],
    pub options: &'a BuildOptions,
    /// For the files of assemblers.
    pub work: WorkDirectory,
}

/// What a child lowers at once: a part of a variant.
struct Part<'a> {
    /// The variant's index.
    variant: usize,
    target: Target<'a>,
}

enum Target<'a> {
    /// A specialization by its index, for every GPU.
    Gpu(usize),
    Host(HostPart<'a>),
}

/// The CPU, at levels that share a module.
struct HostPart<'a> {
    plan: &'a CpuPlan,
    levels: HostTarget,
}

/// Lines with which a child reports its progress, should it not live to return.
const STAGE: &str = "fuse stage: ";
const VARIANT: &str = "fuse variant: ";
/// The line with which a child says what the user can do about its error.
const CURE: &str = "fuse cure: ";
/// The most lines of what a child wrote that a message has: the end of a backtrace.
const OUTPUT_LINES: usize = 20;

impl KernelLowering<'_> {
    /// The code of every variant.
    pub fn codes(&self) -> Result<Vec<VariantCode>, Box<Diagnostic>> {
        let cache = ArtifactCache::at(self.options.cache_dir.clone());
        let fresh = !self.options.dump.is_empty() || self.options.inject.is_some();
        let cached = |one: &PreparedVariant| if fresh { None } else { cache.get(one.key) };
        let mut codes: Vec<Option<VariantCode>> = self.prepared.iter().map(cached).collect();
        let missing: Vec<usize> = (0..codes.len()).filter(|&variant| codes[variant].is_none()).collect();
        for (variant, code) in missing.iter().copied().zip(self.lower_all(&missing)?) {
            cache.put(self.prepared[variant].key, &code);
            codes[variant] = Some(code);
        }
        Ok(codes.into_iter().flatten().collect())
    }

    /// The parts of a variant.
    fn parts(&self, variant: usize) -> impl Iterator<Item = Part<'_>> {
        let PreparedVariant { specializations, host, .. } = &self.prepared[variant];
        let hosts = self.options.host.iter().zip(host);
        let hosts = hosts.flat_map(|(target, plan)| {
            target.modules(plan).into_iter().map(move |levels| Target::Host(HostPart { plan, levels }))
        });
        (0..specializations.len()).map(Target::Gpu).chain(hosts).map(move |target| Part { variant, target })
    }

    /// Lowers variants, each in parts.
    fn lower_all(&self, variants: &[usize]) -> Result<Vec<VariantCode>, Box<Diagnostic>> {
        let parts: Vec<Part> = variants.iter().flat_map(|&variant| self.parts(variant)).collect();
        let mut codes: BTreeMap<usize, VariantCode> =
            variants.iter().map(|&variant| (variant, VariantCode::default())).collect();
        for (part, code) in parts.iter().zip(self.lower_parts(&parts)?) {
            let of_variant = codes.entry(part.variant).or_default();
            of_variant.modules.extend(code.modules);
            of_variant.hosts.extend(code.hosts);
        }
        for code in codes.values_mut() {
            // By architecture, and in the order of the specializations.
            code.modules.sort_by_key(|module| (module.capability, module.exact));
        }
        Ok(codes.into_values().collect())
    }

    /// The code of each part, from children that take turns.
    fn lower_parts(&self, parts: &[Part]) -> Result<Vec<VariantCode>, Box<Diagnostic>> {
        if parts.is_empty() {
            return Ok(vec![]);
        }
        let session = Session::new();
        llvm::initialize();
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(parts.len());
        let mut children = vec![];
        for worker in 0..workers {
            let own: Vec<&Part> = parts.iter().skip(worker).step_by(workers).collect();
            let job = || own.iter().map(|part| self.lower(&session, part)).collect();
            let child = sandbox::start::<Vec<VariantCode>>(job);
            let child = child.map_err(|failure| self.lowering_error(own[0].variant, &failure))?;
            children.push((own, child));
        }
        let mut codes = vec![VariantCode::default(); parts.len()];
        for (worker, (own, child)) in children.into_iter().enumerate() {
            let lowered = child.finish::<Vec<VariantCode>>(self.options.limit);
            let lowered = lowered
                .map_err(|failure| self.lowering_error(self.failed_variant(&own, &failure), &failure))?;
            for (code, lowered) in codes.iter_mut().skip(worker).step_by(workers).zip(lowered) {
                *code = lowered;
            }
        }
        Ok(codes)
    }

    /// Lowers a part; runs in a child.
    fn lower(&self, session: &Session, part: &Part) -> Result<VariantCode, String> {
        print_line(&format!("{VARIANT}{}", self.variants[part.variant]));
        match &part.target {
            Target::Gpu(specialization) => {
                let modules = self.lower_gpu(session, part.variant, *specialization)?;
                Ok(VariantCode { modules, hosts: vec![] })
            }
            Target::Host(host) => {
                let hosts = self.lower_host(session, part.variant, host)?;
                Ok(VariantCode { modules: vec![], hosts })
            }
        }
    }

    /// Whether `FUSE_DUMP` asks for a stage inside the back ends.
    fn wants_stages(&self) -> bool {
        self.options.dump.iter().any(|stage| matches!(stage, DumpStage::Mlir | DumpStage::Llvm))
    }

    /// A path of dumps.
    fn dump_path(&self, variant: usize, what: &str) -> PathBuf {
        dump_path(&self.kernel.name.to_string(), &self.variants[variant], what, self.options)
    }

    /// Modules of a specialization for every GPU that runs it.
    fn lower_gpu(&self, session: &Session, variant: usize, index: usize) -> Result<Vec<GpuModule>, String> {
        let options = self.options;
        print_line(&format!("{STAGE}PTX"));
        if let Some(injection) = options.inject {
            injection.strike()?;
        }
        let specialization: &Specialization = &self.prepared[variant].specializations[index];
        let entry = entry_name(self.kernel, &self.variants[variant], specialization);
        let runs_on = |arch: &Arch| specialization.gpus.include(arch.capability);
        let archs: Vec<Arch> = options.archs.iter().copied().filter(runs_on).collect();
        let mut stages = StageTexts::default();
        let wanted = self.wants_stages().then_some(&mut stages);
        let texts = nvptx::emit(session, &[(entry, specialization)], &archs, wanted)?;
        if !archs.is_empty() {
            dump_gpu(&stages, &texts, &self.dump_path(variant, &specialization.label()), options);
        }
        print_line(&format!("{STAGE}ptxas"));
        let module = |(arch, ptx): (Arch, String)| {
            let assembled =
                options.ptxas.as_ref().map(|path| ptxas::assemble(path, arch, &ptx, self.work.path()));
            let cubin = assembled.transpose().map_err(|AssemblyError { what, cure }| {
                cure.inspect(|cure| print_line(&format!("{CURE}{cure}")));
                what
            })?;
            let (Arch { capability, exact }, ptx) = (arch, Deflated::new(ptx.as_bytes()));
            Ok(GpuModule { capability, exact, specialization: index, ptx, cubin })
        };
        texts.into_iter().map(module).collect()
    }

    /// Assembly for levels of CPUs, by their names.
    fn lower_host(
        &self,
        session: &Session,
        variant: usize,
        HostPart { plan, levels }: &HostPart,
    ) -> Result<Vec<(String, String)>, String> {
        print_line(&format!("{STAGE}host assembly"));
        let mut stages = vec![];
        let texts = levels.emit(session, plan, HOST_ENTRY, self.wants_stages().then_some(&mut stages))?;
        dump_host(&stages, &texts, &self.dump_path(variant, "host"), self.options);
        Ok(texts.into_iter().map(|(level, text)| (level.name().to_string(), text)).collect())
    }

    /// What a child's failure at a variant is to the user.
    fn lowering_error(&self, variant: usize, failure: &Failure) -> Box<Diagnostic> {
        let reported = |what| failure.output.lines().rev().find_map(|line| line.strip_prefix(what));
        let stage = reported(STAGE).unwrap_or("lowering");
        let (kernel, choices) = (self.kernel, &self.variants[variant]);
        if let Some(cure) = failure.cure.or_else(|| reported(CURE)) {
            let what = format!("stage {stage}: {}", failure.what);
            return Box::new(environment_error(kernel, choices, &what, cure));
        }
        let input = save_input(&self.prepared[variant].func, choices, self.options);
        let is_report = |line: &&str| line.starts_with(STAGE) || line.starts_with(VARIANT);
        let others: Vec<&str> = failure.output.lines().filter(|line| !is_report(line)).collect();
        let last = &others[others.len().saturating_sub(OUTPUT_LINES)..];
        let output: String = last.iter().map(|line| format!("{line}\n")).collect();
        let what = format!("{}\n{output}the tile IR is in {input}", failure.what);
        let too_few = too_few_registers(kernel, choices, &failure.what);
        Box::new(too_few.unwrap_or_else(|| internal_error(kernel, choices, stage, &what)))
    }

    /// The variant at which a child failed, of those of its own parts: the last one that it reported.
    fn failed_variant(&self, own: &[&Part], failure: &Failure) -> usize {
        let reported = failure.output.lines().rev().find_map(|line| line.strip_prefix(VARIANT));
        let found =
            own.iter().find(|part| Some(self.variants[part.variant].to_string().as_str()) == reported);
        found.unwrap_or(&own[0]).variant
    }
}
