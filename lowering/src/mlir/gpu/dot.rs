//! Products of matrices: by the tensor cores of a warp, or by blocks of single threads.
//!
//! A factor that lies in the threads as the instruction takes it is multiplied from there: what was made of an earlier
//! product, say. Any other goes through shared memory, both factors with one barrier, from which fragments are read
//! when they are due: as matrices of 16-byte rows (`ldmatrix`) where they have such. Accumulators stay in their
//! registers.

use std::collections::HashMap;

use super::convert::Staging;
use super::emit::Emit;
use super::memory::pack;
use super::reduce::load;
use super::{Asm, Builder, Gpu, statement};
use crate::dtype::DType;
use crate::layout::dot::{Fragment, Instruction, Method, SIDES, Side, factor_layout, method};
use crate::layout::linear::LANE_BITS;
use crate::layout::{Coord, Distributed, Layout, Plan, plan};
use crate::mlir::builder::Val;
use crate::mlir::types::Ty;
use crate::mlir::{constant, rounding};
use crate::ops::{Dot, Number};
use crate::tile::{Op, Type};

/// A factor's part of the scratch.
struct Staged {
    start: u32,
    staging: Staging,
}

/// The factors of a product that go through shared memory.
struct Factors {
    staged: [Option<Staged>; 2],
    bytes: u32,
}

impl Factors {
    fn new(distributed: &Distributed, dot: &Dot, op: &Op) -> Factors {
        let sum = &distributed.layouts[&op.results[0]];
        let mut bytes = 0;
        let staged = SIDES.map(|side| {
            let value = dot.factor(side);
            let (ty, from) = (distributed.func.ty(value), &distributed.layouts[&value]);
            let held = match method(ty.dtype) {
                Method::Warp(own) => {
                    let to = factor_layout(own, side, &ty.shape, sum);
                    matches!(plan(from, &to), Plan::Registers(_))
                }
                Method::Thread => false,
            };
            (!held).then(|| {
                let staging = Staging::along(&ty.shape, ty.dtype, fast_axis(from, side));
                let start = bytes;
                bytes += (staging.elements * ty.dtype.bytes()).next_multiple_of(16);
                Staged { start, staging }
            })
        });
        Factors { staged, bytes }
    }
}

/// The axis of a factor that is summed over.
fn inner_axis(rank: usize, side: Side) -> usize {
    match side {
        Side::Left => rank - 1,
        Side::Right => rank - 2,
    }
}

/// The axis that the factor shares with the result.
fn outer_axis(rank: usize, side: Side) -> usize {
    match side {
        Side::Left => rank - 2,
        Side::Right => rank - 1,
    }
}

/// The axis along which a factor is written at its widest; where that is all one, the one that is summed over.
fn fast_axis(from: &Layout, side: Side) -> usize {
    let rank = from.shape().rank();
    let (inner, outer) = (inner_axis(rank, side), outer_axis(rank, side));
    if from.run(outer) > from.run(inner) { outer } else { inner }
}

impl Emit for Dot {
    fn scratch(&self, distributed: &Distributed, op: &Op) -> u32 {
        Factors::new(distributed, self, op).bytes
    }

    fn emit(&self, gpu: &mut Gpu, b: &mut Builder, op: &Op) {
        let factors = Factors::new(&gpu.plan.distributed, self, op);
        let bases = gpu.stage(b, self, op, &factors);
        let sums = match self.acc {
            Some(acc) => gpu.registers(acc).to_vec(),
            None => {
                let dtype = gpu.func.ty(op.results[0]).dtype;
                let number = if dtype.is_float() { Number::Float(0.0) } else { Number::Int(0) };
                let zero = constant(b, number, dtype, gpu.register_type(op.results[0]));
                vec![zero; gpu.register_count(op.results[0])]
            }
        };
        let sums = match method(gpu.func.ty(self.a).dtype) {
            Method::Warp(instruction) => self.by_warp(gpu, b, op, (instruction, &factors, bases), sums),
            Method::Thread => self.by_thread(gpu, b, op, (&factors, bases), sums),
        };
        gpu.define(op.results[0], sums);
    }
}

