//! A thin door: tokens in, the compiler's answer out. Everything else is `lowering`.

use proc_macro::TokenStream;

/// Compiles a function on tiles for the GPU and for this processor; see the documentation of `dsl_runtime`.
#[proc_macro_attribute]
pub fn fuse_kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    lowering::compile(attribute.into(), item.into()).into()
}
