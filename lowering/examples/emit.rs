//! Lowers a variant of a kernel in a file to PTX without rustc: `emit FILE.rs[:KERNEL[:VARIANT]] OUT_STEM [num_warps
//! [programs]]`, the first of each where none is named, writes `OUT_STEM.sm_80.ptx`, `OUT_STEM.sm_90a.ptx`, the schedule of each specialization,
//! and `OUT_STEM.txt`, which lists each one's entry, threads, programs per block, shared bytes and guards. For measuring choices that the attribute does
//! not offer.

use lowering::backend::nvptx::{self, Arch};
use lowering::driver::pipeline;
use lowering::driver::specialize::{KernelRequests, specializations};
use lowering::gpu::specialization::Specialization;
use lowering::mlir::Session;
use tile_ir::frontend::typeck;
use tile_ir::support::diagnostic::Errors;
use tile_ir::testing::sources::kernels;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, place, stem, rest @ ..] = args.as_slice() else {
        panic!("emit FILE.rs[:KERNEL[:VARIANT]] OUT_STEM [num_warps [programs]]");
    };
    let argument = |i: usize| rest.get(i).and_then(|text| text.parse().ok());
    let mut place = place.split(':');
    let source = std::fs::read_to_string(place.next().expect("a file")).expect("a kernel's source");
    let (name, index) =
        (place.next(), place.next().map_or(0, |index| index.parse().expect("a variant's index")));
    let mut found = kernels(&source).into_iter();
    let kernel = found.find(|kernel| name.is_none_or(|name| kernel.name == name)).expect("a kernel");
    let variants = typeck::variants(&kernel, &mut Errors::new());
    let variant = &variants[index];
    let mut checked = typeck::check(&kernel, variant).unwrap_or_else(|errors| panic!("{errors:?}"));
    let requested = KernelRequests::of(&kernel, variant);
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
