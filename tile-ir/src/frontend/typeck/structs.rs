//! Structs of values: their fields and methods. A loop or branch carries the values of the fields.

use std::rc::Rc;

use proc_macro2::Ident;

use super::scope::ItemScope;
use super::{Call, Callee, Check, Item, Operand, StructId, WrittenCall};
use crate::frontend::syntax::{
    BinaryOp, Expr, ExprKind, FnItem, GenericArg, Place, SelfParam, StructItem, foreign_help,
};
use crate::support::diagnostic::{Loc, count, list, nearest};

/// What a method of a struct is called on.
pub(super) struct Receiver<'e> {
    pub place: &'e Expr,
    pub value: Operand,
}

impl Check<'_> {
    pub(super) fn struct_item(&self, id: StructId) -> &Rc<StructItem> {
        &self.structs[id.0 as usize].0
    }

    /// The struct that a path names.
    pub(super) fn struct_named(&mut self, path: &[Ident]) -> Option<StructId> {
        let levels: Vec<Rc<ItemScope>> = self.item_scope.levels().cloned().collect();
        levels.iter().find_map(|level| self.struct_of(level, path))
    }

    fn struct_of(&mut self, level: &Rc<ItemScope>, path: &[Ident]) -> Option<StructId> {
        if let [name] = path
            && let Some(found) = level.items.structs.iter().find(|own| own.name == *name)
        {
            return Some(self.struct_id(found, level));
        }
        let (scope, path) = level.import(path)?;
        self.struct_of(&scope, &path)
    }

    /// One number for a struct, by whatever text it came.
    fn struct_id(&mut self, found: &Rc<StructItem>, level: &Rc<ItemScope>) -> StructId {
        let place = |item: &StructItem| (Loc::of(&item.name), Loc::of(&item.name).place());
        let known = self.structs.iter().position(|(own, _)| {
            Rc::ptr_eq(own, found) || own.name == found.name && place(own) == place(found)
        });
        let index = known.unwrap_or_else(|| {
            self.structs.push((found.clone(), level.clone()));
            self.structs.len() - 1
        });
        StructId(index as u32)
    }

    // ---- values

    /// `Softmax { m, l: sum, ..other }`
    pub(super) fn struct_value(
        &mut self,
        path: &[Ident],
        fields: &[(Ident, Expr)],
        rest: Option<&Expr>,
        loc: Loc,
    ) -> Operand {
        let mut given: Vec<(Ident, Operand)> = vec![];
        for (name, value) in fields {
            given.push((name.clone(), self.expr(value)));
        }
        let rest = rest.map(|rest| self.expr(rest));
        let path_loc = Loc::of(&path[0]).to(Loc::of(&path[path.len() - 1]));
        let Some(id) = self.struct_named(path) else {
            let known = foreign_help(&path[path.len() - 1].to_string(), Place::Type);
            let help = known.unwrap_or_else(|| {
                "values go together as a tuple, `(a, b)`, or as a struct of a `#[fuse_module]` that is marked `#[fuse_struct]`".into()
            });
            return self.error_help(path_loc, "a struct cannot be used in a kernel", help);
        };
        let item = self.struct_item(id).clone();
        let mut parts: Vec<Option<Operand>> = match rest {
            Some(Operand { item: Item::Struct(own, parts), .. }) if own == id => {
                parts.into_iter().map(Some).collect()
            }
            Some(Operand { item: Item::Failed, .. }) => return Operand::failed(loc),
            Some(other) => {
                self.expected_struct(&other, &item, "what follows `..`");
                return Operand::failed(loc);
            }
            None => vec![None; item.fields.len()],
        };
        let mut failed = false;
        let mut seen = vec![];
        for (name, value) in given {
            let Some(index) = self.field_index(&item, &name) else {
                failed = true;
                continue;
            };
            if seen.contains(&index) {
                self.error(Loc::of(&name), format!("`{name}` is given twice"));
            }
            seen.push(index);
            parts[index] = Some(self.field_value(id, index, &value));
        }
        let missing: Vec<String> = item
            .fields
            .iter()
            .zip(&parts)
            .filter(|(_, part)| part.is_none())
            .map(|(field, _)| format!("`{}`", field.name))
            .collect();
        if !missing.is_empty() && !failed {
            let text = format!("`{}` has {} here without a value", item.name, count(missing.len(), "field"));
            return self.error_help(path_loc, text, format!("give {} one", list(missing)));
        }
        match parts.into_iter().collect() {
            Some(parts) => Operand::new(Item::Struct(id, parts), loc),
            None => Operand::failed(loc),
        }
    }

    /// A value for a field, of the type that the struct declares.
    fn field_value(&mut self, id: StructId, index: usize, value: &Operand) -> Operand {
        let (item, scope) = self.structs[id.0 as usize].clone();
        let field = &item.fields[index];
        let outer = std::mem::replace(&mut self.item_scope, scope);
        let unified = self.unify(&field.ty, value, &format!("`{}` of `{}`", field.name, item.name));
        self.item_scope = outer;
        unified.unwrap_or_else(|| Operand::failed(value.loc))
    }

    /// The index of a field; reports one that the struct does not have.
    fn field_index(&mut self, item: &StructItem, name: &Ident) -> Option<usize> {
        let found = item.fields.iter().position(|field| field.name == *name);
        if found.is_none() {
            let names: Vec<String> = item.fields.iter().map(|field| field.name.to_string()).collect();
            let help = match nearest(&name.to_string(), names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", list(names.iter().map(|name| format!("`{name}`")))),
            };
            self.error_help(Loc::of(name), format!("`{}` has no field `{name}`", item.name), help);
        }
        found
    }

    /// `value.name` of a struct.
    pub(super) fn struct_field(
        &mut self,
        id: StructId,
        parts: &[Operand],
        name: &Ident,
        loc: Loc,
    ) -> Operand {
        let item = self.struct_item(id).clone();
        match self.field_index(&item, name) {
            Some(index) => Operand { loc, ..parts[index].clone() },
            None => Operand::failed(loc),
        }
    }

    /// `base` with a field changed, that may be a field of fields.
    pub(super) fn with_field(
        &mut self,
        base: &Operand,
        fields: &[Ident],
        op: Option<(BinaryOp, Loc)>,
        value: &Operand,
    ) -> Operand {
        let Some((name, rest)) = fields.split_first() else {
            return match op {
                Some((op, op_loc)) => self.binary(op, op_loc, base, value),
                None => value.clone(),
            };
        };
        let Item::Struct(id, parts) = &base.item else {
            if !matches!(base.item, Item::Failed) {
                let text = format!("{} has no field `{name}` to assign", self.describe(base));
                self.error_help(Loc::of(name), text, "assign to a variable");
            }
            return Operand::failed(value.loc);
        };
        let item = self.struct_item(*id).clone();
        let Some(index) = self.field_index(&item, name) else { return Operand::failed(value.loc) };
        let old = Operand { loc: Loc::of(name), ..parts[index].clone() };
        let changed = self.with_field(&old, rest, op, value);
        let mut parts = parts.clone();
        parts[index] = self.field_value(*id, index, &changed);
        Operand::new(Item::Struct(*id, parts), base.loc)
    }

    /// Reports a value that is no such struct.
    pub(super) fn expected_struct(&mut self, found: &Operand, item: &StructItem, what: &str) {
        let text = format!("{what} is a `{}`, found {}", item.name, self.describe(found));
        self.error(found.loc, text);
    }

    // ---- methods

    /// The method that a struct has by this name.
    fn struct_method(&self, id: StructId, name: &str) -> Option<Rc<FnItem>> {
        let mut methods = self.struct_item(id).functions.iter();
        methods.find(|function| function.name == name && function.self_param.is_some()).cloned()
    }

    /// Whether a method of the value changes it.
    pub(super) fn is_changed_by(&self, value: &Operand, method: &str) -> bool {
        let Item::Struct(id, _) = value.item else { return false };
        self.struct_method(id, method).is_some_and(|method| method.self_param == Some(SelfParam::Changed))
    }

    /// `receiver.name(args)` of a struct.
    pub(super) fn call_struct_method(
        &mut self,
        Receiver { place, value }: Receiver,
        name: &Ident,
        generics: &[GenericArg],
        args: &[Expr],
        loc: Loc,
    ) -> Operand {
        let Item::Struct(id, _) = value.item else { return Operand::failed(loc) };
        let given: Vec<Operand> = args.iter().map(|arg| self.argument(arg, true)).collect();
        let Some(method) = self.struct_method(id, &name.to_string()) else {
            let item = self.struct_item(id).clone();
            let methods = item.functions.iter().filter(|function| function.self_param.is_some());
            let known: Vec<String> = methods.map(|function| format!("`{}`", function.name)).collect();
            let help = match known.is_empty() {
                true => "it has fields alone".into(),
                false => format!("it has {}", list(known)),
            };
            let text = format!("`{}` has no method `{name}`", item.name);
            return self.error_help(Loc::of(name), text, help);
        };
        let (wanted, found) = (method.params.len() - 1, given.len());
        if wanted != found {
            let text = format!("`{name}` takes {}, found {found}", count(wanted, "argument"));
            return self.error(Loc::of(name), text);
        }
        let args = [value].into_iter().chain(given).collect();
        let what = format!("`{name}`");
        let call =
            Call { name: name.to_string(), what, name_loc: Loc::of(name), loc, args, text: String::new() };
        let item_scope = self.structs[id.0 as usize].1.clone();
        let callee = Callee::Declared { function: method.clone(), item_scope };
        self.changed_self = None;
        let result = self.invoke(&callee, WrittenCall { call, generics: generics.to_vec() });
        if method.self_param == Some(SelfParam::Changed) {
            let changed = self.changed_self.take().unwrap_or_else(|| Operand::failed(loc));
            self.assign_place(place, changed);
        }
        Operand { loc, ..result }
    }

    /// Assigns to the variable or field that an expression is.
    fn assign_place(&mut self, place: &Expr, value: Operand) {
        let mut fields = vec![];
        let mut base = place;
        while let ExprKind::Field { base: inner, name } = &base.kind {
            fields.insert(0, name.clone());
            base = inner;
        }
        let ExprKind::Path(path) = &base.kind else {
            let help = "give it a name first: `let mut state = ..;`";
            self.error_help(place.loc, "a method with `&mut self` changes a variable", help);
            return;
        };
        let whole = match fields.is_empty() {
            true => value,
            false => {
                let old = self.path(path, base.loc);
                self.with_field(&old, &fields, None, &value)
            }
        };
        self.assign(&path[0], None, whole);
    }
}
