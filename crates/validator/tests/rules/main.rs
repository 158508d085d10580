//! Files in the form that Windows writes violate no rule, and a change violates exactly the related
//! rules.

mod file;

use stackhound_validator::Rule::{self, *};
use stackhound_validator::validate;

use self::file::Class::{self, Compressed, Kernel, Live, Relogged, Windows7};
use self::file::{BUFFER, Buffers, LOGFILE, START, T0, event, file, full, perf_info, put, system};

/// A change of a file.
enum Change {
    /// Changes records before the file is built.
    Records(fn(&mut Buffers)),
    /// Changes bytes of the file.
    Bytes(fn(&mut Vec<u8>)),
}
use Change::{Bytes, Records};

/// Offset of the second record in the header buffer.
const HEADER_RECORD: usize = 0x188;
/// Offsets of the data buffers.
const FIRST: usize = BUFFER;
const SECOND: usize = 2 * BUFFER;
const THIRD: usize = 3 * BUFFER;
/// The class of system-configuration events.
const SYSTEM_CONFIG: [u8; 16] =
    [0x91, 0xee, 0x79, 0x9b, 0xfd, 0xb5, 0xc0, 0x41, 0xa2, 0x43, 0x42, 0x48, 0xe2, 0x66, 0xe9, 0xd0];

/// The first record with a hook id.
fn hook_id(buffers: &mut Buffers, hook_id: u16) -> &mut Vec<u8> {
    let with_hook_id = |record: &&mut Vec<u8>| record[6..8] == hook_id.to_le_bytes();
    buffers[0].1.iter_mut().find(with_hook_id).expect("a record with this hook id")
}

fn add(buffers: &mut Buffers, record: Vec<u8>) {
    buffers[0].1.push(record);
}

/// Removes bytes from the end of a kernel record.
fn shorten(record: &mut Vec<u8>, by: u8) {
    record.truncate(record.len() - usize::from(by));
    record[4] -= by;
}

