//! Matrix products: sums of exact products, rounded once.

use std::ops::Range;

use super::agent::Step;
use super::machine::Cx;
use super::number::round_tf32;
use super::simulate::{Inputs, Simulate};
use super::tile::{Elements, TileValue};
use tile_ir::ir::{Op, Value};
use tile_ir::ops::{Dot, InputPrecision, StageOperands};
use tile_ir::support::dtype::DType;

/// What is multiplied: `[M, K]` and `[K, N]`, and which part of K.
pub struct Product<'a> {
    pub a: &'a TileValue,
    pub b: &'a TileValue,
    pub k: Range<usize>,
    /// Whether operands of `f32` are rounded to TF32.
    pub tf32: bool,
}

impl Product<'_> {
    fn extents(&self) -> [usize; 3] {
        [self.a.shape[0], self.a.shape[1], self.b.shape[1]]
    }

    /// The product plus an accumulator, in the accumulator's type.
    pub fn add_to(&self, acc: Option<&TileValue>, dtype: DType) -> TileValue {
        let [rows, _, columns] = self.extents();
        let product = match (&self.a.elements, &self.b.elements) {
            (Elements::Int(a), Elements::Int(b)) => Elements::Int(self.sums(a, b)),
            (Elements::Float(a), Elements::Float(b)) if self.tf32 => {
                let rounded = |own: &[f64]| own.iter().map(|&value| round_tf32(value)).collect::<Vec<f64>>();
                Elements::Float(self.sums(&rounded(a), &rounded(b)))
            }
            (Elements::Float(a), Elements::Float(b)) => Elements::Float(self.sums(a, b)),
            (Elements::Int(_), Elements::Float(_)) | (Elements::Float(_), Elements::Int(_)) => {
                unreachable!("operands of a dot have one type")
            }
        };
        let elements = match (product, acc.map(|acc| &acc.elements)) {
            (Elements::Float(sums), Some(Elements::Float(acc))) => {
                Elements::Float(sums.iter().zip(acc).map(|(sum, acc)| sum + acc).collect())
            }
            (Elements::Int(sums), Some(Elements::Int(acc))) => {
                Elements::Int(sums.iter().zip(acc).map(|(sum, acc)| sum + acc).collect())
            }
            (product, _) => product,
        };
        TileValue { shape: vec![rows, columns], elements: Elements::of(dtype, elements.numbers()) }
    }

    fn sums<T: Copy + Default + std::ops::Mul<Output = T> + std::ops::AddAssign>(
        &self,
        a: &[T],
        b: &[T],
    ) -> Vec<T> {
        let [rows, inner, columns] = self.extents();
        let mut sums = vec![T::default(); rows * columns];
        for (row, sums) in sums.chunks_mut(columns.max(1)).enumerate() {
            for k in self.k.clone() {
                let factor = a[row * inner + k];
                for (sum, &own) in sums.iter_mut().zip(&b[k * columns..(k + 1) * columns]) {
                    *sum += factor * own;
                }
            }
        }
        sums
    }
}

impl Simulate for StageOperands {
    /// What is written stays as it is.
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        let values: Vec<Value> = self.staged.iter().map(|staged| staged.value).collect();
        let tiles = cx.data(&values)?;
        cx.define_data(op, tiles)
    }
}

impl Simulate for Dot {
    /// The copies that it interleaves may be done before it reads any operand.
    fn run<'f>(&'f self, cx: &mut Cx<'_, 'f>, op: &'f Op) -> Result<Step, String> {
        cx.start_prepared(self.interleaved)?;
        let operands = [self.a, self.b].into_iter().chain(self.acc).map(|operand| cx.tile(operand));
        let operands = operands.collect::<Result<_, String>>()?;
        let results = self.evaluate(&Inputs { func: cx.shared.func, op, operands })?;
        cx.define(op, results)
    }

    fn evaluate(&self, inputs: &Inputs) -> Result<Vec<TileValue>, String> {
        let (a, b, acc) = (&inputs.operands[0], &inputs.operands[1], inputs.operands.get(2));
        let shape = inputs.shape();
        // A leading axis counts products side by side.
        let count = if shape.len() == 3 { shape[0] } else { 1 };
        let mut numbers = vec![];
        for i in 0..count {
            let [a, b] = [a, b].map(|tile| matrix(tile, i));
            let acc = acc.map(|tile| matrix(tile, i));
            let inner = a.shape[1];
            let product = Product { a: &a, b: &b, k: 0..inner, tf32: self.input == InputPrecision::Tf32 };
            numbers.extend(product.add_to(acc.as_ref(), inputs.dtype()).elements.numbers());
        }
        let elements = Elements::of(inputs.dtype(), numbers.into_iter());
        Ok(vec![TileValue { shape, elements }])
    }
}

/// One matrix of a tile whose last two axes are matrices.
pub fn matrix(tile: &TileValue, which: usize) -> TileValue {
    let rank = tile.shape.len();
    let shape = &tile.shape[rank - 2..];
    tile.strided(shape, which * shape[0] * shape[1], &[shape[1], 1])
}
