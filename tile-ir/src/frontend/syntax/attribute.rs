//! The attribute: `T = [f32, bf16], BLOCK = [1024, 4096], configs = [{ .. }], tune(key = [n]), num_warps = 4, unchecked`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Token, bracketed, parenthesized};

use super::ast::{Config, KernelOptions, Tune, VariantKind, VariantList, VariantValue};
use super::token_names::find_name;
use super::{suffix, values};
use crate::support::diagnostic::{Errors, Loc, list, nearest, source_text};
use crate::support::dtype::DType;

/// Entries as written, before their names are known to mean anything.
struct ConfigEntry {
    name: Ident,
    value: OptionValue,
}

/// `NAME: value` between the braces of a config.
pub(super) type ConfigEntries = Vec<(Ident, syn::Expr)>;

/// A config as written: its values are still expressions.
pub(super) struct WrittenConfig {
    entries: ConfigEntries,
    /// From brace to brace.
    pub(super) loc: Loc,
}

pub(super) enum OptionValue {
    None,
    Arguments(Vec<Ident>),
    Single(syn::Expr),
    List {
        items: Vec<syn::Expr>,
        chosen_by: Option<syn::Expr>,
        loc: Loc,
    },
    /// `NAME = value` between parentheses.
    Settings(ConfigEntries),
    Configs(Vec<WrittenConfig>),
}

/// The parser of the attribute's entries.
pub(super) struct AttributeReader<'r> {
    generics: &'r syn::Generics,
    pub(super) errors: &'r mut Errors,
    /// Some entry could not be read: it may be the one that another message would miss.
    pub(super) unreadable: bool,
}

