//! Enabling and disabling of providers in a session.

use std::ptr;

use windows_sys::Win32::System::Diagnostics::Etw::{
    ENABLE_TRACE_PARAMETERS, ENABLE_TRACE_PARAMETERS_VERSION_2, EVENT_CONTROL_CODE_CAPTURE_STATE,
    EVENT_CONTROL_CODE_DISABLE_PROVIDER, EVENT_CONTROL_CODE_ENABLE_PROVIDER, EVENT_FILTER_DESCRIPTOR,
    EnableTraceEx2,
};

use super::session::{Session, guid_from_bytes};
use crate::Error;
use crate::error::check;

/// The settings of a provider in a session; see Microsoft's page "EnableTraceEx2 function".
#[derive(Clone, Debug)]
pub struct Enable<'a> {
    /// The bytes of the provider's GUID.
    pub provider: [u8; 16],
    /// The highest level.
    pub level: u8,
    /// `MatchAnyKeyword`.
    pub any: u64,
    /// `MatchAllKeyword`.
    pub all: u64,
    /// `EnableProperty`.
    pub properties: u32,
    /// The filters.
    pub filters: Vec<Filter<'a>>,
}

/// One filter.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// `EVENT_FILTER_TYPE_*`.
    pub kind: u32,
    /// The bytes of its structure.
    pub bytes: &'a [u8],
}

impl Session {
    /// Enables a provider, or changes its settings.
    ///
    /// # Errors
    /// The error of `EnableTraceEx2`: 5 access denied, 87 a filter or the GUID is not allowed.
    pub fn enable(&self, settings: &Enable<'_>) -> Result<(), Error> {
        // Structures may begin with numbers of eight bytes.
        let aligned: Vec<Vec<u64>> = settings.filters.iter().map(|filter| to_words(filter.bytes)).collect();
        let mut descriptors: Vec<EVENT_FILTER_DESCRIPTOR> = settings
            .filters
            .iter()
            .zip(&aligned)
            .map(|(filter, words)| EVENT_FILTER_DESCRIPTOR {
                Ptr: words.as_ptr() as u64,
                Size: filter.bytes.len() as u32,
                Type: filter.kind,
            })
            .collect();
        let parameters = ENABLE_TRACE_PARAMETERS {
            Version: ENABLE_TRACE_PARAMETERS_VERSION_2,
            EnableProperty: settings.properties,
            EnableFilterDesc: if descriptors.is_empty() { ptr::null_mut() } else { descriptors.as_mut_ptr() },
            FilterDescCount: descriptors.len() as u32,
            ..ENABLE_TRACE_PARAMETERS::default()
        };
        let Enable { level, any, all, .. } = *settings;
        let code = EVENT_CONTROL_CODE_ENABLE_PROVIDER;
        self.enable_trace(settings.provider, code, level, any, all, Some(&parameters))
    }

    /// Disables a provider.
    pub fn disable(&self, provider: [u8; 16]) -> Result<(), Error> {
        self.enable_trace(provider, EVENT_CONTROL_CODE_DISABLE_PROVIDER, 0, 0, 0, None)
    }

    /// Requests that the provider logs its state.
    pub fn capture_state(&self, provider: [u8; 16], level: u8, any: u64) -> Result<(), Error> {
        self.enable_trace(provider, EVENT_CONTROL_CODE_CAPTURE_STATE, level, any, 0, None)
    }

    fn enable_trace(
        &self,
        provider: [u8; 16],
        code: u32,
        level: u8,
        any: u64,
        all: u64,
        parameters: Option<&ENABLE_TRACE_PARAMETERS>,
    ) -> Result<(), Error> {
        let provider = guid_from_bytes(provider);
        let parameters = parameters.map_or(ptr::null(), ptr::from_ref);
        let handle = self.handle()?;
        // Without a timeout, the call does not wait until processes are notified.
        // SAFETY: the GUID and the parameters, with all that they point to, outlive the call, and
        // are only read.
        let status = unsafe { EnableTraceEx2(handle, &provider, code, level, any, all, 0, parameters) };
        check("EnableTraceEx2", status)
    }
}

fn to_words(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}
