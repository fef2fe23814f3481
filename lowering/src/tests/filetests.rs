//! File tests, `filetests/<pass>/*.ir`: a function as text, and below it what a pass makes of it.
//!
//! ```text
//! ; test legalize_index bounds=guarded
//! ; What the file shows.
//!
//! kernel copy(x: &[f32], out: &mut [f32], %n n: i32) {
//!   ..
//! }
//!
//! ; the whole output, or `unchanged`, and the guards that it relies on
//! ```
//!
//! Whoever writes one leaves the output out and runs the test with `UPDATE_EXPECT=1`, which writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use crate::analysis::reread::unpipeline_rereads;
use crate::gpu::layout::access::Alignment;
use crate::gpu::layout::{Distributed, ThreadConfig, distribute};
use crate::gpu::opt::batch_reductions::batch_reductions;
use crate::gpu::opt::delay_fp8_upcast::delay_fp8_upcast;
use crate::gpu::opt::elide_selects::elide_selects;
use crate::gpu::opt::hoist_loads::hoist_loads;
use crate::gpu::opt::hoist_operand_conversion::hoist_operand_conversions;
use crate::gpu::opt::remat_narrow::remat_narrow;
use crate::gpu::opt::remat_ranges::remat_ranges;
use crate::gpu::opt::select_wgmma::select_wgmma;
use crate::gpu::opt::thread_local_reductions::keep_thread_local;
use crate::ir;
use crate::ir::Func;
use crate::ir::guard::{Guard, WithNames};
use crate::transform::check_overflow::check_overflow;
use crate::transform::contract_floats::contract_floats;
use crate::transform::defer_scale::defer_scale;
use crate::transform::legalize_index::{BoundsPolicy, legalize_index};
use crate::transform::read_unrotated::read_unrotated;
use crate::transform::rotate_rows::rotate_rows;
use crate::transform::single_iteration::single_iteration;
use crate::transform::split_full_tiles::split_full_tiles;
use crate::transform::strength_reduce::strength_reduce;
use crate::transform::transpose_operands::transpose_operands;
use crate::transform::unit_stride::{assume_unit_strides, unit_strides};
use crate::transform::view_strides::assume_contiguous;

/// How tight bounds are, and for passes after layout the number of warps and what is known of addresses.
const OPTIONS: [&str; 3] = ["bounds", "warps", "alignment"];

/// What the first line of a file asks for: `; test pass option=value ..`.
struct Request<'t> {
    pass: &'t str,
    options: BTreeMap<&'t str, &'t str>,
}

impl Request<'_> {
    /// One of several values of an option; the first one where it is not there.
    fn one_of<T: Copy>(&self, option: &str, values: &[(&str, T)]) -> T {
        let Some(given) = self.options.get(option) else { return values[0].1 };
        let found = values.iter().find(|(value, _)| value == given);
        found.unwrap_or_else(|| panic!("{option}={given}")).1
    }

    fn bounds(&self) -> BoundsPolicy {
        let guarded = ("guarded", BoundsPolicy::Guarded);
        self.one_of(
            "bounds",
            &[guarded, ("masked", BoundsPolicy::Masked), ("unchecked", BoundsPolicy::Unchecked)],
        )
    }

    fn warps(&self) -> u32 {
        self.options.get("warps").map_or(4, |warps| warps.parse().expect("a number of warps"))
    }

    /// The function with layouts.
    fn distributed(&self, func: &Func) -> Distributed {
        let alignment =
            self.one_of("alignment", &[("checked", Alignment::Checked), ("element", Alignment::Element)]);
        let threads =
            ThreadConfig { num_warps: Some(self.warps()), num_ctas: 1, num_stages: None, alignment };
        distribute(func, threads, &AxisInfoMap::analyze(func, &LaunchAssumptions::of(func)))
    }
}

/// A valid function as text, which parses as itself.
fn text(func: &Func) -> String {
    ir::verify(func).expect("valid tile IR");
    let text = ir::print(func, &|_| None);
    let again = ir::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(ir::print(&again, &|_| None), text);
    text
}

