//! Emission of a program for one CPU thread.
//!
//! A program is a sequence of loop nests over whole tiles. A tile is not computed where it is defined but where it is
//! used: a store, a reduction or a materialized value runs a nest over its elements, a vector of them at a time, and
//! asks each operand for the same elements, down to loads and ranges ([`Host::at`]). That fuses everything between. A
//! value is materialized, in scratch memory, when several nests would otherwise repeat work on it, when it reads memory
//! that the kernel writes, or when a loop carries it ([`ScratchPlan`]). A kernel with views has two versions, of which one is for
//! views that are contiguous along the last axis: only there is a row a vector.

mod atomic;
mod control;
mod debug;
mod division;
mod dot;
mod dot_block;
mod gpu_only;
mod histogram;
mod lanes;
mod memory;
mod nest;
mod prefetch;
mod race;
mod random;
mod rearrange;
mod reduce;
mod scan;
mod special_register;
mod transpose_square;
mod view;

use std::collections::{BTreeMap, HashMap};

use tile_ir::analysis::axis_info::{AxisInfoMap, LaunchAssumptions};
use tile_ir::ir::guard::Guard;
use tile_ir::ir::{Block, Func, Op, Param, ParamId, ParamKind, Value};
use tile_ir::ops::for_each_op;

use crate::mlir::builder::{Builder, IntPredicate, Val};
use crate::mlir::machine;
use crate::mlir::session::{Argument, ArgumentKind, EntryKind, ModuleBuilder};
use crate::mlir::types::{Elem, Space, Ty};
use crate::mlir::{AccessFlags, Machine, report, rounding};

use crate::cpu::emit::nest::Point;
pub use crate::cpu::emit::race::{NotedAccess, NotedAccesses};
pub use crate::cpu::plan::ScratchPlan;

/// How an operation is emitted for a CPU thread. An operation implements `run` or `at`, or both.
pub trait CpuEmit {
    /// Runs a statement: an operation with an effect, with scalar results, or one that fills buffers itself. A scalar
    /// result is its one element, unless the operation says otherwise.
    fn run(&self, host: &mut Host, b: &mut Builder, op: &Op) {
        let value = self.at(host, b, op, &Point::scalar());
        host.define(op.results[0], value);
    }

    /// Elements of the result at a point.
    fn at(&self, host: &mut Host, b: &mut Builder, op: &Op, point: &Point) -> Val {
        let _ = (host, b, point);
        panic!("{} has no elements of its own", op.kind.operation().name());
    }

    /// What repeating the operation for one element costs; a plain arithmetic instruction is 1.
    fn cost(&self) -> u32 {
        1
    }

    /// Whether its tile results are filled by [`CpuEmit::run`] where it stands.
    fn is_statement(&self) -> bool {
        false
    }

    /// Whether its code differs where there are more registers.
    fn differs_by_registers(&self) -> bool {
        false
    }

    /// Functions that its code calls.
    fn shared_functions(&self, func: &Func, op: &Op, machine: Machine) -> Vec<SharedFunction> {
        let _ = (func, op, machine);
        vec![]
    }

    /// Bytes of workspace, beside the buffers of its results.
    fn workspace(&self, func: &Func, op: &Op) -> u64 {
        let _ = (func, op);
        0
    }

    /// Operands whose buffers it reads in an order of its own.
    fn random_access_operands(&self, func: &Func, op: &Op) -> Vec<Value> {
        let _ = (func, op);
        vec![]
    }
}

/// A function that all versions of a kernel call, whichever needs it; those of one name are the same.
pub struct SharedFunction {
    name: String,
    arguments: Vec<Argument>,
    body: Box<FunctionBody>,
}

type FunctionBody = dyn FnOnce(&mut Builder, &[Val]);

macro_rules! emitters {
    ($($name:ident),* $(,)?) => {
        /// The emission of an operation for a CPU thread.
        pub fn emitter(kind: &tile_ir::ops::Kind) -> &dyn CpuEmit {
            match kind {
                $(tile_ir::ops::Kind::$name(op) => op,)*
            }
        }
    };
}

for_each_op!(emitters);

/// A kernel, ready to be emitted for the host.
#[derive(Debug)]
pub struct CpuPlan {
    general: CpuVersion,
    /// Each for arguments in which these scalars have the constants given. The entry picks one: conditions on the strides
    /// of views would otherwise be tested for each element.
    specialized: Vec<(CpuVersion, Vec<(ParamId, i64)>)>,
}

