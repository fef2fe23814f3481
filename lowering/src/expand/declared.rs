//! `Choice` and `Declared`: the traits that make an undeclared variant a compile error at the call.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;
use tile_ir::frontend::syntax::{ConstType, GenericParam, Kernel};
use tile_ir::frontend::typeck::{ConstValue, Variant};
use tile_ir::support::diagnostic::list;
use tile_ir::support::dtype::{Class, DType};

use super::arguments::element_path;
use super::launcher::{constant, declaration, inner, named};

/// What says which choices of a kernel's generics were declared.
pub(super) struct Declared {
    /// Items of the kernel's module.
    pub inside: TokenStream,
    /// Items beside the kernel, where the traits of the user's own are in scope.
    pub beside: TokenStream,
}

/// `Choice` and `Declared`: a call whose generics were not declared does not compile, and says what was.
pub(super) fn declared(kernel: &Kernel, variants: &[Variant]) -> Declared {
    let traits = traits(kernel, variants);
    let has_own_trait =
        |generic: &GenericParam| matches!(generic, GenericParam::Type { traits, .. } if !traits.is_empty());
    if named(kernel).any(has_own_trait) {
        let name = &kernel.name;
        let beside = Implementations::of(kernel, variants, quote! { #name }).tokens();
        return Declared { inside: traits, beside };
    }
    let implementations = Implementations::of(kernel, variants, quote! { self }).tokens();
    Declared { inside: quote! { #traits #implementations }, beside: TokenStream::new() }
}

fn traits(kernel: &Kernel, variants: &[Variant]) -> TokenStream {
    let generics: Vec<&GenericParam> = named(kernel).collect();
    let declarations: Vec<TokenStream> = generics
        .iter()
        .map(|generic| match generic {
            GenericParam::Type { name, .. } => quote! { #name },
            GenericParam::Const { .. } => declaration(generic),
        })
        .collect();
    let types: Vec<&Ident> = generics
        .iter()
        .filter_map(|generic| match generic {
            GenericParam::Type { name, .. } => Some(name),
            GenericParam::Const { .. } => None,
        })
        .collect();
    let label = format!("not a declared variant of `{}`", kernel.name);
    let message = format!("`{}` has no variant for these generics", kernel.name);
    let note = format!("declared are {}", declared_text(kernel, variants));
    let inner_visibility = inner(&kernel.visibility);
    quote! {
        /// A choice of the kernel's generics.
        #[derive(Clone, Copy, Debug)]
        #inner_visibility struct Choice<#(#declarations),*>(::core::marker::PhantomData<(#(#types,)*)>);

        /// The choices that were declared.
        #[diagnostic::on_unimplemented(message = #message, label = #label, note = #note)]
        #inner_visibility trait Declared {
            /// The variant, or the first one where arguments decide.
            const VARIANT: &'static ::dsl_runtime::kernel::Variant;
        }
    }
}

fn declared_text(kernel: &Kernel, variants: &[Variant]) -> String {
    if kernel.options.configs.is_empty() {
        let lists = kernel.options.lists.iter().map(|declared| {
            let values =
                declared.values.iter().map(|value| tile_ir::frontend::syntax::describe_value(&value.kind));
            format!("{} = {}", declared.name, list(values))
        });
        return lists.collect::<Vec<_>>().join("; ");
    }
    variants.iter().map(|variant| format!("[{variant}]")).collect::<Vec<_>>().join(", ")
}

/// One implementation of `Declared` for each choice. A generic all of whose values are declared is a generic of the implementation, so that
/// generic code can call the kernel. So is a type with a trait of the user's: a call with a type that has the trait and no variant does not
/// build.
struct Implementations<'k> {
    /// The path of the kernel's module.
    module: TokenStream,
    no_variant: String,
    generics: Vec<&'k GenericParam>,
    is_open: Vec<bool>,
    choices: Vec<DeclaredChoice>,
}

impl<'k> Implementations<'k> {
    fn of(kernel: &'k Kernel, variants: &[Variant], module: TokenStream) -> Implementations<'k> {
        let generics: Vec<&GenericParam> = named(kernel).collect();
        let of_variant = |variant| DeclaredChoice::of(kernel, variant);
        let choices: Vec<DeclaredChoice> = variants.iter().map(of_variant).collect();
        // A kernel with mistakes has no variants: no bound on its choice is a mistake on top of them.
        let is_open = |(at, generic)| choices.is_empty() || is_open(generic, at, &choices);
        let is_open = generics.iter().copied().enumerate().map(is_open).collect();
        let no_variant = format!("`{}` has no variant for these generics", kernel.name);
        Implementations { module, no_variant, generics, is_open, choices }
    }

    fn open(&self) -> impl Iterator<Item = &'k GenericParam> {
        self.generics.iter().zip(&self.is_open).filter(|(_, is_open)| **is_open).map(|(generic, _)| *generic)
    }

    fn tokens(&self) -> TokenStream {
        if self.choices.is_empty() {
            let any = DeclaredChoice(vec![GenericValue::Any; self.generics.len()]);
            return self.implementation(&any, quote! { 0 });
        }
        let mut groups: Vec<DeclaredChoice> = vec![];
        for group in self.choices.iter().map(|choice| choice.without(&self.is_open)) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups.iter().map(|group| self.implementation(group, self.index(group))).collect()
    }

    /// The index of the variant for a choice of a group.
    fn index(&self, group: &DeclaredChoice) -> TokenStream {
        let found = |wanted: &DeclaredChoice| self.choices.iter().position(|choice| choice == wanted);
        let indices: Vec<Option<usize>> = group.completed(&self.generics).iter().map(found).collect();
        if let [Some(index)] = indices[..] {
            let index = Literal::usize_unsuffixed(index);
            return quote! { #index };
        }
        let (module, no_variant, position) = (&self.module, &self.no_variant, position(self.open()));
        let undeclared = indices
            .contains(&None)
            .then(|| quote! { ::core::assert!(index < #module::KERNEL.variants.len(), #no_variant); });
        let none = self.choices.len();
        let indices = indices.iter().map(|index| Literal::usize_unsuffixed(index.unwrap_or(none)));
        quote! {{
            const INDEX: &[usize] = &[#(#indices),*];
            let index = INDEX[#position];
            #undeclared
            index
        }}
    }

    fn implementation(&self, choice: &DeclaredChoice, index: TokenStream) -> TokenStream {
        let (module, declarations) = (&self.module, self.open().map(declaration));
        let arguments = choice.0.iter().zip(&self.generics).map(|(value, generic)| value.tokens(generic));
        quote! {
            impl<#(#declarations),*> #module::Declared for #module::Choice<#(#arguments),*> {
                const VARIANT: &'static ::dsl_runtime::kernel::Variant = &#module::KERNEL.variants[#index];
            }
        }
    }
}

/// The values of a variant's named generics, in order.
#[derive(Clone, PartialEq)]
struct DeclaredChoice(Vec<GenericValue>);

#[derive(Clone, Copy, PartialEq)]
enum GenericValue {
    Type(DType),
    Const(ConstValue),
    Any,
}

impl DeclaredChoice {
    fn of(kernel: &Kernel, variant: &Variant) -> DeclaredChoice {
        let of_type = |name: &Ident| variant.types.iter().find(|(own, _)| name == own);
        let of_const = |name: &Ident| variant.consts.iter().find(|(own, _)| name == own);
        let value = |generic: &GenericParam| match generic {
            GenericParam::Type { name, .. } => of_type(name).map(|(_, dtype)| GenericValue::Type(*dtype)),
            GenericParam::Const { name, .. } => of_const(name).map(|(_, value)| GenericValue::Const(*value)),
        };
        DeclaredChoice(named(kernel).filter_map(value).collect())
    }

    fn without(&self, is_open: &[bool]) -> DeclaredChoice {
        let value = |(&value, &is_open)| if is_open { GenericValue::Any } else { value };
        DeclaredChoice(self.0.iter().zip(is_open).map(value).collect())
    }

    /// This choice with each value in place of `Any`; those of the last one differ first.
    fn completed(&self, generics: &[&GenericParam]) -> Vec<DeclaredChoice> {
        let mut all = vec![self.clone()];
        for (at, generic) in generics.iter().enumerate() {
            if self.0[at] == GenericValue::Any {
                let values = domain(generic).unwrap_or_default();
                let with = |choice: &DeclaredChoice, value| {
                    let mut choice = choice.clone();
                    choice.0[at] = value;
                    choice
                };
                all = all.iter().flat_map(|choice| values.iter().map(|&value| with(choice, value))).collect();
            }
        }
        all
    }
}

impl GenericValue {
    /// An argument of the kernel's choice.
    fn tokens(self, generic: &GenericParam) -> TokenStream {
        let name = generic.name();
        match self {
            GenericValue::Type(dtype) => element_path(dtype),
            GenericValue::Const(value) => {
                let value = constant(value);
                quote! { { #value } }
            }
            GenericValue::Any => quote! { #name },
        }
    }
}

/// The values that a generic can have, if an implementation can be generic over it.
fn domain(generic: &GenericParam) -> Option<Vec<GenericValue>> {
    match generic {
        GenericParam::Type { .. } => Some(DType::ALL.into_iter().map(GenericValue::Type).collect()),
        GenericParam::Const { ty: ConstType::Bool, .. } => {
            Some([false, true].map(|value| GenericValue::Const(ConstValue::Bool(value))).to_vec())
        }
        GenericParam::Const { .. } => None,
    }
}

/// Whether the generic at a position may have any value, whatever the others are.
fn is_open(generic: &GenericParam, at: usize, choices: &[DeclaredChoice]) -> bool {
    let Some(domain) = domain(generic) else { return false };
    let class = match generic {
        GenericParam::Type { traits, .. } if !traits.is_empty() => return true,
        GenericParam::Type { bound, .. } => *bound,
        GenericParam::Const { .. } => Class::Any,
    };
    let mut allowed = domain
        .into_iter()
        .filter(|value| !matches!(value, GenericValue::Type(dtype) if !class.contains(*dtype)));
    allowed.all(|value| {
        choices.iter().all(|choice| {
            let mut wanted = choice.clone();
            wanted.0[at] = value;
            choices.contains(&wanted)
        })
    })
}

/// The position of a choice among those that complete its group.
fn position<'k>(generics: impl Iterator<Item = &'k GenericParam>) -> TokenStream {
    generics.fold(TokenStream::new(), |position, generic| {
        let name = generic.name();
        let (own, count) = match generic {
            GenericParam::Type { .. } => {
                (quote! { <#name as ::dsl_runtime::Element>::DTYPE as usize }, DType::ALL.len())
            }
            GenericParam::Const { .. } => (quote! { #name as usize }, 2),
        };
        let count = Literal::usize_unsuffixed(count);
        if position.is_empty() {
            own
        } else {
            quote! { (#position) * #count + (#own) }
        }
    })
}
