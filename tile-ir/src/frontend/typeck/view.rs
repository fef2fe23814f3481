//! Views: their parameters, the arguments of their methods, and views as arguments of functions.

use super::{Call, Check, Item, Operand, ViewPart, WrittenCall};
use crate::frontend::syntax::{GenericArg, Place, ViewType, foreign_help};
use crate::ir::{Param, ParamId, ParamKind, Shape, Type, Value, View, shape_problem};
use crate::ops::{self, Intrinsic, IntrinsicGeneric};
use crate::support::diagnostic::{Loc, axes, count, list, nearest};
use crate::support::dtype::DType;

impl Check<'_> {
    /// Declares the parameters of a view: its memory, shape and strides.
    pub(super) fn view_param(&mut self, ty: &ViewType, name: &str) -> Item {
        let elem = self.resolve_type(&ty.elem);
        let func = &mut *self.builder.func;
        let memory = ParamId(func.params.len() as u32);
        let kind = ParamKind::Slice { elem: elem.unwrap_or(DType::F32), mutable: ty.mutable };
        func.params.push(Param { name: name.to_string(), kind });
        let mut scalars = |what: &str| -> Vec<Value> {
            let scalar = |axis| {
                let value = func.value(Type::scalar(DType::I64));
                let kind = ParamKind::Scalar { value, dtype: DType::I64 };
                func.params.push(Param { name: format!("{name}.{what}({axis})"), kind });
                value
            };
            (0..ty.rank).map(scalar).collect()
        };
        let (shape, strides) = (scalars("shape"), scalars("stride"));
        func.views.push(View { memory, shape, strides, transposed: false, computed: None });
        if elem.is_some() { Item::View(ViewPart { memory, at: vec![] }) } else { Item::Failed }
    }

    /// How to read a view, for messages.
    pub(super) fn view_help(&self, view: &ViewPart) -> String {
        let (name, rank) = (self.view_name(view), view.rank(self.func()));
        let list = |word: &str| vec![word; rank].join(", ");
        format!("a view is read and written in blocks: `{name}.load::<{}>({})`", list("64"), list("0"))
    }

    /// How a method writes a view, for messages.
    pub(super) fn view_store_help(&self, view: &ViewPart, method: &str) -> String {
        let name = self.view_name(view);
        let begin = vec!["0"; view.rank(self.func())].join(", ");
        format!("a view is written in blocks: `{name}.{method}(tile, {begin})`")
    }

    /// How a view is written, for messages.
    fn view_name(&self, view: &ViewPart) -> String {
        let name = &self.func().params[view.memory.index()].name;
        let at = if view.at.is_empty() { "" } else { ".at(..)" };
        format!("{name}{at}")
    }

    /// A method called on a view.
    pub(super) fn view_method(&mut self, view: &ViewPart, written: &WrittenCall) -> Operand {
        let WrittenCall { call, generics } = written;
        let Some(method) = ops::view_methods().find(|method| method.name == call.name) else {
            return self.no_view_method(call);
        };
        let fits = method.generic == IntrinsicGeneric::Extents
            || self.generics(&call.what, method.generic, generics, call.name_loc);
        if !self.view_arity(method, view, call) || !fits {
            return Operand::failed(call.loc);
        }
        self.apply(method, call, generics)
    }

    fn no_view_method(&mut self, call: &Call) -> Operand {
        let named = call.args[0].view().and_then(|view| self.view_method_help(&call.name, view));
        let help = named.unwrap_or_else(|| {
            match nearest(&call.name, ops::view_methods().map(|method| method.name)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    format!(
                        "a view has {}",
                        list(ops::view_methods().map(|method| format!("`{}`", method.name)))
                    )
                }
            }
        });
        self.error_help(call.name_loc, format!("`{}` is not a method of a view", call.name), help)
    }

    /// What to write instead of a method that views have elsewhere.
    fn view_method_help(&self, name: &str, of: &ViewPart) -> Option<String> {
        let (view, rank) = (self.view_name(of), of.rank(self.func()));
        let list = |word: &str| vec![word; rank].join(", ");
        let block = format!("{view}.load::<{}>({})", list("64"), list("0"));
        Some(match name {
            "t" | "transpose" | "trans" | "T" | "mT" | "swapaxes" => {
                format!("transpose a block: `tl::trans({block})`; or launch with `{view}.permute([1, 0])`")
            }
            "permute" => format!(
                "launch with `{view}.permute(order)`; here `tl::permute({block}, order)` reorders a block"
            ),
            "slice" | "narrow" => format!("offsets and extents choose a block: `{block}`"),
            "broadcast" | "reshape" | "view" | "matrix" | "batch" => {
                format!("views are changed by the host: launch with `{view}.reshape(shape)?`")
            }
            "len" | "size" | "numel" | "rows" | "cols" | "nrows" | "ncols" | "dim" => {
                format!("its extent along an axis is `{view}.shape(0)`")
            }
            "get" | "index" | "read" => self.view_help(of),
            "set" | "write" | "fill" => self.view_store_help(of, "store"),
            "sum" | "max" | "min" => format!("reduce a block: `tl::{name}({block}, axis)`"),
            _ if name.starts_with("atomic") => format!(
                "views have `atomic_add` alone: take the memory as a slice, `&mut [T]`, for `tl::{name}(out + offsets, tile)`"
            ),
            _ => foreign_help(name, Place::Method)?,
        })
    }

    /// Whether a method has as many arguments as the view's axes ask for; the surplus is what is reported otherwise.
    fn view_arity(&mut self, method: &Intrinsic, view: &ViewPart, call: &Call) -> bool {
        let rank = view.rank(self.func());
        let params = &method.params[1..];
        let wanted: usize = params.iter().map(|param| if param.each_axis { rank } else { 1 }).sum();
        let found = call.args.len() - 1;
        if found == wanted {
            return true;
        }
        let words: Vec<String> = params
            .iter()
            .map(|param| if param.each_axis { count(rank, param.name) } else { param.name.to_string() })
            .collect();
        let surplus = call.args.get(1 + wanted).zip(call.args.last());
        let loc = surplus.map_or(call.name_loc, |(first, last)| first.loc.to(last.loc));
        let wanted = count(wanted, "argument");
        let text = format!(
            "{} of a view of {} takes {wanted} ({}), found {found}",
            call.what,
            axes(rank),
            words.join(", ")
        );
        let help = self.view_arity_help(view, call);
        self.error_help(loc, text, help);
        false
    }

    /// What to write where a method of a view has too many or too few arguments.
    fn view_arity_help(&self, view: &ViewPart, call: &Call) -> String {
        let args = &call.args[1..];
        let is_mask =
            |arg: &Operand| matches!(arg.item, Item::Value(value) if self.ty(value).dtype == DType::Bool);
        if args.iter().any(is_mask) {
            return "leave the mask out: elements outside of a view's shape are not read, and not written"
                .into();
        }
        match call.name.as_str() {
            method @ ("store" | "atomic_add") => self.view_store_help(view, method),
            "load" => self.view_help(view),
            "at" => format!("one axis at a time: `{0}.at(i).at(j)`", self.view_name(view)),
            name => format!("an axis is a number: `{}.{name}(0)`", self.view_name(view)),
        }
    }

    /// The extents of the block that a call reads, written between `::<` and `>`.
    pub fn extents(&mut self, call: &Call, generics: &[GenericArg]) -> Option<Shape> {
        let rank = call.args[0].view()?.rank(self.func());
        let found = generics.len();
        if found != rank {
            let text = format!("{} of a view of {} takes {}", call.what, axes(rank), count(rank, "extent"));
            let text = if found == 0 { text } else { format!("{text}, found {found}") };
            let surplus = generics.get(rank).zip(generics.last());
            let loc = surplus
                .map_or(call.name_loc, |(first, last)| generic_arg_loc(first).to(generic_arg_loc(last)));
            let form = vec!["64"; rank].join(", ");
            self.error_help(
                loc,
                text,
                format!("the block's extents are constants: `{}::<{form}>(..)`", call.what.trim_matches('`')),
            );
            return None;
        }
        let extents: Vec<Option<i128>> = generics.iter().map(|arg| self.extent(arg)).collect();
        let extents: Vec<i128> = extents.into_iter().collect::<Option<_>>()?;
        self.legal_shape(&extents, generic_arg_loc(&generics[0]).to(generic_arg_loc(&generics[rank - 1])))
    }

    fn extent(&mut self, arg: &GenericArg) -> Option<i128> {
        let operand = match arg {
            GenericArg::Const(expr) => self.expr(expr),
            GenericArg::Type(written) => self.generic_value(written),
            GenericArg::Tuple(_, loc) => {
                self.error(*loc, "the extent of a block is a constant, found a tuple of types");
                return None;
            }
            GenericArg::Infer(loc) => {
                self.error(*loc, "the extent of a block does not follow from anything: write it");
                return None;
            }
        };
        let extent = self.constant(&operand, "the extent of a block")?;
        match shape_problem(&[extent]) {
            Some(problem) => {
                self.error(operand.loc, problem);
                None
            }
            None => Some(extent),
        }
    }

    /// A view for a function's parameter.
    pub(super) fn unify_view(&mut self, ty: &ViewType, operand: &Operand, what: &str) -> Option<Operand> {
        let dtype = self.resolve_type(&ty.elem)?;
        let Item::View(view) = &operand.item else {
            let found = self.describe(operand);
            self.error(operand.loc, format!("{what} is a view of {dtype}, found {found}"));
            return None;
        };
        let ((found, writable), rank) = (self.func().slice(view.memory), view.rank(self.func()));
        if (found, rank) != (dtype, ty.rank) {
            let text = format!("{what} is a `View<{dtype}, {}>`, found a `View<{found}, {rank}>`", ty.rank);
            self.error(operand.loc, text);
            return None;
        }
        if ty.mutable && !writable {
            self.error(operand.loc, format!("{what} is written to, found a view that is only read"));
            return None;
        }
        Some(operand.clone())
    }
}

fn generic_arg_loc(arg: &GenericArg) -> Loc {
    match arg {
        GenericArg::Type(name) => name.loc,
        GenericArg::Const(expr) => expr.loc,
        GenericArg::Tuple(_, loc) | GenericArg::Infer(loc) => *loc,
    }
}
