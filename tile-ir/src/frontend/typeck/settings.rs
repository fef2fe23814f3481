//! Integer settings of how a variant is compiled: of the attribute for every variant, or of a config for its own.

use proc_macro2::{Ident, TokenStream, TokenTree};

use super::variant::{ConstValue, Settings, Variant};
use crate::frontend::syntax::{
    Config, GenericParam, Kernel, KernelParam, ParamType, SETTINGS, VariantKind, VariantValue, find_name,
    written_integer,
};
use crate::support::diagnostic::{Errors, Loc};

/// The values that a setting may have, and its field.
struct SettingRule {
    allowed: fn(i128) -> bool,
    /// `allowed` in words.
    words: &'static str,
    field: fn(&mut Settings) -> &mut Option<u32>,
}

/// In the order of [`SETTINGS`]. No thread has more than 255 registers, and ptxas needs 24 for a call's own.
const RULES: [SettingRule; SETTINGS.len()] = [
    SettingRule {
        allowed: |value| (1..=32).contains(&value) && value.count_ones() == 1,
        words: "1, 2, 4, 8, 16 or 32",
        field: |settings| &mut settings.num_warps,
    },
    SettingRule {
        allowed: |value| (1..=8).contains(&value) && value.count_ones() == 1,
        words: "1, 2, 4 or 8",
        field: |settings| &mut settings.num_ctas,
    },
    SettingRule {
        allowed: |value| (1..=8).contains(&value),
        words: "1 to 8",
        field: |settings| &mut settings.num_stages,
    },
    SettingRule {
        allowed: |value| (24..=255).contains(&value),
        words: "24 to 255",
        field: |settings| &mut settings.maxnreg,
    },
];

/// Whether the name is one of a setting.
pub(super) fn is_setting(name: &Ident) -> bool {
    SETTINGS.iter().any(|setting| name == setting)
}

/// The settings of a config, or of the whole kernel where it has none, for a variant with these types and constants.
pub(super) fn settings(
    kernel: &Kernel,
    config: Option<&Config>,
    variant: &Variant,
    errors: &mut Errors,
) -> Settings {
    let mut settings = Settings::default();
    for (name, rule) in SETTINGS.iter().zip(&RULES) {
        match config_setting(name, config).or_else(|| kernel_setting(name, kernel, variant)) {
            None => {}
            Some(Ok((value, _))) if (rule.allowed)(value) => {
                *(rule.field)(&mut settings) = Some(value as u32);
            }
            Some(Ok((value, loc))) => {
                errors.push(loc, format!("`{name}` is {}, found {value}", rule.words));
            }
            Some(Err((loc, text))) => match setting_help(name, kernel) {
                Some(help) => errors.push_help(loc, text, help),
                None => errors.push(loc, text),
            },
        }
    }
    settings
}

/// The span of `maxnreg` for a variant: in its config, or for the whole kernel.
pub fn maxnreg_loc(kernel: &Kernel, variant: &Variant) -> Option<Loc> {
    let name = "maxnreg";
    let agrees = |(entry, value): &(Ident, VariantValue)| match value.kind {
        VariantKind::Type(dtype) => {
            variant.types.iter().all(|(own, choice)| entry != own || *choice == dtype)
        }
        VariantKind::Int(number) => {
            variant.consts.iter().all(|(own, choice)| entry != own || *choice == ConstValue::Int(number))
        }
        VariantKind::Bool(bool) => {
            variant.consts.iter().all(|(own, choice)| entry != own || *choice == ConstValue::Bool(bool))
        }
    };
    let is_own = |config: &&Config| {
        config.entries.iter().all(agrees)
            && settings(kernel, Some(config), variant, &mut Errors::new()) == variant.settings
    };
    let config = kernel.options.configs.iter().find(is_own);
    match config_setting(name, config).or_else(|| kernel_setting(name, kernel, variant))? {
        Ok((_, loc)) | Err((loc, _)) => Some(loc),
    }
}

/// An integer, or its error.
type SettingResult = Result<(i128, Loc), (Loc, String)>;

fn config_setting(name: &str, config: Option<&Config>) -> Option<SettingResult> {
    let (_, value) = config?.entries.iter().find(|(entry, _)| entry == name)?;
    Some(match value.kind {
        VariantKind::Int(number) => Ok((number, value.loc)),
        VariantKind::Type(_) | VariantKind::Bool(_) => Err((value.loc, format!("`{name}` is an integer"))),
    })
}