impl Gpu<'_> {
    /// Writes the factors that need it to shared memory; gives where each starts.
    fn stage(&mut self, b: &mut Builder, dot: &Dot, op: &Op, factors: &Factors) -> [Option<Val>; 2] {
        if factors.bytes == 0 {
            return [None; 2];
        }
        let place = self.shared.place(op.results[0]);
        self.before_write(b, place);
        let scratch = self.scratch();
        let bases = SIDES.map(|side| {
            let staged = factors.staged[side as usize].as_ref()?;
            let base = b.offset_bytes(scratch, (place.start + staged.start) as i32);
            self.write_tile(b, dot.factor(side), &staged.staging, base);
            Some(base)
        });
        self.barrier(b);
        self.shared.read(place);
        bases
    }
}

// ---- by warps

/// A factor where a warp takes its fragments from.
struct Source {
    dtype: DType,
    /// Where the elements of a fragment are, from its first on.
    offsets: Vec<Coord>,
    inner: usize,
    place: Place,
}

enum Place {
    Registers {
        values: Vec<Val>,
        places: HashMap<Coord, usize>,
    },
    /// From this thread's first element on.
    Memory {
        pointer: Val,
        strides: Vec<u32>,
        fast: usize,
    },
    /// In matrices of eight rows of 16 bytes, which a warp reads together: from the row on that this lane points at.
    Matrices {
        pointer: Val,
        strides: Vec<u32>,
        transposed: bool,
    },
}

impl Source {
    /// The words of the fragment whose first element is at `start`.
    fn words(&self, b: &mut Builder, start: Coord) -> Vec<Val> {
        let per_word = per_word(self.dtype);
        if let Place::Matrices { pointer, strides, transposed } = &self.place {
            let count = self.offsets.len() / per_word;
            let place = moved(b, *pointer, strides, self.dtype, start);
            return matrices(b, place, count, *transposed);
        }
        self.offsets
            .chunks(per_word)
            .map(|offsets| {
                let coords: Vec<Coord> = offsets.iter().map(|offset| start.plus(*offset)).collect();
                self.word(b, &coords)
            })
            .collect()
    }

    /// Elements that follow each other along the axis that is summed over.
    fn word(&self, b: &mut Builder, coords: &[Coord]) -> Val {
        let values: Vec<Val> = match &self.place {
            Place::Registers { values, places } => coords.iter().map(|coord| values[places[coord]]).collect(),
            Place::Memory { pointer, strides, fast } if *fast == self.inner => {
                let place = moved(b, *pointer, strides, self.dtype, coords[0]);
                load(b, place, self.dtype, coords.len())
            }
            Place::Memory { pointer, strides, .. } | Place::Matrices { pointer, strides, .. } => coords
                .iter()
                .map(|coord| {
                    let place = moved(b, *pointer, strides, self.dtype, *coord);
                    load(b, place, self.dtype, 1)[0]
                })
                .collect(),
        };
        if self.dtype.bytes() == 8 { values[0] } else { pack(b, &values, self.dtype)[0] }
    }
}

/// Elements of a factor in a register that the instruction takes.
fn per_word(dtype: DType) -> usize {
    (4 / dtype.bytes()).max(1) as usize
}

/// Reads matrices, one word of each to a lane: its fragment of rows, or of columns.
fn matrices(b: &mut Builder, place: Val, count: usize, transposed: bool) -> Vec<Val> {
    let names: Vec<String> = (0..count).map(|i| format!("${i}")).collect();
    let kind = if transposed { ".trans" } else { "" };
    let text =
        format!("ldmatrix.sync.aligned.m8n8.x{count}{kind}.shared.b16 {{{}}}, [${count}];", names.join(", "));
    let constraints = format!("{}l,~{{memory}}", "=r,".repeat(count));
    statement(b, &text, &constraints, &[place], &vec![Ty::I32; count])
}

