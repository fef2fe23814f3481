//! Asynchronous dots: what they read of shared memory is read between their issue and the wait for them, and their results are not
//! there before.

use std::rc::Rc;

use super::agent::{AgentRole, Datum, PipeState, Step};
use super::control::zero_datum;
use super::copies::TileInSlot;
use super::dot::{Product, matrix};
use super::machine::Cx;
use super::number::Number;
use super::simulate::Simulate;
use super::tile::TileValue;
use crate::gpu::layout::warpgroup::WarpGroupTiling;
use tile_ir::ir::{Op, Value};
use tile_ir::ops::schedule::{AfterIssue, SmemPlace, StagedOperand, WgmmaOperandA};
use tile_ir::ops::{DotWait, OperandA, SmemOperand, WarpGroupDot, WarpgroupPosition, Wgmma};
use tile_ir::support::dtype::DType;

/// An operand of an issued dot.
enum IssuedOperand {
    Tile(Rc<TileValue>),
    /// A stage of a buffer, or its transpose.
    Stage {
        buffer: Value,
        stage: usize,
        transposed: bool,
    },
    /// A tile of a slot.
    Slot(Value, Rc<TileInSlot>),
}

/// A dot that was issued.
pub struct IssuedDot<'f> {
    pub op: &'f Op,
    dot: &'f Wgmma,
    operands: [IssuedOperand; 2],
    acc: Option<Datum>,
    /// Its reads of shared memory.
    reads: Vec<u64>,
    result: Option<Rc<TileValue>>,
}

impl<'f> Cx<'_, 'f> {
    /// An operand in shared memory, and the read of a stage that it begins.
    fn staged(
        &mut self,
        &StagedOperand { place, transposed }: &StagedOperand,
        op: &'f Op,
    ) -> Result<(IssuedOperand, Option<u64>), String> {
        match place {
            SmemPlace::Stage(of) => {
                let read = self.begin_read(of, op)?;
                let PipeState { stage, .. } = self.pipe(of.pipe)?;
                Ok((IssuedOperand::Stage { buffer: of.buffer, stage, transposed }, Some(read)))
            }
            SmemPlace::Slot(tile) => match self.datum(tile)? {
                Datum::TileInSlot(_) if !self.agent.copies.is_fenced => {
                    Err("reads by another proxy what landed behind the last fence".into())
                }
                Datum::TileInSlot(of) => Ok((IssuedOperand::Slot(tile, of), None)),
                _ => Err("reads what is no tile of a slot".into()),
            },
        }
    }

    /// Reads the operands of an issued dot that are in shared memory.
    fn fetch_operands(&mut self, dot: &mut IssuedDot<'f>) -> Result<(), String> {
        for operand in &mut dot.operands {
            if let &mut IssuedOperand::Stage { buffer, stage, transposed } = operand {
                let tile = self.stage_contents(buffer, stage)?;
                *operand = IssuedOperand::Tile(Rc::new(if transposed { tile.transposed() } else { tile }));
            }
            if let IssuedOperand::Slot(value, of) = operand {
                *operand = IssuedOperand::Tile(Rc::new(self.tile_in_slot(*value, of)?));
            }
        }
        Ok(())
    }

    /// All dots but the last ones issued are complete.
    fn complete_dots(&mut self, pending: usize) -> Result<(), String> {
        let end = self.agent.dots.len().saturating_sub(pending);
        for index in self.agent.complete_dots..end {
            let mut dot = self.agent.dots.remove(index);
            let finished = self.finish_dot(&mut dot);
            self.agent.dots.insert(index, dot);
            finished?;
            self.agent.complete_dots = index + 1;
        }
        Ok(())
    }

    fn finish_dot(&mut self, dot: &mut IssuedDot<'f>) -> Result<(), String> {
        self.fetch_operands(dot)?;
        let [IssuedOperand::Tile(a), IssuedOperand::Tile(b)] = &dot.operands else {
            unreachable!("both operands have been read")
        };
        let transposed = dot.dot.transposed;
        let acc = match &dot.acc {
            None => None,
            Some(acc) => Some(self.accumulator(acc)?),
        };
        let acc = acc.map(|acc| if transposed { Rc::new(acc.transposed()) } else { acc });
        let [first, last] = dot.dot.k.map(|k| k as usize);
        let ty = self.shared.func.ty(dot.op.results[0]);
        let operand = self.shared.func.ty(dot.dot.b.memory()).dtype;
        let product = Product { a, b, k: first..last, tf32: operand == DType::F32 };
        let result = product.add_to(acc.as_deref(), ty.dtype);
        dot.result = Some(Rc::new(if transposed { result.transposed() } else { result }));
        let reads = std::mem::take(&mut dot.reads);
        self.end_reads(&reads);
        Ok(())
    }

    /// The accumulator of a dot whose predecessors are complete.
    fn accumulator(&self, acc: &Datum) -> Result<Rc<TileValue>, String> {
        match acc {
            Datum::Tile(tile) => Ok(tile.clone()),
            Datum::InFlight(dot) => {
                self.agent.dots[*dot].result.clone().ok_or_else(|| "adds to a later dot".to_string())
            }
            Datum::Pipe(_) | Datum::Poison => Err("adds to poison".into()),
            Datum::Slot(_) | Datum::TileInSlot(_) | Datum::Copies(_) => Err("adds to what is no tile".into()),
        }
    }

    /// What a value is after a wait.
    fn waited(&self, datum: Datum) -> Datum {
        match datum {
            Datum::InFlight(dot) => {
                self.agent.dots[dot].result.clone().map_or(Datum::InFlight(dot), Datum::Tile)
            }
            Datum::Tile(_)
            | Datum::Pipe(_)
            | Datum::Slot(_)
            | Datum::TileInSlot(_)
            | Datum::Copies(_)
            | Datum::Poison => datum,
        }
    }
}

