//! Global memory: the arguments of a launch, and what loads and stores do with it.

use std::collections::HashMap;
use std::rc::Rc;

use super::agent::{Datum, Step};
use super::machine::Cx;
use super::number::Number;
use super::simulate::Simulate;
use super::tile::{Elements, TileValue, extents, for_each_index, moves_in_vectors, row_major};
use tile_ir::ir::guard::SymbolicSum;
use tile_ir::ir::launch_shape::LaunchShape;
use tile_ir::ir::{Func, Op, ParamId, ParamKind, Type, Value};
use tile_ir::ops::scalar::row;
use tile_ir::ops::{
    AddView, Atomic, AtomicChange, Length, Load, LoadView, MemAccess, NumPrograms, ProgramId, ReadRegister,
    Store, StoreView, TmaStore, ViewTile,
};
use tile_ir::support::dtype::DType;
use tile_ir::testing::value;

/// The arguments of a kernel, and how it is launched.
#[derive(Clone, Debug)]
pub struct Launch {
    pub grid: [u32; 3],
    /// Warps of a program.
    pub num_warps: u32,
    /// Blocks that run the programs of a persistent kernel.
    pub blocks: u32,
    /// Whether two neighboring blocks are a cluster.
    pub clusters: bool,
    pub(super) scalars: HashMap<Value, Number>,
    /// By parameter.
    pub(super) memory: HashMap<ParamId, GlobalMemory>,
}

