//! What every stage uses: element types, diagnostics and their locations, the options of a build.

pub mod diagnostic;
pub mod dtype;
pub mod limits;
pub mod operator;
pub mod warning;
