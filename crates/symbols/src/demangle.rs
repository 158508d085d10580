//! Demangling of the names that linkers use.
//!
//! The result is the qualified name, without return type, parameters and calling convention. This
//! is the form of procedures in PDBs, and the usual one in stacks.

use std::borrow::Cow;

/// Maximum length of a name that is demangled. Compilers truncate decorated names at this length,
/// or write a hash instead.
const MANGLED_LENGTH_MAX: usize = 4096;
/// Maximum length of a demangled name. Otherwise the mangled name is kept.
const LENGTH_MAX: usize = 64 << 10;

/// Demangles C++ (Microsoft) and Rust names. Other names are returned unchanged.
pub fn demangle(name: &str) -> Cow<'_, str> {
    let demangled = match name.as_bytes() {
        _ if name.len() > MANGLED_LENGTH_MAX => None,
        [b'?', ..] => cpp(name),
        [b'_', b'R' | b'Z', ..] | [b'_', b'_', b'R' | b'Z', ..] => rust(name),
        _ => None,
    };
    match demangled {
        Some(demangled) if !demangled.is_empty() && demangled.len() <= LENGTH_MAX => Cow::Owned(demangled),
        _ => Cow::Borrowed(name),
    }
}

/// Like [`demangle`], and for x86 also removes the decoration of C calling conventions: `_name`,
/// `_name@8`, `@name@8`.
pub fn demangle_public(name: &str, x86: bool) -> Cow<'_, str> {
    match demangle(name) {
        Cow::Borrowed(name) if x86 => Cow::Borrowed(undecorate(name)),
        name => name,
    }
}

fn cpp(name: &str) -> Option<String> {
    let mut demangled = undname::demangle(name, undname::Flags::NAME_ONLY).ok()?;
    // Use the compilers' terms for generated functions, such as `scalar deleting destructor'.
    for (short, long) in [("dtor", "destructor"), ("ctor", "constructor")] {
        for end in ["'", " iterator'", " closure'"] {
            let short = format!(" {short}{end}");
            if demangled.contains(&short) {
                demangled = demangled.replace(&short, &format!(" {long}{end}"));
            }
        }
    }
    Some(demangled)
}

fn rust(name: &str) -> Option<String> {
    // Without the hash at the end of legacy names.
    rustc_demangle::try_demangle(name).ok().map(|name| format!("{name:#}"))
}

fn undecorate(name: &str) -> &str {
    let (rest, with_size) = match name.as_bytes() {
        [b'_', ..] => (&name[1..], false),
        [b'@', ..] => (&name[1..], true),
        _ => return name,
    };
    match rest.rsplit_once('@') {
        Some((short, size))
            if !short.is_empty() && !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit()) =>
        {
            short
        }
        _ if with_size => name,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_demangled() {
        for (mangled, name) in [
            ("RtlUserThreadStart", "RtlUserThreadStart"),
            ("?func@MyClass@@UEAAHHH@Z", "MyClass::func"),
            ("??1type_info@@UAE@XZ", "type_info::~type_info"),
            ("??_Gtype_info@@UAEPAXI@Z", "type_info::`scalar deleting destructor'"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("?", "?"),
            ("?no name", "?no name"),
        ] {
            assert_eq!(demangle(mangled), name, "{mangled}");
            assert_eq!(demangle_public(mangled, false), name, "{mangled}");
        }
    }

    #[test]
    fn x86_decoration_of_c_names_is_removed() {
        for (decorated, name) in [
            ("_main", "main"),
            ("__SEH_prolog4", "_SEH_prolog4"),
            ("_RtlUnwind@16", "RtlUnwind"),
            ("@_EH4_CallFilterFunc@8", "_EH4_CallFilterFunc"),
            ("@no_size", "@no_size"),
            ("_not@a_size", "not@a_size"),
            ("_@4", "@4"),
            ("main", "main"),
        ] {
            assert_eq!(demangle_public(decorated, true), name, "{decorated}");
            assert_eq!(demangle_public(decorated, false), decorated);
        }
    }

    /// Nested types, as deep as the length of a name allows.
    #[test]
    fn deep_names_do_not_exhaust_the_stack() {
        for (start, part, end) in [
            ("?f@@YAX", "PEA", "H@Z"),
            ("?f@@YAX", "P6AX", "@Z@Z"),
            ("??$f@", "V?$a@", "H@@@YAXXZ"),
            ("?", "?A0x1@", "@@YAXXZ"),
            ("?f", "@?1?", "@YAXXZ"),
            ("?a@", "??$b@", "@@3HA"),
            ("_RNvC1a1", "NvC1a1", "b"),
            ("_RI", "I", "C1aE"),
            ("_RMC1a", "R", "e"),
        ] {
            for count in [50, 500, MANGLED_LENGTH_MAX / part.len()] {
                demangle(&format!("{start}{}{end}", part.repeat(count)));
            }
        }
    }

    /// Parameters that repeat the previous ones twice.
    #[test]
    fn repeated_names_do_not_exceed_the_limit() {
        let parameters: String = (0..9)
            .map(|at| if at == 0 { "PAUs@@".to_owned() } else { format!("P6AX{0}{0}@Z", at - 1) })
            .collect();
        let templates: String = (0..200).map(|_| "V?$a@V12@V12@").collect();
        for name in [format!("?f@@YAX{parameters}@Z"), format!("??$f@{templates}@@YAXXZ")] {
            assert!(demangle(&name).len() <= LENGTH_MAX);
        }
    }

    proptest! {
        #[test]
        fn any_name_is_demangled_within_the_limit(name in r"(\?|_R|_ZN|\?\?)[?@$_A-Z0-9a-f]{0,80}") {
            prop_assert!(demangle(&name).len() <= LENGTH_MAX);
        }
    }
}
