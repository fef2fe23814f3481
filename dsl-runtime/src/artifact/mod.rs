//! Writing kernels to files, for programs that launch them without this crate: PTX and cubins for the CUDA driver of any
//! language, and JSON that says how to call them.

mod record;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use record::{ImageFiles, KernelRecord};

use crate::error::{Error, Result};
use crate::kernel::{Arch, Kernel, Module, Packed, Variant};

impl Kernel {
    /// Writes, for each variant and architecture, a `<kernel>.<variant>.<arch>.json`, and for each of its entry points
    /// `<entry>.<arch>.ptx` and its cubins if there are any (`.90.cubin` for compute capability 9.0). Gives the paths of
    /// all files. The directory is made if it is not there.
    ///
    /// The JSON lists the entry points, fastest first, with the files of each (`ptx`, `cubins`), its guards on the
    /// arguments (`facts`) and, where it takes any behind them, its tensor maps (`maps`, as
    /// [`TensorMap`](crate::kernel::TensorMap) says); the arguments that every entry takes, in order (`arguments`); and
    /// what a launch needs: for a grid of `x * y * z` programs, a CUDA grid of `x` divided by `programs_per_block`,
    /// rounded up, and times `blocks_per_program`, of `y`, and `z`, blocks of `threads` threads, and `shared_bytes` of
    /// dynamic shared memory. A `persistent` entry takes a grid of any number of blocks along one axis, and at most
    /// `i32::MAX` programs. One that is `counted` takes the address of a work counter (`u64`) behind the arguments and
    /// before the maps, or 0 and a block for each program, as [`Specialization::uses_work_counter`](crate::kernel::Specialization::uses_work_counter) says.
    /// One that `follows` may be launched while the kernel before it in its stream still runs, as
    /// [`Specialization::uses_pdl`](crate::kernel::Specialization::uses_pdl) says.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        let directory = directory.as_ref();
        fs::create_dir_all(directory).map_err(failed(directory))?;
        let mut files = Files { directory, written: Vec::new() };
        for variant in self.variants {
            let mut archs: Vec<Arch> = variant.modules.iter().map(|module| module.arch).collect();
            archs.dedup();
            for arch in archs {
                self.write_arch(variant, arch, &mut files)?;
            }
        }
        Ok(files.written)
    }

    fn write_arch(&self, variant: &Variant, arch: Arch, files: &mut Files<'_>) -> Result<()> {
        let label =
            if variant.label.is_empty() { String::new() } else { format!(".{}", file_name(variant.label)) };
        let stem = format!("{}{label}.{arch}", self.name);
        let mut specializations: Vec<(&Module, ImageFiles)> = Vec::new();
        for module in variant.modules.iter().filter(|module| module.arch == arch) {
            let stem = format!("{}.{arch}", module.specialization.entry);
            let ptx = files.write_code(format!("{stem}.ptx"), module.ptx)?;
            let mut cubins = Vec::new();
            for &(capability, image) in module.cubins {
                cubins.push((capability, files.write_code(format!("{stem}.{capability}.cubin"), image)?));
            }
            specializations.push((module, ImageFiles { ptx, cubins }));
        }
        let record = KernelRecord::new(self, variant, arch, specializations);
        let name = format!("{stem}.json");
        let json = serde_json::to_string_pretty(&record)
            .map_err(|error| Error::File { path: files.directory.join(&name), reason: error.to_string() })?;
        files.write(name, format!("{json}\n").as_bytes())?;
        Ok(())
    }
}

/// `T = bf16, BLOCK = 1024` as `T-bf16_BLOCK-1024`.
fn file_name(label: &str) -> String {
    let plain = label.replace(", ", "_").replace(" = ", "-");
    plain.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::File { path: path.to_path_buf(), reason: error.to_string() }
}

struct Files<'d> {
    directory: &'d Path,
    written: Vec<PathBuf>,
}

impl Files<'_> {
    /// Gives the name back.
    fn write_code(&mut self, name: String, code: Packed) -> Result<String> {
        let path = self.directory.join(&name);
        let code = code
            .unpack()
            .ok_or_else(|| Error::File { path, reason: "its code cannot be unpacked".to_string() })?;
        self.write(name, &code)
    }

    /// Gives the name back.
    fn write(&mut self, name: String, content: &[u8]) -> Result<String> {
        let path = self.directory.join(&name);
        fs::write(&path, content).map_err(failed(&path))?;
        self.written.push(path);
        Ok(name)
    }
}
