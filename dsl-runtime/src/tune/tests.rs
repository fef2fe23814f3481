//! The tuner with calls whose times and outputs are scripted.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::record::Folder;
use super::search::{Limits, Trials};
use super::tuner::{Ready, TunableCall, TuneMode, TuneRequest, Tuner};
use super::{Output, Source, TuningSpace};
use crate::device::On;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};

const fn variant(label: &'static str, source: u64) -> Variant {
    Variant { label, types: &[], consts: &[], dtypes: &[], source, modules: &[], hosts: &[], sites: &[] }
}

const fn kernel(tuned: &'static str, variants: &'static [Variant]) -> Kernel {
    let (name, module, consts, params): (_, _, &[&str], _) = ("add", "m", &["B"], &[]);
    Kernel { name, module, file: "", line: 0, params, consts, tuned, variants }
}

static ADD: Kernel = kernel("", &[variant("B = 1", 1), variant("B = 2", 2), variant("B = 4", 4)]);
/// The same after an edit of the kernel.
static EDITED: Kernel = kernel("", &[variant("B = 1", 1), variant("B = 2", 3), variant("B = 4", 4)]);

/// A call of which the candidate at `fastest` is the fastest.
struct ScriptedTrials {
    fastest: usize,
    ready: bool,
    runs: usize,
    restored: usize,
}

impl ScriptedTrials {
    fn fastest(fastest: usize) -> ScriptedTrials {
        ScriptedTrials { fastest, ready: true, runs: 0, restored: 0 }
    }
}

impl Trials for ScriptedTrials {
    fn run(&mut self, _: usize) -> Result<Vec<Output>> {
        self.runs += 1;
        Ok(vec![Output { dtype: DType::F32, bytes: vec![0; 4] }])
    }

    fn time(&mut self, candidate: usize, times: usize) -> Result<Vec<f64>> {
        Ok(vec![if candidate == self.fastest { 1.0 } else { 1.5 }; times])
    }
}

impl TunableCall for ScriptedTrials {
    fn prepare(&mut self) -> Result<Ready> {
        Ok(if self.ready { Ready::Yes } else { Ready::No("it is not".to_string()) })
    }

    fn restore(&mut self) -> Result<()> {
        self.restored += 1;
        Ok(())
    }
}

fn space(kernel: &'static Kernel, key: i128) -> TuningSpace {
    TuningSpace { candidates: kernel.variants.iter().collect(), key: vec![key] }
}

