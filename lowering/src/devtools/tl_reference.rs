//! The language reference: `dsl_runtime::tl`, one documented item for each operation, from the declarations in `ops`.
//!
//! Takes the tables; gives functions, methods and operators. Their documentation is the reference, and an editor
//! resolves the names in the body of a kernel to them. They are stubs: a kernel's body never calls them.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use tile_ir::frontend::syntax::{BinaryOp, UnaryOp};
use tile_ir::ir::MAX_RANK;
use tile_ir::ops::scalar::{self, HalfPolicy, ScalarOp, TABLE, TypeRule};
use tile_ir::ops::{self, Intrinsic, IntrinsicGeneric, IntrinsicParam, Returns};
use tile_ir::support::diagnostic::list;
use tile_ir::support::dtype::{Class, DType};

/// The kernel around an example, which replaces `EXAMPLE`.
pub const EXAMPLE_KERNEL: &str = "#[fuse_kernel(BLOCK = [64])]
fn example<const BLOCK: usize>(
    x: &[f32], out: &mut [f32], counts: &mut [u32], n: i32, seed: u64,
    matrix: &View<f32, 2>, result: &mut View<f32, 2>,
) {
    let tile = tl::load(x + tl::arange(0, BLOCK));
    EXAMPLE
}";

/// Expands `tl_reference!()`, in a module that declares `Operand`, `Optional`, `Range` and `only_in_kernels`.
pub fn reference() -> TokenStream {
    let rows = scalar::functions::all().map(row_function);
    let functions = ops::functions().map(function);
    let on_tiles = ops::tile_methods().map(method);
    let on_ranges = ops::range_methods().map(method);
    let on_stores = ops::store_methods().map(declared_method);
    let on_slices = ops::slice_methods().map(declared_method);
    let on_views = (1..=MAX_RANK).map(view_methods);
    let operators = TABLE.iter().filter_map(operator);
    let comparisons = comparisons();
    let doc = format!(
        " A tile: elements of one type in a shape known at build; without axes, a scalar.\n\n# Operators\n{}",
        operator_table()
    );
    quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug)]
        #[must_use]
        pub struct Tile(());

        impl Tile {
            #(#on_tiles)*
        }

        impl Range {
            #(#on_ranges)*
        }

        /// What may follow `tl::store(..)`: hints about caches.
        pub trait Stored: Sized {
            #(#on_stores)*
        }

        /// Methods of a slice parameter; `slice + offsets` is a tile of pointers into it.
        pub trait Slice {
            #(#on_slices)*
        }

        /// A view parameter, `&View<T, R>` or `&mut View<T, R>`: memory with a shape and strides, read and written in
        /// blocks. Its methods take an offset for each of its axes; calls of the kernel take a [`crate::View`] or
        /// [`crate::ViewMut`].
        #[derive(Debug)]
        pub struct View<T, const R: usize>(::core::marker::PhantomData<T>);

        #(#on_views)*

        #comparisons

        #(#rows)*
        #(#functions)*
        #(#operators)*
    }
}

/// Every example of the reference, with the name of its item.
pub fn examples() -> Vec<(String, String)> {
    let rows = scalar::functions::all().map(|row| (row.name.to_string(), row_example(row)));
    let functions = ops::functions().chain(ops::methods()).chain(ops::view_methods());
    rows.chain(functions.map(|function| (function.name.to_string(), function.example.to_string()))).collect()
}

// ---- rows of the lanewise table

fn row_function(row: &ScalarOp) -> TokenStream {
    let name = ident(row.name);
    let doc = format!("{}\n\n{}{}", row.doc.trim_end(), row_rules(row), fenced(&row_example(row)));
    let params: Vec<Ident> = row.params.iter().map(|param| ident(param)).collect();
    let text = row.name;
    quote! {
        #[doc = #doc]
        pub fn #name(#(#params: impl Operand),*) -> Tile {
            only_in_kernels(#text)
        }
    }
}

/// Types, shapes and rounding, from the table.
fn row_rules(row: &ScalarOp) -> String {
    let types: Vec<String> = row.class.members().map(|dtype| format!("`{dtype}`")).collect();
    let types = if types.len() == DType::ALL.len() { "all".into() } else { list(types) };
    let result = match row.rule {
        TypeRule::Same | TypeRule::Select => "which is the result's",
        TypeRule::Compare => "the result's, which is of `bool`",
    };
    let condition =
        if row.rule == TypeRule::Select { "The condition is of `bool`, the other" } else { "The" };
    let mut rules = format!("Element types: {types}.\n\n");
    if row.params.len() > 1 {
        rules +=
            &format!("{condition} operands have one element type; all broadcast to one shape, {result}.\n\n");
    }
    if row.class.members().any(DType::is_half) && row.half_policy == HalfPolicy::Widen {
        rules += "`f16` and `bf16` are computed in `f32` and rounded once.\n\n";
    }
    rules
}

