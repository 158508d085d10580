//! The catalogue of detections: one row each, with its name, title, required inputs, explanation and
//! the function that evaluates it.

pub(crate) mod reason;

use crate::check::{
    Check, callback, changes, dispatch, duplicate_image, entry, kernel, memory, root, sites, start, stubs,
    tampering, target, unbacked, wow64,
};
use crate::verdict::{Input, Inputs, Severity};

/// Identifies a detection, such as CS05.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DetectionId(u8);

impl DetectionId {
    /// All detections, in order.
    pub fn all() -> impl Iterator<Item = DetectionId> {
        (0..DETECTIONS.len() as u8).map(DetectionId)
    }

    /// The detection with this number, starting at 1.
    pub fn new(number: usize) -> Option<DetectionId> {
        (1..=DETECTIONS.len()).contains(&number).then(|| DetectionId(number as u8 - 1))
    }

    /// Parses a name such as `CS05`, in any case.
    pub fn parse(text: &str) -> Option<DetectionId> {
        DetectionId::all().find(|id| id.name().eq_ignore_ascii_case(text))
    }

    /// The index in [`DETECTIONS`].
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// The description of the detection.
    pub fn detection(self) -> &'static Detection {
        &DETECTIONS[self.index()]
    }

    /// The name in output, such as `CS05`.
    pub fn name(self) -> &'static str {
        self.detection().name
    }
}

/// A detection.
#[derive(Clone, Copy, Debug)]
pub struct Detection {
    /// The name, such as `CS01`.
    pub name: &'static str,
    /// A short title.
    pub title: &'static str,
    /// The inputs that its verdict is based on.
    pub needs: Inputs,
    /// The highest severity of its findings.
    pub severity: Severity,
    /// The ATT&CK techniques.
    pub attack: &'static [&'static str],
    /// Its names in Elastic's vocabulary of behaviors (`process.Ext.api.behaviors`), or names like
    /// those.
    pub behaviors: &'static [&'static str],
    /// The function that evaluates it.
    pub(crate) check: Check,
    /// The explanation that `stackhound explain` prints, in sections with headings.
    pub explanation: &'static str,
}

const fn needs(inputs: &[Input]) -> Inputs {
    Inputs::of(inputs)
}

use Input::*;
use Severity::{High, Medium};

