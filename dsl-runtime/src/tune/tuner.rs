//! [`Tuner`]: finds the choice for a call, in memory, in what ships with the crate, on disk, or by measuring.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, TryLockError};

use etcetera::BaseStrategy;

use super::open::Open;
use super::record::{self, Candidate, Folder, Place, Record, Shipped};
use super::search::{Finding, Limits, Outcome, Trials, search};
use super::{Decision, Source};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};
use crate::stream::On;

/// What a call asks.
#[derive(Clone, Copy)]
pub(crate) struct Question<'q> {
    pub(crate) kernel: &'static Kernel,
    pub(crate) open: &'q Open,
    pub(crate) on: On<'q>,
}

/// Whether a call can be measured.
pub(crate) enum Ready {
    Yes,
    /// Why not.
    No(String),
}

/// A call that can be measured, once it is ready.
pub(crate) trait Call: Trials {
    /// Keeps what the outputs hold.
    fn prepare(&mut self) -> Result<Ready>;

    /// Puts back what the outputs held.
    fn restore(&mut self) -> Result<()>;
}

/// What `FUSE_TUNE` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Off,
    On,
    Force,
}

impl Mode {
    pub(super) fn parse(setting: Option<&str>) -> Result<Mode> {
        match setting {
            None | Some("" | "on") => Ok(Mode::On),
            Some("off") => Ok(Mode::Off),
            Some("force") => Ok(Mode::Force),
            Some(other) => Err(Error::Setting {
                name: "FUSE_TUNE",
                value: other.to_string(),
                expected: "`off`, `on` or `force`",
            }),
        }
    }
}

/// The choices of a process.
pub(crate) struct Tuner {
    mode: Mode,
    folder: Option<Folder>,
    limits: Limits,
    /// By everything that a choice depends on, as numbers.
    choices: RwLock<HashMap<Box<[i128]>, Known>>,
    searching: Mutex<()>,
}

struct Known {
    variant: &'static Variant,
    source: Source,
    record: Record,
}

/// The one of this process, as the environment says.
pub(crate) fn tuner() -> Result<&'static Tuner> {
    static TUNER: OnceLock<Result<Tuner>> = OnceLock::new();
    let tuner = TUNER.get_or_init(|| {
        let mode = Mode::parse(std::env::var("FUSE_TUNE").ok().as_deref())?;
        let folder = match std::env::var_os("FUSE_TUNE_DIR") {
            Some(folder) if folder.is_empty() => None,
            Some(folder) => Some(PathBuf::from(folder)),
            None => etcetera::choose_base_strategy().ok().map(|user| user.cache_dir().join("fuse/tune")),
        };
        Ok(Tuner::new(mode, folder, Limits::default()))
    });
    tuner.as_ref().map_err(Error::clone)
}

impl Tuner {
    pub(super) fn new(mode: Mode, folder: Option<PathBuf>, limits: Limits) -> Tuner {
        let folder = folder.map(Folder);
        Tuner { mode, folder, limits, choices: RwLock::default(), searching: Mutex::default() }
    }

    /// The variant to run.
    pub(crate) fn choose(&self, question: Question<'_>, call: &mut dyn Call) -> Result<&'static Variant> {
        if let [only] = question.open.candidates[..] {
            return Ok(only);
        }
        let slot = question.slot();
        if let Some(variant) = self.known(&slot) {
            return Ok(variant);
        }
        // A thread that waited could be one that the search itself needs: rayon runs other work while it waits.
        let _searching = match self.searching.try_lock() {
            Ok(searching) => searching,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.foresee(question),
        };
        if let Some(variant) = self.known(&slot) {
            return Ok(variant);
        }
        let asked = question.record()?;
        if let Some((record, source)) = self.found(question.kernel, &asked) {
            return Ok(self.keep(slot, question, record, source));
        }
        let first = asked.choosing(&asked.candidates[0].label);
        if self.mode == Mode::Off {
            return Ok(self.keep(slot, question, first, Source::First));
        }
        if let Ready::No(reason) = call.prepare()? {
            warn(&format!("{} takes {} unmeasured: {reason}", first.kernel, first.chosen));
            return Ok(question.open.candidates[0]);
        }
        let outcome = self.search(&asked, call)?;
        let complete = !outcome.findings.contains(&Finding::NotTried);
        let record = answer(asked, &outcome);
        if complete
            && let Some(folder) = &self.folder
            && let Err(reason) = folder.put(&record)
        {
            warn(&format!("the choice for {} is not kept: {reason}", record.kernel));
        }
        Ok(self.keep(slot, question, record, Source::Measured))
    }

    /// What is known without measuring; does not touch the arguments.
    pub(crate) fn foresee(&self, question: Question<'_>) -> Result<&'static Variant> {
        let known = self.known(&question.slot());
        if let Some(variant) = known {
            return Ok(variant);
        }
        let found = self.found(question.kernel, &question.record()?);
        let variant = found.and_then(|(record, _)| question.labelled(&record.chosen));
        Ok(variant.unwrap_or(question.open.candidates[0]))
    }

    fn known(&self, slot: &[i128]) -> Option<&'static Variant> {
        self.choices.read().unwrap_or_else(PoisonError::into_inner).get(slot).map(|known| known.variant)
    }

    /// What ships with the crate, or else is on disk.
    fn found(&self, kernel: &'static Kernel, asked: &Record) -> Option<(Record, Source)> {
        if self.mode == Mode::Force {
            return None;
        }
        match Shipped::parse(kernel.tuned) {
            Ok(shipped) => {
                if let Some(record) = shipped.find(asked) {
                    let record = asked.choosing(&record.chosen);
                    return Some((record, Source::Shipped));
                }
            }
            Err(reason) => {
                warn(&format!("the choices that ship with {} are ignored: {reason}", asked.kernel))
            }
        }
        match self.folder.as_ref()?.get(asked) {
            Ok(record) => record.map(|record| (record, Source::Disk)),
            Err(reason) => {
                warn(&format!("a choice on disk is ignored: {reason}"));
                None
            }
        }
    }

    fn search(&self, asked: &Record, call: &mut dyn Call) -> Result<Outcome> {
        let labels: Vec<&str> = asked.candidates.iter().map(|one| one.label.as_str()).collect();
        let shows = std::io::stderr().is_terminal();
        let mut progress = |tried: usize, best: Option<(usize, f64)>| {
            let best = best.map(|(at, ms)| format!(", best {} in {:.1} us", labels[at], ms * 1e3));
            show(&format!(
                "fuse: tuning {} {:?}: {tried} of {}{}",
                asked.kernel,
                asked.key,
                labels.len(),
                best.unwrap_or_default()
            ));
        };
        let mut silent = |_: usize, _: Option<(usize, f64)>| {};
        let trials: &mut dyn Trials = call;
        let found = if shows {
            search(trials, labels.len(), self.limits, &mut progress)
        } else {
            search(trials, labels.len(), self.limits, &mut silent)
        };
        if shows {
            show("");
        }
        call.restore()?;
        let outcome = found?;
        for (label, finding) in labels.iter().zip(&outcome.findings) {
            if let Finding::Differs(how) = finding {
                warn(&format!(
                    "{} gives another result as [{label}] than as the configs before it, and is not taken: {how}",
                    asked.kernel
                ));
            }
        }
        Ok(outcome)
    }

    fn keep(
        &self,
        slot: Box<[i128]>,
        question: Question<'_>,
        record: Record,
        source: Source,
    ) -> &'static Variant {
        let variant = question.labelled(&record.chosen).unwrap_or(question.open.candidates[0]);
        let known = Known { variant, source, record };
        self.choices.write().unwrap_or_else(PoisonError::into_inner).insert(slot, known);
        variant
    }