/// The memory of a slice or a view.
#[derive(Clone, PartialEq, Debug)]
pub struct GlobalMemory {
    pub elements: Elements,
    /// Of a view, in the order of the function's axes.
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Launch {
    pub fn new(grid: [u32; 3], num_warps: u32) -> Launch {
        let (scalars, memory) = (HashMap::new(), HashMap::new());
        Launch { grid, num_warps, blocks: 1, clusters: false, scalars, memory }
    }

    fn param(func: &Func, name: &str) -> ParamId {
        let position = func.params.iter().position(|param| param.name == name);
        ParamId(position.unwrap_or_else(|| panic!("no parameter {name}")) as u32)
    }

    /// A scalar argument.
    pub fn scalar(mut self, func: &Func, name: &str, number: Number) -> Launch {
        let param = &func.params[Launch::param(func, name).index()];
        let ParamKind::Scalar { value, .. } = param.kind else { panic!("{name} is memory") };
        self.scalars.insert(value, number);
        self
    }

    /// The elements of a slice.
    pub fn slice(mut self, func: &Func, name: &str, numbers: impl IntoIterator<Item = f64>) -> Launch {
        let param = Launch::param(func, name);
        let numbers = numbers.into_iter().map(Number::Float);
        let elements = Elements::of(func.slice(param).0, numbers);
        self.memory.insert(param, GlobalMemory { shape: vec![elements.len()], strides: vec![1], elements });
        self
    }

    /// A view of this shape, whose elements are in row-major order. The function may have its last two axes in the other order.
    pub fn view(self, func: &Func, name: &str, shape: &[usize], element: impl Fn(usize) -> f64) -> Launch {
        let count: usize = shape.iter().product();
        let layout = [shape.to_vec(), row_major(shape)];
        self.strided_view(func, name, layout, (0..count).map(|i| Number::Float(element(i))))
    }

    /// A view of this shape and these strides, in the order of the kernel's axes, and all elements of its memory.
    pub fn strided_view(
        mut self,
        func: &Func,
        name: &str,
        [mut shape, mut strides]: [Vec<usize>; 2],
        numbers: impl Iterator<Item = Number>,
    ) -> Launch {
        let param = Launch::param(func, name);
        let elements = Elements::of(func.slice(param).0, numbers);
        // Extents and strides are the parameters behind the memory, though the function may know one of them as a constant.
        for (param, &number) in func.params[param.index() + 1..].iter().zip(shape.iter().chain(&strides)) {
            if let ParamKind::Scalar { value, .. } = param.kind {
                self.scalars.insert(value, Number::Int(number as i128));
            }
        }
        let view = func.view(param).unwrap_or_else(|| panic!("{name} is no view"));
        if view.transposed {
            let rank = shape.len();
            shape.swap(rank - 2, rank - 1);
            strides.swap(rank - 2, rank - 1);
        }
        for (values, numbers) in [(&view.shape, &shape), (&view.strides, &strides)] {
            for (&value, &number) in values.iter().zip(numbers) {
                self.scalars.insert(value, Number::Int(number as i128));
            }
        }
        self.memory.insert(param, GlobalMemory { elements, shape, strides });
        self
    }

    /// The same with the views that a launch makes of slices.
    pub fn with_computed_views(mut self, func: &Func) -> Launch {
        let (known, grid) = (self.known(func), self.grid.map(i64::from));
        let number = |sum: &SymbolicSum| value(sum, &known, grid).expect("a sum of arguments") as usize;
        for view in &func.views {
            let Some(LaunchShape { extents, strides }) = &view.computed else { continue };
            let memory = self.memory.get_mut(&view.memory).expect("a slice");
            memory.shape = extents.iter().map(number).collect();
            memory.strides = strides.iter().map(number).collect();
        }
        self
    }

    /// The scalar arguments as integers, floats by the bits of an `f32`, and the lengths of slices, by the position of the parameter.
    pub fn known(&self, func: &Func) -> Vec<i64> {
        let params = func.params.iter().enumerate().map(|(position, param)| match param.kind {
            ParamKind::Scalar { value, .. } => self.scalars.get(&value).map_or(0, |&number| match number {
                Number::Int(value) => value as i64,
                Number::Float(value) => (value as f32).to_bits().into(),
            }),
            ParamKind::Slice { .. } => {
                self.memory.get(&ParamId(position as u32)).map_or(0, |memory| memory.elements.len() as i64)
            }
        });
        params.collect()
    }

    /// How many programs there are.
    pub(super) fn programs(&self) -> u32 {
        self.grid.iter().product()
    }

    /// The grid coordinates of a program.
    pub(super) fn coordinates(&self, index: u32) -> [u32; 3] {
        // A block without a program is at the first one's coordinates.
        let [x, y, _] = self.grid.map(|programs| programs.max(1));
        [index % x, index / x % y, index / x / y]
    }
}

/// A block of a view whose offsets are known.
#[derive(Clone, Debug)]
pub struct ViewBlock {
    memory: ParamId,
    offsets: Vec<i128>,
    extents: Vec<usize>,
}

impl GlobalMemory {
    /// The position of each element of a block in memory; `None` outside of the view.
    fn positions(&self, block: &ViewBlock) -> Vec<Option<usize>> {
        let mut positions = vec![];
        for_each_index(&block.extents, |index| {
            let axes = block.offsets.iter().zip(index).zip(self.shape.iter().zip(&self.strides));
            let parts = axes.map(|((offset, &i), (&extent, stride))| {
                let own = usize::try_from(offset + i as i128).ok().filter(|&own| own < extent)?;
                Some(own * stride)
            });
            positions.push(parts.sum());
        });
        positions
    }

    fn read(&self, dtype: DType, block: &ViewBlock) -> TileValue {
        let zero = Elements::zeros(dtype, 1).get(0);
        let numbers = self.positions(block).into_iter();
        let numbers = numbers.map(|position| position.map_or(zero, |position| self.elements.get(position)));
        TileValue { shape: block.extents.clone(), elements: Elements::of(dtype, numbers) }
    }

    fn write(&mut self, block: &ViewBlock, tile: &TileValue) {
        for (position, number) in self.positions(block).into_iter().zip(tile.elements.numbers()) {
            if let Some(position) = position {
                self.elements.set(position, number);
            }
        }
    }
}

impl Cx<'_, '_> {
    fn memory(&mut self, param: ParamId) -> Result<&mut GlobalMemory, String> {
        self.shared.memory.get_mut(&param).ok_or_else(|| format!("the launch has no {param:?}"))
    }

    /// A block of a view at the offsets that it has now.
    pub fn view_block(&self, tile: &ViewTile) -> Result<ViewBlock, String> {
        let offsets: Result<Vec<i128>, String> =
            tile.offsets.iter().map(|&offset| Ok(self.tile(offset)?.int())).collect();
        Ok(ViewBlock { memory: tile.memory, offsets: offsets?, extents: extents(&tile.extents) })
    }

