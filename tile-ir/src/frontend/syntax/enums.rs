//! Parameters of an enum, `mask: Mask`. The argument of a call chooses the variant, so that a body knows the value when it is compiled: a `match`
//! keeps one arm.

use std::rc::Rc;

use proc_macro2::Ident;
use syn::visit_mut::{self, VisitMut};

use super::ast::*;
use super::module::named_value;

impl Items {
    /// The values of an enum without fields, declared here or imported, of which `None` is no number in its text; none for another name.
    pub fn enum_values(&self, name: &Ident) -> Vec<Option<i128>> {
        if let Some((items, path)) = self.import(std::slice::from_ref(name), &self.imports) {
            return path.last().map(|name| items.enum_values(name)).unwrap_or_default();
        }
        let value = |own: &ConstItem| match own.value.as_ref()?.kind {
            ExprKind::Int { value, .. } => Some(value),
            _ => None,
        };
        self.variants_of(name).map(value).collect()
    }

    /// The variants of an enum that is declared here.
    pub fn variants_of(&self, name: &Ident) -> impl Iterator<Item = &ConstItem> {
        self.constants.iter().filter(move |own| own.path.len() == 2 && own.path[0] == *name)
    }
}

impl Kernel {
    /// Gives the kernel the items around it, whose constants its settings may name. For each parameter of an enum among them it declares a
    /// constant, before the kernel's own, with all values where the attribute lists none.
    pub fn set_items(&mut self, items: Rc<Items>) {
        let is_const = |generic: &GenericParam| matches!(generic, GenericParam::Const { .. });
        let mut first = self.generics.iter().position(is_const).unwrap_or(self.generics.len());
        for param in &mut self.params {
            let ParamType::Scalar(ty) = &param.ty else { continue };
            let values = items.enum_values(&ty.ident());
            if values.is_empty() {
                continue;
            }
            param.ty = ParamType::Enum(ty.clone());
            // Where one is not known, that is reported.
            let values = values.into_iter().flatten().map(VariantKind::Int);
            self.options.declare_default(&param.name, values, param.loc);
            let ty = ConstType::Integer(Ident::new("i64", param.name.span()));
            self.generics.insert(first, GenericParam::Const { name: param.name.clone(), ty });
            first += 1;
        }
        let mut named = NamedValues { items: &items, generics: &self.generics };
        self.options.settings.iter_mut().for_each(|(_, value)| named.visit_expr_mut(value));
        self.items = items;
    }
}

/// Puts values in the place of the names of constants and variants of enums.
struct NamedValues<'n> {
    items: &'n Items,
    /// Their names are not those of items.
    generics: &'n [GenericParam],
}

impl VisitMut for NamedValues<'_> {
    fn visit_expr_mut(&mut self, expr: &mut syn::Expr) {
        if let syn::Expr::Path(path) = expr {
            let names: Vec<Ident> = path.path.segments.iter().map(|segment| segment.ident.clone()).collect();
            let is_generic = self.generics.iter().any(|generic| [generic.name().clone()] == names[..]);
            let value = named_value(&names, self.items).filter(|_| !is_generic);
            if let Some(value) = value.and_then(|value| syn::parse2(value).ok()) {
                *expr = value;
            }
        }
        visit_mut::visit_expr_mut(self, expr);
    }
}
