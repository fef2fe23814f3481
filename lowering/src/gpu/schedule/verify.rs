//! The laws of a schedule, as far as they can be decided without running it. Every pass is followed by this verifier; what it cannot
//! see, the simulator finds (`devtools::schedule_simulator`).
//!
//! 1. Buffers, barriers and published work tiles do not overlap in shared memory, are aligned and fit in it.
//! 2. Registers of all roles fit in those of a multiprocessor.
//! 3. Every barrier is initialized, and its arrivals are those of the roles that arrive at it.
//! 4. No role waits on a barrier that nobody else arrives at.
//! 5. A TMA load fills a stage behind a wait on its empty barrier, and the bytes of the loads of a stage are those expected at its
//!    full barrier ([`role`]).
//! 6. A stage is read behind a wait on its full barrier and before its release ([`role`]).
//! 7. The result of an asynchronous dot is read behind a wait for it, and so are the stages released that it reads ([`role`]).
//! 8. A role ends without dots or stores in flight ([`role`]).
//! 9. Behind the last pass, no access needs a barrier that does not stand before it ([`membar`](super::membar)). Two exchanges of
//!    partial results without a barrier between them use different halves of their memory.
//! 10. Buffers of reductions alternate by the loop in whose body they stand, which counts its iterations ([`exchange`]).
//! 11. A reduction waits at an `mbarrier` that all blocks of the cluster have initialized ([`exchange`]).
//! 12. A warpgroup reads a tile of a slot behind a proxy fence and a barrier, both behind the wait for its copies, and behind what threads store
//!     there ([`role`]).
//! 13. A tile of a slot that a warpgroup reads is laid out in panels.
//!
//! Errors name operations and values as the function prints them.

mod exchange;
mod flow;
mod role;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use self::exchange::ExchangeFlow;
use self::role::RoleFlow;
use super::membar::{MissingBarrier, first_missing_barrier};
use super::tma_pipeline::{ALIGNMENT, MAX_BYTES, producer_warps};
use super::work_tiles::WorkTileLayout;
use super::{MBARRIER_BYTES, Schedule};
use tile_ir::ir::{Func, Op, Storage, Value, ValueNames};
use tile_ir::ops::schedule::{LineOrder, OperandTile, Role, StagedOperand};
use tile_ir::ops::{Kind, SmemAlloc, WarpSpecialize};

/// Registers of a multiprocessor.
const SM_REGISTERS: u32 = 64 * 1024;
/// What `setmaxnreg` takes: multiples of a step, between these.
const REGISTER_STEP: u32 = 8;
const THREAD_REGISTERS: [u32; 2] = [24, 256];

/// Checks the laws of a function whose consumers are so many warps; the error says which operation breaks which.
pub fn verify_schedule(func: &Func, num_warps: u32) -> Result<(), String> {
    let verifier = ScheduleVerifier { func, num_warps, names: OnceCell::new() };
    verifier.memory()?;
    verifier.slot_tiles()?;
    ExchangeFlow::new(&verifier).block(&func.body, None)?;
    let roles = func.body.ops.iter().find_map(|op| {
        let Kind::WarpSpecialize(roles) = &op.kind else { return None };
        Some((op, roles))
    });
    let uses = roles.map(|(_, roles)| BarrierUses::new(roles)).unwrap_or_default();
    let mut flow =
        RoleFlow { verifier: &verifier, uses: &uses, role: Role::Consumer, empty: BTreeMap::new() };
    let Some((op, roles)) = roles else {
        return if has_slots(func) { flow.run(&func.body) } else { Ok(()) };
    };
    verifier.registers(op, roles)?;
    verifier.arrivals(&uses)?;
    verifier.waits(&uses)?;
    flow.role = Role::Producer;
    flow.run(&roles.producer)?;
    flow.role = Role::Consumer;
    flow.run(&roles.consumer)
}

impl ScheduleVerifier<'_> {
    /// Law 13.
    fn slot_tiles(&self) -> Result<(), String> {
        let mut tiles = BTreeMap::new();
        let mut read = vec![];
        self.func.body.walk(&mut |op| {
            if let Kind::SlotTile(tile) = &op.kind {
                tiles.insert(op.results[0], (op, tile));
            }
            if let Kind::Wgmma(dot) = &op.kind {
                read.extend(dot.smem_operands().into_iter().map(StagedOperand::memory));
            }
        });
        for (op, tile) in read.into_iter().filter_map(|memory| tiles.get(&memory)) {
            let ty = self.func.ty(op.results[0]);
            if tile.tile != OperandTile::new(ty, tile.fast, LineOrder::Panels) {
                return self.fault(op, "a warpgroup reads it, and it is not in panels");
            }
        }
        Ok(())
    }
}

