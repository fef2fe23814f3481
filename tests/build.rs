//! What tests need, whatever the rest is built for: some look at GPU code.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FUSE_ARCH");
    if env::var("FUSE_ARCH").is_ok_and(|archs| archs == "none") {
        println!("cargo::rustc-env=FUSE_ARCH=sm_90a");
    }
}
