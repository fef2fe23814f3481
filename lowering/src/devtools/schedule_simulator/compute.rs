//! Operations that only compute: lanewise arithmetic by the oracles of the table, conversions, shapes, ranges.

use std::rc::Rc;

use super::number::{Number, cast, from_bits, philox, round, to_bits};
use super::simulate::{Inputs, Simulate};
use super::tile::{Elements, TileValue, extents, for_each_index};
use tile_ir::ops::scalar::{ScalarOp, TypeRule};
use tile_ir::ops::{
    Arange, AxisHint, Bitcast, Broadcast, Cast, Constant, ConstantValue, Convert, Exchange, ExpandDims,
    Gather, Histogram, Index, Join, Pack, Permute, Philox, Random, RandomForm, RangeOrder, RematBarrier,
    RescaleRows, Reshape, Rotate, RowCut, Scalar, Splat, TileQuotient, Unpack,
};
use tile_ir::support::dtype::DType;

/// Operands of a row, at most.
const MAX_ARGS: usize = 4;

/// Values in place, so that an element costs no allocation.
fn in_place<T: Copy + Default>(args: &[Number], value: impl Fn(Number) -> T) -> [T; MAX_ARGS] {
    let mut values = [T::default(); MAX_ARGS];
    values.iter_mut().zip(args).for_each(|(own, &arg)| *own = value(arg));
    values
}

/// A row of the lanewise table on numbers of a type.
pub fn row(op: &ScalarOp, dtype: DType, args: &[Number]) -> Result<Number, String> {
    let compares = op.rule == TypeRule::Compare;
    if dtype.is_float() {
        let oracle = op.float.as_ref().ok_or_else(|| format!("{} of floats has no oracle", op.name))?;
        let value = (oracle.function)(&in_place(args, Number::float)[..args.len()]);
        return Ok(if compares {
            Number::Int((value != 0.0).into())
        } else {
            Number::Float(round(dtype, value))
        });
    }
    let oracle = op.int.as_ref().ok_or_else(|| format!("{} of integers has no oracle", op.name))?;
    let value = (oracle.function)(&in_place(args, Number::int)[..args.len()], dtype);
    Ok(Number::Int(if compares { value } else { dtype.wrap(value) }))
}

/// A row on tiles of one shape.
fn row_of_tiles(op: &ScalarOp, dtype: DType, args: &[Rc<TileValue>]) -> Result<TileValue, String> {
    let compares = op.rule == TypeRule::Compare;
    let mut lane = vec![Number::Int(0); args.len()];
    let mut numbers = Vec::with_capacity(args[0].elements.len());
    for position in 0..args[0].elements.len() {
        for (own, arg) in lane.iter_mut().zip(args) {
            *own = arg.elements.get(position);
        }
        numbers.push(row(op, dtype, &lane)?);
    }
    let result = if compares { DType::Bool } else { dtype };
    Ok(TileValue { shape: args[0].shape.clone(), elements: Elements::of(result, numbers.into_iter()) })
}

/// The result of an operation that moves elements of its first operand.
fn moved(
    inputs: &Inputs,
    source: impl FnMut(&[usize]) -> Option<Vec<usize>>,
) -> Result<Vec<TileValue>, String> {
    Ok(vec![inputs.operands[0].gather(&inputs.shape(), source)])
}

impl Simulate for Scalar {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        Ok(vec![row_of_tiles(self.op, self.dtype(inputs.func), &inputs.operands)?])
    }
}

impl Simulate for TileQuotient {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let division = tile_ir::ops::scalar::row("div").expect("there is a quotient");
        Ok(vec![row_of_tiles(division, inputs.dtype(), &inputs.operands)?])
    }
}

impl Simulate for RescaleRows {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let product = tile_ir::ops::scalar::row("mul").expect("there is a product");
        Ok(vec![row_of_tiles(product, inputs.dtype(), &inputs.operands)?])
    }
}

macro_rules! same_elements {
    ($($op:ident),*) => {
        $(impl Simulate for $op {
            fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
                Ok(vec![inputs.operands[0].reshaped(&inputs.shape())])
            }
        })*
    };
}

same_elements!(Convert, RematBarrier, Pack, Unpack, AxisHint, Reshape, ExpandDims);

impl Simulate for Constant {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let number = match self.value {
            ConstantValue::Int(value) => Number::Int(value),
            ConstantValue::Float(value) => Number::Float(value),
        };
        Ok(vec![TileValue::scalar(inputs.dtype(), number)])
    }
}

impl Simulate for Arange {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let shape = inputs.shape();
        let numbers = (0..shape[0] as i128).map(|i| i + i128::from(self.start));
        Ok(vec![TileValue { elements: Elements::Int(numbers.collect()), shape }])
    }
}

impl Simulate for Splat {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        Ok(vec![inputs.operands[0].broadcast(&inputs.shape())])
    }
}

impl Simulate for Broadcast {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        Ok(vec![inputs.operands[0].broadcast(&inputs.shape())])
    }
}

impl Simulate for Cast {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let (from, to) = (&inputs.operands[0], inputs.dtype());
        let elements = Elements::of(to, from.elements.numbers().map(|number| cast(number, to)));
        Ok(vec![TileValue { shape: from.shape.clone(), elements }])
    }
}

