//! Lowers the first variant of a kernel in a file to PTX without rustc: `emit KERNEL.rs OUT_STEM [num_warps
//! [programs]]` writes `OUT_STEM.sm_80.ptx`, `OUT_STEM.sm_90a.ptx`, the schedule of each specialization,
//! and `OUT_STEM.txt`, which lists each one's entry, threads, programs per block, shared bytes and guards. For measuring choices that the attribute does
//! not offer.

use lowering::backend::nvptx::{self, Arch};
use lowering::driver::pipeline;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;
use lowering::mlir::Session;
use tile_ir::frontend::syntax;
use tile_ir::frontend::typeck;
use tile_ir::support::diagnostic::Errors;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, source, stem, rest @ ..] = args.as_slice() else {
        panic!("emit KERNEL.rs OUT_STEM [num_warps [programs]]");
    };
    let source = std::fs::read_to_string(source).expect("a kernel's source");
    let argument = |i: usize| rest.get(i).and_then(|text| text.parse().ok());
    let item: syn::ItemFn = syn::parse_str(&source).expect("a function");
    let syn::Meta::List(attribute) = &item.attrs[0].meta else { panic!("#[fuse_kernel(..)]") };
    let function = syn::ItemFn { attrs: vec![], ..item.clone() };
    let mut errors = Errors::new();
    let tokens = quote::quote! { #function };
    let kernel = syntax::parse(attribute.tokens.clone(), tokens, &mut errors).expect("a kernel");
    let variants = typeck::variants(&kernel, &mut errors);
    let mut checked = typeck::check(&kernel, &variants[0]).unwrap_or_else(|errors| panic!("{errors:?}"));
    let requested = KernelRequests::of(&kernel, &variants[0]);
    let requests =
        KernelRequests { num_warps: argument(0).or(requested.num_warps), programs: argument(1), ..requested };
    pipeline::shared(&mut checked.func, requests).expect("valid tile IR");
    let specializations = specializations(&checked.func, requests).expect("bodies that fit");
    let named: Vec<(String, &Specialization)> = specializations
        .iter()
        .map(|specialization| (specialization.name.to_string(), specialization))
        .collect();
    for (name, specialization) in &named {
        let schedule = specialization.plan.schedule.to_string();
        std::fs::write(format!("{stem}.{name}.schedule"), schedule).expect("a file to write");
    }
    let session = Session::new();
    for arch in [Arch::SM_80, Arch::SM_90A] {
        let on_arch: Vec<_> = named
            .iter()
            .filter(|(_, specialization)| specialization.gpus.include(arch.capability))
            .cloned()
            .collect();
        let texts = nvptx::emit(&session, &on_arch, &[arch], None).expect("PTX");
        for (arch, ptx) in texts {
            std::fs::write(format!("{stem}.{}.ptx", arch.name()), ptx).expect("a file to write");
        }
    }
    let lines: String = specializations
        .iter()
        .map(|specialization| {
            let plan = &specialization.plan;
            let guards = &specialization.guards;
            format!(
                "{} {} {} {} {guards:?}\n",
                specialization.name,
                plan.threads(),
                plan.programs,
                plan.shared_bytes()
            )
        })
        .collect();
    std::fs::write(format!("{stem}.txt"), lines).expect("a file to write");
}
