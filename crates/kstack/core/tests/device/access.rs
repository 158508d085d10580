//! Access control: opening the device, and sending requests with an open handle.

use stackhound_kstack_core::{Caller, Refusal, open};

use crate::support::{Call, Mock, OPENER, Settings, check_call, request, threads};

#[test]
fn programs_with_the_privilege_may_open() {
    for from_user_mode in [false, true] {
        for pid in [0, 1, 4, OPENER, u32::MAX] {
            for privilege in [false, true] {
                let opened = open(Caller { from_user_mode, pid }, privilege);
                if from_user_mode && privilege && pid != 0 {
                    assert_eq!(opened.map(|opener| opener.number().get()), Ok(pid));
                } else {
                    assert_eq!(opened, Err(Refusal::AccessDenied), "{from_user_mode} {pid} {privilege}");
                }
            }
        }
    }
}

#[test]
fn only_the_opener_may_send_requests() {
    let mock = Mock::new(Settings::DRIVER, threads());
    let valid = request(&mock.threads[0], |_| {});
    for code in [0x22_e000, 0x22_e004, 0, u32::MAX] {
        for from_user_mode in [false, true] {
            for pid in [0, 4, OPENER - 1, OPENER, OPENER + 1, u32::MAX] {
                let caller = Caller { from_user_mode, pid };
                let verdict = check_call(&mock, &Call { caller, code, ..valid.clone() });
                let denied = verdict == Err(Refusal::AccessDenied);
                assert_eq!(denied, !(from_user_mode && pid == OPENER), "{caller:?} {code:#x}");
            }
        }
    }
}

#[test]
fn there_are_two_requests() {
    let mock = Mock::new(Settings::DRIVER, threads());
    let valid = request(&mock.threads[0], |_| {});
    // Every control code of this device type, with every access, function and method, and numbers
    // that differ in one bit.
    let ours = (0..1 << 16).map(|low| 0x22_0000 | low);
    let near = (0..32).flat_map(|bit| [0x22_e000 ^ 1 << bit, 0x22_e004 ^ 1 << bit]);
    for code in ours.chain(near).chain([0, 1, u32::MAX]) {
        let verdict = check_call(&mock, &Call { code, ..valid.clone() });
        let known = matches!(code, 0x22_e000 | 0x22_e004);
        assert_eq!(verdict == Err(Refusal::UnknownRequest), !known, "{code:#x}");
    }
}
