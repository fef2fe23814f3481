//! Kernels with parts that are configured out.

use dsl_runtime::Device;
use fuse_test_kernels::case::Failure;
use fuse_test_kernels::conditions::{configured, of_macro, of_module};
use libtest_mimic::Trial;

use crate::devices::{Backend, backends};

pub fn trials() -> Vec<Trial> {
    let trial = |backend: Backend| {
        Trial::test(format!("conditions::{backend}"), move || Ok(check(&backend.device()?)?))
    };
    backends().into_iter().map(trial).collect()
}

fn check(device: &Device) -> Result<(), Failure> {
    let mut outs = [device.zeros::<i32>(11)?, device.zeros::<i32>(2)?, device.zeros::<i32>(1)?];
    let [own, module, macro_rules] = &mut outs;
    configured(own, 1).grid(1).launch(device)?;
    of_module(module).grid(1).launch(device)?;
    of_macro(macro_rules).grid(1).launch(device)?;
    let found = [outs[0].download()?, outs[1].download()?, outs[2].download()?];
    let wanted: [Vec<i32>; 3] = [(1..12).collect(), vec![1, 2], vec![3]];
    if found == wanted { Ok(()) } else { Err(format!("{found:?}, not {wanted:?}").into()) }
}
