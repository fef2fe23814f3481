//! A content-addressed cache: what was lowered once is not lowered again until something that goes into it changes.
//!
//! The key covers the tile IR of every specialization, the targets, and this compiler's own sources. Entries are files
//! in the target directory of the build, written whole or not at all; an entry that cannot be read counts as missing.
//! Entries of another compiler or of deleted kernels are never asked for again: the least recently used ones are
//! removed where there are too many.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_128;

/// Makes the names of files that one process writes at once unique.
static FILE_COUNTER: AtomicU64 = AtomicU64::new(0);

/// Bytes of the hash in front of an entry: a damaged entry counts as missing.
const HASH_BYTES: usize = 16;

/// The capacity on disk, in bytes: a few builds of a crate with a thousand variants.
const CAPACITY: u64 = 2 << 30;

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

    /// Enough of it to distinguish versions of one kernel.
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
        // Marks it as recently used.
        let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
        let (hash, content) = bytes.split_first_chunk::<HASH_BYTES>()?;
        (xxh3_128(content).to_le_bytes() == *hash).then(|| postcard::from_bytes(content).ok())?
    }

    /// Keeps a result. A cache that cannot be written is no mistake of the user's.
    pub fn put<T: Serialize>(&self, key: CacheKey, value: &T) {
        static TRIMMED: Once = Once::new();
        TRIMMED.call_once(|| self.trim(CAPACITY));
        let _ = self.try_put(key, value);
    }

    /// Where files take more than `capacity` bytes, removes the least recently used ones until three quarters of it are
    /// left. Another build may do the same at once, or still write one: a removed file costs nothing but time.
    pub fn trim(&self, capacity: u64) {
        let Some(entries) = self.directory.as_ref().and_then(|directory| fs::read_dir(directory).ok()) else {
            return;
        };
        let known = |entry: fs::DirEntry| {
            let metadata = entry.metadata().ok().filter(|metadata| metadata.is_file())?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> =
            entries.filter_map(|entry| known(entry.ok()?)).collect();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= capacity {
            return;
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= capacity / 4 * 3 {
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
        let number = FILE_COUNTER.fetch_add(1, Ordering::Relaxed);
        let partial = directory.join(format!("{}.{}.{number}", key.hex(), std::process::id()));
        let content = postcard::to_stdvec(value).ok()?;
        let entry = [&xxh3_128(&content).to_le_bytes()[..], &content].concat();
        fs::write(&partial, entry).ok()?;
        fs::rename(partial, path).ok()
    }
}
