//! Kernels run on the processor at hand: assembled with the system's compiler and loaded.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::func;
use crate::analysis::split::{Trust, split};
use crate::mlir::Session;
use crate::mlir::host::Plan;
use crate::target::host::{self, Family, Level};

/// A launch argument: eight bytes for each slot.
pub enum Arg<'a> {
    F32(&'a mut [f32]),
    I32(&'a mut [i32]),
    Scalar(u64),
}

/// Compiles the kernel's first variant for the host and runs every program of the grid at every level this processor
/// has.
pub fn run(source: &str, grid: [u32; 3], mut args: Vec<Arg>) {
    let mut func = func(source);
    split(&mut func, Trust::Nothing);
    let plan = Plan::new(func);
    let session = Session::new();
    let texts = host::emit(&session, &plan, "kernel", Family::X86_64).expect("host assembly");
    for (level, text) in texts {
        if level == Level::V4 && !std::arch::is_x86_feature_detected!("avx512vl") {
            continue;
        }
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let stem = std::env::temp_dir().join(format!(
            "lowering-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let (assembly, library) = (stem.with_extension("s"), stem.with_extension("so"));
        std::fs::write(&assembly, text.replace("\t.hidden", "\t#.hidden")).expect("a temporary file");
        if let Ok(keep) = std::env::var("KEEP_ASM") {
            std::fs::copy(&assembly, format!("{keep}.{}.s", level.name())).unwrap();
        }
        let status =
            Command::new("cc").arg("-shared").arg("-o").arg(&library).arg(&assembly).status().expect("cc");
        assert!(status.success(), "{level:?} does not assemble: {}", assembly.display());
        let mut scratch = vec![0u64; plan.scratch_bytes() as usize / 8 + 16];
        let aligned = (scratch.as_mut_ptr() as usize).next_multiple_of(64) as *mut u8;
        let slots: Vec<u64> = args
            .iter_mut()
            .flat_map(|arg| match arg {
                Arg::F32(data) => vec![data.as_mut_ptr() as u64, data.len() as u64],
                Arg::I32(data) => vec![data.as_mut_ptr() as u64, data.len() as u64],
                Arg::Scalar(bits) => vec![*bits],
            })
            .collect();
        type Entry = unsafe extern "C" fn(*const u64, u32, u32, u32, u32, *const u32, *mut u8);
        // SAFETY: the library was just built from assembly with this signature; the slots describe live memory.
        unsafe {
            let library = libloading::Library::new(&library).expect("a library");
            let entry: libloading::Symbol<Entry> =
                library.get(format!("kernel_{}", level.name()).as_bytes()).expect("the entry");
            for z in 0..grid[2] {
                for y in 0..grid[1] {
                    entry(slots.as_ptr(), 0, grid[0], y, z, grid.as_ptr(), aligned);
                }
            }
        }
        let _ = (std::fs::remove_file(&assembly), std::fs::remove_file(&library));
    }
}

#[test]
fn layer_norm_on_the_host() {
    let (rows, cols) = (3usize, 1000usize);
    let source = include_str!("layer_norm.txt")
        .replace("bf16", "f32")
        .replace("4096", "1024")
        .replace("tl::rsqrt(var + eps)", "1.0 / tl::sqrt(var + eps)")
        .replace("* 1.0 /", "/");
    let mut x: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919) % 1000) as f32 / 100.0 - 3.0).collect();
    let mut gamma: Vec<f32> = (0..cols).map(|i| 1.0 + i as f32 / 500.0).collect();
    let mut beta: Vec<f32> = (0..cols).map(|i| i as f32 / 100.0).collect();
    let mut out = vec![f32::NAN; rows * cols];
    run(
        &source,
        [rows as u32, 1, 1],
        vec![
            Arg::F32(&mut x),
            Arg::F32(&mut gamma),
            Arg::F32(&mut beta),
            Arg::F32(&mut out),
            Arg::Scalar(cols as u64),
            Arg::Scalar(u64::from(1e-5f32.to_bits())),
        ],
    );
    for r in 0..rows {
        let row: Vec<f64> = x[r * cols..(r + 1) * cols].iter().map(|&v| f64::from(v)).collect();
        let mean = row.iter().sum::<f64>() / cols as f64;
        let var = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / cols as f64;
        for c in 0..cols {
            let want = (row[c] - mean) / (var + 1e-5).sqrt() * f64::from(gamma[c]) + f64::from(beta[c]);
            let got = f64::from(out[r * cols + c]);
            assert!((got - want).abs() < 1e-4 * want.abs().max(1.0), "row {r} column {c}: {got} for {want}");
        }
    }
}
