//! Optional parameters, which a variant has or has not.

use proc_macro2::Ident;

use super::{Check, Item, Literal, LiteralValue, Operand};
use crate::frontend::syntax::{BOUND, Expr, ExprKind, HAS_NONE, HAS_SOME, Place, foreign_help};
use crate::support::diagnostic::Loc;

/// How an optional parameter is used, for messages.
pub(super) const OPTION_HELP: &str = "bind what it holds: `if let Some(x) = x { .. }`";

impl Check<'_> {
    /// `None` as an argument of a function, where no variable is called so.
    pub(super) fn absent_argument(&self, arg: &Expr) -> Option<Operand> {
        let ExprKind::Path(path) = &arg.kind else { return None };
        let is_none = matches!(&path[..], [name] if name == "None" && !self.scopes.is_bound("None"));
        let item = Item::Optional { held: Box::new(Item::Failed), is_some: false };
        is_none.then(|| Operand::new(item, arg.loc))
    }

    /// `Some(x)` where `x` is memory, which an optional parameter of a function takes.
    pub(super) fn present(&self, path: &[Ident], args: &[Operand], loc: Loc) -> Option<Operand> {
        let ([name], [Operand { item, .. }]) = (path, args) else { return None };
        let is_memory = matches!(item, Item::Slice(_) | Item::Pointer(_) | Item::View(_));
        let item = Item::Optional { held: Box::new(item.clone()), is_some: true };
        (name == "Some" && is_memory).then(|| Operand::new(item, loc))
    }

    /// A method of an optional parameter, or what a pattern of one has become; `None` of any other receiver.
    pub(super) fn option_method(&mut self, receiver: &Operand, name: &Ident, loc: Loc) -> Option<Operand> {
        let text = name.to_string();
        let is_pattern = [HAS_SOME, HAS_NONE, BOUND].contains(&text.as_str());
        let Item::Optional { held, is_some } = &receiver.item else {
            // What a pattern binds follows from its condition, which is reported.
            if is_pattern && text != BOUND && !matches!(receiver.item, Item::Failed) {
                let problem = format!("this pattern is one of an option, found {}", self.describe(receiver));
                let help = foreign_help("Some", Place::Function).unwrap_or_default();
                self.error_help(receiver.loc, problem, help);
            }
            return is_pattern.then(|| Operand::failed(loc));
        };
        let flag = |value| Item::Literal(Literal::named(LiteralValue::Bool(value)));
        let item = match text.as_str() {
            "is_some" | HAS_SOME => flag(*is_some),
            "is_none" | HAS_NONE => flag(!is_some),
            BOUND => (**held).clone(),
            "unwrap" if *is_some => (**held).clone(),
            _ => {
                let problem = match text.as_str() {
                    "unwrap" => "calls may leave this parameter out, and then it is `None`".to_string(),
                    _ => format!("`{text}` is not a method of an option"),
                };
                return Some(self.error_help(Loc::of(name), problem, OPTION_HELP));
            }
        };
        Some(Operand::new(item, loc))
    }
}
