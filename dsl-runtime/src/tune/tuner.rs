//! [`Tuner`]: finds the choice for a call, in memory, in what ships with the crate, on disk, or by measuring.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, TryLockError};

use etcetera::BaseStrategy;

use super::decision::{Decision, Source};
use super::record::{self, Candidate, Folder, Place, Shipped, TuningRecord};
use super::search::{Limits, SearchOutcome, TrialResult, Trials, search};
use super::space::TuningSpace;
use crate::device::{Device, On};
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Variant};
use crate::libcuda::driver_version;

/// A call whose variant is to be chosen.
#[derive(Clone, Copy)]
pub(crate) struct TuneRequest<'q> {
    pub(crate) kernel: &'static Kernel,
    pub(crate) space: &'q TuningSpace,
    pub(crate) on: On<'q>,
}

/// Whether a call can be measured.
pub(crate) enum Ready {
    Yes,
    /// Why not.
    No(String),
}

/// A call that can be measured, once it is ready.
pub(crate) trait TunableCall: Trials {
    /// Saves the outputs.
    fn prepare(&mut self) -> Result<Ready>;

    /// Restores the outputs.
    fn restore(&mut self) -> Result<()>;
}

/// What `FUSE_TUNE` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TuneMode {
    Off,
    On,
    Force,
}

impl TuneMode {
    pub(super) fn parse(setting: Option<&str>) -> Result<TuneMode> {
        match setting {
            None | Some("" | "on") => Ok(TuneMode::On),
            Some("off") => Ok(TuneMode::Off),
            Some("force") => Ok(TuneMode::Force),
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
    mode: TuneMode,
    folder: Option<Folder>,
    limits: Limits,
    /// By everything that a choice depends on, as numbers.
    choices: RwLock<HashMap<Box<[i128]>, CachedChoice>>,
    searching: Mutex<()>,
}

struct CachedChoice {
    variant: &'static Variant,
    source: Source,
    record: TuningRecord,
}

/// The one of this process, as the environment says.
pub(crate) fn tuner() -> Result<&'static Tuner> {
    static TUNER: OnceLock<Result<Tuner>> = OnceLock::new();
    let tuner = TUNER.get_or_init(|| {
        let mode = TuneMode::parse(std::env::var("FUSE_TUNE").ok().as_deref())?;
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
    pub(super) fn new(mode: TuneMode, folder: Option<PathBuf>, limits: Limits) -> Tuner {
        let folder = folder.map(Folder);
        Tuner { mode, folder, limits, choices: RwLock::default(), searching: Mutex::default() }
    }

    /// The variant to run.
    pub(crate) fn choose(
        &self,
        request: TuneRequest<'_>,
        call: &mut dyn TunableCall,
    ) -> Result<&'static Variant> {
        if let [only] = request.space.candidates[..] {
            return Ok(only);
        }
        let cache_key = request.cache_key();
        if let Some(variant) = self.cached(&cache_key) {
            return Ok(variant);
        }
        // A thread that waited could be one that the search itself needs: rayon runs other work while it waits.
        let _searching = match self.searching.try_lock() {
            Ok(searching) => searching,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.peek(request),
        };
        if let Some(variant) = self.cached(&cache_key) {
            return Ok(variant);
        }
        let key_record = request.record()?;
        if let Some((record, source)) = self.lookup(request.kernel, &key_record) {
            return Ok(self.store(cache_key, request, record, source));
        }
        let first = key_record.choosing(&key_record.candidates[0].label);
        if self.mode == TuneMode::Off {
            return Ok(self.store(cache_key, request, first, Source::First));
        }
        if let Ready::No(reason) = call.prepare()? {
            warn(&format!("{} takes {} unmeasured: {reason}", first.kernel, first.chosen));
            return Ok(request.space.candidates[0]);
        }
        let outcome = self.search(&key_record, call)?;
        let complete = !outcome.results.contains(&TrialResult::NotTried);
        let record = with_results(key_record, &outcome);
        if complete
            && let Some(folder) = &self.folder
            && let Err(reason) = folder.put(&record)
        {
            warn(&format!("the choice for {} is not kept: {reason}", record.kernel));
        }
        Ok(self.store(cache_key, request, record, Source::Measured))
    }

    /// The choice without measuring; does not access the arguments.
    pub(crate) fn peek(&self, request: TuneRequest<'_>) -> Result<&'static Variant> {
        let known = self.cached(&request.cache_key());
        if let Some(variant) = known {
            return Ok(variant);
        }
        let found = self.lookup(request.kernel, &request.record()?);
        let variant = found.and_then(|(record, _)| request.with_label(&record.chosen));
        Ok(variant.unwrap_or(request.space.candidates[0]))
    }

    fn cached(&self, cache_key: &[i128]) -> Option<&'static Variant> {
        self.choices
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(cache_key)
            .map(|cached| cached.variant)
    }

    /// What ships with the crate, or else is on disk.
    fn lookup(&self, kernel: &'static Kernel, key_record: &TuningRecord) -> Option<(TuningRecord, Source)> {
        if self.mode == TuneMode::Force {
            return None;
        }
        match Shipped::parse(kernel.tuned) {
            Ok(shipped) => {
                if let Some(record) = shipped.find(key_record) {
                    let record = key_record.choosing(&record.chosen);
                    return Some((record, Source::Shipped));
                }
            }
            Err(reason) => {
                warn(&format!("the choices that ship with {} are ignored: {reason}", key_record.kernel))
            }
        }
        match self.folder.as_ref()?.get(key_record) {
            Ok(record) => record.map(|record| (record, Source::Disk)),
            Err(reason) => {
                warn(&format!("a choice on disk is ignored: {reason}"));
                None
            }
        }
    }

    fn search(&self, key_record: &TuningRecord, call: &mut dyn TunableCall) -> Result<SearchOutcome> {
        let labels: Vec<&str> = key_record.candidates.iter().map(|one| one.label.as_str()).collect();
        let shows = std::io::stderr().is_terminal();
        let mut progress = |tried: usize, best: Option<(usize, f64)>| {
            let best = best.map(|(at, ms)| format!(", best {} in {:.1} us", labels[at], ms * 1e3));
            show(&format!(
                "fuse: tuning {} {:?}: {tried} of {}{}",
                key_record.kernel,
                key_record.key,
                labels.len(),
                best.unwrap_or_default()
            ));
        };
        let mut silent = |_: usize, _: Option<(usize, f64)>| {};
        let trials: &mut dyn Trials = call;
        let outcome = if shows {
            search(trials, labels.len(), self.limits, &mut progress)
        } else {
            search(trials, labels.len(), self.limits, &mut silent)
        };
        if shows {
            show("");
        }
        call.restore()?;
        let outcome = outcome?;
        for (label, result) in labels.iter().zip(&outcome.results) {
            if let TrialResult::Differs(how) = result {
                warn(&format!(
                    "{} gives another result as [{label}] than as the configs before it, and is not taken: {how}",
                    key_record.kernel
                ));
            }
        }
        Ok(outcome)
    }

    fn store(
        &self,
        cache_key: Box<[i128]>,
        request: TuneRequest<'_>,
        record: TuningRecord,
        source: Source,
    ) -> &'static Variant {
        let variant = request.with_label(&record.chosen).unwrap_or(request.space.candidates[0]);
        let cached = CachedChoice { variant, source, record };
        self.choices.write().unwrap_or_else(PoisonError::into_inner).insert(cache_key, cached);
        variant
    }

    pub(super) fn decisions(&self) -> Vec<Decision> {
        let choices = self.choices.read().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<Decision> = choices.values().map(CachedChoice::decision).collect();
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
            choices.values().filter(|cached| matches!(cached.source, Source::Measured | Source::Disk));
        let records: Vec<TuningRecord> = measured.map(|cached| cached.record.clone()).collect();
        record::export(path, &records)?;
        Ok(records.len())
    }
}

impl CachedChoice {
    fn decision(&self) -> Decision {
        let TuningRecord { kernel, key, place, chosen, candidates, .. } = self.record.clone();
        let time = |one: Candidate| {
            let note = one.note.unwrap_or_else(|| "not measured".to_string());
            (one.label, one.ms.ok_or(note))
        };
        let candidates = candidates.into_iter().map(time).collect();
        Decision { kernel, device: place.device, key, chosen, source: self.source, candidates }
    }
}

impl TuneRequest<'_> {
    /// Everything that the choice depends on within a process.
    fn cache_key(&self) -> Box<[i128]> {
        let device = match self.on {
            On::Cpu => 0,
            On::Cuda(device, _) => ptr::from_ref(device).addr(),
        };
        let candidates = &self.space.candidates;
        let start = [ptr::from_ref(self.kernel).addr(), device, candidates.len()];
        let addresses = candidates.iter().map(|variant| ptr::from_ref(*variant).addr());
        start
            .into_iter()
            .chain(addresses)
            .map(|word| word as i128)
            .chain(self.space.key.iter().copied())
            .collect()
    }

