//! Which accesses of one slice are disjoint, so that no barrier must order them.
//!
//! Takes a function and the guards that hold when it runs. Gives pairs of accesses that never alias, in one iteration of
//! all loops or across iterations of one loop. It never decides where barriers stand.

use std::collections::HashSet;
use std::rc::Rc;

use crate::analysis::bounds::DisjointAccesses;
use crate::analysis::polynomial::Polynomials;
use crate::ir::guard::Guard;
use crate::ir::{Block, Func, Value};
use crate::ops::{Effect, Kind, MemAccess};

/// Accesses to slices that are written, beyond which none are compared.
const MAX_COMPARED: usize = 32;

type Pairs = HashSet<(MemAccess, MemAccess)>;
/// With the variable of a loop.
type PairsAcrossIterations = HashSet<(Value, MemAccess, MemAccess)>;

/// Pairs of accesses to one slice that are disjoint, where one of them writes.
#[derive(Clone, Debug)]
pub struct SliceAlias {
    /// Disjoint within one iteration of the loops around them.
    within_iteration: Rc<Pairs>,
    /// Disjoint in different iterations of the loop with this variable.
    across_iterations: Rc<PairsAcrossIterations>,
}

impl SliceAlias {
    pub fn analyze(func: &Func, guards: &[Guard]) -> SliceAlias {
        let (within, across) = disjoint_pairs(func, guards);
        SliceAlias { within_iteration: Rc::new(within), across_iterations: Rc::new(across) }
    }

    /// Whether two accesses are disjoint within one iteration of all loops around them.
    pub fn are_disjoint(&self, a: MemAccess, b: MemAccess) -> bool {
        self.within_iteration.contains(&(a, b)) || self.within_iteration.contains(&(b, a))
    }

    /// Whether two accesses are disjoint in different iterations of the loop with this variable.
    pub fn are_disjoint_across_iterations(&self, variable: Value, a: MemAccess, b: MemAccess) -> bool {
        let known = &self.across_iterations;
        known.contains(&(variable, a, b)) || known.contains(&(variable, b, a))
    }
}

/// The disjoint pairs: within one iteration of all loops, and across iterations of the loop with a variable.
fn disjoint_pairs(func: &Func, guards: &[Guard]) -> (Pairs, PairsAcrossIterations) {
    let (mut within, mut across) = (HashSet::new(), HashSet::new());
    let accesses = accesses_of_written_slices(func, &func.body);
    let mut loops = false;
    func.body.walk(&mut |op| loops |= matches!(op.kind, Kind::For(_)));
    // One access outside of loops can alias nothing but itself.
    let least = if loops { 1 } else { 2 };
    if !(least..=MAX_COMPARED).contains(&accesses.len()) {
        return (within, across);
    }
    let polynomials = Polynomials::analyze(func);
    let disjoint = DisjointAccesses::new(func, &polynomials, guards);
    let pairs = |accesses: &[(MemAccess, bool)]| {
        let mut pairs = vec![];
        for (i, (a, writes)) in accesses.iter().enumerate() {
            let conflicting =
                accesses[..=i].iter().filter(|(b, also)| a.param == b.param && (*writes || *also));
            pairs.extend(conflicting.map(|(b, _)| (*a, *b)));
        }
        pairs
    };
    within.extend(pairs(&accesses).into_iter().filter(|(a, b)| a != b && disjoint.disjoint([a, b])));
    func.body.walk(&mut |op| {
        let Kind::For(op) = &op.kind else { return };
        let own = pairs(&accesses_of_written_slices(func, &op.body)).into_iter();
        let own = own.filter(|(a, b)| disjoint.disjoint_across_iterations(op, [a, b]));
        across.extend(own.map(|(a, b)| (op.body.args[0], a, b)));
    });
    (within, across)
}

/// Accesses to slices that the function writes, and whether they write.
fn accesses_of_written_slices(func: &Func, block: &Block) -> Vec<(MemAccess, bool)> {
    let mut accesses: Vec<(MemAccess, bool)> = vec![];
    block.walk(&mut |op| {
        if let Some(access) = op.kind.operation().access()
            && func.slice(access.param).1
        {
            accesses.push((*access, op.kind.operation().effect() == Effect::Write));
        }
    });
    accesses
}
