//! The variants that a kernel declares: the Cartesian product of its lists, for each config.

use proc_macro2::Ident;

use super::settings::{is_setting, named_settings, report_conditions, report_tune, settings};
use super::variant::{ConstValue, Variant};
use crate::frontend::syntax::{
    Config, ConstType, GenericParam, Kernel, OPTIONS, VariantKind, VariantValue, const_range, describe_value,
    nearest_name,
};
use crate::support::diagnostic::{Errors, Loc, list};
use crate::support::dtype::DType;

/// The most variants a kernel may declare: each is compiled, and each is a row of the binary.
const MAX_VARIANTS: usize = 1024;

/// The variants of a kernel in the order declared; the mistakes of the declaration go to `errors`. A generic none of
/// whose values could be parsed is missing from them.
pub fn variants(kernel: &Kernel, errors: &mut Errors) -> Vec<Variant> {
    report_unknown(kernel, errors);
    report_tune(kernel, errors);
    report_conditions(kernel, errors);
    let configs: Vec<Option<usize>> = if kernel.options.configs.is_empty() {
        vec![None]
    } else {
        (0..kernel.options.configs.len()).map(Some).collect()
    };
    let mut all: Vec<Variant> = vec![];
    for place in configs {
        let config = place.map(|place| &kernel.options.configs[place]);
        let named = named_settings(kernel, config);
        let start = Variant { named, config: place, ..Variant::default() };
        let values: Vec<Vec<VariantKind>> =
            kernel.generics.iter().map(|generic| values_of(kernel, config, generic, errors)).collect();
        let count = values.iter().fold(1usize, |count, values| count.saturating_mul(values.len().max(1)));
        if all.len().saturating_add(count) > MAX_VARIANTS {
            errors.push_help(
                Loc::of(&kernel.name),
                format!("the lists of `{}` declare more than {MAX_VARIANTS} variants", kernel.name),
                "declare the exact sets that are called with `configs = [{ .. }]`",
            );
            all.truncate(1);
            return all;
        }
        let mut understood = true;
        for mut variant in cartesian_product(kernel, &values, start) {
            if understood {
                let before = errors.len();
                variant.settings = settings(kernel, config, &variant, errors);
                understood = errors.len() == before;
            }
            let twice = all.iter().any(|other| other.is_indistinguishable_from(&variant, kernel));
            match (twice, config) {
                (true, Some(config)) => {
                    let text = format!("the variant {variant} is declared twice");
                    match same_generics_differ(&all, &variant) && !kernel.options.leaves_configs_open() {
                        true => errors.push_help(
                            config.loc,
                            text,
                            "a call cannot tell the two apart; `tune(key = [..])` measures which is faster, and `when: condition` in a config says which one to take",
                        ),
                        false => errors.push(config.loc, text),
                    }
                }
                (true, None) | (false, _) => all.push(variant),
            }
        }
    }
    all
}

/// Whether a variant with the same generics has other settings.
fn same_generics_differ(all: &[Variant], variant: &Variant) -> bool {
    let same = |other: &&Variant| other.types == variant.types && other.consts == variant.consts;
    all.iter().filter(same).any(|other| other.settings != variant.settings)
}

/// Every choice of one value for each generic.
fn cartesian_product(kernel: &Kernel, values: &[Vec<VariantKind>], start: Variant) -> Vec<Variant> {
    let mut partial = vec![start];
    for (generic, values) in kernel.generics.iter().zip(values).filter(|(_, values)| !values.is_empty()) {
        partial = partial
            .iter()
            .flat_map(|variant| values.iter().map(move |value| extend(variant, generic, value)))
            .collect();
    }
    partial
}

fn extend(variant: &Variant, generic: &GenericParam, value: &VariantKind) -> Variant {
    let mut variant = variant.clone();
    let name = generic.name().to_string();
    match value {
        VariantKind::Type(dtype) => variant.types.push((name, *dtype)),
        VariantKind::Int(value) => variant.consts.push((name, ConstValue::Int(*value))),
        VariantKind::Bool(value) => variant.consts.push((name, ConstValue::Bool(*value))),
    }
    variant
}

/// Whether a name with declared values is that of a constant which the kernel does not have: `N = [64, 128]`.
fn is_undeclared_constant(kernel: &Kernel, name: &Ident) -> bool {
    let is_constant = name.to_string().starts_with(|first: char| first.is_ascii_uppercase());
    let mut lists = kernel.options.lists.iter().filter(|list| list.name == *name);
    is_constant && lists.any(|list| list.values.iter().all(|value| matches!(value.kind, VariantKind::Int(_))))
}

fn report_unknown(kernel: &Kernel, errors: &mut Errors) {
    let find = |name: &Ident| kernel.generics.iter().find(|generic| generic.name() == name);
    let in_lists = kernel.options.lists.iter().map(|list| &list.name);
    let in_configs =
        kernel.options.configs.iter().flat_map(|config| config.entries.iter().map(|(name, _)| name));
    for name in in_lists.chain(in_configs.clone()) {
        if find(name).is_none() && !is_setting(name) {
            let generics = list(kernel.generics.iter().map(|generic| format!("`{}`", generic.name())));
            let generics = if generics.is_empty() { "none".into() } else { generics };
            let help = match near(kernel, name) {
                Some(near) => format!("did you mean `{near}`?"),
                None if is_undeclared_constant(kernel, name) => {
                    format!("declare it: `fn {}<const {name}: usize>(..)`", kernel.name)
                }
                None => format!("its generics are {generics}; the options are {OPTIONS}"),
            };
            errors.push_help(Loc::of(name), format!("`{name}` is not a generic of `{}`", kernel.name), help);
        }
    }
    for list in &kernel.options.lists {
        if in_configs.clone().any(|name| *name == list.name) {
            errors.push(list.loc, format!("`{}` has a list and stands in `configs`: keep one", list.name));
        }
        let chosen = list.chosen_by.as_ref().map(Loc::of);
        if let (Some(loc), Some(generic)) = (chosen, find(&list.name))
            && !matches!(generic, GenericParam::Const { ty: ConstType::Integer(_), .. })
        {
            errors
                .push(loc, format!("`{}` cannot be chosen by the arguments: only an integer can", list.name));
        }
    }
}

