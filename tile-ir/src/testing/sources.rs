//! The kernels of source files.

use quote::ToTokens;

use crate::frontend::syntax::{self, FuseModule, Kernel, ModuleItem};
use crate::support::diagnostic::Errors;

/// The kernels of a source file and of its `#[fuse_module]` modules, as the macros get them.
pub fn kernels(source: &str) -> Vec<Kernel> {
    let file = syn::parse_file(source).expect("a source file");
    let mut errors = Errors::new();
    let mut kernels = vec![];
    for item in file.items {
        match item {
            syn::Item::Fn(mut function) => {
                if let Some(attribute) = take_attribute(&mut function.attrs, "fuse_kernel") {
                    let arguments = match attribute.meta {
                        syn::Meta::List(list) => list.tokens,
                        _ => Default::default(),
                    };
                    kernels.extend(syntax::parse(arguments, function.to_token_stream(), &mut errors));
                }
            }
            syn::Item::Mod(mut module) => {
                let mark = take_attribute(&mut module.attrs, "fuse_module");
                let parse =
                    |_| syntax::parse_module(Default::default(), module.to_token_stream(), &mut errors);
                if let Some(module) = mark.and_then(parse) {
                    kernels.extend(of_module(module, &mut errors));
                }
            }
            _ => {}
        }
    }
    assert!(errors.is_empty(), "{errors:?}");
    kernels
}

/// Removes the attribute of this name, which is not part of a macro's input.
fn take_attribute(attributes: &mut Vec<syn::Attribute>, name: &str) -> Option<syn::Attribute> {
    let position = attributes.iter().position(|attribute| attribute.path().is_ident(name))?;
    Some(attributes.remove(position))
}

fn of_module(module: FuseModule, errors: &mut Errors) -> Vec<Kernel> {
    let mut kernels = vec![];
    for part in module.parts {
        if let ModuleItem::Kernel { attribute, item, .. } = part {
            let kernel = syntax::parse(attribute, item, errors);
            kernels.extend(kernel.map(|kernel| Kernel { items: module.items.clone(), ..kernel }));
        }
    }
    kernels
}
