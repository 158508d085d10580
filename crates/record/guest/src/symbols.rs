//! Functions by address, and addresses by name.

use stackhound_types::Address;

use crate::system::Function;

/// The symbols of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// All symbols, by address. Of symbols with the same address, the first one is used.
    symbols: Vec<Symbol>,
    names: String,
}

#[derive(Clone, Copy, Debug)]
struct Symbol {
    address: u64,
    name: (u32, u32),
    is_function: bool,
}

impl Symbols {
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    pub fn push(&mut self, address: Address, name: &str, is_function: bool) {
        let start = self.names.len() as u32;
        self.names.push_str(name);
        let name = (start, self.names.len() as u32);
        self.symbols.push(Symbol { address: address.0, name, is_function });
    }

    /// Must be called after the last symbol.
    pub fn sort(&mut self) {
        self.symbols.sort_by_key(|symbol| symbol.address);
    }

    /// Returns the function at an address. It extends to the next symbol; nothing is known of the size
    /// of the last one.
    pub fn function_at(&self, address: Address) -> Option<Function<'_>> {
        let end = self.symbols.partition_point(|symbol| symbol.address <= address.0);
        if end == self.symbols.len() {
            return None;
        }
        let start = self.symbols.get(end.checked_sub(1)?)?.address;
        let first = self.symbols.partition_point(|symbol| symbol.address < start);
        let symbol = self.symbols[first..end].iter().find(|symbol| symbol.is_function)?;
        Some(Function { name: self.name(symbol)?, offset: address.0 - start })
    }

    /// Returns the addresses of the functions with names that fit.
    pub fn functions<'s>(&'s self, fits: impl Fn(&str) -> bool + 's) -> impl Iterator<Item = Address> + 's {
        let functions = self.symbols.iter().filter(|symbol| symbol.is_function);
        functions
            .filter(move |symbol| self.name(symbol).is_some_and(&fits))
            .map(|symbol| Address(symbol.address))
    }

    /// Returns the address of a symbol. It compares all names.
    pub fn address_of(&self, name: &str) -> Option<Address> {
        let symbol = self.symbols.iter().find(|symbol| self.name(symbol) == Some(name))?;
        Some(Address(symbol.address))
    }

    fn name(&self, symbol: &Symbol) -> Option<&str> {
        self.names.get(symbol.name.0 as usize..symbol.name.1 as usize)
    }
}