/// The function that a pass made of another one.
fn changed(before: &Func, after: &Func) -> String {
    let after = text(after);
    if text(before) == after { "unchanged\n".into() } else { after }
}

/// With the guards that it relies on.
fn guarded(before: &Func, after: &Func, guards: &[Guard]) -> String {
    let names: Vec<String> = before.params.iter().map(|param| param.name.clone()).collect();
    let lines: String = guards.iter().map(|guard| format!("{}\n", WithNames(guard, &names))).collect();
    changed(before, after) + &lines
}

/// What a pass that rewrites a function makes of it.
fn rewritten(func: &Func, pass: impl FnOnce(&mut Func) -> Vec<Guard>) -> String {
    let mut after = func.clone();
    let guards = pass(&mut after);
    guarded(func, &after, &guards)
}

/// What a pass makes of a function with layouts.
fn optimized(func: &Func, request: &Request, pass: fn(&mut Distributed)) -> String {
    let mut distributed = request.distributed(func);
    let before = distributed.func.clone();
    pass(&mut distributed);
    changed(&before, &distributed.func)
}

fn layouts(func: &Func, request: &Request) -> String {
    let distributed = request.distributed(func);
    text(&distributed.func);
    ir::print(&distributed.func, &|op| Some(distributed.layouts.get(op.results.first()?)?.to_string()))
}

/// A pass that takes a function and a request, and gives the output.
type Pass = fn(&Func, &Request) -> String;

fn no_guards(pass: fn(&mut Func)) -> impl FnOnce(&mut Func) -> Vec<Guard> {
    move |func| {
        pass(func);
        vec![]
    }
}

/// Every pass with file tests.
const PASSES: [(&str, Pass); 27] = [
    ("parse", |func, _| text(func)),
    ("cse_and_dce", |func, _| rewritten(func, no_guards(ir::cse_and_dce))),
    ("strip_debug", |func, _| rewritten(func, no_guards(ir::strip_debug))),
    // transform
    ("unpipeline_rereads", |func, _| rewritten(func, no_guards(unpipeline_rereads))),
    ("view_strides", |func, _| rewritten(func, assume_contiguous)),
    ("check_overflow", |func, _| rewritten(func, no_guards(check_overflow))),
    ("contract_floats", |func, _| rewritten(func, no_guards(contract_floats))),
    ("defer_scale", |func, _| rewritten(func, defer_scale)),
    ("legalize_index", |func, request| rewritten(func, |func| legalize_index(func, request.bounds()))),
    ("read_unrotated", |func, _| {
        rewritten(func, no_guards(|func| read_unrotated(func, &LaunchAssumptions::of(func))))
    }),
    ("rotate_rows", |func, _| {
        rewritten(func, no_guards(|func| rotate_rows(func, &LaunchAssumptions::of(func))))
    }),
    ("single_iteration", |func, _| match single_iteration(func) {
        Some((after, guards)) => guarded(func, &after, &guards),
        None => "unchanged\n".into(),
    }),
    ("split_full_tiles", |func, _| rewritten(func, no_guards(split_full_tiles))),
    ("strength_reduce", |func, _| rewritten(func, no_guards(strength_reduce))),
    ("transpose_operands", |func, _| {
        let others = transpose_operands(func);
        if others.is_empty() { "unchanged\n".into() } else { others.iter().map(text).collect() }
    }),
    ("unit_stride", |func, request| {
        let sets = unit_strides(func, request.bounds());
        let with_one = |set: &Vec<ir::Value>| rewritten(func, |func| assume_unit_strides(func, set));
        if sets.is_empty() { "unchanged\n".into() } else { sets.iter().map(with_one).collect() }
    }),
    // gpu
    ("layout", layouts),
    ("batch_reductions", |func, request| optimized(func, request, batch_reductions)),
    ("delay_fp8_upcast", |func, _| {
        rewritten(func, no_guards(|func| delay_fp8_upcast(func, &LaunchAssumptions::of(func))))
    }),
    ("elide_selects", |func, request| optimized(func, request, elide_selects)),
    ("hoist_loads", |func, request| optimized(func, request, hoist_loads)),
    ("hoist_operand_conversion", |func, request| optimized(func, request, hoist_operand_conversions)),
    ("remat_narrow", |func, request| optimized(func, request, remat_narrow)),
    ("remat_ranges", |func, request| optimized(func, request, remat_ranges)),
    ("select_tma_store", |func, request| rewritten(func, |func| select_wgmma(func, request.warps(), true))),
    ("select_wgmma", |func, request| rewritten(func, |func| select_wgmma(func, request.warps(), false))),
    ("thread_local_reductions", |func, request| optimized(func, request, keep_thread_local)),
];