/// The rows that the lanes point at to read a fragment as matrices, and whether these are of the transpose; `None` where
/// rows of 16 bytes are not what the instruction takes.
fn pointed_at(
    fragment: &Fragment,
    ty: &Type,
    inner: usize,
    fast: usize,
) -> Option<([Coord; LANE_BITS], bool)> {
    let transposed = fast != inner;
    let row = 16 / ty.dtype.bytes();
    let fits = match ty.dtype.bytes() {
        1 => !transposed,
        2 => !transposed || ty.shape[fast].is_multiple_of(row),
        _ => false,
    };
    let outer = 2 * ty.shape.rank() - 3 - inner;
    let along = if transposed { inner } else { outer };
    let bases = fragment.bases(&ty.shape);
    let words = bases.into_iter().skip(per_word(ty.dtype).ilog2() as usize);
    let mut lanes = (0..3).map(|bit| Coord::along(along, 1 << bit)).chain(words).chain([Coord::ZERO; 2]);
    fits.then(|| (std::array::from_fn(|_| lanes.next().unwrap_or_default()), transposed))
}

/// The address of an element, by that of the thread's first.
fn moved(b: &mut Builder, pointer: Val, strides: &[u32], dtype: DType, coord: Coord) -> Val {
    let elements: u32 = strides.iter().enumerate().map(|(axis, stride)| coord.get(axis) * stride).sum();
    b.offset_bytes(pointer, (elements * dtype.bytes()) as i32)
}

impl Dot {
    fn by_warp(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        op: &Op,
        (instruction, factors, bases): (&Instruction, &Factors, [Option<Val>; 2]),
        mut sums: Vec<Val>,
    ) -> Vec<Val> {
        let layout = gpu.layout(op.results[0]).clone();
        let rank = layout.shape().rank();
        let [left, right] =
            SIDES.map(|side| self.source(gpu, b, (side, instruction), &layout, (factors, bases)));
        let places = layout.registers_by_coord();
        let offsets = instruction.sum.offsets(layout.shape());
        let tiles = fragments(&layout, &instruction.sum);
        for step in (0..self.inner(gpu.func)).step_by(instruction.inner as usize) {
            let (mut lefts, mut rights) = (HashMap::new(), HashMap::new());
            for &tile in &tiles {
                let start = tile.set(rank - 1, step);
                let a = lefts.entry(start).or_insert_with(|| left.words(b, start)).clone();
                let start = tile.set(rank - 2, step);
                let b_words = rights.entry(start).or_insert_with(|| right.words(b, start)).clone();
                let own: Vec<usize> = offsets.iter().map(|offset| places[&tile.plus(*offset)]).collect();
                let before: Vec<Val> = own.iter().map(|&register| sums[register]).collect();
                let after = multiply(b, (instruction, left.dtype), [&a, &b_words, &before]);
                own.into_iter().zip(after).for_each(|(register, sum)| sums[register] = sum);
            }
        }
        sums
    }

    fn source(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        (side, instruction): (Side, &Instruction),
        sum: &Layout,
        (factors, bases): (&Factors, [Option<Val>; 2]),
    ) -> Source {
        let value = self.factor(side);
        let ty = gpu.func.ty(value).clone();
        let to = factor_layout(instruction, side, &ty.shape, sum);
        let fragment = instruction.factor(side);
        let inner = inner_axis(ty.shape.rank(), side);
        let place = match (&factors.staged[side as usize], bases[side as usize]) {
            (Some(Staged { staging, .. }), Some(base)) => {
                let strides = staging.strides.clone();
                let matrices = pointed_at(fragment, &ty, inner, staging.fast);
                let from = match matrices {
                    Some((lanes, _)) => Layout::of_bases(&ty.shape, &[], lanes, to.warp_bases()),
                    None => to,
                };
                let pointer = staging.pointer(b, base, ty.dtype, |b, axis| gpu.thread_coord(b, &from, axis));
                match matrices {
                    Some((_, transposed)) => Place::Matrices { pointer, strides, transposed },
                    None => Place::Memory { pointer, strides, fast: staging.fast },
                }
            }
            // The thread has what it needs, in other registers perhaps.
            _ => Place::Registers {
                values: gpu.registers(value).to_vec(),
                places: gpu.layout(value).registers_by_coord(),
            },
        };
        Source { dtype: ty.dtype, offsets: fragment.offsets(&ty.shape), inner, place }
    }
}

