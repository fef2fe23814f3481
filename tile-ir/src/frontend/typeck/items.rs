//! Functions and constants in scope; variables shadow them.

use std::rc::Rc;

use proc_macro2::Ident;

use super::scope::ItemScope;
use super::{Callee, Check, Item, Literal, Operand};
use crate::frontend::syntax::{ConstItem, FnItem, Items};
use crate::ir::Value;
use crate::support::diagnostic::{Loc, list};
use crate::support::dtype::DType;

impl Check<'_> {
    /// Enters a block's own items, if there are any; returns the outer scope.
    pub(super) fn enter_items(&mut self, items: &Rc<Items>) -> Option<Rc<ItemScope>> {
        if items.is_empty() {
            return None;
        }
        let outer = self.item_scope.clone();
        self.item_scope = ItemScope::of(items.clone(), Some(outer.clone()));
        // They shadow the variables around the block, and the variables of the block shadow them.
        for function in &items.functions {
            let callee = Callee::Declared { function: function.clone(), item_scope: self.item_scope.clone() };
            let operand = self.function(callee, Loc::of(&function.name));
            self.scopes.bind(&function.name.to_string(), operand, false);
        }
        for constant in &items.constants {
            let operand = self.constant_item(constant, Loc::of(&constant.path[0]));
            self.scopes.bind(&constant.path[0].to_string(), operand, false);
        }
        Some(outer)
    }

    /// The item that a path names.
    pub(super) fn named_item(&mut self, path: &[Ident]) -> Option<Operand> {
        let loc = Loc::of(&path[0]).to(Loc::of(&path[path.len() - 1]));
        let levels: Vec<Rc<ItemScope>> = self.item_scope.levels().cloned().collect();
        levels.iter().find_map(|level| self.item_of(level, path, loc))
    }

    /// Whether a name is that of an enum in scope.
    pub(super) fn is_enum(&self, name: &Ident) -> bool {
        let is_declared = |items: &Items, name: &Ident| items.variants_of(name).next().is_some();
        self.item_scope.levels().any(|level| {
            let imported = level.import(std::slice::from_ref(name));
            is_declared(&level.items, name)
                || imported.is_some_and(|(scope, path)| is_declared(&scope.items, &path[path.len() - 1]))
        })
    }

    /// The item of one scope that a path names, in the scope itself or by one of its `use` declarations.
    fn item_of(&mut self, level: &Rc<ItemScope>, path: &[Ident], loc: Loc) -> Option<Operand> {
        let items = &level.items;
        let functions = match path {
            [_] => Some(&items.functions),
            [owner, _] => items.structs.iter().find(|own| own.name == *owner).map(|own| &own.functions),
            _ => None,
        };
        let named = |function: &&Rc<FnItem>| function.name == path[path.len() - 1];
        if let Some(function) = functions.and_then(|functions| functions.iter().find(named)) {
            let callee = Callee::Declared { function: function.clone(), item_scope: level.clone() };
            return Some(self.function(callee, loc));
        }
        if let Some(constant) = items.constants.iter().find(|constant| constant.path == path) {
            let outer = std::mem::replace(&mut self.item_scope, level.clone());
            let operand = self.constant_item(constant, loc);
            self.item_scope = outer;
            return Some(operand);
        }
        if let Some((scope, path)) = level.import(path) {
            return self.item_of(&scope, &path, loc);
        }
        let [owner, name] = path else { return None };
        let variants: Vec<String> =
            items.variants_of(owner).map(|own| format!("`{}`", own.path[1])).collect();
        if variants.is_empty() {
            return None;
        }
        let text = format!("`{owner}` has no variant `{name}`");
        Some(self.error_help(loc, text, format!("it has {}", list(variants))))
    }

    /// A constant's value, of its declared type.
    fn constant_item(&mut self, constant: &ConstItem, loc: Loc) -> Operand {
        let name = constant.path.iter().map(Ident::to_string).collect::<Vec<_>>().join("::");
        let Some(value) = &constant.value else {
            return self.error_help(
                loc,
                format!("the value of `{name}` is not known in a kernel"),
                "a kernel knows constants made of literals, operators and other constants",
            );
        };
        let item = std::ptr::from_ref(constant);
        if self.constants.contains(&item) || self.depth > super::MAX_DEPTH {
            return self.error(loc, format!("the value of `{name}` is made of itself"));
        }
        // Its names resolve where it is declared.
        let tables = self.scopes.isolate();
        self.constants.push(item);
        let operand = self.expr(value);
        self.constants.pop();
        self.scopes.resume(tables);
        let literal = match operand.item {
            Item::Literal(literal) => literal,
            Item::Failed => return Operand::failed(loc),
            _ => {
                let found = self.describe(&operand);
                return self.error(loc, format!("the value of `{name}` is a constant, found {found}"));
            }
        };
        let named = Literal { digits: false, division: None, ..literal };
        let named = Operand { item: Item::Literal(named), loc };
        match &constant.ty {
            Some(ty) => {
                let typed = self.annotated(&operand, ty);
                match typed.item {
                    Item::Literal(typed) if typed.dtype == Some(DType::Bool) => {
                        // A bool has no width to keep.
                        Operand { item: Item::Literal(Literal { dtype: None, ..typed }), loc }
                    }
                    Item::Literal(typed) => {
                        Operand { item: Item::Literal(Literal { digits: false, ..typed }), loc }
                    }
                    _ => Operand::failed(loc),
                }
            }
            None => named,
        }
    }

    /// Reports an operand that a combine region captures from the program.
    pub(super) fn reject_capture(&mut self, operand: Operand) -> Operand {
        let Some(combine_region_start) = self.combine_region_start else { return operand };
        if !self.captures_outer_value(&operand, combine_region_start) {
            return operand;
        }
        let found = self.describe(&operand);
        self.error_help(
            operand.loc,
            format!("a combination cannot use {found} from outside of it"),
            "it works on its own arguments and constants; what else it needs can be one more tile that is folded along",
        )
    }

    fn captures_outer_value(&self, operand: &Operand, combine_region_start: usize) -> bool {
        let early = |value: &Value| value.index() < combine_region_start;
        match &operand.item {
            Item::Value(value) => early(value),
            Item::Pointer(pointer) => early(&pointer.offset),
            Item::Slice(_) | Item::View(_) | Item::Optional { .. } => true,
            Item::Tuple(parts) | Item::List(parts) | Item::Struct(_, parts) => {
                parts.iter().any(|part| self.captures_outer_value(part, combine_region_start))
            }
            Item::Literal(_)
            | Item::Function(_)
            | Item::Text(_)
            | Item::Range(_)
            | Item::Unit
            | Item::Failed => false,
        }
    }
}
