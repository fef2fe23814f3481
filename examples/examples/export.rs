//! Writes every kernel of the library to a folder, as PTX with JSON beside it, for programs that launch them without
//! this runtime: `cargo run --release --example export -- kernels/`

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use fused_kernels::KERNELS;

/// Writes the library's kernels as files that any CUDA program can load
#[derive(Parser)]
struct Options {
    /// The folder to write to; it is made if it is not there
    folder: PathBuf,
    /// Only kernels with this name
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let known: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
    if let Some(unknown) = options.kernel.iter().find(|name| !known.contains(&name.as_str())) {
        anyhow::bail!("there is no kernel `{unknown}`: there are {}", known.join(", "));
    }
    for &kernel in KERNELS {
        if options.kernel.is_empty() || options.kernel.iter().any(|name| name == kernel.name) {
            let files = kernel.write(&options.folder)?;
            eprintln!("{}: {} files in {}", kernel.name, files.len(), options.folder.display());
        }
    }
    Ok(())
}