impl AttributeReader<'_> {
    /// Every `NAME = ..`; after a mistake it goes on behind the next comma.
    fn separated<E>(
        &mut self,
        input: ParseStream,
        mut entry: impl FnMut(&mut Self, ParseStream) -> syn::Result<E>,
    ) -> Vec<E> {
        let mut entries = vec![];
        while !input.is_empty() {
            let read = entry(self, input).and_then(|entry| {
                if !input.is_empty() && !input.peek(Token![,]) {
                    entries.push(entry);
                    return Err(input.error("expected `,`"));
                }
                entries.push(entry);
                Ok(())
            });
            if let Err(error) = read {
                self.errors.extend(error);
                self.unreadable = true;
            }
            while !input.is_empty() && input.parse::<Option<Token![,]>>().is_ok_and(|comma| comma.is_none()) {
                let skipped: syn::Result<TokenTree> = input.parse();
                debug_assert!(skipped.is_ok(), "there is a token");
            }
        }
        entries
    }

    fn entry(&mut self, input: ParseStream) -> syn::Result<ConfigEntry> {
        let name = self.name(input)?;
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            let value = self.arguments(&name, &content)?;
            return Ok(ConfigEntry { name, value });
        }
        if input.peek(Token![:]) {
            let colon: Token![:] = input.parse()?;
            let value: TokenStream = input.fork().call(until_comma)?;
            let help = format!("write `{name} = {}`", source_text(value));
            self.errors.push_help(Loc::of(colon), "a value stands behind `=` here", help);
        } else if input.peek(Token![in]) {
            self.report_missing_equals(&name, input)?;
        } else if !input.peek(Token![=]) {
            return Ok(ConfigEntry { name, value: OptionValue::None });
        } else {
            input.parse::<Token![=]>()?;
        }
        if name != "configs" && input.peek(syn::token::Brace) {
            return Ok(ConfigEntry { value: self.values_in_braces(&name, input)?, name });
        }
        if name == "configs" || starts_configs(input) {
            return Ok(ConfigEntry { name, value: OptionValue::Configs(self.configs(input)?) });
        }
        let expr: syn::Expr = input.parse()?;
        let value = match expr {
            syn::Expr::Array(array) => {
                let loc = Loc::of(&array);
                OptionValue::List { items: array.elems.into_iter().collect(), chosen_by: None, loc }
            }
            chooser if input.peek(Token![in]) => {
                input.parse::<Token![in]>()?;
                let array: syn::ExprArray = input.parse()?;
                let loc = Loc::of(&array);
                OptionValue::List { items: array.elems.into_iter().collect(), chosen_by: Some(chooser), loc }
            }
            syn::Expr::Tuple(tuple) if self.generic(&name).is_some() => {
                let loc = Loc::of(&tuple);
                let items: Vec<syn::Expr> = tuple.elems.into_iter().collect();
                self.report_no_list(&name, &items, loc);
                OptionValue::List { items, chosen_by: None, loc }
            }
            single => OptionValue::Single(single),
        };
        Ok(ConfigEntry { name, value })
    }

    /// `name(..)`
    fn arguments(&mut self, name: &Ident, content: ParseStream) -> syn::Result<OptionValue> {
        if name == "tune" && self.report_bare_key(content)? {
            return Ok(OptionValue::Settings(vec![]));
        }
        if name == "tune" {
            let equals = |reader: &mut Self, input: ParseStream| reader.field(input, Separator::Equals);
            return Ok(OptionValue::Settings(self.separated(content, equals)));
        }
        if name == "deny" {
            let names = Punctuated::<Ident, Token![,]>::parse_terminated(content)?;
            return Ok(OptionValue::Arguments(names.into_iter().collect()));
        }
        let tokens: TokenStream = content.parse()?;
        let is_generic = self.generic(name).is_some();
        if !is_generic && !SETTINGS.iter().any(|setting| name == setting) {
            return Ok(OptionValue::Arguments(vec![]));
        }
        let (text, loc) = (source_text(tokens.clone()), Loc::of(name));
        let wanted = if is_generic { format!("{name} = [{text}]") } else { format!("{name} = {text}") };
        self.errors.push_help(
            loc,
            format!("the value of `{name}` stands behind `=`"),
            format!("write `{wanted}`"),
        );
        let values = Punctuated::<syn::Expr, Token![,]>::parse_terminated;
        let items: Vec<syn::Expr> = syn::parse::Parser::parse2(values, tokens)?.into_iter().collect();
        Ok(match <[syn::Expr; 1]>::try_from(items) {
            Ok([single]) => OptionValue::Single(single),
            Err(items) => OptionValue::List { items, chosen_by: None, loc },
        })
    }

    /// `NAME = value` or `NAME: value`, as `separator` says.
    fn field(&mut self, input: ParseStream, separator: Separator) -> syn::Result<(Ident, syn::Expr)> {
        let name: Ident = input.parse()?;
        let (found, loc) = if input.peek(Token![:]) {
            (Separator::Colon, Loc::of(input.parse::<Token![:]>()?))
        } else if input.peek(Token![=]) {
            (Separator::Equals, Loc::of(input.parse::<Token![=]>()?))
        } else {
            return Err(input.error(format!("expected `{}`", separator.text())));
        };
        let value: syn::Expr = input.parse()?;
        if found != separator {
            let (separator, value) = (separator.text(), source_text(value.to_token_stream()));
            let space = if separator == "=" { " " } else { "" };
            let help = format!("write `{name}{space}{separator} {value}`");
            self.errors.push_help(loc, format!("a value stands behind `{separator}` here"), help);
        }
        Ok((name, value))
    }

    fn configs(&mut self, input: ParseStream) -> syn::Result<Vec<WrittenConfig>> {
        if input.peek(syn::token::Brace) {
            return Ok(vec![self.bare_config(input)?]);
        }
        let content;
        bracketed!(content in input);
        Ok(self.separated(&content, Self::one_config))
    }

    /// `{ NAME: value }`
    pub(super) fn one_config(&mut self, input: ParseStream) -> syn::Result<WrittenConfig> {
        let fields;
        let brace = syn::braced!(fields in input);
        let entries = self.separated(&fields, |reader, input| reader.field(input, Separator::Colon));
        Ok(WrittenConfig { entries, loc: Loc { start: brace.span.open(), end: brace.span.close() } })
    }

    /// The generic of this name.
    fn generic(&self, name: &Ident) -> Option<&syn::GenericParam> {
        self.generics.params.iter().find(|param| generic_name(param).is_some_and(|own| own == name))
    }
}

/// The token between a name and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// In the attribute and in `tune(..)`.
    Equals,
    /// In a config.
    Colon,
}

impl Separator {
    fn text(self) -> &'static str {
        match self {
            Separator::Equals => "=",
            Separator::Colon => ":",
        }
    }
}