impl Simulate for Bitcast {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let (from, to) = (inputs.func.ty(self.value).dtype, inputs.dtype());
        let bits = inputs.operands[0].elements.numbers().map(|number| from_bits(to_bits(number, from), to));
        Ok(vec![TileValue { shape: inputs.shape(), elements: Elements::of(to, bits) }])
    }
}

impl Simulate for Permute {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        moved(inputs, |index| {
            let mut own = vec![0; index.len()];
            self.order.iter().zip(index).for_each(|(&axis, &i)| own[axis] = i);
            Some(own)
        })
    }
}

impl Simulate for Index {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        moved(inputs, |index| {
            let mut own = index.to_vec();
            own.insert(self.axis, self.index as usize);
            Some(own)
        })
    }
}

impl Simulate for Exchange {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        moved(inputs, |index| {
            let mut own = index.to_vec();
            own[self.axis] ^= self.mask as usize;
            Some(own)
        })
    }
}

impl Simulate for Gather {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let (from, positions) = (&inputs.operands[0], &inputs.operands[1]);
        moved(inputs, |index| {
            let position = usize::try_from(positions.at(index).int()).ok()?;
            let mut own = index.to_vec();
            own[self.axis] = position;
            (position < from.shape[self.axis]).then_some(own)
        })
    }
}

impl Simulate for Join {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let mut numbers = vec![];
        for_each_index(&inputs.shape(), |index| {
            let mut own = index.to_vec();
            let side = own.remove(self.axis);
            numbers.push(inputs.operands[side].at(&own));
        });
        let elements = Elements::of(inputs.dtype(), numbers.into_iter());
        Ok(vec![TileValue { shape: inputs.shape(), elements }])
    }
}

impl Simulate for Histogram {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let shape = inputs.shape();
        let mut counts = vec![0; shape[0]];
        for number in inputs.operands[0].elements.numbers() {
            if let Some(count) = usize::try_from(number.int()).ok().and_then(|bin| counts.get_mut(bin)) {
                *count += 1;
            }
        }
        Ok(vec![TileValue { shape, elements: Elements::Int(counts) }])
    }
}

impl Simulate for Rotate {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let extent = inputs.shape()[0] as i128;
        let scalars: Vec<i128> = inputs.operands[1..].iter().map(|scalar| scalar.int()).collect();
        let indices = match self.order {
            RangeOrder::Wrapped { .. } => (0..extent).map(|i| (i - scalars[0]).rem_euclid(extent)).collect(),
            RangeOrder::Cut(RowCut { .. }) => cut_row(extent, self.limit.into(), scalars[0], scalars[1]),
        };
        Ok(vec![TileValue { shape: inputs.shape(), elements: Elements::Int(indices) }])
    }
}

/// The indices of a row with so many elements before its first whole vector and in whole vectors.
fn cut_row(extent: i128, limit: i128, head: i128, whole: i128) -> Vec<i128> {
    let (ends, tail) = (extent - 2 * limit, extent - limit);
    let mut indices: Vec<Option<i128>> = (0..extent)
        .map(|i| match i {
            i if i < whole => Some(head + i),
            i if (ends..ends + head).contains(&i) => Some(i - ends),
            i if i >= tail && head + whole + i - tail < extent => Some(head + whole + i - tail),
            _ => None,
        })
        .collect();
    let mut unused =
        (0..extent).filter(|index| !indices.contains(&Some(*index))).collect::<Vec<_>>().into_iter();
    indices
        .iter_mut()
        .map(|index| index.or_else(|| unused.next()).expect("as many indices as elements"))
        .collect()
}

/// A word of a block as a random number.
fn random_number(form: RandomForm, word: u32) -> Number {
    match form {
        RandomForm::Bits => Number::Int(word.into()),
        RandomForm::Uniform => Number::Float(f64::from(word >> 9) / f64::from(1 << 23)),
    }
}

impl Simulate for Random {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let seed = inputs.operands[0].int() as u64;
        let numbers = inputs.operands[1].elements.numbers().map(|offset| {
            let offset = offset.int() as u64;
            let counter = offset / 4;
            let words = philox(seed, [counter as u32, (counter >> 32) as u32, 0, 0]);
            random_number(self.form, words[self.pick.word((offset % 4) as usize)])
        });
        let elements = Elements::of(inputs.dtype(), numbers);
        Ok(vec![TileValue { shape: inputs.shape(), elements }])
    }
}

impl Simulate for Philox {
    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let seed = inputs.operands[0].int() as u64;
        let numbers = (0..inputs.operands[1].elements.len()).map(|position| {
            let counter =
                [1, 2, 3, 4].map(|word: usize| inputs.operands[word].elements.get(position).int() as u32);
            random_number(self.form, philox(seed, counter)[usize::from(self.word)])
        });
        let elements = Elements::of(inputs.dtype(), numbers);
        Ok(vec![TileValue { shape: inputs.shape(), elements }])
    }
}

impl Inputs<'_> {
    /// The shape of the first result.
    pub fn shape(&self) -> Vec<usize> {
        extents(&self.func.ty(self.op.results[0]).shape)
    }

    /// The element type of the first result.
    pub fn dtype(&self) -> DType {
        self.func.ty(self.op.results[0]).dtype
    }
}