/// The option or generic that an unknown name was perhaps meant to be.
fn near(kernel: &Kernel, name: &Ident) -> Option<String> {
    let generics: Vec<String> = kernel.generics.iter().map(|generic| generic.name().to_string()).collect();
    let near = nearest_name(&name.to_string(), generics.iter().map(String::as_str)).map(str::to_string);
    near.or_else(|| only_undeclared(kernel, name))
}

/// The generic without values, if there is one, for the only name that is no generic.
fn only_undeclared(kernel: &Kernel, name: &Ident) -> Option<String> {
    let declared = || {
        let in_configs =
            kernel.options.configs.iter().flat_map(|config| config.entries.iter().map(|(name, _)| name));
        kernel.options.lists.iter().map(|list| &list.name).chain(in_configs)
    };
    let is_generic = |name: &Ident| kernel.generics.iter().any(|generic| generic.name() == name);
    let mut unknown = declared().filter(|own| *own != name && !is_generic(own) && !is_setting(own));
    let mut missing = kernel.generics.iter().filter(|generic| !declared().any(|own| own == generic.name()));
    match (unknown.next(), missing.next(), missing.next()) {
        (None, Some(generic), None) => Some(generic.name().to_string()),
        _ => None,
    }
}

/// Whether the attribute declares values for a name that was perhaps meant to be this one, which was reported.
fn is_misspelt(kernel: &Kernel, generic: &Ident) -> bool {
    let in_lists = kernel.options.lists.iter().map(|list| &list.name);
    let in_configs =
        kernel.options.configs.iter().flat_map(|config| config.entries.iter().map(|(name, _)| name));
    let is_own = |name: &Ident| kernel.generics.iter().any(|other| other.name() == name);
    let unknown = in_lists.chain(in_configs).filter(|name| !is_own(name) && !is_setting(name));
    unknown.filter_map(|name| near(kernel, name)).any(|near| *generic == near)
}

/// The declared values of a generic that fit it.
fn values_of(
    kernel: &Kernel,
    config: Option<&Config>,
    generic: &GenericParam,
    errors: &mut Errors,
) -> Vec<VariantKind> {
    let name = generic.name();
    let from_config = config.and_then(|config| config.entries.iter().find(|(entry, _)| entry == name));
    let declared: Vec<&VariantValue> = match from_config {
        Some((_, value)) => vec![value],
        None => match kernel.options.lists.iter().find(|list| list.name == *name) {
            Some(list) => list.values.iter().collect(),
            None => {
                report_undeclared(kernel, config, generic, errors);
                return vec![];
            }
        },
    };
    declared
        .into_iter()
        .filter(|value| fits(generic, value, errors))
        .map(|value| value.kind.clone())
        .collect()
}

fn report_undeclared(kernel: &Kernel, config: Option<&Config>, generic: &GenericParam, errors: &mut Errors) {
    let name = generic.name();
    if kernel.options.unreadable || is_misspelt(kernel, name) {
        return;
    }
    let (loc, text) = match config {
        None => (Loc::of(name), format!("no values are declared for `{name}`")),
        Some(config) => (config.loc, format!("this config does not give `{name}`")),
    };
    let values = match generic {
        GenericParam::Type { bound, .. } => {
            let usual = [DType::F32, DType::I32].into_iter().find(|dtype| bound.contains(*dtype));
            format!("[{}]", usual.unwrap_or(DType::F32))
        }
        GenericParam::Const { ty: ConstType::Bool, .. } => "[false, true]".into(),
        GenericParam::Const { .. } => "[1024]".into(),
    };
    let help = match config {
        None => format!("declare them: `#[fuse_kernel({name} = {values})]`"),
        Some(_) => format!("a list outside the configs gives it to all: `{name} = {values}`"),
    };
    errors.push_help(loc, text, help);
}

fn fits(generic: &GenericParam, value: &VariantValue, errors: &mut Errors) -> bool {
    let name = generic.name();
    let problem = match (generic, &value.kind) {
        (GenericParam::Type { bound, .. }, VariantKind::Type(dtype)) => (!bound.contains(*dtype))
            .then(|| format!("`{name}` is one of {}, found {dtype}", list(bound.members()))),
        (GenericParam::Type { .. }, other) => {
            Some(format!("`{name}` is a type, found `{}`", describe_value(other)))
        }
        (GenericParam::Const { ty: ConstType::Bool, .. }, VariantKind::Bool(_)) => None,
        (GenericParam::Const { ty: ConstType::Bool, .. }, other) => {
            Some(format!("`{name}` is a `bool`, found `{}`", describe_value(other)))
        }
        (GenericParam::Const { ty: ConstType::Integer(ty), .. }, VariantKind::Int(value)) => {
            let (low, high) = const_range(&ty.to_string()).unwrap_or((i128::MIN, i128::MAX));
            let fits = (low..=high).contains(value);
            (!fits).then(|| format!("`{name}` is a `{ty}`, which holds {low} to {high}, found {value}"))
        }
        (GenericParam::Const { ty: ConstType::Integer(ty), .. }, other) => {
            Some(format!("`{name}` is a `{ty}`, found `{}`", describe_value(other)))
        }
    };
    match problem {
        Some(problem) => errors.push(value.loc, problem),
        None => return true,
    }
    false
}
