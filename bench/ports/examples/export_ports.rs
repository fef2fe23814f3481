//! Writes every port to a folder, as PTX with JSON beside it, for `bench/ports.py`:
//! `cargo run --release -p fuse-ports --example export_ports -- ports/`

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use fuse_ports::KERNELS;

/// Writes the ports as files that any CUDA program can load
#[derive(Parser)]
struct Options {
    /// The folder to write to; it is made if it is not there
    folder: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    for &kernel in KERNELS {
        let files = kernel.write(&options.folder)?;
        eprintln!("{}: {} files in {}", kernel.name, files.len(), options.folder.display());
    }
    Ok(())
}
