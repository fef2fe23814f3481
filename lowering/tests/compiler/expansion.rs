//! What the macros leave of a module, and of a kernel that is a method.

use std::collections::BTreeSet;

use expect_test::expect;
use tile_ir::testing::tokens;

use super::site::{Site, in_own_process};
use lowering::driver::options::BuildOptions;
use lowering::{compile_method, compile_with};

#[test]
fn what_stays_of_a_module() {
    let source = "#[doc = \"d\"] pub mod m {
        use super::*;
        #[fuse_fn] fn f(x: Tile<f32>) -> Tile<f32> { x }
        const N: usize = 4;
        #[cfg(test)] #[fuse_kernel] pub fn k(out: &mut [f32]) { tl::store(out, f(1.0)); }
    }";
    let read = |line: &[&str]| {
        let line: Vec<String> = line.iter().map(|arg| arg.to_string()).collect();
        BuildOptions::read(&line, &|_| None).expect("options")
    };
    let text = |effort, configured: bool| {
        let options = BuildOptions { effort, ..read(&["rustc"]) };
        let source = source.parse().expect("tokens");
        let tokens = match configured {
            false => lowering::compile_module_with(Default::default(), source, &options),
            true => {
                let deferred = lowering::compile_module_with(Default::default(), source, &options);
                lowering::compile_configured_with(deferred, &options)
            }
        };
        let file: syn::File = syn::parse2(tokens).expect("items");
        let [syn::Item::Mod(module)] = file.items.as_slice() else { panic!("one module") };
        let (_, items) = module.content.as_ref().expect("its content");
        let heads = items.iter().map(|item| {
            let text = quote::quote! { #item }.to_string();
            // The names of macros have a hash of their place, which is none here.
            let words = text.split(' ').map(|word| match word.rsplit_once('_') {
                Some((name, hash)) if name.starts_with("fuse_") && hash.len() == 16 => name,
                _ => word,
            });
            let short: String = words.collect::<Vec<_>>().join(" ").chars().take(100).collect();
            format!("{}\n", short.trim_end())
        });
        heads.collect::<String>()
    };
    use lowering::driver::options::Effort;
    expect![[r##"
        # [doc (hidden)] # [allow (unused_macros , non_local_definitions , clippy :: crate_in_macro_def)] ma
        # [doc (hidden)] # [allow (unused_imports)] use fuse_f as f ;
        # [doc (hidden)] # [allow (unused_macros , non_local_definitions , clippy :: crate_in_macro_def)] ma
        # [doc (hidden)] # [allow (unused_imports)] use fuse_N as N ;
        use super :: * ;
        # [allow (unused_imports)] const _ : () = { use Tile as _ ; } ;
        # [allow (nonstandard_style , unused_braces , unused_parens , unused_qualifications , unused_results
        const N : usize = 4 ;
        # [cfg (test)] # [allow (clippy :: too_many_arguments , non_snake_case)] pub fn k < 'fuse , > (out :
        # [cfg (test)] # [doc = "What the build left of the kernel [`k`](fn@k)."] # [allow (non_snake_case ,
        # [cfg (test)] # [allow (unused_imports)] const _ : () = { use tl as _ ; } ;
        # [cfg (test)] # [allow (nonstandard_style , unused_braces , unused_parens , unused_qualifications ,
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_ARCH
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_CPU_
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_PTXA
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_BOUN
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_DEFL
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("CUDA_HOME
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("CUDA_PATH
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_DUMP
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_PASS
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_DUMP
        # [cfg (test)] const _ : :: core :: option :: Option < & str > = :: core :: option_env ! ("FUSE_INJE
        # [allow (unused_imports)] const _ : () = { use fuse_fn as _ ; use fuse_kernel as _ ; let _ = | | {
    "##]]
    .assert_eq(&text(Effort::Check, true));
    expect![[r#"
        use super :: * ;
        # [doc = "```text\nfn f(x: Tile<f32>) -> Tile<f32>\n```\n"] # [allow (warnings , clippy :: all)] fn
        # [allow (warnings , clippy :: all)] const _ : () = { fn body (x : Tile) -> Tile { x } } ;
        const N : usize = 4 ;
        # [cfg (test)] # [allow (clippy :: too_many_arguments , non_snake_case)] pub fn k < 'fuse , > (out :
        # [cfg (test)] # [doc = "What the build left of the kernel [`k`](fn@k)."] # [allow (non_snake_case ,
        # [cfg (test)] # [allow (warnings , clippy :: all)] const _ : () = { fn body (out : & mut [f32]) { t
        # [allow (unused_imports)] const _ : () = { use fuse_fn as _ ; use fuse_kernel as _ ; let _ = | | {
    "#]]
    .assert_eq(&text(Effort::Signature, false));
}

#[test]
fn a_kernel_is_no_method() {
    let method = |text: &str| compile_method(text.parse().expect("tokens")).to_string();
    expect![[r#":: core :: compile_error ! { "a kernel is a free function: move it out of the `impl` or `trait`" } # [allow (unused , clippy :: too_many_arguments , clippy :: missing_safety_doc , non_snake_case)] pub fn k < 'fuse , const N : usize > (& self , argument_0 : impl :: dsl_runtime :: IntoSlice < 'fuse , :: core :: primitive :: f32 >) -> :: dsl_runtime :: Launch < 'fuse , 1 > { :: core :: unreachable ! () }"#]].assert_eq(&method("pub fn k<const N: usize>(&self, x: &[f32]) { tl::undefined(); }"));
    expect![[r#":: core :: compile_error ! { "a kernel is a free function: move it out of the `impl` or `trait`" } # [allow (unused , clippy :: too_many_arguments , clippy :: missing_safety_doc , non_snake_case)] fn k < 'fuse , > (argument_0 : impl :: dsl_runtime :: IntoSlice < 'fuse , :: core :: primitive :: f32 > , argument_1 : :: core :: primitive :: i32) -> :: dsl_runtime :: Launch < 'fuse , 2 > { :: core :: unreachable ! () }"#]].assert_eq(&method("fn k(x: &[f32], n: i32) {}"));
}

/// A `macro_rules` gives every kernel that it makes the place of the tokens in its body.
#[test]
fn kernels_of_one_place_have_their_own_symbols() {
    in_own_process(|| {
        let site = Site::new();
        let options = BuildOptions { archs: vec![], ..site.options() };
        let (attribute, item) =
            tokens("#[fuse_kernel] pub fn fill(out: &mut [f32]) { tl::store(out, 0.0); }");
        let symbols = |_| -> BTreeSet<String> {
            let text = compile_with(attribute.clone(), item.clone(), &options).to_string();
            let word = |c: char| !c.is_alphanumeric() && c != '_';
            text.split(word).filter(|word| word.starts_with("fuse_fill_")).map(str::to_string).collect()
        };
        let [one, other] = [0, 1].map(symbols);
        assert!(!one.is_empty() && one.len() == other.len() && one.is_disjoint(&other), "{one:?} {other:?}");
    });
}

/// An item with conditions inside is put into a struct, and what rustc leaves of it there expands as if it had been written so.
#[test]
fn an_item_with_conditions_inside_is_configured_first() {
    let options = BuildOptions::read(&["rustc".to_string()], &|_| None).expect("options");
    let options = BuildOptions { effort: lowering::driver::options::Effort::Check, ..options };
    let tokens = |text: &str| -> proc_macro2::TokenStream { text.parse().expect("tokens") };
    let expand = |item: &str| compile_with(tokens("N = [64]"), tokens(item), &options);
    let conditional = "fn k<const N: usize>(out: &mut [f32], #[cfg(test)] n: i32) { tl::store(out, 1.0); }";
    let carrier: syn::ItemStruct = syn::parse2(expand(conditional)).expect("a struct");
    assert_eq!(carrier.attrs.len(), 2, "a derive, and an attribute that takes the struct away");
    let written =
        "#[cfg(unix)] fn k<const N: usize>(out: &mut [f32]) { tl::store(out + tl::arange(0, N), 1.0); }";
    let plain = expand(written).to_string();
    assert!(syn::parse_str::<syn::ItemStruct>(&plain).is_err(), "conditions before an item are evaluated");
    // rustc leaves the comma of a parameter, and the semicolon of a statement.
    let body = "{ ; tl::store(out + tl::arange(0, N), 1.0); ; }";
    let carrier = format!(
        "#[::dsl_runtime::configured(kernel N = [64])] struct Configured {{ item: [(); {{ #[cfg(unix)] fn k<const N: usize>(, out: &mut [f32],) {body} 0 }}] }}"
    );
    assert_eq!(lowering::compile_configured_with(tokens(&carrier), &options).to_string(), plain);
}
