//! Identities that a trusted gateway forwards in `x-forwarded-client-cert` (XFCC). Only accepted from configured networks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::{Identity, TrustDomains};

/// A longer header is rejected.
const MAX_SIZE: usize = 16 << 10;

/// The client of the last hop in the header, if the peer is trusted. `headers`: all values of that name.
pub fn forwarded_identities(
    peer: IpAddr,
    headers: &[&str],
    trusted: &[IpNet],
    domains: &TrustDomains,
) -> Vec<Identity> {
    let peer = peer.to_canonical();
    // With several headers it is unknown which one the gateway wrote.
    let [header] = headers else { return Vec::new() };
    if header.len() > MAX_SIZE || !trusted.iter().any(|network| network.contains(&peer)) {
        return Vec::new();
    }
    let Some(element) = split(header, ',').and_then(|elements| elements.last().copied()) else { return Vec::new() };
    let Some(pairs) = split(element, ';') else { return Vec::new() };
    let uris = pairs.into_iter().filter_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        key.eq_ignore_ascii_case("uri").then(|| value.trim_matches('"'))
    });
    let identities: Vec<Identity> = uris.filter_map(|uri| uri.parse().ok()).collect();
    identities.into_iter().filter(|identity| domains.contains(identity)).collect()
}

/// Splits at unquoted separators. `None`: an unclosed quote.
fn split(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if c == separator && !quoted => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    (!quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

    fn identities(peer: &str, headers: &[&str], trusted: &[&str]) -> Vec<String> {
        let domains = TrustDomains { own: "cluster.local".to_owned(), aliases: Vec::new() };
        let trusted: Vec<IpNet> = trusted.iter().map(|network| network.parse().unwrap()).collect();
        let found = forwarded_identities(peer.parse().unwrap(), headers, &trusted, &domains);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_a_configured_network_is_believed() {
        let header = format!("By=spiffe://cluster.local/ns/x/sa/y;Hash=ab;URI={CART}");
        assert_eq!(identities("10.1.2.3", &[&header], &["10.0.0.0/8"]), [CART]);
        assert_eq!(identities("::ffff:10.1.2.3", &[&header], &["10.0.0.0/8"]), [CART]);
        for (peer, trusted) in
            [("127.0.0.1", vec![]), ("192.168.0.1", vec!["10.0.0.0/8"]), ("::1", vec!["127.0.0.0/8"])]
        {
            assert_eq!(identities(peer, &[&header], &trusted), [""; 0], "{peer}");
        }
    }

    #[test]
    fn rejects_several_headers() {
        let header = format!("URI={CART}");
        assert_eq!(identities("10.0.0.1", &[&header, &header], &["10.0.0.0/8"]), [""; 0]);
    }

    #[test]
    fn the_last_hop_speaks_and_quotes_hide_nothing() {
        let other = "spiffe://cluster.local/ns/a/sa/b";
        let trusted = ["10.0.0.0/8"];
        assert_eq!(identities("10.0.0.1", &[&format!("URI={other},URI={CART}")], &trusted), [CART]);
        let injected = format!("Subject=\"CN=x,URI={other}\";URI={CART}");
        assert_eq!(identities("10.0.0.1", &[&injected], &trusted), [CART]);
        assert_eq!(identities("10.0.0.1", &[&format!("Subject=\"open;URI={CART}")], &trusted), [""; 0]);
        assert_eq!(identities("10.0.0.1", &["URI=spiffe://foreign/ns/a/sa/b"], &trusted), [""; 0]);
    }
}
