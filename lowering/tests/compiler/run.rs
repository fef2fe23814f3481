//! Kernels run on this CPU: assembled with the system's compiler and loaded.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tile_ir::ir::Func;
use tile_ir::ir::guard::Guard;
use tile_ir::testing::func;
use tile_ir::transform::legalize_index::{BoundsPolicy, legalize_index};

use lowering::backend::host_asm::{CpuLevel, Family, HostTarget};
use lowering::cpu::emit::CpuPlan;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::mlir::Session;

/// A launch argument: eight bytes for each slot.
pub enum Arg<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    /// A slice of any element type.
    Memory(*mut u8, usize),
    Scalar(u64),
}

impl<'a> Arg<'a> {
    pub fn of<T: Copy>(data: &'a mut [T]) -> Arg<'a> {
        Arg::Memory(data.as_mut_ptr().cast(), data.len())
    }
}

/// A kernel's host code at one level, loaded.
pub struct Loaded {
    pub level: CpuLevel,
    library: libloading::Library,
    scratch_bytes: usize,
}

type Entry = unsafe extern "C" fn(*const u64, u32, u32, u32, u32, *const u32, *mut u8);

impl Loaded {
    /// Runs every program of the grid.
    pub fn call(&self, grid: [u32; 3], args: &mut [Arg]) {
        let mut scratch = vec![0u64; self.scratch_bytes / 8 + 16];
        let aligned = (scratch.as_mut_ptr() as usize).next_multiple_of(64) as *mut u8;
        let slots: Vec<u64> = args
            .iter_mut()
            .flat_map(|arg| match arg {
                Arg::F32(data) => vec![data.as_mut_ptr() as u64, data.len() as u64],
                Arg::F64(data) => vec![data.as_mut_ptr() as u64, data.len() as u64],
                Arg::Memory(start, len) => vec![*start as u64, *len as u64],
                Arg::Scalar(bits) => vec![*bits],
            })
            .collect();
        // SAFETY: the library was built from assembly with this signature; the slots describe live memory.
        unsafe {
            let name = format!("kernel_{}", self.level.name());
            let entry: libloading::Symbol<Entry> = self.library.get(name.as_bytes()).expect("the entry");
            for z in 0..grid[2] {
                for y in 0..grid[1] {
                    entry(slots.as_ptr(), 0, grid[0], y, z, grid.as_ptr(), aligned);
                }
            }
        }
    }
}

/// Compiles the kernel's first variant for the host and loads it at every level that this CPU has.
pub fn load(source: &str) -> Vec<Loaded> {
    let mut func = func(source);
    legalize_index(&mut func, BoundsPolicy::Masked);
    loaded(func)
}

/// The same of what a GPU body of the kernel does, after all that layouts changed: the first is for aligned arguments, the
/// last for any.
pub fn load_bodies(source: &str) -> Vec<Vec<Loaded>> {
    load_bodies_of(&func(source)).into_iter().map(|(_, loaded)| loaded).collect()
}

/// The same with what each body relies on.
pub fn load_bodies_of(func: &Func) -> Vec<(Vec<Guard>, Vec<Loaded>)> {
    let specializations = specializations(func, KernelRequests::default()).expect("bodies that fit");
    specializations.into_iter().map(|body| (body.guards, loaded(body.plan.laid_out))).collect()
}

fn loaded(func: Func) -> Vec<Loaded> {
    load_plan(&CpuPlan::new(func))
}

/// A plan for the host, loaded at every level that this processor has.
pub fn load_plan(plan: &CpuPlan) -> Vec<Loaded> {
    load_levels(plan, &levels())
}

/// Those that this processor has, the best one last.
pub fn levels() -> Vec<CpuLevel> {
    let own = CpuLevel::of_this_machine();
    Family::X86_64.levels().iter().copied().filter(|&level| level <= own).collect()
}

pub fn load_levels(plan: &CpuPlan, levels: &[CpuLevel]) -> Vec<Loaded> {
    let session = Session::new();
    let texts =
        HostTarget { family: Family::X86_64, levels: levels.to_vec() }.emit(&session, plan, "kernel", None);
    let texts = texts.expect("host assembly");
    texts
        .into_iter()
        .map(|(level, text)| Loaded {
            level,
            library: assembled(&text),
            scratch_bytes: plan.scratch_bytes() as usize,
        })
        .collect()
}

/// Assembly as a library.
fn assembled(text: &str) -> libloading::Library {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let stem = std::env::temp_dir().join(format!(
        "lowering-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    let (assembly, library) = (stem.with_extension("s"), stem.with_extension("so"));
    std::fs::write(&assembly, text.replace("\t.hidden", "\t#.hidden")).expect("a temporary file");
    let status = Command::new("cc")
        .args(["-shared", "-Wl,-z,noexecstack"])
        .arg("-o")
        .arg(&library)
        .arg(&assembly)
        .status()
        .expect("cc");
    assert!(status.success(), "{} does not assemble", assembly.display());
    // SAFETY: the library holds kernels alone, without initializers.
    let loaded = unsafe { libloading::Library::new(&library).expect("a library") };
    let _ = (std::fs::remove_file(&assembly), std::fs::remove_file(&library));
    loaded
}

/// Runs the kernel's first variant at every level that this processor has.
pub fn run(source: &str, grid: [u32; 3], mut args: Vec<Arg>) {
    load(source).iter().for_each(|loaded| loaded.call(grid, &mut args));
}

#[test]
fn layer_norm_on_the_cpu() {
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

/// The mask of a vector may be cut anywhere in it, also where it had other axes when it was made.
#[test]
fn masks_are_reshaped_on_the_cpu() {
    let source = "#[fuse_kernel]
        fn k(x: &[f32], out: &mut [f32], n: i32) {
            let places = tl::arange(0, 64);
            let mask = tl::reshape(places < n, [2, 32]);
            let places = tl::reshape(places, [2, 32]);
            tl::store(out + places, tl::load(x + places, mask, 7.0), mask);
        }";
    for n in [0, 10, 16, 33, 64] {
        for loaded in load(source) {
            let (mut x, mut out) = (vec![1f32; 64], vec![0f32; 64]);
            loaded.call([1, 1, 1], &mut [Arg::F32(&mut x), Arg::F32(&mut out), Arg::Scalar(n)]);
            let wanted: Vec<f32> = (0..64).map(|i| f32::from(u8::from(i < n))).collect();
            assert_eq!(out, wanted, "{n} {:?}", loaded.level);
        }
    }
}
