//! The reasons for answers, each with a code for programs and a sentence for people.

/// A reason for an answer. In its sentence, `{frame}` is replaced by the frame that the finding
/// concerns, and `{memory}`, `{export}`, `{cycles}` and `{period}` by facts about the change of
/// memory that the event reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// The stack has no user frames.
    NoUserFrames,
    /// The stack, or the part of it that decides, is missing.
    StackMissing,
    /// {frame} and other kernel frames are outside of all drivers, as in failed stack walks.
    WalkImplausible,
    /// The frames are uncertain: a loss, damage or a second possible triggering event could have
    /// changed them.
    StackUncertain,
    /// Not all modules of the process are known.
    ModulesIncomplete,
    /// Events are missing that could change the answer.
    EventsLost,
    /// The stack is as long as the capture allows, so outer frames may be missing.
    AtLimit,
    /// The walk did not reach the outermost function of its thread.
    StackTruncated,
    /// The kernel was not entered by a system call.
    NoSystemCall,
    /// Events of this kind come from system calls and from interrupts alike.
    EntryUnknown,
    /// The kernel was entered from {frame}, which is in no module.
    TopUnbacked,
    /// The kernel was entered from {frame}, whose module is not known.
    TopUnknown,
    /// {frame} entered the kernel directly, not through a system-call stub of Windows.
    TopImage,
    /// {frame} entered the kernel directly and is JIT-compiled code.
    TopJit,
    /// The kernel was entered through a system-call module.
    TopSystemCall,
    /// Before Windows 10, version 1607, the module of {frame} had its own system calls.
    TopLegacy,
    /// The offset of {frame} is outside of its module.
    TopOutsideModule,
    /// The instruction before it is a system call.
    SystemCallBefore,
    /// The instruction before {frame} is not a system call, so the stack does not begin where the
    /// kernel was entered.
    NoSystemCallBefore,
    /// The module is known to make direct system calls and has the expected signer.
    KnownDirectCaller,
    /// A module of this name is known to make direct system calls, but the signer of this one is
    /// not known.
    LikeDirectCaller,
    /// {frame} is outside of the Windows folder and calls the native API directly.
    CallerOutsideWindows,
    /// {frame} calls the native API directly; it is in the Windows folder, and it is not known
    /// whether it is part of Windows.
    CallerInWindows,
    /// {frame} calls the native API directly; it is in the Windows folder but is not a known part
    /// of Windows.
    CallerNotKnownSystem,
    /// The caller of the native API is a known part of Windows.
    CallerKnownSystem,
    /// Libraries of Windows called the native API.
    CallerNative,
    /// The caller of the native API is known to hook it.
    CallerHook,
    /// The target process holds credentials.
    SensitiveTarget,
    /// The operation is one that attacks need.
    SensitiveOperation,
    /// {frame}, in no module, calls the native API.
    CallerUnbacked,
    /// {frame} is in no module.
    FrameUnbacked,
    /// The module of {frame} is not known.
    FrameUnknown,
    /// All user frames are in modules or in JIT-compiled code that a runtime reported.
    AllBacked,
    /// A JIT compiler is next to the code in the stack, so the code may be its output.
    RuntimeInStack,
    /// A JIT compiler is loaded in the process, so the code may be its output.
    RuntimeLoaded,
    /// The address is near loaded images, where JIT compilers put their code.
    AddressNearImages,
    /// The code is between a library and a module that is known to install inline hooks, like a
    /// trampoline.
    BetweenHooks,
    /// The frame that calls the system-call layer is covered by CS01 and CS07.
    NativeUnbacked,
    /// The memory that the code is in is not known.
    RegionsUnknown,
    /// {frame} is in memory that is writable and executable.
    WritableCode,
    /// {frame} is in private executable memory.
    PrivateCode,
    /// {frame} is in a mapped section that is not an image.
    MappedCode,
    /// The module of {frame} is named ntdll.dll but is not in the folder of Windows.
    NtdllElsewhere,
    /// The stack goes through two different ntdll.dll of the same bitness; {frame} is in the
    /// second.
    TwoNtdlls,
    /// A second ntdll.dll was mapped in addition to that of the process.
    SecondNtdllLoaded,
    /// No second ntdll.dll was found.
    OneNtdll,
    /// The stack ends in a function where threads start.
    RootFound,
    /// The stack ends in the modules where threads start; the functions are not known.
    RootByModules,
    /// The stack ends in ntdll.dll; the function is not known.
    RootUnnamed,
    /// The stack ends in {frame}, where threads do not start.
    RootIsNone,
    /// The stack ends in code that is in no module; stack walks cannot continue there.
    EndsUnbacked,
    /// Stack walks can fail in 32-bit code without frame pointers.
    Stack32,
    /// The outermost module of the stack is the module of the thread's start address.
    StartMatches,
    /// The thread's start address is in another module than {frame}, its outermost frame.
    StartDiffers,
    /// The thread's start address is not known.
    StartUnknown,
    /// The thread started in a library of Windows, like threads of thread pools and services.
    StartInNative,
    /// The event does not start a thread.
    NoThreadStart,
    /// The thread's start address is in no module.
    StartUnbacked,
    /// The thread's start address is in the kernel, like those of raw input threads.
    StartKernel,
    /// The thread starts in a function that loads a library, like injected threads.
    StartLoadLibrary,
    /// The thread starts where Windows itself starts threads in other processes.
    StartRemoteFunction,
    /// The thread starts in a module.
    StartBacked,
    /// The thread starts in JIT-compiled code that a runtime reported.
    StartCompiled,
    /// The process itself started the thread.
    LocalStart,
    /// Another process started the thread.
    RemoteStart,
    /// The process runs no 32-bit code.
    NotWow64,
    /// It is not known whether the process runs 32-bit code.
    WidthUnknown,
    /// 64-bit system calls of a 32-bit process go through the WoW64 layer; {frame} calls them
    /// directly.
    GateCaller,
    /// The 64-bit frames go through the WoW64 layer.
    ThroughWow64,
    /// The thread does not wait.
    NoWait,
    /// The thread waits in {frame}, a callback dispatcher, and the stack has only modules of
    /// Windows.
    WaitInDispatcher,
    /// The stack has a module that is not part of Windows.
    WaitHasUser,
    /// The functions in the stack have no names.
    FunctionsUnknown,
    /// The stack has no callback dispatcher.
    NoDispatcher,
    /// The operation is not sensitive.
    NotSensitive,
    /// Only libraries of Windows are between {frame}, which calls the function that it is given,
    /// and a sensitive operation.
    ProxyPool,
    /// The stack has only ntdll.dll, kernelbase.dll and kernel32.dll, in the order of a call
    /// through a callback.
    ProxySummary,
    /// A module that is not part of Windows made the call.
    ProxyHasUser,
    /// {frame} calls exception handlers and is a caller of a sensitive operation.
    ExceptionHandler,
    /// The stack has no kernel frames.
    NoKernelFrames,
    /// {frame} is in no driver.
    KernelUnbacked,
    /// All kernel frames are in drivers.
    KernelBacked,
    /// The event has no target process.
    NoTarget,
    /// The event does not state the target process of the handle.
    TargetUnknown,
    /// The target process holds no credentials.
    TargetOrdinary,
    /// The requested rights are not known.
    AccessUnknown,
    /// The requested rights do not allow reading the process.
    AccessHarmless,
    /// The final user module, {frame}, is neither part of Windows nor an installed program.
    CallerUnusual,
    /// The stack shows nothing unusual.
    CallerUsual,
    /// A detection of CS01 to CS08 is about {frame} in the same stack.
    WithFinding,
    /// The image file that would decide is missing.
    ImageMissing,
    /// The image file that would decide cannot be read.
    ImageUnreadable,
    /// Images for this processor are not supported.
    MachineUnsupported,
    /// The system service that ran is not known.
    ServiceUnknown,
    /// The system call returns to the stub of the service that ran.
    StubMatches,
    /// The system call returns to the stub of another service than the one that ran.
    StubDiffers,
    /// The system call returns to the stub of a service that does not cause this event.
    StubCannotCause,
    /// The stub has another system service number than the service it is named after.
    StubTampered,
    /// The function of the service that {frame} is in does not have the form of a stub in its file.
    StubChanged,
    /// The system call returns to a stub.
    SiteIsStub,
    /// The system call returns to {frame}, which is not in a stub.
    SiteUnknown,
    /// The system call returns to {frame}, which is not code.
    SiteOutsideCode,
    /// The call before the caller's frame can lead to the stub.
    CalleeMatches,
    /// The call before {frame} goes to code of its own module, not to ntdll.dll, but the system
    /// call returns to a stub of ntdll.dll.
    CalleeDiffers,
    /// The call before the caller's frame goes through a register or pointer and can lead anywhere.
    CalleeIndirect,
    /// The call before {frame} goes to another stub of ntdll.dll than the one that the system call
    /// returns to.
    CalleeOther,
    /// The stack does not begin in a stub of ntdll.dll or win32u.dll.
    NoStubFrame,
    /// Each return address that could be checked is preceded by a call.
    CallsPrecede,
    /// The return address {frame} is not preceded by a call.
    NoCallBefore,
    /// Several return addresses are not preceded by a call.
    SeveralWithoutCall,
    /// The code at {frame} jumps through a register or moves the stack pointer, like the ROP
    /// gadgets of spoofed stacks.
    ReturnsToGadget,
    /// No return address is a ROP gadget.
    NoGadget,
    /// {frame} is outside any function of its image.
    OutsideFunctions,
    /// {frame} is the first byte of a function, where calls do not return to.
    AtFunctionStart,
    /// {frame} is in a section of its image that is not code.
    OutsideCode,
    /// The image of {frame} has no unwind data, which states where functions are.
    NoUnwindData,
    /// The file has no bytes for {frame}, as in packed programs, or bytes that the program may
    /// change.
    NoBytesInFile,
    /// Each return address is in a function.
    InsideFunctions,
    /// The call before {frame} goes to another function than that of the frame it called.
    LinkBroken,
    /// Each direct call goes to the function of the frame it called.
    LinksHold,
    /// {frame} is in a page of its image that was written to.
    PageChanged,
    /// The bytes around {frame} are not those of its image file.
    BytesDiffer,
    /// A module that is known to install inline hooks is in the stack and may have changed the
    /// code.
    HookInStack,
    /// All pages of images are unchanged.
    PagesOriginal,
    /// The memory of the process was not read.
    MemoryUnknown,
    /// The stack was walked in an interrupt, where a page that is not in memory ends the walk.
    InterruptedWalk,
    /// {frame} calls the native API directly; it is in the Windows folder but is not signed, so
    /// it does not belong to Windows.
    CallerUnsigned,
    /// A module next to the code has the name of a JIT compiler, but neither its folder nor its
    /// signer confirms the name, so the finding is not lowered.
    LikeRuntime,
    /// {frame} is in a library that writes the memory of other processes to a file, and
    /// requested the handle.
    DumpLibrary,
    /// The stack has no library that writes memory dumps.
    NoDumpLibrary,
    /// The program reports crashes for Windows, and only modules of Windows called the library.
    CrashReporter,
    /// The handle has all rights to the process, so a runtime does not lower the finding.
    AllRights,
    /// The kernel called back to {frame}, which is not the dispatcher of callbacks in
    /// ntdll.dll.
    CallbackOutside,
    /// All callbacks from the kernel go through the dispatcher in ntdll.dll.
    CallbackDispatched,
    /// The stack has no callback from the kernel.
    NoCallback,
    /// The changes of the memory were not recorded, or not all of them.
    ChangesUnknown,
    /// {frame} is in memory that was writable before it was made executable.
    MadeExecutable,
    /// The thread starts in memory that was writable before it was made executable.
    StartMadeExecutable,
    /// The memory was writable and executable at the same time.
    WritableMemory,
    /// Another process wrote to the memory.
    WrittenByOther,
    /// Another process allocated or mapped the memory, or changed its protection.
    ChangedByOther,
    /// The kernel changed the memory without a user-mode caller.
    ByKernel,
    /// A process that Windows protects, such as a security product, changed the memory.
    ByProtected,
    /// Windows changed the memory directly after it mapped the image.
    ByLoader,
    /// A module that is known to install inline hooks changed the memory.
    ByHook,
    /// A runtime with a JIT compiler changed the memory.
    ByRuntime,
    /// The image changed its own pages, as packed programs do.
    ByOwnImage,
    /// Code in no module changed the memory.
    ByUnbacked,
    /// The code that changed the memory is not known.
    AuthorUnknown,
    /// {memory} became executable {cycles} times after it had been executable before, every
    /// {period}.
    Fluctuates,
    /// {frame} is in memory whose protection changed back and forth.
    FrameFluctuates,
    /// The protection changed back within less than half a second, as in JIT compilers.
    ShortPeriod,
    /// The protection of the memory did not change back and forth.
    FewChanges,
    /// Code of an image, {memory}, was made writable, or executable after it was writable.
    ImageMadeWritable,
    /// Code of an image, {memory}, was written with a system call.
    ImageWritten,
    /// The change covers {export}, a function that scans or reports for security products.
    SensitiveExport,
    /// The image of the program was unmapped, and {memory} took its place.
    ProgramReplaced,
    /// A library was unmapped, and {memory} took its place.
    LibraryReplaced,
    /// {frame} is in code of its image that was made writable or was written to.
    FrameInChangedImage,
    /// {frame} is in memory that took the place of the program's image.
    FrameInReplacement,
    /// The thread starts in memory that took the place of the program's image.
    StartInReplacement,
    /// The event changes no code of an image.
    ImageUnchanged,
    /// The event does not report tampering with the image of a process.
    NoTampering,
    /// The mapped image of the process is not its file, as after process hollowing.
    ImageReplaced,
    /// The file of the process is locked, so that it cannot be compared with the mapped image, as
    /// after process herpaderping.
    ImageLocked,
    /// The image of the process was tampered with; the event does not state how.
    TamperingUnnamed,
    /// The program is installed in a folder for programs; browsers and updaters replace their
    /// images legitimately.
    ProgramInstalled,
}

