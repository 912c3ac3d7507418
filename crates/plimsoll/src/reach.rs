//! Which addresses is the target reached at, may it be, and from where?

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use fleet::plan::{self, Sources};
use model::Target;
use nix::ifaddrs::getifaddrs;
use thiserror::Error;

/// Why a target cannot be reached, or must not be.
#[derive(Debug, Error)]
pub(crate) enum ReachError {
    #[error("cannot resolve {host:?}: {why}; check the name, or give an address")]
    Unresolved { host: String, why: String },
    #[error(
        "{0} is a public address: holding connections to a stranger's server is an attack; if the server is yours, \
         say so with --allow-public {1}"
    )]
    Public(IpAddr, String),
    #[error("no route from this machine to {0}: {1}")]
    NoRoute(IpAddr, String),
    #[error("{0}")]
    Source(String),
}

/// The addresses of a target, all of which may be connected to.
pub(crate) fn resolve(target: &Target, allowed: Option<&str>) -> Result<Vec<SocketAddr>, ReachError> {
    let unresolved = |why: String| ReachError::Unresolved { host: target.host.clone(), why };
    let mut addresses: Vec<SocketAddr> = (target.host.as_str(), target.port)
        .to_socket_addrs()
        .map_err(|e| unresolved(e.to_string()))?
        .collect();
    addresses.dedup();
    // A name with both families means one server twice (localhost); IPv4 has the sources.
    if addresses.iter().any(SocketAddr::is_ipv4) {
        addresses.retain(SocketAddr::is_ipv4);
    }
    if addresses.is_empty() {
        return Err(unresolved("it has no address".to_owned()));
    }
    if allowed != Some(target.host.as_str())
        && let Some(public) = addresses.iter().find(|a| is_public(a.ip()))
    {
        return Err(ReachError::Public(public.ip(), target.host.clone()));
    }
    Ok(addresses)
}

/// Whether an address can belong to a stranger: all but loopback, link-local and private ranges (RFC 1918, 4193,
/// 6598).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let shared = a.octets()[0] == 100 && a.octets()[1] & 0xC0 == 64;
            !(a.is_loopback() || a.is_private() || a.is_link_local() || a.is_unspecified() || shared)
        }
        IpAddr::V6(a) => match a.to_ipv4_mapped() {
            Some(v4) => is_public(v4.into()),
            None => {
                !(a.is_loopback() || a.is_unique_local() || a.is_unicast_link_local() || a.is_unspecified())
            }
        },
    }
}

/// Where connections to the target can come from: those asked for, or all of 127.0.0.0/8, or the addresses of the
/// route's interface.
pub(crate) fn sources(target: &Target, to: SocketAddr, asked: &[String]) -> Result<Sources, ReachError> {
    if !asked.is_empty() {
        return plan::parse_sources(asked, target).map(Sources::These).map_err(ReachError::Source);
    }
    match to.ip() {
        IpAddr::V4(a) if a.is_loopback() => return Ok(Sources::Loopback),
        a if a.is_loopback() => return Ok(Sources::These(vec![a])),
        _ => {}
    }
    // Connecting a datagram socket sends nothing, and asks the routing table for the source address.
    let no_route = |e: std::io::Error| ReachError::NoRoute(to.ip(), e.to_string());
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).map_err(no_route)?;
    socket.connect(to).map_err(no_route)?;
    let first = socket.local_addr().map_err(no_route)?.ip();
    let mut list = vec![first];
    if let Ok(interfaces) = getifaddrs() {
        let all: Vec<(String, IpAddr)> = interfaces
            .filter_map(|i| {
                let address = i.address?;
                let ip = address
                    .as_sockaddr_in()
                    .map(|a| IpAddr::V4(a.ip()))
                    .or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))?;
                Some((i.interface_name, ip))
            })
            .collect();
        if let Some((name, _)) = all.iter().find(|(_, ip)| *ip == first) {
            list.extend(
                all.iter()
                    .filter(|(n, ip)| n == name && *ip != first && ip.is_ipv4() == first.is_ipv4())
                    .filter(|(_, ip)| !matches!(ip, IpAddr::V6(a) if a.is_unicast_link_local()))
                    .map(|(_, ip)| *ip),
            );
        }
    }
    Ok(Sources::These(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strangers_addresses_are_public() {
        for private in
            ["127.9.9.9", "10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "::1", "fd00::1", "fe80::1"]
        {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:4860::1", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn a_public_target_is_refused_unless_it_is_named() {
        let target = Target::parse("http://8.8.8.8/").unwrap();
        assert!(resolve(&target, None).unwrap_err().to_string().contains("--allow-public 8.8.8.8"));
        assert!(resolve(&target, Some("9.9.9.9")).is_err());
        assert!(resolve(&target, Some("8.8.8.8")).is_ok());
    }
}
