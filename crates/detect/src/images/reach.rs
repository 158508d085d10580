//! The functions that a call can reach: its target and, through jumps at its end (tail calls,
//! thunks, hot patches), others. Each of them can legitimately be the frame above the call.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use stackhound_symbols::image::Image;
use stackhound_types::Rva;

use super::{ImageFile, code, site};

/// The functions that a call can reach.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reach {
    /// The starts of reachable functions of the image.
    pub functions: Box<[Rva]>,
    /// Whether the call can leave the image through a pointer that the loader sets.
    pub imports: bool,
    /// The services of such pointers, as indexes of the services that the image imports; `None` if
    /// some pointers are for other functions.
    pub services: Option<Box<[u32]>>,
    /// Whether the call can leave through a register or another pointer.
    pub pointers: bool,
    /// Whether it does so after the first instruction of all services, `mov r10, rcx`. In this case
    /// it does not call a service's stub but jumps into the middle of one.
    pub like_stub: bool,
    /// Whether the code is too long to be read completely, or cannot be read.
    pub is_incomplete: bool,
}

impl Reach {
    /// Whether the call stays in these functions of the image.
    pub fn is_closed(&self) -> bool {
        !self.imports && !self.pointers && !self.is_incomplete
    }
}

/// Maximum number of functions that one call can reach.
const MAX_FUNCTIONS: usize = 64;
/// Maximum number of instructions in all of them.
const MAX_INSTRUCTIONS: usize = 1 << 14;
/// Maximum number of instructions of a function without unwind data: a thunk, or a function that
/// calls nothing.
const MAX_LEAF: usize = 256;

pub(super) fn read(file: &ImageFile, image: &Image<'_>, target: Rva) -> Reach {
    let mut walk = Walk {
        file,
        image,
        left: MAX_INSTRUCTIONS,
        starts: vec![target],
        services: Vec::new(),
        has_other_imports: false,
        reach: Reach::default(),
    };
    let mut next = 0;
    while let Some(&start) = walk.starts.get(next) {
        next += 1;
        walk.function(start);
    }
    let mut functions: Vec<Rva> =
        walk.starts.iter().map(|start| file.function(*start).unwrap_or(*start)).collect();
    functions.sort_unstable();
    functions.dedup();
    walk.services.sort_unstable();
    walk.services.dedup();
    let services = (!walk.has_other_imports).then(|| walk.services.into());
    Reach { functions: functions.into(), services, ..walk.reach }
}

struct Walk<'w, 'd> {
    file: &'w ImageFile,
    image: &'w Image<'d>,
    /// Number of instructions that may still be read.
    left: usize,
    /// Starts of reachable functions, each once.
    starts: Vec<Rva>,
    services: Vec<u32>,
    /// Whether imports other than services were found.
    has_other_imports: bool,
    reach: Reach,
}

impl Walk<'_, '_> {
    fn function(&mut self, start: Rva) {
        let Some(function) = self.file.functions.at(start) else { return self.leaf(start) };
        let Some(primary) = function.primary else {
            self.reach.is_incomplete = true;
            return;
        };
        let file = self.file;
        for (start, end) in file.chunks(primary) {
            let mut state = ExitState::default();
            let Some(mut decoder) = file.decoder(self.image, start) else {
                self.reach.is_incomplete = true;
                continue;
            };
            while decoder.can_decode() && decoder.ip() < u64::from(end.0) {
                let instruction = decoder.decode();
                if !self.count_instruction(&instruction) {
                    return;
                }
                self.exit(&instruction, state, |target| file.function(target) == Some(primary));
                state = state.after(&instruction);
            }
        }
    }

