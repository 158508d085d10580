//! Findings in each format, read by a schema, a parser, or compared with expected text.

mod csv;
mod documents;
mod event_contexts;
mod ndjson;
mod table;

use jsonschema::Validator;
use stackhound_detect::Totals;
use stackhound_detect::alert::Alert;
use stackhound_detect::report::{EventContext, Finding};
use stackhound_export::findings::{FindingsFormat, Writer};

/// The complete output of a writer.
fn written(
    format: FindingsFormat,
    is_colored: bool,
    events: &[(EventContext, Vec<Finding>)],
    alerts: &[Alert],
    totals: &Totals,
) -> String {
    let mut writer = Writer::new(format, is_colored);
    let mut out = Vec::new();
    for (event_context, findings) in events {
        writer.write(&mut out, event_context, findings).unwrap();
    }
    writer.finish(&mut out, alerts, totals, None).unwrap();
    String::from_utf8(out).unwrap()
}

/// The output for events without alerts.
fn lines(format: FindingsFormat, events: &[(EventContext, Vec<Finding>)]) -> Vec<serde_json::Value> {
    let text = written(format, false, events, &[], &Totals::default());
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn schema(text: &str) -> Validator {
    jsonschema::validator_for(&serde_json::from_str(text).expect("JSON")).expect("a schema")
}

/// Checks values against a schema, and reports all errors.
fn validate(schema: &Validator, values: &[serde_json::Value]) {
    for value in values {
        let errors: Vec<_> =
            schema.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
    }
}

#[test]
fn formats_are_parsed_by_their_names() {
    for format in FindingsFormat::ALL {
        assert_eq!(FindingsFormat::of(format.name()), Some(format));
    }
    assert_eq!(FindingsFormat::of("xml"), None);
}

#[test]
fn answers_no_are_not_written() {
    let (event_context, _) = event_contexts::access();
    let no = event_contexts::finding("CS01", event_contexts::no());
    for format in FindingsFormat::ALL {
        let nothing = written(format, false, &[], &[], &Totals::default());
        let with_no =
            written(format, false, &[(event_context.clone(), vec![no.clone()])], &[], &Totals::default());
        assert_eq!(with_no, nothing, "{}", format.name());
    }
}

proptest::proptest! {
    #[test]
    fn equal_events_have_equal_output(events in event_contexts::events()) {
        for format in FindingsFormat::ALL {
            let once = written(format, true, &events, &[], &Totals::default());
            assert!(once == written(format, true, &events, &[], &Totals::default()), "{}", format.name());
        }
    }
}
