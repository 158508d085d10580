//! Network addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{ConversionError, FromEtw};
use crate::model::{Field, OutType, Value};
use crate::value::socket_address;

impl<'e> FromEtw<'e> for IpAddr {
    const TYPE_NAME: &'static str = "IpAddr";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<IpAddr, ConversionError> {
        match (field.out_type, value) {
            (OutType::Ipv4, Value::Unsigned(number) | Value::Hex(number)) => match u32::try_from(number) {
                // The number is in network byte order, so its bytes in memory are the address.
                Ok(number) => Ok(Ipv4Addr::from(number.to_le_bytes()).into()),
                Err(_) => Err(ConversionError::Content("an address of 4 bytes")),
            },
            (OutType::Ipv4 | OutType::Ipv6, Value::Binary(bytes)) => match bytes.len() {
                4 => <[u8; 4]>::try_from(bytes).map(IpAddr::from),
                _ => <[u8; 16]>::try_from(bytes).map(IpAddr::from),
            }
            .map_err(|_| ConversionError::Content("an address of 4 or 16 bytes")),
            _ => Err(ConversionError::Type),
        }
    }
}

impl<'e> FromEtw<'e> for SocketAddr {
    const TYPE_NAME: &'static str = "SocketAddr";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<SocketAddr, ConversionError> {
        match (field.out_type, value) {
            (OutType::SocketAddress, Value::Binary(bytes)) => {
                socket_address(bytes).ok_or(ConversionError::Content("an IPv4 or IPv6 socket address"))
            }
            _ => Err(ConversionError::Type),
        }
    }
}
