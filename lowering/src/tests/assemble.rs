//! Every kernel of the library for the latest architecture and of a corpus for each, in every variant and specialization:
//! NVIDIA's assembler accepts it, no fast kernel spills, and its resources of a multiprocessor may only fall. A build with an
//! assembler assembles all of them for every architecture, in the form that reports accesses.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use quote::ToTokens;
use tile_ir::frontend::syntax;
use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck;
use tile_ir::support::diagnostic::Errors;

use super::site::{Site, lowering_alone};
use crate::backend::compress::Deflated;
use crate::backend::nvptx::Arch;
use crate::backend::ptxas::Resources;
use crate::driver::artifact::{LoweredVariant, entry_name};
use crate::driver::compile::lower_variants;
use crate::driver::options::BuildOptions;
use crate::gpu::emit::pdl;
use crate::mlir::Limit;

/// The assembler of the numbers in `registers.txt`; another one allocates registers differently.
const MEASURED_WITH: &str = "V13.0.88";

/// The lowest PTX versions with sm_80, with cache policies and hints on it, with sm_90a, and with `st.async` and vector
/// `red.add` there.
const VERSIONS: [&str; 4] = ["7.0", "7.4", "8.0", "8.1"];

/// The version of [`VERSIONS`] that a module should have.
fn version(capability: u32, ptx: &str) -> &'static str {
    let hints = ptx.contains("createpolicy") || ptx.contains("cache_hint");
    match (capability, hints) {
        (90, _)
            if ["st.async", ".global.add.v", ".global.add.noftz.v"].iter().any(|new| ptx.contains(new)) =>
        {
            VERSIONS[3]
        }
        (90, _) => VERSIONS[2],
        (_, true) => VERSIONS[1],
        (_, false) => VERSIONS[0],
    }
}

/// Bytes that ptxas may spill by its own choice, to fit one more block.
const ALLOWED_SPILL: u32 = 8;
/// The same for the kernels of the corpus, some with odd tiles.
const ALLOWED_SPILL_IN_CORPUS: u32 = 24;

/// An entry's resources of a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct EntryResources {
    registers: u32,
    shared_bytes: u32,
    barriers: u32,
    spilled_bytes: u32,
}

impl fmt::Display for EntryResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EntryResources { registers, shared_bytes, barriers, spilled_bytes } = self;
        write!(f, "{registers} registers, {shared_bytes} shared, {barriers} barriers")?;
        if *spilled_bytes > 0 {
            write!(f, ", {spilled_bytes} spilled")?;
        }
        Ok(())
    }
}

impl EntryResources {
    fn parse(text: &str) -> Option<EntryResources> {
        let mut numbers = text.split(", ").map(|part| part.split(' ').next()?.parse().ok());
        let mut next = || numbers.next().flatten();
        let (registers, shared_bytes, barriers) = (next()?, next()?, next()?);
        Some(EntryResources { registers, shared_bytes, barriers, spilled_bytes: next().unwrap_or(0) })
    }

    fn exceeds(self, limit: EntryResources) -> bool {
        self.registers > limit.registers
            || self.shared_bytes > limit.shared_bytes
            || self.barriers > limit.barriers
            || self.spilled_bytes > limit.spilled_bytes
    }
}

/// By `kernel_variant_specialization sm_80`.
type Table = BTreeMap<String, EntryResources>;

/// The assembler, or `None` where the tests are set to run without one.
fn assembler() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ptxas/ptxas");
    let found = crate::backend::ptxas::find().or_else(|| own.is_file().then_some(own));
    let without = std::env::var("FUSE_PTXAS").is_ok_and(|value| value == "none");
    if without {
        say("NOT TESTED: no PTX is assembled, because FUSE_PTXAS=none");
        return None;
    }
    Some(found.expect("no ptxas found: `scripts/ptxas` fetches one; FUSE_PTXAS=none leaves this test out"))
}

/// Prints past the test harness, which captures the output of passing tests.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The kernels of a source file and of its `#[fuse_module]` modules, as the macros get them.
pub fn kernels(source: &str) -> Vec<Kernel> {
    let file = syn::parse_file(source).expect("a source file");
    let mut errors = Errors::new();
    let mut kernels = vec![];
    for item in file.items {
        match item {
            syn::Item::Fn(mut function) => {
                if let Some(attribute) = take_attribute(&mut function.attrs, "fuse_kernel") {
                    let arguments = match attribute.meta {
                        syn::Meta::List(list) => list.tokens,
                        _ => Default::default(),
                    };
                    kernels.extend(syntax::parse(arguments, function.to_token_stream(), &mut errors));
                }
            }
            syn::Item::Mod(mut module) => {
                let mark = take_attribute(&mut module.attrs, "fuse_module");
                let parse =
                    |_| syntax::parse_module(Default::default(), module.to_token_stream(), &mut errors);
                if let Some(module) = mark.and_then(parse) {
                    kernels.extend(of_module(module, &mut errors));
                }
            }
            _ => {}
        }
    }
    assert!(errors.is_empty(), "{errors:?}");
    kernels
}