/// A file in two: what is given, and the comment below it, which is the output.
fn parts(file: &str) -> (String, String) {
    let lines: Vec<&str> = file.lines().collect();
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with(';');
    let end = lines.iter().rposition(is_code).map_or(0, |last| last + 1);
    let join = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    (join(&lines[..end]), join(&lines[end..]))
}

/// What a file asks for.
fn request(file: &str) -> Request<'_> {
    let first = file.lines().next().and_then(|line| line.strip_prefix("; test "));
    let mut words = first.expect("`; test <pass>` in the first line").split(' ');
    let pass = words.next().expect("the pass");
    let options: BTreeMap<&str, &str> =
        words.map(|word| word.split_once('=').expect("`option=value`")).collect();
    let unknown = options.keys().find(|option| !OPTIONS.contains(option));
    assert!(unknown.is_none(), "there is no option {unknown:?}, there are {OPTIONS:?}");
    Request { pass, options }
}

/// The output that a file should have.
fn output(given: &str) -> String {
    let request = request(given);
    let (_, pass) = PASSES.iter().find(|(name, _)| *name == request.pass).expect("a pass with file tests");
    let output = match ir::parse(given) {
        Ok(func) => pass(&func, &request),
        Err(error) if request.pass == "parse" => format!("{error}\n"),
        Err(error) => panic!("{error}"),
    };
    let lines = output.lines().map(|line| format!("; {line}\n"));
    format!("\n{}", lines.collect::<String>())
}

/// The lines that differ, with two before them.
fn difference(wanted: &str, found: &str) -> String {
    let (wanted, found): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), found.lines().collect());
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let before = same(&mut wanted.iter().zip(&found));
    let rest = wanted.len().min(found.len()) - before;
    let after = same(&mut wanted.iter().rev().zip(found.iter().rev()).take(rest));
    let lines =
        |sign: &str, lines: &[&str]| lines.iter().map(|line| format!("{sign} {line}\n")).collect::<String>();
    lines(" ", &wanted[before.saturating_sub(2)..before])
        + &lines("-", &wanted[before..wanted.len() - after])
        + &lines("+", &found[before..found.len() - after])
}

/// The file tests of a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    paths
}

#[test]
fn passes_do_what_their_files_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = vec![];
    let mut passes: Vec<&str> = PASSES.iter().map(|(pass, _)| *pass).collect();
    passes.sort_unstable();
    let folders: Vec<String> =
        files(&root).iter().map(|path| path.file_name().expect("a name").display().to_string()).collect();
    assert_eq!(folders, passes, "each pass has a folder");
    for pass in passes {
        let files = files(&root.join(pass));
        assert!(files.len() > 1, "{pass}: a case that it changes, and one that it leaves alone");
        for path in files {
            let file = fs::read_to_string(&path).expect("a text file");
            let (given, wanted) = parts(&file);
            let name = path.strip_prefix(&root).expect("a file below the root").display();
            let found = std::panic::catch_unwind(|| {
                assert_eq!(request(&given).pass, pass, "the folder is that of the pass");
                output(&given)
            });
            match found {
                Err(_) => wrong.push(format!("{name}: it panicked, as printed above")),
                Ok(found) if found != wanted && update => {
                    fs::write(&path, given + &found).expect("the file is rewritten");
                }
                Ok(found) if found != wanted => {
                    wrong.push(format!("{name}:\n{}", difference(&wanted, &found)));
                }
                Ok(_) => {}
            }
        }
    }
    let why = "UPDATE_EXPECT=1 writes what was found; read the difference";
    assert!(wrong.is_empty(), "{}\n{why}", wrong.join("\n"));
}
