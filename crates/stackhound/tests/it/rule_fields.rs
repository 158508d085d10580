//! The fields of rules in events of traces. What is expected is what the events were given, with the
//! names and numbers of the Windows headers.

use std::net::IpAddr;

use stackhound::hunt::RuleSession;
use stackhound::rules::Library;
use stackhound::rules::evaluate::{Mode, Verdict};
use stackhound::schema::kernel::class_guid;
use stackhound::schema::provider_guid::KERNEL_AUDIT_API_CALLS;
use stackhound::testing::{RecordBuilder, StackForm, TraceBuilder, incoming};

const NTDLL: u64 = 0x7ffa_1000_0000;
const EVIL: u64 = 0x7ff6_4000_0000;
const UNBACKED: u64 = 0x1f4_3000_02b1;
const KERNEL: [u64; 2] = [0xffff_f801_206f_3a10, 0xffff_f801_2041_0a55];
const FOLDER: &str = r"\Device\HarddiskVolume3\Users\me\";

/// Running processes with an event, and the answers of rules about it.
fn check(event: RecordBuilder, user: &[u64], rows: &[(&str, char)]) {
    let (ntdll, evil) = (r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll", format!("{FOLDER}evil.dll"));
    let (app, lsass) = (format!("{FOLDER}app.exe"), r"\Device\HarddiskVolume3\Windows\System32\lsass.exe");
    let modules = [(0x40_0000, 0x1000, &*app), (NTDLL, 0x20_0000, ntdll), (EVIL, 0x1_0000, &*evil)];
    let trace = TraceBuilder::new().process(4242, "app.exe", &modules).process(
        700,
        "lsass.exe",
        &[(0x40_0000, 0x1000, lsass), (NTDLL, 0x20_0000, ntdll)],
    );
    let trace = match user.is_empty() {
        true => trace.event(event),
        false => trace.event_with_stack(event, StackForm::Walk, &KERNEL, user),
    };
    let events = trace.build().unwrap();
    let mut different = Vec::new();
    for (condition, expected) in rows {
        let text = format!(
            "name: R\nid: 1\nversion: 1.0.0\nmin-engine-version: 3.0.0\nseverity: high\ncondition: >\n  {condition}\n"
        );
        let library = Library::read([("r.yml", text.as_bytes())]);
        assert!(library.errors.is_empty(), "{:?}", library.errors);
        assert!(library.rules[0].condition.is_ok(), "{:?}", library.rules[0].condition);
        let mut session = RuleSession::new(&library, Mode::Strict);
        let (mut record, mut answers) = (0, Vec::new());
        stackhound::Trace::blocks(incoming(events.clone()).unwrap())
            .run(|event| {
                record += 1;
                session.evaluate(event, record, None, &mut answers);
            })
            .unwrap();
        let found = match answers.last().map(|answer| answer.verdict) {
            None => 'n',
            Some(Verdict::Undetermined) => 'u',
            Some(Verdict::Possible) => 'p',
            Some(Verdict::Yes) => 'y',
        };
        if found != *expected {
            different.push(format!("{condition}: {found}, not {expected}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn opened_processes() {
    let open = RecordBuilder::new(KERNEL_AUDIT_API_CALLS, 5, 0)
        .pid(4242)
        .tid(4244)
        .with("TargetProcessId", 700)
        .with("DesiredAccess", 0x1010);
    let rows = [
        ("evt.name = 'OpenProcess'", 'y'),
        ("evt.name = 'OpenThread'", 'n'),
        ("evt.name = 'OpenProcess' and evt.pid = 4242 and ps.pid = 4242", 'y'),
        ("evt.name = 'OpenProcess' and ps.name = 'app.exe'", 'y'),
        ("evt.name = 'OpenProcess' and ps.exe iendswith '\\\\me\\\\app.exe'", 'y'),
        ("evt.name = 'OpenProcess' and evt.arg[pid] = 700", 'y'),
        ("evt.name = 'OpenProcess' and evt.arg[name] = 'lsass.exe'", 'y'),
        ("evt.name = 'OpenProcess' and evt.arg[exe] iendswith '\\\\System32\\\\lsass.exe'", 'y'),
        ("evt.name = 'OpenProcess' and ps.access.mask.names in ('VM_READ')", 'y'),
        ("evt.name = 'OpenProcess' and ps.access.mask.names in ('QUERY_LIMITED_INFORMATION')", 'y'),
        ("evt.name = 'OpenProcess' and ps.access.mask.names in ('ALL_ACCESS', 'VM_WRITE')", 'n'),
        ("evt.name = 'OpenProcess' and ps.access.status = 'Success'", 'y'),
        // Modules of the kernel are not known.
        ("evt.name = 'OpenProcess' and thread.callstack.modules iin ('*evil.dll')", 'u'),
        ("evt.name = 'OpenProcess' and thread.callstack.modules imatches ('*evil.dll')", 'y'),
        ("evt.name = 'OpenProcess' and thread.callstack.is_unbacked", 'y'),
        ("evt.name = 'OpenProcess' and thread.callstack.final_user_module.path iendswith 'evil.dll'", 'n'),
        ("evt.name = 'OpenProcess' and foreach(thread._callstack, $f, $f.is_unbacked)", 'y'),
        (
            "evt.name = 'OpenProcess' and foreach(thread._callstack, $f, $f.module iendswith 'evil.dll' and not $f.is_unbacked)",
            'y',
        ),
        ("evt.name = 'OpenProcess' and foreach(ps._modules, $m, $m.path iendswith 'evil.dll')", 'y'),
        ("evt.name = 'OpenProcess' and foreach(ps._modules, $m, $m.path iendswith 'lsass.exe')", 'n'),
    ];
    check(open, &[NTDLL + 0x9d4c4, UNBACKED, EVIL + 0x10], &rows);
}

#[test]
fn files() {
    // FILE_OVERWRITE_IF, FILE_NON_DIRECTORY_FILE; FILE_SHARE_READ and FILE_SHARE_WRITE.
    let create = RecordBuilder::classic(class_guid::FILE_IO, 64, 2)
        .pid(4242)
        .tid(4244)
        .with("FileObject", 0xffff_9a00_1234_u64)
        .with("CreateOptions", 0x0500_0040)
        .with("FileAttributes", 0x82)
        .with("ShareAccess", 3)
        .with("OpenPath", format!("{FOLDER}stage.tar.DLL"));
    let rows = [
        (
            "evt.name = 'CreateFile' and file.path = '\\\\Device\\\\HarddiskVolume3\\\\Users\\\\me\\\\stage.tar.DLL'",
            'y',
        ),
        ("evt.name = 'CreateFile' and file.name = 'stage.tar.DLL'", 'y'),
        ("evt.name = 'CreateFile' and file.extension = '.DLL'", 'y'),
        ("evt.name = 'CreateFile' and file.extension iin ('.dll', '.exe')", 'y'),
        ("evt.name = 'CreateFile' and file.path.stem iendswith '\\\\stage.tar'", 'y'),
        ("evt.name = 'CreateFile' and file.operation in ('OPEN', 'CREATE')", 'n'),
        ("evt.name = 'CreateFile' and file.operation = 'OVERWRITE_IF'", 'y'),
        ("evt.name = 'CreateFile' and file.share_mode = 'READ|WRITE'", 'y'),
        ("evt.name = 'CreateFile' and file.attributes in ('HIDDEN')", 'y'),
        ("evt.name = 'CreateFile' and file.attributes in ('SYSTEM')", 'n'),
        // Without the end of the operation, the status is not known.
        ("evt.name = 'CreateFile' and file.status = 'Success'", 'u'),
        ("evt.name = 'CreateFile' and file.object = 281473265439284", 'y'),
        ("evt.name = 'CreateFile' and base(file.path) = 'stage.tar.DLL'", 'y'),
    ];
    check(create, &[], &rows);
}

#[test]
fn connections() {
    let connect = RecordBuilder::classic(class_guid::TCP_IP, 12, 2)
        .pid(4242)
        .with("PID", 4242)
        .with("daddr", IpAddr::from([10, 1, 2, 3]))
        .with("saddr", IpAddr::from([192, 168, 0, 9]))
        .with("dport", 443_u16)
        .with("sport", 50000_u16);
    let rows = [
        ("evt.name = 'Connect' and net.dip = 10.1.2.3 and net.sip = 192.168.0.9", 'y'),
        ("evt.name = 'Connect' and net.dip in (10.1.2.4, 10.1.2.5)", 'n'),
        ("evt.name = 'Connect' and cidr_contains(net.dip, '10.0.0.0/8')", 'y'),
        ("evt.name = 'Connect' and cidr_contains(net.dip, '192.168.0.0/16')", 'n'),
        ("evt.name = 'Connect' and net.dport = 443 and net.sport = 50000", 'y'),
        ("evt.name = 'Connect' and net.l4.proto = 'TCP'", 'y'),
        ("evt.name = 'Connect' and ps.name = 'app.exe'", 'y'),
        ("evt.category = 'net'", 'y'),
    ];
    check(connect, &[], &rows);
}

#[test]
fn modules_and_threads() {
    let load = RecordBuilder::classic(class_guid::IMAGE, 10, 3)
        .pid(4242)
        .tid(4244)
        .with("ImageBase", 0x7ff6_5000_0000_u64)
        .with("ImageSize", 0x5000_u64)
        .with("ProcessId", 4242)
        .with("ImageChecksum", 77)
        .with("SignatureLevel", 8_u8)
        .with("SignatureType", 1_u8)
        .with("FileName", format!("{FOLDER}new.dll"));
    let rows = [
        ("evt.name = 'LoadModule' and module.name = 'new.dll' and dll.name = 'new.dll'", 'y'),
        ("evt.name = 'LoadModule' and module.path iendswith '\\\\me\\\\new.dll'", 'y'),
        ("evt.name = 'LoadModule' and module.size = 20480 and module.checksum = 77", 'y'),
        ("evt.name = 'LoadModule' and module.signature.level = 'MICROSOFT'", 'y'),
        ("evt.name = 'LoadModule' and module.signature.type = 'EMBEDDED'", 'y'),
        ("evt.name = 'LoadModule' and module.pid = 4242", 'y'),
    ];
    check(load, &[], &rows);
    let start = RecordBuilder::classic(class_guid::THREAD, 1, 4)
        .pid(4242)
        .tid(4244)
        .with("ProcessId", 700)
        .with("TThreadId", 800)
        .with("Win32StartAddr", NTDLL + 0x100)
        .with("BasePriority", 8_u8);
    let rows = [
        ("evt.name = 'CreateThread' and thread.pid = 700 and evt.pid = 4242", 'y'),
        ("evt.name = 'CreateThread' and evt.arg[tid] = 800", 'y'),
        ("evt.name = 'CreateThread' and thread.prio = 8", 'y'),
        ("evt.name = 'CreateThread' and thread.start_address.module iendswith 'ntdll.dll'", 'y'),
        ("evt.name = 'CreateThread' and thread.start_address = '7ffa10000100'", 'y'),
        ("evt.name = 'CreateThread' and thread.pid != evt.pid", 'y'),
    ];
    check(start, &[], &rows);
}

#[test]
fn started_processes() {
    let start = RecordBuilder::classic(class_guid::PROCESS, 1, 4)
        .pid(4242)
        .tid(4244)
        .with("ProcessId", 900)
        .with("ParentId", 4242)
        .with("SessionId", 1)
        .with("ImageFileName", "cmd.exe")
        .with("CommandLine", r#"C:\Windows\System32\cmd.exe /c "whoami /all""#);
    let rows = [
        ("evt.name = 'CreateProcess' and ps.pid = 900 and ps.ppid = 4242", 'y'),
        ("evt.name = 'CreateProcess' and ps.name = 'cmd.exe' and ps.sessionid = 1", 'y'),
        ("evt.name = 'CreateProcess' and ps.cmdline icontains 'WHOAMI /all'", 'y'),
        ("evt.name = 'CreateProcess' and ps.args in ('/c') and ps.args in ('whoami /all')", 'y'),
        ("evt.name = 'CreateProcess' and ps.parent.name = 'app.exe' and ps.parent.pid = 4242", 'y'),
        ("evt.name = 'CreateProcess' and ps.ancestor[0] = 'app.exe'", 'y'),
        ("evt.name = 'CreateProcess' and evt.arg[pid] = 900 and evt.arg[ppid] = 4242", 'y'),
        // No file of it was loaded yet.
        ("evt.name = 'CreateProcess' and ps.exe iendswith '\\\\lsass.exe'", 'u'),
    ];
    check(start, &[], &rows);
}
