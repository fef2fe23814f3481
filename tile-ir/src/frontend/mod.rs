//! From tokens to tile IR: `syntax` parses a kernel, `typeck` checks one variant of it and builds its function.

pub mod syntax;
pub mod typeck;
