//! Measured times as `fuse-analysis` reads them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use dsl_runtime::prelude::*;
use serde_json::{Value, json};

/// Writes points, and what measured them on a device behind a write of its caches.
pub fn write(path: &Path, device: &Device, command: &str, points: &[Value]) -> Result<()> {
    // The analyzer knows a GPU by its name, and any CPU as the one that it measured.
    let name = if device.to_string() == "cpu" { "cpu".to_owned() } else { device.name() };
    let source = format!("{command}, medians behind a write of 256 MB");
    let written = json!({ "device": name, "cache": "cold", "source": source, "points": points });
    fs::write(path, serde_json::to_string_pretty(&written)?).with_context(|| path.display().to_string())
}
