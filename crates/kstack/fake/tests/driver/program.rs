//! `stackhound kstack` with the loaded driver.

use std::process::{Command, Output};

use serde_json::Value;
use stackhound_kstack_fake::report::Behavior;

use crate::world::World;

/// Runs the program, which `scripts/kstack-check.sh` builds. `STACKHOUND_PROGRAM` is its path.
fn kstack(arguments: &[&str]) -> Output {
    let program = std::env::var("STACKHOUND_PROGRAM").expect("STACKHOUND_PROGRAM names the program");
    Command::new(program).arg("kstack").args(arguments).output().expect("the program runs")
}

fn addresses(frames: &Value) -> Vec<u64> {
    let address = |frame: &Value| {
        let text = frame["address"].as_str().expect("an address");
        u64::from_str_radix(text.strip_prefix("0x").expect("a hexadecimal number"), 16).expect("a number")
    };
    frames.as_array().expect("frames").iter().map(address).collect()
}

pub fn shows_the_stack(world: &mut World) {
    let tid = world.thread(Behavior::Waits);
    let capture = world.capture(tid);
    let expected = world.device.capture(&capture).expect("served");
    let (pid, tid) = (capture.pid.to_string(), tid.to_string());
    let output = kstack(&["--pid", &pid, "--tid", &tid, "--user", "--format", "json", "-q"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let thread = &document["threads"][0];
    assert_eq!((thread["pid"].to_string(), thread["tid"].to_string()), (pid, tid));
    assert_eq!(thread["capture"]["kind"], "captured", "{thread}");
    assert_eq!(addresses(&thread["kernel"]), expected.kernel.expect("frames"), "{thread}");
    assert_eq!(addresses(&thread["user"]), expected.user.expect("frames"), "{thread}");
}

/// All threads of the process are shown. Those that do not answer have a reason.
pub fn shows_all_threads(world: &mut World) {
    let waits = world.thread(Behavior::Waits);
    let pid = world.capture(waits).pid.to_string();
    let output = kstack(&["--pid", &pid, "--format", "json", "-q"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let threads = document["threads"].as_array().expect("threads");
    let row = |tid: u32| threads.iter().find(|thread| thread["tid"] == tid).expect("it is shown");
    assert!(row(waits)["kernel"].is_array());
    assert!(threads.len() > 1);
    for thread in threads {
        let (frames, reason) = (&thread["kernel"], &thread["kernel_absent"]);
        assert_ne!(frames.is_array(), reason.is_string(), "{thread}");
    }
}
