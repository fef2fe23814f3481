//! The layouts that the book shows, of a kernel of its pages.

use expect_test::expect_file;

use super::first;
use super::specialization::print;
use lowering::driver::specialize::specializations;

const VECTOR_ADD: &str = include_str!("../../../book/code/src/vector_add.rs");

#[test]
fn layouts_of_a_page() {
    let kernel = VECTOR_ADD.find("#[fuse_kernel").expect("an attribute");
    let source = VECTOR_ADD[kernel..].split_once("// ANCHOR_END: kernel").expect("the anchor ends").0;
    let (func, requests) = first(source);
    let params: Vec<String> = func.params.iter().map(|param| param.name.clone()).collect();
    let specializations = specializations(&func, requests).expect("bodies that fit");
    expect_file!["../../../book/code/output/vector_add.layout"]
        .assert_eq(&print(&specializations[0], &params));
}
