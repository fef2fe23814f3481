//! File tests of the passes of the GPU schedule, of two kinds. `source=schedule`: a schedule as earlier passes make it, of which a test
//! has no more than the pass looks at. `source=tile` and `source=kernel`: a kernel before it is laid out, which the passes of the
//! schedule take one after the other. The output is what the pass makes of its input, which stands above it where it is not the file's.
//!
//! A pass lists in its file where it is legal. A file `law_<number>_<what breaks it>.ir` for each of these laws has a function that the
//! pass leaves alone.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir::Func;
use tile_ir::ir::pass::{PassObserver, PassRunner, RanPass};
use tile_ir::testing::file_test::{PassTest, Request, changed, text};

use super::distributed;
use lowering::driver::pipeline::refusal::Refusal;
use lowering::driver::pipeline::{KernelRequests, Pass, Run, ScheduleRequest, schedule_passes, scheduled};
use lowering::gpu::emit::SmemOverflow;
use lowering::gpu::layout::Distributed;
use lowering::gpu::opt::select_wgmma::select_wgmma;
use lowering::gpu::schedule::Schedule;
use lowering::gpu::schedule::verify::verify_schedule;

/// What a file has.
#[derive(Clone, Copy)]
enum Source {
    Schedule,
    Kernel,
}

/// The tests of the schedule's passes.
pub fn tests() -> impl Iterator<Item = PassTest> {
    schedule_passes().map(|pass| -> PassTest { (pass.name, pass_output) })
}

/// What the pass of a file makes of its function.
fn pass_output(func: &Func, request: &Request) -> String {
    let sources = [("schedule", Source::Schedule), ("tile", Source::Kernel), ("kernel", Source::Kernel)];
    match request.one_of("source", &sources) {
        Source::Schedule => of_schedule(func, request),
        Source::Kernel => of_kernel(func, request),
    }
}

fn pass(name: &str) -> fn(&mut Schedule) {
    let pass: &Pass = schedule_passes().find(|pass| pass.name == name).expect("a pass of the schedule");
    let Run::Schedule(run) = pass.run else { panic!("{name} is no pass of the schedule") };
    run
}

/// The pass alone. Tiles have no layouts: those of a schedule follow from the dots and accesses of the kernel that it is of.
fn of_schedule(func: &Func, request: &Request) -> String {
    let axes = AxisInfoMap::analyze(func, &LaunchAssumptions::of(func));
    let distributed = Distributed {
        func: func.clone(),
        layouts: HashMap::new(),
        num_warps: request.warps(),
        num_ctas: 1,
        num_stages: request.number("stages"),
        sector_loads: HashSet::new(),
        smem_only: HashMap::new(),
        invariant_operands: HashMap::new(),
    };
    let mut schedule = Schedule::new(distributed, axes);
    pass(request.pass())(&mut schedule);
    let after = &schedule.distributed.func;
    verify_schedule(after, request.warps()).expect("a schedule that obeys the laws");
    changed(func, after)
}

/// The function behind each pass.
#[derive(Default)]
struct PassOutputs(RefCell<Vec<(&'static str, Func)>>);

impl PassObserver for PassOutputs {
    fn ran(&self, pass: RanPass) {
        self.0.borrow_mut().push((pass.name, pass.func.clone()));
    }
}

/// The pass behind all those before it.
fn of_kernel(func: &Func, request: &Request) -> String {
    let mut selected = func.clone();
    select_wgmma(&mut selected, request.warps(), true);
    let outputs = PassOutputs::default();
    let requests = KernelRequests {
        programs: Some(1),
        runner: PassRunner::observed_by(&outputs),
        ..KernelRequests::default()
    };
    let assumptions = &LaunchAssumptions::of(&selected);
    let asked = ScheduleRequest { assumptions, guards: &[], requests };
    let plan = match scheduled(distributed(&selected, request), &asked) {
        Ok(plan) => plan,
        Err(Refusal::SharedMemory(SmemOverflow(requests))) => {
            let bytes: Vec<String> = requests.iter().map(|request| request.bytes.to_string()).collect();
            return format!("unchanged: there is no plan for {} bytes of shared memory\n", bytes.join(", "));
        }
        Err(refusal) => panic!("{refusal}"),
    };
    let outputs = outputs.0.into_inner();
    let own = outputs.iter().position(|(name, _)| *name == request.pass()).expect("the pass ran");
    let before = own.checked_sub(1).map_or(&plan.laid_out, |earlier| &outputs[earlier].1);
    let after = changed(before, &outputs[own].1);
    let input = text(before);
    if input == text(func) { after } else { format!("before:\n{input}after:\n{after}") }
}

/// The numbers of the laws in the documentation of a pass: the list behind `Legal where`.
fn laws(path: &Path) -> Vec<usize> {
    let file = fs::read_to_string(path).expect("the file of a pass");
    let documentation = file.lines().map_while(|line| line.strip_prefix("//!"));
    let list = documentation.skip_while(|line| !line.contains("Legal where")).skip(1);
    let list = list.take_while(|line| !line.trim().is_empty());
    list.filter_map(|line| line.trim().split_once(". ")?.0.parse().ok()).collect()
}

fn pass_file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gpu/schedule");
    let file = folder.join(format!("{name}.rs"));
    if file.exists() { file } else { folder.join(name).join("mod.rs") }
}

/// Checks that each law of a pass has a function that breaks it.
pub fn check_laws(root: &Path, pass: &str) {
    let laws = laws(&pass_file(pass));
    assert!(!laws.is_empty(), "{pass}: it lists where it is legal");
    assert!(laws.iter().copied().eq(1..=laws.len()), "{pass}: laws {laws:?}");
    let mut broken = BTreeSet::new();
    for entry in fs::read_dir(root.join(pass)).expect("a folder of tests") {
        let path = entry.expect("a file").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let Some((number, _)) = name.strip_prefix("law_").and_then(|rest| rest.split_once('_')) else {
            continue;
        };
        let file = fs::read_to_string(&path).expect("a text file");
        let output = file.trim_end().rsplit('\n').next().unwrap_or_default();
        assert!(output.starts_with("; unchanged"), "{}: a law is broken", path.display());
        broken.insert(number.parse().expect("the number of a law"));
    }
    let broken: Vec<usize> = broken.into_iter().collect();
    assert_eq!(broken, laws, "{pass}: laws that are broken, and all of them");
}
