use super::*;

fn named<V>(value: V, name: &str) -> Named<V> {
    Named { value, name: name.into(), message: None }
}

fn provider() -> ProviderDescription {
    let opcode = |task, value, name| OpcodeDescription { task, named: named(value, name) };
    ProviderDescription {
        levels: vec![named(16, "Chatty")],
        tasks: vec![named(7, "Request")],
        opcodes: vec![opcode(None, 11, "Again"), opcode(Some(7), 11, "Retry"), opcode(Some(7), 1, "Begin")],
        keywords: vec![named(0x10, "Read"), named(0x30, "Both"), named(0x1_0000_0000_0000, "Slow")],
        channels: vec![named(16, "P/Operational")],
        ..ProviderDescription::default()
    }
}

#[test]
fn own_names_take_precedence_over_standard_names() {
    let provider = provider();
    assert_eq!(
        [4, 16, 9].map(|level| provider.level_name(level)),
        [Some("win:Informational"), Some("Chatty"), None]
    );
    assert_eq!([7, 8].map(|task| provider.task_name(task)), [Some("Request"), None]);
    let opcodes =
        [(7, 11), (8, 11), (7, 1), (8, 1), (8, 99)].map(|(task, opcode)| provider.opcode_name(task, opcode));
    assert_eq!(opcodes, [Some("Retry"), Some("Again"), Some("Begin"), Some("win:Start"), None]);
    assert_eq!(
        [16, 9, 0].map(|channel| provider.channel_name(channel)),
        [Some("P/Operational"), Some("Application"), None]
    );
}

#[test]
fn keywords_are_named_if_their_whole_mask_is_set() {
    let provider = provider();
    let names = |keywords| provider.keyword_names(keywords).collect::<Vec<_>>().join(" ");
    assert_eq!(names(0), "");
    assert_eq!(names(0x10), "Read");
    assert_eq!(names(0x20), "");
    assert_eq!(names(0x30), "Read Both");
    assert_eq!(names(0x11_0000_0000_0010), "Read Slow win:AuditFailure");
}

#[test]
fn messages_are_formatted_for_display() {
    for (message, expected) in [
        ("plain\r\n", "plain"),
        ("a%nb%tc%%d%bx%.%!", "a\nb\tc%d x.!"),
        ("%1!s! of %12 %2!08x!.%n", "%1 of %12 %2."),
        ("%1!unfinished", "%1!unfinished"),
        ("100% of %x%", "100% of %x%"),
        ("%", "%"),
        ("ü%1é", "ü%1é"),
    ] {
        assert_eq!(readable(message), expected, "{message}");
    }
}
