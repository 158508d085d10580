//! Gives the library the exports of the one whose place it takes: its own functions under their real names,
//! all others forwarded. `scripts/kstack-check.sh` makes the list from the Wine at hand.

fn main() {
    println!("cargo:rerun-if-env-changed=STACKHOUND_FAKE_EXPORTS");
    if let Ok(exports) = std::env::var("STACKHOUND_FAKE_EXPORTS") {
        println!("cargo:rerun-if-changed={exports}");
        println!("cargo:rustc-cdylib-link-arg={exports}");
    }
}