fn generic_name(param: &syn::GenericParam) -> Option<&Ident> {
    match param {
        syn::GenericParam::Type(param) => Some(&param.ident),
        syn::GenericParam::Const(param) => Some(&param.ident),
        syn::GenericParam::Lifetime(_) => None,
    }
}

/// Whether a list of `{ .. }` is next.
fn starts_configs(input: ParseStream) -> bool {
    let first_is_braced = |input: ParseStream| -> syn::Result<bool> {
        let content;
        bracketed!(content in input);
        let braced = content.peek(syn::token::Brace);
        content.parse::<TokenStream>()?;
        Ok(braced)
    };
    first_is_braced(&input.fork()).unwrap_or(false)
}

fn until_comma(input: ParseStream) -> syn::Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

/// The attribute's tokens as [`KernelOptions`], of a kernel with these generics.
pub(super) fn parse_options(
    tokens: TokenStream,
    generics: &syn::Generics,
    errors: &mut Errors,
) -> KernelOptions {
    let mut options = KernelOptions::default();
    let mut reader = AttributeReader { generics, errors, unreadable: false };
    let parser = |input: ParseStream| Ok(reader.separated(input, AttributeReader::entry));
    let entries = syn::parse::Parser::parse2(parser, tokens).unwrap_or_default();
    let mut declared: Vec<String> = vec![];
    for entry in entries {
        let name = entry.name.to_string();
        if declared.contains(&name) {
            let help = match entry.value {
                OptionValue::List { .. } => format!("write one list: `{name} = [64, 128]`"),
                _ => "keep one of the two".into(),
            };
            reader.errors.push_help(Loc::of(&entry.name), format!("`{name}` is declared twice"), help);
            continue;
        }
        declared.push(name);
        reader.add(&mut options, entry);
    }
    let names = |condition: &TokenStream| {
        options.lists.iter().any(|list| find_name(condition.clone(), &list.name.to_string()).is_some())
    };
    if options.configs.is_empty()
        && !reader.unreadable
        && let Some(condition) = options.when.take_if(|condition| !names(condition))
    {
        report_condition(condition, reader.errors);
    }
    options.unreadable |= reader.unreadable;
    options
}

/// The options besides lists of values.
pub(crate) const OPTIONS: &str = "`configs = [{ .. }]`, `tune(key = [..])`, `tuned = \"file\"`, `num_warps = N`, `num_ctas = N`, `num_stages = N`, `maxnreg = N`, \
     `unchecked`, `unreported` and `deny(spills)`";

/// Integer settings of the attribute or of a config, which are no generics.
pub(crate) const SETTINGS: [&str; 4] = ["num_warps", "num_ctas", "num_stages", "maxnreg"];

/// Whether spills are among what `deny` names; reports all else.
fn denies_spills(names: Vec<Ident>, errors: &mut Errors) -> bool {
    let mut found = false;
    for what in names {
        if what == "spills" {
            if found {
                errors.push(Loc::of(&what), "`spills` is denied twice");
            }
            found = true;
        } else {
            errors.push_help(Loc::of(&what), format!("`deny({what})` is not known"), "`deny(spills)` is");
        }
    }
    found
}

