//! The devices of a folder, and those that are known without one.

use std::fs;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;

use super::builtin;
use super::ceilings::{Device, DeviceError};

/// The folder of the user in which devices are stored: `fuse/devices` in the one for caches.
///
/// # Errors
/// If the system names none.
pub fn folder() -> Result<PathBuf, DeviceError> {
    let user = etcetera::choose_base_strategy().map_err(|_| DeviceError::NoFolder)?;
    Ok(user.cache_dir().join("fuse").join("devices"))
}

/// The devices of a folder, by the order of their names; a folder that is not there has none.
///
/// # Errors
/// If a file there cannot be read or is no device.
pub fn stored(folder: &Path) -> Result<Vec<Device>, DeviceError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut paths = entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    paths.iter().map(|path| Device::read(path)).collect()
}

/// The devices of a folder, and the built-in ones that it has none of.
///
/// # Errors
/// As [`stored`].
pub fn all(folder: &Path) -> Result<Vec<Device>, DeviceError> {
    let mut devices = stored(folder)?;
    let known = builtin::all().into_iter();
    let missing = known.filter(|known| !devices.iter().any(|device| device.name == known.name));
    let missing = missing.collect::<Vec<_>>();
    devices.extend(missing);
    Ok(devices)
}

/// The device of a name: a stored one, or else a built-in one. The name may be a substring of the device's, in any case: `h200`.
///
/// # Errors
/// If there is none of that name, or a stored one cannot be read.
pub fn load(name: &str, folder: &Path) -> Result<Device, DeviceError> {
    let devices = all(folder)?;
    let wanted = name.to_lowercase();
    if let Some(exact) = devices.iter().find(|device| device.name.to_lowercase() == wanted) {
        return Ok(exact.clone());
    }
    let known = devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>().join(", ");
    let found = devices.into_iter().find(|device| device.name.to_lowercase().contains(&wanted));
    found.ok_or(DeviceError::Unknown { name: name.to_owned(), known })
}
