//! Signing requests, usual and unusual. All are signed by the key that they carry, unless that is what is wrong with them.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, PublicKeyData, SigningKey};

use crate::der::*;

pub(crate) const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";
const ADMIN: &str = "spiffe://cluster.local/ns/shop/sa/admin";
const URI: u8 = 0x86;
const DNS: u8 = 0x82;
/// As many as the named ones of each kind, and more.
const MUTATIONS: usize = 600;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) der: Der,
}

/// A request in parts, each of which a case may replace.
#[derive(Clone)]
struct Parts {
    version: Der,
    subject: Der,
    public_key: Der,
    attributes: Der,
    algorithm: Der,
}

fn san() -> Der {
    oid(&[2, 5, 29, 17])
}

fn extension(id: &[u8], critical: &[u8], value: &[u8]) -> Der {
    tlv(SEQUENCE, &[id, critical, &tlv(OCTET_STRING, &[value])])
}

fn names(all: &[&[u8]]) -> Der {
    extension(&san(), &[], &tlv(SEQUENCE, all))
}

fn request_of(values: &[&[u8]]) -> Der {
    tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 9, 14]), &tlv(SET, values)])
}

fn extensions(all: &[&[u8]]) -> Der {
    request_of(&[&tlv(SEQUENCE, all)])
}

fn attributes(all: &[&[u8]]) -> Der {
    tlv(0xa0, all)
}

fn rdn(arc: u32, value: &[u8]) -> Der {
    tlv(SET, &[&tlv(SEQUENCE, &[&oid(&[2, 5, 4, arc]), value])])
}

fn uri(text: &str) -> Der {
    tlv(URI, &[text.as_bytes()])
}

impl Parts {
    fn usual(key: &KeyPair) -> Parts {
        let ecdsa = |last| tlv(SEQUENCE, &[&oid(&[1, 2, 840, 10045, 4, 3, last])]);
        let algorithm = match key.algorithm() {
            it if it == &PKCS_ECDSA_P256_SHA256 => ecdsa(2),
            it if it == &PKCS_ECDSA_P384_SHA384 => ecdsa(3),
            _ => tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 1, 11]), &[NULL, 0]]),
        };
        Parts {
            version: vec![INTEGER, 1, 0],
            subject: tlv(SEQUENCE, &[]),
            public_key: key.subject_public_key_info(),
            attributes: attributes(&[&extensions(&[&names(&[&uri(CART)])])]),
            algorithm,
        }
    }

    fn info(&self) -> Der {
        tlv(SEQUENCE, &[&self.version, &self.subject, &self.public_key, &self.attributes])
    }

    fn signed(&self, key: &KeyPair) -> Der {
        signed(&self.info(), &self.algorithm, key)
    }
}

fn signed(info: &[u8], algorithm: &[u8], key: &KeyPair) -> Der {
    let signature = key.sign(info).expect("a key that signs");
    tlv(SEQUENCE, &[info, algorithm, &tlv(BIT_STRING, &[&[0], &signature])])
}

/// Those that agents send: they must be accepted.
pub(crate) fn usual() -> Vec<Case> {
    let empty = rdn(10, &[PRINTABLE, 0]);
    let critical = extension(&san(), &[BOOLEAN, 1, 0xff], &tlv(SEQUENCE, &[&uri(CART)]));
    let mut cases = Vec::new();
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_RSA_SHA256] {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let ours = Parts::usual(&key);
        let istio = Parts {
            subject: tlv(SEQUENCE, &[&empty]),
            attributes: attributes(&[&extensions(&[&critical])]),
            ..ours.clone()
        };
        for (name, parts) in [("our agent", ours), ("pilot-agent", istio)] {
            cases.push(Case { name: format!("{name} {algorithm:?}"), der: parts.signed(&key) });
        }
    }
    cases
}

