//! Results by content: what was lowered once is not lowered again until something that goes into it changes.
//!
//! The key covers the tile IR of every body, the targets, and this compiler's own sources. Entries lie under the target
//! directory of the build and are written whole or not at all; an entry that cannot be read counts as missing. Those of
//! another compiler or of text that is gone are never asked for again: the ones that nobody used for longest go first
//! where there are too many.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_128;

/// Tells files that one process writes at once apart.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Bytes in front of an entry that are its content's hash: a damaged entry is none.
const SUM: usize = 16;

/// What entries may take on disk, in bytes: a few builds of a crate with a thousand variants.
const ROOM: u64 = 2 << 30;

/// A directory of results; `None` when there is no place for one.
#[derive(Clone, Debug)]
pub struct ArtifactCache {
    directory: Option<PathBuf>,
}

/// Names a result by what went into it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CacheKey(u128);

impl CacheKey {
    /// The compiler's sources count, and each part, told apart by its length.
    pub fn of(parts: &[&str]) -> CacheKey {
        let mut bytes = env!("FUSE_COMPILER_HASH").as_bytes().to_vec();
        for part in parts {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        CacheKey(xxh3_128(&bytes))
    }

    /// Enough of it to tell versions of one kernel apart.
    pub fn short(self) -> u64 {
        self.0 as u64
    }

    pub fn hex(self) -> String {
        format!("{:032x}", self.0)
    }
}

impl ArtifactCache {
    pub fn at(directory: Option<PathBuf>) -> ArtifactCache {
        ArtifactCache { directory }
    }

    fn path(&self, key: CacheKey) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(key.hex()))
    }

    pub fn get<T: DeserializeOwned>(&self, key: CacheKey) -> Option<T> {
        let path = self.path(key)?;
        let bytes = fs::read(&path).ok()?;
        // Used now: it is among the last to go.
        let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
        let (sum, content) = bytes.split_first_chunk::<SUM>()?;
        (xxh3_128(content).to_le_bytes() == *sum).then(|| postcard::from_bytes(content).ok())?
    }

    /// Keeps a result. A cache that cannot be written is no mistake of the user's.
    pub fn put<T: Serialize>(&self, key: CacheKey, value: &T) {
        static TRIMMED: Once = Once::new();
        TRIMMED.call_once(|| self.trim(ROOM));
        let _ = self.try_put(key, value);
    }

    /// Where files take more than `room` bytes, removes those that were not used for longest until three quarters of it
    /// are left. Another build may do the same at once, or still write one: a file that is gone is no loss but of time.
    pub fn trim(&self, room: u64) {
        let Some(entries) = self.directory.as_ref().and_then(|directory| fs::read_dir(directory).ok()) else {
            return;
        };
        let known = |entry: fs::DirEntry| {
            let about = entry.metadata().ok().filter(|about| about.is_file())?;
            Some((about.modified().ok()?, about.len(), entry.path()))
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> =
            entries.filter_map(|entry| known(entry.ok()?)).collect();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= room {
            return;
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= room / 4 * 3 {
                return;
            }
            let _ = fs::remove_file(path);
            total -= bytes;
        }
    }

    fn try_put<T: Serialize>(&self, key: CacheKey, value: &T) -> Option<()> {
        let path = self.path(key)?;
        let directory: &Path = path.parent()?;
        fs::create_dir_all(directory).ok()?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let partial = directory.join(format!("{}.{}.{number}", key.hex(), std::process::id()));
        let content = postcard::to_stdvec(value).ok()?;
        let entry = [&xxh3_128(&content).to_le_bytes()[..], &content].concat();
        fs::write(&partial, entry).ok()?;
        fs::rename(partial, path).ok()
    }
}
