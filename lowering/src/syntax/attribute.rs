//! The attribute: `T = [f32, bf16], BLOCK = [1024, 4096], configs = [{ .. }], tune(key = [n]), num_warps = 4, unchecked`.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Token, bracketed, parenthesized};

use super::ast::{Config, Options, Tune, VariantKind, VariantList, VariantValue};
use crate::diagnostic::{Errors, Loc, list, source_text};
use crate::dtype::DType;

/// Entries as written, before their names are known to mean anything.
struct Entry {
    name: Ident,
    value: Value,
}

/// `NAME: value` between the braces of a config.
type Entries = Vec<(Ident, syn::Expr)>;

enum Value {
    None,
    Arguments(Vec<Ident>),
    Single(syn::Expr),
    List {
        items: Vec<syn::Expr>,
        chosen_by: Option<syn::Expr>,
        loc: Loc,
    },
    /// `NAME = value` between parentheses.
    Settings(Entries),
    Configs(Vec<(Entries, Loc)>),
}

impl Parse for Entry {
    fn parse(input: ParseStream) -> syn::Result<Entry> {
        let name: Ident = input.parse()?;
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            if name == "tune" {
                return Ok(Entry { name, value: Value::Settings(parse_settings(&content)?) });
            }
            let names = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
            return Ok(Entry { name, value: Value::Arguments(names.into_iter().collect()) });
        }
        if !input.peek(Token![=]) {
            return Ok(Entry { name, value: Value::None });
        }
        input.parse::<Token![=]>()?;
        if name == "configs" {
            return Ok(Entry { name, value: Value::Configs(parse_configs(input)?) });
        }
        let expr: syn::Expr = input.parse()?;
        let value = match expr {
            syn::Expr::Array(array) => {
                let loc = Loc::of(&array);
                Value::List { items: array.elems.into_iter().collect(), chosen_by: None, loc }
            }
            chooser if input.peek(Token![in]) => {
                input.parse::<Token![in]>()?;
                let array: syn::ExprArray = input.parse()?;
                let loc = Loc::of(&array);
                Value::List { items: array.elems.into_iter().collect(), chosen_by: Some(chooser), loc }
            }
            single => Value::Single(single),
        };
        Ok(Entry { name, value })
    }
}

