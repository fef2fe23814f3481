//! Results by content: what was lowered once is not lowered again until something that goes into it changes.
//!
//! The key covers the tile IR of every body, the targets, and this compiler's own sources. Entries lie under the target
//! directory of the build and are written whole or not at all; an entry that cannot be read counts as missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use xxhash_rust::xxh3::xxh3_128;

/// Tells files that one process writes at once apart.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Bytes in front of an entry that are its content's hash: a damaged entry is none.
const SUM: usize = 16;

/// A directory of results; `None` when there is no place for one.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: Option<PathBuf>,
}

/// Names a result by what went into it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(u128);

impl Key {
    /// The compiler's sources count, and each part, told apart by its length.
    pub fn of(parts: &[&str]) -> Key {
        let mut bytes = env!("FUSE_COMPILER_HASH").as_bytes().to_vec();
        for part in parts {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        Key(xxh3_128(&bytes))
    }

    /// Enough of it to tell versions of one kernel apart.
    pub fn short(self) -> u64 {
        self.0 as u64
    }

    pub fn hex(self) -> String {
        format!("{:032x}", self.0)
    }
}

impl Cache {
    pub fn at(directory: Option<PathBuf>) -> Cache {
        Cache { directory }
    }

    fn path(&self, key: Key) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(key.hex()))
    }

    pub fn get<T: DeserializeOwned>(&self, key: Key) -> Option<T> {
        let bytes = fs::read(self.path(key)?).ok()?;
        let (sum, content) = bytes.split_first_chunk::<SUM>()?;
        (xxh3_128(content).to_le_bytes() == *sum).then(|| postcard::from_bytes(content).ok())?
    }

    /// Keeps a result. A cache that cannot be written is no mistake of the user's.
    pub fn put<T: Serialize>(&self, key: Key, value: &T) {
        let _ = self.try_put(key, value);
    }

    fn try_put<T: Serialize>(&self, key: Key, value: &T) -> Option<()> {
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
