//! Links the program for Windows so that libraries are taken from the system's folder only (`LOAD_LIBRARY_SEARCH_SYSTEM32`):
//! others that lie beside an elevated program would be loaded into it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if of_target("OS") == "windows" && of_target("ENV") == "msvc" {
        println!("cargo:rustc-link-arg-bins=/DEPENDENTLOADFLAG:0x800");
    }
}
