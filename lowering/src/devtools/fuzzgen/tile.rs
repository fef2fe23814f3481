//! Tiles of the reference evaluator: every element by its index.

/// A tile's shape and elements; a scalar has no axes.
#[derive(Clone, Debug)]
pub(super) struct HostTile {
    pub shape: Vec<usize>,
    pub data: Vec<i64>,
}

impl HostTile {
    pub(super) fn strides(&self) -> Vec<usize> {
        (0..self.shape.len()).map(|axis| self.shape[axis + 1..].iter().product()).collect()
    }

    pub(super) fn permuted(&self, order: &[usize]) -> HostTile {
        let strides = self.strides();
        let shape: Vec<usize> = order.iter().map(|&axis| self.shape[axis]).collect();
        let permuted_strides: Vec<usize> = order.iter().map(|&axis| strides[axis]).collect();
        let data = indices(&shape).map(|index| self.data[linear_offset(&index, &permuted_strides)]).collect();
        HostTile { shape, data }
    }

    pub(super) fn reversed(&self) -> Vec<i64> {
        self.permuted(&(0..self.shape.len()).rev().collect::<Vec<_>>()).data
    }

    pub(super) fn reduced(&self, axis: usize, join: impl Fn(i64, i64) -> i64) -> HostTile {
        let (strides, mut shape) = (self.strides(), self.shape.clone());
        shape[axis] = 1;
        let reduce_line = |index: Vec<usize>| {
            let start = linear_offset(&index, &strides);
            (1..self.shape[axis])
                .fold(self.data[start], |acc, k| join(acc, self.data[start + k * strides[axis]]))
        };
        let data = indices(&shape).map(reduce_line).collect();
        HostTile { shape, data }
    }

    pub(super) fn broadcast(&self, shape: &[usize]) -> Vec<i64> {
        let missing = shape.len() - self.shape.len();
        let strides: Vec<usize> = (0..shape.len())
            .map(|axis| {
                if axis < missing || self.shape[axis - missing] == 1 {
                    0
                } else {
                    self.strides()[axis - missing]
                }
            })
            .collect();
        indices(shape).map(|index| self.data[linear_offset(&index, &strides)]).collect()
    }
}

pub(super) fn linear_offset(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, stride)| i * stride).sum()
}

/// Every index into a shape, in row-major order.
pub(super) fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let shape = shape.to_vec();
    (0..shape.iter().product()).map(move |flat: usize| {
        let mut rest = flat;
        let mut index: Vec<usize> =
            shape.iter().rev().map(|extent| (rest % extent, rest /= extent).0).collect();
        index.reverse();
        index
    })
}

pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let extent =
        |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    let join = |axis| match (extent(a, axis), extent(b, axis)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    (0..rank).map(join).collect()
}

/// Whether a tile can have this extent.
pub(super) fn is_legal_extent(extent: usize) -> bool {
    extent >> extent.trailing_zeros() <= 15
}

pub(super) fn reduce_op(what: &str, a: i64, b: i64) -> i64 {
    match what {
        "sum" => a.wrapping_add(b),
        "max" => a.max(b),
        _ => a.min(b),
    }
}

pub(super) fn binary_op(symbol: &str, a: i64, b: i64) -> i64 {
    match symbol {
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "^" => a ^ b,
        _ => a & b,
    }
}
