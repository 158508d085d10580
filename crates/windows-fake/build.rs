//! Passes the list of exports to the linker: the functions of the fake under their real names, and
//! forwarders for all other functions of the replaced library. `scripts/with-fake` generates the
//! list from the installed Wine.

fn main() {
    println!("cargo:rerun-if-env-changed=STACKHOUND_FAKE_EXPORTS");
    if let Ok(exports) = std::env::var("STACKHOUND_FAKE_EXPORTS") {
        println!("cargo:rerun-if-changed={exports}");
        println!("cargo:rustc-cdylib-link-arg={exports}");
    }
}
