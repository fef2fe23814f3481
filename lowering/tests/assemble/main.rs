//! Every kernel of the library and of a corpus, in every variant and specialization, for every architecture: NVIDIA's
//! assembler accepts it, no fast kernel spills, and its resources of a multiprocessor may only fall. Kernels that
//! `numerics` launches become PTX.
//!
//! Builds on machines without a GPU make no code for one: this test lowers all of it, in a process of its own, and in as many
//! children as there are CPUs. Of the library it assembles what is for the latest architecture. Modules that passed before, and PTX that
//! was assembled before, are known by their hashes.

mod entry;
mod known;
mod ratchet;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lowering::backend::nvptx::{self, Arch, PtxModule};
use lowering::backend::ptxas;
use lowering::backend::sandbox::{self, WorkQueue};
use lowering::driver::artifact::{LoweredVariant, entry_name};
use lowering::driver::compile::lower_variants;
use lowering::driver::options::{BuildOptions, Effort};
use lowering::gpu::specialization::Specialization;
use lowering::mlir::Session;
use mimalloc::MiMalloc;
use proc_macro2::TokenStream;
use serde::{Deserialize, Serialize};
use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck::{self, Variant};
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::sources::{generated_kernels, kernels, rust_files};

use entry::Entry;
use known::{KnownModules, ModuleHash, Product};
use ratchet::{EntryRecord, EntryResources, PtxHash, Table};

/// A fifth of the time without it: MLIR allocates each operation. The macro has the allocator of rustc.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The assembler of the numbers in `registers.txt`; another one allocates registers differently.
const MEASURED_WITH: &str = "V13.0.88";

/// How long a child may take for one kernel.
const LIMIT: Duration = Duration::from_secs(3600);

/// Where a kernel is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Library,
    /// A program that comes with the library.
    Demo,
    Corpus,
    /// The kernels that `numerics` launches: without a GPU they are built for CPUs alone.
    Launched,
}

impl Origin {
    /// Bytes that ptxas may spill by its own choice, to fit one more block; more where tiles are odd.
    fn allowed_spill(self) -> u32 {
        match self {
            Origin::Library | Origin::Demo => 8,
            Origin::Corpus | Origin::Launched => 24,
        }
    }

    /// Whether modules of an architecture are assembled; of all, PTX is made.
    fn assembles(self, arch: Arch) -> bool {
        match self {
            Origin::Library => arch.exact,
            Origin::Demo | Origin::Launched => false,
            Origin::Corpus => true,
        }
    }
}

/// What the children know.
struct Assembler {
    /// `None` where the tests are set to run without one.
    ptxas: Option<PathBuf>,
    /// Whether it is the one that the numbers were measured with, or there is none.
    has_recorded_version: bool,
    recorded: Table,
}

/// What a child found.
#[derive(Default, Serialize, Deserialize)]
struct Findings {
    records: Vec<(String, EntryRecord)>,
    spills: Vec<String>,
    built: usize,
    /// Of all modules.
    modules: BTreeSet<ModuleHash>,
    /// Modules that were lowered, because their hash is not a recorded one, or in the sample.
    lowered: usize,
    /// Entries that were assembled, because their PTX is not the recorded one.
    assembled: usize,
    /// Entries that should have been, where there is no assembler.
    unassembled: Vec<String>,
}

impl Findings {
    /// Notes a module that was built.
    fn add(&mut self, module: ModuleHash) {
        self.built += 1;
        self.modules.insert(module);
    }

    fn extend(&mut self, other: Findings) {
        self.records.extend(other.records);
        self.spills.extend(other.spills);
        self.built += other.built;
        self.modules.extend(other.modules);
        self.lowered += other.lowered;
        self.assembled += other.assembled;
        self.unassembled.extend(other.unassembled);
    }
}

/// Prints past the test harness, which captures the output of passing tests.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The assembler, and the numbers that it was measured with.
fn assembler(recorded: Table) -> Assembler {
    if std::env::var("FUSE_PTXAS").is_ok_and(|value| value == "none") {
        return Assembler { ptxas: None, has_recorded_version: true, recorded };
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ptxas/ptxas");
    let search = ptxas::find(&|name| std::env::var_os(name)).expect("FUSE_PTXAS names a file");
    let found = search.found.or_else(|| own.is_file().then_some(own));
    let path = found.expect("no ptxas found: `scripts/ptxas` fetches one; FUSE_PTXAS=none assembles nothing");
    let version = Command::new(&path).arg("--version").output().expect("ptxas runs").stdout;
    let has_recorded_version = String::from_utf8_lossy(&version).contains(MEASURED_WITH);
    Assembler { ptxas: Some(path), has_recorded_version, recorded }
}

impl Assembler {
    /// What ptxas gave for an entry, if it was this one.
    fn record(&self, name: &str) -> Option<EntryRecord> {
        self.recorded.get(name).copied().filter(|_| self.has_recorded_version)
    }
}

/// A kernel whose variants are lowered.
struct Subject<'a> {
    kernel: &'a Kernel,
    origin: Origin,
    assembler: &'a Assembler,
    known: &'a KnownModules,
    session: Session,
}

