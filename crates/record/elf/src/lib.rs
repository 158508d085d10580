//! The functions of 64-bit ELF files for x86-64, by address, with demangled names.
//!
//! Files are untrusted input: whatever is wrong in one is skipped. The crate does not open files, and
//! knows no debug information beyond the tables of symbols.
#![forbid(unsafe_code)]

mod image;

pub use image::{Image, Located, STUB};

/// Demangles a name, without parameters. A suffix `@plt` is kept.
pub fn demangle(name: &str) -> String {
    let (plain, suffix) = match name.strip_suffix(STUB) {
        Some(plain) => (plain, STUB),
        None => (name, ""),
    };
    if let Ok(rust) = rustc_demangle::try_demangle(plain) {
        return format!("{rust:#}{suffix}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let demangled = plain
        .starts_with("_Z")
        .then(|| cpp_demangle::Symbol::new(plain).ok())
        .flatten()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok());
    format!("{}{suffix}", demangled.as_deref().unwrap_or(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_demangled() {
        for (mangled, expected) in [
            ("main", "main"),
            ("malloc@plt", "malloc@plt"),
            ("_ZN3foo3barEi", "foo::bar"),
            ("_ZN3foo3barEi@plt", "foo::bar@plt"),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Z", "_Z"),
            ("_start", "_start"),
        ] {
            assert_eq!(demangle(mangled), expected);
        }
    }
}
