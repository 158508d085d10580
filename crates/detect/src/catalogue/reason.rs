//! The reasons for answers, each with a code for programs and a sentence for people.

macro_rules! reasons {
    ($($name:ident $code:literal $sentence:literal,)*) => {
        /// A reason for an answer. In its sentence, `{frame}` is replaced by the frame that the finding
        /// concerns, and `{memory}`, `{export}`, `{cycles}` and `{period}` by facts about the change of
        /// memory that the event reports.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $sentence] $name,)*
        }

        impl Reason {
            /// All reasons, in the order in which findings state them.
            pub const ALL: &[Reason] = &[$(Reason::$name,)*];

            /// The code in output, such as `caller-unbacked`.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Reason::$name => $code,)*
                }
            }

            /// The sentence, with the placeholder `{frame}` if it concerns a frame.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Reason::$name => $sentence,)*
                }
            }
        }
    };
}

#[rustfmt::skip]
reasons! {
    NoUserFrames "no-user-frames" "The stack has no user frames.",
    StackMissing "stack-missing" "The stack, or the part of it that decides, is missing.",
    WalkImplausible "walk-implausible" "{frame} and other kernel frames are outside of all drivers, as in failed stack walks.",
    StackUncertain "stack-uncertain" "The frames are uncertain: a loss, damage or a second possible triggering event could have changed them.",
    ModulesIncomplete "modules-incomplete" "Not all modules of the process are known.",
    EventsLost "events-lost" "Events are missing that could change the answer.",
    AtLimit "at-limit" "The stack is as long as the capture allows, so outer frames may be missing.",
    StackTruncated "stack-truncated" "The walk did not reach the outermost function of its thread.",
    NoSystemCall "no-system-call" "The kernel was not entered by a system call.",
    EntryUnknown "entry-unknown" "Events of this kind come from system calls and from interrupts alike.",
    TopUnbacked "top-unbacked" "The kernel was entered from {frame}, which is in no module.",
    TopUnknown "top-unknown" "The kernel was entered from {frame}, whose module is not known.",
    TopImage "top-image" "{frame} entered the kernel directly, not through a system-call stub of Windows.",
    TopJit "top-compiled" "{frame} entered the kernel directly and is JIT-compiled code.",
    TopSystemCall "top-system-call" "The kernel was entered through a system-call module.",
    TopLegacy "top-legacy" "Before Windows 10, version 1607, the module of {frame} had its own system calls.",
    TopOutsideModule "top-outside-module" "The offset of {frame} is outside of its module.",
    SystemCallBefore "system-call-before" "The instruction before it is a system call.",
    NoSystemCallBefore "no-system-call-before" "The instruction before {frame} is not a system call, so the stack does not begin where the kernel was entered.",
    KnownDirectCaller "known-direct-caller" "The module is known to make direct system calls and has the expected signer.",
    LikeDirectCaller "like-direct-caller" "A module of this name is known to make direct system calls, but the signer of this one is not known.",
    CallerOutsideWindows "caller-outside-windows" "{frame} is outside of the Windows folder and calls the native API directly.",
    CallerInWindows "caller-in-windows" "{frame} calls the native API directly; it is in the Windows folder, and it is not known whether it is part of Windows.",
    CallerNotKnownSystem "caller-not-known-system" "{frame} calls the native API directly; it is in the Windows folder but is not a known part of Windows.",
    CallerKnownSystem "caller-known-system" "The caller of the native API is a known part of Windows.",
    CallerNative "caller-native" "Libraries of Windows called the native API.",
    CallerHook "caller-hook" "The caller of the native API is known to hook it.",
    SensitiveTarget "sensitive-target" "The target process holds credentials.",
    SensitiveOperation "sensitive-operation" "The operation is one that attacks need.",
    CallerUnbacked "caller-unbacked" "{frame}, in no module, calls the native API.",
    FrameUnbacked "frame-unbacked" "{frame} is in no module.",
    FrameUnknown "frame-unknown" "The module of {frame} is not known.",
    AllBacked "all-backed" "All user frames are in modules or in JIT-compiled code that a runtime reported.",
    RuntimeInStack "runtime-in-stack" "A JIT compiler is next to the code in the stack, so the code may be its output.",
    RuntimeLoaded "runtime-loaded" "A JIT compiler is loaded in the process, so the code may be its output.",
    AddressNearImages "address-near-images" "The address is near loaded images, where JIT compilers put their code.",
    BetweenHooks "between-hooks" "The code is between a library and a module that is known to install inline hooks, like a trampoline.",
    NativeUnbacked "native-unbacked" "The frame that calls the system-call layer is covered by CS01 and CS07.",
    RegionsUnknown "regions-unknown" "The memory that the code is in is not known.",
    WritableCode "writable-code" "{frame} is in memory that is writable and executable.",
    PrivateCode "private-code" "{frame} is in private executable memory.",
    MappedCode "mapped-code" "{frame} is in a mapped section that is not an image.",
    NtdllElsewhere "ntdll-elsewhere" "The module of {frame} is named ntdll.dll but is not in the folder of Windows.",
    TwoNtdlls "two-ntdlls" "The stack goes through two different ntdll.dll of the same bitness; {frame} is in the second.",
    SecondNtdllLoaded "second-ntdll-loaded" "A second ntdll.dll was mapped in addition to that of the process.",
    OneNtdll "one-ntdll" "No second ntdll.dll was found.",
    RootFound "root-found" "The stack ends in a function where threads start.",
    RootByModules "root-by-modules" "The stack ends in the modules where threads start; the functions are not known.",
    RootUnnamed "root-unnamed" "The stack ends in ntdll.dll; the function is not known.",
    RootIsNone "root-is-none" "The stack ends in {frame}, where threads do not start.",
    EndsUnbacked "ends-unbacked" "The stack ends in code that is in no module; stack walks cannot continue there.",
    Stack32 "narrow-stack" "Stack walks can fail in 32-bit code without frame pointers.",
    StartMatches "start-matches" "The outermost module of the stack is the module of the thread's start address.",
    StartDiffers "start-differs" "The thread's start address is in another module than {frame}, its outermost frame.",
    StartUnknown "start-unknown" "The thread's start address is not known.",
    StartInNative "start-in-native" "The thread started in a library of Windows, like threads of thread pools and services.",
    NoThreadStart "no-thread-start" "The event does not start a thread.",
    StartUnbacked "start-unbacked" "The thread's start address is in no module.",
    StartKernel "start-kernel" "The thread's start address is in the kernel, like those of raw input threads.",
    StartLoadLibrary "start-load-library" "The thread starts in a function that loads a library, like injected threads.",
    StartRemoteFunction "start-remote-function" "The thread starts where Windows itself starts threads in other processes.",
    StartBacked "start-backed" "The thread starts in a module.",
    StartCompiled "start-compiled" "The thread starts in JIT-compiled code that a runtime reported.",
    LocalStart "local-start" "The process itself started the thread.",
    RemoteStart "remote-start" "Another process started the thread.",
    NotWow64 "not-wow64" "The process runs no 32-bit code.",
    WidthUnknown "width-unknown" "It is not known whether the process runs 32-bit code.",
    GateCaller "gate-caller" "64-bit system calls of a 32-bit process go through the WoW64 layer; {frame} calls them directly.",
    ThroughWow64 "through-wow64" "The 64-bit frames go through the WoW64 layer.",
    NoWait "no-wait" "The thread does not wait.",
    WaitInDispatcher "wait-in-dispatcher" "The thread waits in {frame}, a callback dispatcher, and the stack has only modules of Windows.",
    WaitHasUser "wait-has-user" "The stack has a module that is not part of Windows.",
    FunctionsUnknown "functions-unknown" "The functions in the stack have no names.",
    NoDispatcher "no-dispatcher" "The stack has no callback dispatcher.",
    NotSensitive "not-sensitive" "The operation is not sensitive.",
    ProxyPool "proxy-pool" "Only libraries of Windows are between {frame}, which calls the function that it is given, and a sensitive operation.",
    ProxySummary "proxy-summary" "The stack has only ntdll.dll, kernelbase.dll and kernel32.dll, in the order of a call through a callback.",
    ProxyHasUser "proxy-has-user" "A module that is not part of Windows made the call.",
    ExceptionHandler "exception-handler" "{frame} calls exception handlers and is a caller of a sensitive operation.",
    NoKernelFrames "no-kernel-frames" "The stack has no kernel frames.",
    KernelUnbacked "kernel-unbacked" "{frame} is in no driver.",
    KernelBacked "kernel-backed" "All kernel frames are in drivers.",
    NoTarget "no-target" "The event has no target process.",
    TargetUnknown "target-unknown" "The event does not state the target process of the handle.",
    TargetOrdinary "target-ordinary" "The target process holds no credentials.",
    AccessUnknown "access-unknown" "The requested rights are not known.",
    AccessHarmless "access-harmless" "The requested rights do not allow reading the process.",
    CallerUnusual "caller-unusual" "The final user module, {frame}, is neither part of Windows nor an installed program.",
    CallerUsual "caller-usual" "The stack shows nothing unusual.",
    WithFinding "with-finding" "A detection of CS01 to CS08 is about {frame} in the same stack.",
    ImageMissing "image-missing" "The image file that would decide is missing.",
    ImageUnreadable "image-unreadable" "The image file that would decide cannot be read.",
    MachineUnsupported "machine-unsupported" "Images for this processor are not supported.",
    ServiceUnknown "service-unknown" "The system service that ran is not known.",
    StubMatches "stub-matches" "The system call returns to the stub of the service that ran.",
    StubDiffers "stub-differs" "The system call returns to the stub of another service than the one that ran.",
    StubCannotCause "stub-cannot-cause" "The system call returns to the stub of a service that does not cause this event.",
    StubTampered "stub-tampered" "The stub has another system service number than the service it is named after.",
    StubChanged "stub-changed" "The function of the service that {frame} is in does not have the form of a stub in its file.",
    SiteIsStub "site-is-stub" "The system call returns to a stub.",
    SiteUnknown "site-unknown" "The system call returns to {frame}, which is not in a stub.",
    SiteOutsideCode "site-outside-code" "The system call returns to {frame}, which is not code.",
    CalleeMatches "callee-matches" "The call before the caller's frame can lead to the stub.",
    CalleeDiffers "callee-differs" "The call before {frame} goes to code of its own module, not to ntdll.dll, but the system call returns to a stub of ntdll.dll.",
    CalleeIndirect "callee-indirect" "The call before the caller's frame goes through a register or pointer and can lead anywhere.",
    CalleeOther "callee-other" "The call before {frame} goes to another stub of ntdll.dll than the one that the system call returns to.",
    NoStubFrame "no-stub-frame" "The stack does not begin in a stub of ntdll.dll or win32u.dll.",
    CallsPrecede "calls-precede" "Each return address that could be checked is preceded by a call.",
    NoCallBefore "no-call-before" "The return address {frame} is not preceded by a call.",
    SeveralWithoutCall "several-without-call" "Several return addresses are not preceded by a call.",
    ReturnsToGadget "returns-to-gadget" "The code at {frame} jumps through a register or moves the stack pointer, like the ROP gadgets of spoofed stacks.",
    NoGadget "no-gadget" "No return address is a ROP gadget.",
    OutsideFunctions "outside-functions" "{frame} is outside any function of its image.",
    AtFunctionStart "at-function-start" "{frame} is the first byte of a function, where calls do not return to.",
    OutsideCode "outside-code" "{frame} is in a section of its image that is not code.",
    NoUnwindData "no-unwind-data" "The image of {frame} has no unwind data, which states where functions are.",
    NoBytesInFile "no-bytes-in-file" "The file has no bytes for {frame}, as in packed programs, or bytes that the program may change.",
    InsideFunctions "inside-functions" "Each return address is in a function.",
    LinkBroken "link-broken" "The call before {frame} goes to another function than that of the frame it called.",
    LinksHold "links-hold" "Each direct call goes to the function of the frame it called.",
    PageChanged "page-changed" "{frame} is in a page of its image that was written to.",
    BytesDiffer "bytes-differ" "The bytes around {frame} are not those of its image file.",
    HookInStack "hook-in-stack" "A module that is known to install inline hooks is in the stack and may have changed the code.",
    PagesOriginal "pages-original" "All pages of images are unchanged.",
    MemoryUnknown "memory-unknown" "The memory of the process was not read.",
    InterruptedWalk "interrupted-walk" "The stack was walked in an interrupt, where a page that is not in memory ends the walk.",
    CallerUnsigned "caller-unsigned" "{frame} calls the native API directly; it is in the Windows folder but is not signed, so it does not belong to Windows.",
    LikeRuntime "like-runtime" "A module next to the code has the name of a JIT compiler, but neither its folder nor its signer confirms the name, so the finding is not lowered.",
    DumpLibrary "dump-library" "{frame} is in a library that writes the memory of other processes to a file, and requested the handle.",
    NoDumpLibrary "no-dump-library" "The stack has no library that writes memory dumps.",
    CrashReporter "crash-reporter" "The program reports crashes for Windows, and only modules of Windows called the library.",
    AllRights "all-rights" "The handle has all rights to the process, so a runtime does not lower the finding.",
    CallbackOutside "callback-outside" "The kernel called back to {frame}, which is not the dispatcher of callbacks in ntdll.dll.",
    CallbackDispatched "callback-dispatched" "All callbacks from the kernel go through the dispatcher in ntdll.dll.",
    NoCallback "no-callback" "The stack has no callback from the kernel.",
    ChangesUnknown "memory-changes-unknown" "The changes of the memory were not recorded, or not all of them.",
    MadeExecutable "made-executable" "{frame} is in memory that was writable before it was made executable.",
    StartMadeExecutable "start-made-executable" "The thread starts in memory that was writable before it was made executable.",
    WritableMemory "writable-executable-memory" "The memory was writable and executable at the same time.",
    WrittenByOther "written-by-other-process" "Another process wrote to the memory.",
    ChangedByOther "changed-by-other-process" "Another process allocated or mapped the memory, or changed its protection.",
    ByKernel "changed-by-kernel" "The kernel changed the memory without a user-mode caller.",
    ByProtected "changed-by-protected-process" "A process that Windows protects, such as a security product, changed the memory.",
    ByLoader "changed-by-loader" "Windows changed the memory directly after it mapped the image.",
    ByHook "changed-by-hook" "A module that is known to install inline hooks changed the memory.",
    ByRuntime "changed-by-runtime" "A runtime with a JIT compiler changed the memory.",
    ByOwnImage "changed-by-own-image" "The image changed its own pages, as packed programs do.",
    ByUnbacked "changed-by-unbacked" "Code in no module changed the memory.",
    AuthorUnknown "author-unknown" "The code that changed the memory is not known.",
    Fluctuates "protection-fluctuates" "{memory} became executable {cycles} times after it had been executable before, every {period}.",
    FrameFluctuates "frame-fluctuates" "{frame} is in memory whose protection changed back and forth.",
    ShortPeriod "short-period" "The protection changed back within less than half a second, as in JIT compilers.",
    FewChanges "few-protection-changes" "The protection of the memory did not change back and forth.",
    ImageMadeWritable "image-made-writable" "Code of an image, {memory}, was made writable, or executable after it was writable.",
    ImageWritten "image-written" "Code of an image, {memory}, was written with a system call.",
    SensitiveExport "sensitive-export" "The change covers {export}, a function that scans or reports for security products.",
    ProgramReplaced "program-replaced" "The image of the program was unmapped, and {memory} took its place.",
    LibraryReplaced "library-replaced" "A library was unmapped, and {memory} took its place.",
    FrameInChangedImage "frame-in-changed-image" "{frame} is in code of its image that was made writable or was written to.",
    FrameInReplacement "frame-in-replacement" "{frame} is in memory that took the place of the program's image.",
    StartInReplacement "start-in-replacement" "The thread starts in memory that took the place of the program's image.",
    ImageUnchanged "image-unchanged" "The event changes no code of an image.",
    NoTampering "no-tampering" "The event does not report tampering with the image of a process.",
    ImageReplaced "image-replaced" "The mapped image of the process is not its file, as after process hollowing.",
    ImageLocked "image-locked" "The file of the process is locked, so that it cannot be compared with the mapped image, as after process herpaderping.",
    TamperingUnnamed "tampering-unnamed" "The image of the process was tampered with; the event does not state how.",
    ProgramInstalled "program-installed" "The program is installed in a folder for programs; browsers and updaters replace their images legitimately.",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn texts_are_codes_and_sentences() {
        for reason in Reason::ALL {
            let (code, sentence) = (reason.code(), reason.sentence());
            assert!(code.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric()), "{code}");
            assert!(sentence.ends_with('.'), "{sentence}");
        }
        let codes: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
    }
}
