//! Places in code.

use pyo3::prelude::*;
use stackhound_calltree as model;

/// A code location: the start of a function, or the location at which it was first observed.
#[pyclass(frozen, eq, hash, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Location {
    /// The module it is in.
    #[pyo3(get)]
    binary: Binary,
    /// The symbol at or before it, ``None`` if that is not known.
    #[pyo3(get)]
    symbol: Option<String>,
    /// The offset from the symbol. Not 0 if the frame was first observed in the middle of a
    /// function.
    #[pyo3(get)]
    symbol_offset: u64,
    /// The offset from the start of the module, ``None`` if that is not known.
    #[pyo3(get)]
    rva: Option<u64>,
    /// Its address, ``None`` if that is not known.
    #[pyo3(get)]
    address: Option<u64>,
    /// As in ``ntoskrnl!KeWaitForSingleObject+0x10``: as much of it as is known, ``???`` where
    /// nothing is.
    #[pyo3(get)]
    name: String,
    /// The name of the stub, such as an entry of a procedure linkage table, at which the frame was
    /// called before it jumped to the function; ``None`` if it was called directly.
    #[pyo3(get)]
    stub: Option<String>,
    printed: String,
}

/// The module of a location. If it is not known, its name is ``???``.
#[pyclass(frozen, eq, hash, get_all, module = "stackhound.stack")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Binary {
    /// Its name in the form ``module!symbol``, without the extension of Windows programs.
    name: String,
    /// The path of its file, with the extension; ``None`` if that is not known.
    path: Option<String>,
    /// The address at which it was loaded, ``None`` if that is not known.
    base_address: Option<u64>,
}

impl Location {
    pub(crate) fn of(location: &model::Location<'_>) -> Self {
        Self {
            binary: match location.module() {
                Some(module) => Binary {
                    name: module.name.to_owned(),
                    path: module.path.map(str::to_owned),
                    base_address: module.base.map(|base| base.0),
                },
                None => Binary { name: "???".to_owned(), path: None, base_address: None },
            },
            symbol: location.symbol().map(str::to_owned),
            symbol_offset: location.symbol_offset(),
            rva: location.rva(),
            address: location.address().map(|address| address.0),
            name: location.name().to_string(),
            stub: location.stub().map(|stub| stub.name().to_string()),
            printed: location.to_string(),
        }
    }
}

#[pymethods]
impl Location {
    fn __str__(&self) -> &str {
        &self.printed
    }

    fn __repr__(&self) -> &str {
        &self.printed
    }
}

#[pymethods]
impl Binary {
    fn __str__(&self) -> &str {
        &self.name
    }

    fn __repr__(&self) -> String {
        format!("Binary(name='{}')", self.name)
    }
}
