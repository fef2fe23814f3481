//! What analyses assume of a launch: the user's assumptions, and what a specialization's guards say.

use std::collections::HashMap;

use crate::analysis::non_negative::Signs;
use crate::ir::assumption::Assumption;
use crate::ir::guard::{Guard, Symbol};
use crate::ir::{Func, ParamKind, Value};
use crate::support::dtype::DType;

/// What the analysis assumes of a launch; the launcher checks it by guards.
#[derive(Clone, Default, Debug)]
pub struct LaunchAssumptions {
    /// Scalars that are multiples of a power of two: parameters, or what a kernel has loaded.
    pub multiples: HashMap<Value, u64>,
    /// Ranges of scalar parameters.
    pub ranges: HashMap<Value, (i128, i128)>,
    /// Lower bounds of scalar parameters, and of computed values that do not wrap.
    pub least: HashMap<Value, i128>,
    /// The most programs along each axis of the grid, where it is less than the type allows.
    pub grid: [Option<i128>; 3],
}

impl LaunchAssumptions {
    /// The user's assumptions of a function; contradictory ones say nothing.
    pub fn of(func: &Func) -> LaunchAssumptions {
        let mut all = LaunchAssumptions::default();
        for assumption in &func.assumptions {
            match *assumption {
                Assumption::Multiple(scalar, by) => {
                    if let Some((value, _)) = integer(func, scalar) {
                        let known = all.multiples.entry(value).or_insert(1);
                        *known = u64::from(by).max(*known);
                    }
                }
                Assumption::AtLeast(scalar, low) => all.narrow(func, scalar, (low.into(), i128::MAX)),
                Assumption::AtMost(scalar, high) => all.narrow(func, scalar, (i128::MIN, high.into())),
                Assumption::Programs(axis, most) => {
                    let known = &mut all.grid[usize::from(axis)];
                    *known = Some(known.map_or(most.into(), |known| known.min(most.into())));
                }
            }
        }
        all.ranges.retain(|_, (low, high)| low <= high);
        all.grid = all.grid.map(|most| most.filter(|&most| most > 0));
        all
    }

    /// With what guards say of arguments and of the grid. The extents and strides of views are never negative, so that a limit of a
    /// sum is a limit of each of its terms.
    pub fn with_guards(mut self, func: &Func, guards: &[Guard]) -> LaunchAssumptions {
        for guard in guards {
            let Guard::AtMost { low, high } = guard else { continue };
            match (low.as_constant(), low.single_symbol(), high.as_constant(), high.single_symbol()) {
                (Some(least), _, _, Some((0, 1, Symbol::Scalar(scalar)))) => {
                    self.narrow(func, scalar, (least.into(), i128::MAX));
                }
                (_, Some((start, coefficient, symbol)), Some(limit), _) if coefficient > 0 => {
                    let most = (i128::from(limit) - i128::from(start)).div_euclid(coefficient.into());
                    match symbol {
                        Symbol::Scalar(scalar) => self.narrow(func, scalar, (i128::MIN, most)),
                        Symbol::Grid(axis) => {
                            let known = &mut self.grid[usize::from(axis)];
                            *known =
                                Some(known.map_or(most, |known| known.min(most))).filter(|&most| most > 0);
                        }
                        Symbol::Length(_) | Symbol::CeilDiv { .. } | Symbol::Div { .. } => {}
                    }
                }
                _ => {}
            }
            let (Some(limit), Some((start, terms))) = (high.as_constant(), low.linear_in_scalars()) else {
                continue;
            };
            let is_of_view = |&(position, coefficient): &(u32, i64)| {
                coefficient > 0
                    && integer(func, position).is_some_and(|(value, _)| func.is_view_scalar(value))
            };
            if terms.iter().all(is_of_view) {
                for (position, coefficient) in terms {
                    let most = (i128::from(limit) - i128::from(start)) / i128::from(coefficient);
                    self.narrow(func, position, (0, most));
                }
            }
        }
        self.ranges.retain(|_, (low, high)| low <= high);
        self
    }

    /// The power of two that an integer is known to be a multiple of.
    pub fn multiple(&self, value: Value) -> u64 {
        self.multiples.get(&value).copied().unwrap_or(1)
    }

    /// With the lower bounds of dividends and divisors.
    pub fn with_signs(self, signs: &Signs) -> LaunchAssumptions {
        LaunchAssumptions { least: signs.least(), ..self }
    }

    fn narrow(&mut self, func: &Func, scalar: u32, (low, high): (i128, i128)) {
        if let Some((value, dtype)) = integer(func, scalar) {
            let known = self.ranges.entry(value).or_insert(dtype.range());
            *known = (known.0.max(low), known.1.min(high));
        }
    }
}

/// The integer parameter at a position.
fn integer(func: &Func, position: u32) -> Option<(Value, DType)> {
    match func.params[position as usize].kind {
        ParamKind::Scalar { value, dtype } => Some((value, dtype)),
        ParamKind::Slice { .. } => None,
    }
}