/// Whether loops copy to slots.
fn has_slots(func: &Func) -> bool {
    let mut found = false;
    func.body.walk(&mut |op| found |= matches!(op.kind, Kind::RingStart(_)));
    found
}

/// Checks law 9; the error says before which operation a barrier is missing. It repeats the analysis of [`membar`](super::membar) in every
/// build, which is at most 0.04 % of the time to lower a kernel (`examples/lowering_time.rs`).
pub fn verify_barriers(schedule: &Schedule) -> Result<(), String> {
    let place = match first_missing_barrier(schedule) {
        None => return Ok(()),
        Some(MissingBarrier::EndOfBlock) => "the end of a block".to_string(),
        Some(MissingBarrier::Before(op)) => {
            let func = &schedule.distributed.func;
            format!("`{}`", ValueNames::new(func).op(func, op))
        }
    };
    Err(format!("a barrier is missing before {place}"))
}

struct ScheduleVerifier<'f> {
    func: &'f Func,
    /// Warps of the consumers.
    num_warps: u32,
    /// Made when there is something to report.
    names: OnceCell<ValueNames>,
}

/// Who uses a barrier how; a role by its operations.
#[derive(Default)]
struct BarrierUses<'f> {
    waits: Vec<(Role, Value, &'f Op)>,
    arrivals: BTreeMap<Value, BTreeSet<&'static str>>,
    /// The barriers at which the loads into a buffer complete.
    full: BTreeMap<Value, BTreeSet<Value>>,
    /// Barriers at which consumers arrive.
    released: BTreeSet<Value>,
}

impl<'f> BarrierUses<'f> {
    fn new(roles: &'f WarpSpecialize) -> BarrierUses<'f> {
        let mut uses = BarrierUses::default();
        for (role, block) in [(Role::Producer, &roles.producer), (Role::Consumer, &roles.consumer)] {
            block.walk(&mut |op| uses.add(role, op));
        }
        uses
    }

    fn add(&mut self, role: Role, op: &'f Op) {
        if let Kind::MbarWait(wait) = &op.kind {
            self.waits.push((role, wait.barrier.buffer, op));
        }
        if let Kind::MbarArrive(arrive) = &op.kind {
            self.arrivals.entry(arrive.barrier.buffer).or_default().insert(role.name());
            if role == Role::Consumer {
                self.released.insert(arrive.barrier.buffer);
            }
        }
        if let Kind::ExpectTx(expect) = &op.kind {
            self.arrivals.entry(expect.barrier.buffer).or_default().insert(role.name());
        }
        if let Kind::TmaLoad(load) = &op.kind {
            self.full.entry(load.to.buffer).or_default().insert(load.signal);
        }
    }
}

/// Bytes of shared memory, and what they are of.
struct SmemRange {
    start: u32,
    end: u32,
    of: String,
}

impl ScheduleVerifier<'_> {
    fn name(&self, value: Value) -> String {
        self.names.get_or_init(|| ValueNames::new(self.func)).name(value)
    }

    fn text(&self, op: &Op) -> String {
        self.names.get_or_init(|| ValueNames::new(self.func)).op(self.func, op)
    }

    /// What an operation does wrong.
    fn fault<T>(&self, op: &Op, what: impl AsRef<str>) -> Result<T, String> {
        Err(format!("`{}`: {}", self.text(op), what.as_ref()))
    }

    /// Law 1.
    fn memory(&self) -> Result<(), String> {
        let mut ranges = vec![];
        let mut work_tiles = BTreeMap::new();
        let mut found = Ok(());
        self.func.body.walk(&mut |op| {
            let mut own = Ok(vec![]);
            if let Kind::SmemAlloc(alloc) = &op.kind {
                own = self.buffer_ranges(op, alloc);
            }
            if let Kind::MbarAlloc(alloc) = &op.kind {
                own = self.barrier_range(op, alloc.address);
            }
            if let Kind::WorkTiles(work) = &op.kind {
                let layout = WorkTileLayout { address: work.address, scalars: work.scalars.len() as u32 };
                work_tiles.insert((work.address, work.dynamic), layout);
            }
            match own {
                Ok(own) => ranges.extend(own),
                Err(what) if found.is_ok() => found = Err(what),
                Err(_) => {}
            }
        });
        found?;
        for ((start, dynamic), layout) in work_tiles {
            ranges.push(SmemRange { start, end: layout.full_barriers(), of: "the work tiles".into() });
            if dynamic {
                let start = layout.counter_slot();
                let of = "the slot of the tile counter".into();
                ranges.push(SmemRange { start, end: start + MBARRIER_BYTES, of });
            }
        }
        apart(ranges)
    }

