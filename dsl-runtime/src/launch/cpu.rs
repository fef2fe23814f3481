//! Launching on the CPU.
//!
//! Takes checked arguments in host memory. Runs every program of the grid exactly once: the grid, `x` fastest, is cut
//! into chunks, rayon's threads take the chunks, and a chunk is one call of the host code per row of the grid. A launch
//! that is over before another thread would have woken up stays on the caller's.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::arg::{Arg, ArgValue};
use super::call::KernelCall;
use super::environment::{looks_for_races, tracing};
use super::trace::{Trace, print};
use crate::cpu_level::allowed_level;
use crate::error::{Error, Result};
use crate::host::HostMemory;
use crate::kernel::{Host, Level, Variant};
use crate::race::RaceCheck;
use crate::report::HostRecord;
use crate::slice::{SharedBytes, UniqueBytes};
use crate::threads;

/// Chunks per thread: enough that a slow chunk does not leave the other threads idle at the end, and that threads work
/// near each other in memory (docs/decisions/0180).
const CHUNKS_PER_THREAD: u64 = 64;

/// Approximate cost of forking work to other threads and joining them.
const FORK_JOIN_NS: f64 = 10_000.0;

/// The most demanding code that runs at a level.
fn host(variant: &'static Variant, level: Level) -> Option<&'static Host> {
    variant.hosts.iter().filter(|host| host.level <= level).max_by_key(|host| host.level)
}

fn choose(call: KernelCall) -> Result<&'static Host> {
    let level = allowed_level()?;
    host(call.variant, level).ok_or_else(|| Error::NoHostCode {
        kernel: call.kernel.name,
        variant: call.variant.label,
        cpu: level.to_string(),
        built: call.variant.hosts.iter().map(|host| host.level.to_string()).collect(),
    })
}

pub(super) fn trace(call: KernelCall) -> Result<Trace> {
    Ok(Trace {
        kernel: call.kernel.name,
        variant: call.variant.label,
        device: "cpu".to_string(),
        code: choose(call)?.level.to_string(),
        grid: call.grid,
        specialization: None,
    })
}

