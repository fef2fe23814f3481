//! Ceilings that are stored in a folder.

use std::fs;
use std::path::PathBuf;

use expect_test::{Expect, expect};
use fuse_analysis::device::{self, Ceiling, Device, builtin};

/// A folder for one test, which no other run uses.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fuse-analysis-{}-{test}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

#[test]
fn what_is_stored_is_read_and_wins() {
    let folder = folder("stored");
    let measured = Ceiling { nominal: Some(4.8e12), measured: Some(4.2e12), source: "a copy".to_owned() };
    let device = Device { bandwidth: measured, ..builtin::h200() };
    let path = device.store(&folder).unwrap();
    assert_eq!(path.file_name().unwrap(), "nvidia-h200.json");
    assert_eq!(Device::read(&path).unwrap(), device);
    assert_eq!(device::load("h200", &folder).unwrap(), device);
    assert_eq!(device::load("NVIDIA H200", &folder).unwrap(), device);
    assert_eq!(device::load("h100", &folder).unwrap(), builtin::h100());
    // Again: the file is replaced, and nothing is left beside it.
    builtin::h200().store(&folder).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

fn check_file(text: &str, expected: Expect) {
    let folder = folder("file");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("device.json");
    fs::write(&path, text).unwrap();
    let error = Device::read(&path).unwrap_err().to_string();
    expected.assert_eq(&error.replace(&folder.display().to_string(), "<folder>"));
    fs::remove_dir_all(&folder).unwrap();
}

const REST: &str = "\"launch_overhead\": {}, \"registers_per_thread\": 255, \"on_chip_bytes\": 262144";

#[test]
fn files_that_are_no_device() {
    check_file("{}", expect!["<folder>/device.json: missing field `name` at line 1 column 2"]);
    let none = format!("{{ \"name\": \"x\", \"bandwidth\": {{}}, \"scalar\": {{}}, {REST} }}");
    check_file(&none, expect!["device `x` has no positive bandwidth"]);
    let bandwidth = "\"bandwidth\": { \"measured\": 1e12 }";
    check_file(
        &format!("{{ \"name\": \"x\", {bandwidth}, \"scalar\": {{}}, {REST} }}"),
        expect!["device `x` has no positive f32 peak"],
    );
    let negative = "\"scalar\": { \"f32\": { \"measured\": -1 } }";
    check_file(
        &format!("{{ \"name\": \"x\", {bandwidth}, {negative}, {REST} }}"),
        expect!["device `x` has no positive f32 peak"],
    );
}

#[test]
fn a_device_that_is_not_there() {
    let error = device::load("mi300", &folder("none")).unwrap_err();
    expect!["no device `mi300`: there are NVIDIA H200, NVIDIA H100 80GB HBM3; `ceilings --measure-cpu` adds this processor as `cpu`"].assert_eq(&error.to_string());
}
