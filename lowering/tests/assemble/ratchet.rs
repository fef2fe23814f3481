//! What a ratchet records of each entry: its resources of a multiprocessor, which may only fall, and the PTX that they are of.
//!
//! `ptxas` gives the same for the same text. So an entry whose PTX has the recorded hash is not assembled again.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// An entry's resources of a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EntryResources {
    pub registers: u32,
    pub shared_bytes: u32,
    pub barriers: u32,
    pub spilled_bytes: u32,
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
    fn exceeds(self, limit: EntryResources) -> bool {
        self.registers > limit.registers
            || self.shared_bytes > limit.shared_bytes
            || self.barriers > limit.barriers
            || self.spilled_bytes > limit.spilled_bytes
    }
}

/// The hash of a module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PtxHash(u64);

impl PtxHash {
    pub fn of(ptx: &str) -> PtxHash {
        PtxHash(xxhash_rust::xxh3::xxh3_64(ptx.as_bytes()))
    }
}

/// A line of the ratchet: `39 registers, 0 shared, 0 barriers, ptx 00c0ffee00c0ffee`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EntryRecord {
    pub resources: EntryResources,
    /// `None` in a line from which it was taken, so that the entry is assembled again.
    pub ptx: Option<PtxHash>,
}

impl fmt::Display for EntryRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resources)?;
        self.ptx.map_or(Ok(()), |PtxHash(hash)| write!(f, ", ptx {hash:016x}"))
    }
}

impl EntryRecord {
    fn parse(text: &str) -> Option<EntryRecord> {
        let (mut numbers, mut ptx) = (BTreeMap::new(), None);
        for part in text.split(", ") {
            match part.split_once(' ')? {
                ("ptx", hash) => ptx = Some(PtxHash(u64::from_str_radix(hash, 16).ok()?)),
                (number, what) => {
                    numbers.insert(what, number.parse().ok()?);
                }
            }
        }
        let number = |what| numbers.get(what).copied();
        let resources = EntryResources {
            registers: number("registers")?,
            shared_bytes: number("shared")?,
            barriers: number("barriers")?,
            spilled_bytes: number("spilled").unwrap_or(0),
        };
        Some(EntryRecord { resources, ptx })
    }
}

/// By `kernel_variant_specialization sm_80`.
pub type Table = BTreeMap<String, EntryRecord>;

/// The ratchet's lines.
pub fn read(path: &Path) -> Table {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines.filter_map(|(name, record)| Some((name.to_string(), EntryRecord::parse(record)?))).collect()
}

/// Compares `found` with the ratchet. `UPDATE_EXPECT=1` records numbers that fell, and PTX that changed; a number that rose
/// fails until its line is removed from the file, to accept it.
pub fn check(found: &Table, allowed: &Table, path: &Path) {
    let limit = |name: &String| allowed.get(name).map(|record| record.resources);
    let risen: Vec<String> = found
        .iter()
        .filter_map(|(name, record)| Some((name, record.resources, limit(name)?)))
        .filter(|(_, needs, limit)| needs.exceeds(*limit))
        .map(|(name, needs, limit)| format!("{name}: {needs}\n    at most {limit}\n"))
        .collect();
    assert!(risen.is_empty(), "kernels take more than they did:\n{}", risen.concat());
    if found == allowed {
        return;
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let lines: String = found.iter().map(|(name, record)| format!("{name}: {record}\n")).collect();
        fs::write(path, lines).expect("the ratchet is written");
        return;
    }
    let differs = |(name, record): &(&String, &EntryRecord)| limit(name) != Some(record.resources);
    let lowered: String = found
        .iter()
        .filter(differs)
        .map(|(name, record)| format!("{name}: {}\n", record.resources))
        .collect();
    let gone: Vec<&String> = allowed.keys().filter(|name| !found.contains_key(*name)).collect();
    assert!(
        lowered.is_empty() && gone.is_empty(),
        "UPDATE_EXPECT=1 writes down what fell or is new:\n{lowered}and what is gone: {gone:?}",
    );
}

#[test]
fn lines_come_back() {
    let line = "39 registers, 1024 shared, 2 barriers, 8 spilled, ptx 00c0ffee00c0ffee";
    let found = EntryRecord::parse(line).expect("a line");
    assert_eq!(found.ptx, Some(PtxHash(0x00c0_ffee_00c0_ffee)));
    assert_eq!((found.resources.spilled_bytes, found.to_string()), (8, line.to_string()));
    let short = "39 registers, 0 shared, 0 barriers";
    let found = EntryRecord::parse(short).expect("a line without a hash");
    assert_eq!((found.ptx, found.to_string()), (None, short.to_string()));
    assert_eq!(EntryRecord::parse("39 registers, 0 shared"), None);
}
