//! The tile IR that the book shows, of the kernels of its pages, and the functions that pages name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use expect_test::{ExpectFile, expect_file};

use tile_ir::ir;
use tile_ir::ops::is_function;
use tile_ir::testing::{func, module};

/// The kernel of a page, from its attribute on: the lines between the marks of its anchor, other marks left out.
fn kernel(text: &str) -> String {
    let after = text.split_once("// ANCHOR: kernel\n").expect("the anchor begins").1;
    let between = after.split_once("// ANCHOR_END: kernel\n").expect("the anchor ends").0;
    let attribute = between.find("#[fuse_").expect("an attribute");
    let lines = between[attribute..].lines().filter(|line| !line.contains("// ANCHOR"));
    lines.map(|line| format!("{line}\n")).collect()
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
    let source = source.strip_prefix("#[fuse_module]").expect("a module");
    let (funcs, errors) = module(source);
    assert!(errors.is_empty(), "{errors:?}");
    expect_file!["../../../book/code/output/layer_norm.tile"].assert_eq(&ir::print(&funcs[0], &|_| None));
}

/// The text of every page below a folder.
fn pages(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder of pages") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            pages(&path, text);
        } else {
            text.push_str(&fs::read_to_string(&path).expect("a page"));
        }
    }
}

#[test]
fn pages_name_functions_that_exist() {
    let mut text = String::new();
    pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src"), &mut text);
    let name = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_').collect()
    };
    let named: BTreeSet<String> =
        text.split("tl::").skip(1).map(name).filter(|name| !name.is_empty()).collect();
    assert!(named.contains("load"), "pages name functions");
    let unknown: Vec<&String> = named.iter().filter(|name| !is_function(name)).collect();
    assert!(unknown.is_empty(), "no function of `tl::`: {unknown:?}");
}