/// The first element of each fragment of a thread.
fn fragments(layout: &Layout, fragment: &Fragment) -> Vec<Coord> {
    let bits = fragment.bases(layout.shape()).iter().filter(|basis| **basis != Coord::ZERO).count();
    (0..layout.register_count()).step_by(1 << bits).map(|register| layout.register(register)).collect()
}

/// One instruction: the sums of `[left, right, sums]`.
fn multiply(
    b: &mut Builder,
    (instruction, dtype): (&Instruction, DType),
    operands: [&Vec<Val>; 3],
) -> Vec<Val> {
    let Instruction { rows, columns, inner, .. } = instruction;
    let (factor, sum, letters) = match dtype {
        DType::F16 => ("f16", "f32", ["r", "f"]),
        DType::BF16 => ("bf16", "f32", ["r", "f"]),
        DType::I8 => ("s8", "s32", ["r", "r"]),
        _ => ("f64", "f64", ["d", "d"]),
    };
    let mut next = 0;
    let mut list = |count: usize| {
        let names: Vec<String> = (next..next + count).map(|i| format!("${i}")).collect();
        next += count;
        format!("{{{}}}", names.join(", "))
    };
    let results = operands[2].len();
    let lists = [results, operands[0].len(), operands[1].len(), results].map(&mut list).join(", ");
    let text =
        format!("mma.sync.aligned.m{rows}n{columns}k{inner}.row.col.{sum}.{factor}.{factor}.{sum} {lists};");
    let mut constraints = vec![format!("={}", letters[1]); results];
    constraints.extend(vec![letters[0].to_string(); operands[0].len() + operands[1].len()]);
    constraints.extend(vec![letters[1].to_string(); results]);
    let types: Vec<Ty> = operands[2].iter().map(|sum| sum.ty).collect();
    let all: Vec<Val> = operands.into_iter().flatten().copied().collect();
    // All lanes take part, so it stays where it stands.
    b.asm(&text, &constraints.join(","), &all, &types, Asm::Effects)
}

// ---- by threads

/// A factor in shared memory, as a thread reads the part that it multiplies.
struct Lines {
    dtype: DType,
    pointer: Val,
    strides: Vec<u32>,
    inner: usize,
    outer: usize,
    /// This thread's lines across the axis that is summed over.
    lines: Vec<Coord>,
    /// Elements that one instruction reads, and along which axis.
    run: usize,
    fast: usize,
}

/// Steps along the axis that is summed over that are read together.
const STEPS: u32 = 4;

impl Lines {
    /// The elements of every line at each of `steps` steps from the pointer on.
    fn read(&self, b: &mut Builder, pointer: Val, steps: u32) -> Vec<HashMap<Coord, Val>> {
        let mut found = vec![HashMap::new(); steps as usize];
        let at = |b: &mut Builder, line: Coord, step: u32| {
            moved(b, pointer, &self.strides, self.dtype, line.set(self.inner, step))
        };
        if self.fast == self.inner {
            for &line in &self.lines {
                let place = at(b, line, 0);
                for (step, value) in load(b, place, self.dtype, steps as usize).into_iter().enumerate() {
                    found[step].insert(line, value);
                }
            }
            return found;
        }
        for (step, found) in found.iter_mut().enumerate() {
            for &line in self.lines.iter().filter(|line| line.get(self.outer) as usize % self.run == 0) {
                let place = at(b, line, step as u32);
                for (i, value) in load(b, place, self.dtype, self.run).into_iter().enumerate() {
                    found.insert(line.plus(Coord::along(self.outer, i as u32)), value);
                }
            }
        }
        found
    }

