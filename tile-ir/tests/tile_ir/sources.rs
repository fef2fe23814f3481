//! Kernels of source files, those of macros among them.

use quote::quote;

use tile_ir::frontend::syntax::Kernel;
use tile_ir::frontend::typeck;
use tile_ir::ir;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::sources::{generated_kernels, kernels};

/// The tile IR of every variant.
fn variants(kernel: &Kernel) -> Vec<String> {
    let mut errors = Errors::new();
    let variants = typeck::variants(kernel, &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    let text = |variant| {
        let checked = typeck::check(kernel, variant).unwrap_or_else(|errors| panic!("{errors:?}"));
        format!("{variant:?}\n{}", ir::print(&checked.func, &|_| None))
    };
    variants.iter().map(text).collect()
}

#[test]
fn a_macro_expands_to_the_kernel_that_rustc_sees() {
    let written = kernels(
        "#[fuse_kernel(configs = [{ T: f32, N: 16, SIGN: -1 }, { T: bf16, N: 32, SIGN: 1 }])]
        fn copy<T: Float, const N: usize, const SIGN: i32>(out: &mut [T]) {
            tl::store(out + tl::arange(0, N), (tl::arange(0, N) * (SIGN * ((1 + 2) * 3))).to::<T>());
        }",
    );
    let by_macro = kernels(
        "macro_rules! copies {
            ($name:ident by $factor:expr; $($(#[$doc:meta])* $elem:ty, [$($n:tt),*], $sign:literal;)*) => {
                #[fuse_kernel(configs = [$({ T: $elem, $(N: $n),*, SIGN: $sign }),*])]
                fn $name<T: Float, const N: usize, const SIGN: i32>(out: &mut [T]) {
                            tl::store(out + tl::arange(0, N), (tl::arange(0, N) * (SIGN * ($factor * 3))).to::<T>());
                }
                pub static LIST: &[usize] = &[$($($n),*),*];
            };
            (twice $name:ident) => { copies!($name by 2; f32, [16], 1;); };
        }
        copies! {
            copy by 1 + 2;
            /// The first one.
            f32, [16], -1;
            bf16, [32], 1;
        }
        copies!(twice other);",
    );
    let [copy, other] = &by_macro[..] else { panic!("two kernels") };
    assert_eq!(variants(copy), variants(&written[0]));
    assert_eq!(other.name, "other");
    assert_eq!(variants(other).len(), 1);
}

#[test]
fn a_procedural_macro_expands_to_what_the_test_says() {
    let found = generated_kernels("some_crate::both!(first second); nothing!();", |name, arguments| {
        let kernel = |name| quote!(#[fuse_kernel] fn #name(out: &mut [i32]) { tl::store(out, 1); });
        let kernels = arguments.into_iter().map(kernel);
        (name == "both").then(|| quote!(#(#kernels)*))
    });
    assert_eq!(found.iter().map(|kernel| kernel.name.to_string()).collect::<Vec<_>>(), ["first", "second"]);
}

#[test]
#[should_panic(expected = "no rule of `one!` matches")]
fn a_call_that_no_rule_takes_is_a_mistake() {
    kernels("macro_rules! one { ($name:ident) => {} } one!(1);");
}
