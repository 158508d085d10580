//! How long one property takes to be read.

use std::borrow::Cow;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use stackhound_etl::PointerSize::Eight;
use stackhound_schema::{OwnedValue, Plan, Utf16, providers_of_manifest};

const MANIFEST: &[u8] = br#"<provider name="Bench" guid="{9e814aad-3204-11d2-9a82-006008a86939}">
    <events><event value="1" template="T"/></events><templates><template tid="T">
    <data name="Pid" inType="win:UInt32"/>
    <data name="Time" inType="win:FILETIME"/>
    <data name="Status" inType="win:UInt32"/>
    <data name="Path" inType="win:UnicodeString"/>
    <data name="Behind" inType="win:UInt32"/>
    <data name="Verb" inType="win:AnsiString"/>
    </template></templates></provider>"#;

fn parse(criterion: &mut Criterion) {
    let mut manifest = providers_of_manifest(MANIFEST, None).expect("a manifest").remove(0);
    let plan = Plan::new(manifest.events.remove(0).schema);
    let values = [
        ("Pid", OwnedValue::from(1234)),
        ("Time", stackhound_etl::FileTime(7).into()),
        ("Status", 200.into()),
        ("Path", r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll".into()),
        ("Behind", 42.into()),
        ("Verb", "GET".into()),
    ];
    let payload = plan.schema().pack(&values, Eight).expect("a payload");
    let property = |name| plan.schema().property(name).expect("a property");
    let parser = || black_box(&plan).parser(black_box(&payload), Eight);

    let (fixed, behind) = (property("Status"), property("Behind"));
    criterion.bench_function("u32 at a fixed offset", |bench| {
        bench.iter(|| parser().parse_at::<u32>(black_box(fixed)).unwrap_or_default());
    });
    criterion.bench_function("u32 by its name", |bench| {
        bench.iter(|| parser().parse::<u32>(black_box("Status")).unwrap_or_default());
    });
    criterion.bench_function("u32 behind a text of 50 units", |bench| {
        bench.iter(|| parser().parse_at::<u32>(black_box(behind)).unwrap_or_default());
    });
    let (wide, narrow) = (property("Path"), property("Verb"));
    criterion.bench_function("UTF-16 text of 50 units, as it stands", |bench| {
        bench.iter(|| parser().parse_at::<Utf16<'_>>(black_box(wide)).map_or(0, Utf16::len));
    });
    criterion.bench_function("UTF-16 text of 50 units as Cow", |bench| {
        bench.iter(|| parser().parse_at::<Cow<'_, str>>(black_box(wide)).map_or(0, |text| text.len()));
    });
    criterion.bench_function("8-bit text of 3 bytes as Cow, behind a text of 50 units", |bench| {
        bench.iter(|| parser().parse_at::<Cow<'_, str>>(black_box(narrow)).map_or(0, |text| text.len()));
    });
    criterion.bench_function("a missing property", |bench| {
        bench.iter(|| parser().try_parse::<u32>(black_box("Nothing")));
    });
}

criterion_group!(benches, parse);
criterion_main!(benches);