    /// Bytes from one step to the next.
    fn pitch(&self) -> u32 {
        self.strides[self.inner] * self.dtype.bytes()
    }
}

/// How many neighbours along an axis a thread holds, whatever registers they are in.
fn held_together(layout: &Layout, axis: usize) -> usize {
    let holds = |bit: &u32| layout.register_bases().contains(&Coord::along(axis, 1 << bit));
    1 << (0..).take_while(holds).count()
}

impl Dot {
    fn lines(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        side: Side,
        (op, staged, base): (&Op, &Staged, Val),
    ) -> Lines {
        let layout = gpu.layout(op.results[0]).clone();
        let ty = gpu.func.ty(self.factor(side)).clone();
        let rank = ty.shape.rank();
        let (inner, outer) = (inner_axis(rank, side), outer_axis(rank, side));
        let mut lines: Vec<Coord> =
            (0..layout.register_count()).map(|register| layout.register(register).set(inner, 0)).collect();
        lines.sort();
        lines.dedup();
        let zero = b.int(Ty::I32, 0);
        let pointer = staged.staging.pointer(b, base, ty.dtype, |b, axis| {
            if axis == inner { zero } else { gpu.thread_coord(b, &layout, axis) }
        });
        let run = held_together(&layout, outer).min(16 / ty.dtype.bytes() as usize);
        let strides = staged.staging.strides.clone();
        Lines { dtype: ty.dtype, pointer, strides, inner, outer, lines, run, fast: staged.staging.fast }
    }

    fn by_thread(
        &self,
        gpu: &mut Gpu,
        b: &mut Builder,
        op: &Op,
        (factors, bases): (&Factors, [Option<Val>; 2]),
        sums: Vec<Val>,
    ) -> Vec<Val> {
        let layout = gpu.layout(op.results[0]).clone();
        let [left, right] = SIDES.map(|side| {
            let staged = factors.staged[side as usize].as_ref().expect("both factors are in shared memory");
            let base = bases[side as usize].expect("both factors are in shared memory");
            self.lines(gpu, b, side, (op, staged, base))
        });
        let steps = 1 << self.inner(gpu.func).trailing_zeros().min(STEPS.trailing_zeros());
        let turns = self.inner(gpu.func) / steps;
        let turn = |b: &mut Builder, pointers: [Val; 2], mut sums: Vec<Val>| {
            let (rows, columns) = (left.read(b, pointers[0], steps), right.read(b, pointers[1], steps));
            for (rows, columns) in rows.iter().zip(&columns) {
                for (register, sum) in sums.iter_mut().enumerate() {
                    let coord = layout.register(register);
                    let factors = [rows[&coord.set(left.inner, 0)], columns[&coord.set(right.inner, 0)]];
                    *sum = multiplied(b, factors, *sum, left.dtype);
                }
            }
            sums
        };
        if turns == 1 {
            return turn(b, [left.pointer, right.pointer], sums);
        }
        let bounds = [0, i64::from(turns), 1].map(|bound| b.int(Ty::I32, bound));
        b.for_range(bounds, &sums, |b, index, sums| {
            let pointers = [&left, &right].map(|lines| {
                let pitch = b.int(Ty::I32, i64::from(lines.pitch() * steps));
                let bytes = b.mul_nsw(index, pitch);
                b.offset(lines.pointer, bytes, 1)
            });
            turn(b, pointers, sums.to_vec())
        })
    }
}

/// `a * b + sum`, with one rounding.
fn multiplied(b: &mut Builder, [left, right]: [Val; 2], sum: Val, dtype: DType) -> Val {
    if dtype.is_float() {
        return rounding::fma(b, &[left, right, sum], dtype);
    }
    let product = b.mul(left, right);
    b.add(product, sum)
}