/// The kernel, compiled for some of its arguments.
#[derive(Debug)]
struct CpuVersion {
    func: Func,
    scratch: ScratchPlan,
    axes: AxisInfoMap,
    /// Those of all versions.
    noted: NotedAccesses,
}

impl CpuVersion {
    fn new(func: Func, noted: NotedAccesses) -> CpuVersion {
        let scratch = ScratchPlan::new(&func);
        let axes = AxisInfoMap::analyze(&func, &LaunchAssumptions::default());
        CpuVersion { func, scratch, axes, noted }
    }
}

impl CpuPlan {
    pub fn new(func: Func) -> CpuPlan {
        CpuPlan { general: CpuVersion::new(func, NotedAccesses::default()), specialized: vec![] }
    }

    /// Notes the accesses that may race, in code that reports; to be called before versions are added.
    pub fn noting_accesses(mut self) -> CpuPlan {
        self.general.noted = NotedAccesses::of(&self.general.func);
        self
    }

    /// With another version of the kernel for arguments for which these guards hold: scalars that are equal to constants.
    pub fn with_specialized(mut self, guards: &[Guard], func: Func) -> CpuPlan {
        let constants = guards.iter().filter_map(|guard| match *guard {
            Guard::Equal { scalar, value } => Some((ParamId(scalar), value)),
            Guard::Aligned { .. }
            | Guard::Divisible { .. }
            | Guard::Magnitude { .. }
            | Guard::AtMost { .. } => None,
        });
        let constants: Vec<(ParamId, i64)> = constants.collect();
        debug_assert_eq!(constants.len(), guards.len());
        self.specialized.push((CpuVersion::new(func, self.noted().clone()), constants));
        self
    }

    fn versions(&self) -> impl Iterator<Item = &CpuVersion> {
        std::iter::once(&self.general).chain(self.specialized.iter().map(|(version, _)| version))
    }

    /// Scratch memory of one program, in bytes.
    pub fn scratch_bytes(&self) -> u64 {
        self.versions().map(|version| version.scratch.bytes()).max().unwrap_or(0)
    }

    /// Whether CPUs with more registers get other code.
    pub fn differs_by_registers(&self) -> bool {
        let mut differs = false;
        self.general.func.body.walk(&mut |op| differs |= emitter(&op.kind).differs_by_registers());
        differs
    }

    /// Whether the code takes a record: it reports, or reads the clock.
    pub fn reports(&self) -> bool {
        let takes = |func| report::reports(func) || special_register::reads_clock(func);
        !self.noted().is_empty() || self.versions().any(|version| takes(&version.func))
    }

    /// The accesses that the code notes.
    pub fn noted(&self) -> &NotedAccesses {
        &self.general.noted
    }