fn kernel_setting(name: &str, kernel: &Kernel, variant: &Variant) -> Option<SettingResult> {
    let (_, expr) = kernel.options.settings.iter().find(|(setting, _)| setting == name)?;
    Some(evaluate(expr, variant).map(|value| (value, Loc::of(expr))))
}

/// What to write in the attribute for a setting that is no expression over constants.
fn setting_help(name: &str, kernel: &Kernel) -> Option<String> {
    let (_, expr) = kernel.options.settings.iter().find(|(setting, _)| setting == name)?;
    match expr {
        syn::Expr::Path(path) => {
            let param =
                path.path.get_ident().filter(|own| kernel.params.iter().any(|param| param.name == **own))?;
            Some(format!(
                "`{param}` is known at the launch alone: write a number, or several for `tune` to choose from, `configs = [{{ {name}: 4 }}, {{ {name}: 8 }}], tune(key = [{param}])`"
            ))
        }
        expr => written_integer(expr).map(|value| format!("write `{value}`")),
    }
}

/// The value of an expression over a variant's constants and the sizes of its types.
fn evaluate(expr: &syn::Expr, variant: &Variant) -> Result<i128, (Loc, String)> {
    let wrong = |text: String| Err((Loc::of(expr), text));
    let unknown = || {
        let integers = variant.consts.iter().filter(|(_, value)| matches!(value, ConstValue::Int(_)));
        let sizes = variant.types.iter().map(|(name, _)| format!(", `size_of::<{name}>()`"));
        let known: String = integers.map(|(name, _)| format!(", `{name}`")).chain(sizes).collect();
        let made = "`+`, `-`, `*`, `/`, `%`, `min`, `max`, `next_power_of_two` and `if` make of such";
        format!("expected an integer{known}, or what {made}")
    };
    let result = match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => int.base10_parse().ok(),
        syn::Expr::Paren(inner) => return evaluate(&inner.expr, variant),
        syn::Expr::Block(block) => match &block.block.stmts[..] {
            [syn::Stmt::Expr(expr, None)] => return evaluate(expr, variant),
            _ => return wrong(unknown()),
        },
        syn::Expr::If(choice) => {
            let [syn::Stmt::Expr(then, None)] = &choice.then_branch.stmts[..] else {
                return wrong(unknown());
            };
            let Some((_, otherwise)) = &choice.else_branch else {
                return wrong("this `if` needs an `else`".into());
            };
            let chosen = if evaluate_condition(&choice.cond, variant)? { then } else { &**otherwise };
            return evaluate(chosen, variant);
        }
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => {
            evaluate(expr, variant)?.checked_neg()
        }
        syn::Expr::Path(path) => {
            let consts = &variant.consts;
            let named = path.path.get_ident().and_then(|name| consts.iter().find(|(own, _)| name == own));
            match named {
                Some((_, ConstValue::Int(value))) => Some(*value),
                Some((_, ConstValue::Bool(_))) | None => return wrong(unknown()),
            }
        }
        syn::Expr::Binary(binary) => {
            let (left, right) = (evaluate(&binary.left, variant)?, evaluate(&binary.right, variant)?);
            match binary.op {
                syn::BinOp::Add(_) => left.checked_add(right),
                syn::BinOp::Sub(_) => left.checked_sub(right),
                syn::BinOp::Mul(_) => left.checked_mul(right),
                syn::BinOp::Div(_) => left.checked_div(right),
                syn::BinOp::Rem(_) => left.checked_rem(right),
                _ => return wrong(unknown()),
            }
        }
        syn::Expr::Call(call) if call.args.is_empty() => match size_of(&call.func, variant) {
            Some(bytes) => Some(bytes.into()),
            None => return wrong(unknown()),
        },
        syn::Expr::MethodCall(call) if call.method == "next_power_of_two" && call.args.is_empty() => {
            let receiver = evaluate(&call.receiver, variant)?;
            u64::try_from(receiver).ok().and_then(u64::checked_next_power_of_two).map(i128::from)
        }
        syn::Expr::MethodCall(call) => {
            let mut args = call.args.iter();
            let (Some(arg), None) = (args.next(), args.next()) else { return wrong(unknown()) };
            let (receiver, arg) = (evaluate(&call.receiver, variant)?, evaluate(arg, variant)?);
            match call.method.to_string().as_str() {
                "min" => Some(receiver.min(arg)),
                "max" => Some(receiver.max(arg)),
                _ => return wrong(unknown()),
            }
        }
        _ => return wrong(unknown()),
    };
    match result {
        Some(value) => Ok(value),
        None => wrong("this overflows, or divides by 0".into()),
    }
}

