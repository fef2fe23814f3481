//! The table of names from other languages: every name is answered in every place where it may stand, before a name that is
//! spelled alike.

use std::collections::HashSet;

use tile_ir::frontend::syntax::{
    Answer, COMMON_WORDS, Foreign, NameKind, Place, foreign, foreign_table, own_function_help,
};
use tile_ir::ops;
use tile_ir::testing::mistakes;

const PLACES: [Place; 10] = [
    Place::Function,
    Place::Path,
    Place::Owner,
    Place::Module,
    Place::Method,
    Place::Variable,
    Place::Type,
    Place::Macro,
    Place::Option,
    Place::Argument,
];

/// A kernel in which each of `names` stands in a place, with variables, functions and generics that are spelled alike.
fn kernel(names: &[&str], place: Place) -> String {
    let written = |name: &&str| {
        let raw = if matches!(*name, "where" | "const" | "type" | "unsafe") { "r#" } else { "" };
        match place {
            Place::Function | Place::Path => format!("let z = {raw}{name}(y);"),
            Place::Owner => format!("let z = {raw}{name}::unheard_of(y);"),
            Place::Module => format!("let z = tl::{raw}{name}(y);"),
            Place::Method => format!("let z = y.{raw}{name}();"),
            Place::Variable => format!("let z = {raw}{name};"),
            Place::Type => format!("let z = y.to::<{raw}{name}>();"),
            Place::Macro => format!("let z = {name}!(y);"),
            Place::Option => String::new(),
            Place::Argument => format!("let z = tl::load(x + lane, {raw}{name} = 1);"),
        }
    };
    let join = |each: &dyn Fn(&&str) -> String| names.iter().map(each).collect::<String>();
    let options = if place == Place::Option { join(&|name| format!(", {name} = 1")) } else { String::new() };
    let alike = |form: &dyn Fn(String) -> String| join(&|name| form(name.replace("::", "_")));
    format!(
        "#[fuse_kernel(N = [64]{}{options})]
        fn k<const N: usize{}>(x: &[f32], out: &mut [f32]) {{
            let lane = tl::arange(0, N);
            let y = tl::load(x + lane);
            {}
            {}
        }}",
        alike(&|name| format!(", {name}q = [1]")),
        alike(&|name| format!(", const {name}q: usize")),
        alike(&|name| format!("fn {name}w(x: Tile<f32>) -> Tile<f32> {{ x }}\n")),
        join(&written),
    )
}

#[test]
fn every_name_is_answered_wherever_it_stands() {
    let mut wrong = vec![];
    for row in foreign_table() {
        for place in PLACES.into_iter().filter(|&place| row.is_answered_in(place)) {
            let names = row.names.iter().map(|name| name.trim_end_matches('*'));
            let names: Vec<&str> = names.filter(|name| !is_taken(name, place)).collect();
            let found = mistakes(&kernel(&names, place));
            let helps: Vec<&str> = found.iter().filter_map(|error| error.help.as_deref()).collect();
            let wanted: Vec<String> = names.iter().map(|name| expected(row, place, name)).collect();
            if helps != wanted || found.len() != names.len() {
                wrong.push(format!("{names:?} {place:?}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of them\n{}", wrong.len(), wrong.join("\n"));
}

/// Whether a place does not take the name: a keyword, or a function that is there.
fn is_taken(name: &str, place: Place) -> bool {
    match place {
        Place::Method => ops::methods().any(|method| method.name == name) || matches!(name, "self" | "Self"),
        Place::Macro => matches!(name, "where" | "type"),
        Place::Option => false,
        _ => matches!(name, "self" | "Self"),
    }
}

/// The help of a row for one of its names. On a method it names the receiver.
fn expected(row: &Foreign, place: Place, name: &str) -> String {
    match (row.answer, place) {
        (_, Place::Function) => row.help(place, None) + own_function_help(name).unwrap_or_default(),
        (Answer::Own(name), Place::Method) => {
            let form = Foreign { names: &[], kind: NameKind::Function, answer: Answer::Own(name) };
            let form = form.help(Place::Function, None);
            let has_more =
                form.contains(", ") || ops::functions().any(|own| own.name == name && own.params.len() > 1);
            let head = form.split(['`', '(']).nth(1).unwrap_or_default();
            if has_more {
                format!("it is `{head}(y)` here")
            } else {
                form.replace("(x)", "(y)").replace("(n)", "(y)")
            }
        }
        _ => row.help(place, None),
    }
}

#[test]
fn a_name_has_one_answer_in_each_place() {
    let mut wrong = vec![];
    for place in PLACES {
        let mut seen = HashSet::new();
        for row in foreign_table().filter(|row| row.is_answered_in(place)) {
            for name in row.names {
                let written = name.trim_end_matches('*');
                // Case and underscores make no other name.
                let folded = written.replace('_', "").to_lowercase();
                let found = foreign(written, place).expect("a row").names;
                let is_own = row.kind == NameKind::Function
                    && foreign(&folded, place).is_none_or(|row| row.names.is_empty());
                if !seen.insert((folded, row.kind as u8)) || found != row.names || is_own {
                    wrong.push(format!("`{name}` as {place:?}: {found:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "two answers\n{}", wrong.join("\n"));
}

#[test]
fn common_words_are_in_the_table() {
    let missing: Vec<&&str> =
        COMMON_WORDS.iter().filter(|name| foreign(name, Place::Function).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn answers_name_functions_that_exist() {
    for row in foreign_table() {
        if let Answer::Own(name) = row.answer {
            assert!(ops::is_function(name), "`tl::{name}` of {:?}", row.names);
        }
        for name in row.names.iter().filter(|_| row.kind == NameKind::Function) {
            assert!(!ops::is_function(name), "`tl::{name}` is there");
        }
        let Answer::Write(text) = row.answer else { continue };
        for called in text.split("tl::").skip(1) {
            let name: String =
                called.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            assert!(
                name.is_empty() || ops::is_function(&name),
                "`tl::{name}` in the answer to {:?}",
                row.names
            );
        }
    }
}