/// The label that is chosen.
fn choose(tuner: &Tuner, kernel: &'static Kernel, key: i128, call: &mut ScriptedTrials) -> &'static str {
    let space = space(kernel, key);
    tuner.choose(TuneRequest { kernel, space: &space, on: On::Cpu }, call).unwrap().label
}

/// A folder of its own for each test, taken away in the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Temporary {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fuse-tune-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Temporary(path)
    }

    fn tuner(&self, mode: TuneMode) -> Tuner {
        Tuner::new(mode, Some(self.0.clone()), Limits::default())
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sources(tuner: &Tuner) -> Vec<Source> {
    tuner.decisions().iter().map(|decision| decision.source).collect()
}

#[test]
fn each_key_is_measured_once() {
    let folder = Temporary::new();
    let tuner = folder.tuner(TuneMode::On);
    let mut call = ScriptedTrials::fastest(2);
    assert_eq!(choose(&tuner, &ADD, 10, &mut call), "B = 4");
    assert_eq!((call.runs, call.restored), (3, 1), "the outputs are put back before the launch proper");
    assert_eq!(choose(&tuner, &ADD, 10, &mut call), "B = 4");
    assert_eq!(call.runs, 3);
    assert_eq!(choose(&tuner, &ADD, 11, &mut ScriptedTrials::fastest(1)), "B = 2");
    let chosen: Vec<_> = tuner.decisions().into_iter().map(|one| (one.key, one.chosen)).collect();
    assert_eq!(chosen, [(vec![10], "B = 4".to_string()), (vec![11], "B = 2".to_string())]);
    let times: Vec<_> = tuner.decisions()[0].candidates.iter().map(|(_, time)| time.clone()).collect();
    assert_eq!(times, [Ok(1.5), Ok(1.5), Ok(1.0)]);
}

#[test]
fn the_candidates_of_a_call_are_part_of_the_request() {
    let folder = Temporary::new();
    let tuner = folder.tuner(TuneMode::On);
    assert_eq!(choose(&tuner, &ADD, 10, &mut ScriptedTrials::fastest(2)), "B = 4");
    let two = TuningSpace { candidates: ADD.variants[..2].iter().collect(), key: vec![10] };
    let request = TuneRequest { kernel: &ADD, space: &two, on: On::Cpu };
    assert_eq!(tuner.choose(request, &mut ScriptedTrials::fastest(1)).unwrap().label, "B = 2");
    assert_eq!(folder.files().len(), 2);
}

#[test]
fn another_process_finds_the_choice_on_disk() {
    let folder = Temporary::new();
    choose(&folder.tuner(TuneMode::On), &ADD, i128::from(u64::MAX), &mut ScriptedTrials::fastest(2));
    let (tuner, mut call) = (folder.tuner(TuneMode::On), ScriptedTrials::fastest(0));
    assert_eq!(choose(&tuner, &ADD, i128::from(u64::MAX), &mut call), "B = 4");
    assert_eq!((call.runs, sources(&tuner)), (0, vec![Source::Disk]));
    // Other code, another key: measured.
    assert_eq!(choose(&tuner, &EDITED, i128::from(u64::MAX), &mut ScriptedTrials::fastest(1)), "B = 2");
    assert_eq!(choose(&tuner, &ADD, i128::from(i64::MIN), &mut ScriptedTrials::fastest(1)), "B = 2");
    assert_eq!(folder.files().len(), 3);
    assert_eq!(tuner.clear(), Ok(3));
    assert_eq!(choose(&tuner, &ADD, i128::from(u64::MAX), &mut call), "B = 1");
}

#[test]
fn a_file_that_cannot_be_read_is_measured_anew_and_replaced() {
    let folder = Temporary::new();
    choose(&folder.tuner(TuneMode::On), &ADD, 10, &mut ScriptedTrials::fastest(2));
    let path = folder.files().remove(0);
    let whole = fs::read_to_string(&path).unwrap();
    for damaged in
        ["", "{}", "[1, 2", &whole[..whole.len() / 2], &whole.replace("B = 4\"", "B = 9\""), "\u{0}\u{1}"]
    {
        fs::write(&path, damaged).unwrap();
        let mut call = ScriptedTrials::fastest(1);
        assert_eq!(choose(&folder.tuner(TuneMode::On), &ADD, 10, &mut call), "B = 2", "{damaged}");
        assert_eq!(
            choose(&folder.tuner(TuneMode::Off), &ADD, 10, &mut ScriptedTrials::fastest(0)),
            "B = 2",
            "{damaged}"
        );
    }
}

/// A user may name a folder that has other files.
#[test]
fn clearing_removes_choices_alone() {
    let folder = Temporary::new();
    let tuner = folder.tuner(TuneMode::On);
    for key in [10, 11, 12] {
        choose(&tuner, &ADD, key, &mut ScriptedTrials::fastest(2));
    }
    let mut choices = folder.files();
    choices.sort();
    // A full disk cut two of them off.
    let whole = fs::read_to_string(&choices[0]).unwrap();
    fs::write(&choices[0], &whole[..20]).unwrap();
    fs::write(&choices[1], "").unwrap();
    let others = [
        ("package.json", "{}"),
        ("choices.json", whole.as_str()),
        ("main.0123456789abcdef.json", "{\n  \"name\": \"main\"\n}"),
        ("notes.txt", ""),
    ];
    for (name, text) in others {
        fs::write(folder.0.join(name), text).unwrap();
    }
    assert_eq!(tuner.clear(), Ok(3));
    let mut left: Vec<_> = folder.files().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    left.sort();
    assert_eq!(left, ["choices.json", "main.0123456789abcdef.json", "notes.txt", "package.json"]);
}

/// Says to a copy of this test that its disk is full.
const FULL_DISK: &str = "FUSE_TEST_FULL_DISK";

#[test]
fn a_full_disk_leaves_nothing_partial() {
    let candidates: &'static [Variant] = (1..41).map(|i| variant("B = 1", i)).collect::<Vec<_>>().leak();
    if let Some(path) = std::env::var_os(FULL_DISK) {
        let tuner = Tuner::new(TuneMode::On, Some(path.into()), Limits::default());
        choose(&tuner, Box::leak(Box::new(kernel("", candidates))), 10, &mut ScriptedTrials::fastest(2));
        return;
    }
    let folder = Temporary::new();
    fs::create_dir_all(&folder.0).unwrap();
    let mut command = std::process::Command::new("sh");
    // The disk takes no more than 512 or 1024 bytes of a file.
    command.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).env(FULL_DISK, &folder.0);
    let name = "tune::tests::a_full_disk_leaves_nothing_partial";
    let output = command.args(["--exact", name, "--nocapture"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("File too large"), "{said}");
    assert_eq!(folder.files(), Vec::<PathBuf>::new());
}

#[test]
fn partial_files_of_ended_processes_are_swept() {
    let folder = Temporary::new();
    fs::create_dir_all(&folder.0).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    for name in [".1.0.partial", ".1.1.partial", ".mine.partial"] {
        fs::write(folder.0.join(name), "").unwrap();
    }
    for name in [".1.0.partial", ".mine.partial"] {
        fs::File::open(folder.0.join(name)).unwrap().set_modified(old).unwrap();
    }
    choose(&folder.tuner(TuneMode::On), &ADD, 10, &mut ScriptedTrials::fastest(2));
    let left = [".1.0.partial", ".1.1.partial", ".mine.partial"].map(|name| folder.0.join(name).exists());
    assert_eq!(left, [false, true, true]);
}

#[test]
fn a_folder_that_cannot_be_written_only_costs_the_memory() {
    let folder = Temporary::new();
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("file"), "").unwrap();
    let tuner = Tuner::new(TuneMode::On, Some(folder.0.join("file/below")), Limits::default());
    assert_eq!(choose(&tuner, &ADD, 10, &mut ScriptedTrials::fastest(2)), "B = 4");
    assert_eq!(choose(&tuner, &ADD, 10, &mut ScriptedTrials::fastest(0)), "B = 4");
}