    /// Reads a function without unwind data, up to its last instruction: one that no branch of the
    /// function jumps over.
    fn leaf(&mut self, start: Rva) {
        let Some(mut decoder) = self.file.decoder(self.image, start) else {
            self.reach.is_incomplete = true;
            return;
        };
        let mut state = ExitState::default();
        let mut end = start.0;
        for _ in 0..MAX_LEAF {
            let instruction = decoder.decode();
            if !self.count_instruction(&instruction) {
                return;
            }
            match instruction.flow_control() {
                FlowControl::ConditionalBranch => {
                    let target = u32::try_from(instruction.near_branch_target()).unwrap_or(u32::MAX);
                    if target.wrapping_sub(start.0) < MAX_LEAF as u32 {
                        end = end.max(target);
                    } else {
                        self.exit(&instruction, state, |_| false);
                    }
                }
                flow => {
                    self.exit(&instruction, state, |_| false);
                    let is_last = matches!(
                        flow,
                        FlowControl::UnconditionalBranch
                            | FlowControl::IndirectBranch
                            | FlowControl::Return
                            | FlowControl::Interrupt
                            | FlowControl::Exception
                    );
                    if is_last && instruction.next_ip() > u64::from(end) {
                        return;
                    }
                }
            }
            state = state.after(&instruction);
        }
        self.reach.is_incomplete = true;
    }

    /// Counts an instruction. Returns whether to continue.
    fn count_instruction(&mut self, instruction: &Instruction) -> bool {
        let Some(left) = self.left.checked_sub(1).filter(|_| !instruction.is_invalid()) else {
            self.reach.is_incomplete = true;
            return false;
        };
        self.left = left;
        true
    }

    /// Records the target of an instruction that leaves its function.
    fn exit(&mut self, instruction: &Instruction, state: ExitState, is_inside: impl Fn(Rva) -> bool) {
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = code::direct_target(instruction).and_then(|target| u32::try_from(target).ok());
                match target.filter(|target| *target < self.image.size()).map(Rva) {
                    Some(target) if is_inside(target) || self.starts.contains(&target) => {}
                    Some(target) if self.starts.len() < MAX_FUNCTIONS => self.starts.push(target),
                    Some(_) => self.reach.is_incomplete = true,
                    None => self.leave(state),
                }
            }
            FlowControl::IndirectBranch => {
                let slot = code::pointer(instruction).and_then(|at| site::slot(self.image, at));
                match slot.and_then(|slot| self.file.import(slot)) {
                    Some(import) => {
                        self.reach.imports = true;
                        self.reach.like_stub |= state.is_service();
                        match import.service {
                            Some(service) => self.services.push(service),
                            None => self.has_other_imports = true,
                        }
                    }
                    None => self.leave(state),
                }
            }
            // The pushed value is the target.
            FlowControl::Return if state.has_pushed => self.leave(state),
            _ => {}
        }
    }

    fn leave(&mut self, state: ExitState) {
        self.reach.pointers = true;
        self.reach.like_stub |= state.is_service();
    }
}

/// The effects of the instructions before an exit, which distinguish private stubs from wrappers.
#[derive(Clone, Copy, Default)]
struct ExitState {
    /// Whether `r10` holds the first parameter of a service: the value of `rcx`, or its copy from
    /// the stack.
    first_parameter: bool,
    /// Whether the previous instruction was a push.
    has_pushed: bool,
}

impl ExitState {
    /// System calls overwrite `rcx`, so services take their first parameter from `r10`. Other
    /// functions do not.
    fn is_service(self) -> bool {
        self.first_parameter
    }

    fn after(self, instruction: &Instruction) -> ExitState {
        let has_pushed = instruction.mnemonic() == Mnemonic::Push;
        let is_write = !matches!(
            instruction.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Jmp | Mnemonic::Call
        );
        if instruction.op0_register() != Register::R10 || !is_write {
            return ExitState { has_pushed, ..self };
        }
        let is_move = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Mov_rm64_r64);
        let from_register = instruction.op1_kind() == OpKind::Register;
        let first_parameter = match instruction.mnemonic() {
            Mnemonic::Pop | Mnemonic::Xchg => true,
            Mnemonic::Lea => instruction.memory_base() == Register::RCX,
            _ if is_move && from_register => instruction.op1_register() == Register::RCX,
            _ if is_move => matches!(instruction.memory_base(), Register::RSP | Register::RBP),
            _ => false,
        };
        ExitState { first_parameter, has_pushed }
    }
}