impl AttributeReader<'_> {
    fn add(&mut self, options: &mut KernelOptions, entry: ConfigEntry) {
        let ConfigEntry { name, value } = entry;
        let loc = Loc::of(&name);
        if name == "_" {
            // It was reported.
            return;
        }
        let wanted = self.generic(&name).cloned();
        if wanted.is_none() && self.report_foreign(&name, &value) {
            return;
        }
        let near = nearest_option(&name.to_string(), self.generics);
        // The values of a name that is no generic mean nothing: it is reported itself.
        let mut unread = Errors::new();
        let is_known = wanted.is_some() || NAMES.contains(&name.to_string().as_str());
        let errors = if is_known { &mut *self.errors } else { &mut unread };
        match (name.to_string().as_str(), value) {
            ("unchecked", OptionValue::None) => options.unchecked = true,
            ("unchecked", _) => errors.push(loc, "`unchecked` stands alone: it takes no value"),
            ("unreported", OptionValue::None) => options.unreported = true,
            ("unreported", _) => errors.push(loc, "`unreported` stands alone: it takes no value"),
            ("deny", OptionValue::Arguments(names)) => options.deny_spills |= denies_spills(names, errors),
            (setting, OptionValue::Single(expr)) if SETTINGS.contains(&setting) => {
                suffix::report_in_integers(&expr, errors);
                options.settings.push((name, expr));
            }
            (setting, OptionValue::List { loc, .. }) if SETTINGS.contains(&setting) => errors.push_help(
                loc,
                format!("`{setting}` is one number"),
                format!(
                    "declare several with `configs = [{{ {setting}: .., .. }}, {{ {setting}: .., .. }}]`"
                ),
            ),
            ("when", OptionValue::Single(condition)) if wanted.is_none() => {
                options.when = Some(condition.into_token_stream());
            }
            // It was reported.
            ("tune", OptionValue::Settings(entries)) if entries.is_empty() && self.unreadable => {}
            ("tune", OptionValue::Settings(entries)) => options.tune = tune(loc, entries, errors),
            ("tune", _) => errors.push(loc, "`tune` is written `tune(key = [..])`"),
            ("tuned", OptionValue::Single(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }))) => {
                options.tuned = Some(path);
            }
            ("tuned", _) => errors.push_help(
                loc,
                "`tuned` names a file of choices, relative to the folder of Cargo.toml",
                "`tuned = \"tuned/choices.json\"`",
            ),
            (_, OptionValue::Configs(configs)) => self.add_configs(options, &name, configs),
            (_, OptionValue::List { items, chosen_by, loc: list_loc }) => {
                let values: Vec<VariantValue> =
                    items.iter().filter_map(|item| variant_value(item, wanted.as_ref(), errors)).collect();
                if items.is_empty() {
                    errors
                        .push(list_loc, format!("the list of `{name}` is empty: declare at least one value"));
                }
                report_duplicates(&name, &values, errors);
                let (chosen_by, measured) = match chosen_by {
                    Some(syn::Expr::Infer(open)) => (None, Some(Loc::of(&open))),
                    chooser => (chooser.map(ToTokens::into_token_stream), None),
                };
                options.lists.push(VariantList { name, values, chosen_by, measured, loc });
            }
            (_, OptionValue::Single(expr)) => {
                // `BLOCK = 1024` declares one value, as `BLOCK = [1024]` does.
                let values = variant_value(&expr, wanted.as_ref(), errors).into_iter().collect();
                options.lists.push(VariantList { name, values, chosen_by: None, measured: None, loc });
            }
            _ => self.errors.push_help(
                loc,
                format!("`{name}` is not an option of `fuse_kernel`"),
                match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("options are `NAME = [values]` for a generic, {OPTIONS}"),
                },
            ),
        }
    }

    fn add_configs(&mut self, options: &mut KernelOptions, name: &Ident, configs: Vec<WrittenConfig>) {
        let loc = Loc::of(name);
        if name != "configs" {
            let text = format!("`{name}` is not an option of `fuse_kernel`");
            self.errors.push_help(loc, text, "did you mean `configs`?");
        }
        if configs.is_empty() {
            self.errors.push(loc, "`configs` is empty: declare at least one set of constants");
            options.unreadable = true;
        }
        options.configs = configs.into_iter().map(|config| self.config(config)).collect();
    }

    fn config(&mut self, config: WrittenConfig) -> Config {
        let (conditions, values): (Vec<_>, Vec<_>) =
            config.entries.into_iter().partition(|(name, _)| name == "when");
        for (name, _) in conditions.iter().skip(1) {
            self.errors
                .push(Loc::of(name), "`when` is given twice in this config: join the conditions with `&&`");
        }
        let when = conditions.into_iter().next().map(|(_, condition)| condition.into_token_stream());
        let read = |(name, expr): (Ident, syn::Expr)| {
            let wanted = self.generic(&name).cloned();
            variant_value(&expr, wanted.as_ref(), self.errors).map(|value| (name, value))
        };
        let written = values.len();
        let entries: Vec<(Ident, VariantValue)> = values.into_iter().filter_map(read).collect();
        self.unreadable |= entries.len() < written;
        for (i, (name, value)) in entries.iter().enumerate() {
            if entries[..i].iter().any(|(other, _)| other == name) {
                self.errors.push(value.loc, format!("`{name}` is given twice in this config"));
            }
        }
        Config { entries, when, loc: config.loc }
    }
}