/// Removes the attribute of this name, which is not part of a macro's input.
fn take_attribute(attributes: &mut Vec<syn::Attribute>, name: &str) -> Option<syn::Attribute> {
    let position = attributes.iter().position(|attribute| attribute.path().is_ident(name))?;
    Some(attributes.remove(position))
}

fn of_module(module: syntax::FuseModule, errors: &mut Errors) -> Vec<Kernel> {
    let mut kernels = vec![];
    for part in module.parts {
        if let syntax::ModuleItem::Kernel { attribute, item, .. } = part {
            let kernel = syntax::parse(attribute, item, errors);
            kernels.extend(kernel.map(|kernel| Kernel { items: module.items.clone(), ..kernel }));
        }
    }
    kernels
}

/// Lowers and assembles every variant of the kernels in `source`; returns each entry's resources, and those that spill more
/// than is allowed.
fn assemble(source: &str, options: &BuildOptions, allowed_spill: u32) -> (Table, Vec<String>) {
    let (mut table, mut spills) = (Table::new(), vec![]);
    for kernel in kernels(source) {
        let mut errors = Errors::new();
        let variants = typeck::variants(&kernel, &mut errors);
        let lowered = lower_variants(&kernel, &variants, options, &mut errors);
        let lowered = lowered.unwrap_or_else(|| panic!("{}: {errors:?}", kernel.name));
        for (variant, lowered) in variants.iter().zip(&lowered) {
            let entries =
                lowered.specializations.iter().map(|body| entry_name(&kernel, variant, body)).collect();
            spills.extend(record(entries, lowered, &mut table, allowed_spill));
        }
    }
    (table, spills)
}

/// Whether a module waits for the previous kernel before it accesses memory, and has no `ld.global.nc`; `None` where it
/// does not wait at all.
fn waits_first(ptx: &str) -> Option<bool> {
    let lines = || ptx.lines().map(str::trim_start);
    let wait = lines().position(|line| line.starts_with("griddepcontrol.wait"))?;
    // Declarations and parameters begin with a dot.
    let accesses_memory = |line: &str| line.contains(".global") && !line.starts_with('.');
    Some(!lines().take(wait).any(accesses_memory) && !lines().any(|line| line.contains(".nc.")))
}

fn text(ptx: &Deflated) -> String {
    let bytes = ptx.unpack();
    assert_eq!(bytes.len(), ptx.len);
    String::from_utf8(bytes).expect("PTX is text")
}

/// Records the entries' resources; returns a line for each that spills and may not: anything in a tensor specialization with
/// TMA stores, more than `allowed_spill` bytes in an aligned one, for the latest architecture. Spills of
/// others, by ptxas's choice or for a long misaligned row, are in the ratchet.
fn record(
    entries: Vec<String>,
    lowered: &LoweredVariant,
    table: &mut Table,
    allowed_spill: u32,
) -> Vec<String> {
    let mut spills = vec![];
    for module in &lowered.code.modules {
        let arch = if module.exact { "sm_90a" } else { "sm_80" };
        let (cubin, ptx) = (module.cubin.as_ref().expect("there is an assembler"), text(&module.ptx));
        let found = ptx.lines().find_map(|line| line.strip_prefix(".version ")).unwrap_or_default();
        let (entry, body) =
            (&entries[module.specialization], &lowered.specializations[module.specialization]);
        assert_eq!(found, version(module.capability, &ptx), "{entry} for {arch}");
        assert_eq!(cubin.remarks, Vec::<String>::new(), "{entry} for {arch}");
        let uses_pdl = body.plan.uses_pdl() && module.capability >= pdl::CAPABILITY;
        assert_eq!(waits_first(&ptx), uses_pdl.then_some(true), "{entry} for {arch}");
        let others = entries.iter().filter(|other| *other != entry);
        assert!(
            others.into_iter().all(|other| !ptx.contains(&format!(".entry {other}("))),
            "{entry} is alone in its module"
        );
        {
            let resources = cubin.resources.iter().find(|one| one.entry == *entry);
            let resources: &Resources = resources.unwrap_or_else(|| panic!("no report about {entry}"));
            assert_eq!(
                resources.static_shared_bytes, 0,
                "{entry} for {arch}: shared memory is asked for at launch"
            );
            let spilled_bytes =
                resources.spill_store_bytes.max(resources.spill_load_bytes).max(resources.stack_bytes);
            let most = match body.name {
                // Those without TMA stores, and those for other orders, are in the ratchet.
                name if name.starts_with("tensor") && !name.ends_with("odd") => 0,
                "aligned" => allowed_spill,
                _ => u32::MAX,
            };
            if spilled_bytes > most && module.exact {
                spills.push(format!("{entry} for {arch}: {spilled_bytes} bytes\n"));
            }
            let own = ptx.split(".entry ").find(|text| text.starts_with(&format!("{entry}(")));
            let cap = own.and_then(|text| text.lines().find_map(|line| line.strip_prefix(".maxnreg ")));
            let cap = cap.map(|cap| cap.parse::<u32>().expect("a number of registers"));
            assert_eq!(
                cap,
                body.plan.limit.and_then(Limit::registers),
                "{entry} for {arch}: what the kernel asks for"
            );
            assert!(cap.is_none_or(|cap| resources.registers <= cap), "{entry} for {arch}: {resources:?}");
            let of_block = resources.registers.next_multiple_of(8) * body.plan.threads();
            assert!(of_block <= 64 * 1024, "{entry} for {arch}: a multiprocessor has no room for a block");
            let needs = EntryResources {
                registers: resources.registers,
                shared_bytes: body.plan.shared_bytes(),
                barriers: own.map_or(0, |text| {
                    text.matches("bar.sync").count() + text.matches("barrier.cluster.wait").count()
                }) as u32,
                spilled_bytes,
            };
            table.insert(format!("{entry} {arch}"), needs);
        }
    }
    spills
}

