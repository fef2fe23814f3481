//! What is wrong with a graph or a model file, in words.

use std::fmt;

/// What is wrong with a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An operation reads a tensor that does not exist.
    #[error("operation `{op}` reads `{tensor}`, which no operation makes and no input or weight declares")]
    Dangling {
        /// The reader.
        op: String,
        /// The tensor.
        tensor: String,
    },
    /// Two operations make the same tensor, or one makes an input.
    #[error("`{tensor}` is made by {first} and again by {second}")]
    MadeTwice {
        /// The tensor.
        tensor: String,
        /// Who made it first: an operation, or the declaration of an input or a weight.
        first: String,
        /// Who makes it again.
        second: String,
    },
    /// Two operations have one name.
    #[error("two operations are named `{0}`")]
    SameName(String),
    /// Operations wait for each other.
    #[error("operations wait for each other's results: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Shapes, types or parameters do not fit.
    #[error("operation `{op}`: {reason}")]
    Misfit {
        /// The operation.
        op: String,
        /// What was needed and what was found.
        reason: String,
    },
    /// A tensor with more bytes than can be counted.
    #[error("`{tensor}` of shape {shape} has more bytes than 64 bits count")]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// Its shape, as printed.
        shape: String,
    },
    /// A name to keep that is no tensor's.
    #[error("`{0}` is to be kept as an output, and there is no tensor of that name")]
    NoSuchOutput(String),
    /// What a declaration says about a made tensor is not so.
    #[error("`{tensor}` is declared {declared}, and operation `{op}` makes it {made}")]
    Declared {
        /// The tensor.
        tensor: String,
        /// Who makes it.
        op: String,
        /// The type that was declared, as printed.
        declared: String,
        /// The type that comes out, as printed.
        made: String,
    },
}

/// One mistake in a model file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// The line, counted from 1, if the mistake has a location.
    pub line: Option<usize>,
    /// What was needed and what was found.
    pub message: String,
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Every mistake of a model file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelErrors(pub Vec<ModelError>);

impl ModelErrors {
    pub(crate) fn one(line: Option<usize>, message: impl Into<String>) -> ModelErrors {
        ModelErrors(vec![ModelError { line, message: message.into() }])
    }
}

impl fmt::Display for ModelErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ModelErrors {}
