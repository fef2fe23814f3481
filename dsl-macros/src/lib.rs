//! The proc macros: they pass tokens to `lowering` and return the tokens that it expands to.

mod enclosing;

use proc_macro::TokenStream;

/// Compiles a function on tiles for the GPU and for this CPU; see the documentation of `dsl_runtime`.
#[proc_macro_attribute]
pub fn fuse_kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    if enclosing::is_method(&item) {
        return lowering::compile_method(item.into()).into();
    }
    lowering::compile(attribute.into(), item.into()).into()
}

/// A module whose kernels call its own functions; see the documentation of `dsl_runtime::tl`.
#[proc_macro_attribute]
pub fn fuse_module(attribute: TokenStream, item: TokenStream) -> TokenStream {
    lowering::compile_module(attribute.into(), item.into()).into()
}

/// A function that the kernels of its `#[fuse_module]` call; see the documentation of `dsl_runtime::tl`.
#[proc_macro_attribute]
pub fn fuse_fn(_: TokenStream, item: TokenStream) -> TokenStream {
    // Within a `#[fuse_module]` the module takes it before rustc gets here.
    lowering::misplaced_function(item.into()).into()
}

/// A struct of values that the kernels of its `#[fuse_module]` use; see the documentation of `dsl_runtime::tl`.
#[proc_macro_attribute]
pub fn fuse_struct(_: TokenStream, item: TokenStream) -> TokenStream {
    // Within a `#[fuse_module]` the module takes it before rustc gets here.
    lowering::misplaced_struct(item.into()).into()
}

/// Expands an item that rustc has stripped of what `cfg` takes out; [`fuse_kernel`] and [`fuse_module`] make its input.
#[doc(hidden)]
#[proc_macro_derive(Configured)]
pub fn configured_item(derived: TokenStream) -> TokenStream {
    lowering::compile_configured(derived.into()).into()
}

/// Goes on with an item of [`fuse_kernel`] or [`fuse_module`], with the text of an item from another module; the macro of that item calls it.
#[doc(hidden)]
#[proc_macro]
pub fn imported(tokens: TokenStream) -> TokenStream {
    lowering::compile_imported(tokens.into()).into()
}

/// Takes away the struct that carried an item to [`macro@Configured`].
#[doc(hidden)]
#[proc_macro_attribute]
pub fn configured(_: TokenStream, _: TokenStream) -> TokenStream {
    TokenStream::new()
}

/// The items of `dsl_runtime::tl`, from the compiler's declarations.
#[doc(hidden)]
#[proc_macro]
pub fn tl_reference(_: TokenStream) -> TokenStream {
    lowering::devtools::tl_reference::reference().into()
}

/// The compiler's table of operations as kernels and the lists that test them; for this project's own tests.
#[doc(hidden)]
#[proc_macro]
pub fn op_table(_: TokenStream) -> TokenStream {
    lowering::op_table().into()
}

/// So many random kernels and what they compute; for this project's own tests.
#[doc(hidden)]
#[proc_macro]
pub fn random_programs(count: TokenStream) -> TokenStream {
    lowering::random_programs(count.into()).into()
}