/// Whether a condition on a variant's constants and the sizes of its types holds.
fn evaluate_condition(expr: &syn::Expr, variant: &Variant) -> Result<bool, (Loc, String)> {
    let unknown = || {
        let bools = variant.consts.iter().filter(|(_, value)| matches!(value, ConstValue::Bool(_)));
        let known: String = bools.map(|(name, _)| format!("`{name}`, ")).collect();
        let text = format!("expected {known}a comparison, or what `&&`, `||` and `!` make of such");
        Err((Loc::of(expr), text))
    };
    match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Bool(bool), .. }) => Ok(bool.value),
        syn::Expr::Paren(inner) => evaluate_condition(&inner.expr, variant),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Not(_), expr, .. }) => {
            Ok(!evaluate_condition(expr, variant)?)
        }
        syn::Expr::Path(path) => {
            let named = path.path.get_ident();
            match named.and_then(|name| variant.consts.iter().find(|(own, _)| name == own)) {
                Some((_, ConstValue::Bool(value))) => Ok(*value),
                Some((_, ConstValue::Int(_))) | None => unknown(),
            }
        }
        syn::Expr::Binary(syn::ExprBinary { left, op: syn::BinOp::And(_), right, .. }) => {
            Ok(evaluate_condition(left, variant)? && evaluate_condition(right, variant)?)
        }
        syn::Expr::Binary(syn::ExprBinary { left, op: syn::BinOp::Or(_), right, .. }) => {
            Ok(evaluate_condition(left, variant)? || evaluate_condition(right, variant)?)
        }
        syn::Expr::Binary(binary) => {
            let compare: fn(&i128, &i128) -> bool = match binary.op {
                syn::BinOp::Eq(_) => i128::eq,
                syn::BinOp::Ne(_) => i128::ne,
                syn::BinOp::Lt(_) => i128::lt,
                syn::BinOp::Le(_) => i128::le,
                syn::BinOp::Gt(_) => i128::gt,
                syn::BinOp::Ge(_) => i128::ge,
                _ => return unknown(),
            };
            Ok(compare(&evaluate(&binary.left, variant)?, &evaluate(&binary.right, variant)?))
        }
        _ => unknown(),
    }
}

/// The bytes of `T`, if this is `size_of::<T>` and `T` is one of the kernel's types.
fn size_of(function: &syn::Expr, variant: &Variant) -> Option<u32> {
    let syn::Expr::Path(path) = function else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == "size_of")?;
    let syn::PathArguments::AngleBracketed(generics) = &segment.arguments else { return None };
    let mut generics = generics.args.iter();
    let (Some(syn::GenericArgument::Type(syn::Type::Path(named))), None) = (generics.next(), generics.next())
    else {
        return None;
    };
    let name = named.path.get_ident()?;
    variant.types.iter().find(|(own, _)| name == own).map(|(_, dtype)| dtype.bytes())
}

/// The settings in a config that calls leave open, for the variant's label.
pub(super) fn named_settings(kernel: &Kernel, config: Option<&Config>) -> Vec<(String, i128)> {
    let entries =
        config.filter(|_| kernel.options.leaves_configs_open()).map(|config| config.entries.as_slice());
    entries
        .unwrap_or_default()
        .iter()
        .filter(|(name, _)| is_setting(name))
        .filter_map(|(name, value)| match value.kind {
            VariantKind::Int(number) => Some((name.to_string(), number)),
            VariantKind::Type(_) | VariantKind::Bool(_) => None,
        })
        .collect()
}

/// Reports a key of `tune` that is no number.
fn report_key(kernel: &Kernel, key: &TokenStream, errors: &mut Errors) {
    let mut tokens = key.clone().into_iter();
    let (Some(token), None) = (tokens.next(), tokens.next()) else { return };
    let is_param = |name: &str| kernel.params.iter().any(|param| param.name == name);
    let (text, help) = match &token {
        TokenTree::Literal(literal) => {
            let text = literal.to_string();
            let Some(name) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return };
            let help =
                if is_param(name) { format!("write `{name}`") } else { "write it without quotes".into() };
            ("a key is a parameter or an expression of them, found a string", help)
        }
        TokenTree::Ident(name) => {
            let param = kernel.params.iter().find(|param| param.name == *name);
            match param.map(|param| &param.ty) {
                Some(ParamType::Slice { .. }) => {
                    ("a key is a number, found a slice", format!("write `{name}.len()`"))
                }
                Some(ParamType::View(_)) => {
                    ("a key is a number, found a view", format!("write `{name}.shape()[0]`"))
                }
                _ => return,
            }
        }
        TokenTree::Group(_) | TokenTree::Punct(_) => return,
    };
    errors.push_help(Loc::from(token.span()), text, help);
}

