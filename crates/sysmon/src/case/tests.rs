use stackhound_detect::Binaries;

use super::*;
use crate::row::Actor;

/// Converts a row and passes its case to `check`.
fn with_case(row: Row<'_>, check: impl FnOnce(&Case<'_>, &Detector, Option<FrameError>)) {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut cases = Cases::new(detector.lists());
    let mut frames = Vec::new();
    let found = cases.case(&mut detector, &row, &mut frames);
    let RowCase { case, damage, .. } = found.expect("an event that is evaluated");
    check(&case, &detector, damage);
}

fn access(call_trace: &str) -> Row<'_> {
    let target = Aim { pid: Some(7), image: r"C:\Windows\System32\lsass.exe" };
    let actor = Actor { pid: Some(8), image: r"C:\a.exe", ..Actor::default() };
    let action = Action::ProcessAccess { target, access: Some(0x1410), call_trace };
    Row { count: 1, host: "PC", time: None, actor, action }
}

#[test]
fn frames_are_classified() {
    const TRACE: &str = r"C:\Windows\SYSTEM32\ntdll.dll+9c524|UNKNOWN(0000024F64B7B7A1)|UNKNOWN(FFFFF80312345678)|UNKNOWN(0000000000000000)|C:\a.exe+12";
    with_case(access(TRACE), |case, detector, damage| {
        assert_eq!(damage, None);
        let frames = case.stack.frames;
        let image = |frame: &Frame| match frame.code {
            Code::Image(module, offset) => (detector.modules.get(module).name().to_owned(), offset),
            _ => panic!("{frame:?}"),
        };
        assert_eq!(image(&frames[0]), ("ntdll.dll".to_owned(), 0x9c524));
        assert_eq!(image(&frames[4]), ("a.exe".to_owned(), 0x12));
        let others: Vec<_> =
            frames[1..4].iter().map(|frame| (frame.code, frame.mode, frame.address)).collect();
        let expected = [
            (Code::Unbacked, Mode::User, Some(Address(0x24f_64b7_b7a1))),
            (Code::Unknown, Mode::Kernel, Some(Address(0xffff_f803_1234_5678))),
            (Code::Unknown, Mode::User, None),
        ];
        assert_eq!(others, expected);
        assert_eq!((case.stack.user, case.stack.kernel), (Part::Whole, Part::Missing(Gap::NotRecorded)));
        assert!(case.stack.map_is_complete && !case.stack.has_losses && !case.stack.is_at_limit());
        let target = case.event.target.unwrap();
        assert_eq!((target.is_other, target.access), (true, Some(0x1410)));
        assert!(matches!(case.event.services, Services::OneOf(services) if services.len() > 3));
    });
}

#[test]
fn stacks_show_whether_a_process_is_32_bit() {
    const LAYER: &str = r"C:\Windows\SYSTEM32\ntdll.dll+1|C:\Windows\System32\wow64.dll+1|C:\Windows\SysWOW64\ntdll.dll+2(wow64)|C:\a.exe+3(wow64)";
    // 32-bit Windows, where an old version of Sysmon marked a frame that it could not resolve.
    const MARKED: &str =
        r"C:\Windows\SYSTEM32\ntdll.dll+1|C:\Windows\system32\kernel32.dll+2|UNKNOWN(00000000)(wow64)";
    const SHORT_ADDRESS: &str = r"C:\Windows\SYSTEM32\ntdll.dll+1|UNKNOWN(01C71547)|C:\a.exe+3(wow64)";
    const BARE: &str = r"C:\Windows\SYSTEM32\ntdll.dll+1|C:\a.exe+3";
    const ONLY_MARKS: &str = r"C:\Windows\SYSTEM32\ntdll.dll+1|C:\Windows\SysWOW64\ntdll.dll+2(wow64)";
    for (trace, image, expected, marks) in [
        (LAYER, r"C:\a.exe", Some(true), 2),
        (MARKED, r"C:\a.exe", Some(false), 0),
        (SHORT_ADDRESS, r"C:\a.exe", Some(false), 0),
        (BARE, r"C:\a.exe", None, 0),
        (BARE, r"C:\Windows\SysWOW64\a.exe", Some(true), 0),
        (BARE, r"C:\Windows\SysWOW64evil\a.exe", None, 0),
        (ONLY_MARKS, r"C:\a.exe", Some(true), 1),
        ("", r"C:\a.exe", None, 0),
    ] {
        let mut row = access(trace);
        row.actor.image = image;
        with_case(row, |case, _, _| {
            assert_eq!(case.process.is_wow64, expected, "{trace}");
            assert_eq!(case.stack.frames.iter().filter(|frame| frame.is_wow64).count(), marks, "{trace}");
        });
    }
}

