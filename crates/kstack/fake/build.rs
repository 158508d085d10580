//! Gives the library the exports of the library that it replaces: its own functions under their
//! real names, and forwarders for all others. `scripts/kstack-check.sh` creates the list from the
//! installed Wine.

fn main() {
    println!("cargo:rerun-if-env-changed=STACKHOUND_FAKE_EXPORTS");
    if let Ok(exports) = std::env::var("STACKHOUND_FAKE_EXPORTS") {
        println!("cargo:rerun-if-changed={exports}");
        println!("cargo:rustc-cdylib-link-arg={exports}");
    }
}