/// Those that nobody should send: none may be accepted with anything but the caller's name in it.
pub(crate) fn unusual(seed: u64) -> Vec<Case> {
    let key = KeyPair::generate().expect("a key");
    let usual = Parts::usual(&key);
    let mut cases = Vec::new();
    let mut add = |name: &str, der: Der| cases.push(Case { name: name.to_owned(), der });
    for (name, attributes) in [odd_attributes(), odd_extensions(), odd_names()].concat() {
        add(&name, Parts { attributes, ..usual.clone() }.signed(&key));
    }
    for (name, subject) in odd_subjects() {
        add(&name, Parts { subject, ..usual.clone() }.signed(&key));
    }
    for (name, version) in [("version 2", vec![INTEGER, 1, 1]), ("long version", vec![INTEGER, 2, 0, 0])] {
        add(name, Parts { version, ..usual.clone() }.signed(&key));
    }
    odd_keys(&key, &usual, &mut add);
    odd_outsides(&key, &usual, &mut add);
    mutations(seed, &key, &usual, &mut add);
    cases
}

fn named(cases: Vec<(&str, Der)>) -> Vec<(String, Der)> {
    cases.into_iter().map(|(name, der)| (name.to_owned(), der)).collect()
}

fn odd_attributes() -> Vec<(String, Der)> {
    let good = extensions(&[&names(&[&uri(CART)])]);
    let admin = extensions(&[&names(&[&uri(ADMIN)])]);
    let authority = extensions(&[&extension(&oid(&[2, 5, 29, 19]), &[], &tlv(SEQUENCE, &[&[BOOLEAN, 1, 0xff]]))]);
    let [list, other] = [CART, ADMIN].map(|name| tlv(SEQUENCE, &[&names(&[&uri(name)])]));
    let microsoft = |arcs: &[u32], value: &[u8]| {
        tlv(SEQUENCE, &[&oid(&[&[1, 3, 6, 1, 4, 1, 311], arcs].concat()), &tlv(SET, &[value])])
    };
    let mut cases = named(vec![
        ("no attributes", attributes(&[])),
        ("an attribute twice", attributes(&[&good, &good])),
        ("another name in a second attribute", attributes(&[&good, &admin])),
        ("another name in a first attribute", attributes(&[&admin, &good])),
        ("an authority in a second attribute", attributes(&[&good, &authority])),
        ("an authority in a first attribute", attributes(&[&authority, &good])),
        ("two values", attributes(&[&request_of(&[&list, &other])])),
        ("a value twice", attributes(&[&request_of(&[&list, &list])])),
        ("a value that is no list", attributes(&[&request_of(&[&list, &[NULL, 0]])])),
        ("no value", attributes(&[&request_of(&[])])),
        ("an attribute with more than its values", {
            attributes(&[&tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 9, 14]), &tlv(SET, &[&list]), &[NULL, 0]])])
        }),
        ("values in a sequence", {
            attributes(&[&tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 9, 14]), &tlv(SEQUENCE, &[&list])])])
        }),
        ("Microsoft's version of the system", attributes(&[&good, &microsoft(&[13, 2, 3], &text(IA5, "10.0.1"))])),
        ("Microsoft's client", attributes(&[&microsoft(&[21, 20], &tlv(SEQUENCE, &[&[INTEGER, 1, 5]])), &good])),
        ("Microsoft's extensions", attributes(&[&good, &microsoft(&[2, 1, 14], &other)])),
        ("Microsoft's extensions alone", attributes(&[&microsoft(&[2, 1, 14], &list)])),
        ("attributes behind", [attributes(&[&good]), attributes(&[&admin])].concat()),
        ("a long length of attributes", long_length(0xa0, &[&good])),
        ("an indefinite length of attributes", indefinite(0xa0, &[&good])),
        ("a long length of an attribute", attributes(&[&long_length(SEQUENCE, &[&good[2..]])])),
    ]);
    for tag in [UTF8, PRINTABLE, T61, IA5, UNIVERSAL, BMP, OCTET_STRING] {
        let password = tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 9, 7]), &tlv(SET, &[&text(tag, "secret")])]);
        let unstructured = tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 9, 2]), &tlv(SET, &[&text(tag, ADMIN)])]);
        cases.push((format!("a password of tag {tag:#x}"), attributes(&[&good, &password])));
        cases.push((format!("an unstructured name of tag {tag:#x}"), attributes(&[&unstructured, &good])));
    }
    cases
}

