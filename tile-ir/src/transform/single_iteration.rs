//! Loops over the chunks of a row, specialized for rows of one chunk. Each loop becomes straight-line code for its single
//! iteration, and equal loads of several loops are merged.

use std::collections::{HashMap, HashSet};

use crate::analysis::polynomial::Polynomials;
use crate::ir;
use crate::ir::guard::{Guard, Symbol, SymbolicSum};
use crate::ir::polynomial::{Atom, Polynomial};
use crate::ir::{Func, Op, Rewriter, Value, substitute_in};
use crate::ops::{For, Kind};

/// The function with loops of trip count 1 unrolled, and the guards under which they have it; `None` where that saves no load.
pub fn single_iteration(func: &Func) -> Option<(Func, Vec<Guard>)> {
    let polynomials = Polynomials::analyze(func);
    let (mut variables, mut guards) = (HashSet::new(), vec![]);
    func.body.walk(&mut |op| {
        if let Kind::For(op) = &op.kind
            && let Some(own) = guards_of_single_iteration(op, &polynomials)
        {
            variables.insert(op.body.args[0]);
            guards.extend(own.into_iter().filter(|guard| !guards.contains(guard)).collect::<Vec<_>>());
        }
    });
    if variables.is_empty() {
        return None;
    }
    let mut unrolled = func.clone();
    Rewriter::default().run(&mut unrolled, &mut |rewriter, builder, mut op| {
        if let Kind::For(looped) = &mut op.kind
            && variables.contains(&looped.body.args[0])
        {
            for inner in first_iteration(looped) {
                builder.append(inner);
            }
            for (&result, &value) in op.results.iter().zip(&looped.body.yields) {
                rewriter.replace(result, value);
            }
            return;
        }
        builder.append(op);
    });
    ir::cse_and_dce(&mut unrolled);
    (loads(&unrolled) < loads(func)).then_some((unrolled, guards))
}

/// The operations of a loop's first iteration; its yields are the loop's results.
fn first_iteration(looped: &mut For) -> Vec<Op> {
    let starts = std::iter::once(looped.low).chain(looped.inits.iter().copied());
    let starts: HashMap<Value, Value> = looped.body.args.drain(..).zip(starts).collect();
    substitute_in(&mut looped.body, &|value| starts.get(&value).copied().unwrap_or(value));
    std::mem::take(&mut looped.body.ops)
}

/// The guards under which a loop from a constant up to an argument has trip count 1, for steps above 1.
fn guards_of_single_iteration(op: &For, polynomials: &Polynomials) -> Option<Vec<Guard>> {
    let constant_of = |value: Value| polynomials.get(value).as_constant();
    let (low, step) = (constant_of(op.low)?, constant_of(op.step)?);
    let high = polynomials.get(op.high);
    let Some(Atom::Known(Symbol::Scalar(scalar))) = as_atom(&high) else { return None };
    if op.closed || step <= 1 {
        return None;
    }
    let constant = |value: i128| {
        let terms = if value == 0 { vec![] } else { vec![(i64::try_from(value).ok()?, vec![])] };
        Some(SymbolicSum { terms })
    };
    let end = || SymbolicSum { terms: vec![(1, vec![Symbol::Scalar(scalar)])] };
    Some(vec![
        Guard::AtMost { low: constant(low + 1)?, high: end() },
        Guard::AtMost { low: end(), high: constant(low + step)? },
    ])
}

/// The atom that a polynomial is.
fn as_atom(value: &Polynomial) -> Option<Atom> {
    let mut terms = value.terms();
    let (&[atom], 1) = terms.next()? else { return None };
    terms.next().is_none().then_some(atom)
}

fn loads(func: &Func) -> usize {
    let mut count = 0;
    func.body.walk(&mut |op| count += usize::from(matches!(op.kind, Kind::Load(_) | Kind::LoadView(_))));
    count
}
