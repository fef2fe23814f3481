//! What rustc prints for each class of mistake. The words of every message are tested in `lowering`; here are the spans,
//! and the messages that are rustc's own. `TRYBUILD=overwrite cargo test -p fuse-tests --test ui` blesses.

#[test]
fn messages() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/mistakes/*.rs");
}