impl Subject<'_> {
    /// Plans variants for every architecture.
    fn plan(&self, variants: &[Variant], options: &BuildOptions) -> Vec<LoweredVariant> {
        let mut errors = Errors::new();
        let options = BuildOptions { effort: Effort::Check, ..options.clone() };
        let planned = lower_variants(self.kernel, variants, &options, &mut errors);
        planned.unwrap_or_else(|| panic!("{}: {errors:?}", self.kernel.name))
    }

    /// Lowers and assembles every variant. Tests are debug builds, for the latest architecture.
    fn findings(&self, options: &BuildOptions) -> Findings {
        let mut errors = Errors::new();
        let variants = typeck::variants(self.kernel, &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        let mut findings = Findings::default();
        if self.origin == Origin::Launched {
            let archs = options.archs.iter().copied().filter(|arch| arch.exact).collect();
            self.report(&variants, &BuildOptions { archs, ..options.clone() }, &mut findings);
            return findings;
        }
        for (variant, planned) in variants.iter().zip(&self.plan(&variants, options)) {
            let of = |specialization| entry_name(self.kernel, variant, specialization);
            let names: Vec<String> = planned.specializations.iter().map(of).collect();
            for (name, specialization) in names.iter().zip(&planned.specializations) {
                self.lower(&Entry { name, names: &names, specialization }, options, &mut findings);
            }
        }
        self.report(&variants, options, &mut findings);
        findings
    }

    /// Builds a specialization, in a module for each group of architectures.
    fn build(
        &self,
        (name, specialization): (&str, &Specialization),
        options: &BuildOptions,
        mut each: impl FnMut(&[Arch], PtxModule),
    ) {
        let named = [(name.to_string(), specialization)];
        let runs_on = |arch: &Arch| specialization.gpus.include(arch.capability);
        let archs: Vec<Arch> = options.archs.iter().copied().filter(runs_on).collect();
        for group in nvptx::groups(&named, &archs) {
            let module = nvptx::build(&self.session, &named, group);
            each(group, module.unwrap_or_else(|error| panic!("{}, {name}: {error}", self.kernel.name)));
        }
    }

    /// Lowers and assembles a specialization, as far as that is not known.
    fn lower(&self, entry: &Entry, options: &BuildOptions, findings: &mut Findings) {
        self.build((entry.name, entry.specialization), options, |archs, module| {
            let hash = ModuleHash::of(&module, Product::Ptx, entry.specialization);
            findings.add(hash);
            if self.known.skips(hash) && self.take_recorded(entry, archs, findings) {
                return;
            }
            findings.lowered += 1;
            let texts = module.translate(None).and_then(|translated| translated.print(None));
            let texts = texts.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            for (arch, ptx) in texts {
                entry.check(arch, &ptx);
                if self.origin.assembles(arch) {
                    self.assemble(entry, arch, &ptx, findings);
                }
            }
        });
    }

    /// What a debug build adds, which reports accesses: every variant as LLVM IR, and as PTX the first one and all that `numerics` launches.
    fn report(&self, variants: &[Variant], options: &BuildOptions, findings: &mut Findings) {
        let options = BuildOptions { report: true, ..options.clone() };
        for (index, planned) in self.plan(variants, &options).iter().enumerate() {
            let printed = index == 0 || self.origin == Origin::Launched;
            let product = if printed { Product::Ptx } else { Product::LlvmIr };
            for specialization in &planned.specializations {
                self.build(("entry", specialization), &options, |_, module| {
                    let hash = ModuleHash::of(&module, product, specialization);
                    findings.add(hash);
                    if !self.known.skips(hash) {
                        findings.lowered += 1;
                        let made = module.translate(None).and_then(|translated| match product {
                            Product::LlvmIr => Ok(vec![]),
                            Product::Ptx => translated.print(None),
                        });
                        made.unwrap_or_else(|error| panic!("{}: {error}", self.kernel.name));
                    }
                });
            }
        }
    }

    /// Takes the resources of an entry whose module is known from the ratchet, if it has them all.
    fn take_recorded(&self, entry: &Entry, archs: &[Arch], findings: &mut Findings) -> bool {
        let assembled = archs.iter().filter(|&&arch| self.origin.assembles(arch));
        let records = assembled.map(|&arch| Some((arch, self.assembler.record(&entry.on(arch))?)));
        let Some(records) = records.collect::<Option<Vec<(Arch, EntryRecord)>>>() else { return false };
        for (arch, record) in records {
            self.record(entry, arch, record, findings);
        }
        true
    }

    /// Assembles PTX, unless what `ptxas` gives is known.
    fn assemble(&self, entry: &Entry, arch: Arch, ptx: &str, findings: &mut Findings) {
        let name = entry.on(arch);
        let hash = PtxHash::of(ptx);
        let recorded = self.assembler.record(&name).filter(|record| record.ptx == Some(hash));
        let Assembled { registers, spilled_bytes } = if let Some(EntryRecord { resources, .. }) = recorded {
            Assembled { registers: resources.registers, spilled_bytes: resources.spilled_bytes }
        } else if let Some(path) = &self.assembler.ptxas {
            findings.assembled += 1;
            assemble(path, arch, (entry.name, ptx))
        } else {
            findings.unassembled.push(name);
            return;
        };
        let own = entry.own_text(ptx);
        let barriers = ["bar.sync", "barrier.cluster.wait"].map(|text| own.matches(text).count());
        let barriers = barriers.iter().sum::<usize>() as u32;
        let resources = EntryResources { registers, shared_bytes: 0, barriers, spilled_bytes };
        self.record(entry, arch, EntryRecord { resources, ptx: Some(hash) }, findings);
    }

    /// Records an entry's resources, with the shared memory that it asks for now. An entry that spills and may not is a finding: anything in a
    /// tensor specialization with TMA stores, and more than is allowed in an aligned one, for the latest architecture. Spills of
    /// others, by ptxas's choice or for a long misaligned row, are in the ratchet.
    fn record(&self, entry: &Entry, arch: Arch, record: EntryRecord, findings: &mut Findings) {
        let (name, plan) = (entry.on(arch), &entry.specialization.plan);
        let resources = EntryResources { shared_bytes: plan.shared_bytes(), ..record.resources };
        let EntryResources { registers, spilled_bytes, .. } = resources;
        let most = match entry.specialization.name.as_str() {
            _ if self.kernel.options.deny_spills => 0,
            // Those without TMA stores, and those for other orders, are in the ratchet.
            name if name.starts_with("tensor") && !name.ends_with("odd") => 0,
            "aligned" => self.origin.allowed_spill(),
            _ => u32::MAX,
        };
        if spilled_bytes > most && arch.exact {
            findings.spills.push(format!("{name}: {spilled_bytes} bytes\n"));
        }
        assert!(entry.cap().is_none_or(|cap| registers <= cap), "{name}: {registers} registers");
        let of_block = registers.next_multiple_of(8) * plan.threads();
        assert!(of_block <= 64 * 1024, "{name}: a multiprocessor has no room for a block");
        findings.records.push((name, EntryRecord { resources, ..record }));
    }
}