/// Reports a condition of no config.
fn report_condition(condition: TokenStream, errors: &mut Errors) {
    let loc = Loc::of(condition.clone());
    let condition = source_text(condition);
    errors.push_help(
        loc,
        "`when` chooses nothing: it names no constant with listed values, and there are no configs",
        format!("`when = n <= BLOCK`, or a condition of one config, `configs = [{{ .., when: {condition} }}, {{ .. }}]`"),
    );
}

/// The option or generic that a name which is neither was perhaps meant to be.
fn nearest_option(name: &str, generics: &syn::Generics) -> Option<String> {
    let generics: Vec<String> =
        generics.params.iter().filter_map(generic_name).map(Ident::to_string).collect();
    nearest_name(name, generics.iter().map(String::as_str)).map(str::to_string)
}

/// The option, or the one of these generics, that a name which is neither was perhaps meant to be.
pub(crate) fn nearest_name<'n>(name: &str, generics: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let names: Vec<&str> = generics.chain(NAMES).collect();
    let same = |other: &&&str| other.eq_ignore_ascii_case(name);
    let ends = |other: &&&str| other.strip_suffix(name).is_some_and(|start| start.ends_with('_'));
    let found = names.iter().find(same).or_else(|| names.iter().find(ends)).copied();
    found.or_else(|| nearest(name, names.iter().copied()))
}

/// The names of options.
const NAMES: [&str; 10] = [
    "configs",
    "tune",
    "tuned",
    "num_warps",
    "num_ctas",
    "num_stages",
    "maxnreg",
    "unchecked",
    "unreported",
    "deny",
];

/// `tune(key = [n_cols], when = BLOCK >= n_cols)`
fn tune(loc: Loc, entries: ConfigEntries, errors: &mut Errors) -> Option<Tune> {
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

fn report_duplicates(name: &Ident, values: &[VariantValue], errors: &mut Errors) {
    for (i, value) in values.iter().enumerate() {
        if values[..i].iter().any(|other| other.kind == value.kind) {
            errors.push(value.loc, format!("`{}` is listed twice for `{name}`", describe(&value.kind)));
        }
    }
}

/// How a message writes a declared value.
pub fn describe(kind: &VariantKind) -> String {
    match kind {
        VariantKind::Type(dtype) => dtype.to_string(),
        VariantKind::Int(value) => value.to_string(),
        VariantKind::Bool(value) => value.to_string(),
    }
}

/// A type name, integer or bool, as the generic wants it.
fn variant_value(
    expr: &syn::Expr,
    wanted: Option<&syn::GenericParam>,
    errors: &mut Errors,
) -> Option<VariantValue> {
    let expr = values::ungrouped(expr);
    let loc = Loc::of(expr);
    let misread = suffix::report_in_integers(expr, errors);
    if let Some(syn::GenericParam::Const(generic)) = wanted
        && !misread
        && values::report_invalid(expr, generic, errors)
    {
        return None;
    }
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
    // `half::f16` is another name of the same type.
    let foreign = match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
            DType::parse(&text.value()).or_else(|| super::element_type(&text.value()))
        }
        syn::Expr::Path(path) if kind.is_none() => path.path.segments.last().and_then(|segment| {
            let name = segment.ident.to_string();
            DType::parse(&name).or_else(|| super::element_type(&name))
        }),
        _ => None,
    };
    if let Some(dtype) = foreign {
        let text = format!("`{}` is not an element type", source_text(expr.to_token_stream()));
        errors.push_help(loc, text, format!("did you mean `{dtype}`?"));
        return None;
    }
    if kind.is_none() {
        let help = match expr {
            syn::Expr::Binary(own) if matches!(own.op, syn::BinOp::BitOr(_)) => {
                let values = source_text(expr.to_token_stream()).replace(" |", ",");
                format!("several values stand between brackets: `[{values}]`")
            }
            _ => format!("element types are {}", list(DType::ALL)),
        };
        errors.push_help(loc, "a declared value is an element type, an integer or a bool", help);
    }
    kind.map(|kind| VariantValue { kind, loc })
}
