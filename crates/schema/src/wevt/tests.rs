use proptest::prelude::*;
use stackhound_types::PointerSize::Eight;

use super::*;
use crate::testing::compiled::{self, NONE, RED};
use crate::testing::{decoded, hex, utf16, utf16z};

fn sample() -> ProviderDescription {
    let image = compiled::image(Some(&compiled::manifest()), Some(&compiled::texts()));
    providers_of_image(&image, &[]).unwrap().remove(0)
}

#[test]
fn names_and_numbers_are_read() {
    let provider = sample();
    assert_eq!(provider.guid, Guid(compiled::GUID));
    assert_eq!(&*provider.name, "Compiled-Provider");
    assert_eq!(provider.message.as_deref(), Some("A compiled provider"));
    assert_eq!(provider.channel_name(16), Some("Compiled/Operational"));
    assert_eq!(provider.task_name(7), Some("Request"));
    assert_eq!(provider.tasks[0].message.as_deref(), Some("A request"));
    assert_eq!(provider.keyword_names(0x10).collect::<Vec<_>>(), ["Read"]);
    assert_eq!(provider.level_name(4), Some("win:Informational"));
    assert_eq!([provider.opcode_name(7, 11), provider.opcode_name(8, 11)], [Some("Again"), None]);
    assert_eq!(provider.opcode_name(8, 1), Some("win:Start"));
    let [first, second] = &provider.events[..] else { panic!("expected two events: {:?}", provider.events) };
    assert_eq!((first.id, first.version, &*first.schema.event_name), (258, 3, "Request/Again"));
    assert_eq!(
        (first.channel, first.level, first.opcode, first.task),
        (Some(16), Some(4), Some(11), Some(7))
    );
    assert_eq!(first.keywords, Some(0x10));
    assert_eq!(first.schema.message.as_deref(), Some("%1 of %2%n"));
    assert_eq!((second.id, &*second.schema.event_name, second.schema.fields.len()), (2, "EventID(2)", 0));
    assert_eq!(second.schema.message, None);
}

#[test]
fn payloads_are_decoded_with_compiled_templates() {
    let payload = [
        hex("02 03000000 aabbcc 0100 0200 05 01"),
        utf16("four"),
        utf16z("text"),
        hex("20010db8000000000000000000000001"),
        hex("1000000000000000 fe 2000000000000000 03"),
    ]
    .concat();
    assert_eq!(
        decoded(&sample().events[0].schema, &payload, Eight),
        "n=2 size=3 bytes=0xaabbcc list=[1, 2] pair=[may read|0x4, may read] fixed=four text=text address=2001:db8::1 \
         items=[{key=0x10 inner={value=-2}}, {key=0x20 inner={value=3}}]"
    );
    // Only one of the two colors has a text.
    let red = [hex("01 00000000 0500 0000"), utf16("four"), utf16z(""), vec![0; 16], vec![0; 9]].concat();
    assert!(decoded(&sample().events[0].schema, &red, Eight).starts_with("n=red size=0 bytes=0x list=[5] "));
}

#[test]
fn texts_can_be_in_another_image() {
    let image = compiled::image(Some(&compiled::manifest()), None);
    let provider = providers_of_image(&image, &[]).unwrap().remove(0);
    assert_eq!((provider.message, &provider.tasks[0].message), (None, &None));
    let own = compiled::messages(&[(compiled::PROVIDER_MESSAGE, "own")]);
    let image = compiled::image(Some(&compiled::manifest()), Some(&own));
    let mui = compiled::image(None, Some(&compiled::texts()));
    let provider = providers_of_image(&image, &[b"not an image", &mui]).unwrap().remove(0);
    assert_eq!(provider.message.as_deref(), Some("own"));
    assert_eq!(provider.tasks[0].message.as_deref(), Some("A request"));
}

#[test]
fn channels_have_the_number_of_their_events() {
    let mut manifest = compiled::manifest();
    let at = manifest.windows(4).position(|bytes| bytes == b"CHAN").unwrap();
    manifest[at + 12 + 8] = 99;
    let image = compiled::image(Some(&manifest), None);
    assert_eq!(providers_of_image(&image, &[]).unwrap()[0].channels[0].value, 16);
}

