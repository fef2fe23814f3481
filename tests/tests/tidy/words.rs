//! The words of the code: those of the field. book/src/glossary.md defines them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{Source, is_test, root, sources};

/// Words that no identifier has any more, and what to write instead.
const RETIRED: &[(&str, &str)] = &[
    ("turn", "iteration"),
    ("turns", "iterations, trip_count"),
    ("lie", "layout_of"),
    ("lies", "has a layout"),
    ("lying", "laid out"),
    ("ramp", "range"),
    ("ramps", "ranges"),
    ("processor", "sm, cpu"),
    ("processors", "sm_count"),
    ("baton", "MmaOrder"),
    ("lot", "stage, barrier group"),
    ("lots", "stages"),
    ("announce", "publish"),
    ("announced", "WorkTile"),
    ("outgoing", "epilogue buffers"),
    ("told", "remote_store, next_work"),
    ("heard", "wait_remote"),
    ("deal", "WarpTiling, tile"),
    ("dealt", "distributed"),
    ("ahead", "async copy, prefetch, pipelined"),
    ("neutral", "identity"),
    ("algebra", "arith"),
    ("blind", "fully masked"),
    ("sight", "causal limit"),
    ("neighbour", "contiguous, neighbor"),
    ("neighbours", "contiguous, neighbors"),
];

/// Folders of code that is ours to name.
const CODE: [&str; 5] =
    ["tile-ir/src/", "lowering/src/", "dsl-macros/src/", "dsl-runtime/src/", "examples/src/"];

/// Folders in which a type's name stands once: the two crates of the compiler are one.
const NAMESPACES: [&[&str]; 4] =
    [&["tile-ir/src/", "lowering/src/"], &["dsl-macros/src/"], &["dsl-runtime/src/"], &["examples/src/"]];

/// A line's code: what is left without comments and without what stands between quotes.
fn code(line: &str) -> String {
    let mut kept = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => break,
            '"' => {
                while let Some(inside) = chars.next() {
                    match inside {
                        '\\' => {
                            chars.next();
                        }
                        '"' => break,
                        _ => {}
                    }
                }
                kept.push(' ');
            }
            _ => kept.push(c),
        }
    }
    kept
}

/// The identifiers of a line of code.
fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The words of an identifier, in lower case: `TmaRing`, `tma_ring` and `TMA_RING` are `tma` and `ring`.
fn words(identifier: &str) -> Vec<String> {
    let mut found = vec![];
    for part in identifier.split('_').filter(|part| !part.is_empty()) {
        let mut word = String::new();
        let mut before_was_lower = false;
        for c in part.chars() {
            if c.is_ascii_uppercase() && before_was_lower && !word.is_empty() {
                found.push(std::mem::take(&mut word));
            }
            before_was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
            word.push(c.to_ascii_lowercase());
        }
        found.push(word);
    }
    found
}

#[test]
fn identifiers_are_taken_apart() {
    assert_eq!(words("TmaRing"), ["tma", "ring"]);
    assert_eq!(words("tma_ring"), ["tma", "ring"]);
    assert_eq!(words("MAX_BYTES"), ["max", "bytes"]);
    assert_eq!(code("let a = \"a turn \\\" of\"; // turn").trim(), "let a =  ;");
}

/// The places of identifiers that have a word for which `reason` gives one, at most thirty.
fn broken(reason: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut broken = vec![];
    for Source { path, text } in sources(&["rs"]) {
        if !CODE.iter().any(|folder| path.starts_with(folder)) || is_test(&path) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = code(line);
            for identifier in identifiers(&code) {
                if let Some(reason) = words(identifier).iter().find_map(|word| reason(word)) {
                    broken.push(format!("{path}:{}: `{identifier}`: {reason}", number + 1));
                }
            }
        }
    }
    broken.truncate(30);
    broken
}

#[test]
fn no_identifier_has_a_retired_word() {
    let retired: BTreeMap<&str, &str> = RETIRED.iter().copied().collect();
    let found = broken(|word| retired.get(word).map(|instead| format!("write {instead}")));
    let why = "somebody who knows Triton, CUTLASS, FlashAttention, LLVM or CUDA looks for the field's word; book/src/glossary.md has it";
    assert!(found.is_empty(), "{why}\n{}", found.join("\n"));
}

/// Beginnings and ends of words as British English spells them.
const BRITISH: [&str; 24] = [
    "neighbour",
    "behaviour",
    "colour",
    "favour",
    "honour",
    "analysed",
    "analyser",
    "optimise",
    "optimisation",
    "normalise",
    "normalisation",
    "initialise",
    "initialisation",
    "materialise",
    "materialisation",
    "serialise",
    "vectorise",
    "parallelise",
    "summarise",
    "recognise",
    "specialise",
    "centred",
    "labelled",
    "modelled",
];