/// A class, a change, and the rules that the changed file violates.
const ROWS: &[(Class, Change, &[Rule])] = &[
    (Live, Bytes(|file| put(file, FIRST, &[5, 0])), &[F01, F02, F04, F05, L12]),
    (Live, Bytes(|file| put(file, 0, &[0xff; 4])), &[F01, F02]),
    (Live, Bytes(|file| file.extend([0; 8])), &[F02, L13]),
    (Live, Bytes(|file| put(file, SECOND + 0x18, &[1])), &[F03]),
    (Live, Bytes(|file| put(file, FIRST + 0x34, &[0x21])), &[F04]),
    (Live, Bytes(|file| put(file, FIRST + 0x2a, &[2])), &[F05]),
    (Live, Records(|buffers| add(buffers, system(0, 2, 25, (4, 8), &[]))), &[F06]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x10, &(START + 30).to_le_bytes())), &[F07]),
    // The header buffer.
    (Live, Bytes(|file| put(file, 0x36, &[0])), &[H01]),
    (Live, Bytes(|file| put(file, 0x48, &[3])), &[H02]),
    (Live, Bytes(|file| put(file, 0x0c, &[1])), &[H03]),
    (Live, Bytes(|file| put(file, 0x20, &[1])), &[H03]),
    (Live, Bytes(|file| put(file, 0x40, &[1])), &[H03]),
    (Live, Bytes(|file| put(file, 0x18, &[1])), &[H04]),
    (Live, Bytes(|file| put(file, 0x10, &[1])), &[H05]),
    (Live, Bytes(|file| put(file, 0x28, &[1])), &[H06]),
    (Windows7, Bytes(|file| put(file, 0x28, &[0, 0])), &[H06]),
    (Live, Bytes(|file| put(file, 0x34, &[0x01])), &[H07]),
    (Relogged, Bytes(|file| put(file, 0x34, &[0x21])), &[H07]),
    (Live, Bytes(|file| put(file, 0x2c, &[0])), &[H08]),
    (Relogged, Bytes(|file| put(file, 0x2c, &[3])), &[H08]),
    (Live, Bytes(|file| file[0x04] -= 4), &[H09, H10]),
    (Windows7, Bytes(|file| put(file, 0x04, &[0x48])), &[H09, H10]),
    (Live, Bytes(|file| put(file, 0x08, &[0, 0])), &[H10]),
    (Live, Bytes(|file| put(file, 0x30, &[0x48, 0])), &[H11]),
    (Compressed, Bytes(|file| put(file, 0x31, &[2])), &[H12]),
    (Live, Bytes(|file| put(file, 0x2a, &[0])), &[F05, H13]),
    (Relogged, Bytes(|file| put(file, 0x2a, &[1])), &[H13]),
    (Live, Bytes(|file| file[HEADER_RECORD + 7] = 1), &[H14, H19]),
    (Live, Bytes(|file| [0x04, 0x08, 0x30].into_iter().for_each(|end| file[end] += 8)), &[H15]),
    (Live, Bytes(|file| file[BUFFER - 1] = 0), &[H16]),
    (Live, Bytes(|file| put(file, 0x50, &[0])), &[H17]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x118 + 6, b"x")), &[H18]),
    (Live, Bytes(|file| file[HEADER_RECORD + 6] = 0x52), &[H19]),
    (Kernel, Bytes(|file| file[HEADER_RECORD + 6] = 6), &[H20]),
    // The logfile header.
    (Live, Bytes(|file| put(file, LOGFILE, &[1])), &[H12, L01, L13, D07]),
    (Live, Bytes(|file| put(file, LOGFILE + 6, &[2, 0])), &[L02]),
    (Live, Bytes(|file| put(file, LOGFILE + 0xf8, &START.to_le_bytes())), &[L03]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x18, &[0])), &[L04]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x28, &[2])), &[L05]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x2c, &[4])), &[L06]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x34, &[0, 0])), &[L07]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x110, &[2])), &[L08]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x40, &[0])), &[L09]),
    (Live, Bytes(|file| put(file, LOGFILE + 0xa0, &[0])), &[L10]),
    (Live, Bytes(|file| put(file, LOGFILE + 0xf4, &[1])), &[L11]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x24, &[5])), &[L12, L13]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x100, &[1])), &[L14]),
    (Live, Bytes(|file| put(file, LOGFILE + 0x08, &9000_u32.to_le_bytes())), &[L15]),
    // Data buffers.
    (Live, Bytes(|file| put(file, FIRST + 0x36, &[1])), &[D01]),
    (Live, Bytes(|file| put(file, FIRST + 0x2c, &[1])), &[D02]),
    (Live, Bytes(|file| put(file, FIRST + 0x0c, &[1])), &[D03]),
    (Live, Bytes(|file| file[FIRST + 0x30] += 8), &[D04]),
    (Live, Bytes(|file| put(file, FIRST + 0x08, &[0, 8])), &[D05]),
    (Live, Bytes(|file| put(file, FIRST + 0x34, &[0x60])), &[D06, D13]),
    (Live, Bytes(|file| put(file, FIRST + 0x34, &[0x24])), &[D08]),
    (Live, Bytes(|file| put(file, SECOND + 0x34, &[0])), &[D09]),
    (Windows7, Bytes(|file| put(file, SECOND + 0x29, &[0])), &[D09]),
    (Live, Bytes(|file| put(file, SECOND + 0x28, &[2])), &[D10]),
    (Live, Bytes(|file| (file[FIRST + 0x18], file[THIRD + 0x18]) = (3, 1)), &[D11]),
    (Live, Bytes(|file| put(file, FIRST + 0x10, &(T0 + 53).to_le_bytes())), &[D12]),
    (Compressed, Bytes(|file| put(file, 512 + 0x48, &[0xff; 4])), &[D13]),
    (Compressed, Bytes(|file| file[512] -= 1), &[F01, F02, F04, L12, D13]),
    (Live, Records(|buffers| buffers[0].1.reverse()), &[D14]),
    (Live, Bytes(|file| put(file, SECOND + 0x48 + 16, &(T0 - 1).to_le_bytes())), &[D15]),
    (Live, Bytes(|file| [0x04, 0x30].into_iter().for_each(|end| file[FIRST + end] += 8)), &[D16]),
    (Live, Records(|buffers| buffers[0].1.clear()), &[D04, D17]),
    (Live, Bytes(|file| file[SECOND - 1] = 0), &[D18]),
    (Live, Bytes(|file| put(file, THIRD + 0x48 + 16, &(T0 + 19).to_le_bytes())), &[D19]),
    (Live, Bytes(|file| put(file, FIRST + 0x10, &(T0 + 20).to_le_bytes())), &[D20]),
    (Relogged, Bytes(|file| put(file, FIRST + 0x10, &T0.to_le_bytes())), &[D21]),
    // Records.
    (Live, Bytes(|file| put(file, FIRST + 0x48 + 3, &[0x90])), &[R01]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x1402)[2] = 4), &[R01]),
    (Kernel, Records(|buffers| shorten(hook_id(buffers, 0x0502), 16)), &[R02]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0301)[1] = 1), &[R03]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0301)[0] = 3), &[R04]),
    (Kernel, Records(|buffers| *hook_id(buffers, 0x0f49) = perf_info(0x0f49, 3, 6, &[0; 24])), &[R04]),
    (Kernel, Records(|buffers| *hook_id(buffers, 0x0f49) = system(0x0f49, 3, 6, (4, 8), &[0; 16])), &[R04]),
    (Kernel, Records(|buffers| put(hook_id(buffers, 0x0f49), 8, &[0xff; 4])), &[R05]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0504)[8] = 9), &[R06]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x1820)[16] += 1), &[R07]),
    (Kernel, Records(|buffers| shorten(hook_id(buffers, 0x1820), 8)), &[R08]),
    (Kernel, Records(|buffers| shorten(hook_id(buffers, 0x1824), 8)), &[R09]),
    (Live, Bytes(|file| put(file, FIRST + 0x48 + 6, &[1])), &[R10]),
    (Live, Bytes(|file| put(file, FIRST + 0x48 + 12, &[0xff; 4])), &[R11]),
    (Live, Records(|buffers| buffers[1].1[0] = event(15, &[(1, b"one"), (12, b"two")])), &[]),
    (Live, Bytes(|file| file[FIRST + 0x48 + 0x50 + 4] = 2), &[R12]),
    (Live, Records(|buffers| *buffers[0].1[0].last_mut().unwrap() = 1), &[R12]),
    (Live, Records(|buffers| buffers[1].1[0] = event(15, &[(2, b"item")])), &[R13]),
    (Live, Records(|buffers| buffers[1].1[0] = event(15, &[(11, b"item"), (12, b"item")])), &[R13]),
    (Live, Records(|buffers| buffers[1].1[0] = event(15, &[(11, b"item"), (11, b"item")])), &[R13]),
    (Live, Records(|buffers| buffers[1].1[0] = event(15, &[(5, b"item")])), &[R14]),
    (Live, Bytes(|file| put(file, SECOND + 0x48 + 0x50 + 12, &[0xff; 4])), &[R15]),
    (Live, Records(|buffers| add(buffers, full(25, SYSTEM_CONFIG, 34, &[]))), &[R16]),
    (Relogged, Records(|buffers| add(buffers, full(25, SYSTEM_CONFIG, 34, &[]))), &[]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0301)[12] = 5), &[R17]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0302)[12] = 5), &[R17]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0502)[8] = 5), &[R18]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x030a)[12] = 5), &[R19]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x1402)[12] = 5), &[R19]),
    (Relogged, Records(|buffers| add(buffers, full(25, SYSTEM_CONFIG, 33, b"a\0\0\0b\0\0\0"))), &[R20]),
    (Relogged, Records(|buffers| add(buffers, full(25, SYSTEM_CONFIG, 33, b"a\0\0\0\\\0\0\0"))), &[]),
    // The protocol of kernel traces. Hook ids are replaced by ids that no rule refers to.
    (Kernel, Records(|buffers| hook_id(buffers, 0x1820)[16] = 0), &[K01]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x1824)[16] += 1), &[K02]),
    (
        Kernel,
        Records(|buffers| hook_id(buffers, 0x1824)[8..16].copy_from_slice(&T0.to_le_bytes())),
        &[D14, K02],
    ),
    (Kernel, Records(|buffers| buffers[0].1[19][6] = 0x42), &[K03]),
    (Kernel, Records(|buffers| [0, 14].into_iter().for_each(|at| buffers[0].1[at][6] = 0x42)), &[K04, K06]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0303)[24] = 8), &[K05]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0005)[6] = 0x42), &[K06]),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0f4a)[6] = 0x4b), &[K07]),
    (
        Kernel,
        Records(|buffers| (hook_id(buffers, 0x0302)[12], hook_id(buffers, 0x0302)[40]) = (4, 4)),
        &[K08],
    ),
    (Kernel, Records(|buffers| hook_id(buffers, 0x0301)[40] = 4), &[K08, K09]),
    (Kernel, Records(|buffers| buffers[0].1[3][28] = 4), &[K09]),
];

