//! Builds a graph operation by operation; each is checked as it is added.

use std::collections::{BTreeMap, BTreeSet};

use super::{Graph, Op, OpId, OpKind, Origin, Params, Tensor, TensorId, TensorType};
use crate::dtype::DType;
use crate::error::GraphError;
use crate::kind::{self, Operands};

/// An operation to add: its name, its kind, and the names of what it reads and makes.
#[derive(Clone, Debug)]
pub struct Operation {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) params: Params,
}

impl Operation {
    /// An operation of a kind of [`kind::all`], or of another one, with which nothing is fused.
    pub fn new(name: &str, kind: &str) -> Operation {
        let (inputs, outputs) = (Vec::new(), Vec::new());
        Operation { name: name.to_owned(), kind: kind.to_owned(), inputs, outputs, params: Params::default() }
    }

    /// The names of what it reads.
    pub fn reads<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Operation {
        Operation { inputs: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// The names of what it makes.
    pub fn writes<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Operation {
        Operation { outputs: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// What else its kind wants to know.
    pub fn params(self, params: Params) -> Operation {
        Operation { params, ..self }
    }
}

/// A graph that is being built.
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    graph: Graph,
    declared: BTreeMap<String, TensorType>,
    kept: BTreeSet<String>,
}

impl Graph {
    /// Begins a graph.
    pub fn builder(name: &str) -> GraphBuilder {
        GraphBuilder::new(name)
    }
}

impl GraphBuilder {
    fn new(name: &str) -> GraphBuilder {
        let graph =
            Graph { name: name.to_owned(), tensors: Vec::new(), ops: Vec::new(), names: BTreeMap::new() };
        GraphBuilder { graph, declared: BTreeMap::new(), kept: BTreeSet::new() }
    }

    /// Declares a tensor that is given for each run.
    ///
    /// # Errors
    /// If there is one of that name, or it has more bytes than 64 bits count.
    pub fn input(
        &mut self,
        name: &str,
        shape: impl Into<Vec<u64>>,
        dtype: DType,
    ) -> Result<TensorId, GraphError> {
        self.tensor(name, TensorType::new(shape, dtype), Origin::Input)
    }

    /// Declares a parameter.
    ///
    /// # Errors
    /// As [`GraphBuilder::input`].
    pub fn weight(
        &mut self,
        name: &str,
        shape: impl Into<Vec<u64>>,
        dtype: DType,
    ) -> Result<TensorId, GraphError> {
        self.tensor(name, TensorType::new(shape, dtype), Origin::Weight)
    }

    /// Says what an operation that comes later makes: a check for known kinds, and the shape for unknown ones.
    pub fn declare(&mut self, name: &str, ty: TensorType) {
        self.declared.insert(name.to_owned(), ty);
    }

    /// Says that a tensor is wanted behind the graph, also where operations of the graph read it.
    pub fn keep(&mut self, name: &str) {
        self.kept.insert(name.to_owned());
    }

    /// Whether there is a tensor of that name by now.
    pub fn has(&self, name: &str) -> bool {
        self.graph.names.contains_key(name)
    }

    /// Adds an operation and what it makes.
    ///
    /// # Errors
    /// If it reads what does not exist, makes what exists, or shapes, types or parameters do not fit its kind.
    pub fn op(&mut self, operation: Operation) -> Result<OpId, GraphError> {
        if self.graph.find_op(&operation.name).is_some() {
            return Err(GraphError::SameName(operation.name));
        }
        let mut inputs = Vec::with_capacity(operation.inputs.len());
        for name in &operation.inputs {
            let dangling = || GraphError::Dangling { op: operation.name.clone(), tensor: name.clone() };
            inputs.push(self.graph.find_tensor(name).ok_or_else(dangling)?);
        }
        let kind = match kind::find(&operation.kind) {
            Some(kind) => OpKind::Known(kind),
            None => OpKind::Unknown,
        };
        let (types, assumed) = self.made_types(&operation, kind, &inputs)?;
        self.check_declared(&operation, &types)?;
        self.check_made(&operation, &types)?;
        let id = OpId(self.graph.ops.len());
        let made = operation.outputs.iter().zip(types);
        let outputs = made.map(|(name, ty)| self.push(name, ty, Origin::Made(id))).collect();
        for &input in &inputs {
            self.graph.tensors[input.0].readers.push(id);
        }
        let Operation { name, kind: kind_name, params, .. } = operation;
        self.graph.ops.push(Op { name, kind_name, kind, inputs, outputs, params, assumed });
        Ok(id)
    }

    /// The graph.
    ///
    /// # Errors
    /// If what is to be kept does not exist.
    pub fn finish(mut self) -> Result<Graph, GraphError> {
        for name in &self.kept {
            match self.graph.names.get(name) {
                Some(id) => self.graph.tensors[id.0].kept = true,
                None => return Err(GraphError::NoSuchOutput(name.clone())),
            }
        }
        Ok(self.graph)
    }

    /// The types of what an operation makes, and whether they are assumed.
    fn made_types(
        &self,
        operation: &Operation,
        kind: OpKind,
        inputs: &[TensorId],
    ) -> Result<(Vec<TensorType>, bool), GraphError> {
        let misfit = |reason: String| GraphError::Misfit { op: operation.name.clone(), reason };
        let typed = inputs.iter().map(|&id| {
            let tensor = self.graph.tensor(id);
            (tensor.name.as_str(), &tensor.ty)
        });
        let operands = Operands { inputs: typed.collect(), outputs: Vec::new(), params: &operation.params };
        if let OpKind::Known(kind) = kind {
            let types = kind.made(&operands, operation.outputs.len()).map_err(misfit)?;
            return Ok((types, false));
        }
        let mut assumed = false;
        let mut types = Vec::with_capacity(operation.outputs.len());
        for name in &operation.outputs {
            let first = operands.inputs.first().map(|(_, ty)| (*ty).clone());
            let declared = self.declared.get(name).cloned();
            assumed |= declared.is_none();
            types.push(declared.or(first).ok_or_else(|| {
                misfit(format!("`{}` is no kind that is known, and `{name}` is not declared", operation.kind))
            })?);
        }
        Ok((types, assumed))
    }

    fn check_declared(&self, operation: &Operation, types: &[TensorType]) -> Result<(), GraphError> {
        for (name, made) in operation.outputs.iter().zip(types) {
            if let Some(declared) = self.declared.get(name)
                && declared != made
            {
                return Err(GraphError::Declared {
                    tensor: name.clone(),
                    op: operation.name.clone(),
                    declared: declared.to_string(),
                    made: made.to_string(),
                });
            }
        }
        Ok(())
    }

    /// That what an operation makes is new and can be counted.
    fn check_made(&self, operation: &Operation, types: &[TensorType]) -> Result<(), GraphError> {
        for (index, (name, ty)) in operation.outputs.iter().zip(types).enumerate() {
            let second = format!("operation `{}`", operation.name);
            let first = match self.graph.find_tensor(name).map(|id| self.graph.tensor(id).origin) {
                Some(Origin::Input) => "the inputs".to_owned(),
                Some(Origin::Weight) => "the weights".to_owned(),
                Some(Origin::Made(op)) => format!("operation `{}`", self.graph.op(op).name),
                None if operation.outputs[..index].contains(name) => second.clone(),
                None => {
                    check_size(name, ty)?;
                    continue;
                }
            };
            return Err(GraphError::MadeTwice { tensor: name.clone(), first, second });
        }
        Ok(())
    }

    fn tensor(&mut self, name: &str, ty: TensorType, origin: Origin) -> Result<TensorId, GraphError> {
        if self.has(name) {
            let (first, second) = ("a declaration".to_owned(), "another one".to_owned());
            return Err(GraphError::MadeTwice { tensor: name.to_owned(), first, second });
        }
        check_size(name, &ty)?;
        Ok(self.push(name, ty, origin))
    }

    fn push(&mut self, name: &str, ty: TensorType, origin: Origin) -> TensorId {
        let id = TensorId(self.graph.tensors.len());
        let tensor = Tensor { name: name.to_owned(), ty, origin, kept: false, readers: Vec::new() };
        self.graph.tensors.push(tensor);
        self.graph.names.insert(name.to_owned(), id);
        id
    }
}

fn check_size(name: &str, ty: &TensorType) -> Result<(), GraphError> {
    match ty.checked_bytes() {
        Some(_) => Ok(()),
        None => Err(GraphError::TooLarge { tensor: name.to_owned(), shape: ty.shape_text() }),
    }
}