fn odd_extensions() -> Vec<(String, Der)> {
    let (cart, admin) = (names(&[&uri(CART)]), names(&[&uri(ADMIN)]));
    let list = tlv(SEQUENCE, &[&uri(CART)]);
    let one = |it: &[u8]| attributes(&[&extensions(&[it])]);
    let two = |it: &[u8], other: &[u8]| attributes(&[&extensions(&[it, other])]);
    let other = |arcs: &[u32], critical: &[u8], value: &[u8]| extension(&oid(arcs), critical, value);
    let usage = other(&[2, 5, 29, 15], &[], &tlv(BIT_STRING, &[&[1, 0x06]]));
    named(vec![
        ("no extension", attributes(&[&extensions(&[])])),
        ("a name twice", two(&cart, &cart)),
        ("two extensions of names", two(&cart, &admin)),
        ("two extensions of names, the other first", two(&admin, &cart)),
        ("an authority", two(&cart, &other(&[2, 5, 29, 19], &[], &tlv(SEQUENCE, &[&[BOOLEAN, 1, 0xff]])))),
        ("an authority in BER", two(&cart, &other(&[2, 5, 29, 19], &[], &tlv(SEQUENCE, &[&[BOOLEAN, 1, 1]])))),
        ("no authority", two(&cart, &other(&[2, 5, 29, 19], &[], &tlv(SEQUENCE, &[])))),
        ("usage of keys", two(&usage, &cart)),
        ("names of the issuer", two(&cart, &other(&[2, 5, 29, 18], &[], &tlv(SEQUENCE, &[&uri(ADMIN)])))),
        ("Microsoft's template", two(&cart, &other(&[1, 3, 6, 1, 4, 1, 311, 20, 2], &[], &text(BMP, "Administrator")))),
        ("an unknown one", two(&cart, &other(&[1, 3, 6, 1, 4, 1, 99999], &[BOOLEAN, 1, 0xff], &[NULL, 0]))),
        ("critical in BER", one(&extension(&san(), &[BOOLEAN, 1, 1], &list))),
        ("critical set to false", one(&extension(&san(), &[BOOLEAN, 1, 0], &list))),
        ("critical of two bytes", one(&extension(&san(), &[BOOLEAN, 2, 0xff, 0xff], &list))),
        ("more behind names", one(&extension(&san(), &[], &[list.clone(), uri(ADMIN)].concat()))),
        ("a zero behind names", one(&extension(&san(), &[], &[list.clone(), vec![0]].concat()))),
        ("more behind the value", one(&tlv(SEQUENCE, &[&san(), &tlv(OCTET_STRING, &[&list]), &[NULL, 0]]))),
        ("two values", one(&tlv(SEQUENCE, &[&san(), &tlv(OCTET_STRING, &[&list]), &tlv(OCTET_STRING, &[&list])]))),
        ("a value in pieces", one(&tlv(SEQUENCE, &[&san(), &tlv(0x24, &[&tlv(OCTET_STRING, &[&list])])]))),
        ("a value inside a value", one(&extension(&san(), &[], &tlv(OCTET_STRING, &[&list])))),
        ("a value that is no string of octets", one(&tlv(SEQUENCE, &[&san(), &list]))),
        ("a value of bits", one(&tlv(SEQUENCE, &[&san(), &tlv(BIT_STRING, &[&[0], &list])]))),
        ("a value that is cut", one(&extension(&san(), &[], &list[..list.len() - 1]))),
        ("an empty value", one(&extension(&san(), &[], &[]))),
        ("names in a set", one(&extension(&san(), &[], &tlv(SET, &[&uri(CART)])))),
        ("a long length of names", one(&extension(&san(), &[], &long_length(SEQUENCE, &[&uri(CART)])))),
        ("an indefinite length of names", one(&extension(&san(), &[], &indefinite(SEQUENCE, &[&uri(CART)])))),
        ("a long length of the URI", one(&names(&[&long_length(URI, &[CART.as_bytes()])]))),
        ("a long length of the value", one(&tlv(SEQUENCE, &[&san(), &long_length(OCTET_STRING, &[&list])]))),
        ("another arc", one(&extension(&oid(&[2, 5, 29, 7]), &[], &list))),
    ])
}