/// Each reason with its code and its sentence.
#[rustfmt::skip]
const TEXTS: &[(Reason, &str, &str)] = &[
    (Reason::NoUserFrames, "no-user-frames", "The stack has no user frames."),
    (Reason::StackMissing, "stack-missing", "The stack, or the part of it that decides, is missing."),
    (Reason::WalkImplausible, "walk-implausible", "{frame} and other kernel frames are outside of all drivers, as in failed stack walks."),
    (Reason::StackUncertain, "stack-uncertain", "The frames are uncertain: a loss, damage or a second possible triggering event could have changed them."),
    (Reason::ModulesIncomplete, "modules-incomplete", "Not all modules of the process are known."),
    (Reason::EventsLost, "events-lost", "Events are missing that could change the answer."),
    (Reason::AtLimit, "at-limit", "The stack is as long as the capture allows, so outer frames may be missing."),
    (Reason::StackTruncated, "stack-truncated", "The walk did not reach the outermost function of its thread."),
    (Reason::NoSystemCall, "no-system-call", "The kernel was not entered by a system call."),
    (Reason::EntryUnknown, "entry-unknown", "Events of this kind come from system calls and from interrupts alike."),
    (Reason::TopUnbacked, "top-unbacked", "The kernel was entered from {frame}, which is in no module."),
    (Reason::TopUnknown, "top-unknown", "The kernel was entered from {frame}, whose module is not known."),
    (Reason::TopImage, "top-image", "{frame} entered the kernel directly, not through a system-call stub of Windows."),
    (Reason::TopJit, "top-compiled", "{frame} entered the kernel directly and is JIT-compiled code."),
    (Reason::TopSystemCall, "top-system-call", "The kernel was entered through a system-call module."),
    (Reason::TopLegacy, "top-legacy", "Before Windows 10, version 1607, the module of {frame} had its own system calls."),
    (Reason::TopOutsideModule, "top-outside-module", "The offset of {frame} is outside of its module."),
    (Reason::SystemCallBefore, "system-call-before", "The instruction before it is a system call."),
    (Reason::NoSystemCallBefore, "no-system-call-before", "The instruction before {frame} is not a system call, so the stack does not begin where the kernel was entered."),
    (Reason::KnownDirectCaller, "known-direct-caller", "The module is known to make direct system calls and has the expected signer."),
    (Reason::LikeDirectCaller, "like-direct-caller", "A module of this name is known to make direct system calls, but the signer of this one is not known."),
    (Reason::CallerOutsideWindows, "caller-outside-windows", "{frame} is outside of the Windows folder and calls the native API directly."),
    (Reason::CallerInWindows, "caller-in-windows", "{frame} calls the native API directly; it is in the Windows folder, and it is not known whether it is part of Windows."),
    (Reason::CallerNotKnownSystem, "caller-not-known-system", "{frame} calls the native API directly; it is in the Windows folder but is not a known part of Windows."),
    (Reason::CallerKnownSystem, "caller-known-system", "The caller of the native API is a known part of Windows."),
    (Reason::CallerNative, "caller-native", "Libraries of Windows called the native API."),
    (Reason::CallerHook, "caller-hook", "The caller of the native API is known to hook it."),
    (Reason::SensitiveTarget, "sensitive-target", "The target process holds credentials."),
    (Reason::SensitiveOperation, "sensitive-operation", "The operation is one that attacks need."),
    (Reason::CallerUnbacked, "caller-unbacked", "{frame}, in no module, calls the native API."),
    (Reason::FrameUnbacked, "frame-unbacked", "{frame} is in no module."),
    (Reason::FrameUnknown, "frame-unknown", "The module of {frame} is not known."),
    (Reason::AllBacked, "all-backed", "All user frames are in modules or in JIT-compiled code that a runtime reported."),
    (Reason::RuntimeInStack, "runtime-in-stack", "A JIT compiler is next to the code in the stack, so the code may be its output."),
    (Reason::RuntimeLoaded, "runtime-loaded", "A JIT compiler is loaded in the process, so the code may be its output."),
    (Reason::AddressNearImages, "address-near-images", "The address is near loaded images, where JIT compilers put their code."),
    (Reason::BetweenHooks, "between-hooks", "The code is between a library and a module that is known to install inline hooks, like a trampoline."),
    (Reason::NativeUnbacked, "native-unbacked", "The frame that calls the system-call layer is covered by CS01 and CS07."),
    (Reason::RegionsUnknown, "regions-unknown", "The memory that the code is in is not known."),
    (Reason::WritableCode, "writable-code", "{frame} is in memory that is writable and executable."),
    (Reason::PrivateCode, "private-code", "{frame} is in private executable memory."),
    (Reason::MappedCode, "mapped-code", "{frame} is in a mapped section that is not an image."),
    (Reason::NtdllElsewhere, "ntdll-elsewhere", "The module of {frame} is named ntdll.dll but is not in the folder of Windows."),
    (Reason::TwoNtdlls, "two-ntdlls", "The stack goes through two different ntdll.dll of the same bitness; {frame} is in the second."),
    (Reason::SecondNtdllLoaded, "second-ntdll-loaded", "A second ntdll.dll was mapped in addition to that of the process."),
    (Reason::OneNtdll, "one-ntdll", "No second ntdll.dll was found."),
    (Reason::RootFound, "root-found", "The stack ends in a function where threads start."),
    (Reason::RootByModules, "root-by-modules", "The stack ends in the modules where threads start; the functions are not known."),
    (Reason::RootUnnamed, "root-unnamed", "The stack ends in ntdll.dll; the function is not known."),
    (Reason::RootIsNone, "root-is-none", "The stack ends in {frame}, where threads do not start."),
    (Reason::EndsUnbacked, "ends-unbacked", "The stack ends in code that is in no module; stack walks cannot continue there."),
    (Reason::Stack32, "narrow-stack", "Stack walks can fail in 32-bit code without frame pointers."),
    (Reason::StartMatches, "start-matches", "The outermost module of the stack is the module of the thread's start address."),
    (Reason::StartDiffers, "start-differs", "The thread's start address is in another module than {frame}, its outermost frame."),
    (Reason::StartUnknown, "start-unknown", "The thread's start address is not known."),
    (Reason::StartInNative, "start-in-native", "The thread started in a library of Windows, like threads of thread pools and services."),
    (Reason::NoThreadStart, "no-thread-start", "The event does not start a thread."),
    (Reason::StartUnbacked, "start-unbacked", "The thread's start address is in no module."),
    (Reason::StartKernel, "start-kernel", "The thread's start address is in the kernel, like those of raw input threads."),
    (Reason::StartLoadLibrary, "start-load-library", "The thread starts in a function that loads a library, like injected threads."),
    (Reason::StartRemoteFunction, "start-remote-function", "The thread starts where Windows itself starts threads in other processes."),
    (Reason::StartBacked, "start-backed", "The thread starts in a module."),
    (Reason::StartCompiled, "start-compiled", "The thread starts in JIT-compiled code that a runtime reported."),
    (Reason::LocalStart, "local-start", "The process itself started the thread."),
    (Reason::RemoteStart, "remote-start", "Another process started the thread."),
    (Reason::NotWow64, "not-wow64", "The process runs no 32-bit code."),
    (Reason::WidthUnknown, "width-unknown", "It is not known whether the process runs 32-bit code."),
    (Reason::GateCaller, "gate-caller", "64-bit system calls of a 32-bit process go through the WoW64 layer; {frame} calls them directly."),
    (Reason::ThroughWow64, "through-wow64", "The 64-bit frames go through the WoW64 layer."),
    (Reason::NoWait, "no-wait", "The thread does not wait."),
    (Reason::WaitInDispatcher, "wait-in-dispatcher", "The thread waits in {frame}, a callback dispatcher, and the stack has only modules of Windows."),
    (Reason::WaitHasUser, "wait-has-user", "The stack has a module that is not part of Windows."),
    (Reason::FunctionsUnknown, "functions-unknown", "The functions in the stack have no names."),
    (Reason::NoDispatcher, "no-dispatcher", "The stack has no callback dispatcher."),
    (Reason::NotSensitive, "not-sensitive", "The operation is not sensitive."),
    (Reason::ProxyPool, "proxy-pool", "Only libraries of Windows are between {frame}, which calls the function that it is given, and a sensitive operation."),
    (Reason::ProxySummary, "proxy-summary", "The stack has only ntdll.dll, kernelbase.dll and kernel32.dll, in the order of a call through a callback."),
    (Reason::ProxyHasUser, "proxy-has-user", "A module that is not part of Windows made the call."),
    (Reason::ExceptionHandler, "exception-handler", "{frame} calls exception handlers and is a caller of a sensitive operation."),
    (Reason::NoKernelFrames, "no-kernel-frames", "The stack has no kernel frames."),
    (Reason::KernelUnbacked, "kernel-unbacked", "{frame} is in no driver."),
    (Reason::KernelBacked, "kernel-backed", "All kernel frames are in drivers."),
    (Reason::NoTarget, "no-target", "The event has no target process."),
    (Reason::TargetUnknown, "target-unknown", "The event does not state the target process of the handle."),
    (Reason::TargetOrdinary, "target-ordinary", "The target process holds no credentials."),
    (Reason::AccessUnknown, "access-unknown", "The requested rights are not known."),
    (Reason::AccessHarmless, "access-harmless", "The requested rights do not allow reading the process."),
    (Reason::CallerUnusual, "caller-unusual", "The final user module, {frame}, is neither part of Windows nor an installed program."),
    (Reason::CallerUsual, "caller-usual", "The stack shows nothing unusual."),
    (Reason::WithFinding, "with-finding", "A detection of CS01 to CS08 is about {frame} in the same stack."),
    (Reason::ImageMissing, "image-missing", "The image file that would decide is missing."),
    (Reason::ImageUnreadable, "image-unreadable", "The image file that would decide cannot be read."),
    (Reason::MachineUnsupported, "machine-unsupported", "Images for this processor are not supported."),
    (Reason::ServiceUnknown, "service-unknown", "The system service that ran is not known."),
    (Reason::StubMatches, "stub-matches", "The system call returns to the stub of the service that ran."),
    (Reason::StubDiffers, "stub-differs", "The system call returns to the stub of another service than the one that ran."),
    (Reason::StubCannotCause, "stub-cannot-cause", "The system call returns to the stub of a service that does not cause this event."),
    (Reason::StubTampered, "stub-tampered", "The stub has another system service number than the service it is named after."),
    (Reason::StubChanged, "stub-changed", "The function of the service that {frame} is in does not have the form of a stub in its file."),
    (Reason::SiteIsStub, "site-is-stub", "The system call returns to a stub."),
    (Reason::SiteUnknown, "site-unknown", "The system call returns to {frame}, which is not in a stub."),
    (Reason::SiteOutsideCode, "site-outside-code", "The system call returns to {frame}, which is not code."),
    (Reason::CalleeMatches, "callee-matches", "The call before the caller's frame can lead to the stub."),
    (Reason::CalleeDiffers, "callee-differs", "The call before {frame} goes to code of its own module, not to ntdll.dll, but the system call returns to a stub of ntdll.dll."),
    (Reason::CalleeIndirect, "callee-indirect", "The call before the caller's frame goes through a register or pointer and can lead anywhere."),
    (Reason::CalleeOther, "callee-other", "The call before {frame} goes to another stub of ntdll.dll than the one that the system call returns to."),
    (Reason::NoStubFrame, "no-stub-frame", "The stack does not begin in a stub of ntdll.dll or win32u.dll."),
    (Reason::CallsPrecede, "calls-precede", "Each return address that could be checked is preceded by a call."),
    (Reason::NoCallBefore, "no-call-before", "The return address {frame} is not preceded by a call."),
    (Reason::SeveralWithoutCall, "several-without-call", "Several return addresses are not preceded by a call."),
    (Reason::ReturnsToGadget, "returns-to-gadget", "The code at {frame} jumps through a register or moves the stack pointer, like the ROP gadgets of spoofed stacks."),
    (Reason::NoGadget, "no-gadget", "No return address is a ROP gadget."),
    (Reason::OutsideFunctions, "outside-functions", "{frame} is outside any function of its image."),
    (Reason::AtFunctionStart, "at-function-start", "{frame} is the first byte of a function, where calls do not return to."),
    (Reason::OutsideCode, "outside-code", "{frame} is in a section of its image that is not code."),
    (Reason::NoUnwindData, "no-unwind-data", "The image of {frame} has no unwind data, which states where functions are."),
    (Reason::NoBytesInFile, "no-bytes-in-file", "The file has no bytes for {frame}, as in packed programs, or bytes that the program may change."),
    (Reason::InsideFunctions, "inside-functions", "Each return address is in a function."),
    (Reason::LinkBroken, "link-broken", "The call before {frame} goes to another function than that of the frame it called."),
    (Reason::LinksHold, "links-hold", "Each direct call goes to the function of the frame it called."),
    (Reason::PageChanged, "page-changed", "{frame} is in a page of its image that was written to."),
    (Reason::BytesDiffer, "bytes-differ", "The bytes around {frame} are not those of its image file."),
    (Reason::HookInStack, "hook-in-stack", "A module that is known to install inline hooks is in the stack and may have changed the code."),
    (Reason::PagesOriginal, "pages-original", "All pages of images are unchanged."),
    (Reason::MemoryUnknown, "memory-unknown", "The memory of the process was not read."),
    (Reason::InterruptedWalk, "interrupted-walk", "The stack was walked in an interrupt, where a page that is not in memory ends the walk."),
    (Reason::CallerUnsigned, "caller-unsigned", "{frame} calls the native API directly; it is in the Windows folder but is not signed, so it does not belong to Windows."),
    (Reason::LikeRuntime, "like-runtime", "A module next to the code has the name of a JIT compiler, but neither its folder nor its signer confirms the name, so the finding is not lowered."),
    (Reason::DumpLibrary, "dump-library", "{frame} is in a library that writes the memory of other processes to a file, and requested the handle."),
    (Reason::NoDumpLibrary, "no-dump-library", "The stack has no library that writes memory dumps."),
    (Reason::CrashReporter, "crash-reporter", "The program reports crashes for Windows, and only modules of Windows called the library."),
    (Reason::AllRights, "all-rights", "The handle has all rights to the process, so a runtime does not lower the finding."),
    (Reason::CallbackOutside, "callback-outside", "The kernel called back to {frame}, which is not the dispatcher of callbacks in ntdll.dll."),
    (Reason::CallbackDispatched, "callback-dispatched", "All callbacks from the kernel go through the dispatcher in ntdll.dll."),
    (Reason::NoCallback, "no-callback", "The stack has no callback from the kernel."),
    (Reason::ChangesUnknown, "memory-changes-unknown", "The changes of the memory were not recorded, or not all of them."),
    (Reason::MadeExecutable, "made-executable", "{frame} is in memory that was writable before it was made executable."),
    (Reason::StartMadeExecutable, "start-made-executable", "The thread starts in memory that was writable before it was made executable."),
    (Reason::WritableMemory, "writable-executable-memory", "The memory was writable and executable at the same time."),
    (Reason::WrittenByOther, "written-by-other-process", "Another process wrote to the memory."),
    (Reason::ChangedByOther, "changed-by-other-process", "Another process allocated or mapped the memory, or changed its protection."),
    (Reason::ByKernel, "changed-by-kernel", "The kernel changed the memory without a user-mode caller."),
    (Reason::ByProtected, "changed-by-protected-process", "A process that Windows protects, such as a security product, changed the memory."),
    (Reason::ByLoader, "changed-by-loader", "Windows changed the memory directly after it mapped the image."),
    (Reason::ByHook, "changed-by-hook", "A module that is known to install inline hooks changed the memory."),
    (Reason::ByRuntime, "changed-by-runtime", "A runtime with a JIT compiler changed the memory."),
    (Reason::ByOwnImage, "changed-by-own-image", "The image changed its own pages, as packed programs do."),
    (Reason::ByUnbacked, "changed-by-unbacked", "Code in no module changed the memory."),
    (Reason::AuthorUnknown, "author-unknown", "The code that changed the memory is not known."),
    (Reason::Fluctuates, "protection-fluctuates", "{memory} became executable {cycles} times after it had been executable before, every {period}."),
    (Reason::FrameFluctuates, "frame-fluctuates", "{frame} is in memory whose protection changed back and forth."),
    (Reason::ShortPeriod, "short-period", "The protection changed back within less than half a second, as in JIT compilers."),
    (Reason::FewChanges, "few-protection-changes", "The protection of the memory did not change back and forth."),
    (Reason::ImageMadeWritable, "image-made-writable", "Code of an image, {memory}, was made writable, or executable after it was writable."),
    (Reason::ImageWritten, "image-written", "Code of an image, {memory}, was written with a system call."),
    (Reason::SensitiveExport, "sensitive-export", "The change covers {export}, a function that scans or reports for security products."),
    (Reason::ProgramReplaced, "program-replaced", "The image of the program was unmapped, and {memory} took its place."),
    (Reason::LibraryReplaced, "library-replaced", "A library was unmapped, and {memory} took its place."),
    (Reason::FrameInChangedImage, "frame-in-changed-image", "{frame} is in code of its image that was made writable or was written to."),
    (Reason::FrameInReplacement, "frame-in-replacement", "{frame} is in memory that took the place of the program's image."),
    (Reason::StartInReplacement, "start-in-replacement", "The thread starts in memory that took the place of the program's image."),
    (Reason::ImageUnchanged, "image-unchanged", "The event changes no code of an image."),
    (Reason::NoTampering, "no-tampering", "The event does not report tampering with the image of a process."),
    (Reason::ImageReplaced, "image-replaced", "The mapped image of the process is not its file, as after process hollowing."),
    (Reason::ImageLocked, "image-locked", "The file of the process is locked, so that it cannot be compared with the mapped image, as after process herpaderping."),
    (Reason::TamperingUnnamed, "tampering-unnamed", "The image of the process was tampered with; the event does not state how."),
    (Reason::ProgramInstalled, "program-installed", "The program is installed in a folder for programs; browsers and updaters replace their images legitimately."),
];

/// The number of reasons.
pub(crate) const COUNT: usize = TEXTS.len();

impl Reason {
    /// All reasons.
    pub fn all() -> impl Iterator<Item = Reason> {
        TEXTS.iter().map(|text| text.0)
    }

    /// The code in output, such as `caller-unbacked`.
    pub fn code(self) -> &'static str {
        TEXTS[self as usize].1
    }

    /// The sentence, with the placeholder `{frame}` if it concerns a frame.
    pub fn sentence(self) -> &'static str {
        TEXTS[self as usize].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_the_order_of_reasons() {
        for (index, (reason, code, sentence)) in TEXTS.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert!(code.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric()), "{code}");
            assert!(sentence.ends_with('.'), "{sentence}");
        }
    }
}
