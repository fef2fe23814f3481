//! How elements of tiles are combined, two at a time: what reductions and scans have in common.

use std::collections::HashMap;

use super::scalar::{ArithKind, Scalar, ScalarOp};
use super::typing::TypingCx;
use super::{Constant, ConstantValue, Kind, expect_types};
use crate::ir::axis_info::{AxisEnv, AxisInfo};
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{Block, Func, Op, ParseError, Shape, TextReader, Type, Value};
use crate::support::diagnostic::Loc;
use crate::support::dtype::DType;

/// The largest or the smallest of values, with its position: NaN is more extreme than anything, `-0.0` and `0.0` are equal, and of equal
/// values the one with the smallest position counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extreme {
    /// The input of the values.
    pub value: usize,
    /// The input of their positions, which are `i32`.
    pub position: usize,
    pub largest: bool,
}

/// Tiles of one shape whose elements are combined together.
#[derive(Clone, Debug)]
pub struct Combination {
    pub inputs: Vec<Value>,
    /// Takes two elements of every input, left ones first, and yields one of each; it uses nothing from outside and is
    /// associative.
    pub block: Block,
}

/// Its inputs; the block is one of the operation's.
impl FieldText for Combination {
    fn write(&self, out: &mut TextWriter) {
        self.inputs.write(out);
    }

    fn read(input: &mut TextReader) -> Result<Combination, ParseError> {
        Ok(Combination { inputs: input.list(TextReader::value)?, block: Block::default() })
    }
}

impl Combination {
    /// The elements of one tile by a row of the lanewise table.
    pub(super) fn by_row(cx: &mut dyn TypingCx, row: &str, input: Value, loc: Loc) -> Combination {
        let dtype = cx.ty(input).dtype;
        let args = cx.begin_block(vec![Type::scalar(dtype); 2]);
        let combined = cx.row(row, &args, loc);
        Combination { inputs: vec![input], block: cx.end_block(vec![combined]) }
    }

    pub(super) fn map(&mut self, change: &mut dyn FnMut(Value) -> Value) {
        self.inputs.iter_mut().for_each(|input| *input = change(*input));
    }

    /// The types of the block's arguments.
    pub(super) fn block_args(&self, func: &Func) -> Vec<Type> {
        self.inputs.iter().chain(&self.inputs).map(|&input| Type::scalar(func.ty(input).dtype)).collect()
    }