/// `NAME = expr, ..`
fn parse_settings(input: ParseStream) -> syn::Result<Entries> {
    let mut entries = vec![];
    while !input.is_empty() {
        let name: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        entries.push((name, input.parse()?));
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(entries)
}

fn parse_configs(input: ParseStream) -> syn::Result<Vec<(Entries, Loc)>> {
    let content;
    bracketed!(content in input);
    let mut configs = vec![];
    while !content.is_empty() {
        let fields;
        let brace = syn::braced!(fields in content);
        let mut entries = vec![];
        while !fields.is_empty() {
            let name: Ident = fields.parse()?;
            fields.parse::<Token![:]>()?;
            entries.push((name, fields.parse()?));
            if !fields.is_empty() {
                fields.parse::<Token![,]>()?;
            }
        }
        configs.push((entries, Loc { start: brace.span.open(), end: brace.span.close() }));
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    Ok(configs)
}

/// The attribute's tokens as [`Options`]; names of generics are resolved by `check`.
pub(super) fn parse_options(tokens: TokenStream, errors: &mut Errors) -> Options {
    let mut options = Options::default();
    let parser = Punctuated::<Entry, Token![,]>::parse_terminated;
    let entries = match syn::parse::Parser::parse2(parser, tokens) {
        Ok(entries) => entries,
        Err(error) => {
            errors.extend(error);
            options.unreadable = true;
            return options;
        }
    };
    let mut seen: Vec<String> = vec![];
    for entry in entries {
        let name = entry.name.to_string();
        if seen.contains(&name) {
            errors.push(Loc::of(&entry.name), format!("`{name}` is declared twice"));
            continue;
        }
        seen.push(name);
        add_entry(&mut options, entry, errors);
    }
    options
}

/// What options there are besides lists of values.
pub(crate) const OPTIONS: &str = "`configs = [{ .. }]`, `tune(key = [..])`, `tuned = \"file\"`, `num_warps = N`, `num_ctas = N`, `num_stages = N`, `maxnreg = N`, \
     `unchecked`, `unreported` and `deny(spills)`";

/// Numbers that stand in the attribute or in a config and are no generics.
pub(crate) const SETTINGS: [&str; 4] = ["num_warps", "num_ctas", "num_stages", "maxnreg"];

fn add_entry(options: &mut Options, entry: Entry, errors: &mut Errors) {
    let Entry { name, value } = entry;
    let loc = Loc::of(&name);
    match (name.to_string().as_str(), value) {
        ("unchecked", Value::None) => options.unchecked = true,
        ("unchecked", _) => errors.push(loc, "`unchecked` stands alone: it takes no value"),
        ("unreported", Value::None) => options.unreported = true,
        ("unreported", _) => errors.push(loc, "`unreported` stands alone: it takes no value"),
        ("deny", Value::Arguments(names)) => {
            for what in names {
                if what == "spills" {
                    options.deny_spills = true;
                } else {
                    errors.push_help(
                        Loc::of(&what),
                        format!("`deny({what})` is not known"),
                        "`deny(spills)` is",
                    );
                }
            }
        }
        (setting, Value::Single(expr)) if SETTINGS.contains(&setting) => {
            options.settings.push((name, expr));
        }
        (setting, Value::List { loc, .. }) if SETTINGS.contains(&setting) => errors.push_help(
            loc,
            format!("`{setting}` is one number"),
            format!("declare several with `configs = [{{ {setting}: .., .. }}, {{ {setting}: .., .. }}]`"),
        ),
        ("tune", Value::Settings(entries)) => options.tune = tune(loc, entries, errors),
        ("tune", _) => errors.push(loc, "`tune` is written `tune(key = [..])`"),
        ("tuned", Value::Single(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }))) => {
            options.tuned = Some(path);
        }
        ("tuned", _) => errors.push_help(
            loc,
            "`tuned` names a file of choices, relative to the folder of Cargo.toml",
            "`tuned = \"tuned/choices.json\"`",
        ),
        ("configs", Value::Configs(configs)) => {
            if configs.is_empty() {
                errors.push(loc, "`configs` is empty: declare at least one set of constants");
                options.unreadable = true;
            }
            options.configs = configs.into_iter().map(|config| convert_config(config, errors)).collect();
        }
        (_, Value::List { items, chosen_by, loc: list_loc }) => {
            let values: Vec<VariantValue> =
                items.iter().filter_map(|item| variant_value(item, errors)).collect();
            if items.is_empty() {
                errors.push(list_loc, format!("the list of `{name}` is empty: declare at least one value"));
            }
            report_duplicates(&name, &values, errors);
            let (chosen_by, measured) = match chosen_by {
                Some(syn::Expr::Infer(open)) => (None, Some(Loc::of(&open))),
                chooser => (chooser.map(ToTokens::into_token_stream), None),
            };
            options.lists.push(VariantList { name, values, chosen_by, measured, loc });
        }
        (_, Value::Single(expr)) => {
            // `BLOCK = 1024` declares one value, as `BLOCK = [1024]` does.
            let values = variant_value(&expr, errors).into_iter().collect();
            options.lists.push(VariantList { name, values, chosen_by: None, measured: None, loc });
        }
        _ => errors.push_help(
            loc,
            format!("`{name}` is not an option of `fuse_kernel`"),
            format!("options are `NAME = [values]` for a generic, {OPTIONS}"),
        ),
    }
}

