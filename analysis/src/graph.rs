//! Tensors and the operations between them.
//!
//! A graph is built in the order of its operations, so that nothing waits for itself; [`crate::model`] brings those of a file
//! into one. Shapes and types of what an operation makes follow from what it reads. An operation of a kind that is not known is
//! kept: nothing is fused with it, and the rest is analyzed.

mod builder;
mod params;
mod tensor_type;

use std::collections::BTreeMap;

pub use builder::{GraphBuilder, Operation};
pub use params::Params;
pub use tensor_type::TensorType;

use crate::kind::{Kind, Operands, Pattern};

/// The index of a tensor in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub(crate) usize);

/// The index of an operation in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub(crate) usize);

/// Where a tensor comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is given for each run.
    Input,
    /// It is a parameter: the same in every run, and too long ago in the cache to be there still.
    Weight,
    /// An operation makes it.
    Made(OpId),
}

/// A tensor of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name, which no other tensor has.
    pub name: String,
    /// Its shape and element type.
    pub ty: TensorType,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether it is wanted behind the graph though operations of the graph read it.
    pub kept: bool,
    readers: Vec<OpId>,
}

/// What an operation is.
#[derive(Clone, Copy, Debug)]
pub enum OpKind {
    /// One of [`crate::kind::all`].
    Known(&'static Kind),
    /// One that this crate does not know.
    Unknown,
}

/// An operation of a graph.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its name, which no other operation has.
    pub name: String,
    /// The name of its kind as it was given.
    pub kind_name: String,
    /// Its kind.
    pub kind: OpKind,
    /// What it reads, in the order of its kind.
    pub inputs: Vec<TensorId>,
    /// What it makes, in the order of its kind.
    pub outputs: Vec<TensorId>,
    /// What else its kind wants to know.
    pub params: Params,
    /// Whether the shapes of its outputs are those of its first input for want of a declaration: only for unknown kinds.
    pub assumed: bool,
}

impl Op {
    /// How it is spread over programs.
    pub fn pattern(&self) -> Pattern {
        match self.kind {
            OpKind::Known(kind) => kind.pattern,
            OpKind::Unknown => Pattern::Opaque,
        }
    }

    /// Whether it only looks at its input by another shape or other strides, and moves nothing.
    pub fn is_free_view(&self) -> bool {
        self.pattern() == Pattern::View && !self.params.materialize
    }
}

/// Tensors and operations, each operation behind those whose results it reads.
#[derive(Clone, Debug)]
pub struct Graph {
    name: String,
    tensors: Vec<Tensor>,
    ops: Vec<Op>,
    names: BTreeMap<String, TensorId>,
}

impl Graph {
    /// Its name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The places of all operations, in order.
    pub fn op_ids(&self) -> impl Iterator<Item = OpId> + use<> {
        (0..self.ops.len()).map(OpId)
    }

    /// An operation.
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.0]
    }

    /// A tensor.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0]
    }

    /// All tensors, in the order in which they were declared and made.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The operation of a name.
    pub fn find_op(&self, name: &str) -> Option<OpId> {
        self.ops.iter().position(|op| op.name == name).map(OpId)
    }

    /// The tensor of a name.
    pub fn find_tensor(&self, name: &str) -> Option<TensorId> {
        self.names.get(name).copied()
    }

    /// The tensor whose memory this one looks at: itself, unless free views made it.
    pub fn root(&self, mut id: TensorId) -> TensorId {
        while let Origin::Made(op) = self.tensor(id).origin {
            if !self.op(op).is_free_view() {
                break;
            }
            let Some(&viewed) = self.op(op).inputs.first() else { break };
            id = viewed;
        }
        id
    }

    /// The operation that fills the memory of a tensor, through free views; none for inputs and weights.
    pub fn producer(&self, id: TensorId) -> Option<OpId> {
        match self.tensor(self.root(id)).origin {
            Origin::Made(op) => Some(op),
            Origin::Input | Origin::Weight => None,
        }
    }

    /// The operations that read the memory of a root, through free views, each once and in order.
    pub fn readers(&self, root: TensorId) -> Vec<OpId> {
        let mut found = Vec::new();
        let mut open = vec![root];
        while let Some(tensor) = open.pop() {
            for &reader in &self.tensor(tensor).readers {
                if self.op(reader).is_free_view() {
                    open.extend(&self.op(reader).outputs);
                } else if !found.contains(&reader) {
                    found.push(reader);
                }
            }
        }
        found.sort();
        found
    }

    /// Whether what is behind the graph wants the memory of a root: it, or a view of it, is kept or read by nothing.
    pub fn is_output(&self, root: TensorId) -> bool {
        let tensor = self.tensor(root);
        if tensor.kept || tensor.readers.is_empty() {
            return true;
        }
        let views = tensor.readers.iter().filter(|&&reader| self.op(reader).is_free_view());
        views.flat_map(|&view| &self.op(view).outputs).any(|&made| self.is_output(made))
    }

    /// What a kind's rules look at.
    pub(crate) fn operands<'g>(&'g self, op: &'g Op) -> Operands<'g> {
        let typed = |ids: &[TensorId]| {
            let tensors = ids.iter().map(|&id| self.tensor(id));
            tensors.map(|tensor| (tensor.name.as_str(), &tensor.ty)).collect::<Vec<_>>()
        };
        Operands { inputs: typed(&op.inputs), outputs: typed(&op.outputs), params: &op.params }
    }
}
