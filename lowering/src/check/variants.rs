//! The variants a kernel declares: lists multiplied out, then combined with exact configs.

use std::fmt;

use crate::diagnostic::{Errors, Loc, list};
use crate::dtype::DType;
use crate::syntax::{Config, ConstType, Generic, Kernel, Setting, VariantKind, VariantValue};

/// One choice of every generic, in the order of the generics.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Variant {
    pub types: Vec<(String, DType)>,
    pub consts: Vec<(String, ConstValue)>,
    pub num_warps: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstValue {
    Int(i128),
    Bool(bool),
}

impl fmt::Display for ConstValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstValue::Int(value) => write!(f, "{value}"),
            ConstValue::Bool(value) => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.types.iter().map(|(name, dtype)| format!("{name} = {dtype}"));
        let consts = self.consts.iter().map(|(name, value)| format!("{name} = {value}"));
        f.write_str(&types.chain(consts).collect::<Vec<_>>().join(", "))
    }
}

/// Attribute settings that are not generics but may stand in a config.
const NUM_WARPS: &str = "num_warps";

/// The variants of a kernel in the order declared; the mistakes of the declaration go to `errors`.
pub fn variants(kernel: &Kernel, errors: &mut Errors) -> Vec<Variant> {
    report_unknown(kernel, errors);
    let configs: Vec<Option<&Config>> = if kernel.options.configs.is_empty() {
        vec![None]
    } else {
        kernel.options.configs.iter().map(Some).collect()
    };
    let mut all: Vec<Variant> = vec![];
    for config in configs {
        let mut partial =
            vec![Variant { num_warps: num_warps(kernel, config, errors), ..Variant::default() }];
        for generic in &kernel.generics {
            let values = values_of(kernel, config, generic, errors);
            partial = partial
                .iter()
                .flat_map(|variant| values.iter().map(move |value| extend(variant, generic, value)))
                .collect();
        }
        for variant in partial {
            let twice =
                all.iter().any(|other| other.types == variant.types && other.consts == variant.consts);
            match (twice, config) {
                (true, Some(config)) => {
                    errors.push(config.loc, format!("the variant {variant} is declared twice"))
                }
                (true, None) | (false, _) => all.push(variant),
            }
        }
    }
    all
}

fn extend(variant: &Variant, generic: &Generic, value: &VariantKind) -> Variant {
    let mut variant = variant.clone();
    let name = generic.name().to_string();
    match value {
        VariantKind::Type(dtype) => variant.types.push((name, *dtype)),
        VariantKind::Int(value) => variant.consts.push((name, ConstValue::Int(*value))),
        VariantKind::Bool(value) => variant.consts.push((name, ConstValue::Bool(*value))),
    }
    variant
}

fn report_unknown(kernel: &Kernel, errors: &mut Errors) {
    let known = |name: &str| kernel.generics.iter().any(|generic| generic.name() == name);
    let in_lists = kernel.options.lists.iter().map(|list| &list.name);
    let in_configs =
        kernel.options.configs.iter().flat_map(|config| config.entries.iter().map(|(name, _)| name));
    for name in in_lists.chain(in_configs.clone()) {
        let text = name.to_string();
        if !known(&text) && text != NUM_WARPS {
            let generics = list(kernel.generics.iter().map(|generic| format!("`{}`", generic.name())));
            let help = if generics.is_empty() { "it has none".into() } else { format!("it has {generics}") };
            errors.push_help(Loc::of(name), format!("`{text}` is not a generic of `{}`", kernel.name), help);
        }
    }
    for list in &kernel.options.lists {
        if in_configs.clone().any(|name| *name == list.name) {
            errors.push(list.loc, format!("`{}` has a list and stands in `configs`: keep one", list.name));
        }
    }
}

/// The declared values of a generic that fit it.
fn values_of(
    kernel: &Kernel,
    config: Option<&Config>,
    generic: &Generic,
    errors: &mut Errors,
) -> Vec<VariantKind> {
    let name = generic.name();
    let from_config = config.and_then(|config| config.entries.iter().find(|(entry, _)| entry == name));
    let declared: Vec<&VariantValue> = match from_config {
        Some((_, value)) => vec![value],
        None => match kernel.options.lists.iter().find(|list| list.name == *name) {
            Some(list) => list.values.iter().collect(),
            None => {
                let loc = config.map_or_else(|| Loc::of(name), |config| config.loc);
                let text = match config {
                    None => format!("no values are declared for `{name}`"),
                    Some(_) => format!("this config does not give `{name}`"),
                };
                let example = match generic {
                    Generic::Type { bound, .. } => {
                        let first = bound.members().last().unwrap_or(DType::F32);
                        format!("`#[fuse_kernel({name} = [{first}])]` declares one")
                    }
                    Generic::Const { ty: ConstType::Bool, .. } => {
                        format!("`#[fuse_kernel({name} = [false, true])]` declares both")
                    }
                    Generic::Const { .. } => format!("`#[fuse_kernel({name} = [1024])]` declares one"),
                };
                if !errors.iter().any(|error| error.message == text) {
                    errors.push_help(loc, text, example);
                }
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

fn fits(generic: &Generic, value: &VariantValue, errors: &mut Errors) -> bool {
    let name = generic.name();
    let problem = match (generic, &value.kind) {
        (Generic::Type { bound, .. }, VariantKind::Type(dtype)) => (!bound.contains(*dtype))
            .then(|| format!("`{name}` is one of {}, found {dtype}", list(bound.members()))),
        (Generic::Type { .. }, _) => Some(format!("`{name}` is a type, found a value")),
        (Generic::Const { ty: ConstType::Bool, .. }, VariantKind::Bool(_)) => None,
        (Generic::Const { ty: ConstType::Bool, .. }, _) => Some(format!("`{name}` is a `bool`")),
        (Generic::Const { ty: ConstType::Integer(ty), .. }, VariantKind::Int(value)) => {
            let unsigned = ty.to_string().starts_with('u');
            (unsigned && *value < 0).then(|| format!("`{name}` is a `{ty}`, found {value}"))
        }
        (Generic::Const { ty: ConstType::Integer(ty), .. }, _) => Some(format!("`{name}` is a `{ty}`")),
    };
    match problem {
        Some(problem) if !errors.iter().any(|error| error.message == problem) => {
            errors.push(value.loc, problem)
        }
        Some(_) => {}
        None => return true,
    }
    false
}

fn num_warps(kernel: &Kernel, config: Option<&Config>, errors: &mut Errors) -> Option<u32> {
    let from_config = config
        .and_then(|config| config.entries.iter().find(|(name, _)| name == NUM_WARPS))
        .and_then(|(_, value)| match value.kind {
            VariantKind::Int(number) => Some(Setting { value: number, loc: value.loc }),
            VariantKind::Type(_) | VariantKind::Bool(_) => {
                errors.push(value.loc, "`num_warps` is an integer");
                None
            }
        });
    let setting = from_config.or(kernel.options.num_warps)?;
    if (1..=32).contains(&setting.value) && setting.value.count_ones() == 1 {
        return Some(setting.value as u32);
    }
    let text = format!("`num_warps` is 1, 2, 4, 8, 16 or 32, found {}", setting.value);
    if !errors.iter().any(|error| error.message == text) {
        errors.push(setting.loc, text);
    }
    None
}