pub(super) fn launch(call: KernelCall, args: &mut [Arg<'_>], values: &mut [u64]) -> Result<()> {
    let host = choose(call)?;
    if tracing() {
        print(&trace(call)?);
    }
    let used = write_args(args, values);
    let grid = call.grid;
    // SAFETY: the arguments are as many as the entry takes, in its order and of its types (`arg::check`); their memory is
    // borrowed for the call, and what the entry writes is borrowed by nobody else.
    unsafe { run(call, CpuLaunch { host, args: &mut values[..used + 1], grid }) }
}

/// A launch that can be made again.
pub(crate) struct Replay {
    host: &'static Host,
    /// With room for one more.
    args: Box<[u64]>,
    call: KernelCall,
}

impl Replay {
    pub(super) fn new(call: KernelCall, args: &mut [Arg<'_>], values: &mut [u64]) -> Result<Replay> {
        let host = choose(call)?;
        let used = write_args(args, values);
        Ok(Replay { host, args: values[..used + 1].into(), call })
    }

    /// # Safety
    /// The memory of the launch's arguments must still be there, that of its outputs used by nobody else.
    pub(crate) unsafe fn run(&mut self) -> Result<()> {
        let Replay { host, args, call } = self;
        // SAFETY: passed on to the caller.
        unsafe { run(*call, CpuLaunch { host, args, grid: call.grid }) }
    }
}

/// Writes the arguments as the host code takes them; gives how many values they are.
fn write_args(args: &mut [Arg<'_>], values: &mut [u64]) -> usize {
    let mut used = 0;
    let mut push = |value: u64| {
        values[used] = value;
        used += 1;
    };
    for arg in args {
        let address = match &mut arg.value {
            ArgValue::Shared(SharedBytes::Host(bytes)) => bytes.as_ptr().expose_provenance(),
            ArgValue::Unique(UniqueBytes::Host(bytes)) => bytes.as_mut_ptr().expose_provenance(),
            ArgValue::Scalar(bits) => {
                push(*bits);
                continue;
            }
            ArgValue::Shared(SharedBytes::Cuda(_)) | ArgValue::Unique(UniqueBytes::Cuda(_)) => {
                unreachable!("`arg::check` found GPU memory")
            }
        };
        push(address as u64);
        push(arg.len as u64);
    }
    used
}

/// Runs a launch; the last of the arguments is room for the address of a record.
///
/// # Safety
/// `programs` must be what the host code takes.
unsafe fn run(call: KernelCall, programs: CpuLaunch<'_>) -> Result<()> {
    if !programs.host.reports {
        // SAFETY: passed on to the caller.
        return unsafe { programs.run() };
    }
    let CpuLaunch { host, ref args, grid } = programs;
    let check = if looks_for_races() { RaceCheck::new(call.kernel, host, args, grid) } else { None };
    let mut record = HostRecord::new(call.variant, check.as_ref());
    if let Some(last) = programs.args.last_mut() {
        *last = (&raw mut record).expose_provenance() as u64;
    }
    // SAFETY: passed on to the caller; the last argument is the address of a record that nobody else uses meanwhile.
    unsafe { programs.run() }?;
    record.error(call.kernel).map_or(Ok(()), Err)
}

/// All programs of a launch.
struct CpuLaunch<'v> {
    host: &'static Host,
    args: &'v mut [u64],
    grid: [u32; 3],
}

impl CpuLaunch<'_> {
    /// # Safety
    /// `args` must be what the host code takes.
    unsafe fn run(&self) -> Result<()> {
        let [x, y, z] = self.grid.map(u64::from);
        let total = x * y * z;
        let cost = ProgramCost::of(self.host);
        let chunks = match cost.of_programs(total) {
            Some(ns) if ns < FORK_JOIN_NS => 1,
            _ => total.min(CHUNKS_PER_THREAD * threads::count()? as u64),
        };
        let bound = |chunk: u64| (u128::from(total) * u128::from(chunk) / u128::from(chunks)) as u64;
        let run = |chunk| {
            with_scratch(self.host.scratch_bytes, |scratch| {
                let start = (chunk == 0).then(Instant::now);
                // SAFETY: passed on to the caller; the scratch memory is as long as the entry needs.
                unsafe { self.run_chunk(bound(chunk), bound(chunk + 1), scratch) };
                if let Some(start) = start {
                    cost.update(start.elapsed(), bound(1));
                }
            })
        };
        if chunks == 1 { run(0) } else { (0..chunks).into_par_iter().try_for_each(run) }
    }

    /// Runs the programs `first..last` of the grid's linear order.
    ///
    /// # Safety
    /// `args` must be what the host code takes, and `scratch` the memory it needs.
    unsafe fn run_chunk(&self, first: u64, last: u64, scratch: *mut u8) {
        let [width, height, _] = self.grid.map(u64::from);
        let mut next = first;
        while next < last {
            let (row, x) = (next / width, next % width);
            let end = width.min(x + (last - next));
            let (y, z) = (row % height, row / height);
            // SAFETY: passed on to the caller. All numbers are below the extents, which are 32 bits wide.
            unsafe {
                let grid = self.grid.as_ptr();
                (self.host.entry)(
                    self.args.as_ptr(),
                    x as u32,
                    end as u32,
                    y as u32,
                    z as u32,
                    grid,
                    scratch,
                );
            }
            next += end - x;
        }
    }
}

/// The time of a program of some host code when last measured, in nanoseconds as `f32` bits; 0 before that.
///
/// Two codes may share one and disturb each other's estimate, which costs time and nothing else.
struct ProgramCost(AtomicU32);

impl ProgramCost {
    fn of(host: &'static Host) -> &'static ProgramCost {
        static COSTS: [ProgramCost; 256] = [const { ProgramCost(AtomicU32::new(0)) }; 256];
        &COSTS[std::ptr::from_ref(host).addr() / size_of::<Host>() % COSTS.len()]
    }

    /// About how long so many programs take on one thread, in nanoseconds.
    fn of_programs(&self, programs: u64) -> Option<f64> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            bits => Some(f64::from(f32::from_bits(bits)) * programs as f64),
        }
    }

    fn update(&self, taken: Duration, programs: u64) {
        // At least a little, as 0 stands for not known.
        let ns = (taken.as_nanos() as f32 / programs as f32).max(1e-3);
        self.0.store(ns.to_bits(), Ordering::Relaxed);
    }
}

/// Calls `f` with `bytes` of this thread's scratch memory, which starts on a 64-byte boundary and holds anything.
fn with_scratch(bytes: usize, f: impl FnOnce(*mut u8)) -> Result<()> {
    thread_local! {
        static SCRATCH: Cell<Option<HostMemory<u8>>> = const { Cell::new(None) };
    }
    // Taken out while in use, so that a call from within `f` gets other memory.
    let cached = SCRATCH.take().filter(|memory| memory.len() >= bytes);
    let mut memory = match cached {
        Some(memory) => memory,
        None => HostMemory::zeros(bytes)?,
    };
    f(memory.as_mut_ptr());
    SCRATCH.set(Some(memory));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_follow_the_last_measurement() {
        let cost = ProgramCost(AtomicU32::new(0));
        assert_eq!(cost.of_programs(10), None);
        cost.update(Duration::from_nanos(800), 4);
        assert_eq!(cost.of_programs(10), Some(2000.0));
        cost.update(Duration::ZERO, 4);
        assert!(cost.of_programs(1).unwrap() > 0.0);
    }

    #[test]
    fn scratch_is_aligned_reused_and_private() {
        let mut outer = 0;
        with_scratch(100, |first| {
            outer = first.addr();
            with_scratch(100, |second| assert_ne!(first, second)).unwrap();
        })
        .unwrap();
        assert_eq!(outer % 64, 0);
        with_scratch(50, |again| assert_eq!(again.addr() % 64, 0)).unwrap();
        with_scratch(0, |none| assert_eq!(none.addr() % 64, 0)).unwrap();
    }
}
