//! Tiles of the simulator: whole, with every element by its index.

use tile_ir::ir::{Shape, Type};
use tile_ir::support::dtype::DType;

use super::number::{Number, round};

/// Elements in row-major order.
#[derive(Clone, PartialEq, Debug)]
pub enum Elements {
    /// Integers, wrapped to their type; a `bool` is 0 or 1.
    Int(Vec<i128>),
    /// Floats, rounded to their type.
    Float(Vec<f64>),
}

/// A shape and its elements; a scalar has no axes.
#[derive(Clone, PartialEq, Debug)]
pub struct TileValue {
    pub shape: Vec<usize>,
    pub elements: Elements,
}

/// How far apart neighbors along each axis are in row-major order.
pub fn row_major(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
}

/// The extents of a shape.
pub fn extents(shape: &Shape) -> Vec<usize> {
    shape.iter().map(|&extent| extent as usize).collect()
}

/// Every index of a shape, the last axis fastest.
pub fn for_each_index(shape: &[usize], mut visit: impl FnMut(&[usize])) {
    let count: usize = shape.iter().product();
    let mut index = vec![0; shape.len()];
    for _ in 0..count {
        visit(&index);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Whether the elements along some axis are at consecutive positions from multiples of `vector`, or masked off, `vector` at a time.
pub fn moves_in_vectors(shape: &[usize], positions: &[Option<usize>], vector: usize) -> bool {
    let is_vector = |first: usize, stride: usize| {
        let start = positions[first];
        start.is_none_or(|start| start.is_multiple_of(vector))
            && (1..vector).all(|k| positions[first + k * stride] == start.map(|start| start + k))
    };
    let strides = row_major(shape);
    let along = |axis: usize| {
        let mut whole = shape[axis].is_multiple_of(vector);
        for_each_index(shape, |index| {
            if whole && index[axis].is_multiple_of(vector) {
                let first = index.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
                whole = is_vector(first, strides[axis]);
            }
        });
        whole
    };
    (0..shape.len()).any(along)
}

impl Elements {
    /// So many zeros of a type.
    pub fn zeros(dtype: DType, count: usize) -> Elements {
        if dtype.is_float() { Elements::Float(vec![0.0; count]) } else { Elements::Int(vec![0; count]) }
    }

    pub fn of(dtype: DType, numbers: impl Iterator<Item = Number>) -> Elements {
        if dtype.is_float() {
            Elements::Float(numbers.map(|number| round(dtype, number.float())).collect())
        } else {
            Elements::Int(numbers.map(|number| dtype.wrap(number.int())).collect())
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Elements::Int(elements) => elements.len(),
            Elements::Float(elements) => elements.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, position: usize) -> Number {
        match self {
            Elements::Int(elements) => Number::Int(elements[position]),
            Elements::Float(elements) => Number::Float(elements[position]),
        }
    }

    pub fn set(&mut self, position: usize, number: Number) {
        match self {
            Elements::Int(elements) => elements[position] = number.int(),
            Elements::Float(elements) => elements[position] = number.float(),
        }
    }

    pub fn numbers(&self) -> impl Iterator<Item = Number> {
        (0..self.len()).map(|position| self.get(position))
    }
}

impl TileValue {
    pub fn new(ty: &Type, elements: Elements) -> TileValue {
        TileValue { shape: extents(&ty.shape), elements }
    }

    pub fn zeros(ty: &Type) -> TileValue {
        TileValue::new(ty, Elements::zeros(ty.dtype, ty.shape.elements() as usize))
    }

    pub fn scalar(dtype: DType, number: Number) -> TileValue {
        TileValue { shape: vec![], elements: Elements::of(dtype, std::iter::once(number)) }
    }

    /// The one element of a scalar, or the first one of a tile.
    pub fn number(&self) -> Number {
        self.elements.get(0)
    }

    pub fn int(&self) -> i128 {
        self.number().int()
    }

    pub fn is_true(&self) -> bool {
        self.number().is_true()
    }

    /// The position of an index in row-major order.
    pub fn position(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.shape).fold(0, |position, (i, extent)| position * extent + i)
    }

    pub fn at(&self, index: &[usize]) -> Number {
        self.elements.get(self.position(index))
    }

    /// A tile of another shape, each element from an index of this one, or 0.
    pub fn gather(
        &self,
        shape: &[usize],
        mut source: impl FnMut(&[usize]) -> Option<Vec<usize>>,
    ) -> TileValue {
        let mut sources = vec![];
        for_each_index(shape, |index| sources.push(source(index).map(|own| self.position(&own))));
        let elements = match &self.elements {
            Elements::Int(own) => {
                Elements::Int(sources.iter().map(|source| source.map_or(0, |at| own[at])).collect())
            }
            Elements::Float(own) => {
                Elements::Float(sources.iter().map(|source| source.map_or(0.0, |at| own[at])).collect())
            }
        };
        TileValue { shape: shape.to_vec(), elements }
    }

    /// A tile of another shape, whose neighbors along each axis are so far apart here.
    pub fn strided(&self, shape: &[usize], start: usize, strides: &[usize]) -> TileValue {
        let mut sources = Vec::with_capacity(shape.iter().product());
        for_each_index(shape, |index| {
            sources.push(start + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>());
        });
        let elements = match &self.elements {
            Elements::Int(own) => Elements::Int(sources.iter().map(|&at| own[at]).collect()),
            Elements::Float(own) => Elements::Float(sources.iter().map(|&at| own[at]).collect()),
        };
        TileValue { shape: shape.to_vec(), elements }
    }

    /// The same elements in row-major order under another shape.
    pub fn reshaped(&self, shape: &[usize]) -> TileValue {
        TileValue { shape: shape.to_vec(), elements: self.elements.clone() }
    }

    /// The tile repeated along axes of extent 1; a scalar is repeated along all.
    pub fn broadcast(&self, shape: &[usize]) -> TileValue {
        if self.shape == shape {
            return self.clone();
        }
        let mut strides = vec![0; shape.len() - self.shape.len()];
        let own = self.shape.iter().zip(row_major(&self.shape));
        strides.extend(own.map(|(&extent, stride)| if extent == 1 { 0 } else { stride }));
        self.strided(shape, 0, &strides)
    }

    /// The transpose of the last two axes.
    pub fn transposed(&self) -> TileValue {
        let rank = self.shape.len();
        let (mut shape, mut strides) = (self.shape.clone(), row_major(&self.shape));
        shape.swap(rank - 2, rank - 1);
        strides.swap(rank - 2, rank - 1);
        self.strided(&shape, 0, &strides)
    }

    /// The positions of each line along an axis, the lines in row-major order of the other axes.
    pub fn lines(&self, axis: usize) -> Vec<Vec<usize>> {
        let mut starts = self.shape.clone();
        starts[axis] = 1;
        let stride = row_major(&self.shape)[axis];
        let mut lines = vec![];
        for_each_index(&starts, |index| {
            let first = self.position(index);
            lines.push((0..self.shape[axis]).map(|i| first + i * stride).collect());
        });
        lines
    }
}
