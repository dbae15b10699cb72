//! Reading and parsing of one file. The state of the file is in `file_state`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use config::diagnostic::{Diagnostic, Location};
use config::object::{Parsed, parse_documents_within};
use config::yaml::{LIST_HEAD, MAX_LIST_BYTES, TextLimits, is_list};
use nix::fcntl::OFlag;
use xxhash_rust::xxh3::xxh3_128;
use zeroize::{Zeroize, Zeroizing};

use super::tree::Stamp;

pub(super) struct Reading {
    /// `None`: read it again next time, whatever its stamp.
    pub(super) stamp: Option<Stamp>,
    pub(super) digest: Option<Digest>,
    pub(super) content: Content,
}

/// Content hash of a file. Parsing costs a hundred times as much, and a recently written file is read twice.
pub(super) type Digest = u128;

pub(super) enum Content {
    /// Unchanged since the last read.
    Same,
    Parsed(Parsed),
    /// Not even a comment: the state of a file between truncation and write.
    Blank,
    Unusable(Diagnostic),
}

impl Reading {
    /// `None`: the file is gone. `known`: the previous content hash.
    pub(super) fn new(path: &Path, shown: &Arc<str>, limit: u64, known: Option<Digest>) -> Option<Reading> {
        match read_stable(path, limit) {
            Ok((stamp, mut bytes)) => {
                let stamp = Some(stamp).filter(|stamp| !stamp.is_young(SystemTime::now()));
                let digest = Some(xxh3_128(&bytes));
                let content = if digest == known {
                    bytes.zeroize();
                    Content::Same
                } else {
                    Content::new(shown, bytes, limit)
                };
                Some(Reading { stamp, digest, content })
            }
            Err(Problem::Read(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(problem) => Some(Reading::unusable(shown, &problem.to_string())),
        }
    }

    /// A text that is no file.
    pub(super) fn of_text(shown: &Arc<str>, text: Vec<u8>, limit: u64) -> Reading {
        let (size, limit) = (text.len() as u64, if is_list(&text) { limit.max(LIST_LIMIT) } else { limit });
        if size > limit {
            return Reading::unusable(shown, &Problem::TooLarge { size, limit }.to_string());
        }
        Reading { stamp: None, digest: None, content: Content::new(shown, text, limit) }
    }

    pub(super) fn unusable(shown: &Arc<str>, why: &str) -> Reading {
        let at = Location { file: shown.clone(), line: 1, column: 1 };
        Reading { stamp: None, digest: None, content: Content::Unusable(Diagnostic::error(why).at(at)) }
    }
}

impl Content {
    fn new(shown: &Arc<str>, bytes: Vec<u8>, limit: u64) -> Content {
        match String::from_utf8(bytes) {
            Ok(text) if text.trim().is_empty() => Content::Blank,
            Ok(text) => {
                // It may hold private keys.
                let text = Zeroizing::new(text);
                let allowed = TextLimits::of_bytes(usize::try_from(limit).unwrap_or(usize::MAX));
                Content::Parsed(parse_documents_within(shown, &text, TextLimits::of_text(&text).max(allowed)))
            }
            Err(error) => Content::Unusable(not_text(shown, &error)),
        }
    }
}

fn not_text(shown: &Arc<str>, error: &std::string::FromUtf8Error) -> Diagnostic {
    let bytes = error.as_bytes();
    let good = std::str::from_utf8(&bytes[..error.utf8_error().valid_up_to()]).unwrap_or_default();
    let line = good.matches('\n').count() + 1;
    let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let bad = bytes.get(good.len()).copied().unwrap_or_default();
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Diagnostic::error(format!("byte 0x{bad:02x} is not UTF-8; save the file as UTF-8")).at(Location {
        file: shown.clone(),
        line: number(line),
        column: number(column),
    })
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("is not a regular file")]
    NotAFile,
    #[error(
        "has {size} bytes, the limit is {limit}; split it, or put its objects into a List ({} bytes)",
        MAX_LIST_BYTES
    )]
    TooLarge { size: u64, limit: u64 },
    #[error("changes constantly; replace it atomically by renaming a finished file")]
    Unstable,
}

/// In bytes, of a file that is one list of objects.
const LIST_LIMIT: u64 = MAX_LIST_BYTES as u64;

/// The limit of this file, of which nothing has been read.
fn limit_of(file: &mut File, size: u64, limit: u64) -> io::Result<u64> {
    if size <= limit || size > LIST_LIMIT {
        return Ok(limit);
    }
    let mut head = Vec::new();
    Read::by_ref(file).take(LIST_HEAD as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(if is_list(&head) { LIST_LIMIT } else { limit })
}

/// The content with its stamp: a file that was written meanwhile is read again.
fn read_stable(path: &Path, limit: u64) -> Result<(Stamp, Vec<u8>), Problem> {
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        // Not blocking: a FIFO may have taken the place of the file since it was listed. Files on a disk do not notice.
        let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
        let before = file.metadata()?;
        if !before.is_file() {
            return Err(Problem::NotAFile);
        }
        let limit = limit_of(&mut file, before.len(), limit)?;
        if before.len() > limit {
            return Err(Problem::TooLarge { size: before.len(), limit });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(before.len()).unwrap_or_default());
        Read::by_ref(&mut file).take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(Problem::TooLarge { size: bytes.len() as u64, limit });
        }
        let stamp = Stamp::new(&before);
        if stamp == Stamp::new(&file.metadata()?) {
            return Ok((stamp, bytes));
        }
    }
    Err(Problem::Unstable)
}
