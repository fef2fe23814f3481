//! Reports entries of the attribute that are written as other languages write them, and reads them as they were meant.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Token;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;

use super::attribute::{AttributeReader, OptionValue, WrittenConfig};
use super::{Place, foreign_help};
use crate::support::diagnostic::{Loc, source_text};

impl AttributeReader<'_> {
    /// The name of an entry; one between quotes is reported.
    pub(super) fn name(&mut self, input: ParseStream) -> syn::Result<Ident> {
        if input.peek(syn::Lit) && !input.peek(syn::LitStr) {
            let value: syn::Lit = input.parse()?;
            let help = "several values stand between brackets: `NAME = [64, 128]`";
            self.errors.push_help(Loc::of(&value), "a name stands here, found a value", help);
            self.unreadable = true;
            return Ok(Ident::new("_", value.span()));
        }
        if !input.peek(syn::LitStr) {
            // A keyword is answered as any other name.
            return input.call(Ident::parse_any);
        }
        let text: syn::LitStr = input.parse()?;
        let name: Ident = text.parse()?;
        let help = format!("write `{name}`");
        self.errors.push_help(Loc::of(&text), "a name stands without quotes", help);
        Ok(Ident::new(&name.to_string(), text.span()))
    }

    /// Reports `NAME in [..]`, without a value that chooses.
    pub(super) fn report_missing_equals(&mut self, name: &Ident, input: ParseStream) -> syn::Result<()> {
        let keyword: Token![in] = input.parse()?;
        let values: TokenStream = input.fork().parse()?;
        let list = values.into_iter().next().map(|token| source_text(token.into())).unwrap_or_default();
        let help = format!(
            "write `{name} = {list}`, or `{name} = n in {list}` where an argument chooses among the values"
        );
        self.errors.push_help(Loc::of(keyword), format!("the values of `{name}` stand behind `=`"), help);
        Ok(())
    }

    /// `NAME = { 64, 128 }`, which is reported and read as a list.
    pub(super) fn values_in_braces(&mut self, name: &Ident, input: ParseStream) -> syn::Result<OptionValue> {
        let content;
        let brace = syn::braced!(content in input);
        let loc = Loc { start: brace.span.open(), end: brace.span.close() };
        let items: Vec<syn::Expr> =
            Punctuated::<syn::Expr, Token![,]>::parse_terminated(&content)?.into_iter().collect();
        self.report_no_list(name, &items, loc);
        Ok(OptionValue::List { items, chosen_by: None, loc })
    }

    /// `configs = { N: 64 }`, which is reported and read as the only one.
    pub(super) fn bare_config(&mut self, input: ParseStream) -> syn::Result<WrittenConfig> {
        let tokens: TokenStream = input.fork().parse()?;
        let text = tokens.into_iter().next().map(|token| source_text(token.into())).unwrap_or_default();
        let config = self.one_config(input)?;
        let help = format!("write `configs = [{text}]`");
        self.errors.push_help(config.loc, "`configs` is a list", help);
        Ok(config)
    }

    /// Whether `tune` is given expressions without `key =`, which is reported.
    pub(super) fn report_bare_key(&mut self, content: ParseStream) -> syn::Result<bool> {
        let tokens: Vec<TokenTree> = content.fork().parse::<TokenStream>()?.into_iter().collect();
        let has_name = tokens
            .iter()
            .any(|token| matches!(token, TokenTree::Punct(punct) if matches!(punct.as_char(), '=' | ':')));
        if tokens.is_empty() || has_name {
            return Ok(false);
        }
        let all: TokenStream = content.parse()?;
        let text = source_text(all.clone());
        let help = format!("write `tune(key = [{}])`", text.trim_matches(['[', ']', '"']));
        self.errors.push_help(Loc::of(all), "what the fastest choice depends on stands behind `key =`", help);
        self.unreadable = true;
        Ok(true)
    }

    /// Reports values between other delimiters than brackets.
    pub(super) fn report_no_list(&mut self, name: &Ident, items: &[syn::Expr], loc: Loc) {
        let values: Vec<String> = items.iter().map(|item| source_text(item.to_token_stream())).collect();
        let help = format!("write `{name} = [{}]`", values.join(", "));
        self.errors.push_help(loc, "values stand between brackets", help);
    }

    /// Whether a name is an option elsewhere, which is reported.
    pub(super) fn report_foreign(&mut self, name: &Ident, value: &OptionValue) -> bool {
        let Some(help) = foreign_help(&name.to_string(), Place::Option) else { return false };
        let text = format!("`{name}` is not an option of `fuse_kernel`");
        self.errors.push_help(Loc::of(name), text, help);
        // It may hold the values that a generic would miss.
        self.unreadable |= !matches!(value, OptionValue::None | OptionValue::Single(_));
        true
    }
}
