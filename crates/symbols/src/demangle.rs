//! Names as people write them, from names as linkers have them.
//!
//! What is kept is the qualified name: no return type, parameters, or calling convention. Procedures are written like
//! that in PDBs, and stacks are read like that.

use std::borrow::Cow;

/// Longer names stay as they are. Compilers end a decorated name here, or write a hash instead.
const MANGLED_LENGTH_MAX: usize = 4096;
/// If it becomes longer than this, the mangled name is kept.
const LENGTH_MAX: usize = 64 << 10;

/// Undoes the mangling of C++ (Microsoft) and Rust. Other names stay as they are.
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

/// The same, and on x86 undoes what the calling convention does to names of C: `_name`, `_name@8`, `@name@8`.
pub fn demangle_public(name: &str, x86: bool) -> Cow<'_, str> {
    match demangle(name) {
        Cow::Borrowed(name) if x86 => Cow::Borrowed(undecorate(name)),
        name => name,
    }
}

fn cpp(name: &str) -> Option<String> {
    let mut demangled = undname::demangle(name, undname::Flags::NAME_ONLY).ok()?;
    // As compilers write the functions that they make, such as `scalar deleting destructor'.
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
    // Without the hash that legacy names end in.
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