#[test]
fn files_as_written_by_windows_violate_no_rule() {
    for class in [Live, Kernel, Windows7, Relogged, Compressed] {
        let report = validate(&file(class, &file::buffers(class)));
        assert_eq!(report.differences(&[]), [""; 0], "{class:?}");
    }
}

#[test]
fn each_change_violates_the_expected_rules() {
    let mut wrong = Vec::new();
    for (row, (class, change, expected)) in ROWS.iter().enumerate() {
        let mut buffers = file::buffers(*class);
        if let Records(change) = change {
            change(&mut buffers);
        }
        let mut bytes = file(*class, &buffers);
        if let Bytes(change) = change {
            change(&mut bytes);
        }
        let differences = validate(&bytes).differences(expected);
        wrong.extend(differences.iter().map(|line| format!("row {row}, {class:?}, {expected:?}: {line}\n")));
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn each_rule_is_violated_by_a_change() {
    let without: Vec<&Rule> = Rule::ALL
        .iter()
        .filter(|rule| !ROWS.iter().any(|(_, _, expected)| expected.contains(rule)))
        .collect();
    assert_eq!(without, [&F01; 0]);
}

/// Truncated and damaged files are checked without a panic.
#[test]
fn arbitrary_bytes_do_not_panic() {
    for class in [Live, Kernel, Windows7, Relogged, Compressed] {
        let whole = file(class, &file::buffers(class));
        for end in 0..whole.len() {
            assert_ne!(validate(&whole[..end]).violated(), [], "{class:?} to {end}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            validate(&bytes);
        }
    }
}
