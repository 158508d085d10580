//! Where a call can lead: to the function that it names, or through jumps at its end (tail calls, thunks, hot patches) to
//! others. Whatever of them stands in a stack above the call, it stands there rightly.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};
use stackhound_symbols::image::Image;
use stackhound_types::Rva;

use super::{ImageFile, code, site};

/// Where a call can lead.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reach {
    /// The starts of the functions of the image that it can be in.
    pub functions: Box<[Rva]>,
    /// Whether it can leave through a pointer that the loader fills.
    pub imports: bool,
    /// The services that such pointers are for, by their numbers among those that the image imports; `None` if they are also
    /// for other functions.
    pub services: Option<Box<[u32]>>,
    /// Whether it can leave through a register or another pointer.
    pub pointers: bool,
    /// Whether it does so behind the first instruction of all services, `mov r10, rcx`: with this, it does not call a
    /// service's stub but jumps into the middle of one.
    pub like_stub: bool,
    /// Whether it was too much to be read whole, or cannot be read.
    pub is_incomplete: bool,
}

impl Reach {
    /// Whether it ends in these functions of the image, and nowhere else.
    pub fn is_closed(&self) -> bool {
        !self.imports && !self.pointers && !self.is_incomplete
    }
}

/// Functions that one call can lead to.
const MAX_FUNCTIONS: usize = 64;
/// Instructions of all of them.
const MAX_INSTRUCTIONS: usize = 1 << 14;
/// Instructions of a function that no unwind data tells of: a thunk, or one that calls nothing.
const MAX_LEAF: usize = 256;

pub(super) fn read(file: &ImageFile, image: &Image<'_>, target: Rva) -> Reach {
    let mut walk = Walk {
        file,
        image,
        left: MAX_INSTRUCTIONS,
        starts: vec![target],
        services: Vec::new(),
        others: false,
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
    let services = (!walk.others).then(|| walk.services.into());
    Reach { functions: functions.into(), services, ..walk.reach }
}

struct Walk<'w, 'd> {
    file: &'w ImageFile,
    image: &'w Image<'d>,
    /// Instructions that may still be read.
    left: usize,
    /// Where functions begin that can be reached, each once.
    starts: Vec<Rva>,
    services: Vec<u32>,
    /// Whether imports other than services were met.
    others: bool,
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
            let mut passing = Passing::default();
            let Some(mut decoder) = file.decoder(self.image, start) else {
                self.reach.is_incomplete = true;
                continue;
            };
            while decoder.can_decode() && decoder.ip() < u64::from(end.0) {
                let instruction = decoder.decode();
                if !self.take(&instruction) {
                    return;
                }
                self.exit(&instruction, passing, |target| file.function(target) == Some(primary));
                passing = passing.behind(&instruction);
            }
        }
    }

    /// A function that no unwind data tells of: up to its last instruction that no branch of its own leads over.
    fn leaf(&mut self, start: Rva) {
        let Some(mut decoder) = self.file.decoder(self.image, start) else {
            self.reach.is_incomplete = true;
            return;
        };
        let mut passing = Passing::default();
        let mut end = start.0;
        for _ in 0..MAX_LEAF {
            let instruction = decoder.decode();
            if !self.take(&instruction) {
                return;
            }
            match instruction.flow_control() {
                FlowControl::ConditionalBranch => {
                    let target = u32::try_from(instruction.near_branch_target()).unwrap_or(u32::MAX);
                    if target.wrapping_sub(start.0) < MAX_LEAF as u32 {
                        end = end.max(target);
                    } else {
                        self.exit(&instruction, passing, |_| false);
                    }
                }
                flow => {
                    self.exit(&instruction, passing, |_| false);
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
            passing = passing.behind(&instruction);
        }
        self.reach.is_incomplete = true;
    }

    /// Whether reading goes on.
    fn take(&mut self, instruction: &Instruction) -> bool {
        let Some(left) = self.left.checked_sub(1).filter(|_| !instruction.is_invalid()) else {
            self.reach.is_incomplete = true;
            return false;
        };
        self.left = left;
        true
    }

    /// Notes where an instruction leaves its function to.
    fn exit(&mut self, instruction: &Instruction, passing: Passing, is_inside: impl Fn(Rva) -> bool) {
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = code::direct_target(instruction).and_then(|target| u32::try_from(target).ok());
                match target.filter(|target| *target < self.image.size()).map(Rva) {
                    Some(target) if is_inside(target) || self.starts.contains(&target) => {}
                    Some(target) if self.starts.len() < MAX_FUNCTIONS => self.starts.push(target),
                    Some(_) => self.reach.is_incomplete = true,
                    None => self.leave(passing),
                }
            }
            FlowControl::IndirectBranch => {
                let slot = code::pointer(instruction).and_then(|at| site::slot(self.image, at));
                match slot.and_then(|slot| self.file.import(slot)) {
                    Some(import) => {
                        self.reach.imports = true;
                        self.reach.like_stub |= passing.is_service();
                        match import.service {
                            Some(service) => self.services.push(service),
                            None => self.others = true,
                        }
                    }
                    None => self.leave(passing),
                }
            }
            // What was pushed is where it leads to.
            FlowControl::Return if passing.has_pushed => self.leave(passing),
            _ => {}
        }
    }

    fn leave(&mut self, passing: Passing) {
        self.reach.pointers = true;
        self.reach.like_stub |= passing.is_service();
    }
}

/// What was done on the way to an exit, as far as it tells own stubs from wrappers.
#[derive(Clone, Copy, Default)]
struct Passing {
    /// Whether `r10` holds what `rcx` held, the first parameter of a service, or what was kept of it on the stack.
    first_parameter: bool,
    /// Whether the instruction before pushed something.
    has_pushed: bool,
}

impl Passing {
    /// The processor takes `rcx` for itself, so services take their first parameter from `r10`. Functions do not.
    fn is_service(self) -> bool {
        self.first_parameter
    }

    fn behind(self, instruction: &Instruction) -> Passing {
        let has_pushed = instruction.mnemonic() == Mnemonic::Push;
        let is_write = !matches!(
            instruction.mnemonic(),
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Jmp | Mnemonic::Call
        );
        if instruction.op0_register() != Register::R10 || !is_write {
            return Passing { has_pushed, ..self };
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
        Passing { first_parameter, has_pushed }
    }
}
