//! [`Kind`]: what a kind of operation declares, and what its rules look at.

use serde::Serialize;

use crate::graph::{Params, TensorType};

/// How an operation is spread over programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Another look at the same memory: a split, a reshape, a transpose.
    View,
    /// Every element on its own.
    Elementwise,
    /// Rows of a table that numbers choose.
    Gather,
    /// A row in each program, which all of its elements are needed for.
    RowReduction,
    /// A column in each program, over all rows.
    ColumnReduction,
    /// Tiles of a matmul, over the steps of its inner extent.
    Matmul,
    /// Tiles of queries, over all keys.
    Attention,
    /// Not known.
    Opaque,
}

impl Pattern {
    /// As it is written in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::View => "view",
            Pattern::Elementwise => "elementwise",
            Pattern::Gather => "gather",
            Pattern::RowReduction => "row reduction",
            Pattern::ColumnReduction => "column reduction",
            Pattern::Matmul => "matmul",
            Pattern::Attention => "attention",
            Pattern::Opaque => "unknown",
        }
    }
}

/// An input or an output with its name.
pub type Named<'a> = (&'a str, &'a TensorType);

/// What the rules of a kind look at.
#[derive(Clone, Debug)]
pub struct Operands<'a> {
    /// What is read, in order.
    pub inputs: Vec<Named<'a>>,
    /// What is made, in order; empty while shapes are inferred.
    pub outputs: Vec<Named<'a>>,
    /// What else was said.
    pub params: &'a Params,
}

impl Operands<'_> {
    /// The elements of an input as a float to calculate with; 0 where there is no such input.
    pub fn elements_in(&self, index: usize) -> f64 {
        self.inputs.get(index).map_or(0.0, |(_, ty)| ty.elements() as f64)
    }

    /// The elements of the first output.
    pub fn elements_out(&self) -> f64 {
        self.outputs.first().map_or(0.0, |(_, ty)| ty.elements() as f64)
    }

    /// The last extent of an input; 1 where there is no such input.
    pub fn row_len(&self, index: usize) -> u64 {
        self.inputs.get(index).map_or(1, |(_, ty)| ty.row_len())
    }
}

/// Types of what is made, or what does not fit, in words that name both.
pub type Shapes = fn(&Operands<'_>, usize) -> Result<Vec<TensorType>, String>;

/// A kind of operation.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in model files.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What it computes, with the names of its parameters.
    pub formula: &'static str,
    /// How it is spread over programs.
    pub pattern: Pattern,
    /// The values of a thread that are alive for an element, in registers of 32 bits.
    pub live: u32,
    /// The registers of a thread that accumulators take, in the largest tiles of the library.
    pub accumulators: u32,
    /// Whether its matmuls run on tensor cores where the type has them.
    pub tensor_core: bool,
    shapes: Shapes,
    flops: fn(&Operands<'_>) -> f64,
    row: fn(&Operands<'_>) -> u64,
    gathers: bool,
    passes: u32,
}

impl Kind {
    /// A kind that computes nothing, on rows of its first input.
    pub(crate) const fn new(
        name: &'static str,
        formula: &'static str,
        pattern: Pattern,
        shapes: Shapes,
    ) -> Kind {
        Kind {
            name,
            aliases: &[],
            formula,
            pattern,
            live: 0,
            accumulators: 0,
            tensor_core: false,
            shapes,
            flops: |_| 0.0,
            row: |operands| operands.row_len(0),
            gathers: false,
            passes: 1,
        }
    }

    pub(crate) const fn also(self, aliases: &'static [&'static str]) -> Kind {
        Kind { aliases, ..self }
    }

    pub(crate) const fn flops(self, flops: fn(&Operands<'_>) -> f64) -> Kind {
        Kind { flops, ..self }
    }

    pub(crate) const fn row(self, row: fn(&Operands<'_>) -> u64) -> Kind {
        Kind { row, ..self }
    }

    pub(crate) const fn live(self, live: u32) -> Kind {
        Kind { live, ..self }
    }

    pub(crate) const fn on_tensor_cores(self, accumulators: u32) -> Kind {
        Kind { tensor_core: true, accumulators, ..self }
    }

    /// Of its first input it reads as many bytes as it writes.
    pub(crate) const fn gathering(self) -> Kind {
        Kind { gathers: true, ..self }
    }

    /// It goes over its first input so many times, in a kernel each: all programs wait for all in between.
    pub(crate) const fn passes(self, passes: u32) -> Kind {
        Kind { passes, ..self }
    }

    /// The types of what it makes of its inputs, `outputs` of them.
    ///
    /// # Errors
    /// What was needed and what was found, if inputs, their number or parameters do not fit.
    pub fn made(&self, operands: &Operands<'_>, outputs: usize) -> Result<Vec<TensorType>, String> {
        let types = (self.shapes)(operands, outputs)?;
        if types.len() != outputs {
            return Err(format!("needs {} outputs, found {outputs}", types.len()));
        }
        Ok(types)
    }

    /// The operations of a run. Outputs must be there.
    pub fn count_flops(&self, operands: &Operands<'_>) -> f64 {
        (self.flops)(operands)
    }

    /// The elements of a row that a reduction goes over.
    pub fn reduced_row(&self, operands: &Operands<'_>) -> u64 {
        (self.row)(operands)
    }

    /// How many kernels go over its first input one after the other.
    pub fn pass_count(&self) -> u32 {
        self.passes
    }

    /// The bytes of an input that are read in a pass, each once.
    pub fn read_bytes(&self, operands: &Operands<'_>, index: usize) -> u64 {
        let whole = operands.inputs[index].1.bytes();
        match operands.outputs.first() {
            Some((_, made)) if self.gathers && index == 0 => whole.min(made.bytes()),
            _ => whole,
        }
    }
}
