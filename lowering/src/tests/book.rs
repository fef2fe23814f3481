//! What the compiler makes of the kernels of the book, in the files that its pages include.

use expect_test::{ExpectFile, expect_file};

use super::specialization::print;
use super::{first, func, module};
use crate::driver::specialize::specializations;
use crate::ir;

/// The lines of a file between the marks of an anchor, other marks left out.
fn anchored(text: &str, anchor: &str) -> String {
    let after = text.split_once(&format!("// ANCHOR: {anchor}\n")).expect("the anchor begins").1;
    let between = after.split_once(&format!("// ANCHOR_END: {anchor}\n")).expect("the anchor ends").0;
    let lines = between.lines().filter(|line| !line.contains("// ANCHOR"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The kernel of a page, from its attribute on.
fn kernel(text: &str) -> String {
    let source = anchored(text, "kernel");
    source[source.find("#[fuse_").expect("an attribute")..].to_string()
}

fn check_tile(page: &str, expected: ExpectFile) {
    expected.assert_eq(&ir::print(&func(&kernel(page)), &|_| None));
}

const VECTOR_ADD: &str = include_str!("../../../book/code/src/vector_add.rs");
const SOFTMAX: &str = include_str!("../../../book/code/src/softmax.rs");
const MATMUL: &str = include_str!("../../../book/code/src/matmul.rs");
const LAYER_NORM: &str = include_str!("../../../book/code/src/layer_norm.rs");

#[test]
fn tile_ir_of_pages() {
    check_tile(VECTOR_ADD, expect_file!["../../../book/code/output/vector_add.tile"]);
    check_tile(SOFTMAX, expect_file!["../../../book/code/output/softmax.tile"]);
    check_tile(MATMUL, expect_file!["../../../book/code/output/matmul.tile"]);
}

#[test]
fn functions_of_a_page_are_inlined() {
    let source = kernel(LAYER_NORM);
    let source = source.split_once("\npub use ").expect("the module ends").0;
    let (funcs, errors) = module(source);
    assert!(errors.is_empty(), "{errors:?}");
    expect_file!["../../../book/code/output/layer_norm.tile"].assert_eq(&ir::print(&funcs[0], &|_| None));
}

#[test]
fn layouts_of_a_page() {
    let (func, requests) = first(&kernel(VECTOR_ADD));
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let specializations = specializations(&func, requests).expect("bodies that fit");
    expect_file!["../../../book/code/output/vector_add.layout"]
        .assert_eq(&print(&specializations[0], &params));
}
