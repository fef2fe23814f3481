//! What an access says about caches: hints that change how fast it is, never what it reads or writes.

use super::typing::{Call, Operand, TypingCx};
use super::{Effect, Intrinsic, IntrinsicGeneric, MethodChoice, Returns, required};
use crate::ir::text::{FieldText, TextWriter};
use crate::ir::{ParseError, TextReader};

/// Which caches an access of a GPU goes through.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CacheModifier {
    #[default]
    All,
    /// The L2 cache alone.
    Global,
    /// Data that is used once.
    Streaming,
    /// Through the L2 cache, into memory.
    Through,
    /// None: every access is made as it stands.
    Volatile,
}

/// How soon a cache line is evicted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum EvictionPolicy {
    #[default]
    Normal,
    First,
    Last,
}

/// The hints of one access.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheHints {
    pub modifier: CacheModifier,
    pub eviction: EvictionPolicy,
    /// Is not allocated in the L1 cache.
    pub no_allocate: bool,
}

impl CacheModifier {
    /// Those that are said; [`CacheModifier::All`] is not.
    const NAMED: [(&str, CacheModifier); 4] = [
        ("cache_global", CacheModifier::Global),
        ("streaming", CacheModifier::Streaming),
        ("write_through", CacheModifier::Through),
        ("volatile", CacheModifier::Volatile),
    ];
}

impl EvictionPolicy {
    /// Those that are said; [`EvictionPolicy::Normal`] is not.
    const NAMED: [(&str, EvictionPolicy); 2] =
        [("evict_first", EvictionPolicy::First), ("evict_last", EvictionPolicy::Last)];
}

/// The word of a choice, if it has one.
fn write_word<T: PartialEq>(out: &mut TextWriter, choice: &T, named: &[(&str, T)]) {
    if let Some((word, _)) = named.iter().find(|(_, one)| one == choice) {
        out.word(word);
    }
}

/// The choice whose word comes next, if one does.
fn read_word<T: Copy + Default>(input: &mut TextReader, named: &[(&str, T)]) -> T {
    named.iter().find(|(word, _)| input.take(word)).map_or_else(T::default, |&(_, choice)| choice)
}

/// A word for each hint that is given.
impl FieldText for CacheHints {
    fn write(&self, out: &mut TextWriter) {
        write_word(out, &self.modifier, &CacheModifier::NAMED);
        write_word(out, &self.eviction, &EvictionPolicy::NAMED);
        out.attribute("no_allocate", &self.no_allocate);
    }

    fn read(input: &mut TextReader) -> Result<CacheHints, ParseError> {
        let modifier = read_word(input, &CacheModifier::NAMED);
        let eviction = read_word(input, &EvictionPolicy::NAMED);
        Ok(CacheHints { modifier, eviction, no_allocate: input.attribute("no_allocate")? })
    }
}

macro_rules! methods {
    ($($name:literal, $doc:literal, $change:expr;)*) => {
        pub(super) const METHODS: &[Intrinsic] = &[$(Intrinsic {
            name: $name,
            returns: Returns::Tile,
            example: concat!("let offsets = tl::arange(0, BLOCK);\ntl::store(out + offsets, tile).", $name, "();"),
            generic: IntrinsicGeneric::None,
            params: &[required("self")],
            doc: concat!($doc, " Written behind the call: `tl::load(..).evict_first()`. It changes no result, and a CPU has nothing like it."),
            check: |cx, call| set(cx, call, $change),
        }),*];
    };
}

methods! {
    "evict_first", "On `tl::load` and `tl::store`: what is touched gives way in the caches of a GPU before anything else: data that nobody reads again.",
        |cache| cache.eviction = EvictionPolicy::First;
    "evict_last", "On `tl::load` and `tl::store`: what is touched stays in the caches of a GPU longest: data that other programs read too.",
        |cache| cache.eviction = EvictionPolicy::Last;
    "no_allocate", "On `tl::load` and `tl::store`: takes no place in the first-level cache of a GPU.",
        |cache| cache.no_allocate = true;
    "cache_global", "On `tl::load` and `tl::store`: goes to the second-level cache of a GPU, past the first.",
        |cache| cache.modifier = CacheModifier::Global;
    "streaming", "On `tl::load` and `tl::store`: used once, so that the caches of a GPU may drop it early.",
        |cache| cache.modifier = CacheModifier::Streaming;
    "volatile", "On `tl::load` and `tl::store`: the access is made each time the kernel comes by, however often that is, and not merged with others: for memory that another program changes meanwhile.",
        |cache| cache.modifier = CacheModifier::Volatile;
}

pub(super) const CHOICES: &[MethodChoice] = &[
    MethodChoice { what: "eviction policy", methods: &["evict_first", "evict_last"] },
    MethodChoice {
        what: "cache modifier",
        methods: &["cache_global", "streaming", "volatile", "write_through"],
    },
    MethodChoice { what: "`.no_allocate`", methods: &["no_allocate"] },
];

/// Of a store alone.
pub(super) const STORE_METHODS: &[Intrinsic] = &[Intrinsic {
    name: "write_through",
    returns: Returns::Tile,
    example: "tl::store(out, 1.0).write_through();",
    generic: IntrinsicGeneric::None,
    params: &[required("self")],
    doc: "On `tl::store`: goes through the second-level cache of a GPU into memory at once. Written behind the call: `tl::store(..).write_through()`. It changes no result, and a CPU has nothing like it.",
    check: |cx, call| {
        if cx.operation_of(&call.args[0]).is_some_and(|op| op.kind.operation().effect() != Effect::Write) {
            return cx.error(call.name_loc, "`.write_through` belongs to `tl::store`: a load writes nothing");
        }
        set(cx, call, |cache| cache.modifier = CacheModifier::Through)
    },
}];

/// Changes the hints of the access that the method is called on.
fn set(cx: &mut dyn TypingCx, call: &Call, change: impl FnOnce(&mut CacheHints)) -> Operand {
    let found = cx.operation_of(&call.args[0]);
    match found.and_then(|op| op.kind.operation_mut().cache_mut()) {
        Some(cache) => {
            change(cache);
            // The method is part of the access from here on.
            cx.extend_operation(&call.args[0], call.loc);
            Operand { loc: call.loc, ..call.args[0].clone() }
        }
        None => cx.error_help(
            call.name_loc,
            format!("{} belongs to `tl::load` or `tl::store`", call.what),
            format!("write it behind the call: `tl::load(pointer).{}()`", call.name),
        ),
    }
}
