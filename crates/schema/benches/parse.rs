//! The time to read one property.

use std::borrow::Cow;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stackhound_schema::{OwnedValue, Plan, Utf16, providers_of_manifest};
use stackhound_types::PointerSize::Eight;

const MANIFEST: &[u8] = br#"<provider name="Bench" guid="{9e814aad-3204-11d2-9a82-006008a86939}">
    <events><event value="1" template="T"/></events><templates><template tid="T">
    <data name="Pid" inType="win:UInt32"/>
    <data name="Time" inType="win:FILETIME"/>
    <data name="Status" inType="win:UInt32"/>
    <data name="Path" inType="win:UnicodeString"/>
    <data name="After" inType="win:UInt32"/>
    <data name="Verb" inType="win:AnsiString"/>
    </template></templates></provider>"#;

/// The number of events that each run reads. Divide criterion's time by it.
const EVENTS: u64 = 1_000;

/// Payloads with different values but the same layout and length.
fn payloads(plan: &Plan) -> Vec<Vec<u8>> {
    let payload = |number: u64| {
        let values = [
            ("Pid", OwnedValue::from(number)),
            ("Time", stackhound_types::FileTime(7).into()),
            ("Status", (number % 600).into()),
            ("Path", format!(r"\Device\HarddiskVolume3\Windows\System32\n{number:04}.dll").into()),
            ("After", (number * 7).into()),
            ("Verb", "GET".into()),
        ];
        plan.schema().pack(&values, Eight).expect("a packed payload")
    };
    (0..EVENTS).map(payload).collect()
}

fn parse(criterion: &mut Criterion) {
    let mut manifest = providers_of_manifest(MANIFEST, None).expect("a valid manifest").remove(0);
    let plan = Plan::new(manifest.events.remove(0).schema);
    let payloads = payloads(&plan);
    let property = |name| black_box(plan.schema().property(name).expect("a known property"));
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Elements(EVENTS));
    let mut bench = |name: &str, read: &dyn Fn(&mut u64)| {
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let mut sum = 0;
                read(&mut sum);
                sum
            });
        });
    };
    let parsers = || payloads.iter().map(|payload| plan.parser(payload, Eight));

    let (fixed, after) = (property("Status"), property("After"));
    bench("u32 at a fixed offset", &|sum| {
        parsers().for_each(|parser| *sum += u64::from(parser.parse_at::<u32>(fixed).unwrap_or_default()));
    });
    bench("u32 by its name", &|sum| {
        let name = black_box("Status");
        parsers().for_each(|parser| *sum += u64::from(parser.parse::<u32>(name).unwrap_or_default()));
    });
    bench("u32 after a text of 50 units", &|sum| {
        parsers().for_each(|parser| *sum += u64::from(parser.parse_at::<u32>(after).unwrap_or_default()));
    });
    let (utf16, ansi) = (property("Path"), property("Verb"));
    bench("UTF-16 text of 50 units, borrowed", &|sum| {
        let length = |text: Utf16<'_>| text.len() as u64;
        parsers().for_each(|parser| *sum += parser.parse_at(utf16).map_or(0, length));
    });
    bench("UTF-16 text of 50 units as Cow", &|sum| {
        let length = |text: Cow<'_, str>| text.len() as u64;
        parsers().for_each(|parser| *sum += parser.parse_at(utf16).map_or(0, length));
    });
    bench("8-bit text of 3 bytes as Cow, after a text of 50 units", &|sum| {
        let length = |text: Cow<'_, str>| text.len() as u64;
        parsers().for_each(|parser| *sum += parser.parse_at(ansi).map_or(0, length));
    });
    bench("a missing property", &|sum| {
        let name = black_box("Nothing");
        parsers().for_each(|parser| *sum += u64::from(parser.try_parse::<u32>(name).is_some()));
    });
}

criterion_group!(benches, parse);
criterion_main!(benches);
