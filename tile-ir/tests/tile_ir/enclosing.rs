//! Where a function is written: in an `impl` or a `trait`, or outside.

use tile_ir::frontend::syntax::is_in_impl_or_trait;

/// Whether each `fn` of the text is directly in an `impl` or `trait`.
fn check(text: &str, expected: &[bool]) {
    let mut found = vec![];
    for (i, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("fn ") {
            found.push(is_in_impl_or_trait(text, i + 1, line[..at].chars().count()));
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn methods_and_functions() {
    check(
        "fn a() {}\nimpl S {\n    fn b(&self) { fn c() {} }\n    fn d() {}\n}\nfn e() {}",
        &[false, true, false, true, false],
    );
    check(
        "pub trait T: X { fn a(); fn b() {} }\nmod m { fn c() -> impl Fn() { fn d() {} } }",
        &[true, true, false, false],
    );
    check("unsafe impl<'a, T> Tr<'a> for S<{ N }> where T: Y { const C: char = '{'; fn a() {} }", &[false]);
}

#[test]
fn text_and_comments_are_skipped() {
    check(
        "// impl {\n/* impl { /* */ */ fn a() {}\nconst S: &str = \"impl \\\" {\";\nfn b() {}",
        &[false, false],
    );
    check(
        "impl S { const R: &str = r#\"}\"}\"#; const C: char = '\\''; const D: u8 = b'}'; fn a<'x>() {} }",
        &[true],
    );
}
