//! Addresses of networks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{FromEtw, Unfit};
use crate::model::{Field, OutType, Value};
use crate::value::socket_address;

impl<'e> FromEtw<'e> for IpAddr {
    const ASKED: &'static str = "IpAddr";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<IpAddr, Unfit> {
        match (field.out_type, value) {
            (OutType::Ipv4, Value::Unsigned(number) | Value::Hex(number)) => match u32::try_from(number) {
                // The number is in network order, which is the order of its bytes.
                Ok(number) => Ok(Ipv4Addr::from(number.to_le_bytes()).into()),
                Err(_) => Err(Unfit::Content("an address of 4 bytes")),
            },
            (OutType::Ipv4 | OutType::Ipv6, Value::Binary(bytes)) => match bytes.len() {
                4 => <[u8; 4]>::try_from(bytes).map(IpAddr::from),
                _ => <[u8; 16]>::try_from(bytes).map(IpAddr::from),
            }
            .map_err(|_| Unfit::Content("an address of 4 or 16 bytes")),
            _ => Err(Unfit::Type),
        }
    }
}

impl<'e> FromEtw<'e> for SocketAddr {
    const ASKED: &'static str = "SocketAddr";

    fn from_value(field: &'e Field, value: Value<'e>) -> Result<SocketAddr, Unfit> {
        match (field.out_type, value) {
            (OutType::SocketAddress, Value::Binary(bytes)) => {
                socket_address(bytes).ok_or(Unfit::Content("a socket address of IPv4 or IPv6"))
            }
            _ => Err(Unfit::Type),
        }
    }
}
