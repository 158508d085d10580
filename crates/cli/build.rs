//! Restricts the search for libraries of the Windows program to the system folder
//! (`LOAD_LIBRARY_SEARCH_SYSTEM32`). Libraries in the folder of an elevated program would otherwise
//! be loaded into it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of_target = |key: &str| std::env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if of_target("OS") == "windows" && of_target("ENV") == "msvc" {
        println!("cargo:rustc-link-arg-bins=/DEPENDENTLOADFLAG:0x800");
    }
}
