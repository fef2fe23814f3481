//! What every stage speaks of: element types, mistakes and their places, the options of a build.

pub mod diagnostic;
pub mod dtype;
pub mod limits;
