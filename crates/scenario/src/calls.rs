//! Call graphs of programs: chains of return addresses, in which stacks with common callers have
//! common frames.
//!
//! The graph is not stored. The address of a function is computed from its level and the path to
//! it. Each level of a path takes two bits of a number, the route. Two routes with the same lowest
//! bits therefore lead through the same outer functions.

use stackhound_types::Address;

use crate::frames::Frames;
use crate::image::Image;
use crate::random::{hash, hash2};
use crate::truth::Region;

/// Memory with code: an image or a range of private memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    base: u64,
    size: u64,
}

impl Code {
    pub fn of_region(region: Region) -> Code {
        Code { base: region.base.0, size: region.size }
    }

    pub fn of_image(image: &Image) -> Code {
        Code { base: image.base.0, size: image.size.into() }
    }

    /// The start of the function at `level` of `path`.
    pub fn function(self, level: u32, path: u64) -> Address {
        // After the headers and before the data.
        let slot = hash2(self.size ^ u64::from(level) << 32, path) % (self.size / 32);
        Address(self.base + 0x1000 + slot * 16)
    }

    /// The return address of the `n`th call in a function.
    pub fn call_site(self, level: u32, path: u64, n: u64) -> Address {
        Address(self.function(level, path).0 + 0x15 + 0x1d * (n % 8))
    }
}

/// A path through the call graph of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPath {
    /// Contains the two outermost functions.
    pub program: Code,
    /// Contains all other functions.
    pub library: Code,
    /// Number of the program's outermost function.
    pub root: u64,
    pub route: u64,
    /// Level of the innermost function that makes a call.
    pub depth: u32,
}

impl CallPath {
    /// A depth from 2 to 5 levels, derived from the route.
    pub fn depth_of(route: u64) -> u32 {
        2 + (hash(route) % 4) as u32
    }

    fn level(&self, level: u32) -> (Code, u64) {
        let path = self.route & ((1 << (2 * level)) - 1);
        (if level < 2 { self.program } else { self.library }, self.root << 32 | path)
    }

    fn turn(&self, level: u32) -> u64 {
        self.route >> (2 * level) & 3
    }

    /// Adds the return addresses, innermost first. The innermost function makes its `n`th call.
    pub fn push_calls(&self, frames: &mut Frames, n: u64) {
        for level in (0..=self.depth).rev() {
            let (code, path) = self.level(level);
            let n = if level == self.depth { n } else { self.turn(level) };
            frames.push(code.call_site(level, path, n));
        }
    }

    /// Like [`push_calls`](CallPath::push_calls), preceded by an instruction in one more function,
    /// which makes no call. `position` selects the instruction.
    pub fn push_running(&self, frames: &mut Frames, position: u64) {
        let (code, path) = self.level(self.depth + 1);
        frames.push(Address(code.function(self.depth + 1, path).0 + 0x10 + 7 * position));
        self.push_calls(frames, self.turn(self.depth));
    }

    /// Like [`push_calls`](CallPath::push_calls), preceded by a return address in one more function.
    pub fn push_innermost_call(&self, frames: &mut Frames) {
        let (code, path) = self.level(self.depth + 1);
        frames.push(code.call_site(self.depth + 1, path, 0));
        self.push_calls(frames, self.turn(self.depth));
    }
}
