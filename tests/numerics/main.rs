//! The whole language on every element type and every device, against references that know nothing of the compiler.
//!
//! `cargo test -p fuse-tests --test numerics [filter]`; the binary also runs by itself on a machine without Rust. It runs
//! on this CPU, at each CPU level that kernels are built for, and on a GPU where there is one.
//! `NUMERICS_REPORT=1` prints the largest error of every operation that is not exact.

mod arrange;
mod async_copy;
mod atomic;
mod attention_backward;
mod cast;
mod cluster;
mod compare;
mod conditions;
mod control;
mod devices;
mod dot;
mod float;
mod functions;
mod integers;
mod levels;
mod memory;
mod programs;
mod random;
mod reduce;
mod scan;
mod shape;
mod special;
mod table;
mod values;
mod view;
mod warpgroup_dot;

use libtest_mimic::Arguments;

fn main() {
    let arguments = Arguments::from_args();
    print(&format!("devices: {}", devices::describe()));
    let all = [
        table::trials(),
        cast::trials(),
        cluster::trials(),
        reduce::trials(),
        shape::trials(),
        special::trials(),
        arrange::trials(),
        scan::trials(),
        dot::trials(),
        warpgroup_dot::trials(),
        random::trials(),
        memory::trials(),
        view::trials(),
        atomic::trials(),
        attention_backward::trials(),
        conditions::trials(),
        control::trials(),
        integers::trials(),
        async_copy::trials(),
        functions::trials(),
        programs::trials(),
        levels::trials(),
    ];
    let trials = all.into_iter().flatten().collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if std::env::var_os("NUMERICS_REPORT").is_some() {
        print(&table::report());
    }
    conclusion.exit();
}

#[expect(clippy::print_stdout, reason = "a test's report")]
fn print(text: &str) {
    println!("{text}");
}