    pub(super) fn record(&self) -> Result<TuningRecord> {
        let place = match self.on {
            On::Cpu => Place { device: Device::cpu().name(), capability: None, driver: None },
            On::Cuda(device, _) => Place {
                device: device.properties.name.clone(),
                capability: Some(device.properties.capability),
                driver: Some(driver_version()?),
            },
        };
        let candidates = self.space.candidates.iter().map(|variant| Candidate::new(variant)).collect();
        Ok(TuningRecord::new(self.kernel, &self.space.key, place, candidates))
    }

    fn with_label(&self, label: &str) -> Option<&'static Variant> {
        self.space.candidates.iter().copied().find(|variant| variant.label == label)
    }
}

/// The request's record with the results of the search.
fn with_results(mut key_record: TuningRecord, outcome: &SearchOutcome) -> TuningRecord {
    for (one, result) in key_record.candidates.iter_mut().zip(&outcome.results) {
        match result {
            TrialResult::Median(ms) => one.ms = Some(*ms),
            TrialResult::Failed(reason) => one.note = Some(reason.clone()),
            TrialResult::Differs(how) => one.note = Some(format!("it gives another result: {how}")),
            TrialResult::NotTried => one.note = Some("there was no time left to measure it".to_string()),
        }
    }
    key_record.chosen = key_record.candidates[outcome.best].label.clone();
    key_record
}

fn warn(text: &str) {
    eprintln!("fuse: warning: {text}");
}

/// Replaces the line of progress.
fn show(line: &str) {
    // Nothing can be done about a program that has no standard error.
    let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
}
