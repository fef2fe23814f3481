//! What rustc prints of wrong kernels: the pages include the kernels of `mistakes/` and the expected texts beside them.
//! `TRYBUILD=overwrite` blesses.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("mistakes/*.rs");
}
