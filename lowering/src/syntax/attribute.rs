//! The attribute: `T = [f32, bf16], BLOCK = [1024, 4096], configs = [{ .. }], num_warps = 4, unchecked`.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Token, bracketed, parenthesized};

use super::ast::{Config, Options, Setting, VariantKind, VariantList, VariantValue};
use crate::diagnostic::{Errors, Loc, list};
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
    List { items: Vec<syn::Expr>, chosen_by: Option<TokenStream>, loc: Loc },
    Configs(Vec<(Entries, Loc)>),
}

impl Parse for Entry {
    fn parse(input: ParseStream) -> syn::Result<Entry> {
        let name: Ident = input.parse()?;
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
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
                let chosen_by = Some(chooser.into_token_stream());
                Value::List { items: array.elems.into_iter().collect(), chosen_by, loc }
            }
            single => Value::Single(single),
        };
        Ok(Entry { name, value })
    }
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
pub(crate) const OPTIONS: &str =
    "`configs = [{ .. }]`, `num_warps = N`, `unchecked`, `unreported` and `deny(spills)`";

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
        ("num_warps", Value::Single(expr)) => {
            if let Some(value) = integer(&expr, errors) {
                options.num_warps = Some(Setting { value, loc: Loc::of(&expr) });
            }
        }
        ("num_warps", Value::List { loc, .. }) => errors.push_help(
            loc,
            "`num_warps` is one number",
            "declare several with `configs = [{ num_warps: 4, .. }, { num_warps: 8, .. }]`",
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
            options.lists.push(VariantList { name, values, chosen_by, loc });
        }
        (_, Value::Single(expr)) => {
            // `BLOCK = 1024` declares one value, as `BLOCK = [1024]` does.
            let values = variant_value(&expr, errors).into_iter().collect();
            options.lists.push(VariantList { name, values, chosen_by: None, loc });
        }
        _ => errors.push_help(
            loc,
            format!("`{name}` is not an option of `fuse_kernel`"),
            format!("options are `NAME = [values]` for a generic, {OPTIONS}"),
        ),
    }
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

fn integer(expr: &syn::Expr, errors: &mut Errors) -> Option<i128> {
    match variant_value(expr, errors)?.kind {
        VariantKind::Int(value) => Some(value),
        VariantKind::Type(_) | VariantKind::Bool(_) => {
            errors.push(Loc::of(expr), "expected an integer");
            None
        }
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
    if kind.is_none() {
        errors.push_help(
            loc,
            "a declared value is an element type, an integer or a bool",
            format!("element types are {}", list(DType::ALL)),
        );
    }
    kind.map(|kind| VariantValue { kind, loc })
}