/// Reports values of the host that choose nothing, and memory that the kernel writes in conditions that wait for the device: until then
/// the call has it.
pub(super) fn report_conditions(kernel: &Kernel, errors: &mut Errors) {
    let options = &kernel.options;
    for param in kernel.params.iter().filter(|param| matches!(param.ty, ParamType::Host(_))) {
        let name = param.name.to_string();
        let chosen = options.lists.iter().filter_map(|list| list.chosen_by.as_ref());
        let tune = options.tune.iter().flat_map(|tune| tune.key.iter().chain(&tune.when));
        let mut asked = options.conditions().chain(chosen).chain(tune);
        if !options.unreadable && !asked.any(|tokens| find_name(tokens.clone(), &name).is_some()) {
            let text = format!("`{name}` chooses no variant: a parameter with `#[host]` is for conditions");
            let help = format!("ask it in the attribute, `when = BLOCK == {name}`, or leave the mark out");
            errors.push_help(Loc::of(&param.name), text, help);
        }
    }
    if kernel.asked_device().is_none() {
        return;
    }
    let is_written = |param: &&KernelParam| match &param.ty {
        ParamType::Slice { mutable, .. } => *mutable,
        ParamType::View(view) => view.mutable,
        _ => false,
    };
    for param in kernel.params.iter().filter(is_written) {
        let written = param.name.to_string();
        let mut conditions = kernel.options.conditions();
        if let Some(name) = conditions.find_map(|tokens| find_name(tokens.clone(), &written)) {
            let text = format!("a condition with `device` cannot ask `{name}`, which the call writes");
            let help = "ask a parameter that is read, or pass its extent as a number";
            errors.push_help(Loc::of(name), text, help);
        }
    }
}

/// Mistakes of `tune`, `tuned` and `_ in [..]` together.
pub(super) fn report_tune(kernel: &Kernel, errors: &mut Errors) {
    let options = &kernel.options;
    for declared in &options.lists {
        let Some(loc) = declared.measured else { continue };
        let is_type = |generic: &GenericParam| matches!(generic, GenericParam::Type { name, .. } if *name == declared.name);
        if kernel.generics.iter().any(is_type) {
            let text = format!("`{}` is a type, which the arguments of a call decide", declared.name);
            errors.push(loc, text);
        } else if options.tune.is_none() {
            errors.push_help(
                loc,
                format!(
                    "`_` leaves `{}` to be measured, and nothing says what the choice depends on",
                    declared.name
                ),
                "`tune(key = [n])` measures once for each value of `n`, `tune(key = [])` once for all",
            );
        }
    }
    if let Some(path) = &options.tuned
        && options.tune.is_none()
    {
        errors.push(Loc::of(path), "`tuned` holds the choices of `tune(..)`, which is missing");
    }
    for key in options.tune.iter().flat_map(|tune| &tune.key) {
        report_key(kernel, key, errors);
    }
    let open = options.lists.iter().any(|list| list.measured.is_some() && list.values.len() > 1);
    if let Some(tune) = &options.tune
        && options.configs.len() < 2
        && !open
        && !options.unreadable
    {
        let is_const = |generic: &&GenericParam| matches!(generic, GenericParam::Const { .. });
        let example = kernel.generics.iter().find(is_const).map(|generic| generic.name().to_string());
        errors.push_help(
            tune.loc,
            "`tune` has nothing to choose among",
            match example {
                Some(name) => {
                    format!("leave a list open, `{name} = _ in [1024, 2048]`, or declare several configs")
                }
                None => "declare several configs, `configs = [{ num_warps: 4 }, { num_warps: 8 }]`".into(),
            },
        );
    }
    if let Some(tune) = &options.tune
        && options.has_conditions()
    {
        let text =
            "`tune` measures which config is the fastest, and `when` in a config says which one to take";
        errors.push_help(tune.loc, text, "keep one; `tune(key = [..], when = condition)` leaves configs out");
    }
    if let Some(tune) = &options.tune
        && kernel.options.unchecked
    {
        errors.push_help(
            tune.loc,
            "an `unchecked` kernel is not tuned: a config that is wrong for its arguments could write anywhere",
            "declare one of the two"
        );
    }
}
