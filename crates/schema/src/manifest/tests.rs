use proptest::prelude::*;
use stackhound_types::PointerSize::Eight;

use super::*;
use crate::model::SchemaSource;
use crate::testing::{decoded, hex, utf16, utf16z};

/// A manifest with the given content of its provider, and a string table.
fn manifest(provider: &str, strings: &str) -> String {
    format!(
        r#"<?xml version="1.0"?>
        <instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events">
        <instrumentation xmlns:win="http://manifests.microsoft.com/win/2004/08/windows/events"><events>
        <provider name="Test-Provider" guid="{{9e814aad-3204-11d2-9a82-006008a86939}}" symbol="Test">
        {provider}
        </provider></events></instrumentation>
        <localization><resources culture="en-GB"><stringTable>{strings}</stringTable></resources>
        <resources culture="de-DE"><stringTable><string id="hello" value="Hallo"/></stringTable></resources>
        </localization></instrumentationManifest>"#
    )
}

/// The only provider of a manifest.
#[track_caller]
fn parse(xml: &str) -> ProviderDescription {
    let mut providers = providers_of_manifest(xml.as_bytes(), None).unwrap();
    assert_eq!(providers.len(), 1);
    providers.remove(0)
}

/// Each row is an event as `id.version name`.
#[track_caller]
fn check_names(provider: &str, expected: &[&str]) {
    let manifest = parse(&manifest(provider, ""));
    let names: Vec<String> = manifest
        .events
        .iter()
        .map(|event| format!("{}.{} {}", event.id, event.version, event.schema.event_name))
        .collect();
    assert_eq!(names, expected);
}