    /// Adds the kernel to a module under the name `entry`; the signature is `dsl_runtime::kernel::HostEntry`.
    pub fn emit<'a>(&'a self, module: &mut ModuleBuilder<'a>, entry: &str) {
        let reports = self.reports();
        for (name, function) in self.shared_functions(module.machine) {
            let name = shared_name(entry, &name);
            module.function(&name, &function.arguments, &EntryKind::Internal, function.body);
        }
        let mut programs = vec![];
        for (number, version) in self.versions().enumerate() {
            let program = if number == 0 {
                format!("{entry}_program")
            } else {
                format!("{entry}_special_program_{number}")
            };
            let own = entry.to_string();
            module.function(&program, &self.program_arguments(), &EntryKind::Internal, move |b, args| {
                Host::new(version, own, reports, b, args).block(b, &version.func.body);
            });
            programs.push(program);
        }
        let pointer = Ty::scalar(Elem::Ptr(Space::Generic));
        let types = [pointer, Ty::I32, Ty::I32, Ty::I32, Ty::I32, pointer, pointer];
        let arguments = types.map(|ty| Argument { ty, kind: ArgumentKind::Plain });
        module.function(entry, &arguments, &EntryKind::Host, move |b, args| self.entry(b, &programs, args));
    }

    /// The functions that versions share, by name.
    fn shared_functions(&self, machine: Machine) -> BTreeMap<String, SharedFunction> {
        let mut found = BTreeMap::new();
        if !self.noted().is_empty() {
            found.insert(race::NOTE.to_string(), race::function());
        }
        for CpuVersion { func, .. } in self.versions() {
            func.body.walk(&mut |op| {
                let functions = emitter(&op.kind).shared_functions(func, op, machine);
                found.extend(functions.into_iter().map(|function| (function.name.clone(), function)));
            });
        }
        found
    }

    /// A slice is its address and length, a scalar its value; then program ids, grid extents and scratch; then, if the
    /// kernel reports, the record's address.
    fn program_arguments(&self) -> Vec<Argument> {
        let plain = |ty| Argument { ty, kind: ArgumentKind::Plain };
        let memory = |kind| Argument { ty: Ty::scalar(Elem::Ptr(Space::Generic)), kind };
        let mut list = vec![];
        for param in &self.general.func.params {
            match param.kind {
                ParamKind::Slice { mutable, .. } => {
                    list.push(memory(if mutable { ArgumentKind::Exclusive } else { ArgumentKind::ReadOnly }));
                    list.push(plain(Ty::I64));
                }
                ParamKind::Scalar { dtype, .. } => list.push(plain(argument_type(dtype))),
            }
        }
        list.extend([plain(Ty::I32); 6]);
        list.push(memory(ArgumentKind::Exclusive));
        if self.reports() {
            list.push(memory(ArgumentKind::Plain));
        }
        list
    }

    /// Unpacks the arguments once and runs the programs of the range, by the version that is for them.
    fn entry(&self, b: &mut Builder, programs: &[String], args: &[Val]) {
        let &[list, first, last, y, z, grid, scratch] = args else { unreachable!("the signature has seven") };
        let slot = |b: &mut Builder, slot: usize, ty: Ty| {
            let pointer = b.offset_bytes(list, slot as i32 * 8);
            b.load(pointer, ty, AccessFlags::aligned(8))
        };
        let mut operands = vec![];
        let slots = self.slots(self.general.func.params.len());
        for (position, argument) in self.program_arguments().iter().enumerate().take(slots) {
            operands.push(slot(b, position, argument.ty));
        }
        let record = self.reports().then(|| slot(b, slots, scratch.ty));
        let extents: Vec<Val> = (0..3)
            .map(|axis| {
                let pointer = b.offset_bytes(grid, axis * 4);
                b.load(pointer, Ty::I32, AccessFlags::aligned(4))
            })
            .collect();
        let (first, last) = (b.zext(first, Elem::I64), b.zext(last, Elem::I64));
        let mut conditions = vec![];
        for (_, constants) in &self.specialized {
            let equal = constants.iter().map(|&(param, constant)| {
                let argument = operands[self.slots(param.index())];
                let constant = b.int(argument.ty, constant);
                b.icmp(IntPredicate::Eq, argument, constant)
            });
            let equal: Vec<Val> = equal.collect();
            conditions.extend(equal.into_iter().reduce(|all, one| b.and(all, one)));
        }
        let one = b.int(Ty::I64, 1);
        let run = |b: &mut Builder, program: &str| {
            b.for_range([first, last, one], &[], |b, x, _| {
                let x = b.trunc(x, Elem::I32);
                let ids = [x, y, z];
                let rest = [scratch].into_iter().chain(record);
                let all: Vec<Val> =
                    operands.iter().chain(&ids).chain(&extents).copied().chain(rest).collect();
                b.call_function(program, &all);
                vec![]
            });
            vec![]
        };
        let (general, special) = programs.split_first().expect("there is a general version");
        choose(b, &conditions, special, general, &run);
    }

    /// Eight-byte slots that the first parameters take.
    fn slots(&self, params: usize) -> usize {
        let slots = |param: &Param| if matches!(param.kind, ParamKind::Slice { .. }) { 2 } else { 1 };
        self.general.func.params[..params].iter().map(slots).sum()
    }
}

/// Runs the first program whose condition holds, or the general one.
fn choose(
    b: &mut Builder,
    conditions: &[Val],
    special: &[String],
    general: &str,
    run: &dyn Fn(&mut Builder, &str) -> Vec<Val>,
) {
    match (conditions, special) {
        ([first, conditions @ ..], [program, special @ ..]) => {
            let others = |b: &mut Builder| {
                choose(b, conditions, special, general, run);
                vec![]
            };
            b.if_else(*first, &[], |b| run(b, program), others);
        }
        _ => {
            run(b, general);
        }
    }
}