#[test]
fn processes_that_write_at_once_leave_whole_files() {
    let folder = Temporary::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let folder = &folder;
            scope.spawn(move || {
                for round in 0..20 {
                    // Each with a memory of its own, as processes have.
                    let tuner = folder.tuner(TuneMode::Force);
                    choose(&tuner, &ADD, round % 3, &mut ScriptedTrials::fastest(thread % 3));
                }
            });
        }
        scope.spawn(|| {
            for round in 0..200 {
                let space = space(&ADD, round % 3);
                let wanted = TuneRequest { kernel: &ADD, space: &space, on: On::Cpu }.record().unwrap();
                assert!(Folder(folder.0.clone()).get(&wanted).is_ok());
            }
        });
    });
    let files = folder.files();
    assert_eq!(files.len(), 3, "{files:?}");
}

#[test]
fn the_setting_decides_whether_to_measure() {
    assert_eq!(TuneMode::parse(None), Ok(TuneMode::On));
    assert_eq!(
        TuneMode::parse(Some("never")).unwrap_err().to_string(),
        "FUSE_TUNE=`never`: expected `off`, `on` or `force`"
    );
    let folder = Temporary::new();
    let (tuner, mut call) = (folder.tuner(TuneMode::Off), ScriptedTrials::fastest(2));
    assert_eq!(choose(&tuner, &ADD, 10, &mut call), "B = 1");
    assert_eq!((call.runs, sources(&tuner), folder.files().len()), (0, vec![Source::First], 0));
    choose(&folder.tuner(TuneMode::On), &ADD, 10, &mut ScriptedTrials::fastest(2));
    assert_eq!(choose(&folder.tuner(TuneMode::Off), &ADD, 10, &mut call), "B = 4");
    assert_eq!(call.runs, 0);
    assert_eq!(choose(&folder.tuner(TuneMode::Force), &ADD, 10, &mut ScriptedTrials::fastest(1)), "B = 2");
    assert_eq!(choose(&folder.tuner(TuneMode::On), &ADD, 10, &mut call), "B = 2");
}

