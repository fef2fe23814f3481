//! Functions that the compiler brings along as text.

use std::rc::Rc;

use super::items::Surroundings;
use super::{Call, Callee, Check, Item, Operand};
use crate::diagnostic::{Errors, Loc};
use crate::ops::library::SOURCE;
use crate::syntax::{self, Items};

impl Check<'_> {
    /// A function of the library as an operand.
    pub fn library_function(&mut self, name: &str, loc: Loc) -> Operand {
        let surroundings = self.library();
        let found = surroundings.function(name).expect("the library has what the operations ask for");
        self.wrap(Item::Function(Callee::Declared { function: found, surroundings }), loc)
    }

    /// Calls a function of the library; what is wrong stands on the call, whose text the user knows.
    pub fn call_library(&mut self, name: &str, call: &Call) -> Operand {
        let operand = self.library_function(name, call.loc);
        let Item::Function(callee) = operand.item else { return self.failed(call.loc) };
        let before = self.errors.len();
        let outer = self.site.replace(call.loc);
        let Call { name, what, name_loc, loc, generics, args } = call;
        let (name, what, generics, args) = (name.clone(), what.clone(), generics.clone(), args.clone());
        let call = Call { name, what, name_loc: *name_loc, loc: *loc, generics, args };
        let result = self.invoke(&callee, call);
        self.site = outer;
        self.errors.relocate(before, *loc);
        Operand { loc: *loc, ..result }
    }

    /// The library, parsed when it is first asked for.
    pub(super) fn library(&mut self) -> Rc<Surroundings> {
        if let Some(known) = &self.library {
            return known.clone();
        }
        let mut errors = Errors::new();
        let items: Items = syntax::parse_items(SOURCE, &mut errors);
        assert!(errors.is_empty(), "the library's own text: {errors:?}");
        let library = Surroundings::of(items.into(), None);
        self.library = Some(library.clone());
        library
    }
}
