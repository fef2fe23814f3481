//! Fields, which structs have; and `x.shape` and `x[0]`, which no value has, with what to write instead.

use proc_macro2::Ident;

use super::unknown::dotted;
use super::{Check, Item, Operand, ViewPart};
use crate::frontend::syntax::{Expr, ExprKind, IndexUse, Place, foreign_help};
use crate::support::diagnostic::Loc;

impl Check<'_> {
    /// `base.name`, which structs alone have.
    pub(super) fn field(&mut self, base: &Expr, name: &Ident, loc: Loc) -> Operand {
        let name_loc = Loc::of(name);
        if self.dotted_module(base).is_some() {
            let text = "`tl` is a module, not a value";
            return match crate::ops::is_function(&name.to_string()) {
                true => self.error_help(base.loc, text, format!("write `tl::{name}`")),
                false => self.unknown_function(&name.to_string(), None, loc),
            };
        }
        if let Some(mut path) = self.dotted_path(base) {
            path.push(name.clone());
            return self.unknown_name(&path, dotted(&path), loc);
        }
        let operand = self.expr(base);
        if matches!(operand.item, Item::Failed) {
            return Operand::failed(loc);
        }
        if let Item::Struct(id, parts) = &operand.item {
            return self.struct_field(*id, parts, name, loc);
        }
        let text = format!("`{name}` is not a field of {}", self.describe(&operand));
        let written_name = written_name(base);
        let help = match (name.to_string().as_str(), &operand.item) {
            (method @ ("shape" | "stride"), Item::View(_)) => {
                format!("it is a method: `{written_name}.{method}(0)`")
            }
            ("strides", Item::View(_)) => format!("it is a method: `{written_name}.stride(0)`"),
            ("len" | "shape" | "size", Item::Slice(_)) => {
                format!("the number of its elements is `{written_name}.len()`")
            }
            ("shape" | "size" | "ndim", Item::Value(_)) => {
                "the shape of a tile is made of constants that the kernel knows".into()
            }
            ("T" | "mT", Item::Value(value)) if self.ty(*value).shape.rank() >= 2 => {
                format!("write `tl::trans({written_name})`")
            }
            ("T" | "mT", Item::Value(value)) if !self.ty(*value).is_scalar() => {
                format!("a tile of one axis becomes a column with `{written_name}.col()`")
            }
            ("T" | "mT", Item::View(_) | Item::Slice(_)) => {
                "read a tile first; `tl::trans(tile)` swaps its axes".into()
            }
            ("dtype", Item::Slice(memory) | Item::View(ViewPart { memory, .. })) => {
                let elem = self.written_elem(*memory);
                format!("it is `{elem}`, as the signature says: `.to::<{elem}>()` converts to it")
            }
            ("dtype", Item::Value(_)) => {
                "the element type is a type parameter of the kernel, or the name that its signature has"
                    .into()
            }
            (_, Item::Tuple(_)) => {
                "a tuple has `.0`, `.1`, .., or is taken apart with `let (a, b) = ..`".into()
            }
            _ => foreign_help(&name.to_string(), Place::Method)
                .unwrap_or_else(|| "values here have methods and no fields".into()),
        };
        self.error_help(name_loc, text, help);
        Operand::failed(loc)
    }

    /// `&x`; always a mistake.
    pub(super) fn reference(&mut self, inner: &Expr, loc: Loc) -> Operand {
        let text = "a reference cannot be used in a kernel";
        let ExprKind::Index { base, index, .. } = &inner.kind else {
            let help = match self.expr(inner).item {
                Item::Slice(_) | Item::View(_) => {
                    "a kernel's slices and views are references: leave out the `&`"
                }
                _ => "tiles are values: leave out the `&`",
            };
            return self.error_help(loc, text, help);
        };
        let (operand, index_operand) = (self.expr(base), self.expr(index));
        let offset = index_operand.loc.word().unwrap_or_else(|| "offsets".into());
        match operand.item {
            Item::Failed => Operand::failed(loc),
            Item::Slice(_) => {
                let name = written_name(base);
                self.error_help(loc, text, format!("offsets are added to the slice: `{name} + {offset}`"))
            }
            _ => self.indexed(base, index, IndexUse::Read, loc),
        }
    }

    /// `*inner`; always a mistake.
    pub(super) fn dereference(&mut self, inner: &Expr, usage: IndexUse, loc: Loc) -> Operand {
        let operand = self.expr(inner);
        let what = match usage {
            IndexUse::Read => "dereferencing",
            IndexUse::Written | IndexUse::Changed(_) => "assigning through a pointer",
        };
        let help = match operand.item {
            Item::Failed => return operand,
            Item::Slice(_) => access_help(&written_name(inner), usage),
            Item::Pointer(_) => access_help("pointer", usage),
            _ => "values are no references: leave out the `*`".into(),
        };
        self.error_help(loc, format!("{what} cannot be used in a kernel"), help)
    }

    /// `base[index]`; always a mistake.
    pub(super) fn indexed(&mut self, base: &Expr, index: &Expr, usage: IndexUse, loc: Loc) -> Operand {
        // `x.shape[0]` is one mistake.
        if let ExprKind::Field { base: of, name } = &base.kind
            && matches!(name.to_string().as_str(), "shape" | "stride" | "strides")
        {
            self.field(of, name, loc);
            self.expr(index);
            return Operand::failed(loc);
        }
        if let ExprKind::Path(path) = &base.kind
            && let [name] = &path[..]
            && !self.scopes.is_bound(&name.to_string())
            && name.to_string().starts_with(|c: char| c.is_ascii_uppercase())
        {
            self.expr(index);
            let table = name.to_string().to_lowercase();
            let help = format!(
                "memory is a parameter: pass it, `{table}: &[f32]`, and read `tl::load({table} + i)`"
            );
            return self.error_help(base.loc, format!("a kernel has no tables: `{name}`"), help);
        }
        let (operand, index) = (self.expr(base), self.expr(index));
        let written_name = written_name(base);
        let help = match &operand.item {
            Item::Failed => return Operand::failed(loc),
            Item::View(view) if usage != IndexUse::Read => self.view_store_help(view, "store"),
            Item::View(view) => self.view_help(view),
            Item::Slice(_) if matches!(index.item, Item::Range(_)) => {
                let part = format!("{written_name} + start + tl::arange(0, N)");
                match usage {
                    IndexUse::Read => format!("read a part with `tl::load({part}, mask)`"),
                    _ => format!("write a part with `tl::store({part}, value, mask)`"),
                }
            }
            Item::Slice(_) => {
                let offset = index.loc.word().unwrap_or_else(|| "offsets".into());
                access_help(&format!("{written_name} + {offset}"), usage)
            }
            Item::Value(_) if usage != IndexUse::Read => {
                "a tile is a value: `tl::select(mask, new, x)` makes the changed one".into()
            }
            Item::Value(value) if index.as_integer().is_some() && self.ty(*value).shape.rank() == 1 => {
                let at = index.as_integer().unwrap_or_default();
                format!("one element of a tile is `tl::index({written_name}, 0, {at})`")
            }
            Item::Pointer(_) => "read memory with `tl::load(pointer, mask)`".into(),
            Item::Tuple(_) => match index.as_integer() {
                Some(part) => format!("a part of a tuple is `{written_name}.{part}`"),
                None => "a part of a tuple is `.0`, `.1`, ..".into(),
            },
            _ => "a tile has no element access: `tl::gather` picks elements, `row()` and `col()` add an axis"
                .into(),
        };
        let text = format!("{} cannot be indexed", self.describe(&operand));
        self.error_help(loc, text, help)
    }
}

/// How to read or write the element at `pointer`.
fn access_help(pointer: &str, usage: IndexUse) -> String {
    match usage {
        IndexUse::Read => format!("read memory with `tl::load({pointer})`"),
        IndexUse::Written => format!("write memory with `tl::store({pointer}, value)`"),
        IndexUse::Changed(op) => {
            format!(
                "read and write memory: `tl::store({pointer}, tl::load({pointer}) {} value)`",
                op.symbol()
            )
        }
    }
}

/// A name as it was written, or `x` for another expression.
fn written_name(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Path(path) if path.len() == 1 => path[0].to_string(),
        _ => "x".into(),
    }
}
