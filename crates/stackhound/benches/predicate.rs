//! The cost of evaluating a predicate on one event, whose payload has up to six fields before the
//! field in the predicate.

use std::fs;
use std::io::Cursor;
use std::ops::ControlFlow;

use criterion::{Criterion, criterion_group, criterion_main};
use stackhound::etl::record::Descriptor;
use stackhound::etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound::schema::SchemaStore;
use stackhound::trace::TraceFiles;
use stackhound::{Filter, Guid, Passes, Pid, Pipeline, PointerSize, Predicate, Tid, pred};

const PROVIDER: Guid = Guid([7; 16]);

const MANIFEST: &str = r#"
<instrumentationManifest><instrumentation><events>
  <provider name="P" guid="{07070707-0707-0707-0707-070707070707}" symbol="P">
    <events><event value="7" version="0" template="T"/></events>
    <templates><template tid="T">
      <data name="ProcessId" inType="win:UInt32"/>
      <data name="ThreadId" inType="win:UInt32"/>
      <data name="Object" inType="win:Pointer"/>
      <data name="Url" inType="win:UnicodeString"/>
      <data name="Verb" inType="win:AnsiString"/>
      <data name="Status" inType="win:UInt32"/>
      <data name="Path" inType="win:UnicodeString"/>
    </template></templates>
  </provider>
</events></instrumentation></instrumentationManifest>"#;

/// A trace with one event.
fn etl_file() -> Vec<u8> {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let payload = [
        &812_u32.to_le_bytes()[..],
        &900_u32.to_le_bytes(),
        &0x7ff6_1234_0000_u64.to_le_bytes(),
        &utf16("https://www.example.org/some/longer/path/of/eighty/characters?with=a&query=string\0"),
        b"GET\0",
        &200_u32.to_le_bytes(),
        &utf16("C:\\Windows\\System32\\drivers\\etc\\hosts\0"),
    ]
    .concat();
    let session = Session::default();
    let record = RecordSpec {
        time: session.start,
        pointer_size: PointerSize::Eight,
        header: HeaderSpec::Event {
            provider: PROVIDER,
            descriptor: Descriptor {
                id: 7,
                version: 0,
                channel: 0,
                level: 4,
                opcode: 0,
                task: 0,
                keyword: 0x30,
            },
            property: 0,
            issuer: Issuer::new(Pid(812), Tid(900)),
            activity: Guid::ZERO,
            items: &[],
        },
        payload: Payload::Bytes(&payload),
    };
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a session");
    writer.write(0, &record).expect("a record");
    writer.finish().expect("a trace").0.into_inner()
}

fn bench(criterion: &mut Criterion) {
    let path = std::env::temp_dir().join(format!("stackhound-predicate-{}.etl", std::process::id()));
    fs::write(&path, etl_file()).expect("a file");
    let mut schemas = SchemaStore::new();
    schemas.learn_manifest(MANIFEST.as_bytes()).expect("a manifest");
    let trace = TraceFiles::file(&path).open().expect("a trace");
    let property = pred::property;
    let filters: [(&str, Filter, bool); 11] = [
        ("id is", pred::id_is(7), true),
        ("id is, before a property", property("Url").icontains("nothing") & pred::id_is(8), false),
        ("keyword any", pred::keyword_any(0x10), true),
        ("provider is", pred::provider_is(PROVIDER), true),
        ("integer is", property("ProcessId").is(812), true),
        ("UTF-16 equals", property("Url").equals("https://www.example.org/"), false),
        ("UTF-16 icontains", property("Url").icontains("nothing"), false),
        ("UTF-16 icontains, not ASCII", property("Url").icontains("nöthing"), false),
        ("8-bit equals", property("Verb").equals("GET"), true),
        ("after three texts: UTF-16 iends_with", property("Path").iends_with("\\HOSTS"), true),
        (
            "id, process and two texts",
            pred::id_is(7)
                & pred::pid_is(812)
                & property("Verb").iequals("get")
                & property("Url").starts_with("https"),
            true,
        ),
    ];
    Pipeline::with_schemas(&trace, Passes::One, schemas).run(|view| {
        if view.provider_guid() != Some(PROVIDER) {
            return ControlFlow::Continue(());
        }
        for (name, filter, expected) in &filters {
            let predicate = Predicate::new(filter).expect("known names");
            assert_eq!(predicate.matches(view), *expected, "{name}");
            criterion.bench_function(name, |bencher| {
                bencher.iter(|| predicate.matches(std::hint::black_box(view)))
            });
        }
        ControlFlow::Continue(())
    });
    let _ = fs::remove_file(path);
}

criterion_group!(benches, bench);
criterion_main!(benches);
