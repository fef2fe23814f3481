//! Loads and stores as PTX statements.

use tile_ir::ops::{CacheHints, CacheModifier, Effect, EvictionPolicy, Load, Operation};

use super::words::VectorWords;
use crate::gpu::emit::{Builder, Gpu, statement};
use crate::mlir::builder::Val;

/// Bytes of the widest access, for which a cache policy pays.
const WIDEST: u32 = 16;

/// The modifiers of a PTX access besides its address and type: `ld.global{cop}{.nc}{l1}{.L2::cache_hint}`.
#[derive(Clone, Copy)]
pub(super) struct Modifiers {
    pub(super) volatile: bool,
    pub(super) cop: &'static str,
    pub(super) l1: &'static str,
    /// The eviction policy in L2.
    pub(super) policy: Option<Val>,
}

impl Modifiers {
    /// Those that the operation asks for.
    pub(super) fn requested(gpu: &Gpu, cache: CacheHints) -> Modifiers {
        let cop = match cache.modifier {
            CacheModifier::All | CacheModifier::Volatile => "",
            CacheModifier::Global => ".cg",
            CacheModifier::Streaming => ".cs",
            CacheModifier::Through => ".wt",
        };
        // PTX takes an operator or a priority.
        let l1 = match (cache.modifier, cache.no_allocate, cache.eviction) {
            (CacheModifier::All, true, _) => ".L1::no_allocate",
            (CacheModifier::All, false, EvictionPolicy::First) => ".L1::evict_first",
            (CacheModifier::All, false, EvictionPolicy::Last) => ".L1::evict_last",
            _ => "",
        };
        let policy = match cache.eviction {
            EvictionPolicy::Normal => None,
            EvictionPolicy::First => gpu.cse.policies.evict_first,
            EvictionPolicy::Last => Some(gpu.cse.policies.evict_last),
        };
        let volatile = cache.modifier == CacheModifier::Volatile;
        Modifiers { volatile, cop, l1, policy: policy.filter(|_| !volatile) }
    }

    /// Those of a load. Wide loads of slices that the kernel never writes are `evict_last`, unless the operation says otherwise.
    pub(super) fn of_load(gpu: &Gpu, load: &Load, words: VectorWords) -> Modifiers {
        let mut modifiers = Modifiers::requested(gpu, load.cache);
        let streams =
            load.cache.modifier == CacheModifier::Streaming || load.cache.eviction == EvictionPolicy::First;
        if load.effect() == Effect::Pure && words.bytes == WIDEST && !streams {
            modifiers.policy = Some(gpu.cse.policies.evict_last);
        }
        modifiers
    }

    /// Whether LLVM's own loads and stores suffice.
    pub(super) fn is_plain(&self) -> bool {
        !self.volatile && self.cop.is_empty() && self.l1.is_empty() && self.policy.is_none()
    }

    /// The text between `ld` or `st` and the width.
    pub(super) fn text(&self, invariant: bool) -> String {
        if self.volatile {
            return ".volatile.global".into();
        }
        let nc = if invariant { ".nc" } else { "" };
        let hint = if self.policy.is_some() { ".L2::cache_hint" } else { "" };
        format!(".global{}{nc}{}{hint}", self.cop, self.l1)
    }
}

/// One load as PTX, with modifiers that LLVM's loads lack.
pub(super) struct LoadStatement {
    pub(super) words: VectorWords,
    /// `None` loads always.
    pub(super) mask: Option<Val>,
    /// The words where the mask does not hold; without them 0.
    pub(super) other: Option<Vec<Val>>,
    pub(super) invariant: bool,
    pub(super) modifiers: Modifiers,
}

impl LoadStatement {
    pub(super) fn emit(self, b: &mut Builder, pointer: Val) -> Vec<Val> {
        let (ty, _) = self.words.register();
        let count = usize::from(self.words.count);
        let (target, mut constraints) = self.words.results();
        let mut operands = vec![pointer];
        constraints.push("l".into());
        let mut next = count + 1;
        let mut operand = |operands: &mut Vec<Val>, value: Val, letter: &str| {
            operands.push(value);
            constraints.push(letter.into());
            next += 1;
            format!("${}", next - 1)
        };
        let predicate = match self.mask {
            Some(mask) => format!("@{} ", operand(&mut operands, mask, "b")),
            None => String::new(),
        };
        let policy = match self.modifiers.policy {
            Some(policy) => format!(", {}", operand(&mut operands, policy, "l")),
            None => String::new(),
        };
        if self.mask.is_some() {
            for i in 0..count {
                let initial = match &self.other {
                    Some(other) => b.zext(other[i], ty.elem),
                    None => b.int(ty, 0),
                };
                operand(&mut operands, initial, &i.to_string());
            }
        }
        let modifiers = self.modifiers.text(self.invariant);
        let text = format!("{predicate}ld{modifiers}{} {target}, [${count}]{policy};", self.words.suffix());
        let results = statement(b, &text, &constraints.join(","), &operands, &vec![ty; count]);
        results.into_iter().map(|word| b.trunc(word, self.words.elem)).collect()
    }
}

/// One store as PTX.
pub(super) struct StoreStatement {
    pub(super) words: VectorWords,
    /// `None` stores always.
    pub(super) mask: Option<Val>,
    pub(super) modifiers: Modifiers,
}

impl StoreStatement {
    pub(super) fn emit(self, b: &mut Builder, pointer: Val, data: Vec<Val>) {
        let (ty, letter) = self.words.register();
        let count = usize::from(self.words.count);
        let mut operands = vec![pointer];
        let mut constraints = vec!["l"];
        let mut predicate = String::new();
        if let Some(mask) = self.mask {
            operands.push(mask);
            constraints.push("b");
            predicate = "@$1 ".into();
        }
        let first = operands.len();
        let names: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
        let source = if count == 1 { names[0].clone() } else { format!("{{{}}}", names.join(", ")) };
        operands.extend(data.into_iter().map(|word| b.zext(word, ty.elem)));
        constraints.extend(vec![letter; count]);
        let mut hint = String::new();
        if let Some(policy) = self.modifiers.policy {
            hint = format!(", ${}", operands.len());
            operands.push(policy);
            constraints.push("l");
        }
        let modifiers = self.modifiers.text(false);
        let text = format!("{predicate}st{modifiers}{} [$0], {source}{hint};", self.words.suffix());
        statement(b, &text, &constraints.join(","), &operands, &[]);
    }
}
