//! Programs' call graphs: chains of return addresses that share what callers they share.
//!
//! A graph is not stored. A function's place follows from its level and the way there; each level of a way takes two
//! bits of a number, its route. So two routes with the same lowest bits lead through the same outer functions.

use stackhound_types::Address;

use crate::frames::Frames;
use crate::image::Image;
use crate::random::{hash, hash2};
use crate::truth::Region;

/// Memory with code: an image's or a range of private memory.
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

    /// The start of the function at `level` on the way `way`.
    pub fn function(self, level: u32, way: u64) -> Address {
        // Behind the headers, and before the data.
        let location = hash2(self.size ^ u64::from(level) << 32, way) % (self.size / 32);
        Address(self.base + 0x1000 + location * 16)
    }

    /// Where the `n`th call in a function returns to.
    pub fn call_site(self, level: u32, way: u64, n: u64) -> Address {
        Address(self.function(level, way).0 + 0x15 + 0x1d * (n % 8))
    }
}

/// A way through the call graph of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Where the two outermost functions are.
    pub program: Code,
    /// Where the others are.
    pub library: Code,
    /// Which of the program's outermost functions.
    pub root: u64,
    pub route: u64,
    /// The level of the innermost function that calls something.
    pub depth: u32,
}

impl Way {
    /// A depth from 2 to 5 levels that goes with the route.
    pub fn depth_of(route: u64) -> u32 {
        2 + (hash(route) % 4) as u32
    }

    fn level(&self, level: u32) -> (Code, u64) {
        let way = self.route & ((1 << (2 * level)) - 1);
        (if level < 2 { self.program } else { self.library }, self.root << 32 | way)
    }

    fn turn(&self, level: u32) -> u64 {
        self.route >> (2 * level) & 3
    }

    /// Adds the return addresses from the innermost function outwards; it makes its `n`th call.
    pub fn push_calls(&self, frames: &mut Frames, n: u64) {
        for level in (0..=self.depth).rev() {
            let (code, way) = self.level(level);
            let n = if level == self.depth { n } else { self.turn(level) };
            frames.push(code.call_site(level, way, n));
        }
    }

    /// The same, and before them some place in one more function, which calls nothing.
    pub fn push_running(&self, frames: &mut Frames, location: u64) {
        let (code, way) = self.level(self.depth + 1);
        frames.push(Address(code.function(self.depth + 1, way).0 + 0x10 + 7 * location));
        self.push_calls(frames, self.turn(self.depth));
    }
}
