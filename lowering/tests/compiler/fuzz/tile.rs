//! Tiles of the reference evaluator: every element by its index.

use super::element::Element;

/// A shape and its elements in row-major order; a scalar has no axes.
#[derive(Clone, Debug)]
pub struct Tile {
    pub shape: Vec<usize>,
    pub data: Vec<Element>,
}

pub fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|axis| count(&shape[axis + 1..])).collect()
}

/// Every index of a shape, the last axis fastest.
pub fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let strides = strides(shape);
    (0..count(shape)).map(move |flat_index| {
        shape.iter().zip(&strides).map(|(&extent, stride)| flat_index / stride % extent).collect()
    })
}

impl Tile {
    pub fn scalar(element: Element) -> Tile {
        Tile { shape: vec![], data: vec![element] }
    }

    pub fn at(&self, index: &[usize]) -> Element {
        self.data[index.iter().zip(strides(&self.shape)).map(|(i, stride)| i * stride).sum::<usize>()]
    }

    /// A tile of another shape whose elements are found by their index.
    pub fn build(shape: &[usize], mut element: impl FnMut(&[usize]) -> Element) -> Tile {
        Tile { shape: shape.to_vec(), data: indices(shape).map(|index| element(&index)).collect() }
    }

    pub fn map(&self, element: impl FnMut(Element) -> Element) -> Tile {
        Tile { shape: self.shape.clone(), data: self.data.iter().copied().map(element).collect() }
    }

    pub fn leaves(&self) -> Tile {
        self.map(Element::leaf)
    }

    /// By numpy's rules: aligned at the last axis, an extent of 1 repeats.
    pub fn broadcast(&self, shape: &[usize]) -> Tile {
        let missing = shape.len() - self.shape.len();
        Tile::build(shape, |index| {
            let own: Vec<usize> = self
                .shape
                .iter()
                .zip(&index[missing..])
                .map(|(&extent, &i)| if extent == 1 { 0 } else { i })
                .collect();
            self.at(&own)
        })
    }

    /// The lines along an axis: for each index with 0 there, its elements in order.
    pub fn lines(&self, axis: usize) -> Vec<Vec<Element>> {
        let mut starts = self.shape.clone();
        starts[axis] = 1;
        let line = |mut index: Vec<usize>| {
            (0..self.shape[axis])
                .map(|i| {
                    index[axis] = i;
                    self.at(&index)
                })
                .collect()
        };
        indices(&starts).map(line).collect()
    }

    /// A tile whose lines along `axis` are these, of any one length.
    pub fn of_lines(&self, axis: usize, lines: &[Vec<Element>]) -> Tile {
        let (mut shape, mut starts) = (self.shape.clone(), self.shape.clone());
        (shape[axis], starts[axis]) = (lines[0].len(), 1);
        let strides = strides(&starts);
        Tile::build(&shape, |index| {
            let line = index.iter().zip(&strides).enumerate();
            let line = line.map(|(at, (i, stride))| if at == axis { 0 } else { i * stride }).sum::<usize>();
            lines[line][index[axis]]
        })
    }
}