#[test]
fn a_call_that_cannot_be_measured_takes_the_first_and_is_asked_again() {
    let folder = Temporary::new();
    let tuner = folder.tuner(TuneMode::On);
    let mut captured = ScriptedTrials { ready: false, ..ScriptedTrials::fastest(2) };
    assert_eq!(choose(&tuner, &ADD, 10, &mut captured), "B = 1");
    assert_eq!((captured.runs, tuner.decisions().len(), folder.files().len()), (0, 0, 0));
    assert_eq!(choose(&tuner, &ADD, 10, &mut ScriptedTrials::fastest(2)), "B = 4");
    assert_eq!(choose(&tuner, &ADD, 10, &mut captured), "B = 4");
}

/// The kernel with a file of choices that ships with it.
fn shipping(text: String) -> &'static Kernel {
    Box::leak(Box::new(kernel(text.leak(), EDITED.variants)))
}

#[test]
fn an_exported_file_answers_without_measuring() {
    let folder = Temporary::new();
    let path = folder.0.join("choices/tuned.json");
    let tuner = folder.tuner(TuneMode::On);
    choose(&tuner, &ADD, 10, &mut ScriptedTrials::fastest(2));
    choose(&tuner, &ADD, 11, &mut ScriptedTrials::fastest(1));
    assert_eq!(tuner.export(&path), Ok(2));
    // Another process measures one of them otherwise, and adds its own.
    let other = folder.tuner(TuneMode::Force);
    choose(&other, &ADD, 11, &mut ScriptedTrials::fastest(0));
    choose(&other, &ADD, 12, &mut ScriptedTrials::fastest(1));
    assert_eq!(other.export(&path), Ok(2));
    let shipped = shipping(fs::read_to_string(&path).unwrap());
    let production = Tuner::new(TuneMode::On, None, Limits::default());
    let mut call = ScriptedTrials::fastest(2);
    let chosen = [10, 11, 12].map(|key| choose(&production, shipped, key, &mut call));
    assert_eq!((chosen, call.runs), (["B = 4", "B = 1", "B = 2"], 0));
    assert_eq!(sources(&production), [Source::Shipped; 3]);
    assert_eq!(choose(&production, shipped, 13, &mut call), "B = 4", "what is not there is measured");
    assert_eq!(
        choose(&Tuner::new(TuneMode::Force, None, Limits::default()), shipped, 11, &mut call),
        "B = 4"
    );
}

#[test]
fn a_shipped_file_that_says_nothing_useful_is_ignored() {
    let folder = Temporary::new();
    let path = folder.0.join("tuned.json");
    let tuner = folder.tuner(TuneMode::On);
    choose(&tuner, &ADD, 10, &mut ScriptedTrials::fastest(2));
    tuner.export(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let device = crate::Device::cpu().name();
    for other in [
        String::new(),
        "[]".to_string(),
        "not json".to_string(),
        text.replace("m::add", "m::sub"),
        text.replace(&device, "NVIDIA H200"),
        text.replace("\"chosen\": \"B = 4\"", "\"chosen\": \"B = 8\""),
        text.replace("\"format\": 1", "\"format\": 2"),
    ] {
        assert_ne!(other, text);
        let shipped = shipping(other);
        let production = Tuner::new(TuneMode::On, None, Limits::default());
        assert_eq!(
            choose(&production, shipped, 10, &mut ScriptedTrials::fastest(1)),
            "B = 2",
            "{}",
            shipped.tuned
        );
    }
    fs::write(&path, "something else").unwrap();
    assert!(matches!(tuner.export(&path), Err(Error::File { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "something else");
}
