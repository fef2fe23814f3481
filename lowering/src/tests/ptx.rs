//! Laid-out tiles and PTX.

use super::func;
use crate::body::{Requests, bodies};
use crate::mlir::Session;
use crate::target::nvptx::{self, Arch, Stages};
use crate::tile;

#[test]
fn scratch() {
    let func = func(include_str!("layer_norm.txt"));
    let t = std::time::Instant::now();
    let bodies = bodies(&func, Requests::default()).unwrap();
    eprintln!("bodies {:?}", t.elapsed());
    for body in &bodies {
        let d = &body.plan.distributed;
        tile::verify(&d.func).unwrap();
        eprintln!("{} warps {} programs {} shared {} {:?}", body.name, d.num_warps, body.plan.programs, body.plan.shared_bytes(), body.facts);
        eprintln!("{}", tile::print(&d.func, &|op| op.results.first().and_then(|r| d.layouts.get(r)).map(|l| l.to_string())));
    }
    let session = Session::new();
    let named: Vec<_> = bodies.iter().map(|b| (format!("ln_{}", b.name), b)).collect();
    let mut stages = Stages::default();
    let t = std::time::Instant::now();
    let ptx = nvptx::emit(&session, &named, &[Arch::SM_80, Arch::SM_90A], &mut stages).unwrap();
    eprintln!("ptx {:?}", t.elapsed());
    for (arch, text) in &ptx {
        std::fs::write(format!("/tmp/ln.{}.ptx", arch.name()), text).unwrap();
    }
    std::fs::write("/tmp/ln.mlir", &stages.mlir).unwrap();
}
