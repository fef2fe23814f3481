//! The kinds of operations. Each is declared once, in a table of its family: how it is spread over programs, the shapes that it
//! takes and makes, its arithmetic, and the registers of a thread that it keeps busy.
//!
//! **Operations** are counted as the documents of the project count them where they do, and written beside the formula otherwise;
//! an addition, a product, a comparison and a conversion are one each, exp, log, tanh and a division one each too. GELU is 8,
//! a row's mean and variance and what they scale 5. A fused multiply-add is two.
//!
//! **Registers** are the values that are alive for an element: 5 for an elementwise operation, 10 for a reduction, which gives
//! the documents' 15 for LayerNorm and GELU and 50 for ten operations. The accumulators of a matmul are separate: its tile is
//! chosen so that they fit.

mod declaration;
pub(crate) mod elementwise;
pub(crate) mod matmul;
pub(crate) mod movement;
pub(crate) mod rows;
pub(crate) mod shapes;

pub use declaration::{Kind, Named, Operands, Pattern, Shapes};

/// Every kind, family by family.
pub fn all() -> impl Iterator<Item = &'static Kind> {
    [elementwise::KINDS, rows::KINDS, matmul::KINDS, movement::KINDS].into_iter().flatten()
}

/// The kind of a name or an alias.
pub fn find(name: &str) -> Option<&'static Kind> {
    all().find(|kind| kind.name == name || kind.aliases.contains(&name))
}