/// A warpgroup's position among those that tile so many rows, along rows and along columns.
fn position(cx: &Cx, rows: u32) -> Result<[i128; 2], String> {
    let AgentRole::Consumer { warpgroup } = cx.agent.role else {
        return Err("only consumer warpgroups have a position in a dot".into());
    };
    let along_rows = i128::from(WarpGroupTiling::new(rows, cx.shared.launch.num_warps).along_rows);
    Ok([warpgroup as i128 % along_rows, warpgroup as i128 / along_rows])
}

impl Simulate for WarpgroupPosition {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let along = position(cx, self.rows)?;
        cx.define(op, along.map(|at| TileValue::scalar(DType::I32, Number::Int(at))).to_vec())
    }
}

impl Simulate for Wgmma {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let mut reads = vec![];
        let a = match &self.a {
            WgmmaOperandA::Regs(value) | WgmmaOperandA::Words(value) => IssuedOperand::Tile(cx.tile(*value)?),
            WgmmaOperandA::Smem(staged) => {
                let (operand, read) = cx.staged(staged, op)?;
                reads.extend(read);
                operand
            }
        };
        let (b, read) = cx.staged(&self.b, op)?;
        reads.extend(read);
        if !self.position.is_empty() {
            let shape = &cx.shared.func.ty(op.results[0]).shape;
            let own = position(cx, if self.transposed { shape[1] } else { shape[0] })?;
            for (along, own) in self.position.iter().zip(own) {
                if cx.tile(*along)?.int() != own {
                    return Err("its position is another warpgroup's".into());
                }
            }
        }
        let counts =
            self.accumulates.map_or(Ok(true), |counts| Ok::<_, String>(cx.tile(counts)?.is_true()))?;
        let acc = self.acc.filter(|_| counts).map(|acc| cx.datum(acc)).transpose()?;
        if let Some(Datum::Poison | Datum::Pipe(_)) = acc {
            return Err("adds to poison".into());
        }
        let mut dot = IssuedDot { op, dot: self, operands: [a, b], acc, reads, result: None };
        if cx.shared.is_early() {
            cx.fetch_operands(&mut dot)?;
        }
        cx.agent.dots.push(dot);
        let index = cx.agent.dots.len() - 1;
        if self.then == AfterIssue::Wait {
            cx.complete_dots(0)?;
        }
        let result = if self.then == AfterIssue::Wait {
            cx.waited(Datum::InFlight(index))
        } else {
            Datum::InFlight(index)
        };
        cx.define_data(op, vec![result])
    }
}

impl Simulate for DotWait {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        if let Some(condition) = self.issued_if
            && !cx.tile(condition)?.is_true()
        {
            let zeros = self.values.iter().map(|&value| zero_datum(cx, value)).collect();
            return cx.define_data(op, zeros);
        }
        cx.complete_dots(self.pending as usize)?;
        let data = cx.data(&self.values)?;
        let results = data.into_iter().map(|datum| cx.waited(datum)).collect();
        cx.define_data(op, results)
    }
}

impl Cx<'_, '_> {
    /// An operand of a dot whose loads have no schedule yet.
    fn loaded(&mut self, operand: &SmemOperand) -> Result<Rc<TileValue>, String> {
        let block = self.view_block(&operand.tile)?;
        let tile = matrix(&self.read_block(&block)?, 0);
        Ok(Rc::new(if operand.transposed { tile.transposed() } else { tile }))
    }
}

impl Simulate for WarpGroupDot {
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let a = match &self.a {
            OperandA::Regs(value) => cx.tile(*value)?,
            OperandA::Smem(operand) => cx.loaded(operand)?,
        };
        let b = cx.loaded(&self.b)?;
        let acc = self.acc.map(|acc| cx.tile(acc)).transpose()?;
        let acc = acc.map(|acc| if self.transposed { Rc::new(acc.transposed()) } else { acc });
        let tf32 = self.dtype(cx.shared.func) == DType::F32;
        let inner = a.shape[1];
        let product = Product { a: &a, b: &b, k: 0..inner, tf32 };
        let result = product.add_to(acc.as_deref(), cx.shared.func.ty(op.results[0]).dtype);
        cx.define(op, vec![if self.transposed { result.transposed() } else { result }])
    }
}
