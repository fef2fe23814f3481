//! Functions that can be read at once, and structs that hold few things.

mod signatures;

use signatures::{Function, closures, functions, struct_fields};

use super::{is_test, sources};

/// The sources of the compiler and of what runs its kernels.
const FOLDERS: [&str; 4] = ["lowering/src/", "tile-ir/src/", "dsl-macros/src/", "dsl-runtime/src/"];

/// The most lines of a function, from `fn` to its closing brace.
const LINES: usize = 80;

/// The most closures in a function.
const CLOSURES: usize = 10;

/// The most fields of the struct that emits for the GPU.
const GPU_FIELDS: usize = 12;

/// Fails with the place of each function of which `broken` has something to say.
fn expect_of_functions(why: &str, mut broken: impl FnMut(&Function) -> Option<String>) {
    let mut found = Vec::new();
    let mut count = 0;
    for source in sources(&["rs"]) {
        if is_test(&source.path) || !FOLDERS.iter().any(|folder| source.path.starts_with(folder)) {
            continue;
        }
        for function in functions(&source.text) {
            count += 1;
            let said = broken(&function);
            found.extend(
                said.map(|said| format!("{}:{}: `{}` {said}", source.path, function.line, function.name)),
            );
        }
    }
    assert!(count > 1000, "only {count} functions were found");
    assert!(found.is_empty(), "{why}\n{}", found.join("\n"));
}

#[test]
fn functions_fit_a_screen() {
    let why = "who scrolls has forgotten the beginning: split it along its meaning";
    expect_of_functions(why, |function| {
        (function.lines > LINES).then(|| format!("has {} lines, more than {LINES}", function.lines))
    });
}

#[test]
fn functions_have_few_closures() {
    let why = "many closures are a file of functions whose parameters nobody sees: name them as functions";
    expect_of_functions(why, |function| {
        let count = closures(&function.body);
        (count > CLOSURES).then(|| format!("has {count} closures, more than {CLOSURES}"))
    });
}

/// A range, a pair of coordinates or two operands are one thing, and so of one type. Elements of different types, or
/// more than two, are parameters that hide from the limit on their number.
#[test]
fn a_tuple_parameter_is_one_thing() {
    let why = "a tuple that packs unrelated things is a struct that was not named, or parameters that were not counted";
    expect_of_functions(why, |function| {
        let packs = |elements: &&Vec<String>| elements.len() > 2 || elements[0] != elements[1];
        let packed: Vec<String> =
            function.tuples.iter().filter(packs).map(|types| types.join(", ")).collect();
        (!packed.is_empty()).then(|| format!("takes ({})", packed.join(") and (")))
    });
}

#[test]
fn what_emits_for_the_gpu_holds_few_things() {
    let path = "lowering/src/gpu/emit/mod.rs";
    let file = sources(&["rs"]).into_iter().find(|source| source.path == path).expect("the emitter");
    let fields = struct_fields(&file.text, "Gpu").expect("a struct that emits for the GPU");
    assert!(fields.contains(&"plan".to_string()), "{fields:?}");
    let why = "every operation sees all of it: group what belongs together, with its own functions";
    assert!(fields.len() <= GPU_FIELDS, "{why}\n{path}: `Gpu` has {} fields: {fields:?}", fields.len());
}

#[test]
fn functions_are_taken_apart() {
    let text = "
impl<F: Fn(u32) -> u32> Kept<'_> for Own {
    fn short(&self, b: &mut B, (x, y): (Val, &'a [Val]), any: &(dyn A + B)) -> u32;

    pub fn longer<T: Fn(u32) -> u32>(at: &mut (Vec<(A, B)>, C, D), map: HashMap<A, B>) -> bool {
        let a = |x: u32| x | 1;
        let b = move || true;
        matches!(x, Some('|') | None) || list.iter().map(|(i, _)| i).any(|i| |j| i == j)
    }
}
#[cfg(test)]
fn left_out() {}
";
    let found = functions(text);
    let names: Vec<(&str, usize, usize)> =
        found.iter().map(|own| (own.name.as_str(), own.line, own.lines)).collect();
    assert_eq!(names, [("short", 3, 1), ("longer", 5, 5)]);
    assert_eq!(found[0].tuples, [["Val", "& ' a [ Val ]"]]);
    assert_eq!(found[1].tuples, [["Vec < ( A , B ) >", "C", "D"]]);
    assert_eq!(found.iter().map(|own| closures(&own.body)).collect::<Vec<_>>(), [0, 5]);
}

#[test]
fn fields_are_found() {
    let text =
        "struct A { own: u32 }\npub struct Gpu<'a> {\n  a: &'a A,\n  pub(super) b: Map<ir::B, (C, D)>,\n}";
    assert_eq!(struct_fields(text, "Gpu"), Some(vec!["a".to_string(), "b".to_string()]));
    assert_eq!(struct_fields(text, "B"), None);
}