#[test]
fn message_tables_are_read() {
    let table = compiled::messages(&[(1, "one"), (5, "five"), (NONE, "nothing"), (1, "again")]);
    // A block with two 8-bit texts, and one that points outside of the table.
    let ansi = hex(
        "02000000 07000000 08000000 1c000000 09000000 0a000000 ff000000 0800 0000 61620d00 0600 0000 6300 0400",
    );
    let mut messages = Messages::default();
    messages.add(&table);
    messages.add(&ansi);
    messages.add(b"\xff\xff\xff\xff");
    let text = |number| messages.text(number).unwrap_or_default().to_string();
    assert_eq!([1, 5, 7, 8, 9, 2, NONE, RED].map(text), ["one", "five", "ab", "c", "", "", "", ""]);
}

#[test]
fn invalid_images_are_rejected() {
    #[track_caller]
    fn check_error(image: &[u8], expected: &str) {
        let error = providers_of_image(image, &[]).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
    check_error(b"", "a PE image");
    check_error(&[b"MZ", &[0; 100][..]].concat(), "a PE image");
    check_error(&compiled::image(None, Some(&compiled::texts())), "a WEVT_TEMPLATE resource in the image");
    check_error(&compiled::image(Some(b"CRAM"), None), "the signature CRIM");
    let with = |tag: &[u8], by: usize, value: u32| {
        let mut manifest = compiled::manifest();
        let at = manifest.windows(4).position(|bytes| bytes == tag).unwrap() + by;
        manifest[at..at + 4].copy_from_slice(&value.to_le_bytes());
        compiled::image(Some(&manifest), None)
    };
    check_error(&with(b"CRIM", 12, u32::MAX), "the stated number of entries");
    check_error(&with(b"WEVT", 12, u32::MAX), "the stated number of entries");
    check_error(&with(b"WEVT", 0, 7), "the signature WEVT");
    check_error(&with(b"EVNT", 8, u32::MAX), "the stated number of entries");
    check_error(&with(b"TASK", 12 + 24, u32::MAX), "a u32");
}

#[test]
fn events_with_invalid_templates_are_counted() {
    for (tag, by, value) in
        [(b"TEMP", 0, 0_u32), (b"TEMP", 8, 13), (b"TEMP", 12, 5000), (b"TEMP", 44 + 4, 99)]
    {
        let mut manifest = compiled::manifest();
        let at = manifest.windows(4).position(|bytes| bytes == tag).unwrap() + by;
        manifest[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let provider = providers_of_image(&compiled::image(Some(&manifest), None), &[]).unwrap().remove(0);
        assert_eq!((provider.events.len(), provider.skipped), (1, 1), "{by} {value}");
    }
}

/// Many events that share one large template would use much memory.
#[test]
fn the_size_of_descriptions_is_limited() {
    let mut manifest = compiled::manifest();
    let at = manifest.windows(4).position(|bytes| bytes == b"EVNT").unwrap();
    let event = manifest[at + 16..at + 64].to_vec();
    manifest.truncate(at);
    let count = 300_000_u32;
    manifest.extend([b"EVNT".to_vec(), vec![0; 4], count.to_le_bytes().to_vec(), vec![0; 4]].concat());
    manifest.extend(event.repeat(count as usize));
    let error = providers_of_image(&compiled::image(Some(&manifest), None), &[]).unwrap_err().to_string();
    assert!(error.ends_with("a manifest with at most 64 MiB of descriptions"), "{error}");
}

proptest! {
    #[test]
    fn damaged_images_do_not_panic(changes in prop::collection::vec((0_usize..4000, any::<u8>()), 0..8)) {
        let mut image = compiled::image(Some(&compiled::manifest()), Some(&compiled::texts()));
        for (at, byte) in changes {
            let at = at % image.len();
            image[at] = byte;
        }
        crate::fuzz::compiled(&image);
    }
}