    fn buffer_ranges(&self, op: &Op, alloc: &SmemAlloc) -> Result<Vec<SmemRange>, String> {
        let ty = self.func.ty(op.results[0]);
        let Storage::Smem { stages } = ty.storage else { return self.fault(op, "gives no buffer") };
        let bytes = ty.shape.elements() as u32 * ty.dtype.bytes();
        let stage = |stage: u32| {
            let start = alloc.address + stage * alloc.stride;
            if !start.is_multiple_of(ALIGNMENT) {
                return self.fault(op, format!("stage {stage} is at {start}, no multiple of {ALIGNMENT}"));
            }
            let of = format!("stage {stage} of {}", self.name(op.results[0]));
            Ok(SmemRange { start, end: start + bytes, of })
        };
        (0..stages).map(stage).collect()
    }

    fn barrier_range(&self, op: &Op, start: u32) -> Result<Vec<SmemRange>, String> {
        let Storage::Mbarrier { stages, .. } = self.func.ty(op.results[0]).storage else {
            return self.fault(op, "gives no barriers");
        };
        if !start.is_multiple_of(MBARRIER_BYTES) {
            return self.fault(op, format!("a barrier is at {start}, no multiple of {MBARRIER_BYTES}"));
        }
        let of = self.name(op.results[0]);
        Ok(vec![SmemRange { start, end: start + stages * MBARRIER_BYTES, of }])
    }

    /// Law 2.
    fn registers(&self, op: &Op, roles: &WarpSpecialize) -> Result<(), String> {
        let Some(registers) = roles.registers else { return Ok(()) };
        let [least, most] = THREAD_REGISTERS;
        for own in registers {
            if !own.is_multiple_of(REGISTER_STEP) || !(least..=most).contains(&own) {
                return self.fault(op, format!("a thread cannot have {own} registers"));
            }
        }
        let all = 32 * (producer_warps(self.num_warps) * registers[0] + self.num_warps * registers[1]);
        if all > SM_REGISTERS {
            return self.fault(op, format!("all threads have {all} registers, more than {SM_REGISTERS}"));
        }
        Ok(())
    }

    /// Law 3.
    fn arrivals(&self, uses: &BarrierUses) -> Result<(), String> {
        let mut initialized = BTreeSet::new();
        for op in &self.func.body.ops {
            if let Kind::MbarInit(init) = &op.kind {
                for &barrier in &init.barriers {
                    if !initialized.insert(barrier) {
                        return self.fault(op, format!("{} is initialized twice", self.name(barrier)));
                    }
                }
            }
        }
        let waited = uses.waits.iter().map(|(_, barrier, _)| barrier);
        if let Some(&barrier) = waited.chain(uses.arrivals.keys()).find(|used| !initialized.contains(used)) {
            return Err(format!("{} is never initialized", self.name(barrier)));
        }
        for (&barrier, roles) in &uses.arrivals {
            let Storage::Mbarrier { arrivals, .. } = self.func.ty(barrier).storage else { continue };
            // One thread is the producer; of consumers one of each warp arrives.
            let of_role = |role: &&str| if *role == Role::Consumer.name() { self.num_warps } else { 1 };
            let expected: u32 = roles.iter().map(of_role).sum();
            if arrivals != expected {
                let roles: Vec<&str> = roles.iter().copied().collect();
                return Err(format!(
                    "a phase of {} takes {arrivals} arrivals, and {} arrives {expected} times",
                    self.name(barrier),
                    roles.join(" and ")
                ));
            }
        }
        Ok(())
    }

    /// Law 4.
    fn waits(&self, uses: &BarrierUses) -> Result<(), String> {
        for &(role, barrier, op) in &uses.waits {
            let mut arriving = uses.arrivals.get(&barrier).into_iter().flatten();
            if !arriving.any(|other| *other != role.name()) {
                let what = format!("the {} waits, and nobody else arrives there", role.name());
                return self.fault(op, what);
            }
        }
        Ok(())
    }
}

/// Checks that no two ranges have bytes in common, and that all fit.
fn apart(mut ranges: Vec<SmemRange>) -> Result<(), String> {
    ranges.sort_by_key(|range| (range.start, range.end));
    for pair in ranges.windows(2) {
        let [first, second] = pair else { continue };
        if second.start < first.end {
            let SmemRange { start, end, of } = first;
            return Err(format!("{of} at {start}..{end} overlaps {} at {}", second.of, second.start));
        }
    }
    match ranges.iter().max_by_key(|range| range.end) {
        Some(last) if last.end > MAX_BYTES => {
            Err(format!("{} ends at {}, behind the {MAX_BYTES} bytes of shared memory", last.of, last.end))
        }
        _ => Ok(()),
    }
}
