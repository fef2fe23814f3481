//! Names in scope.

use std::collections::HashMap;
use std::rc::Rc;

use proc_macro2::Ident;

use super::Operand;
use crate::frontend::syntax::{FnItem, Items};
use crate::ir::Value;
use crate::support::diagnostic::Loc;

/// A bound name. `operand` is `None` between `let x;` and its first assignment.
#[derive(Clone, Debug)]
pub struct Variable {
    pub operand: Option<Operand>,
    pub mutable: bool,
    /// The span of its last assignment.
    pub assigned: Option<Loc>,
}

/// The index of a binding, stable while inner scopes come and go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot(usize);

/// The bindings, innermost scope last; a name shadows earlier ones.
pub(super) struct Scopes {
    tables: Vec<HashMap<String, Slot>>,
    slots: Vec<Variable>,
    /// The variables of the loop being opened, with operands of the form they are carried in.
    pub carried: Vec<(Slot, Operand)>,
    captured: Vec<Slot>,
}

impl Scopes {
    pub fn new() -> Scopes {
        Scopes { tables: vec![HashMap::new()], slots: vec![], carried: vec![], captured: vec![] }
    }

    pub fn enter(&mut self) {
        self.tables.push(HashMap::new());
    }

    pub fn leave(&mut self) {
        self.tables.pop();
    }

    /// The names that the innermost scope declares.
    pub fn innermost(&self) -> impl Iterator<Item = &str> {
        self.tables.last().into_iter().flat_map(|table| table.keys()).map(String::as_str)
    }

    /// Whether a name is bound in the outermost scope: a parameter.
    pub fn is_outermost(&self, name: &str, slot: Slot) -> bool {
        self.tables.first().and_then(|table| table.get(name)) == Some(&slot)
    }

    /// The variable of this name in the outermost scope.
    pub fn outermost(&self, name: &str) -> Option<&Variable> {
        self.tables.first().and_then(|table| table.get(name)).map(|slot| self.get(*slot))
    }

    /// The names that are bound to this value now.
    pub fn names_of(&self, value: Value) -> impl Iterator<Item = (&str, &Variable)> {
        let named = self.tables.iter().flatten().map(|(name, slot)| (name.as_str(), self.get(*slot)));
        named.filter(move |(_, variable)| {
            matches!(variable.operand, Some(Operand { item: super::Item::Value(own), .. }) if own == value)
        })
    }

    pub fn bind(&mut self, name: &str, operand: Operand, mutable: bool) {
        let assigned = Some(operand.loc);
        self.declare(name, Variable { operand: Some(operand), mutable, assigned });
    }

    pub fn declare(&mut self, name: &str, variable: Variable) {
        self.slots.push(variable);
        let slot = Slot(self.slots.len() - 1);
        self.tables.last_mut().expect("the outermost scope stays").insert(name.to_string(), slot);
    }

    /// Binds a copy of a variable that a closure captures.
    pub fn capture(&mut self, name: &str, variable: Variable) {
        self.declare(name, Variable { mutable: false, ..variable });
        self.captured.push(Slot(self.slots.len() - 1));
    }

    pub fn is_captured(&self, slot: Slot) -> bool {
        self.captured.contains(&slot)
    }

    pub fn find(&self, name: &str) -> Option<Slot> {
        self.tables.iter().rev().find_map(|table| table.get(name)).copied()
    }

    /// Every name in scope with its variable.
    pub fn visible(&self) -> HashMap<String, Variable> {
        let mut visible = HashMap::new();
        for (name, slot) in self.tables.iter().flatten() {
            visible.insert(name.clone(), self.get(*slot).clone());
        }
        visible
    }

    /// Starts with an empty scope, as a function's body does; returns the scopes to resume.
    pub fn isolate(&mut self) -> Vec<HashMap<String, Slot>> {
        std::mem::replace(&mut self.tables, vec![HashMap::new()])
    }

    pub fn resume(&mut self, tables: Vec<HashMap<String, Slot>>) {
        self.tables = tables;
    }

    pub fn is_bound(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub fn get(&self, slot: Slot) -> &Variable {
        &self.slots[slot.0]
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Variable {
        &mut self.slots[slot.0]
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().flat_map(|table| table.keys()).map(String::as_str)
    }
}

/// The items of a block or module, and those around it.
#[derive(Debug)]
pub struct ItemScope {
    pub(super) items: Rc<Items>,
    pub(super) outer: Option<Rc<ItemScope>>,
}

impl ItemScope {
    pub(super) fn of(items: Rc<Items>, outer: Option<Rc<ItemScope>>) -> Rc<ItemScope> {
        Rc::new(ItemScope { items, outer })
    }

    pub(super) fn levels(self: &Rc<Self>) -> impl Iterator<Item = &Rc<ItemScope>> {
        std::iter::successors(Some(self), |level| level.outer.as_ref())
    }

    /// Whether they are declared in a body.
    pub(super) fn is_nested(&self) -> bool {
        self.outer.is_some()
    }

    /// What its own `use` declarations bring under a path: the scope of the other module, and the path in it.
    pub(super) fn import(self: &Rc<Self>, path: &[Ident]) -> Option<(Rc<ItemScope>, Vec<Ident>)> {
        let outermost = self.levels().last().unwrap_or(self);
        let (items, path) = self.items.import(path, &outermost.items.imports)?;
        Some((ItemScope::of(items, None), path))
    }

    /// Whether they are of another module.
    pub(super) fn is_imported(self: &Rc<Self>) -> bool {
        self.levels().last().is_some_and(|outermost| outermost.items.is_imported)
    }

    /// The names of functions, and of constants that have one name.
    pub(super) fn names(self: &Rc<Self>) -> Vec<String> {
        let constants = self.levels().flat_map(|level| &level.items.constants);
        let named = constants.filter(|constant| constant.path.len() == 1);
        named.map(|constant| constant.path[0].to_string()).chain(self.functions()).collect()
    }

    pub(super) fn function(&self, name: &str) -> Option<Rc<FnItem>> {
        self.items.functions.iter().find(|function| function.name == name).cloned()
    }

    /// Whether the module has a function of this name that is not marked as one that kernels call.
    pub(super) fn is_unmarked(self: &Rc<Self>, name: &str) -> bool {
        self.levels().any(|level| level.items.unmarked.iter().any(|own| own == name))
    }

    /// Whether a struct here or of another module has a method of this name.
    pub(super) fn has_method(self: &Rc<Self>, name: &str) -> bool {
        let imports = self.levels().last().into_iter().flat_map(|level| &level.items.imports);
        let structs = self.levels().map(|level| &level.items).chain(imports.map(|import| &import.items));
        let mut functions = structs.flat_map(|items| &items.structs).flat_map(|own| &own.functions);
        functions.any(|function| function.self_param.is_some() && function.name == name)
    }

    /// The names of functions, those of other modules included.
    pub(super) fn functions(self: &Rc<Self>) -> Vec<String> {
        let functions = self.levels().flat_map(|level| &level.items.functions);
        let uses = self.levels().flat_map(|level| level.items.uses.iter().map(move |own| (level, own)));
        let imported = uses.filter(|(level, own)| level.import(std::slice::from_ref(&own.name)).is_some());
        let own = functions.map(|function| function.name.to_string());
        own.chain(imported.map(|(_, own)| own.name.to_string())).collect()
    }
}
