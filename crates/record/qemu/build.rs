//! Builds the plugin as a shared library, which the recorder contains: a program is installed without
//! other files. The plugin has no dependencies, so that the compiler is called directly.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo::rerun-if-changed=plugin/src");
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        return;
    }
    let output = PathBuf::from(variable("OUT_DIR")).join("plugin.so");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args(["--crate-name", "stackhound_qemu", "--crate-type", "cdylib", "--edition", "2024"]);
    compiler.args(["--target", &variable("TARGET"), "-C", "opt-level=3", "-C", "panic=abort"]);
    // All calls from the emulator to the memory of records become one function each.
    compiler.args(["-C", "codegen-units=1"]);
    compiler.args(["-C", "strip=symbols", "-o"]).arg(&output).arg("plugin/src/lib.rs");
    let status = compiler.status().expect("the compiler starts");
    assert!(status.success(), "the plugin cannot be compiled: {status}");
}
