//! What tests of this crate and of `lowering` share: kernels from source to tile IR, and their mistakes as text.
//!
//! It is no feature of the crate: `lowering` would then be built twice, for its tests and for the macro.

pub mod file_test;
mod macro_rules;
pub mod round_trip;
pub mod sources;

use proc_macro2::{TokenStream, TokenTree};

use crate::frontend::syntax::{self, Kernel};
use crate::frontend::typeck::{self, MergedErrors, Variant};
use crate::ir::guard::{Guard, Symbol, SymbolicSum};
use crate::ir::{self, Func};
use crate::support::diagnostic::Errors;
use crate::support::warning::Warning;

/// Splits `#[fuse_kernel(..)] fn ..` into the attribute's and the function's tokens.
pub fn tokens(source: &str) -> (TokenStream, TokenStream) {
    let mut all: Vec<TokenTree> = source.parse::<TokenStream>().expect("tokens").into_iter().collect();
    let item = all.split_off(2);
    let attribute = match &all[1] {
        TokenTree::Group(group) => match group.stream().into_iter().nth(1) {
            Some(TokenTree::Group(arguments)) => arguments.stream(),
            _ => TokenStream::new(),
        },
        _ => panic!("an attribute comes first"),
    };
    (attribute, item.into_iter().collect())
}

/// The first variant of a kernel, if it checks.
pub fn try_func(source: &str) -> Option<Func> {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let kernel = syntax::parse(attribute, item, &mut errors)?;
    let variants: Vec<Variant> = typeck::variants(&kernel, &mut errors);
    Some(typeck::check(&kernel, variants.first()?).ok()?.func)
}

/// Every mistake of a kernel, those of its variants together, as a build reports them.
pub fn mistakes(source: &str) -> Errors {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let Some(kernel) = syntax::parse(attribute, item, &mut errors) else { return errors };
    let variants = typeck::variants(&kernel, &mut errors);
    let mut found = MergedErrors::default();
    for variant in &variants {
        if let Err(list) = typeck::check(&kernel, variant) {
            found.add(variant, list);
        }
    }
    found.report(variants.len(), &mut errors);
    errors
}

/// The kernels of a module marked `#[fuse_module]`, checked for their first variants, and every mistake found.
pub fn module(source: &str) -> (Vec<Func>, Errors) {
    module_beside(&[], source)
}

/// As [`module`], of one whose `use` declarations bring items of other modules, each of which may use those before it.
pub fn module_beside(others: &[&str], source: &str) -> (Vec<Func>, Errors) {
    let mut modules: Vec<syntax::FuseModule> = vec![];
    for other in others {
        let (module, errors) = parse_module_beside(&modules, other);
        assert!(errors.is_empty(), "{errors:?}");
        modules.push(module.expect("a module"));
    }
    let (module, mut errors) = parse_module_beside(&modules, source);
    let mut funcs = vec![];
    let Some(module) = module else { return (funcs, errors) };
    for part in module.parts {
        let syntax::ModuleItem::Kernel { attribute, item, .. } = part else { continue };
        let Some(mut kernel) = syntax::parse(attribute, item, &mut errors) else { continue };
        kernel.set_items(module.items.clone());
        let variants = typeck::variants(&kernel, &mut errors);
        let mut found = MergedErrors::default();
        for (i, variant) in variants.iter().enumerate() {
            match typeck::check(&kernel, variant) {
                Ok(checked) if i == 0 => {
                    ir::verify(&checked.func).expect("valid tile IR");
                    funcs.push(checked.func);
                }
                Ok(_) => {}
                Err(list) => found.add(variant, list),
            }
        }
        found.report(variants.len(), &mut errors);
    }
    (funcs, errors)
}

/// A module with what it uses of others. A path names a module and its item last.
fn parse_module_beside(others: &[syntax::FuseModule], source: &str) -> (Option<syntax::FuseModule>, Errors) {
    let tokens = source.parse::<TokenStream>().expect("tokens");
    let mut imports = vec![];
    loop {
        let mut errors = Errors::new();
        let module = syntax::parse_module(TokenStream::new(), tokens.clone(), imports.clone(), &mut errors);
        let Some(wanted) = module.as_ref().and_then(syntax::FuseModule::wanted) else {
            return (module, errors);
        };
        let other = others.iter().find(|other| other.name == *wanted.owner()).expect("the module was given");
        let text = syntax::exported(wanted.name(), &other.items);
        imports.push(syntax::imported(wanted.path(), text).expect("a text that comes back"));
    }
}

/// The first variant of a kernel, checked.
pub fn func(source: &str) -> Func {
    first_variant(source).0
}

