//! Names in scope.

use std::collections::HashMap;

use super::Operand;
use crate::diagnostic::Loc;

/// A bound name. `operand` is `None` between `let x;` and its first assignment.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub operand: Option<Operand>,
    pub mutable: bool,
    /// Where it last got its value.
    pub assigned: Option<Loc>,
}

/// Which binding a name means, stable while inner scopes come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot(usize);

/// The bindings, innermost scope last; a name shadows earlier ones.
pub(super) struct Scopes {
    tables: Vec<HashMap<String, Slot>>,
    slots: Vec<Variable>,
    /// The variables of the loop being opened, with operands of the form they are carried in.
    pub carried: Vec<(Slot, Operand)>,
}

impl Scopes {
    pub fn new() -> Scopes {
        Scopes { tables: vec![HashMap::new()], slots: vec![], carried: vec![] }
    }

    pub fn enter(&mut self) {
        self.tables.push(HashMap::new());
    }

    pub fn leave(&mut self) {
        self.tables.pop();
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

    pub fn find(&self, name: &str) -> Option<Slot> {
        self.tables.iter().rev().find_map(|table| table.get(name)).copied()
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