/// What the assembler says of an entry.
struct Assembled {
    registers: u32,
    spilled_bytes: u32,
}

fn assemble(ptxas: &Path, arch: Arch, (entry, ptx): (&str, &str)) -> Assembled {
    let cubin = ptxas::assemble(ptxas, arch, ptx, &std::env::temp_dir());
    let cubin = cubin.unwrap_or_else(|error| panic!("{entry}: {}", error.what));
    assert_eq!(cubin.remarks, Vec::<String>::new(), "{entry} for {}", arch.name());
    let used = cubin.resources.iter().find(|one| one.entry == *entry);
    let used = used.unwrap_or_else(|| panic!("no report about {entry}"));
    assert_eq!(used.static_shared_bytes, 0, "{entry}: shared memory is asked for at launch");
    let spilled_bytes = used.spill_store_bytes.max(used.spill_load_bytes).max(used.stack_bytes);
    Assembled { registers: used.registers, spilled_bytes }
}

/// The kernels of the Rust files in a folder, in an order.
fn kernels_in(folder: &Path) -> Vec<Kernel> {
    let read =
        |path: PathBuf| generated_kernels(&fs::read_to_string(path).expect("a source file"), generated);
    rust_files(folder).into_iter().flat_map(read).collect()
}

/// What the procedural macros that generate kernels of tests expand to.
fn generated(name: &str, arguments: TokenStream) -> Option<TokenStream> {
    match name {
        "op_table" => Some(lowering::op_table()),
        "random_programs" => Some(lowering::random_programs(arguments)),
        _ => None,
    }
}