/// The payload, decoded along a template, reads as `expected`.
#[track_caller]
fn check_template(template: &str, payload: &[u8], expected: &str) {
    let provider = format!(
        r#"<maps><valueMap name="Color"><map value="1" message="$(string.red)"/><map value="0x2" message="blue "/>
        <map value="0x" message="no number"/></valueMap>
        <bitMap name="Access"><map value="0x1" message="Read"/><map value="0x2" message="Write"/></bitMap></maps>
        <events><event value="1" version="0" template="T"/></events>
        <templates><template tid="T">{template}</template></templates>"#
    );
    let xml = manifest(&provider, r#"<string id="red" value="red"/>"#);
    let manifest = parse(&xml);
    assert_eq!(decoded(&manifest.events[0].schema, payload, Eight), expected);
}

#[test]
fn event_names_consist_of_task_and_opcode() {
    check_names(
        r#"<tasks><task name="Request" value="7" message="$(string.task)"/></tasks>
        <opcodes><opcode name="Again" value="11"/></opcodes>
        <events>
          <event value="1" version="2" task="Request" opcode="win:Start"/>
          <event value="2" task="Request" opcode="win:Info"/>
          <event value="3" task="Request" opcode="Again"/>
          <event value="4" task="Request"/>
          <event value="5" symbol="Symbol"/>
          <event value="6" opcode="Again" symbol="Symbol"/>
          <event value="65535" version="255"/>
          <event value="65536"/> <event value="7" version="256"/> <event value="-1"/> <event/>
        </events>
        <perfTrack><event value="8"/></perfTrack>"#,
        &[
            "1.2 Request/Start",
            "2.0 Request",
            "3.0 Request/Again",
            "4.0 Request",
            "5.0 Symbol",
            "6.0 Again",
            "65535.255 EventID(65535)",
        ],
    );
}

#[test]
fn provider_names_and_messages_are_read() {
    let provider = r#"<events><event value="1" message="$(string.hello)"/><event value="2" message="$(string.none)"/>
        <event value="3" message="as it is"/></events>"#;
    let xml = manifest(provider, r#"<string id="hello" value="Hello %1 &amp; &lt;%2&gt;&#10;"/>"#);
    let manifest = parse(&xml);
    assert_eq!(manifest.guid.to_string(), "9e814aad-3204-11d2-9a82-006008a86939");
    assert_eq!(&*manifest.name, "Test-Provider");
    let messages: Vec<_> =
        manifest.events.iter().map(|event| event.schema.message.as_deref().unwrap()).collect();
    assert_eq!(messages, ["Hello %1 & <%2>\n", "$(string.none)", "as it is"]);
    assert_eq!(manifest.events[0].schema.source, SchemaSource::Manifest);
}

#[test]
fn angle_brackets_in_texts_are_accepted() {
    // Not well-formed, but compilers write such method names into manifests.
    let provider = r#"<events><event value="1" message="$(string.x)" task="<OnCommand>b__1"/></events>"#;
    let xml = manifest(provider, r#"<string id="x" value="<OnCommand> ran"/>"#);
    let manifest = parse(&xml);
    assert_eq!(&*manifest.events[0].schema.event_name, "<OnCommand>b__1");
    assert_eq!(manifest.events[0].schema.message.as_deref(), Some("<OnCommand> ran"));
}

#[test]
fn templates_become_fields() {
    check_template(
        r#"<data name="text" inType="win:UnicodeString"/><data name="n" inType="win:Int32"/>
        <data name="p" inType="win:Pointer"/><data name="id" inType="win:UInt32" outType="win:PID"/>
        <data name="x" inType="win:UInt32" outType="win:HexInt32"/><data name="b" inType="win:Boolean"/>"#,
        &[utf16z("Hi"), hex("ffffffff 0010000000000000 04000000 ff000000 01000000")].concat(),
        "text=Hi n=-1 p=0x1000 id=4 x=0xff b=true",
    );
    check_template(
        r#"<data name="size" inType="win:UInt32"/><data name="bytes" inType="win:Binary" length="size"/>
        <data name="count" inType="win:UInt16"/><data name="list" inType="win:UInt8" count="count"/>
        <data name="pair" inType="win:UInt8" count="2"/><data name="fixed" inType="win:UnicodeString" length="2"/>
        <data name="ip" inType="win:Binary" outType="win:IPv6"/>"#,
        &[hex("02000000 aabb 0300 010203 0405"), utf16("xy"), hex("20010db8000000000000000000000001")]
            .concat(),
        "size=2 bytes=0xaabb count=3 list=[1, 2, 3] pair=[4, 5] fixed=xy ip=2001:db8::1",
    );
    check_template(
        r#"<data name="n" inType="win:UInt8"/><struct name="s" count="n"><data name="a" inType="win:UInt8"/>
        <struct name="t"><data name="b" inType="win:AnsiString"/></struct></struct>
        <data name="z" inType="win:UInt8"/>"#,
        b"\x02\x01x\0\x02y\0\x09",
        "n=2 s=[{a=1 t={b=x}}, {a=2 t={b=y}}] z=9",
    );
    check_template(
        r#"<data name="c" inType="win:UInt32" map="Color"/><data name="d" inType="win:UInt8" map="Color"/>
        <data name="e" inType="win:UInt8" map="Color"/><data name="a" inType="win:UInt8" map="Access"/>
        <data name="f" inType="win:UInt8" map="Missing"/>"#,
        &hex("01000000 02 03 07 01"),
        "c=red d=blue e=3 a=Read|Write|0x4 f=1",
    );
    check_template("", &[1], " +1");
}

#[test]
fn events_with_invalid_templates_are_counted() {
    let provider = r#"<templates>
          <template tid="type"><data name="a" inType="win:Nonsense"/></template>
          <template tid="count"><data name="a" inType="win:UInt8" count="later"/><data name="later" inType="win:UInt8"/>
          </template><template tid="good"/></templates>
        <events><event value="1" template="type"/><event value="2" template="count"/><event value="3" template="none"/>
          <event value="4" template="good"/></events>"#;
    let manifest = parse(&manifest(provider, ""));
    assert_eq!((manifest.events.len(), manifest.skipped), (1, 3));
}

#[test]
fn malicious_documents_are_rejected() {
    #[track_caller]
    fn check_error(xml: &str, expected: &str) {
        let error = providers_of_manifest(xml.as_bytes(), None).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    check_error("", "a provider with a GUID");
    check_error(r#"<provider name="P" guid="7"/>"#, "a provider with a GUID");
    check_error("<a></b>", "well-formed XML");
    check_error("<a", "well-formed XML");
    check_error("<provider name=P>", "well-formed elements with at most 8 levels of nested structures");
    check_error(&"<a/>".repeat(200_001), "at most 200000 elements");
    check_error(
        &manifest(&format!("<template tid='T'>{}", "<struct name='s'>".repeat(9)), ""),
        "at most 8 levels of nested structures",
    );

    // Entities that a document defines are unknown.
    let bomb =
        r#"<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]><provider name="&b;"/>"#;
    check_error(bomb, "well-formed elements with at most 8 levels of nested structures");

    // Many events use one large template.
    let data = r#"<data name="a" inType="win:UInt8"/>"#.repeat(10_000);
    let provider = format!(
        r#"<events>{}</events><templates><template tid="T">{data}</template></templates>"#,
        r#"<event value="1" template="T"/>"#.repeat(10_000)
    );
    check_error(&manifest(&provider, ""), "a manifest with at most 64 MiB of descriptions");
    let provider =
        format!("<events>{}</events>", r#"<event value="1" message="$(string.long)"/>"#.repeat(100_000));
    let long = format!(r#"<string id="long" value="{}"/>"#, "x".repeat(1_000_000));
    check_error(&manifest(&provider, &long), "a manifest with at most 64 MiB of descriptions");
}

/// Content of a provider with everything that has a number.
const WHOLE: &str = r#"<channels><importChannel chid="S" name="System"/>
      <channel chid="O" name="Test/Operational" type="Operational" message="$(string.hello)"/>
      <channel name="Test/Debug" type="Debug"/><channel name="Test/Late" value="0x20"/></channels>
    <levels><level name="Chatty" value="16" message="$(string.hello)"/></levels>
    <keywords><keyword name="Read" mask="0x1"/><keyword name="Slow" mask="0x100000000" message="slow"/></keywords>
    <opcodes><opcode name="Again" value="11"/><opcode name="Both" value="12"/></opcodes>
    <tasks><task name="Request" value="7" message="$(string.task)">
        <opcodes><opcode name="Both" value="13" message="both"/></opcodes></task>
      <task name="Other" value="0x8"/></tasks>
    <events>
      <event value="0x10" version="1" symbol="One" channel="O" level="win:Error" task="Request" opcode="Both"
        keywords="Read  Slow&#10;win:AuditFailure"/>
      <event value="2" channel="S" level="Chatty" task="Other" opcode="Both" keywords="Read"/>
      <event value="3" channel="Test/Debug" level="win:Informational" opcode="Again"/>
      <event value="4" channel="32" level="4" task="7" opcode="13" keywords="0x8000000000000001" symbol="Dumped"/>
      <event value="5" channel="0" level="0" task="0" opcode="0" symbol="Nothing"/>
      <event value="6" channel="Undefined" level="Undefined" task="Undefined" opcode="Undefined" keywords="Read Undefined"/>
    </events>"#;

#[test]
fn numbers_of_events_are_found_by_name() {
    let provider = parse(&manifest(WHOLE, r#"<string id="hello" value="Hello"/>"#));
    let rows: Vec<String> = provider
        .events
        .iter()
        .map(|event| {
            let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| format!("{number:x}"));
            let numbers = [
                event.channel.map(u64::from),
                event.level.map(u64::from),
                event.task.map(u64::from),
                event.opcode.map(u64::from),
                event.keywords,
            ];
            format!("{} {} {}", event.id, event.schema.event_name, numbers.map(number).join(" "))
        })
        .collect();
    assert_eq!(
        rows,
        [
            "16 Request/Both 10 2 7 d 10000100000001",
            "2 Other/Both 8 10 8 c 1",
            "3 Again 11 4 0 b 0",
            "4 Request/Both 20 4 7 d 8000000000000001",
            "5 Nothing 0 0 0 0 0",
            "6 Undefined/Undefined - - - - -",
        ]
    );
    assert_eq!(provider.events[0].symbol.as_deref(), Some("One"));
    assert_eq!(provider.channel_name(17), Some("Test/Debug"));
    assert_eq!(provider.opcode_name(7, 13), Some("Both"));
    assert_eq!(provider.levels[0].message.as_deref(), Some("Hello"));
    assert_eq!(provider.keyword_names(0x1_0000_0001).collect::<Vec<_>>(), ["Read", "Slow"]);
}

#[test]
fn one_file_can_describe_several_providers() {
    let provider = |name: &str, first: char, event: &str| {
        format!(
            r#"<provider name="{name}" guid="{{{first}e814aad-3204-11d2-9a82-006008a86939}}" resourceFileName="r.dll"
            messageFileName="m.dll" parameterFileName="p.dll" message="$(string.hello)">
            <tasks><task name="T" value="{first}"/></tasks>
            <events><event value="{first}" task="T" template="X" message="{event}"/></events>
            <templates><template tid="X"><data name="{name}" inType="win:UInt8"/></template></templates></provider>"#
        )
    };
    let counters = r#"<counters><provider providerName="Counted" providerGuid="{00000000-0000-0000-0000-000000000001}"/></counters>"#;
    let xml = format!(
        r#"<a><instrumentation><events>{}{}<provider name="Bad" guid="none"/></events>{counters}</instrumentation>
        <stringTable><string id="hello" value="Hi"/></stringTable></a>"#,
        provider("First", '1', "one"),
        provider("Second", '2', "two")
    );
    let providers = providers_of_manifest(xml.as_bytes(), None).unwrap();
    let rows: Vec<String> = providers
        .iter()
        .map(|p| {
            let event = &p.events[0];
            let message = event.schema.message.as_deref().unwrap();
            format!("{} {:?} {} {message} {}", p.name, p.message, event.id, event.schema.fields[0].name)
        })
        .collect();
    assert_eq!(rows, [r#"First Some("Hi") 1 one First"#, r#"Second Some("Hi") 2 two Second"#]);
    let files = [&providers[0].resource_file, &providers[0].message_file, &providers[0].parameter_file];
    assert_eq!(files.map(|file| file.as_deref()), [Some("r.dll"), Some("m.dll"), Some("p.dll")]);
}

#[test]
fn texts_of_the_requested_culture_take_precedence() {
    let table = |culture: &str, strings: &[(&str, &str)]| {
        let strings: String =
            strings.iter().map(|(id, text)| format!(r#"<string id="{id}" value="{text}"/>"#)).collect();
        format!(r#"<resources culture="{culture}"><stringTable>{strings}</stringTable></resources>"#)
    };
    let tables = [
        table("fr-FR", &[("a", "fr a"), ("b", "fr b"), ("c", "fr c")]),
        table("de-DE", &[("a", "de a"), ("b", "de b")]),
        table("en-US", &[("a", "en a")]),
    ];
    let xml = format!(
        r#"<a><provider name="P" guid="{{9e814aad-3204-11d2-9a82-006008a86939}}"><events>
        <event value="1" message="$(string.a)"/><event value="2" message=" $(string.b) "/><event value="3" message="$(string.c)"/>
        </events></provider>{}</a>"#,
        tables.concat()
    );
    for (culture, expected) in [
        (None, ["en a", "fr b", "fr c"]),
        (Some("de-de"), ["de a", "de b", "fr c"]),
        (Some("fr-FR"), ["fr a", "fr b", "fr c"]),
        (Some("xx-XX"), ["en a", "fr b", "fr c"]),
    ] {
        let provider = providers_of_manifest(xml.as_bytes(), culture).unwrap().remove(0);
        let messages: Vec<_> =
            provider.events.iter().map(|event| event.schema.message.as_deref().unwrap()).collect();
        assert_eq!(messages, expected, "{culture:?}");
    }
}

#[test]
fn utf16_files_are_read() {
    let xml = manifest(WHOLE, "").replace("?xml version=\"1.0\"", "?xml version=\"1.0\" encoding=\"UTF-16\"");
    let bytes = [vec![0xff, 0xfe], utf16(&xml)].concat();
    assert_eq!(providers_of_manifest(&bytes, None).unwrap(), [parse(&manifest(WHOLE, ""))]);
    assert!(
        looks_like_manifest(&bytes) && looks_like_manifest(b" \n<a>") && !looks_like_manifest(b"MZ\x90<")
    );
    assert!(!looks_like_manifest(b"") && !looks_like_manifest(b"\0<\0\0\0\0\0\0"));
}

proptest! {
    #[test]
    fn damaged_manifests_do_not_panic(changes in prop::collection::vec((0_usize..2000, any::<u8>()), 0..8)) {
        let provider = r#"<maps><bitMap name="M"><map value="0x1" message="x"/></bitMap></maps>
            <events><event value="1" version="0" template="T" task="a" opcode="b"/></events>
            <templates><template tid="T"><data name="n" inType="win:UInt8" map="M"/><struct name="s" count="n">
            <data name="b" inType="win:Binary" length="n"/></struct></template></templates>"#;
        let mut xml = manifest(provider, r#"<string id="x" value="y"/>"#).into_bytes();
        for (at, byte) in changes {
            let at = at % xml.len();
            xml[at] = byte;
        }
        for provider in providers_of_manifest(&xml, None).into_iter().flatten() {
            for event in provider.events {
                let _ = decoded(&event.schema, &[2, 1, 2, 3], Eight);
            }
        }
    }
}
