//! What is known about integer tiles before any thread exists.
//!
//! - [`axis`]: contiguity, divisibility, constancy and range of every integer value: decides vector widths.
//! - [`alias`]: which accesses of one slice are disjoint.
//! - [`polynomial`]: index arithmetic as polynomials over program ids, ramps and arguments: decides bounds.
//! - [`bounds`]: which accesses cannot leave their slice, given conditions that the launcher checks once.
//! - [`inequality`]: the bound of a polynomial, given inequalities.
//! - [`promise`]: what the user says of arguments, for the launcher to check.
//! - [`split`]: offsets and comparisons rewritten so that nothing overflows and the uniform part is scalar; blocks of views
//!   become accesses with offsets and masks.
//! - [`stage`]: products of blocks that a GPU copies by itself, and `group_store`, how what is made of them leaves.
//! - [`order`]: factors of products that lie by columns.
//! - [`contract`]: float formulas as one would write them for the machine.
//! - [`induction`]: offsets that loops carry, as multiples of their variables.
//! - [`scale`]: scales of tiles, joined and taken after maxima.
//! - [`longest`]: programs that take longest.
//! - [`full`]: iterations in which a mask holds everywhere.
//! - [`reread`]: loops that read what another loop has read.
//! - [`rotate`]: rows that begin anywhere.
//! - [`unrotated`]: what is read of rows that begin anywhere where they are not rotated.
//! - [`sign`]: what is divided is not negative, given conditions of the same kind.
//! - [`view`]: what bodies take for granted of views.

pub mod alias;
pub mod assumption;
pub mod axis_info;
pub mod bounds;
pub mod inequality;
pub mod non_negative;
pub mod polynomial;
pub mod program_length;
pub mod repeated_access;
pub mod reread;
pub mod row_groups;
pub mod view_strides;
