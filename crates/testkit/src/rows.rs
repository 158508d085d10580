//! Writes cases as rows of Sysmon in the format of Winlogbeat: events 7, which identify the files
//! of the modules, then events 10, 8 and 25.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use stackhound_types::HexBytes;

use super::case_builder::TestCase;
use super::code::ImageRegion;
use super::event_spec::{Action, EventSpec, FrameSpec, Parts, World};

/// The image that is known to have no signature.
const UNSIGNED: &str = "planted";

/// The most frames that Sysmon reports of a stack.
const FRAMES_MAX: usize = 24;

/// Returns the rows, and the row number of each case.
pub(super) fn write(world: &World, test_cases: &[&TestCase]) -> (Vec<u8>, Vec<u64>) {
    let mut rows = Rows { text: String::new(), count: 0 };
    for unit in world.units.iter().filter(|unit| unit.spec.location != ImageRegion::Kernel) {
        let sum = format!("{:X}", HexBytes(&Sha256::digest(unit.file.write())));
        let mut fields = vec![
            ("ProcessId", "900".to_owned()),
            ("Image", unit.spec.path.to_owned()),
            ("ImageLoaded", unit.spec.path.to_owned()),
            ("Hashes", format!("SHA256={sum}")),
        ];
        // The signatures of other images are not known.
        if unit.spec.key == UNSIGNED {
            fields.extend([("Signed", "false".to_owned()), ("SignatureStatus", "Unavailable".to_owned())]);
        }
        rows.row(7, &fields);
    }
    let locations = test_cases.iter().map(|test_case| {
        event(world, &test_case.event_spec, &mut rows);
        rows.count
    });
    let locations = locations.collect();
    (rows.text.into_bytes(), locations)
}

fn event(world: &World, event_spec: &EventSpec, rows: &mut Rows) {
    let program = |key: &str| world.units[world.index(key)].spec.path.to_owned();
    let pid = 4000 + 4 * rows.count;
    let mut fields = vec![
        ("SourceProcessId", pid.to_string()),
        ("SourceThreadId", (pid + 2).to_string()),
        ("SourceImage", program(event_spec.actor.program())),
        ("TargetProcessId", "700".to_owned()),
    ];
    match event_spec.action {
        Action::Open(target, access) => {
            fields.push(("TargetImage", program(target)));
            if let Some(access) = access {
                fields.push(("GrantedAccess", format!("{access:#x}")));
            }
            if event_spec.parts != Parts::Kernel {
                let frames: Vec<String> =
                    event_spec.stack.iter().take(FRAMES_MAX).map(|spec| frame(world, *spec)).collect();
                fields.push(("CallTrace", frames.join("|")));
            }
            rows.row(10, &fields);
        }
        Action::Start(at, target, function) => {
            let module = match at {
                FrameSpec::In(unit, _) => world.units[unit].spec.path,
                FrameSpec::At(_) | FrameSpec::At32(_) => "-",
            };
            fields.extend([
                ("TargetImage", program(target.unwrap_or(event_spec.actor.program()))),
                ("NewThreadId", (pid + 3).to_string()),
                ("StartAddress", format!("0x{:016X}", world.address(at))),
                ("StartModule", module.to_owned()),
                ("StartFunction", function.unwrap_or("-").to_owned()),
            ]);
            rows.row(8, &fields);
        }
        Action::Tamper(kind) => {
            let program = program(event_spec.actor.program());
            let fields = [("ProcessId", pid.to_string()), ("Image", program), ("Type", kind.to_owned())];
            rows.row(25, &fields);
        }
        Action::Call(_) | Action::Load(_) | Action::Wait | Action::Sample | Action::Change(_) => {
            unreachable!("Sysmon does not report {:?}", event_spec.action)
        }
    }
}

fn frame(world: &World, frame: FrameSpec) -> String {
    match frame {
        FrameSpec::In(unit, offset) => {
            let spec = world.units[unit].spec;
            let width = if spec.location == ImageRegion::Bits32 { "(wow64)" } else { "" };
            format!("{}+{offset:x}{width}", spec.path)
        }
        FrameSpec::At(address) => format!("UNKNOWN({address:016X})"),
        FrameSpec::At32(address) => format!("UNKNOWN({address:016X})(wow64)"),
    }
}

struct Rows {
    text: String,
    count: u64,
}

impl Rows {
    fn row(&mut self, event: u32, fields: &[(&str, String)]) {
        let (minute, second) = (self.count / 60 % 60, self.count % 60);
        self.count += 1;
        let data: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("\"{name}\":\"{}\"", value.replace('\\', r"\\")))
            .collect();
        let time = format!("2024-01-01T09:{minute:02}:{second:02}.000Z");
        let written = writeln!(
            self.text,
            "{{\"@timestamp\":\"{time}\",\"winlog\":{{\"provider_name\":\"Microsoft-Windows-Sysmon\",\
             \"channel\":\"Microsoft-Windows-Sysmon/Operational\",\"computer_name\":\"desktop.contoso.example\",\
             \"event_id\":{event},\"event_data\":{{{}}}}}}}",
            data.join(",")
        );
        written.expect("writing to a string succeeds");
    }
}
