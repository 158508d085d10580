//! What answers rest on in a frame, so that stacks that mean the same are judged once.

use crate::judge::Judge;
use crate::module::Role;
use crate::stack::{Code, Frame};

impl Judge {
    /// The frame without what no answer rests on. Cases that differ in nothing but frames with the same essence get the same
    /// judgement. Who asks for more of a frame in an image than its module changes this.
    ///
    /// Without files, it makes no difference where in an image a frame lies, as long as it does; with files, all that is looked
    /// up in them goes by the offset.
    pub fn essence(&self, frame: &Frame) -> Frame {
        let Code::Image(module, offset) = frame.code else { return *frame };
        let module_facts = self.modules().get(module);
        // Two mappings of this one are told apart by where they begin.
        let has_base = module_facts.roles.has(Role::NamedNtdll);
        let size = module_facts.identity.image.map_or(u32::MAX, |image| image.size);
        if self.has_files() || frame.bytes.is_some() || offset >= u64::from(size) {
            return Frame { address: frame.address.filter(|_| has_base), ..*frame };
        }
        let base = frame.address.filter(|_| has_base).map(|address| address.wrapping_sub(offset));
        Frame { address: base, code: Code::Image(module, 0), ..*frame }
    }
}
