use proptest::prelude::*;

use super::*;

/// All frames of a text that has no errors.
fn read(text: &str) -> Vec<Frame<'_>> {
    frames(text).map(|frame| frame.unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
}

#[test]
fn each_form_is_read_and_written_back() {
    let module = |path, digits| FrameLocation::Module { path, offset: Hex::parse(digits).unwrap() };
    let unknown = |digits| FrameLocation::Unknown { address: Hex::parse(digits).unwrap() };
    for (text, location, is_wow64, is_kernel) in [
        (
            r"C:\Windows\SYSTEM32\ntdll.dll+9d934",
            module(r"C:\Windows\SYSTEM32\ntdll.dll", "9d934"),
            false,
            false,
        ),
        (r"C:\a b\notepad++.exe+1(wow64)", module(r"C:\a b\notepad++.exe", "1"), true, false),
        ("a.ni.dll+ffe50747", module("a.ni.dll", "ffe50747"), false, false),
        ("a+0", module("a", "0"), false, false),
        ("a+00AbC", module("a", "00AbC"), false, false),
        ("\r\u{3100}+ffffffffffffffff", module("\r\u{3100}", "ffffffffffffffff"), false, false),
        ("UNKNOWN(1)+2", module("UNKNOWN(1)", "2"), false, false),
        ("UNKNOWN(0000024F64B7B7A1)", unknown("0000024F64B7B7A1"), false, false),
        ("UNKNOWN(FFFF800000000000)", unknown("FFFF800000000000"), false, true),
        ("UNKNOWN(FFFF7FFFFFFFFFFF)", unknown("FFFF7FFFFFFFFFFF"), false, false),
        ("UNKNOWN(01C71547)", unknown("01C71547"), false, false),
        ("UNKNOWN(80000000)", unknown("80000000"), false, true),
        ("UNKNOWN(80000000)(wow64)", unknown("80000000"), true, false),
        ("UNKNOWN(0000000080000000)", unknown("0000000080000000"), false, false),
        ("UNKNOWN(00000000)(wow64)", unknown("00000000"), true, false),
    ] {
        let frame = Frame { location, is_wow64 };
        assert_eq!(read(text), [frame], "{text}");
        assert_eq!(frame.to_string(), text);
        assert_eq!(frame.is_kernel(), is_kernel, "{text}");
    }
}

#[test]
fn invalid_frames_are_reported_with_their_offset() {
    for (text, expected) in [
        ("", &[][..]),
        ("a+1|b+2", &[Ok("a+1"), Ok("b+2")]),
        ("a", &[Err(0)]),
        ("+1", &[Err(0)]),
        ("a+", &[Err(0)]),
        ("a+g", &[Err(0)]),
        ("a+ 1", &[Err(0)]),
        ("a+11112222333344445", &[Err(0)]),
        ("a+1|", &[Ok("a+1"), Err(4)]),
        ("a+1||é+2|UNKNOWN()|x|b+3", &[Ok("a+1"), Err(4), Ok("é+2"), Err(10), Err(20), Ok("b+3")]),
        ("UNKNOWN(1", &[Err(0)]),
        ("UNKNOWN(-1)", &[Err(0)]),
        ("(wow64)", &[Err(0)]),
        ("a+1(wow64)(wow64)", &[Err(0)]),
    ] {
        let found: Vec<_> = frames(text).map(|frame| frame.map_err(|error| error.offset)).collect();
        let found: Vec<_> = found.iter().map(|frame| frame.map(|frame| frame.to_string())).collect();
        let expected: Vec<_> = expected.iter().map(|piece| piece.map(str::to_owned)).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn frames_are_written_as_sysmon_writes_them() {
    let frames = [
        Frame::module(r"C:\Windows\System32\ntdll.dll", 0x9d934),
        Frame::module("a.dll", 0),
        Frame::unknown(0x24f_64b7_b7a1),
        Frame::unknown(0).wow64(),
        Frame::module(r"C:\Windows\SysWOW64\ntdll.dll", 0x1c).wow64(),
        Frame::unknown(0x1_0000_0000).wow64(),
    ];
    let expected = r"C:\Windows\System32\ntdll.dll+9d934|a.dll+0|UNKNOWN(0000024F64B7B7A1)|UNKNOWN(00000000)(wow64)|C:\Windows\SysWOW64\ntdll.dll+1c(wow64)|UNKNOWN(0000000100000000)(wow64)";
    assert_eq!(text(frames), expected);
}

/// Numbers with any number of digits, in any case.
fn hex() -> impl Strategy<Value = Hex> {
    "[0-9a-fA-F]{1,16}".prop_map(|digits| Hex::parse(&digits).unwrap())
}

proptest! {
    #[test]
    fn frames_survive_the_text(
        parts in prop::collection::vec((prop::option::of("[^|]{1,12}"), hex(), any::<bool>()), 0..30),
    ) {
        let written: Vec<Frame<'_>> = parts
            .iter()
            .map(|(path, hex, is_wow64)| {
                let location = match path {
                    Some(path) => FrameLocation::Module { path, offset: *hex },
                    None => FrameLocation::Unknown { address: *hex },
                };
                Frame { location, is_wow64: *is_wow64 }
            })
            .collect();
        let text = text(written.iter().copied());
        prop_assert_eq!(read(&text), written);
    }

    #[test]
    fn any_text_survives_its_frames(
        text in "([a-zA-Z+()|0-9é]{0,8}|UNKNOWN\\([0-9A-Fa-f]{0,18}\\)|\\+[0-9a-fA-F]{1,3}|\\(wow64\\)|\\|){0,20}",
    ) {
        let mut at = 0;
        for frame in frames(&text) {
            match frame {
                Ok(frame) => {
                    let written = frame.to_string();
                    prop_assert!(text[at..].starts_with(&written));
                    at += written.len();
                }
                Err(error) => {
                    prop_assert_eq!(error.offset, at);
                    at += text[at..].find('|').unwrap_or(text.len() - at);
                }
            }
            at += 1;
        }
        prop_assert!(text.is_empty() || at == text.len() + 1);
    }

    #[test]
    fn digits_survive(digits in "[0-9a-fA-F]{1,16}") {
        let hex = Hex::parse(&digits).unwrap();
        prop_assert_eq!(hex.to_string(), &*digits);
        prop_assert_eq!(hex.value(), u64::from_str_radix(&digits, 16).unwrap());
        prop_assert_eq!(Hex::parse(&Hex::offset(hex.value()).to_string()).unwrap().value(), hex.value());
        prop_assert_eq!(Hex::offset(hex.value()).to_string(), format!("{:x}", hex.value()));
        prop_assert_eq!(Hex::address(hex.value(), false).to_string(), format!("{:016X}", hex.value()));
    }
}