fn row_example(row: &ScalarOp) -> String {
    let integers = !row.class.contains(DType::F32);
    let args = match (row.rule, row.params.len(), integers) {
        (TypeRule::Select, ..) => "tile > 0.0, tile, 0.0",
        (_, 1, true) => "n",
        (_, 1, false) => "tile",
        (_, 2, true) => "n, BLOCK",
        (_, 2, false) => "tile, 1.0",
        _ => "tile, 0.5, 2.0",
    };
    format!("let y = tl::{}({args});", row.name)
}

// ---- functions and methods

fn function(function: &Intrinsic) -> TokenStream {
    let signature = signature(function, function.params, TokenStream::new());
    let text = function.name;
    let doc = function_doc(function, &format!("tl::{text}"), function.params);
    quote! {
        #[doc = #doc]
        pub #signature {
            only_in_kernels(#text)
        }
    }
}

fn method(method: &Intrinsic) -> TokenStream {
    let params = &method.params[1..];
    let signature = signature(method, params, quote! { self, });
    let text = method.name;
    let doc = function_doc(method, &format!(".{text}"), params);
    quote! {
        #[doc = #doc]
        pub #signature {
            only_in_kernels(#text)
        }
    }
}

fn declared_method(method: &Intrinsic) -> TokenStream {
    let params = &method.params[1..];
    let signature = signature(method, params, quote! { &self, });
    let doc = function_doc(method, &format!(".{}", method.name), params);
    quote! {
        #[doc = #doc]
        #signature;
    }
}

