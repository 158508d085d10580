//! `test_user_providers`: 5 of 7 cases. A provider is plain data that is created, configured and
//! enabled without a system.
//!
//! The other two cases query Windows for a provider's name, and stop a session of another program.

use stackhound::live::{EnableProperties, ProviderSettings};
use stackhound::{Guid, Provider};

use crate::rows::{self, Rows, builder, incomplete};
use crate::schemas::{POWERSHELL, POWERSHELL_7942};

fn delivered(provider: Provider) -> u64 {
    let event = incomplete(&builder(POWERSHELL_7942).with("Message", "x"));
    rows::trace(&event).enable(provider).run(|_| {}).expect("a trace").delivered
}

pub fn rows() -> Rows {
    let of_powershell = || Provider::guid(POWERSHELL);
    let rows = [
        ("of any GUID, whether such a provider exists or not", Provider::guid(Guid([0x5a; 16])), 0),
        ("with a handler", of_powershell().on_event(|_| {}), 1),
        ("without a handler, its events are still selected", of_powershell(), 1),
        // The event has no keyword and level 0, which pass all settings.
        ("with keywords and a level", of_powershell().any(0x23).all(0xff).level(0), 1),
        ("with a level", of_powershell().level(1), 1),
        ("with all settings", of_powershell().stack_trace().rundown().any(u64::MAX).all(0).level(255), 1),
    ];
    let mut rows = rows::check(rows.map(|(name, provider, expected)| (name, delivered(provider), expected)));
    every_property_bit_can_be_requested();
    rows.push("with every bit of properties");
    rows
}

fn every_property_bit_can_be_requested() {
    for bit in 0..32 {
        let bits = 1_u32 << bit;
        let settings = ProviderSettings::new(POWERSHELL).enable_properties(EnableProperties::from_bits(bits));
        assert_eq!(settings.parameters().properties, bits, "bit {bit}");
    }
    let all = (0..32).fold(ProviderSettings::new(POWERSHELL), |settings, bit| {
        settings.enable_properties(EnableProperties::from_bits(1 << bit))
    });
    assert_eq!(all.parameters().properties, u32::MAX);
}
