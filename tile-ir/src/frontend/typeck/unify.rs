//! Unifies arguments with the parameters of functions: infers type parameters, binds constants, compares types.

use proc_macro2::Ident;

use super::{Call, Check, ConstValue, Item, Literal, LiteralValue, Operand, WrittenCall};
use crate::frontend::syntax::{
    ConstType, Expr, FnItem, FunctionParam, GenericArg, GenericParam, TypeName, ValueType, const_range,
};
use crate::ir::ParamId;
use crate::ops::ConstantValue;
use crate::support::diagnostic::{Loc, count, list};
use crate::support::dtype::DType;

/// Type parameters and constants of a call, in order.
type TypeBindings = (Vec<(String, Option<DType>)>, Vec<(String, ConstValue)>);

/// A type parameter of a call whose types are being inferred.
struct TypeParam<'f> {
    name: &'f Ident,
    dtype: Option<DType>,
    /// The span that its type comes from.
    loc: Loc,
}

impl Check<'_> {
    /// The generics of a call: from its turbofish, or inferred from the arguments.
    pub(super) fn bind_generics(&mut self, function: &FnItem, written: &WrittenCall) -> Option<TypeBindings> {
        let WrittenCall { call, generics: given } = written;
        let wanted = function.generics.len();
        if !given.is_empty() && given.len() != wanted {
            let text =
                format!("{} takes {}, found {}", call.what, count(wanted, "generic argument"), given.len());
            self.error(call.name_loc, text);
            return None;
        }
        let mut types: Vec<TypeParam> = vec![];
        let mut consts = vec![];
        for (i, generic) in function.generics.iter().enumerate() {
            match generic {
                GenericParam::Type { name, .. } => {
                    let dtype = match given.get(i) {
                        Some(GenericArg::Type(ty)) => Some(self.resolve_type(ty)?),
                        Some(GenericArg::Infer(_)) | None => None,
                        Some(GenericArg::Const(Expr { loc, .. }) | GenericArg::Tuple(_, loc)) => {
                            self.error(*loc, format!("`{name}` of {} is an element type", call.what));
                            return None;
                        }
                    };
                    types.push(TypeParam { name, dtype, loc: call.name_loc });
                }
                GenericParam::Const { name, .. } => {
                    consts.push((name.to_string(), self.const_argument(function, i, written)?));
                }
            }
        }
        // Values decide a type before constants, which take any.
        for literals in [false, true] {
            for (param, arg) in function.params.iter().zip(&call.args) {
                self.infer(&param.ty, arg, literals, &mut types);
            }
        }
        self.bounds(function, call, &types)?;
        let types = types.into_iter().map(|param| (param.name.to_string(), param.dtype)).collect();
        Some((types, consts))
    }

    /// Whether every type parameter has a type that its bound allows.
    fn bounds(&mut self, function: &FnItem, call: &Call, types: &[TypeParam]) -> Option<()> {
        for param in types {
            let Some(GenericParam::Type { bound, .. }) =
                function.generics.iter().find(|generic| generic.name() == param.name)
            else {
                continue;
            };
            let Some(dtype) = param.dtype else {
                if call.args.iter().any(|arg| matches!(arg.item, Item::Failed)) {
                    return None;
                }
                let text = format!("the type `{}` of {} is not known here", param.name, call.what);
                let name = call.what.trim_matches('`');
                self.error_help(call.name_loc, text, format!("name it: `{name}::<f32>(..)`"));
                return None;
            };
            if !bound.contains(dtype) {
                let text = format!(
                    "`{}` of {} is one of {}, found {dtype}",
                    param.name,
                    call.what,
                    list(bound.members())
                );
                self.error(param.loc, text);
                return None;
            }
        }
        Some(())
    }

    /// The constant that a call gives for the generic of this index.
    fn const_argument(
        &mut self,
        function: &FnItem,
        index: usize,
        WrittenCall { call, generics: given }: &WrittenCall,
    ) -> Option<ConstValue> {
        let GenericParam::Const { name, ty } = &function.generics[index] else { return None };
        let operand = match given.get(index) {
            Some(GenericArg::Const(expr)) => self.expr(expr),
            Some(GenericArg::Type(written)) => self.generic_value(written),
            Some(GenericArg::Tuple(_, loc)) => {
                self.error(*loc, format!("`{name}` of {} is a constant", call.what));
                return None;
            }
            Some(GenericArg::Infer(_)) | None => {
                let text = format!("the constant `{name}` of {} is not known here", call.what);
                let form: Vec<&str> = function
                    .generics
                    .iter()
                    .map(|generic| match generic {
                        GenericParam::Type { .. } => "_",
                        GenericParam::Const { ty: ConstType::Bool, .. } => "true",
                        GenericParam::Const { ty: ConstType::Integer(_), .. } => "64",
                    })
                    .collect();
                let (function, form) = (call.what.trim_matches('`'), form.join(", "));
                self.error_help(call.name_loc, text, format!("give it: `{function}::<{form}>(..)`"));
                return None;
            }
        };
        match ty {
            ConstType::Bool => self.flag(&operand, &format!("`{name}`")).map(ConstValue::Bool),
            ConstType::Integer(ty) => {
                let value = self.constant(&operand, &format!("`{name}`"))?;
                let (low, high) = const_range(&ty.to_string()).unwrap_or((i128::MIN, i128::MAX));
                if !(low..=high).contains(&value) {
                    let text = format!("`{name}` is a `{ty}`, which holds {low} to {high}, found {value}");
                    self.error(operand.loc, text);
                    return None;
                }
                Some(ConstValue::Int(value))
            }
        }
    }

    /// Infers type parameters from an argument.
    fn infer(&self, ty: &ValueType, arg: &Operand, literals: bool, types: &mut [TypeParam]) {
        let (elem, found) = match (ty, &arg.item) {
            (ValueType::Tuple { parts, .. }, Item::Tuple(args)) => {
                for (part, arg) in parts.iter().zip(args) {
                    self.infer(part, arg, literals, types);
                }
                return;
            }
            (ValueType::Tile { elem: Some(elem), .. } | ValueType::Scalar(elem), Item::Value(value)) => {
                (elem, Some(self.ty(*value).dtype))
            }
            (ValueType::Tile { elem: Some(elem), .. } | ValueType::Scalar(elem), Item::Literal(literal)) => {
                (elem, if literals { Some(literal.default_type()) } else { literal.dtype })
            }
            (ValueType::Optional(inner), Item::Optional { held, .. }) => {
                let held = Operand { item: (**held).clone(), loc: arg.loc };
                return self.infer(inner, &held, literals, types);
            }
            (ValueType::Memory { elem, .. }, Item::Slice(param)) => (elem, Some(self.func().slice(*param).0)),
            (ValueType::View(view), Item::View(found)) => {
                (&view.elem, Some(self.func().slice(found.memory).0))
            }
            (ValueType::Memory { elem, .. }, Item::Pointer(pointer)) => {
                (elem, Some(self.func().slice(pointer.param).0))
            }
            _ => return,
        };
        if let Some(param) = types.iter_mut().find(|param| *param.name == elem.name)
            && param.dtype.is_none()
            && found.is_some()
        {
            param.dtype = found;
            param.loc = arg.loc;
        }
    }

    /// The arguments with the parameters' types; `None` if one does not match, which is reported.
    pub(super) fn unify_args(&mut self, params: &[FunctionParam], call: &Call) -> Option<Vec<Operand>> {
        let unified: Vec<Option<Operand>> = params
            .iter()
            .zip(&call.args)
            .enumerate()
            .map(|(i, (param, arg))| {
                self.unify(&param.ty, arg, &format!("argument {} of {}", i + 1, call.what))
            })
            .collect();
        unified.into_iter().collect()
    }

    fn unify_struct(&mut self, name: &TypeName, operand: &Operand, what: &str) -> Option<Operand> {
        let id = self.struct_named(&[name.ident()])?;
        if matches!(&operand.item, Item::Struct(own, _) if *own == id) {
            return Some(operand.clone());
        }
        let item = self.struct_item(id).clone();
        self.expected_struct(operand, &item, what);
        None
    }

    /// The operand with the parameter's type; constants stay constants.
    pub(super) fn unify(&mut self, ty: &ValueType, operand: &Operand, what: &str) -> Option<Operand> {
        if matches!(operand.item, Item::Failed) {
            return None;
        }
        match ty {
            ValueType::Any => Some(operand.clone()),
            ValueType::Tile { elem: None, .. } => {
                let fits = matches!(operand.item, Item::Value(_) | Item::Literal(_));
                self.expected(fits, operand, what, "a tile or scalar")
            }
            ValueType::Tile { elem: Some(elem), .. } => self.of_type(elem, operand, what, "a tile or scalar"),
            ValueType::Scalar(name) if self.struct_named(&[name.ident()]).is_some() => {
                self.unify_struct(name, operand, what)
            }
            ValueType::Scalar(name) if self.is_enum(&name.ident()) => {
                let fits = operand.as_integer().is_some();
                self.expected(fits, operand, what, &format!("a `{}` known at build", name.name))
            }
            ValueType::Scalar(elem) => {
                if let Item::Value(value) = operand.item
                    && !self.ty(value).is_scalar()
                {
                    return self.expected(false, operand, what, "a scalar");
                }
                self.of_type(elem, operand, what, "a scalar")
            }
            ValueType::Constant(_) => {
                let fits = operand.as_integer().is_some();
                self.expected(fits, operand, what, "an integer known at build")
            }
            ValueType::Memory { elem, mutable } => self.memory(elem, *mutable, operand, what),
            ValueType::View(view) => self.unify_view(view, operand, what),
            ValueType::Function(_) => {
                let fits = matches!(operand.item, Item::Function(_));
                self.expected(fits, operand, what, "a function or closure")
            }
            ValueType::Optional(inner) => match &operand.item {
                // `None` holds nothing that could have another type.
                Item::Optional { held, is_some: false } if matches!(**held, Item::Failed) => {
                    Some(operand.clone())
                }
                Item::Optional { held, is_some } => {
                    let held = Operand { item: (**held).clone(), loc: operand.loc };
                    let held = self.unify(inner, &held, what)?;
                    let item = Item::Optional { held: Box::new(held.item), is_some: *is_some };
                    Some(Operand { item, loc: operand.loc })
                }
                _ => {
                    let found = self.describe(operand);
                    self.error(operand.loc, format!("{what} is an option, found {found}"));
                    None
                }
            },
            ValueType::Tuple { parts, .. } => match &operand.item {
                Item::Tuple(found) if found.len() == parts.len() => {
                    let unified: Vec<Option<Operand>> =
                        parts.iter().zip(found).map(|(part, found)| self.unify(part, found, what)).collect();
                    let unified: Option<Vec<Operand>> = unified.into_iter().collect();
                    unified.map(|parts| Operand::new(Item::Tuple(parts), operand.loc))
                }
                Item::Tuple(found) => {
                    let text = format!("{what} is a tuple of {}, found one of {}", parts.len(), found.len());
                    self.error(operand.loc, text);
                    None
                }
                _ => self.expected(false, operand, what, &format!("a tuple of {}", parts.len())),
            },
        }
    }

    fn expected(&mut self, fits: bool, operand: &Operand, what: &str, wanted: &str) -> Option<Operand> {
        if fits {
            return Some(operand.clone());
        }
        let text = format!("{what} is {wanted}, found {}", self.describe(operand));
        match self.expected_help(operand, wanted) {
            Some(help) => self.error_help(operand.loc, text, help),
            None => self.error(operand.loc, text),
        };
        None
    }

    /// What to change where an argument does not fit a parameter: the argument, or the parameter's type.
    fn expected_help(&self, operand: &Operand, wanted: &str) -> Option<String> {
        let memory = |param: ParamId| {
            let (elem, mutable) = self.func().slice(param);
            format!("`{}[{elem}]`", if mutable { "&mut " } else { "&" })
        };
        Some(match (&operand.item, wanted) {
            (Item::Slice(param), "a tile or scalar" | "a scalar") => {
                let name = operand.loc.word().unwrap_or_else(|| "x".into());
                format!("read it, `tl::load({name} + offsets)`, or declare the parameter {}", memory(*param))
            }
            (Item::Pointer(pointer), "a tile or scalar" | "a scalar") => {
                format!("read it, `tl::load(..)`, or declare the parameter {}", memory(pointer.param))
            }
            (Item::View(view), _) => self.view_help(view),
            (Item::Value(value), "a scalar") => {
                format!("declare the parameter `Tile<{}>`, which scalars fit too", self.ty(*value).dtype)
            }
            (Item::Value(value), "an integer known at build") if self.ty(*value).dtype.is_integer() => {
                format!("declare the parameter `{}`", self.ty(*value).dtype)
            }
            (Item::Value(_), "a slice, or pointers into one") => {
                "pass the slice, or `slice + offsets`".into()
            }
            (Item::Value(_), "a function or closure") => "pass a closure: `|x| x`".into(),
            (Item::Function(_), _) => "call it".into(),
            _ => return None,
        })
    }

    /// A tile, scalar or constant of one element type.
    fn of_type(&mut self, elem: &TypeName, operand: &Operand, what: &str, wanted: &str) -> Option<Operand> {
        let dtype = self.resolve_type(elem)?;
        match operand.item {
            Item::Value(_) => self.value_as(operand, dtype, what).map(|_| operand.clone()),
            Item::Literal(literal) if literal.dtype.is_none() => {
                self.value_as(operand, dtype, what)?;
                let value = match literal.value {
                    LiteralValue::Number(ConstantValue::Int(value)) if dtype.is_float() => {
                        LiteralValue::Number(ConstantValue::Float(value as f64))
                    }
                    value => value,
                };
                let dtype = (dtype != DType::Bool).then_some(dtype);
                let literal = Literal { value, dtype, division: None, ..literal };
                Some(Operand::new(Item::Literal(literal), operand.loc))
            }
            Item::Literal(_) => self.value_as(operand, dtype, what).map(|_| operand.clone()),
            _ => self.expected(false, operand, what, wanted),
        }
    }

    fn memory(&mut self, elem: &TypeName, mutable: bool, operand: &Operand, what: &str) -> Option<Operand> {
        let param = match &operand.item {
            Item::Slice(param) => *param,
            Item::Pointer(pointer) => pointer.param,
            _ => return self.expected(false, operand, what, "a slice, or pointers into one"),
        };
        let dtype = self.resolve_type(elem)?;
        let (found, writable) = self.func().slice(param);
        if found != dtype {
            let text = format!("{what} is memory of {dtype}, found {found}");
            let help = format!("declare the parameter `{}[{found}]`", if mutable { "&mut " } else { "&" });
            self.error_help(operand.loc, text, help);
            return None;
        }
        if mutable && !writable {
            let text = format!("{what} is written to, found a slice that is only read");
            let name = &self.func().params[param.index()].name;
            let help = format!("declare it `{name}: &mut [{dtype}]`");
            self.error_help(operand.loc, text, help);
            return None;
        }
        Some(operand.clone())
    }
}