#[test]
fn stacks_of_either_limit_may_be_truncated() {
    for (length, expected) in
        [(1, false), (15, false), (16, true), (17, false), (23, false), (24, true), (25, true)]
    {
        let trace = vec![r"C:\a.exe+1"; length].join("|");
        with_case(access(&trace), |case, _, _| assert_eq!(case.stack.is_at_limit(), expected, "{length}"));
    }
}

#[test]
fn missing_and_damaged_stacks_are_marked() {
    with_case(access(""), |case, _, _| assert_eq!(case.stack.user, Part::Missing(Gap::NotRecorded)));
    with_case(access(r"C:\Windows\SYSTEM32\ntdll.dll+1|C:\Windows\Syst"), |case, _, damage| {
        assert_eq!(damage, Some(FrameError { offset: 32 }));
        assert_eq!(case.stack.frames.len(), 2);
        assert_eq!(case.stack.frames[1].code, Code::Unknown);
        assert!(case.stack.has_losses);
    });
    let endless = vec!["a+1"; FRAMES_MAX + 1].join("|");
    with_case(access(&endless), |case, _, damage| {
        assert_eq!((case.stack.frames.len(), damage), (FRAMES_MAX, None));
        assert!(case.stack.has_losses);
    });
}

#[test]
fn thread_starts_are_classified() {
    for (digits, module, function, expected, is_kernel) in [
        ("0000016EF7BA0000", "", "", Some(Code::Unbacked), false),
        ("001A0000", "", "", Some(Code::Unbacked), false),
        ("FFFFEF60CA462460", "", "", Some(Code::Unknown), true),
        ("82A00000", "", "", Some(Code::Unknown), true),
        ("0000000000000000", "", "", Some(Code::Unknown), false),
        ("00007FFF9F40EB60", r"C:\Windows\System32\KERNEL32.DLL", "LoadLibraryA", None, false),
    ] {
        let address = Hex::parse(digits).unwrap();
        let target = Aim { pid: Some(8), image: "b.exe" };
        let action = Action::RemoteThread { target, tid: None, address, module, function };
        with_case(Row { action, ..access("") }, |case, detector, _| {
            let start = case.event.start.unwrap();
            assert_eq!((start.address, start.is_kernel), (address.value(), is_kernel), "{digits}");
            // The thread starts in the process that creates it.
            assert!(!start.is_remote);
            match expected {
                Some(code) => assert_eq!((start.code, start.function), (code, None), "{digits}"),
                None => {
                    let Code::Image(module, OFFSET_UNKNOWN) = start.code else { panic!("{start:?}") };
                    assert_eq!(detector.modules.get(module).name(), "KERNEL32.DLL");
                    assert_eq!(start.function, Some("LoadLibraryA"));
                }
            }
            assert_eq!(case.stack.user, Part::Missing(Gap::NotRecorded));
        });
    }
}

#[test]
fn drivers_are_kernel_frames() {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut cases = Cases::new(detector.lists());
    let driver = |process, is_driver| crate::known::Loaded {
        host: "PC",
        process,
        path: r"C:\Windows\System32\drivers\x.sys",
        sha256: Some([1; 32]),
        stated: crate::row::StatedImage::signed_by("S"),
        is_driver,
    };
    let row = access(r"C:\Windows\SYSTEM32\ntdll.dll+1|C:\windows\system32\drivers\X.sys+2");
    for (loaded, expected) in [(None, Mode::User), (Some(true), Mode::Kernel), (Some(false), Mode::User)] {
        loaded.into_iter().for_each(|is_driver| cases.modules.learn(driver("", is_driver)));
        let mut frames = Vec::new();
        let case = cases.case(&mut detector, &row, &mut frames).expect("an event that is evaluated").case;
        let frame = case.stack.frames[1];
        assert_eq!(frame.mode, expected);
        let Code::Image(module, 2) = frame.code else { panic!("{frame:?}") };
        assert_eq!(detector.modules.get(module).signer.is_some(), loaded.is_some());
    }
}
