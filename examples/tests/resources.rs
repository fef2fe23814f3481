//! What `ptxas` says of every kernel of the library, where the library was built with one.

use fused_kernels::KERNELS;

/// The most registers that a thread of a kernel takes, in the fast bodies and in the general ones. These numbers only
/// fall, or rise with a measurement that shows the kernel faster for it. A debug build's general bodies report accesses
/// outside a slice, which is not for free: they are not judged.
const REGISTERS: [(&str, u32, u32); 2] = [("add_mul", 28, 36), ("layer_norm", 125, 255)];

#[test]
fn kernels_stay_in_registers() {
    let (mut reported, mut broken) = (0, Vec::new());
    for kernel in KERNELS {
        let limits = REGISTERS.iter().find(|(name, ..)| *name == kernel.name);
        let &(_, fast, general) = limits.unwrap_or_else(|| panic!("no limit for `{}`", kernel.name));
        for module in kernel.variants.iter().flat_map(|variant| variant.modules) {
            for body in module.bodies {
                let Some(resources) = body.resources else { continue };
                reported += 1;
                let is_general = body.facts.is_empty();
                if is_general && module.reports {
                    continue;
                }
                let limit = if is_general { general } else { fast };
                let spilled =
                    resources.spill_store_bytes + resources.spill_load_bytes + resources.stack_bytes;
                if resources.registers > limit || spilled > 0 {
                    broken.push(format!("{} for {}: {resources:?}", body.entry, module.arch));
                }
            }
        }
    }
    if reported == 0 {
        eprintln!("skipped: the library was built without ptxas");
    }
    assert!(broken.is_empty(), "spills, or more registers than allowed:\n{}", broken.join("\n"));
}

#[test]
fn every_module_was_assembled_or_none_was() {
    let modules = || KERNELS.iter().flat_map(|kernel| kernel.variants).flat_map(|variant| variant.modules);
    let assembled = modules().filter(|module| !module.cubins.is_empty()).count();
    assert!(assembled == 0 || assembled == modules().count(), "{assembled} of {} modules", modules().count());
    let general_last = |module: &dsl_runtime::kernel::Module| {
        module.bodies.last().is_some_and(|body| body.facts.is_empty())
            && module.bodies.iter().all(|body| body.resources.is_none() == module.cubins.is_empty())
    };
    assert!(modules().all(general_last), "a module without a body for all arguments, or without a report");
}
