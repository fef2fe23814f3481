//! Shrinks the kernel of a finding while the finding stays the same.

use std::time::{Duration, Instant};

use tile_ir::support::dtype::DType;

use super::element::Element;
use super::program::{Block, Node, Op, Program, Statement, Type};
use super::watch::{Counts, FROM, Finding, SECONDS, WITHOUT, Work, worker};

/// How long shrinking may take.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The program without some of its statements, which are numbered as they are printed. A definition that other
/// statements may use becomes zeros; an unused one is removed.
pub fn without(mut program: Program, dropped: &[usize]) -> Program {
    if dropped.is_empty() {
        return program;
    }
    let mut next = 0;
    program.body = retain(std::mem::take(&mut program.body), dropped, &mut next);
    loop {
        let used = used(&program.body);
        let before = program.statements();
        remove_unused(&mut program.body, &used);
        if program.statements() == before {
            break;
        }
    }
    let mut called = vec![];
    each_node(&program.body, &mut |node| {
        if let Op::Call(function) = node.op {
            called.push(function);
        }
    });
    // Functions are named by their position.
    let last = called.iter().max().map_or(0, |last| last + 1);
    program.functions.truncate(last);
    program
}

fn retain(block: Block, dropped: &[usize], next: &mut usize) -> Block {
    let mut result = vec![];
    for mut statement in block {
        let number = *next;
        *next += 1;
        for block in statement.blocks_mut() {
            *block = retain(std::mem::take(block), dropped, next);
        }
        if !dropped.contains(&number) {
            result.push(statement);
            continue;
        }
        match statement {
            Statement::Let { variable, mutable, value } => result.push(zeros(variable, mutable, &value.ty)),
            Statement::LetIf { variable, branches, .. } => {
                result.push(zeros(variable, false, &branches[0].1.ty))
            }
            Statement::LetMatch { variable, rest, .. } => result.push(zeros(variable, false, &rest.ty)),
            // The types of its variables follow from the operation.
            Statement::LetPair { .. } => result.push(statement),
            _ => {}
        }
    }
    result
}

fn zeros(variable: usize, mutable: bool, ty: &Type) -> Statement {
    let zero = Node { op: Op::Number(Element::zero(ty.dtype)), args: vec![], ty: Type::scalar(ty.dtype) };
    let value = match (ty.shape.is_empty(), ty.dtype) {
        (true, DType::I32) => Node { op: Op::Scalar(0), args: vec![], ty: ty.clone() },
        (true, _) => zero,
        _ => Node { op: Op::Full, args: vec![zero], ty: ty.clone() },
    };
    Statement::Let { variable, mutable, value }
}

/// Every expression, those within others too.
fn each_node(block: &Block, visit: &mut dyn FnMut(&Node)) {
    fn walk(node: &Node, visit: &mut dyn FnMut(&Node)) {
        visit(node);
        node.args.iter().for_each(|arg| walk(arg, visit));
    }
    for statement in block {
        statement.nodes().into_iter().for_each(|node| walk(node, visit));
        statement.blocks().into_iter().for_each(|block| each_node(block, visit));
    }
}

fn used(block: &Block) -> Vec<usize> {
    let mut used = vec![];
    each_node(block, &mut |node| {
        if let Op::Variable(variable) = node.op {
            used.push(variable);
        }
    });
    fn counters(block: &Block, used: &mut Vec<usize>) {
        for statement in block {
            if let Statement::While { counter, .. } = statement {
                used.push(*counter);
            }
            statement.blocks().into_iter().for_each(|block| counters(block, used));
        }
    }
    counters(block, &mut used);
    used
}

fn remove_unused(block: &mut Block, used: &[usize]) {
    let needed = |variable: &usize| used.contains(variable);
    block.retain(|statement| match statement {
        Statement::Let { variable, .. }
        | Statement::LetMatch { variable, .. }
        | Statement::LetIf { variable, .. }
        | Statement::Assign { variable, .. } => needed(variable),
        Statement::LetPair { variables, .. } | Statement::AssignPair { variables, .. } => {
            variables.iter().any(needed)
        }
        _ => true,
    });
    for statement in block.iter_mut() {
        statement.blocks_mut().into_iter().for_each(|block| remove_unused(block, used));
    }
}

/// The class of a finding: the words before the first colon, or the source location of a panic.
fn class(text: &str) -> String {
    let panic = text.lines().find(|line| line.contains("panicked at "));
    let panic = panic.and_then(|line| line.split_once("panicked at ")).map(|(_, location)| location);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words = line.split(':').next().unwrap_or_default();
    let numberless = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    panic.map_or_else(|| numberless(words), str::to_string)
}

/// The statements that can be removed, and the text of the finding without them.
pub fn shrink(finding: &Finding, statements: usize) -> (Vec<usize>, String) {
    let (start, wanted) = (Instant::now(), class(&finding.text));
    let (mut dropped, mut text) = (vec![], finding.text.clone());
    let mut size = statements.div_ceil(2).max(1);
    loop {
        let mut progress = false;
        for first in (0..statements).step_by(size) {
            let chunk: Vec<usize> =
                (first..(first + size).min(statements)).filter(|number| !dropped.contains(number)).collect();
            if chunk.is_empty() || start.elapsed() > TIME_LIMIT {
                continue;
            }
            let tried: Vec<usize> = dropped.iter().copied().chain(chunk).collect();
            let list: Vec<String> = tried.iter().map(usize::to_string).collect();
            let environment =
                [(FROM, finding.number.to_string()), (SECONDS, "0".to_string()), (WITHOUT, list.join(","))];
            let again = worker(Work::Programs, &environment, &mut Counts::default());
            if let Some(again) = again.filter(|again| class(&again.text) == wanted) {
                (dropped, text, progress) = (tried, again.text, true);
            }
        }
        if start.elapsed() > TIME_LIMIT || (size == 1 && !progress) {
            return (dropped, text);
        }
        size = if size == 1 { 1 } else { size.div_ceil(2) };
    }
}
