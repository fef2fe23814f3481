//! Functions of `tl::` that are written in the language itself: the compiler's library.

use std::rc::Rc;

use super::scope::ItemScope;
use super::{Call, Callee, Check, Item, Operand, WrittenCall};
use crate::frontend::syntax;
use crate::ir::Value;
use crate::ops::library::source;
use crate::ops::scalar::ScalarOp;
use crate::support::diagnostic::{Errors, Loc};
use crate::support::dtype::DType;

impl Check<'_> {
    /// A function of the library as an operand.
    pub fn library_function(&mut self, name: &str, loc: Loc) -> Operand {
        let item_scope = self.library();
        let found = item_scope.function(name).expect("the library has what the operations ask for");
        self.function(Callee::Declared { function: found, item_scope }, loc)
    }

    /// Calls a function of the library. Operations and errors of its body have the span of the call.
    pub fn call_library(&mut self, name: &str, call: &Call) -> Operand {
        let operand = self.library_function(name, call.loc);
        let (Item::Function(id), Some(args)) = (operand.item, self.library_arguments(call)) else {
            return Operand::failed(call.loc);
        };
        let callee = self.callee(id).clone();
        let outer = self.site.replace(call.loc);
        let (name, what) = (call.name.clone(), call.what.clone());
        let Call { name_loc, loc, .. } = *call;
        let call = Call { name, what, name_loc, loc, args, text: String::new() };
        let result = self.invoke(&callee, WrittenCall { call, generics: vec![] });
        self.site = outer;
        result
    }

    /// Calls the function that a row is written as, with operands of one type.
    pub fn call_library_row(&mut self, op: &ScalarOp, what: &str, loc: Loc, values: &[Value]) -> Operand {
        let args = values.iter().map(|&value| Operand::new(Item::Value(value), loc)).collect();
        let (name, what) = (op.name.to_string(), what.to_string());
        self.call_library(op.name, &Call { name, what, name_loc: loc, loc, args, text: String::new() })
    }

    /// The arguments of a call; an axis that was left out is the last one.
    fn library_arguments(&mut self, call: &Call) -> Option<Vec<Operand>> {
        let mut args = call.args.clone();
        // Type parameters cannot be inferred from other operands.
        for arg in args.iter().filter(|arg| !matches!(arg.item, Item::Literal(_) | Item::Value(_))) {
            self.value(arg)?;
        }
        let function = crate::ops::functions().find(|function| function.name == call.name);
        let axis = function.and_then(|function| function.params.get(1)).filter(|param| param.name == "axis");
        if axis.is_some() {
            let value = self.value(&args[0])?;
            let rank = self.ty(value).shape.rank();
            if rank == 0 {
                let found = self.describe(&args[0]);
                self.error(args[0].loc, format!("{} takes a tile, found {found}", call.what));
                return None;
            }
            match args.get(1) {
                Some(axis) => {
                    let axis = axis.clone();
                    self.axis(&axis, rank)?;
                }
                None => args.push(Operand::integer(rank as i128 - 1, call.loc)),
            }
        }
        Some(args)
    }

    /// The constants that functions of the library have besides their type parameters.
    pub(super) fn library_names(dtype: DType) -> [(&'static str, bool); 2] {
        [("HALF", dtype.is_half()), ("DOUBLE", dtype == DType::F64)]
    }

    /// The library.
    pub(super) fn library(&mut self) -> Rc<ItemScope> {
        if let Some(known) = &self.library {
            return known.clone();
        }
        let parse = || {
            let mut errors = Errors::new();
            let items = syntax::parse_items(&source(), &mut errors);
            assert!(errors.is_empty(), "the library's own text: {errors:?}");
            Rc::new(items)
        };
        let library = ItemScope::of(self.kernel.library.get_or_init(parse).clone(), None);
        self.library = Some(library.clone());
        library
    }
}
