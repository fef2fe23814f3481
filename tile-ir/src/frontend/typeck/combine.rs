//! Builds combine regions: the user's function, by which a reduction or scan combines two elements, as a block.

use super::{Call, Callee, Check, Item, Operand, WrittenCall};
use crate::ir::{Block, Op, Type, Value};
use crate::ops::typing::OneResult;
use crate::ops::{Kind, Scalar, scalar};
use crate::support::diagnostic::Loc;

impl Check<'_> {
    /// The combine region of the function `operand`, for two elements, or two tuples of elements if there are several
    /// `types`. The block takes the left elements and then the right ones and yields one of each type. It has only
    /// lanewise operations, casts and constants, and captures no value. `None` for a mistake, which is reported.
    pub fn combine_region(&mut self, operand: &Operand, types: &[Type]) -> Option<Block> {
        let callee = match operand.item {
            Item::Function(id) => self.callee(id).clone(),
            Item::Failed => return None,
            _ => {
                let found = self.describe(operand);
                let help = if types.len() == 1 {
                    "such as `|a, b| a + b`"
                } else {
                    "such as `|a, b| ..`, of tuples"
                };
                self.error_help(operand.loc, format!("a combination is a function, found {found}"), help);
                return None;
            }
        };
        let errors = self.errors.len();
        let args = self.begin_block([types, types].concat());
        let outer = self.combine_region_start.replace(args[0].index());
        let yields = self.call_combine(&callee, &args, types, operand.loc);
        self.combine_region_start = outer;
        let block = self.end_block(yields.clone().unwrap_or_default());
        if yields.is_none() || self.errors.len() > errors {
            return None;
        }
        self.flatten_branches(block)
    }

    /// The function `operand` as lanewise operations on one element of each of `types`, with one of its results.
    pub fn elementwise_region(
        &mut self,
        operand: &Operand,
        types: &[Type],
        result: OneResult,
    ) -> Option<Block> {
        let Item::Function(id) = operand.item else {
            if !matches!(operand.item, Item::Failed) {
                let found = self.describe(operand);
                self.error_help(
                    operand.loc,
                    format!("this is a function, found {found}"),
                    "such as `|x| x + 1.0`",
                );
            }
            return None;
        };
        let callee = self.callee(id).clone();
        let errors = self.errors.len();
        let args = self.begin_block(types.to_vec());
        let outer = self.combine_region_start.replace(args[0].index());
        let operands = args.iter().map(|&value| Operand::value(value, operand.loc)).collect();
        let what = "this function".to_string();
        let call = Call {
            name: String::new(),
            what,
            name_loc: operand.loc,
            loc: operand.loc,
            args: operands,
            text: String::new(),
        };
        let returned = self.invoke(&callee, WrittenCall { call, generics: vec![] });
        let value = self.one_result(&returned, result);
        self.combine_region_start = outer;
        let block = self.end_block(value.into_iter().collect());
        if value.is_none() || self.errors.len() > errors {
            return None;
        }
        self.flatten_branches(block)
    }

    /// One of the values that a function has returned.
    fn one_result(&mut self, returned: &Operand, OneResult { types, index }: OneResult) -> Option<Value> {
        let part = match (&returned.item, types) {
            (Item::Failed, _) => return None,
            (_, [_]) => returned,
            (Item::Tuple(parts), _) if parts.len() == types.len() => &parts[index],
            _ => {
                let found = self.describe(returned);
                let text = format!("this function gives a tuple of {}, found {found}", types.len());
                self.error(returned.loc, text);
                return None;
            }
        };
        self.value_as(part, types[index], "what this function gives")
    }

    /// Calls the function on the arguments of its block; returns the yields.
    fn call_combine(
        &mut self,
        callee: &Callee,
        args: &[Value],
        types: &[Type],
        loc: Loc,
    ) -> Option<Vec<Value>> {
        let (left, right) = args.split_at(types.len());
        let element = |values: &[Value]| match values {
            [value] => Operand::value(*value, loc),
            _ => {
                let parts = values.iter().map(|&value| Operand::value(value, loc)).collect();
                Operand::new(Item::Tuple(parts), loc)
            }
        };
        let args = vec![element(left), element(right)];
        let what = match callee {
            Callee::Declared { function, .. } => format!("`{}`", function.name),
            Callee::Closure { .. } => "this combination".to_string(),
            Callee::Language(name) => format!("`tl::{name}`"),
        };
        let params = match callee {
            Callee::Declared { function, .. } => Some(function.params.len()),
            Callee::Closure { closure, .. } => Some(closure.params.len()),
            Callee::Language(_) => None,
        };
        if let Some(found) = params.filter(|found| *found != 2) {
            let this = if matches!(callee, Callee::Closure { .. }) { "this closure" } else { what.as_str() };
            let text = format!("a combination takes 2 arguments, {this} takes {found}");
            self.error_help(loc, text, "it makes one element of two: `|a, b| a + b`");
            return None;
        }
        let (name, text) = (String::new(), String::new());
        let call = Call { name, what, name_loc: loc, loc, args, text };
        let result = self.invoke(callee, WrittenCall { call, generics: vec![] });
        let parts = match (&result.item, types) {
            (Item::Failed, _) => return None,
            (Item::Tuple(parts), [_]) => {
                let text = format!(
                    "this combination takes one tile: it gives one element of two, found a tuple of {}",
                    parts.len()
                );
                self.error_help(result.loc, text, "several tiles are folded together as a tuple: `(x, y)`");
                return None;
            }
            (_, [_]) => std::slice::from_ref(&result),
            (Item::Tuple(parts), _) if parts.len() == types.len() => parts,
            _ => {
                let found = match &result.item {
                    Item::Tuple(parts) => format!("a tuple of {}", parts.len()),
                    _ => self.describe(&result),
                };
                self.error(
                    result.loc,
                    format!(
                        "this combination gives a tuple of {} as it takes two, found {found}",
                        types.len()
                    ),
                );
                return None;
            }
        };
        let mut yields = vec![];
        for (part, ty) in parts.iter().zip(types) {
            let value = self.value_as(part, ty.dtype, "what this combination gives here")?;
            if !self.ty(value).is_scalar() {
                let found = self.describe(part);
                self.error(part.loc, format!("a combination gives single elements, found {found}"));
                return None;
            }
            yields.push(value);
        }
        Some(yields)
    }

    /// The block with selects instead of branches; reports operations that do not work on single elements.
    fn flatten_branches(&mut self, block: Block) -> Option<Block> {
        let mut ops = vec![];
        let Err(bad) = flatten(block.ops, &mut ops) else { return Some(Block { ops, ..block }) };
        let text = format!(
            "a combination works on single elements: `{}` has no place in it",
            bad.kind.operation().name()
        );
        self.error_help(
            bad.loc,
            text,
            "it may use operators, `if`, casts and the lanewise functions of `tl::`",
        );
        None
    }
}

/// Appends operations, those of both branches of an `if` too: none of them has an effect. Returns one that is not
/// allowed.
fn flatten(ops: Vec<Op>, flat: &mut Vec<Op>) -> Result<(), Box<Op>> {
    let select = scalar::row("select").expect("a row of the table");
    for op in ops {
        if matches!(op.kind, Kind::Scalar(_) | Kind::Cast(_) | Kind::Bitcast(_) | Kind::Constant(_)) {
            flat.push(op);
            continue;
        }
        let Kind::If(branch) = op.kind else { return Err(Box::new(op)) };
        flatten(branch.then.ops, flat)?;
        flatten(branch.otherwise.ops, flat)?;
        let values = branch.then.yields.into_iter().zip(branch.otherwise.yields);
        for (result, (then, otherwise)) in op.results.into_iter().zip(values) {
            let kind = Scalar::new(select, vec![branch.condition, then, otherwise]).into();
            flat.push(Op { kind, results: vec![result], loc: op.loc });
        }
    }
    Ok(())
}
