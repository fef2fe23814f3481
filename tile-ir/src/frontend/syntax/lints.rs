//! The outline of a function, for rustc's lints: its variables, where they get values and where these are used.
//!
//! Takes syn's function; gives a Rust function that nothing calls. Every value in it is an integer, and an
//! operation is a call that takes its operands, so that it type-checks whatever the kernel's types are. Names and the
//! tokens around them keep their spans: what rustc says of unused variables, `mut`, assignments and results is on the
//! user's tokens, in rustc's words and at the level that the user's attributes ask for. It follows the syntax, not a
//! variant: a variable that only a branch on a constant uses counts as used.

mod patterns;
mod tokens;

use std::collections::HashSet;

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};

use super::assign::is_assignment;
use super::inner_attributes::{LEVELS, outer_attributes};

use patterns::patterns;
use tokens::{
    call, call_statement, collect_assigned, collect_structs, discards, has_value, item_name, targets,
    variable,
};

/// The outline of a function, named `body`; what its attribute mentions is used.
pub(super) fn outline(function: &syn::ItemFn, attribute: &TokenStream) -> TokenStream {
    let mut outline = Outline::default();
    collect_assigned(function.block.to_token_stream(), &mut outline.assigned);
    collect_structs(function.block.to_token_stream(), &mut outline.structs);
    let levels = lint_levels(&function.attrs);
    let function = outline.function(function, &Ident::new("body", Span::call_site()), attribute);
    quote! { #(#levels)* pub(super) #function }
}

/// Attributes that set lint levels.
fn lint_levels(attributes: &[syn::Attribute]) -> impl Iterator<Item = &syn::Attribute> {
    attributes.iter().filter(|attribute| sets_lint_level(attribute) || expects_outline_lint(attribute))
}

/// Whether an attribute sets the level of lints and expects none of them.
pub fn sets_lint_level(attribute: &syn::Attribute) -> bool {
    is_level(attribute) && !attribute.path().is_ident("expect")
}

fn is_level(attribute: &syn::Attribute) -> bool {
    LEVELS.iter().any(|level| attribute.path().is_ident(level))
}

/// Attributes within a function: levels of lints, and documentation, which rustc says is unused before a statement.
fn carried(attributes: &[syn::Attribute]) -> impl Iterator<Item = &syn::Attribute> {
    attributes.iter().filter(|attribute| is_level(attribute) || attribute.path().is_ident("doc"))
}

/// Statements under the attributes of one, if it has any.
fn under(attributes: &[syn::Attribute], statements: TokenStream) -> TokenStream {
    let mut attributes = carried(attributes).peekable();
    match attributes.peek() {
        Some(_) => quote! { #(#attributes)* { #statements } },
        None => statements,
    }
}

/// Whether an attribute expects a lint that only the outline can cause: the function that a call of the kernel means
/// has another body.
pub fn expects_outline_lint(attribute: &syn::Attribute) -> bool {
    const LINTS: [&str; 8] = [
        "unused_variables",
        "unused_mut",
        "unused_assignments",
        "unused_must_use",
        "path_statements",
        "unreachable_code",
        "unreachable_patterns",
        "overlapping_range_endpoints",
    ];
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("expect")
        && list.tokens.clone().into_iter().all(|token| match token {
            TokenTree::Ident(name) => LINTS.iter().any(|lint| name == lint),
            TokenTree::Punct(punct) => punct.as_char() == ',',
            TokenTree::Group(_) | TokenTree::Literal(_) => false,
        })
}

#[derive(Default)]
struct Outline {
    /// The names in scope, by block.
    scopes: Vec<LintScope>,
    /// Names that are assigned anywhere.
    assigned: HashSet<String>,
    /// Variables that are structs: whether they are changed, the methods that are called decide.
    structs: HashSet<String>,
}

#[derive(Default)]
struct LintScope {
    variables: HashSet<String>,
    /// Nested functions and constants.
    items: HashSet<String>,
}

/// Whether the value of a block or branch is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Value,
    Nothing,
}

impl Outline {
    fn function(&mut self, item: &syn::ItemFn, name: &Ident, attribute: &TokenStream) -> TokenStream {
        let mut scope = HashSet::new();
        let mut params = vec![];
        for input in &item.sig.inputs {
            let syn::FnArg::Typed(typed) = input else { continue };
            let levels = carried(&typed.attrs);
            let (pattern, ty) = self.pattern(&typed.pat, &mut scope);
            params.push(quote! { #(#levels)* #pattern: #ty });
        }
        self.scopes.push(LintScope { variables: scope, ..LintScope::default() });
        let mentions = self.mentions(attribute).into_iter();
        let mentions = mentions.map(|name| quote! { ::dsl_runtime::lint::used(#name); });
        let mentions: TokenStream = mentions.collect();
        let unit = match &item.sig.output {
            syn::ReturnType::Default => true,
            syn::ReturnType::Type(_, ty) => {
                matches!(&**ty, syn::Type::Tuple(tuple) if tuple.elems.is_empty())
            }
        };
        let (want, output) = match unit {
            true => (Want::Nothing, TokenStream::new()),
            false => (Want::Value, quote! { -> ::core::primitive::i32 }),
        };
        let body = self.block(&item.block, want);
        self.scopes.pop();
        let fn_token = item.sig.fn_token;
        let mut block = Group::new(Delimiter::Brace, quote! { #mentions #body });
        block.set_span(item.block.brace_token.span.join());
        quote! { #fn_token #name(#(#params),*) #output #block }
    }

    fn is_in_scope(&self, name: &Ident) -> bool {
        let name = name.to_string();
        self.scopes.iter().any(|scope| scope.variables.contains(&name) || scope.items.contains(&name))
    }

    /// Runs `work` on a nested item: the items around it are in scope, the variables are not.
    fn isolated<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let variables: Vec<_> =
            self.scopes.iter_mut().map(|scope| std::mem::take(&mut scope.variables)).collect();
        let result = work(self);
        for (scope, variables) in self.scopes.iter_mut().zip(variables) {
            scope.variables = variables;
        }
        result
    }

    /// Runs `work` with further variables in scope.
    fn within<R>(&mut self, variables: HashSet<String>, work: impl FnOnce(&mut Self) -> R) -> R {
        self.scopes.push(LintScope { variables, ..LintScope::default() });
        let result = work(self);
        self.scopes.pop();
        result
    }

    fn bind(&mut self, names: HashSet<String>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.variables.extend(names);
        }
    }

    /// The variables among tokens.
    fn mentions(&self, tokens: &TokenStream) -> Vec<Ident> {
        let mut found: Vec<Ident> = vec![];
        for token in tokens.clone() {
            match token {
                TokenTree::Group(group) => found.extend(self.mentions(&group.stream())),
                TokenTree::Ident(name) if self.is_in_scope(&name) => found.push(name),
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        found
    }

    /// A pattern and its type; the names it binds go to `names`.
    fn pattern(&self, pat: &syn::Pat, names: &mut HashSet<String>) -> (TokenStream, TokenStream) {
        let integer = quote! { ::core::primitive::i32 };
        match pat {
            syn::Pat::Ident(own) => {
                names.insert(own.ident.to_string());
                let (mutability, name) = (&own.mutability, &own.ident);
                (quote! { #mutability #name }, integer)
            }
            syn::Pat::Tuple(tuple) => {
                let parts = tuple.elems.iter().map(|part| self.pattern(part, names));
                let (parts, types): (Vec<_>, Vec<_>) = parts.unzip();
                (quote! { (#(#parts,)*) }, quote! { (#(#types,)*) })
            }
            syn::Pat::Paren(inner) => self.pattern(&inner.pat, names),
            syn::Pat::Type(typed) => self.pattern(&typed.pat, names),
            _ => (quote! { _ }, integer),
        }
    }

    // ---- statements

    /// The contents of a block, without its braces.
    fn block(&mut self, block: &syn::Block, want: Want) -> TokenStream {
        let items = block.stmts.iter().filter_map(|statement| match statement {
            syn::Stmt::Item(item) => item_name(item).map(ToString::to_string),
            _ => None,
        });
        self.scopes.push(LintScope { items: items.collect(), ..LintScope::default() });
        let mut tokens = TokenStream::new();
        for (i, statement) in block.stmts.iter().enumerate() {
            let last = i + 1 == block.stmts.len();
            tokens.extend(match statement {
                syn::Stmt::Local(local) => self.local(local),
                syn::Stmt::Item(item) => self.item(item),
                syn::Stmt::Expr(value, None) if last && want == Want::Value => {
                    under(&outer_attributes(value), self.tail(value))
                }
                syn::Stmt::Expr(expr, _) => under(&outer_attributes(expr), self.statement(expr)),
                syn::Stmt::Macro(own) => under(&own.attrs, self.use_of(own, &own.mac.tokens)),
            });
        }
        if want == Want::Value && !has_value(block) {
            tokens.extend(quote! { ::dsl_runtime::lint::value(()) });
        }
        self.scopes.pop();
        tokens
    }

    fn item(&mut self, item: &syn::Item) -> TokenStream {
        match item {
            syn::Item::Fn(item) => {
                let levels = carried(&item.attrs);
                let function =
                    self.isolated(|outline| outline.function(item, &item.sig.ident, &TokenStream::new()));
                quote! { #(#levels)* #function }
            }
            syn::Item::Const(item) => {
                let (levels, name) = (carried(&item.attrs), &item.ident);
                // Not an integer: rustc would ask whether a variable was meant to be this constant.
                let used = self.isolated(|outline| outline.mentions(&item.expr.to_token_stream()));
                quote_spanned! { item.const_token.span =>
                    #(#levels)*
                    const #name: () = ::dsl_runtime::lint::known((#(#used,)*));
                }
            }
            _ => TokenStream::new(),
        }
    }

    fn local(&mut self, local: &syn::Local) -> TokenStream {
        let levels = carried(&local.attrs);
        let init = local.init.as_ref().map(|init| self.value(&init.expr));
        let mut names = HashSet::new();
        let (pattern, ty) = self.pattern(&local.pat, &mut names);
        let pat = match &local.pat {
            syn::Pat::Type(typed) => &*typed.pat,
            pat => pat,
        };
        let name = match pat {
            syn::Pat::Ident(own) => Some(own),
            _ => None,
        };
        // A variable that gets its value later, or one that only a branch left out assigns: `typeck` decides when it may.
        let late = name.filter(|own| {
            init.is_none() || own.mutability.is_none() && self.assigned.contains(&own.ident.to_string())
        });
        self.bind(names);
        let span = local.let_token.span;
        match (late, init) {
            (Some(own), Some(init)) => {
                let name = &own.ident;
                quote_spanned! { span => #(#levels)* #[allow(unused_mut)] let mut #name: #ty = #init; }
            }
            (Some(own), None) => {
                let name = &own.ident;
                let zero = quote! { ::dsl_runtime::lint::value(()) };
                quote_spanned! { span =>
                    #(#levels)* #[allow(unused_mut, unused_assignments)] let mut #name: #ty = #zero;
                }
            }
            (None, Some(init)) if matches!(pat, syn::Pat::Tuple(_)) => {
                quote_spanned! { span => #(#levels)* let #pattern: #ty = ::dsl_runtime::lint::parts(#init); }
            }
            (None, Some(init)) if name.is_some_and(|own| self.structs.contains(&own.ident.to_string())) => {
                quote_spanned! { span => #(#levels)* #[allow(unused_mut)] let #pattern: #ty = #init; }
            }
            (None, Some(init)) => quote_spanned! { span => #(#levels)* let #pattern: #ty = #init; },
            (None, None) => TokenStream::new(),
        }
    }

    /// An expression whose value is not wanted.
    fn statement(&mut self, expr: &syn::Expr) -> TokenStream {
        match expr {
            syn::Expr::Paren(inner) => self.statement(&inner.expr),
            syn::Expr::Group(inner) => self.statement(&inner.expr),
            syn::Expr::Assign(assign) => self.assign(assign),
            syn::Expr::Binary(binary) => {
                let (op, value) = (binary.op, self.value(&binary.right));
                if is_assignment(&op) {
                    return match variable(&binary.left).filter(|name| self.is_in_scope(name)) {
                        Some(name) => quote! { #name #op #value; },
                        None => self.use_of(&binary.left, &value),
                    };
                }
                let (left, right) = match op {
                    syn::BinOp::And(_) | syn::BinOp::Or(_) => {
                        let left = self.value(&binary.left);
                        (call(&*binary.left, "truth", &left), call(&*binary.right, "truth", &value))
                    }
                    _ => (self.value(&binary.left), value),
                };
                quote! { #left #op #right; }
            }
            syn::Expr::Unary(unary) if !matches!(unary.op, syn::UnOp::Deref(_)) => {
                let (op, value) = (unary.op, self.value(&unary.expr));
                quote! { #op #value; }
            }
            syn::Expr::Path(_) => match variable(expr).filter(|name| self.is_in_scope(name)) {
                Some(name) => quote_spanned! { name.span() => #name; },
                None => TokenStream::new(),
            },
            syn::Expr::ForLoop(own) => {
                let range = self.value(&own.expr);
                let mut names = HashSet::new();
                let (pattern, _) = self.pattern(&own.pat, &mut names);
                let body = self.within(names, |outline| outline.block(&own.body, Want::Nothing));
                let iterations = call(&*own.expr, "iterations", &range);
                quote_spanned! { own.for_token.span => for #pattern in #iterations { #body } }
            }
            syn::Expr::While(own) => {
                let condition = self.condition(&own.cond);
                let body = self.block(&own.body, Want::Nothing);
                quote_spanned! { own.while_token.span => while #condition { #body } }
            }
            syn::Expr::Block(_) | syn::Expr::If(_) | syn::Expr::Match(_) => {
                let choice = self.choice(expr, Want::Nothing);
                quote! { #choice }
            }
            syn::Expr::Return(_) | syn::Expr::Break(_) | syn::Expr::Continue(_) => {
                let exit = self.exit(expr);
                quote! { #exit; }
            }
            other => {
                let value = self.value(other);
                let call = call(other, if discards(other) { "unused" } else { "used" }, &value);
                quote! { #call; }
            }
        }
    }

    fn assign(&mut self, assign: &syn::ExprAssign) -> TokenStream {
        let (eq, value) = (&assign.eq_token, self.value(&assign.right));
        if let Some(name) = variable(&assign.left) {
            return match self.is_in_scope(name) {
                true => quote! { #name #eq #value; },
                false => call_statement(assign, &value),
            };
        }
        let mut names = vec![];
        targets(&assign.left, &mut names);
        let names = names.into_iter().filter(|name| self.is_in_scope(name));
        let first = call_statement(assign, &value);
        let rest = names.map(|name| {
            let value = call(name, "value", &quote! { () });
            quote! { #name #eq #value; }
        });
        quote! { #first #(#rest)* }
    }

    fn exit(&mut self, expr: &syn::Expr) -> TokenStream {
        match expr {
            syn::Expr::Return(exit) => {
                let keyword = &exit.return_token;
                let value = exit.expr.as_ref().map(|value| self.value(value));
                quote! { #keyword #value }
            }
            syn::Expr::Break(exit) => exit.break_token.to_token_stream(),
            syn::Expr::Continue(exit) => exit.continue_token.to_token_stream(),
            other => self.value(other),
        }
    }

    // ---- values

    fn condition(&mut self, expr: &syn::Expr) -> TokenStream {
        let value = self.value(expr);
        call(expr, "truth", &value)
    }

    /// The last expression of a block whose value is wanted.
    fn tail(&mut self, expr: &syn::Expr) -> TokenStream {
        match expr {
            syn::Expr::Return(_) | syn::Expr::Break(_) | syn::Expr::Continue(_) => self.exit(expr),
            syn::Expr::ForLoop(_) | syn::Expr::While(_) | syn::Expr::Assign(_) => self.statement(expr),
            syn::Expr::Binary(binary) if is_assignment(&binary.op) => self.statement(expr),
            other => self.value(other),
        }
    }

    /// An integer computed from the operands of the expression.
    fn value(&mut self, expr: &syn::Expr) -> TokenStream {
        let operands: Vec<TokenStream> = match expr {
            syn::Expr::Paren(inner) => return self.value(&inner.expr),
            syn::Expr::Group(inner) => return self.value(&inner.expr),
            syn::Expr::Path(_) => return self.path_value(expr),
            syn::Expr::Block(_) | syn::Expr::If(_) | syn::Expr::Match(_) => {
                return self.choice(expr, Want::Value);
            }
            syn::Expr::Binary(binary) => vec![self.value(&binary.left), self.value(&binary.right)],
            syn::Expr::Unary(unary) => vec![self.value(&unary.expr)],
            syn::Expr::Cast(cast) => vec![self.value(&cast.expr)],
            syn::Expr::Reference(own) => vec![self.value(&own.expr)],
            syn::Expr::Field(own) => vec![self.value(&own.base)],
            syn::Expr::Index(own) => vec![self.value(&own.expr), self.value(&own.index)],
            syn::Expr::Tuple(own) => own.elems.iter().map(|part| self.value(part)).collect(),
            syn::Expr::Array(own) => own.elems.iter().map(|part| self.value(part)).collect(),
            syn::Expr::Range(own) => own.start.iter().chain(&own.end).map(|end| self.value(end)).collect(),
            syn::Expr::Call(own) => {
                let function = self.value(&own.func);
                std::iter::once(function).chain(own.args.iter().map(|arg| self.value(arg))).collect()
            }
            syn::Expr::MethodCall(own) => {
                let generics = own.turbofish.iter().flat_map(|own| self.mentions(&own.to_token_stream()));
                let generics: Vec<TokenStream> = generics.map(ToTokens::into_token_stream).collect();
                let receiver = self.value(&own.receiver);
                let args: Vec<TokenStream> = own.args.iter().map(|arg| self.value(arg)).collect();
                generics.into_iter().chain([receiver]).chain(args).collect()
            }
            syn::Expr::Closure(own) => vec![self.closure(own)],
            other => {
                self.mentions(&other.to_token_stream()).into_iter().map(|name| quote! { #name }).collect()
            }
        };
        call(expr, "value", &quote! { (#(#operands,)*) })
    }

    /// A path: a variable or an item of the function, or something that lints of the function ignore.
    fn path_value(&self, expr: &syn::Expr) -> TokenStream {
        let syn::Expr::Path(path) = expr else { return TokenStream::new() };
        let arguments = path.path.segments.iter().map(|segment| &segment.arguments);
        let mut used: Vec<Ident> =
            arguments.flat_map(|arguments| self.mentions(&arguments.to_token_stream())).collect();
        match path.path.segments.first().filter(|_| path.path.segments.len() == 1) {
            Some(segment) if self.is_in_scope(&segment.ident) => used.push(segment.ident.clone()),
            _ => {}
        }
        call(expr, "value", &quote! { (#(#used,)*) })
    }

    fn closure(&mut self, closure: &syn::ExprClosure) -> TokenStream {
        let mut names = HashSet::new();
        let params: Vec<TokenStream> = closure
            .inputs
            .iter()
            .map(|input| {
                let (pattern, ty) = self.pattern(input, &mut names);
                quote! { #pattern: #ty }
            })
            .collect();
        let body = self.within(names, |outline| match &*closure.body {
            syn::Expr::Block(block) => {
                let want = if has_value(&block.block) { Want::Value } else { Want::Nothing };
                outline.block(&block.block, want)
            }
            other => outline.value(other),
        });
        quote! { |#(#params),*| { #body } }
    }

    /// A block, an `if` or a `match`.
    fn choice(&mut self, expr: &syn::Expr, want: Want) -> TokenStream {
        match expr {
            syn::Expr::Block(own) => {
                let body = self.block(&own.block, want);
                quote! { { #body } }
            }
            syn::Expr::If(own) => {
                let condition = self.condition(&own.cond);
                let then = self.block(&own.then_branch, want);
                let otherwise = match (&own.else_branch, want) {
                    (Some((token, branch)), _) => {
                        let branch = match &**branch {
                            syn::Expr::If(_) | syn::Expr::Block(_) => self.choice(branch, want),
                            other => {
                                let value = self.value(other);
                                quote! { { #value } }
                            }
                        };
                        quote! { #token #branch }
                    }
                    (None, Want::Value) => quote! { else { ::dsl_runtime::lint::value(()) } },
                    (None, Want::Nothing) => TokenStream::new(),
                };
                quote_spanned! { own.if_token.span => if #condition { #then } #otherwise }
            }
            syn::Expr::Match(own) => self.arms(own, want),
            other => self.value(other),
        }
    }

    /// A `match` on a number or bool made of its operands. A guard stands for a pattern that the outline cannot have.
    fn arms(&mut self, own: &syn::ExprMatch, want: Want) -> TokenStream {
        let scrutinee = self.value(&own.expr);
        let mut used = vec![];
        for arm in &own.arms {
            used.extend(self.mentions(&arm.pat.to_token_stream()));
            used.extend(arm.guard.iter().flat_map(|(_, guard)| self.mentions(&guard.to_token_stream())));
        }
        let patterns = patterns(own);
        let function = if patterns.is_bool { "truth" } else { "matched" };
        let scrutinee = call(&*own.expr, function, &quote! { (#scrutinee, #(#used,)*) });
        let mut arms = vec![];
        for (arm, pattern) in own.arms.iter().zip(patterns.arms) {
            let pattern = pattern.unwrap_or_else(|| {
                let truth = call(&arm.pat, "truth", &quote! { () });
                quote! { _ if #truth }
            });
            let body = match (&*arm.body, want) {
                (syn::Expr::Block(block), _) => self.block(&block.block, want),
                (body, Want::Value) => self.tail(body),
                (body, Want::Nothing) => self.statement(body),
            };
            let levels = carried(&arm.attrs);
            arms.push(quote! { #(#levels)* #pattern => { #body } });
        }
        quote_spanned! { own.match_token.span => match #scrutinee { #(#arms)* } }
    }

    /// A use of every variable among `tokens`, with the span of `written`.
    fn use_of(&self, written: impl ToTokens, tokens: &TokenStream) -> TokenStream {
        let names = self.mentions(tokens);
        let call = call(written, "used", &quote! { (#(#names,)*) });
        quote! { #call; }
    }
}
