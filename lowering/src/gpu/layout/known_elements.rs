//! Elements of integer tiles that follow from their coordinates alone: made of ranges and constants.

use std::collections::HashMap;

use tile_ir::ir::axis_info::{AxisEnv, AxisInfo, clip, splat};
use tile_ir::ir::layout_relation::LayoutRelation;
use tile_ir::ir::{Block, Func, Op, Value};
use tile_ir::ops::{Effect, Kind};

use super::linear::Coord;

/// Elements found so far, each where it is known.
pub struct KnownElements<'f> {
    func: &'f Func,
    definitions: HashMap<Value, &'f Op>,
    elements: HashMap<(Value, Coord), Option<i128>>,
}

impl<'f> KnownElements<'f> {
    pub fn new(func: &'f Func) -> KnownElements<'f> {
        KnownElements { func, definitions: func.definitions(), elements: HashMap::new() }
    }

    /// Returns the element at a coordinate, if it is the same in every program.
    pub fn at(&mut self, value: Value, coord: Coord) -> Option<i128> {
        if let Some(&element) = self.elements.get(&(value, coord)) {
            return element;
        }
        let element = self.evaluate(value, coord);
        self.elements.insert((value, coord), element);
        element
    }

    fn evaluate(&mut self, value: Value, coord: Coord) -> Option<i128> {
        let op = *self.definitions.get(&value)?;
        if let Kind::Arange(range) = &op.kind {
            return Some(i128::from(range.start) + i128::from(coord.get(0)));
        }
        let operation = op.kind.operation();
        let operands = operation.operands();
        match operation.layout_relation(self.func, &op.results) {
            LayoutRelation::View(view) if operands.len() == 1 => {
                return self.at(operands[0], coord.before_reindex(&view));
            }
            LayoutRelation::Source => {}
            LayoutRelation::Lanewise { .. } if operation.is_pointwise() => {}
            _ => return None,
        }
        if operation.effect() != Effect::Pure {
            return None;
        }
        let of_operand = |&operand: &Value| Some((operand, self.at(operand, coord)?));
        let operands = operands.iter().map(of_operand).collect::<Option<_>>()?;
        // The range of one element of operands that are known is that element.
        let mut env = ElementEnv { func: self.func, operands };
        let info = operation.axis_info(&mut env, &op.results).into_iter().next()?;
        clip(info, self.func.ty(value)).single()
    }
}

/// The elements of an operation's operands at one coordinate.
struct ElementEnv<'f> {
    func: &'f Func,
    operands: HashMap<Value, i128>,
}

impl AxisEnv for ElementEnv<'_> {
    fn func(&self) -> &Func {
        self.func
    }

    fn info(&self, value: Value) -> AxisInfo {
        let ty = self.func.ty(value);
        let known = |&element: &i128| splat(&AxisInfo::constant(element), &ty.shape);
        self.operands.get(&value).map_or_else(|| AxisInfo::unknown(ty), known)
    }

    fn set(&mut self, _: Value, _: AxisInfo) {}

    fn most_programs(&self, _: u8) -> Option<i128> {
        None
    }

    fn block(&mut self, _: &Block) {}

    fn carry(&mut self, _: &[Value], args: &[Value], _: &Block) -> Vec<AxisInfo> {
        args.iter().map(|&arg| AxisInfo::unknown(self.func.ty(arg))).collect()
    }
}
