//! Random kernels: every element bit for bit what loops give.

use fuse_test_kernels::case::{Job, Program};
use fuse_test_kernels::programs::PROGRAMS;
use libtest_mimic::{Failed, Trial};

use crate::compare::show;
use crate::devices::{Backend, backends};
use crate::values::mask;

pub fn trials() -> Vec<Trial> {
    let trial = |backend: Backend, program: &'static Program| {
        Trial::test(format!("programs::{}::{backend}", program.seed), move || check(program, backend))
    };
    backends()
        .into_iter()
        .flat_map(|backend| PROGRAMS.iter().map(move |program| trial(backend, program)))
        .collect()
}

fn check(program: &'static Program, backend: Backend) -> Result<(), Failed> {
    let elements = |bytes: &[u8]| -> Vec<u64> {
        let (chunks, _) = bytes.as_chunks::<8>();
        chunks.iter().map(|chunk| u64::from_le_bytes(*chunk) & mask(program.dtype)).collect()
    };
    let wanted = elements(program.output);
    for shift in [0, 1] {
        let job = Job { device: backend.device()?, operands: vec![elements(program.input)], shift };
        let found = (program.run)(&job, wanted.len())?.concat();
        if let Some(i) = (0..wanted.len()).find(|&i| found[i] != wanted[i]) {
            let (found, wanted) = (show(found[i], program.dtype), show(wanted[i], program.dtype));
            return Err(format!("element {i} is {found}, not {wanted}, in\n{}", program.text).into());
        }
    }
    Ok(())
}
