//! Cases as rows of Sysmon, in the form in which Winlogbeat ships them: events 7 that tell whose files the modules are, then
//! events 10 and 8.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use stackhound_types::HexBytes;

use super::book::Draft;
use super::code::Place;
use super::scene::{Parts, Scene, Spot, What, World};

/// Frames that Sysmon tells of a stack, at most.
const FRAMES_MAX: usize = 24;

/// The rows, and the number of each case's.
pub(super) fn write(world: &World, drafts: &[&Draft]) -> (Vec<u8>, Vec<u64>) {
    let mut rows = Rows { text: String::new(), count: 0 };
    for unit in world.units.iter().filter(|unit| unit.spec.place != Place::Kernel) {
        let sum = format!("{:X}", HexBytes(&Sha256::digest(unit.file.write())));
        rows.row(
            7,
            &[
                ("ProcessId", "900".to_owned()),
                ("Image", unit.spec.path.to_owned()),
                ("ImageLoaded", unit.spec.path.to_owned()),
                ("Hashes", format!("SHA256={sum}")),
                ("Signed", "false".to_owned()),
            ],
        );
    }
    let places = drafts.iter().map(|draft| {
        event(world, &draft.scene, &mut rows);
        rows.count
    });
    let places = places.collect();
    (rows.text.into_bytes(), places)
}

fn event(world: &World, scene: &Scene, rows: &mut Rows) {
    let program = |key: &str| world.units[world.index(key)].spec.path.to_owned();
    let pid = 4000 + 4 * rows.count;
    let mut fields = vec![
        ("SourceProcessId", pid.to_string()),
        ("SourceThreadId", (pid + 2).to_string()),
        ("SourceImage", program(scene.who.program())),
        ("TargetProcessId", "700".to_owned()),
    ];
    match scene.what {
        What::Open(target, access) => {
            fields.push(("TargetImage", program(target)));
            if let Some(access) = access {
                fields.push(("GrantedAccess", format!("{access:#x}")));
            }
            if scene.parts != Parts::Kernel {
                let frames: Vec<String> =
                    scene.stack.iter().take(FRAMES_MAX).map(|spot| frame(world, *spot)).collect();
                fields.push(("CallTrace", frames.join("|")));
            }
            rows.row(10, &fields);
        }
        What::Start(at, target, function) => {
            let module = match at {
                Spot::In(unit, _) => world.units[unit].spec.path,
                Spot::At(_) | Spot::NarrowAt(_) => "-",
            };
            fields.extend([
                ("TargetImage", program(target.unwrap_or(scene.who.program()))),
                ("NewThreadId", (pid + 3).to_string()),
                ("StartAddress", format!("0x{:016X}", world.address(at))),
                ("StartModule", module.to_owned()),
                ("StartFunction", function.unwrap_or("-").to_owned()),
            ]);
            rows.row(8, &fields);
        }
        What::Call(_) | What::Load(_) | What::Wait | What::Sample => {
            unreachable!("Sysmon does not tell of {:?}", scene.what)
        }
    }
}

fn frame(world: &World, spot: Spot) -> String {
    match spot {
        Spot::In(unit, offset) => {
            let spec = world.units[unit].spec;
            let width = if spec.place == Place::Narrow { "(wow64)" } else { "" };
            format!("{}+{offset:x}{width}", spec.path)
        }
        Spot::At(address) => format!("UNKNOWN({address:016X})"),
        Spot::NarrowAt(address) => format!("UNKNOWN({address:016X})(wow64)"),
    }
}

/// Rows in the making.
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
        written.expect("a text grows");
    }
}