    pub fn read_block(&mut self, block: &ViewBlock) -> Result<TileValue, String> {
        let dtype = self.shared.func.slice(block.memory).0;
        Ok(self.memory(block.memory)?.read(dtype, block))
    }

    pub fn write_block(&mut self, block: &ViewBlock, tile: &TileValue) -> Result<(), String> {
        self.memory(block.memory)?.write(block, tile);
        Ok(())
    }

    /// The position in its slice of each element of an access; `None` where it is masked off.
    fn accessed(&mut self, access: &MemAccess) -> Result<Vec<Option<usize>>, String> {
        let offsets = self.tile(access.offset)?;
        let base = access.base.map_or(Ok(0), |base| Ok::<_, String>(self.tile(base)?.int()))?;
        let mask = access.mask.map(|mask| self.tile(mask)).transpose()?;
        let length = self.memory(access.param)?.elements.len();
        let mut positions = vec![];
        for i in 0..offsets.elements.len() {
            if mask.as_ref().is_some_and(|mask| !mask.elements.get(i).is_true()) {
                positions.push(None);
                continue;
            }
            let offset = base + offsets.elements.get(i).int();
            let position = usize::try_from(offset).ok().filter(|&position| position < length);
            if position.is_none() && !access.bounded {
                return Err(format!("element {offset} is outside of a slice of {length}"));
            }
            positions.push(position);
        }
        let vector = access.vector as usize;
        if vector > 1 && access.shift.is_none() && !moves_in_vectors(&offsets.shape, &positions, vector) {
            return Err(format!("elements do not move in aligned vectors of {vector}"));
        }
        Ok(positions)
    }

    /// The elements of an access, over those for which its mask does not hold.
    pub fn read_elements(&mut self, access: &MemAccess, mut others: TileValue) -> Result<TileValue, String> {
        let positions = self.accessed(access)?;
        let memory = self.memory(access.param)?;
        for (i, position) in positions.into_iter().enumerate() {
            if let Some(position) = position {
                others.elements.set(i, memory.elements.get(position));
            }
        }
        Ok(others)
    }

    /// Runs a change of memory that must be done once, though each warpgroup of a role is simulated with whole tiles: the first one
    /// does it, the others take its result.
    fn once(
        &mut self,
        op: &Op,
        change: impl FnOnce(&mut Self) -> Result<TileValue, String>,
    ) -> Result<Step, String> {
        let address = std::ptr::from_ref(op).addr();
        let count = self.agent.changes.entry(address).or_default();
        *count += 1;
        let key = (address, *count);
        let known = self.cta().changes.get(&key).cloned();
        let old = match known {
            Some(old) => old,
            None => {
                let old = Rc::new(change(self)?);
                self.cta_mut().changes.insert(key, old.clone());
                old
            }
        };
        self.agent.values.insert(op.results[0], Datum::Tile(old));
        Ok(Step::Next)
    }
}

impl Simulate for Length {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let length = cx.memory(self.param)?.elements.len();
        cx.define_number(op, Number::Int(length as i128))
    }
}

impl Simulate for ProgramId {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let program = cx.agent.program[usize::from(self.axis)];
        cx.define_number(op, Number::Int(program.into()))
    }
}

impl Simulate for NumPrograms {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let programs = cx.shared.launch.grid[usize::from(self.axis)];
        cx.define_number(op, Number::Int(programs.into()))
    }
}

/// One multiprocessor, on which no time passes.
impl Simulate for ReadRegister {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        cx.define_number(op, Number::Int(0))
    }
}

impl Simulate for Load {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let ty = cx.shared.func.ty(op.results[0]).clone();
        let others = match self.other {
            Some(other) => (*cx.tile(other)?).clone(),
            None => TileValue::zeros(&ty),
        };
        let tile = cx.read_elements(&self.access, others)?;
        cx.define(op, vec![tile])
    }
}

impl Simulate for Store {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let value = cx.tile(self.value)?;
        let positions = cx.accessed(&self.access)?;
        let memory = cx.memory(self.access.param)?;
        for (i, position) in positions.into_iter().enumerate() {
            if let Some(position) = position {
                memory.elements.set(position, value.elements.get(i));
            }
        }
        Ok(Step::Next)
    }
}