#[test]
fn spelling_is_american() {
    let mut found = vec![];
    for Source { path, text } in sources(&["rs", "md", "py", "toml"]) {
        if path.contains("/tidy/") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let lower = line.to_ascii_lowercase();
            if let Some(word) = BRITISH.iter().find(|word| lower.contains(**word)) {
                found.push(format!("{path}:{}: `{word}`", number + 1));
            }
        }
    }
    found.truncate(30);
    assert!(found.is_empty(), "one spelling, so that a search finds all\n{}", found.join("\n"));
}

/// The name of a type that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(within) => within.split_once(')')?.1,
            None => public,
        }
        .trim_start();
    }
    let (keyword, name) = rest.split_once(' ')?;
    // An associated type has a name in each implementation.
    let is_type = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = name.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
    (is_type && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}

#[test]
fn a_type_name_stands_once_in_a_crate() {
    let mut found = vec![];
    for folders in NAMESPACES {
        let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for Source { path, text } in sources(&["rs"]) {
            // The reference of `tl::` declares what users see, within a macro.
            if !folders.iter().any(|folder| path.starts_with(folder))
                || is_test(&path)
                || path.ends_with("devtools/tl_reference.rs")
            {
                continue;
            }
            // What a test module declares is its own.
            let text = text.split("#[cfg(test)]").next().unwrap_or_default();
            for name in text.lines().filter_map(|line| declared(&code(line)).map(str::to_string)) {
                places.entry(name).or_default().insert(path.clone());
            }
        }
        let twice = places.into_iter().filter(|(_, files)| files.len() > 1);
        found
            .extend(twice.map(|(name, files)| {
                format!("{name}: {}", files.into_iter().collect::<Vec<_>>().join(", "))
            }));
    }
    assert!(
        found.is_empty(),
        "a name that two types have says which one is meant to nobody\n{}",
        found.join("\n")
    );
}

/// What somebody would type, and the file that must be found by it: in its path, or in the first lines of it.
const CONCEPTS: &[(&str, &str)] = &[
    ("tma", "lowering/src/gpu/emit/schedule/tma_store.rs"),
    ("tma", "lowering/src/gpu/schedule/tma_pipeline.rs"),
    ("wgmma", "lowering/src/gpu/emit/dot/wgmma.rs"),
    ("wgmma", "lowering/src/gpu/opt/select_wgmma.rs"),
    ("warpgroup", "lowering/src/gpu/emit/dot/wgmma.rs"),
    ("producer", "lowering/src/gpu/schedule/warp_specialize/producer.rs"),
    ("consumer", "lowering/src/gpu/schedule/warp_specialize/consumer.rs"),
    ("ping-pong", "lowering/src/gpu/schedule/ping_pong.rs"),
    ("prologue", "lowering/src/gpu/schedule/iteration_split.rs"),
    ("epilogue", "lowering/src/gpu/schedule/iteration_split.rs"),
    ("rematerialize", "lowering/src/gpu/opt/remat_narrow.rs"),
    ("rematerialize", "lowering/src/gpu/opt/remat_ranges.rs"),
    ("software pipeline", "lowering/src/gpu/schedule/software_pipeline/mod.rs"),
    ("tile scheduler", "lowering/src/gpu/emit/schedule/work_tiles.rs"),
    ("membar", "lowering/src/gpu/schedule/membar/mod.rs"),
    ("swizzle", "lowering/src/gpu/emit/dot/wgmma.rs"),
    ("online softmax", "examples/src/attention/attention.rs"),
    ("split-k", "examples/src/matmul/split_matmul.rs"),
    ("programmatic dependent launch", "lowering/src/gpu/schedule/pdl.rs"),
];

#[test]
fn a_concept_leads_to_its_file() {
    let mut lost = vec![];
    for (concept, path) in CONCEPTS {
        let text = fs::read_to_string(root().join(path)).unwrap_or_default().to_ascii_lowercase();
        let header: String =
            text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join(" ");
        let spelled = [concept.to_string(), concept.replace([' ', '-'], "_")];
        if !spelled.iter().any(|concept| path.contains(concept.as_str()) || header.contains(concept.as_str()))
        {
            lost.push(format!("{concept}: {path}"));
        }
    }
    assert!(lost.is_empty(), "no path and no first lines with these words\n{}", lost.join("\n"));
}
