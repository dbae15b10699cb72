//! A WebAssembly module for proxies, written byte by byte: it puts its configuration into the header `x-wasm` of every answer.

/// What the host gives: `proxy_get_buffer_bytes` and `proxy_add_header_map_value` take five numbers each.
const TYPES: [&[u8]; 6] = [
    &[0x60, 5, I32, I32, I32, I32, I32, 1, I32],
    &[0x60, 1, I32, 1, I32],
    &[0x60, 2, I32, I32, 0],
    &[0x60, 2, I32, I32, 1, I32],
    &[0x60, 3, I32, I32, I32, 1, I32],
    &[0x60, 0, 0],
];

const I32: u8 = 0x7f;
const END: u8 = 0x0b;
const CONST: u8 = 0x41;
const CALL: u8 = 0x10;
const DROP: u8 = 0x1a;
const GET: u8 = 0x20;

/// Where the host puts address and length of the configuration, and where the header's name stands.
const CONFIGURATION: u8 = 8;
const LENGTH: u8 = 12;
const NAME: u8 = 16;
const HEADER: &str = "x-wasm";

/// Each exported function: name, number of its type, body.
const FUNCTIONS: [(&str, u8, &[u8]); 6] = [
    ("proxy_abi_version_0_2_1", 5, &[END]),
    // Memory is handed out upwards and never taken back.
    ("proxy_on_memory_allocate", 1, &[0x23, 0, 0x23, 0, GET, 0, 0x6a, 0x24, 0, END]),
    ("proxy_on_context_create", 2, &[END]),
    ("proxy_on_vm_start", 3, &[CONST, 1, END]),
    // Buffer 7 is the configuration.
    (
        "proxy_on_configure",
        3,
        &[CONST, 7, CONST, 0, GET, 1, CONST, CONFIGURATION, CONST, LENGTH, CALL, 0, DROP, CONST, 1, END],
    ),
    // Map 2 has the headers of the answer.
    (
        "proxy_on_response_headers",
        4,
        &[
            CONST,
            2,
            CONST,
            NAME,
            CONST,
            HEADER.len() as u8,
            CONST,
            CONFIGURATION,
            0x28,
            2,
            0,
            CONST,
            LENGTH,
            0x28,
            2,
            0,
            CALL,
            1,
            DROP,
            CONST,
            0,
            END,
        ],
    ),
];

pub(crate) fn greeting() -> Vec<u8> {
    let imports = ["proxy_get_buffer_bytes", "proxy_add_header_map_value"];
    let imported: Vec<_> = imports.iter().map(|name| [&text("env"), &text(name), &[0, 0][..]].concat()).collect();
    let functions: Vec<_> = FUNCTIONS.iter().map(|(_, kind, _)| vec![*kind]).collect();
    let mut exported: Vec<_> = FUNCTIONS
        .iter()
        .zip(imports.len() as u8..)
        .map(|((name, ..), index)| [&text(name), &[0, index][..]].concat())
        .collect();
    exported.push([&text("memory"), &[2, 0][..]].concat());
    let bodies: Vec<_> = FUNCTIONS.iter().map(|(_, _, body)| sized(&[&[0], *body].concat())).collect();
    let data = [&[0, CONST, NAME, END][..], &text(HEADER)].concat();
    let sections = [
        (1, list(&TYPES.map(<[u8]>::to_vec))),
        (2, list(&imported)),
        (3, list(&functions)),
        (5, list(&[vec![0, 2]])),
        // The next free address: 1024.
        (6, list(&[vec![I32, 1, CONST, 0x80, 0x08, END]])),
        (7, list(&exported)),
        (10, list(&bodies)),
        (11, list(&[data])),
    ];
    let sections = sections.into_iter().flat_map(|(id, content)| [vec![id], sized(&content)].concat());
    b"\0asm\x01\0\0\0".iter().copied().chain(sections).collect()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [number(items.len()), items.concat()].concat()
}

fn text(text: &str) -> Vec<u8> {
    sized(text.as_bytes())
}

fn sized(content: &[u8]) -> Vec<u8> {
    [number(content.len()), content.to_vec()].concat()
}

/// LEB128.
fn number(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return out;
        }
        out.push(low | 0x80);
    }
}
