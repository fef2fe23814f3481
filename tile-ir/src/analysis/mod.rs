//! Analyses of integer tiles before any layout is assigned. They read tile IR and never change it, but for
//! [`row_groups`] and [`reread`], which prepare a function for a specialization.
//!
//! - [`axis_info`]: contiguity, divisibility, constancy and range of every integer value; decides vector widths.
//! - [`alias`]: which accesses of one slice are disjoint.
//! - [`polynomial`]: index arithmetic as polynomials over program ids, ranges and arguments.
//! - [`inequality`]: the bound of a polynomial, given inequalities.
//! - [`bounds`]: which accesses stay inside their slice, given guards that the launcher checks once.
//! - [`assumption`]: what `tl::assume` says of arguments, for the launcher to check.
//! - [`mistakes`]: what is allowed and hardly meant, for warnings.
//! - [`non_negative`]: dividends and divisors that are not negative, given guards.
//! - [`program_length`]: the grid axis along which programs run longest.
//! - [`reread`]: loops that read what another loop has read.
//! - [`row_groups`]: parts of a function that share no tile, each with a range of its own.
//! - [`unordered_access`]: accesses that nothing orders with those of other programs, for reports of races.

pub mod alias;
pub mod assumption;
pub mod axis_info;
pub mod bounds;
pub mod inequality;
pub mod launch_assumptions;
mod masked_zeros;
pub mod mistakes;
pub mod non_negative;
pub mod polynomial;
pub mod program_length;
pub mod program_varying;
mod reduced_rows;
pub mod repeated_access;
pub mod reread;
pub mod row_groups;
pub mod unordered_access;
