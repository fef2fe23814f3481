//! Reads a graph from a small text file.
//!
//! ```toml
//! name = "layer norm and gelu"
//! dtype = "bf16"                                  # of tensors that say nothing else
//! outputs = []                                    # kept though operations read them
//!
//! [dims]
//! tokens = 4096
//! hidden = 4096
//!
//! [inputs]
//! x = ["tokens", "hidden"]
//!
//! [weights]
//! gamma = { shape = ["hidden"], dtype = "f32" }
//!
//! [[op]]
//! name = "norm"
//! kind = "layer_norm"
//! inputs = ["x", "gamma"]
//! outputs = ["normed"]                            # shapes follow
//! ```
//!
//! Extents are numbers or expressions of `[dims]` (see [`crate::dims`]). `[tensors]` declares what operations make: a check, and the
//! shape of what unknown kinds make. Operations stand in any order. Parameters are keys of their operation: `heads`, `kv_heads`, `causal`,
//! `groups`, `k`, `sizes`, `dtype`, `transposed`, `materialize`, `tf32`. `[[document]]` says what a document expects of a group, for
//! reports to show beside the result: `ops`, `decision`, `score`, `source`.

mod file;
mod order;

use toml::Spanned;

use crate::dims::Dims;
use crate::dtype::DType;
use crate::error::{GraphError, ModelError, ModelErrors};
use crate::graph::{Graph, GraphBuilder, TensorType};

pub use file::Expectation;

use file::{Declared, Entry, File};

/// A model file that was read.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its graph.
    pub graph: Graph,
    /// Its named extents.
    pub dims: Dims,
    /// What documents expect of it.
    pub documents: Vec<Expectation>,
}

/// Reads a model; `set` overrides named extents.
///
/// # Errors
/// Every mistake of the file with its line; those of a syntax that is not TOML, alone.
pub fn parse(text: &str, set: &[(String, u64)]) -> Result<Model, ModelErrors> {
    let lines = Lines(text);
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| lines.at(span.start));
        ModelErrors::one(line, error.message())
    })?;
    let dims = Dims::resolve(&file.dims, set).map_err(|message| ModelErrors::one(None, message))?;
    let mut reading =
        Reading { lines, dims: &dims, builder: Graph::builder(""), errors: Vec::new(), natural: DType::F32 };
    let graph = reading.read(&file);
    let mut errors = reading.errors;
    errors.sort_by_key(|error| error.line);
    match graph {
        Some(graph) if errors.is_empty() => Ok(Model { graph, dims, documents: file.document }),
        _ => Err(ModelErrors(errors)),
    }
}

/// From places in a text to its lines.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn at(&self, byte: usize) -> usize {
        1 + self.0.bytes().take(byte).filter(|&byte| byte == b'\n').count()
    }
}

struct Reading<'a> {
    lines: Lines<'a>,
    dims: &'a Dims,
    builder: GraphBuilder,
    errors: Vec<ModelError>,
    /// The type of tensors that say nothing else.
    natural: DType,
}

impl Reading<'_> {
    fn error(&mut self, byte: usize, message: impl ToString) {
        let (line, message) = (Some(self.lines.at(byte)), message.to_string());
        self.errors.push(ModelError { line, message });
    }

    fn read(&mut self, file: &File) -> Option<Graph> {
        self.builder = Graph::builder(file.name.as_deref().unwrap_or("model"));
        if let Some(dtype) = &file.dtype {
            match dtype.get_ref().parse() {
                Ok(dtype) => self.natural = dtype,
                Err(message) => self.error(dtype.span().start, message),
            }
        }
        let mut spoilt = Vec::new();
        for (name, declared) in &file.inputs {
            let Some(ty) = self.typed(name, declared, &mut spoilt) else { continue };
            if let Err(error) = self.builder.input(name, ty.shape, ty.dtype) {
                self.error(declared.span().start, error);
            }
        }
        for (name, declared) in &file.weights {
            let Some(ty) = self.typed(name, declared, &mut spoilt) else { continue };
            if let Err(error) = self.builder.weight(name, ty.shape, ty.dtype) {
                self.error(declared.span().start, error);
            }
        }
        for (name, declared) in &file.tensors {
            if let Some(ty) = self.typed(name, declared, &mut spoilt) {
                self.builder.declare(name, ty);
            }
        }
        let given = file.inputs.keys().chain(file.weights.keys()).map(String::as_str).collect::<Vec<_>>();
        self.add_operations(&file.op, &given, spoilt);
        for name in &file.outputs {
            if self.builder.has(name.get_ref()) {
                self.builder.keep(name.get_ref());
            } else if self.errors.is_empty() {
                self.error(name.span().start, GraphError::NoSuchOutput(name.get_ref().clone()));
            }
        }
        self.builder.clone().finish().ok()
    }

    /// The type of a declaration. Names of those that are none are noted, so that nobody complains of them twice.
    fn typed(
        &mut self,
        name: &str,
        declared: &Spanned<Declared>,
        spoilt: &mut Vec<String>,
    ) -> Option<TensorType> {
        let Declared { shape, dtype } = declared.get_ref();
        let shape = shape.iter().map(|extent| self.dims.value(extent)).collect::<Result<Vec<_>, _>>();
        let dtype = dtype.as_deref().map_or(Ok(self.natural), str::parse);
        match (shape, dtype) {
            (Ok(shape), Ok(dtype)) => Some(TensorType::new(shape, dtype)),
            (Err(message), _) | (_, Err(message)) => {
                self.error(declared.span().start, format!("`{name}`: {message}"));
                spoilt.push(name.to_owned());
                None
            }
        }
    }

    /// Adds operations, each behind those that it reads from. What reads the result of a mistake is left out silently.
    fn add_operations(&mut self, entries: &[Entry], given: &[&str], mut spoilt: Vec<String>) {
        let ordered = order::sorted(entries, given);
        if !ordered.cycle.is_empty() {
            // The first one again at the end, so that the circle is seen to close.
            let around = ordered.cycle.iter().chain(&ordered.cycle[..1]);
            let names = around.map(|&index| entries[index].name.get_ref().clone());
            let cycle = GraphError::Cycle(names.collect());
            self.error(entries[ordered.cycle[0]].name.span().start, cycle);
            spoilt.extend(ordered.cycle.iter().flat_map(|&index| entries[index].outputs.clone()));
        }
        for entry in ordered.indices.into_iter().map(|index| &entries[index]) {
            if entry.inputs.iter().any(|input| spoilt.contains(input)) {
                spoilt.extend(entry.outputs.iter().cloned());
                continue;
            }
            let name = entry.name.get_ref();
            let operation =
                entry.operation(self.dims).map_err(|message| format!("operation `{name}`: {message}"));
            let added =
                operation.and_then(|operation| self.builder.op(operation).map_err(|error| error.to_string()));
            if let Err(message) = added {
                self.error(entry.name.span().start, message);
                let unmade = entry.outputs.iter().filter(|output| !self.builder.has(output));
                spoilt.extend(unmade.cloned());
            }
        }
    }
}