/// The warnings of a kernel and of its first variant.
pub fn warnings(source: &str) -> Vec<Warning> {
    let (_, kernel, variant) = first_variant(source);
    let checked = typeck::check(&kernel, &variant).expect("a kernel that checks");
    syntax::without_effect(&kernel).into_iter().chain(checked.warnings).collect()
}

/// The first variant of a kernel, checked, with the kernel and the choices of the variant.
pub fn first_variant(source: &str) -> (Func, Kernel, Variant) {
    let (attribute, item) = tokens(source);
    let mut errors = Errors::new();
    let kernel = syntax::parse(attribute, item, &mut errors).expect("a kernel");
    let variant = typeck::variants(&kernel, &mut errors).into_iter().next();
    assert!(errors.is_empty(), "{errors:?}");
    let variant = variant.expect("a variant");
    let checked =
        typeck::check(&kernel, &variant).unwrap_or_else(|errors| panic!("{}", render(&errors, source)));
    ir::verify(&checked.func).expect("valid tile IR");
    (checked.func, kernel, variant)
}

/// Mistakes with the tokens of their spans.
pub fn render(errors: &Errors, source: &str) -> String {
    errors
        .iter()
        .map(|error| {
            let (from, to) = (error.loc.start.start(), error.loc.end.end());
            let line: Vec<char> = source.lines().nth(from.line - 1).unwrap_or_default().chars().collect();
            let end = if from.line == to.line { to.column } else { line.len() };
            let cut: String = line[from.column.min(end)..end].iter().collect();
            format!("{}: `{cut}`: {}\n", from.line, error.text().replace('\n', "\n    "))
        })
        .collect()
}

/// Parses and checks tokens; what matters is that it returns.
pub fn survive(attribute: TokenStream, item: TokenStream) -> usize {
    let mut errors = Errors::new();
    let Some(kernel) = syntax::parse(attribute, item, &mut errors) else { return errors.len() };
    for variant in typeck::variants(&kernel, &mut errors).iter().take(2) {
        match typeck::check(&kernel, variant) {
            Ok(checked) => ir::verify(&checked.func).expect("what checks is valid"),
            Err(found) => errors.extend(found),
        }
    }
    errors.len()
}

/// The value of a sum; `None` where a divisor is not positive.
pub fn value(sum: &SymbolicSum, known: &[i64], grid: [i64; 3]) -> Option<i128> {
    let term = |(number, factors): &(i64, Vec<Symbol>)| {
        product((*number).into(), factors.iter().copied(), known, grid)
    };
    sum.terms.iter().map(term).sum()
}

fn product(
    number: i128,
    factors: impl Iterator<Item = Symbol>,
    known: &[i64],
    grid: [i64; 3],
) -> Option<i128> {
    let value = |symbol: Symbol| match symbol {
        Symbol::Scalar(param) | Symbol::Length(param) => Some(known[param as usize].into()),
        Symbol::Grid(axis) => Some(grid[usize::from(axis)].into()),
        Symbol::CeilDiv { of, by } | Symbol::Div { of, by } => {
            let [of, by] = [of, by].map(|one| {
                product(
                    one.constant.into(),
                    &mut one.symbols() as &mut dyn Iterator<Item = Symbol>,
                    known,
                    grid,
                )
            });
            let divisor = by.filter(|&divisor| divisor > 0)?;
            match symbol {
                Symbol::Div { .. } => of.filter(|&of| of >= 0).map(|of| of / divisor),
                _ => Some(-(-of?).div_euclid(divisor)),
            }
        }
    };
    factors.map(value).try_fold(number, |product, factor| Some(product * factor?))
}

/// Whether a guard holds for these parameters, of slices their lengths, and for a grid. Allocations satisfy any alignment.
pub fn holds(guard: &Guard, known: &[i64], grid: [i64; 3]) -> bool {
    match guard {
        Guard::Aligned { .. } => true,
        Guard::Divisible { value: number, by } => {
            value(&SymbolicSum { terms: vec![(1, vec![*number])] }, known, grid)
                .is_some_and(|value| value % i128::from(*by) == 0)
        }
        Guard::Equal { scalar, value } => known[*scalar as usize] == *value,
        Guard::Magnitude { scalar, least, most } => {
            let value = f32::from_bits(known[*scalar as usize] as u32);
            f32::from(*least).exp2() <= value && value <= f32::from(*most).exp2()
        }
        Guard::AtMost { low, high } => {
            let ends = value(low, known, grid).zip(value(high, known, grid));
            ends.is_some_and(|(low, high)| low <= high)
        }
    }
}