fn odd_names() -> Vec<(String, Der)> {
    let one = |all: &[&[u8]]| attributes(&[&extensions(&[&names(all)])]);
    let others: Vec<(&str, Der)> = vec![
        (
            "an other name",
            tlv(0xa0, &[&oid(&[1, 3, 6, 1, 4, 1, 311, 20, 2, 3]), &tlv(0xa0, &[&text(UTF8, "admin@x")])]),
        ),
        ("a mail address", tlv(0x81, &[b"admin@example.com"])),
        ("a host", tlv(DNS, &[b"istiod.istio-system.svc"])),
        ("a host of any name", tlv(DNS, &[b"*"])),
        ("an X.400 address", tlv(0xa3, &[&tlv(SEQUENCE, &[])])),
        ("a directory name", tlv(0xa4, &[&tlv(SEQUENCE, &[&rdn(3, &text(UTF8, "admin"))])])),
        ("an EDI party", tlv(0xa5, &[&tlv(0xa1, &[&text(UTF8, "admin")])])),
        ("another URI", uri(ADMIN)),
        ("the same URI", uri(CART)),
        ("a URI that is composed", tlv(0xa6, &[ADMIN.as_bytes()])),
        ("an address", tlv(0x87, &[&[10, 0, 0, 1]])),
        ("a long address", tlv(0x87, &[&[0xfd; 16]])),
        ("an address of five bytes", tlv(0x87, &[&[1, 2, 3, 4, 5]])),
        ("a registered id", tlv(0x88, &[&[0x2a, 3, 4]])),
        ("an unknown kind", tlv(0x89, &[b"admin"])),
        ("text", text(UTF8, ADMIN)),
        ("nothing", tlv(URI, &[])),
    ];
    let mut cases =
        named(vec![("no name", one(&[])), ("a URI that is composed, alone", one(&[&tlv(0xa6, &[CART.as_bytes()])]))]);
    for (name, other) in &others {
        cases.push((format!("{name}, behind"), one(&[&uri(CART), other])));
        cases.push((format!("{name}, before"), one(&[other, &uri(CART)])));
        if *other != uri(CART) {
            cases.push((format!("{name}, alone"), one(&[other])));
        }
    }
    let spellings = [
        "SPIFFE://cluster.local/ns/shop/sa/cart",
        "spiffe://Cluster.local/ns/shop/sa/cart",
        "spiffe://cluster.local/ns/shop/sa/cart/",
        "spiffe://cluster.local//ns/shop/sa/cart",
        "spiffe://cluster.local/ns/shop/sa/cart?",
        "spiffe://cluster.local/ns/shop/sa/cart#",
        "spiffe://cluster.local/ns/shop/sa/cart?x=y",
        "spiffe://cluster.local/ns/shop/sa/%63art",
        "spiffe://cluster.local:443/ns/shop/sa/cart",
        "spiffe://a@cluster.local/ns/shop/sa/cart",
        "spiffe://cluster.local/ns/../ns/shop/sa/cart",
        "spiffe://cluster.local/ns/shop/sa/cart\0",
        "spiffe://cluster.local/ns/shop/sa/cart\0/sa/admin",
        " spiffe://cluster.local/ns/shop/sa/cart",
        "spiffe://cluster.local/ns/shop/sa/cart\n",
        "spiffe://cluster.local/ns/shop/sa/cárt",
        "spiffe://cluster.local/ns/shop/sa/cart,spiffe://cluster.local/ns/shop/sa/admin",
        "https://cluster.local/ns/shop/sa/cart",
        "cart",
    ];
    cases.extend(spellings.map(|text| (format!("{text:?}"), one(&[&uri(text)]))));
    cases
}