/// All detections.
#[rustfmt::skip]
pub const DETECTIONS: [Detection; 30] = [
    Detection { name: "CS01", title: "direct system call from unbacked memory", needs: needs(&[Stack, Modules, KernelEntry]), severity: High, attack: &["T1106", "T1055", "T1562.001"], behaviors: &["direct_syscall", "shellcode"], check: entry::unbacked, explanation: include_str!("explain/cs01.txt") },
    Detection { name: "CS02", title: "direct system call from an image", needs: needs(&[Stack, Modules, KernelEntry]), severity: High, attack: &["T1106", "T1562.001"], behaviors: &["direct_syscall"], check: entry::image, explanation: include_str!("explain/cs02.txt") },
    Detection { name: "CS03", title: "indirect system call: service/stub mismatch", needs: needs(&[Stack, Modules, Service, ImageBytes]), severity: High, attack: &["T1106"], behaviors: &["indirect_syscall"], check: stubs::mismatch, explanation: include_str!("explain/cs03.txt") },
    Detection { name: "CS04", title: "indirect system call: unknown stub", needs: needs(&[Stack, Modules, ImageBytes]), severity: Medium, attack: &["T1106"], behaviors: &["indirect_syscall"], check: stubs::unknown_site, explanation: include_str!("explain/cs04.txt") },
    Detection { name: "CS05", title: "indirect system call: private stub", needs: needs(&[Stack, Modules, ImageBytes]), severity: High, attack: &["T1106", "T1027.007"], behaviors: &["indirect_syscall", "native_api"], check: stubs::callee, explanation: include_str!("explain/cs05.txt") },
    Detection { name: "CS06", title: "native API called directly", needs: needs(&[Stack, Modules, ImageIdentity]), severity: Medium, attack: &["T1106"], behaviors: &["native_api"], check: entry::native_api, explanation: include_str!("explain/cs06.txt") },
    Detection { name: "CS07", title: "unbacked executable memory calls the native API", needs: needs(&[Stack, Modules, CompiledCode]), severity: High, attack: &["T1055", "T1620"], behaviors: &["shellcode"], check: unbacked::caller, explanation: include_str!("explain/cs07.txt") },
    Detection { name: "CS08", title: "unbacked executable memory in the stack", needs: needs(&[Stack, Modules, CompiledCode]), severity: Medium, attack: &["T1055", "T1620"], behaviors: &["unbacked_code"], check: unbacked::elsewhere, explanation: include_str!("explain/cs08.txt") },
    Detection { name: "CS09", title: "unbacked executable memory outside of JIT compilers", needs: needs(&[Stack, Modules, Regions, CompiledCode]), severity: High, attack: &["T1055"], behaviors: &["unbacked_code"], check: unbacked::region, explanation: include_str!("explain/cs09.txt") },
    Detection { name: "CS10", title: "remapped or second ntdll (unhooking)", needs: needs(&[Stack, Modules]), severity: High, attack: &["T1562.001"], behaviors: &["parallel_ntdll"], check: duplicate_image::second_ntdll, explanation: include_str!("explain/cs10.txt") },
    Detection { name: "CS11", title: "call stack spoofing: return address not preceded by a call", needs: needs(&[Stack, Modules, ImageBytes]), severity: High, attack: &["T1055", "T1036"], behaviors: &["image_rop"], check: sites::no_call, explanation: include_str!("explain/cs11.txt") },
    Detection { name: "CS12", title: "call stack spoofing: ROP gadget", needs: needs(&[Stack, Modules, ImageBytes]), severity: High, attack: &["T1055"], behaviors: &["image_rop"], check: sites::gadget, explanation: include_str!("explain/cs12.txt") },
    Detection { name: "CS13", title: "call stack spoofing: return address outside any function", needs: needs(&[Stack, Modules, ImageBytes, UnwindData]), severity: Medium, attack: &["T1055"], behaviors: &["outside_function"], check: sites::outside, explanation: include_str!("explain/cs13.txt") },
    Detection { name: "CS14", title: "truncated stack", needs: needs(&[Stack, Modules]), severity: Medium, attack: &["T1055", "T1562"], behaviors: &["truncated_stack"], check: root::truncated, explanation: include_str!("explain/cs14.txt") },
    Detection { name: "CS15", title: "stack root does not match the thread's start address", needs: needs(&[Stack, Modules, ThreadStart]), severity: Medium, attack: &["T1055"], behaviors: &["root_mismatch"], check: root::mismatch, explanation: include_str!("explain/cs15.txt") },
    Detection { name: "CS16", title: "call stack spoofing: caller/callee mismatch", needs: needs(&[Stack, Modules, ImageBytes, UnwindData]), severity: High, attack: &["T1055"], behaviors: &["broken_linkage"], check: sites::linkage, explanation: include_str!("explain/cs16.txt") },
    Detection { name: "CS17", title: "proxy call through a thread-pool callback", needs: needs(&[Stack, Modules]), severity: Medium, attack: &["T1055", "T1129"], behaviors: &["proxy_call"], check: dispatch::proxy, explanation: include_str!("explain/cs17.txt") },
    Detection { name: "CS18", title: "module stomping or patched image", needs: needs(&[Stack, Modules, Regions, MemoryBytes, ImageBytes]), severity: High, attack: &["T1055.012", "T1055.001"], behaviors: &["image_hooked"], check: memory::stomped, explanation: include_str!("explain/cs18.txt") },
    Detection { name: "CS19", title: "suspicious thread start address", needs: needs(&[ThreadStart, Modules]), severity: High, attack: &["T1055.001", "T1055.002"], behaviors: &["suspicious_start"], check: start::address, explanation: include_str!("explain/cs19.txt") },
    Detection { name: "CS20", title: "Heaven's Gate: 64-bit call from 32-bit code", needs: needs(&[Stack, Modules]), severity: High, attack: &["T1055", "T1106"], behaviors: &["heavens_gate"], check: wow64::gate, explanation: include_str!("explain/cs20.txt") },
    Detection { name: "CS21", title: "sleep obfuscation: wait inside a callback", needs: needs(&[Stack, Modules, Symbols]), severity: Medium, attack: &["T1497.003", "T1027"], behaviors: &["masked_sleep"], check: dispatch::wait, explanation: include_str!("explain/cs21.txt") },
    Detection { name: "CS22", title: "vectored exception handler under a sensitive call", needs: needs(&[Stack, Modules, Symbols, ThreadContext]), severity: Medium, attack: &["T1562.001"], behaviors: &["exception_handler"], check: dispatch::exception, explanation: include_str!("explain/cs22.txt") },
    Detection { name: "CS23", title: "unbacked kernel code", needs: needs(&[KernelStack, Modules]), severity: High, attack: &["T1014"], behaviors: &["unbacked_driver_code"], check: kernel::outside, explanation: include_str!("explain/cs23.txt") },
    Detection { name: "CS24", title: "suspicious LSASS handle", needs: needs(&[Stack, Modules, Target, AccessMask]), severity: High, attack: &["T1003.001"], behaviors: &["sensitive_handle"], check: target::sensitive, explanation: include_str!("explain/cs24.txt") },
    Detection { name: "CS25", title: "LSASS memory dump", needs: needs(&[Stack, Modules, Target, AccessMask]), severity: High, attack: &["T1003.001"], behaviors: &["memory_dump"], check: target::dump, explanation: include_str!("explain/cs25.txt") },
    Detection { name: "CS26", title: "kernel callback outside of the callback dispatcher", needs: needs(&[Stack, Modules, Symbols]), severity: High, attack: &["T1068"], behaviors: &["kernel_callback"], check: callback::outside, explanation: include_str!("explain/cs26.txt") },
    Detection { name: "CS27", title: "written memory made executable", needs: needs(&[Stack, Modules, MemoryChanges]), severity: High, attack: &["T1055", "T1620"], behaviors: &["shellcode"], check: changes::made_executable, explanation: include_str!("explain/cs27.txt") },
    Detection { name: "CS28", title: "sleep obfuscation: memory protection changes back and forth", needs: needs(&[Modules, MemoryChanges]), severity: High, attack: &["T1497.003", "T1027"], behaviors: &["execute_fluctuation"], check: changes::fluctuates, explanation: include_str!("explain/cs28.txt") },
    Detection { name: "CS29", title: "patched or replaced image (AMSI, ETW, module stomping, hollowing)", needs: needs(&[Modules, MemoryChanges, ImageBytes]), severity: High, attack: &["T1562.001", "T1055.012", "T1055.001"], behaviors: &["image_hooked"], check: changes::image, explanation: include_str!("explain/cs29.txt") },
    Detection { name: "CS30", title: "process tampering: image hollowing or herpaderping", needs: needs(&[ImageIdentity]), severity: High, attack: &["T1055.012", "T1036"], behaviors: &["process_tampering"], check: tampering::image, explanation: include_str!("explain/cs30.txt") },
];