/// The ratchet: the limits in `registers.txt`.
fn allowed(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines.filter_map(|(name, needs)| Some((name.to_string(), EntryResources::parse(needs)?))).collect()
}

/// Compares `found` with the ratchet. `UPDATE_EXPECT=1` records numbers that fell; one that rose fails until its line is
/// removed from the file, to accept it.
fn ratchet(found: &Table, path: &Path) {
    let allowed = allowed(path);
    let risen: Vec<String> = found
        .iter()
        .filter_map(|(name, &needs)| Some((name, needs, *allowed.get(name)?)))
        .filter(|(_, needs, limit)| needs.exceeds(*limit))
        .map(|(name, needs, limit)| format!("{name}: {needs}\n    at most {limit}\n"))
        .collect();
    assert!(risen.is_empty(), "kernels take more than they did:\n{}", risen.concat());
    if found == &allowed {
        return;
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let lines: String = found.iter().map(|(name, needs)| format!("{name}: {needs}\n")).collect();
        fs::write(path, lines).expect("the ratchet is written");
        return;
    }
    let differs = |(name, needs): &(&String, &EntryResources)| allowed.get(*name) != Some(needs);
    let lowered: Vec<String> =
        found.iter().filter(differs).map(|(name, needs)| format!("{name}: {needs}\n")).collect();
    let gone: Vec<&String> = allowed.keys().filter(|name| !found.contains_key(*name)).collect();
    panic!(
        "UPDATE_EXPECT=1 writes down what fell or is new:\n{}and what is gone: {gone:?}",
        lowered.concat()
    );
}

#[test]
fn every_kernel_assembles_within_its_recorded_resources() {
    let Some(ptxas) = assembler() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let _alone = lowering_alone();
    let site = Site::new();
    let each = BuildOptions { ptxas: Some(ptxas.clone()), family: None, ..site.options() };
    let latest = BuildOptions { archs: vec![Arch::SM_90A], ..each.clone() };
    let library = fs::read_dir(root.join("../examples/src"))
        .expect("the library of kernels")
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("a source file"));
    let sources = library.map(|source| (source, &latest, ALLOWED_SPILL));
    let (mut table, mut spills) = (Table::new(), vec![]);
    let corpus = (include_str!("corpus.txt").to_string(), &each, ALLOWED_SPILL_IN_CORPUS);
    for (source, options, allowed_spill) in sources.chain([corpus]) {
        let (needs, spilling) = assemble(&source, options, allowed_spill);
        table.extend(needs);
        spills.extend(spilling);
    }
    assert!(spills.is_empty(), "these spill:\n{}", spills.concat());
    let (free, capped) =
        ("capped_256_num_warps_1_aligned sm_90a", "capped_256_num_warps_2_maxnreg_40_aligned sm_90a");
    assert!(table.contains_key(free) && table.contains_key(capped), "configs differ in their settings");
    assert!(
        table.contains_key("add_mul_f32_1024_aligned sm_90a"),
        "the library was found: {:?}",
        table.keys()
    );
    let version = Command::new(&ptxas).arg("--version").output().expect("ptxas runs").stdout;
    if String::from_utf8_lossy(&version).contains(MEASURED_WITH) {
        ratchet(&table, &root.join("src/tests/registers.txt"));
    } else {
        say(&format!("NOT TESTED: registers, which were measured with ptxas {MEASURED_WITH}"));
    }
}