fn odd_subjects() -> Vec<(String, Der)> {
    let subject = |all: &[&[u8]]| tlv(SEQUENCE, all);
    let mut cases = named(vec![
        ("two organizations that are empty", subject(&[&rdn(10, &[PRINTABLE, 0]), &rdn(10, &[PRINTABLE, 0])])),
        ("an empty organization in UTF-8", subject(&[&rdn(10, &[UTF8, 0])])),
        ("an empty set", subject(&[&tlv(SET, &[])])),
        ("a subject in a set", tlv(SET, &[])),
        ("a long length of the subject", long_length(SEQUENCE, &[])),
    ]);
    for tag in [UTF8, PRINTABLE, T61, IA5, UNIVERSAL, BMP, OCTET_STRING, BIT_STRING, INTEGER] {
        for (arc, value) in [(3, ADMIN), (10, "system:masters"), (3, ""), (5, "1")] {
            cases.push((format!("subject {arc} {value:?} of tag {tag:#x}"), subject(&[&rdn(arc, &text(tag, value))])));
        }
    }
    cases
}

fn odd_keys(key: &KeyPair, usual: &Parts, add: &mut impl FnMut(&str, Der)) {
    let point = key.der_bytes().to_vec();
    let curve = tlv(SEQUENCE, &[&oid(&[1, 2, 840, 10045, 2, 1]), &oid(&[1, 2, 840, 10045, 3, 1, 7])]);
    let with =
        |algorithm: &[u8], unused: u8, bits: &[u8]| tlv(SEQUENCE, &[algorithm, &tlv(BIT_STRING, &[&[unused], bits])]);
    let compressed = [&[2 + (point[64] & 1)], &point[1..33]].concat();
    let hybrid = [&[6 + (point[64] & 1)], &point[1..]].concat();
    let more = tlv(SEQUENCE, &[&curve, &tlv(BIT_STRING, &[&[0], &point]), &[NULL, 0]]);
    let noted = tlv(SEQUENCE, &[&oid(&[1, 2, 840, 10045, 2, 1]), &oid(&[1, 2, 840, 10045, 3, 1, 7]), &[NULL, 0]]);
    for (name, public_key) in [
        ("a compressed point", with(&curve, 0, &compressed)),
        ("a hybrid point", with(&curve, 0, &hybrid)),
        ("a point with more behind", with(&curve, 0, &[&point[..], &[0]].concat())),
        ("unused bits in a key", with(&curve, 1, &point)),
        ("more behind a key", more),
        ("more in the algorithm of a key", with(&noted, 0, &point)),
        ("no curve", with(&tlv(SEQUENCE, &[&oid(&[1, 2, 840, 10045, 2, 1])]), 0, &point)),
        (
            "another curve",
            with(&tlv(SEQUENCE, &[&oid(&[1, 2, 840, 10045, 2, 1]), &oid(&[1, 3, 132, 0, 10])]), 0, &point),
        ),
    ] {
        add(name, Parts { public_key, ..usual.clone() }.signed(key));
    }
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    let bare = tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 1, 1])]);
    let none = Parts { public_key: with(&bare, 0, rsa.der_bytes()), ..Parts::usual(&rsa) };
    add("RSA without parameters", none.signed(&rsa));
    let behind = [rsa.der_bytes(), &[NULL, 0]].concat();
    let algorithm = tlv(SEQUENCE, &[&oid(&[1, 2, 840, 113549, 1, 1, 1]), &[NULL, 0]]);
    add("RSA with more behind", Parts { public_key: with(&algorithm, 0, &behind), ..Parts::usual(&rsa) }.signed(&rsa));
}

