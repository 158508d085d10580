//! UTF-16 text for the system, encoded at compile time.

/// Encodes a text as UTF-16. Compilation fails unless the text is ASCII and has `N` characters.
pub const fn wide<const N: usize>(text: &str) -> [u16; N] {
    let bytes = text.as_bytes();
    assert!(bytes.len() == N && text.is_ascii());
    let mut units = [0; N];
    let mut index = 0;
    while index < N {
        units[index] = bytes[index] as u16;
        index += 1;
    }
    units
}

#[cfg(test)]
mod tests {
    use stackhound_kstack_proto::{DEVICE_NAME, LINK_NAME};

    use super::*;

    #[test]
    fn names_are_encoded_as_by_the_standard_library() {
        const DEVICE: [u16; DEVICE_NAME.len()] = wide(DEVICE_NAME);
        const LINK: [u16; LINK_NAME.len()] = wide(LINK_NAME);
        assert!(DEVICE.into_iter().eq(DEVICE_NAME.encode_utf16()));
        assert!(LINK.into_iter().eq(LINK_NAME.encode_utf16()));
    }
}
