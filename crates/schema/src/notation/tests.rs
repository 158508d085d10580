use super::*;

#[track_caller]
fn check_error(text: &str, line: u32, expected: &str) {
    let error = parse(text).expect_err("invalid text");
    assert_eq!((error.line, error.expected), (line, expected), "{text}");
}

#[test]
fn all_parts_of_the_notation_are_parsed() {
    let table = parse(
        "bits Flags { 0x10 High 1 Low } # names\n\
         class 0x05 Thread 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {\n\
           0x24 CSwitch, 0x030A Load v0 { A p, B { C u8 ? D u16 }[A], E wsz } v2 either { F u8[3]=Flags }\n\
           0x23 Unknown 0x25 Empty v0 {}\n\
         }",
    )
    .unwrap();
    assert!(table.maps[0].bits);
    assert_eq!(table.maps[0].entries, [(16, "High"), (1, "Low")]);
    let class = &table.classes[0];
    assert_eq!((class.group, class.name), (Some(5), "Thread"));
    let [shared, unknown, empty] = &class.events[..] else { panic!("expected three events: {class:?}") };
    let names: Vec<_> = shared.headers.iter().map(|header| (header.id, header.name)).collect();
    assert_eq!(names, [(0x24, "CSwitch"), (0x030A, "Load")]);
    assert_eq!((unknown.layouts.len(), empty.layouts.len(), empty.layouts[0].fields.len()), (0, 1, 0));
    let [first, second] = &shared.layouts[..] else { panic!("expected two layouts: {shared:?}") };
    assert_eq!((first.from_version, first.packing, first.fields.len()), (0, Packing::Natural, 3));
    let KindText::Struct(members) = &first.fields[1].kind else { panic!("a structure: {first:?}") };
    assert_eq!(first.fields[1].count, CountText::Field("A"));
    assert_eq!((members[0].may_end_here, members[1].may_end_here), (false, true));
    assert_eq!((second.from_version, second.packing), (2, Packing::Either));
    assert_eq!((second.fields[0].count, second.fields[0].map), (CountText::Fixed(3), Some("Flags")));
}

#[test]
fn headers_and_shared_fields_are_parsed() {
    let table = parse(
        "values \"Any # Name\" { 1 \"a b\" }\n\
         provider P 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {\n\
           keywords { 0x10 K } tasks { 3 \"A task\" } opcodes { 10 O 11/3 Q }\n\
           fields G { A u8, B u16 }\n\
           1 - l4 t3 o10 k0x10, 2 v2 v0 { ..G, C u8 } v1 { ..v0, D u8 } v2 { E u8, ..v1 }\n\
           3 t3 l5\n\
         }",
    )
    .unwrap();
    assert_eq!((table.maps[0].name, &table.maps[0].entries[..]), ("Any # Name", &[(1, "a b")][..]));
    let provider = &table.providers[0];
    assert_eq!(
        (&provider.tasks[..], &provider.opcodes[..]),
        (&[(3, "A task")][..], &[(10, None, "O"), (11, Some(3), "Q")][..])
    );
    let [shared, alone] = &provider.events[..] else { panic!("expected two events: {provider:?}") };
    let full = HeaderText {
        id: 1,
        name: "-",
        level: Some(4),
        task: Some(3),
        opcode: Some(10),
        keywords: Some(0x10),
    };
    assert_eq!(shared.headers, [full, HeaderText { id: 2, name: "v2", ..HeaderText::default() }]);
    let names = |layout: &LayoutText<'_>| layout.fields.iter().map(|field| field.name).collect::<String>();
    assert_eq!(shared.layouts.iter().map(names).collect::<Vec<_>>(), ["ABC", "ABCD", "EABCD"]);
    let level = Some(5);
    assert_eq!(alone.headers, [HeaderText { id: 3, name: "t3", level, ..HeaderText::default() }]);
    let error = "provider P 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c { 1 A v0 { A u8 }\n 2 B v1 { ..v0 } }";
    check_error(error, 2, "a group that is defined");
}

#[test]
fn errors_name_the_line() {
    check_error("class 0x100 A", 1, "a group or -");
    check_error("class 1 A\nb {", 2, "a GUID");
    check_error("class 1 A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c {\n1 B\nv1 { C }", 3, "a type");
    check_error("class 1 A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c { 1 B v1 {\nC p\nD p } }", 3, "}");
    check_error("class 1 A 3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c { 1 B v300 {} }", 1, "a version such as v2");
    check_error("values A { 1", 1, "the name of a value");
    check_error("\n\nevents", 3, "values, bits, class or provider");
}
