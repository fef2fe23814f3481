//! `numerics` runs the code for every level of CPUs, whatever the rest is built for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=FUSE_CPU_LEVELS=");
}