/// The methods of views with a number of axes.
fn view_methods(rank: usize) -> TokenStream {
    // A part has one axis less, and at least one.
    let available = ops::view_methods().filter(|method| rank > 1 || method.returns != Returns::View);
    let methods = available.map(|method| {
        let (name, text) = (ident(method.name), method.name);
        let extents = (0..rank).map(|axis| {
            let extent = format_ident!("EXTENT_{axis}");
            quote! { const #extent: usize }
        });
        let generics = match method.generic {
            IntrinsicGeneric::Extents => quote! { <#(#extents),*> },
            IntrinsicGeneric::OptionalType | IntrinsicGeneric::RequiredType => {
                quote! { <To: crate::Element> }
            }
            IntrinsicGeneric::None | IntrinsicGeneric::Results => TokenStream::new(),
        };
        let params = method.params[1..].iter().flat_map(|param| {
            let name = ident(param.name);
            match param.each_axis {
                true => (0..rank).map(|axis| format_ident!("{}_{axis}", param.name)).collect(),
                false => vec![name],
            }
        });
        let doc = format!("{}\n\n{}", method.doc, fenced(method.example));
        let part = proc_macro2::Literal::usize_unsuffixed(rank - 1);
        let result = match method.returns {
            Returns::View => quote! { -> &'static View<T, #part> },
            Returns::Tile => quote! { -> Tile },
            _ => TokenStream::new(),
        };
        quote! {
            #[doc = #doc]
            pub fn #name #generics(&self, #(#params: impl Operand),*) #result {
                only_in_kernels(#text)
            }
        }
    });
    let rank = proc_macro2::Literal::usize_unsuffixed(rank);
    quote! {
        impl<T> View<T, #rank> {
            #(#methods)*
        }
    }
}

fn signature(function: &Intrinsic, params: &[IntrinsicParam], receiver: TokenStream) -> TokenStream {
    let name = ident(function.name);
    let generics = match function.generic {
        IntrinsicGeneric::None | IntrinsicGeneric::Extents => TokenStream::new(),
        IntrinsicGeneric::OptionalType | IntrinsicGeneric::RequiredType => quote! { <T: crate::Element> },
        IntrinsicGeneric::Results => quote! { <T> },
    };
    let same = function.returns == Returns::Same;
    let generics = if same {
        quote! { <X: Operand> }
    } else {
        generics
    };
    let params = params.iter().enumerate().map(|(i, param)| {
        let name = ident(param.name);
        if same && i == 0 {
            quote! { #name: X }
        } else if param.optional {
            quote! { #name: impl Optional }
        } else {
            quote! { #name: impl Operand }
        }
    });
    let result = match function.returns {
        Returns::Tile => quote! { -> Tile },
        Returns::Tuple(count) => {
            let tiles = vec![quote! { Tile }; count];
            quote! { -> (#(#tiles),*) }
        }
        Returns::Same => quote! { -> X },
        Returns::Range => quote! { -> Range },
        Returns::Constant => quote! { -> usize },
        Returns::Nothing | Returns::View => TokenStream::new(),
    };
    quote! { fn #name #generics(#receiver #(#params),*) #result }
}

fn function_doc(function: &Intrinsic, called: &str, params: &[IntrinsicParam]) -> String {
    let mut doc = format!("{}\n\n", function.doc);
    let first_optional = params.iter().position(|param| param.optional);
    if let Some(first) = first_optional {
        let forms = (first..=params.len()).map(|count| {
            let names: Vec<&str> = params[..count].iter().map(|param| param.name).collect();
            format!("`{called}({})`", names.join(", "))
        });
        doc += &format!("Written {}.\n\n", forms.collect::<Vec<_>>().join(" or "));
    }
    doc + &fenced(function.example)
}

// ---- operators

/// The trait and method of an operator that Rust lets a type overload.
fn overload(row: &ScalarOp) -> Option<(&'static str, &'static str)> {
    let of_binary = |op| match op {
        BinaryOp::Add => Some(("Add", "add")),
        BinaryOp::Sub => Some(("Sub", "sub")),
        BinaryOp::Mul => Some(("Mul", "mul")),
        BinaryOp::Div => Some(("Div", "div")),
        BinaryOp::Rem => Some(("Rem", "rem")),
        BinaryOp::And => Some(("BitAnd", "bitand")),
        BinaryOp::Or => Some(("BitOr", "bitor")),
        BinaryOp::Xor => Some(("BitXor", "bitxor")),
        BinaryOp::Shl => Some(("Shl", "shl")),
        BinaryOp::Shr => Some(("Shr", "shr")),
        // A comparison always gives a `bool` in Rust; in a kernel, a tile of them.
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => None,
    };
    let of_unary = |op| match op {
        UnaryOp::Neg => ("Neg", "neg"),
        UnaryOp::Not => ("Not", "not"),
    };
    row.binary.and_then(of_binary).or_else(|| row.unary.map(of_unary))
}

fn operator(row: &ScalarOp) -> Option<TokenStream> {
    let (name, function) = overload(row)?;
    let (name, function, text) = (ident(name), ident(function), row.name);
    let doc = format!("{}\n\n{}", row.doc.trim_end(), row_rules(row));
    if row.unary.is_some() {
        return Some(quote! {
            impl ::core::ops::#name for Tile {
                type Output = Tile;

                #[doc = #doc]
                fn #function(self) -> Tile {
                    only_in_kernels(#text)
                }
            }
        });
    }
    // `2.0 * tile` and `slice + offsets` are allowed too.
    let left = DType::ALL.into_iter().filter(|&dtype| row.class.contains(dtype)).map(|dtype| {
        let ty = format_ident!("{}", dtype.name());
        let ty = if dtype.is_half() || dtype.is_f8() {
            quote! { crate::#ty }
        } else {
            quote! { #ty }
        };
        quote! { #[doc(hidden)] impl ::core::ops::#name<Tile> for #ty }
    });
    let slices = [quote! { &[T] }, quote! { &mut [T] }]
        .into_iter()
        .filter(|_| row.binary == Some(BinaryOp::Add))
        .map(|slice| quote! { #[doc(hidden)] impl<T: crate::Element> ::core::ops::#name<Tile> for #slice });
    let headers =
        left.chain([quote! { #[doc(hidden)] impl ::core::ops::#name<Tile> for usize }]).chain(slices);
    Some(quote! {
        impl<R: Operand> ::core::ops::#name<R> for Tile {
            type Output = Tile;

            #[doc = #doc]
            fn #function(self, other: R) -> Tile {
                only_in_kernels(#text)
            }
        }

        #(#headers {
            type Output = Tile;

            fn #function(self, other: Tile) -> Tile {
                only_in_kernels(#text)
            }
        })*
    })
}

/// Comparisons, which in Rust give a `bool`; their documentation is the table of operators.
fn comparisons() -> TokenStream {
    let numbers = Class::Computed.members().map(|dtype| {
        let ty = format_ident!("{}", dtype.name());
        if dtype.is_half() {
            quote! { crate::#ty }
        } else {
            quote! { #ty }
        }
    });
    let pairs = [(quote! { <R: Operand> }, quote! { R }, quote! { Tile })]
        .into_iter()
        .chain(numbers.map(|ty| (TokenStream::new(), quote! { Tile }, ty)));
    let pairs = pairs.map(|(generics, right, left)| {
        quote! {
            #[doc(hidden)]
            impl #generics PartialEq<#right> for #left {
                fn eq(&self, other: &#right) -> bool {
                    only_in_kernels("==")
                }
            }

            #[doc(hidden)]
            impl #generics PartialOrd<#right> for #left {
                fn partial_cmp(&self, other: &#right) -> Option<::core::cmp::Ordering> {
                    only_in_kernels("<")
                }
            }
        }
    });
    quote! { #(#pairs)* }
}

fn operator_table() -> String {
    let mut table = String::from("| written | gives | element types |\n| --- | --- | --- |\n");
    for row in TABLE.iter().filter(|row| row.is_operator()) {
        let written = match (row.binary, row.unary) {
            (Some(op), _) => format!("x {} y", op.symbol()),
            (None, Some(op)) => format!("{}x", op.symbol()),
            (None, None) => continue,
        };
        let written = written.replace('|', "\\|");
        let doc = row.doc.trim().replace('\n', " ");
        table += &format!("| `{written}` | {doc} | {} |\n", row.class.describe());
    }
    table
}

// ---- text

fn ident(name: &str) -> Ident {
    Ident::new(name, Span::call_site())
}

/// An example, which `tests::tl_reference` checks; rustdoc cannot, because it is the body of a kernel.
fn fenced(example: &str) -> String {
    format!("```ignore\n{example}\n```\n")
}