    pub(super) fn decisions(&self) -> Vec<Decision> {
        let choices = self.choices.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<Decision> = choices.values().map(Known::decision).collect();
        list.sort_by(|one, other| {
            (&one.kernel, &one.key, &one.chosen).cmp(&(&other.kernel, &other.key, &other.chosen))
        });
        list
    }

    pub(super) fn forget(&self) {
        self.choices.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn clear(&self) -> Result<usize> {
        self.forget();
        self.folder.as_ref().map_or(Ok(0), Folder::clear)
    }

    pub(super) fn export(&self, path: &Path) -> Result<usize> {
        let choices = self.choices.read().unwrap_or_else(PoisonError::into_inner);
        let measured =
            choices.values().filter(|known| matches!(known.source, Source::Measured | Source::Disk));
        let records: Vec<Record> = measured.map(|known| known.record.clone()).collect();
        record::export(path, &records)?;
        Ok(records.len())
    }
}

impl Known {
    fn decision(&self) -> Decision {
        let Record { kernel, key, place, chosen, candidates, .. } = self.record.clone();
        let time = |one: Candidate| {
            let note = one.note.unwrap_or_else(|| "not measured".to_string());
            (one.label, one.ms.ok_or(note))
        };
        let candidates = candidates.into_iter().map(time).collect();
        Decision { kernel, device: place.device, key, chosen, source: self.source, candidates }
    }
}

impl Question<'_> {
    /// Everything that the choice depends on within a process.
    fn slot(&self) -> Box<[i128]> {
        let device = match self.on {
            On::Cpu => 0,
            On::Cuda(device, _) => ptr::from_ref(device).addr(),
        };
        let candidates = &self.open.candidates;
        let start = [ptr::from_ref(self.kernel).addr(), device, candidates.len()];
        let addresses = candidates.iter().map(|variant| ptr::from_ref(*variant).addr());
        start
            .into_iter()
            .chain(addresses)
            .map(|word| word as i128)
            .chain(self.open.key.iter().copied())
            .collect()
    }

    pub(super) fn record(&self) -> Result<Record> {
        let place = match self.on {
            On::Cpu => Place { device: Device::cpu().name(), capability: None, driver: None },
            On::Cuda(device, _) => Place {
                device: device.name.clone(),
                capability: Some(device.capability),
                driver: Some(crate::cuda::driver_version()?),
            },
        };
        let candidates = self.open.candidates.iter().map(|variant| Candidate::new(variant)).collect();
        Ok(Record::new(self.kernel, &self.open.key, place, candidates))
    }

    fn labelled(&self, label: &str) -> Option<&'static Variant> {
        self.open.candidates.iter().copied().find(|variant| variant.label == label)
    }
}

/// The question's record, answered.
fn answer(mut asked: Record, outcome: &Outcome) -> Record {
    for (one, finding) in asked.candidates.iter_mut().zip(&outcome.findings) {
        match finding {
            Finding::Took(ms) => one.ms = Some(*ms),
            Finding::Refused(reason) => one.note = Some(reason.clone()),
            Finding::Differs(how) => one.note = Some(format!("it gives another result: {how}")),
            Finding::NotTried => one.note = Some("there was no time left to measure it".to_string()),
        }
    }
    asked.chosen = asked.candidates[outcome.best].label.clone();
    asked
}

fn warn(text: &str) {
    eprintln!("fuse: warning: {text}");
}

/// Replaces the line of progress.
fn show(line: &str) {
    // Nothing can be done about a program that has no standard error.
    let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
}
