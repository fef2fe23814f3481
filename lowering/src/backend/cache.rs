//! A content-addressed cache: what was lowered once is not lowered again until something that goes into it changes.
//!
//! The key covers the tile IR of every specialization, the targets, this compiler's own sources and the LLVM that is linked. Entries
//! are files in the target directory of the build, written whole or not at all. Each begins with a hash of its key and content: one
//! that is damaged, or under another's name, counts as missing.
//! Entries of another compiler or of deleted kernels are never asked for again: the least recently used ones are
//! removed where there are too many.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

/// Makes the names of files that one process writes at once unique.
static FILE_COUNTER: AtomicU64 = AtomicU64::new(0);

/// Bytes of the hash in front of an entry.
const HASH_BYTES: usize = 16;

/// How long a file that is no entry may be there: beyond that the process that wrote it has ended.
const PARTIAL_LIFETIME: Duration = Duration::from_secs(3600);

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

    /// The hash that an entry of this key and content begins with.
    fn hash_entry(self, content: &[u8]) -> [u8; HASH_BYTES] {
        let mut hash = Xxh3Default::new();
        hash.update(&self.0.to_le_bytes());
        hash.update(content);
        hash.digest128().to_le_bytes()
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
        // Whoever opens a pipe waits for its other end.
        fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        let bytes = fs::read(&path).ok()?;
        // Marks it as recently used.
        let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
        let (hash, content) = bytes.split_first_chunk::<HASH_BYTES>()?;
        (key.hash_entry(content) == *hash).then(|| postcard::from_bytes(content).ok())?
    }

    /// Keeps a result. A cache that cannot be written is no mistake of the user's.
    pub fn put<T: Serialize>(&self, key: CacheKey, value: &T) {
        static TRIMMED: Once = Once::new();
        TRIMMED.call_once(|| {
            self.sweep();
            self.trim(CAPACITY);
        });
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

    /// Removes what processes that were ended left unfinished: files and folders without an entry's name that have not been written
    /// for an hour.
    pub fn sweep(&self) {
        let entries = self.directory.as_ref().and_then(|directory| fs::read_dir(directory).ok());
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_key =
                name.len() == 2 * HASH_BYTES && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit);
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|modified| modified.elapsed().ok());
            if !is_key && age.is_some_and(|age| age > PARTIAL_LIFETIME) {
                let path = entry.path();
                let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            }
        }
    }

    fn try_put<T: Serialize>(&self, key: CacheKey, value: &T) -> Option<()> {
        let path = self.path(key)?;
        let directory: &Path = path.parent()?;
        fs::create_dir_all(directory).ok()?;
        let number = FILE_COUNTER.fetch_add(1, Ordering::Relaxed);
        let partial = directory.join(format!("{}.{}.{number}", key.hex(), std::process::id()));
        let content = postcard::to_stdvec(value).ok()?;
        let entry = [&key.hash_entry(&content)[..], &content].concat();
        let written = fs::write(&partial, entry).and_then(|()| fs::rename(&partial, path));
        // A full disk leaves a part of it.
        written.inspect_err(|_| _ = fs::remove_file(&partial)).ok()
    }
}