/// An element after an atomic operation.
fn changed(change: AtomicChange, dtype: DType, [old, compare, value]: [Number; 3]) -> Result<Number, String> {
    let name = match change {
        AtomicChange::Add => "add",
        AtomicChange::Max => "maximum",
        AtomicChange::Min => "minimum",
        AtomicChange::And => "and",
        AtomicChange::Or => "or",
        AtomicChange::Xor => "xor",
        AtomicChange::Exchange => return Ok(value),
        AtomicChange::CompareExchange => return Ok(if old == compare { value } else { old }),
    };
    super::compute::row(row(name).expect("a row of the table"), dtype, &[old, value])
}

/// Changes elements of a slice, those with a position; gives what they were.
fn change_all(
    memory: &mut GlobalMemory,
    ty: &Type,
    positions: &[Option<usize>],
    new: impl Fn(usize, Number) -> Result<Number, String>,
) -> Result<TileValue, String> {
    let mut old = TileValue::zeros(ty);
    for (i, position) in positions.iter().enumerate() {
        if let &Some(position) = position {
            let before = memory.elements.get(position);
            old.elements.set(i, before);
            memory.elements.set(position, new(i, before)?);
        }
    }
    Ok(old)
}

impl Simulate for Atomic {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let ty = cx.shared.func.ty(op.results[0]).clone();
        cx.once(op, |cx| {
            let value = cx.tile(self.value)?;
            let compare = self.compare.map_or(Ok(value.clone()), |compare| cx.tile(compare))?;
            let positions = cx.accessed(&self.access)?;
            change_all(cx.memory(self.access.param)?, &ty, &positions, |i, old| {
                let operands = [old, compare.elements.get(i), value.elements.get(i)];
                changed(self.change, ty.dtype, operands)
            })
        })
    }
}

impl Simulate for AddView {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let ty = cx.shared.func.ty(op.results[0]).clone();
        cx.once(op, |cx| {
            let value = cx.tile(self.value)?;
            let block = cx.view_block(&self.tile)?;
            let memory = cx.memory(block.memory)?;
            let positions = memory.positions(&block);
            change_all(memory, &ty, &positions, |i, old| {
                let added = value.elements.get(i);
                changed(AtomicChange::Add, ty.dtype, [old, old, added])
            })
        })
    }
}

impl Simulate for LoadView {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let block = cx.view_block(&self.tile)?;
        let tile = cx.read_block(&block)?;
        cx.define(op, vec![tile])
    }
}

impl Simulate for StoreView {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let (value, block) = (cx.tile(self.value)?, cx.view_block(&self.tile)?);
        cx.write_block(&block, &value)?;
        Ok(Step::Next)
    }
}

impl Simulate for TmaStore {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, _: &'f Op) -> Result<Step, String> {
        let (value, block) = (cx.tile(self.value)?, cx.view_block(&self.tile)?);
        cx.agent.stores_in_flight = true;
        if cx.shared.is_early() {
            cx.write_block(&block, &value)?;
        } else {
            cx.shared.stores.push((block, value));
        }
        Ok(Step::Next)
    }
}

impl super::machine::Shared<'_> {
    /// TMA stores that are still under way reach memory.
    pub(super) fn finish_stores(&mut self) {
        for (block, tile) in std::mem::take(&mut self.stores) {
            if let Some(memory) = self.memory.get_mut(&block.memory) {
                memory.write(&block, &tile);
            }
        }
    }
}

impl GlobalMemory {
    /// The first element that differs from an expected one: NaN elsewhere, or a number by more than so many parts of it.
    pub fn difference(&self, expected: &GlobalMemory, tolerance: f64) -> Option<String> {
        let pairs = self.elements.numbers().zip(expected.elements.numbers());
        let differs = |(found, expected): (Number, Number)| match (found, expected) {
            (Number::Float(a), Number::Float(b)) if a.is_finite() && b.is_finite() => {
                (a - b).abs() > tolerance * b.abs().max(1.0)
            }
            (Number::Float(a), Number::Float(b)) => a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()),
            (a, b) => a != b,
        };
        let position = { pairs }.position(differs)?;
        let (found, expected) = (self.elements.get(position), expected.elements.get(position));
        Some(format!("[{position}] is {found:?}, expected {expected:?}"))
    }
}