/// All kernels, by where they are from.
fn every_kernel(root: &Path) -> Vec<(Origin, Kernel)> {
    let corpus = fs::read_to_string(root.join("tests/compiler/corpus.txt")).expect("the corpus");
    let sources = [
        (Origin::Library, kernels_in(&root.join("../examples/src"))),
        (Origin::Demo, kernels_in(&root.join("../examples/examples"))),
        (Origin::Corpus, kernels(&corpus)),
        (Origin::Launched, kernels_in(&root.join("../tests/kernels/src"))),
    ];
    let with_origin =
        |(origin, kernels): (Origin, Vec<Kernel>)| kernels.into_iter().map(move |kernel| (origin, kernel));
    sources.into_iter().flat_map(with_origin).collect()
}

/// What a build without an assembler and without host code has.
fn options() -> BuildOptions {
    let line = ["rustc", "--crate-name", "kernels", "--emit=link", "-O"].map(str::to_string);
    let options = BuildOptions::read(&line, &|_| None).expect("options");
    BuildOptions { host: None, ..options }
}

#[test]
fn every_kernel_assembles_within_its_recorded_resources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("tests/assemble/registers.txt");
    let known_path = root.join("tests/assemble/mlir.txt");
    let known = KnownModules::read(&known_path);
    let assembler = assembler(ratchet::read(&path));
    let kernels = every_kernel(root);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = WorkQueue::new(kernels.len()).expect("a queue");
    let work = || {
        let mut findings = Findings::default();
        let options = options();
        while let Some((origin, kernel)) = queue.take().map(|number| &kernels[number]) {
            // A child that is silent for long counts as hung.
            say(&kernel.name.to_string());
            let (assembler, known, session) = (&assembler, &known, Session::new());
            let subject = Subject { kernel, origin: *origin, assembler, known, session };
            findings.extend(subject.findings(&options));
        }
        Ok(findings)
    };
    let start = |_| sandbox::start(work).expect("a child");
    let children: Vec<sandbox::Child> = (0..workers).map(start).collect();
    let mut findings = Findings::default();
    for child in children {
        let found = child.finish::<Findings>(LIMIT);
        findings.extend(found.unwrap_or_else(|failure| panic!("{}\n{}", failure.what, failure.output)));
    }
    assert!(findings.spills.is_empty(), "these spill:\n{}", findings.spills.concat());
    say(&format!("{} of {} modules were lowered", findings.lowered, findings.built));
    let mut table: Table = findings.records.into_iter().collect();
    if findings.assembled > 0 {
        say(&format!("{} entries are not what was recorded, and were assembled", findings.assembled));
    }
    let all_assembled = findings.unassembled.is_empty();
    if !all_assembled {
        say(&format!("NOT TESTED: {} entries, because FUSE_PTXAS=none", findings.unassembled.len()));
        let recorded = |name: String| Some((name.clone(), *assembler.recorded.get(&name)?));
        table.extend(findings.unassembled.into_iter().filter_map(recorded));
    }
    for entry in ["capped_256_num_warps_1_aligned", "capped_256_num_warps_2_maxnreg_40_aligned"] {
        assert!(table.contains_key(&format!("{entry} sm_90a")), "configs differ in their settings");
    }
    for name in ["added", "program_39", "cast"] {
        let is_it = |(origin, kernel): &(Origin, Kernel)| *origin == Origin::Launched && kernel.name == name;
        assert!(kernels.iter().any(is_it), "`{name}` is one of the kernels that `numerics` launches");
    }
    assert!(
        table.contains_key("add_mul_f32_1024_aligned sm_90a"),
        "the library was found: {:?}",
        table.keys()
    );
    if assembler.has_recorded_version {
        ratchet::check(&table, &assembler.recorded, &path);
        // A module is known once the ratchet has let pass what ptxas made of it.
        if all_assembled {
            known.record(findings.modules, &known_path);
        }
    } else {
        say(&format!("NOT TESTED: registers, which were measured with ptxas {MEASURED_WITH}"));
    }
}