    pub fn shape<'f>(&self, func: &'f Func) -> &'f Shape {
        &func.ty(self.inputs[0]).shape
    }

    /// Checks that the block fits the inputs, and that there is one result of `shape` for each of them.
    pub(super) fn verify(&self, func: &Func, results: &[Value], shape: &Shape) -> Result<(), String> {
        let count = self.inputs.len();
        expect_types("the number of results", results.len(), count)?;
        expect_types("the combination's arguments", self.block.args.len(), 2 * count)?;
        expect_types("the combination's yields", self.block.yields.len(), count)?;
        for (i, (&input, &result)) in self.inputs.iter().zip(results).enumerate() {
            let dtype = func.ty(input).dtype;
            expect_types("an input's shape", &func.ty(input).shape, self.shape(func))?;
            expect_types("a result", func.ty(result), &Type::tile(dtype, shape.clone()))?;
            for value in [self.block.args[i], self.block.args[count + i], self.block.yields[i]] {
                expect_types("the combination", func.ty(value), &Type::scalar(dtype))?;
            }
        }
        Ok(())
    }

    pub(super) fn axis_info(&self, env: &mut dyn AxisEnv, results: &[Value]) -> Vec<AxisInfo> {
        env.block(&self.block);
        results.iter().map(|&result| AxisInfo::unknown(env.func().ty(result))).collect()
    }

    /// The row of the lanewise table that it is, if it is one.
    fn row(&self) -> Option<&'static ScalarOp> {
        match self.block.ops.as_slice() {
            [Op { kind: Kind::Scalar(scalar), .. }] if scalar.args == self.block.args => Some(scalar.op),
            _ => None,
        }
    }

    /// What it is to analyses, if it is one operation.
    pub fn arith(&self) -> Option<ArithKind> {
        self.row().map(|op| op.arith)
    }

    /// The identity element of the combination for `dtype`, where it is one operation that has one.
    pub fn identity(&self, dtype: DType) -> Option<ConstantValue> {
        self.row()?.identity.map(|identity| identity(dtype))
    }

    /// The condition on which it gives the left element rather than the right one, if it gives one of the two.
    fn gives_left(&self) -> Option<Value> {
        let (left, right) = self.block.args.split_at(self.inputs.len());
        let condition = |i: usize| {
            let op = self.block.ops.iter().find(|op| op.results[0] == self.block.yields[i])?;
            let Kind::Scalar(Scalar { op, args, .. }) = &op.kind else { return None };
            (op.arith == ArithKind::Select && args[1..] == [left[i], right[i]]).then_some(args[0])
        };
        let first = condition(0)?;
        (1..left.len()).all(|i| condition(i) == Some(first)).then_some(first)
    }

    /// The combination of elements whose positions, those of `input`, are in rising order. It is one that gives one of two elements and
    /// only compares their positions: then what it gives of a run of elements has one of their positions, and comparisons with that of the
    /// next element are known.
    pub fn in_order(&self, input: usize) -> Option<Combination> {
        self.gives_left()?;
        let (left, right) = self.block.args.split_at(self.inputs.len());
        let mut block = self.block.clone();
        for op in &mut block.ops {
            let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { continue };
            let order = match args[..] {
                [a, b] if [a, b] == [left[input], right[input]] => [0, 1],
                [a, b] if [b, a] == [left[input], right[input]] => [1, 0],
                _ => continue,
            };
            if let (ArithKind::Compare(_), Some(oracle)) = (row.arith, &row.int) {
                let holds = (oracle.function)(&order, DType::I32);
                op.kind = Constant { value: ConstantValue::Int(holds) }.into();
            }
        }
        let only_chosen = [left[input], right[input]].iter().all(|&position| block.uses(position) == 1);
        only_chosen.then(|| Combination { inputs: self.inputs.clone(), block })
    }

    /// Which extreme it gives, if it is one of values with positions: whatever function that was written as.
    pub fn extreme(&self, func: &Func) -> Option<Extreme> {
        let dtypes: Vec<DType> = self.inputs.iter().map(|&input| func.ty(input).dtype).collect();
        let condition = self.gives_left()?;
        [(0, true), (0, false), (1, true), (1, false)].into_iter().find_map(|(value, largest)| {
            let extreme = Extreme { value, position: 1 - value, largest };
            let positions = dtypes.len() == 2 && dtypes[extreme.position] == DType::I32;
            (positions && self.chooses(condition, extreme, dtypes[value])).then_some(extreme)
        })
    }

    /// Whether it chooses as `extreme` does. It may only compare elements of one input, so that their order alone decides: one example of
    /// each order stands for all.
    fn chooses(&self, condition: Value, extreme: Extreme, dtype: DType) -> bool {
        let values: &[f64] = if dtype.is_float() { &[0.0, 1.0, f64::NAN] } else { &[0.0, 1.0] };
        let pairs = |examples: &[f64]| -> Vec<[f64; 2]> {
            examples.iter().flat_map(|&left| examples.iter().map(move |&right| [left, right])).collect()
        };
        pairs(values).iter().all(|&[x, y]| {
            pairs(&[0.0, 1.0]).iter().all(|&[i, j]| {
                let order = match (x.is_nan(), y.is_nan()) {
                    (false, false) if extreme.largest => x.total_cmp(&y),
                    (false, false) => y.total_cmp(&x),
                    (left, right) => left.cmp(&right),
                };
                let order = order.then(j.total_cmp(&i));
                let mut elements = [[0.0; 2]; 2];
                (elements[extreme.value], elements[extreme.position]) = ([x, y], [i, j]);
                let left = self.evaluate(condition, elements);
                // Equal elements of one position are one as good as the other.
                left.is_some_and(|left| order.is_eq() || left == order.is_gt())
            })
        })
    }

    /// A condition of the block, from comparisons of the left and the right element of each input.
    fn evaluate(&self, condition: Value, elements: [[f64; 2]; 2]) -> Option<bool> {
        let (left, right) = self.block.args.split_at(self.inputs.len());
        let compared = |args: &[Value]| {
            let [a, b] = args else { return None };
            let input = (0..left.len()).find(|&input| [left[input], right[input]].contains(a))?;
            let of = |value: Value| {
                let side = [left[input], right[input]].iter().position(|&element| element == value)?;
                Some(elements[input][side])
            };
            Some([of(*a)?, of(*b)?])
        };
        let mut known: HashMap<Value, bool> = HashMap::new();
        for op in &self.block.ops {
            let Kind::Scalar(Scalar { op: row, args, .. }) = &op.kind else { continue };
            let holds = match (row.arith, row.float, row.int) {
                (ArithKind::Compare(_), Some(oracle), _) => {
                    compared(args).map(|pair| (oracle.function)(&pair) != 0.0)
                }
                (_, _, Some(oracle)) => {
                    let args: Option<Vec<i128>> =
                        args.iter().map(|arg| known.get(arg).map(|&holds| i128::from(holds))).collect();
                    args.map(|args| (oracle.function)(&args, DType::Bool) != 0)
                }
                _ => None,
            };
            known.extend(holds.map(|holds| (op.results[0], holds)));
        }
        known.get(&condition).copied()
    }

    /// Whether it commutes bit for bit.
    pub fn commutes(&self) -> bool {
        self.row().is_some_and(|op| op.identity.is_some())
    }
}
