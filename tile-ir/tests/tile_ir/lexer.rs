//! Texts of tile IR to tokens.

use tile_ir::ir::lexer::{tokens, unquoted};

#[test]
fn tokens_are_what_stands_between_spaces_and_punctuation() {
    let texts = |text| {
        let tokens = tokens(text).expect("tokens");
        tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(texts("%a..=%12 x.shape(0)[-1] ; a comment"), "%a ..= %12 x . shape ( 0 ) [ -1 ] ");
    assert_eq!(texts("-1.5e-7 1e300 -inf 0xfff8e-1"), "-1.5e-7 1e300 -inf 0xfff8e -1 ");
    assert_eq!(texts(r#""a; \"b\"", r#in"#), r#""a; \"b\"" , r#in "#);
}

#[test]
fn strings_come_back_as_they_were() {
    for text in ["", "a \"b\" \\ 'c'", "\n\t\r\0\u{1b}\u{301}", "ü ∞"] {
        assert_eq!(unquoted(&format!("{text:?}")).as_deref(), Some(text));
    }
    assert_eq!(unquoted(r#""\q""#), None);
}