/// The symbol of a shared function: those of a crate's kernels stand in one assembly text.
fn shared_name(entry: &str, name: &str) -> String {
    format!("{entry}_{name}")
}

/// How a scalar argument is passed: 16-bit floats as their bits, a `bool` as a byte.
fn argument_type(dtype: tile_ir::support::dtype::DType) -> Ty {
    if dtype == tile_ir::support::dtype::DType::Bool {
        Ty::I8
    } else {
        machine::scalar(dtype, rounding::BASELINE)
    }
}

#[derive(Clone, Copy, Debug)]
struct HostSlice {
    pointer: Val,
    length: Val,
}

/// The state of emitting one program.
pub struct Host<'a> {
    plan: &'a CpuVersion,
    func: &'a Func,
    /// The kernel's entry.
    entry: String,
    scalars: HashMap<Value, Val>,
    slices: Vec<Option<HostSlice>>,
    program: [Val; 3],
    grid: [Val; 3],
    scratch: Val,
    /// Where a failure is reported, if it is.
    record: Option<Val>,
    /// Elements that were emitted already, one table for each open region.
    known: Vec<HashMap<nest::PointKey, Val>>,
    /// The definition of every value.
    definitions: HashMap<Value, &'a Op>,
    /// The induction variable of each enclosing loop, and its value in the next iteration.
    induction_variables: Vec<(Value, Val)>,
}

impl<'a> Host<'a> {
    fn new(plan: &'a CpuVersion, entry: String, reports: bool, b: &mut Builder, args: &[Val]) -> Host<'a> {
        let func = &plan.func;
        let mut rest = args.iter().copied();
        let mut next = || rest.next().expect("as many arguments as `program_arguments` listed");
        let mut scalars = HashMap::new();
        let mut slices = vec![];
        for param in &func.params {
            match param.kind {
                ParamKind::Slice { .. } => slices.push(Some(HostSlice { pointer: next(), length: next() })),
                ParamKind::Scalar { value, dtype } => {
                    let mut argument = next();
                    if dtype == tile_ir::support::dtype::DType::Bool {
                        let zero = b.int(Ty::I8, 0);
                        argument = b.icmp(IntPredicate::Ne, argument, zero);
                    }
                    scalars.insert(value, argument);
                    slices.push(None);
                }
            }
        }
        let program = [next(), next(), next()];
        let grid = [next(), next(), next()];
        let scratch = next();
        let record = reports.then(next);
        let definitions = func.definitions();
        let known = vec![HashMap::new()];
        Host {
            plan,
            func,
            entry,
            scalars,
            slices,
            program,
            grid,
            scratch,
            record,
            known,
            definitions,
            induction_variables: vec![],
        }
    }

    /// Runs the statements of a block; everything else is emitted where it is used.
    fn block(&mut self, b: &mut Builder, block: &Block) {
        for op in &block.ops {
            let tiles = op.results.iter().any(|&result| !self.func.ty(result).is_scalar());
            if !tiles || emitter(&op.kind).is_statement() {
                emitter(&op.kind).run(self, b, op);
            } else if self.plan.scratch.buffer(op.results[0]).is_some() {
                self.materialize(b, op.results[0]);
            }
        }
    }

    /// Runs `body` in a region whose values are not visible outside it.
    fn scope<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.known.push(HashMap::new());
        let result = body(self);
        self.known.pop();
        result
    }

    /// Calls a shared function.
    fn call(&self, b: &mut Builder, name: &str, operands: &[Val]) {
        b.call_function(&shared_name(&self.entry, name), operands);
    }

    fn scalar(&self, value: Value) -> Val {
        *self.scalars.get(&value).unwrap_or_else(|| panic!("{value:?} was not emitted"))
    }

    fn define(&mut self, value: Value, val: Val) {
        self.scalars.insert(value, val);
    }

    fn slice(&self, param: ParamId) -> HostSlice {
        self.slices[param.index()].expect("memory operations name slices")
    }

    fn dtype(&self, value: Value) -> tile_ir::support::dtype::DType {
        self.func.ty(value).dtype
    }

    /// The machine type of one element of `value`.
    fn elem_type(&self, b: &Builder, value: Value) -> Ty {
        machine::scalar(self.dtype(value), b.machine)
    }
}