fn odd_outsides(key: &KeyPair, usual: &Parts, add: &mut impl FnMut(&str, Der)) {
    let (info, good) = (usual.info(), usual.signed(key));
    let signature = |info: &[u8]| key.sign(info).expect("a key that signs");
    let ecdsa = oid(&[1, 2, 840, 10045, 4, 3, 2]);
    for (name, algorithm) in [
        ("parameters of a signature", tlv(SEQUENCE, &[&ecdsa, &[NULL, 0]])),
        ("a signature with SHA-1", tlv(SEQUENCE, &[&oid(&[1, 2, 840, 10045, 4, 1])])),
        ("a signature with SHA-512", tlv(SEQUENCE, &[&oid(&[1, 2, 840, 10045, 4, 3, 4])])),
        ("a long length of an algorithm", long_length(SEQUENCE, &[&ecdsa])),
    ] {
        add(name, signed(&info, &algorithm, key));
    }
    let bits = |unused: u8, bytes: &[u8]| tlv(BIT_STRING, &[&[unused], bytes]);
    let whole = |parts: &[&[u8]]| tlv(SEQUENCE, parts);
    add("unused bits in a signature", whole(&[&info, &usual.algorithm, &bits(1, &signature(&info))]));
    add("more behind a signature", whole(&[&info, &usual.algorithm, &bits(0, &signature(&info)), &[NULL, 0]]));
    add("a signature with more in it", {
        whole(&[&info, &usual.algorithm, &bits(0, &[signature(&info), vec![0]].concat())])
    });
    add("no signature", whole(&[&info, &usual.algorithm, &bits(0, &[])]));
    let other = KeyPair::generate().expect("a key");
    add("a signature of another key", signed(&info, &usual.algorithm, &other));
    add("more behind", [&good[..], &good].concat());
    add("a byte behind", [&good[..], &[0]].concat());
    add("a long length of all", long_length(SEQUENCE, &[&info, &usual.algorithm, &bits(0, &signature(&info))]));
    add("an indefinite length of all", indefinite(SEQUENCE, &[&info, &usual.algorithm, &bits(0, &signature(&info))]));
    let parts = [&usual.version, &usual.subject, &usual.public_key, &usual.attributes].map(Vec::as_slice);
    let more = tlv(SEQUENCE, &[&parts.concat(), &[NULL, 0]]);
    add("more behind the attributes", signed(&more, &usual.algorithm, key));
    let long = long_length(SEQUENCE, &parts);
    add("a long length of what is signed", signed(&long, &usual.algorithm, key));
    add("no attributes at all", signed(&tlv(SEQUENCE, &parts[..3]), &usual.algorithm, key));
}

/// Bytes of a usual request changed, added, taken out and doubled; signed after that, or before.
fn mutations(seed: u64, key: &KeyPair, usual: &Parts, add: &mut impl FnMut(&str, Der)) {
    let mut state = seed;
    // SplitMix64.
    let mut random = move |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    };
    let info = usual.info();
    // The key's own bytes are the least interesting, and the most.
    let behind_key = info.len() - usual.attributes.len();
    for count in 0..MUTATIONS {
        let signed_after = count % 4 != 0;
        let mut bytes = if signed_after { info.clone() } else { usual.signed(key) };
        for _ in 0..=random(2) {
            let place = if random(4) > 0 { behind_key + random(usual.attributes.len()) } else { random(bytes.len()) };
            let place = place.min(bytes.len() - 1);
            match random(5) {
                0 => bytes[place] = random(256) as u8,
                1 => bytes[place] ^= 1 << random(8),
                2 => bytes.insert(place, random(256) as u8),
                3 => drop(bytes.remove(place)),
                _ => {
                    let end = (place + 1 + random(12)).min(bytes.len());
                    let copied = bytes[place..end].to_vec();
                    bytes.splice(place..place, copied);
                }
            }
        }
        let der = if signed_after { signed(&bytes, &usual.algorithm, key) } else { bytes };
        add(&format!("mutation {count} of seed {seed}"), der);
    }
}
