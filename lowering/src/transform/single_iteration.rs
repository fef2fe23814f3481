//! Loops over a row in pieces, where one piece is the row: written for any length, and launched for a length that a piece has room
//! for. Each is a turn of straight code then, and what several loops read alike is read once.

use std::collections::{HashMap, HashSet};

use crate::analysis::polynomial::{Atom, Polynomial, Polynomials};
use crate::ir;
use crate::ir::guard::{Guard, Symbol, SymbolicSum};
use crate::ir::{Func, Op, Rewriter, Value, substitute_in};
use crate::ops::{For, Kind};

/// The function with loops that make one turn under the facts given as straight code; `None` where that saves no load.
pub fn single_iteration(func: &Func) -> Option<(Func, Vec<Guard>)> {
    let polynomials = Polynomials::analyze(func);
    let (mut variables, mut facts) = (HashSet::new(), vec![]);
    func.body.walk(&mut |op| {
        if let Kind::For(op) = &op.kind
            && let Some(own) = if_one_turn(op, &polynomials)
        {
            variables.insert(op.body.args[0]);
            facts.extend(own.into_iter().filter(|fact| !facts.contains(fact)).collect::<Vec<_>>());
        }
    });
    if variables.is_empty() {
        return None;
    }
    let mut straight = func.clone();
    Rewriter::default().run(&mut straight, &mut |rewriter, builder, mut op| {
        if let Kind::For(turn) = &mut op.kind
            && variables.contains(&turn.body.args[0])
        {
            for inner in body_of(turn) {
                builder.append(inner);
            }
            for (&result, &value) in op.results.iter().zip(&turn.body.yields) {
                rewriter.replace(result, value);
            }
            return;
        }
        builder.append(op);
    });
    ir::cse_and_dce(&mut straight);
    (loads(&straight) < loads(func)).then_some((straight, facts))
}

/// The operations of a loop's first turn; what it yields are the loop's results.
fn body_of(turn: &mut For) -> Vec<Op> {
    let starts = std::iter::once(turn.low).chain(turn.inits.iter().copied());
    let starts: HashMap<Value, Value> = turn.body.args.drain(..).zip(starts).collect();
    substitute_in(&mut turn.body, &|value| starts.get(&value).copied().unwrap_or(value));
    std::mem::take(&mut turn.body.ops)
}

/// The facts under which a loop from a number up to an argument makes one turn, for steps of more than 1.
fn if_one_turn(op: &For, polynomials: &Polynomials) -> Option<Vec<Guard>> {
    let number = |value: Value| polynomials.get(value).as_constant();
    let (low, step) = (number(op.low)?, number(op.step)?);
    let high = polynomials.get(op.high);
    let Some(Atom::Known(Symbol::Scalar(scalar))) = single(&high) else { return None };
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
fn single(value: &Polynomial) -> Option<Atom> {
    let mut terms = value.terms();
    let (&[atom], 1) = terms.next()? else { return None };
    terms.next().is_none().then_some(atom)
}

fn loads(func: &Func) -> usize {
    let mut count = 0;
    func.body.walk(&mut |op| count += usize::from(matches!(op.kind, Kind::Load(_) | Kind::LoadView(_))));
    count
}