/// `tune(key = [n_cols], when = BLOCK >= n_cols)`
fn tune(loc: Loc, entries: Entries, errors: &mut Errors) -> Option<Tune> {
    let (mut key, mut when) = (None, None);
    for (name, expr) in entries {
        let twice = match (name.to_string().as_str(), expr) {
            ("key", syn::Expr::Array(array)) => {
                key.replace(array.elems.into_iter().map(ToTokens::into_token_stream).collect()).is_some()
            }
            ("key", other) => {
                errors.push_help(
                    Loc::of(&other),
                    "`key` is a list of expressions over the arguments",
                    format!("`key = [{}]`", other.to_token_stream()),
                );
                return None;
            }
            ("when", expr) => when.replace(expr.into_token_stream()).is_some(),
            _ => {
                let help = "`tune` takes `key = [..]` and `when = condition`";
                errors.push_help(Loc::of(&name), format!("`tune` does not take `{name}`"), help);
                return None;
            }
        };
        if twice {
            errors.push(Loc::of(&name), format!("`{name}` is given twice"));
        }
    }
    if key.is_none() {
        errors.push_help(
            loc,
            "`tune` does not say what the fastest choice depends on",
            "`tune(key = [n])` measures once for each value of `n`, `tune(key = [])` once for all",
        );
    }
    Some(Tune { key: key?, when, loc })
}

fn convert_config((entries, loc): (Entries, Loc), errors: &mut Errors) -> Config {
    let entries: Vec<(Ident, VariantValue)> = entries
        .into_iter()
        .filter_map(|(name, expr)| variant_value(&expr, errors).map(|value| (name, value)))
        .collect();
    for (i, (name, value)) in entries.iter().enumerate() {
        if entries[..i].iter().any(|(other, _)| other == name) {
            errors.push(value.loc, format!("`{name}` is given twice in this config"));
        }
    }
    Config { entries, loc }
}

fn report_duplicates(name: &Ident, values: &[VariantValue], errors: &mut Errors) {
    for (i, value) in values.iter().enumerate() {
        if values[..i].iter().any(|other| other.kind == value.kind) {
            errors.push(value.loc, format!("`{}` is listed twice for `{name}`", describe(&value.kind)));
        }
    }
}

/// How a message writes a declared value.
pub(crate) fn describe(kind: &VariantKind) -> String {
    match kind {
        VariantKind::Type(dtype) => dtype.to_string(),
        VariantKind::Int(value) => value.to_string(),
        VariantKind::Bool(value) => value.to_string(),
    }
}

/// A type name, integer or bool.
fn variant_value(expr: &syn::Expr, errors: &mut Errors) -> Option<VariantValue> {
    let loc = Loc::of(expr);
    let kind = match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => {
            int.base10_parse().ok().map(VariantKind::Int)
        }
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Bool(value), .. }) => {
            Some(VariantKind::Bool(value.value))
        }
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => match &**expr {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => {
                int.base10_parse::<i128>().ok().map(|value| VariantKind::Int(-value))
            }
            _ => None,
        },
        syn::Expr::Path(path) => {
            path.path.get_ident().and_then(|ident| DType::parse(&ident.to_string())).map(VariantKind::Type)
        }
        _ => None,
    };
    // `half::f16` is the name of the same type elsewhere.
    let foreign = match expr {
        syn::Expr::Path(path) if kind.is_none() => path.path.segments.last().and_then(|segment| {
            let name = segment.ident.to_string();
            DType::parse(&name).or_else(|| crate::check::element_type(&name))
        }),
        _ => None,
    };
    if let Some(dtype) = foreign {
        let text = format!("`{}` is not an element type", source_text(expr.to_token_stream()));
        errors.push_help(loc, text, format!("did you mean `{dtype}`?"));
        return None;
    }
    if kind.is_none() {
        errors.push_help(
            loc,
            "a declared value is an element type, an integer or a bool",
            format!("element types are {}", list(DType::ALL)),
        );
    }
    kind.map(|kind| VariantValue { kind, loc })
}
