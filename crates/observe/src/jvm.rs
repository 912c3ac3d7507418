//! How full is the heap of a Java virtual machine?
//!
//! HotSpot keeps its counters in a file that it maps: `/tmp/hsperfdata_USER/PID`, where `jstat` reads them,
//! too. In a container the file lies in the container's `/tmp` and is named by the pid there. Version 2 of
//! the format (JDK 5 and later; `perfMemory.hpp` and `perfData.hpp` in OpenJDK's sources): a header of 32
//! bytes, then entries, each with a head of 20 bytes, its name and its value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use model::observation::Heap;

use crate::reader::{Error, Root, Warnings, absent};
use crate::table::Process;

/// What the file starts with, in big endian always.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];

/// The file has 32 KiB unless `-XX:PerfDataMemorySize` says otherwise; a larger one than this is not read.
const MOST_BYTES: u64 = 4 << 20;

/// A virtual machine has some 200 counters.
const MOST_ENTRIES: usize = 10_000;

/// More processes than this are not asked whether they are one: a group of so many forks for its connections.
const MOST_PROCESSES: usize = 256;

/// The heap of the virtual machine among the members; of several the one that may grow largest, as one that
/// only starts others is small. `None`: there is none, or it keeps no counters (`-XX:-UsePerfData`).
pub(crate) fn heap(root: &Root, members: &[&Process], warnings: &mut Warnings) -> Option<Heap> {
    let mut directories = Directories::default();
    let mut largest: Option<Heap> = None;
    for member in members.iter().filter(|m| !m.zombie).take(MOST_PROCESSES) {
        let Some(path) = directories.file_of(root, member.pid) else { continue };
        let Some(heap) = warnings.keep(read(path)) else { continue };
        if largest.as_ref().is_none_or(|found| heap.max_bytes > found.max_bytes) {
            largest = Some(heap);
        }
    }
    largest
}

/// Where virtual machines keep their files, listed once for all processes that share a `/tmp`.
#[derive(Debug, Default)]
struct Directories {
    /// The names `hsperfdata_USER` in a `/tmp`, by its device and inode.
    of_tmp: BTreeMap<(u64, u64), Vec<OsString>>,
}

impl Directories {
    /// The file of a process, if it has one: below its own root, or below ours where that is not for us.
    fn file_of(&mut self, root: &Root, pid: u32) -> Option<PathBuf> {
        let candidates = [root.join(format!("proc/{pid}/root/tmp")), root.join("tmp")];
        let (tmp, found) =
            candidates.into_iter().find_map(|tmp| fs::metadata(&tmp).ok().map(|found| (tmp, found)))?;
        let names = self.of_tmp.entry((found.dev(), found.ino())).or_insert_with(|| directories_in(&tmp));
        if names.is_empty() {
            return None;
        }
        let name = pid_within(root, pid).unwrap_or(pid).to_string();
        // A link or a pipe put there by another user is not followed.
        let is_file = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
        names.iter().map(|directory| tmp.join(directory).join(&name)).find(is_file)
    }
}

/// The directories of a `/tmp` in which virtual machines keep their files.
fn directories_in(tmp: &Path) -> Vec<OsString> {
    let Ok(entries) = fs::read_dir(tmp) else { return vec![] };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    names.filter(|name| name.as_encoded_bytes().starts_with(b"hsperfdata_")).collect()
}

/// The pid that a process has in its own pid namespace: the last of `NSpid` in its `status`.
fn pid_within(root: &Root, pid: u32) -> Option<u32> {
    let status = root.read(format!("proc/{pid}/status")).ok()??;
    status.find("NSpid:")?.text.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Reads a virtual machine's file; `None` if it has gone, or has no heap in it (yet).
fn read(path: PathBuf) -> Result<Option<Heap>, Error> {
    let mut bytes = Vec::with_capacity(32 * 1024);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) => return absent(path, e),
    };
    if let Err(e) = file.take(MOST_BYTES + 1).read_to_end(&mut bytes) {
        return absent(path, e);
    }
    let counters = match counters(&bytes) {
        Ok(counters) => counters,
        Err(what) => return Err(Error::Undecodable { path, what }),
    };
    Ok(counters.and_then(|counters| summed_up(&counters, path.display().to_string())))
}

/// A counter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Number(i64),
    Text(String),
}

type Counters = BTreeMap<String, Value>;

/// All counters of a file by name; `None`: the virtual machine is only just starting. What is neither a
/// number of 64 bits nor a text is left out.
fn counters(bytes: &[u8]) -> Result<Option<Counters>, &'static str> {
    if bytes.len() as u64 > MOST_BYTES {
        return Err("a file of a virtual machine's counters larger than any");
    }
    let header: &[u8; 32] = bytes.first_chunk().ok_or("a header of 32 bytes is cut short")?;
    if header[..4] != MAGIC {
        return Err("it does not start with 0xcafec0c0");
    }
    let little = match header[4] {
        0 => false,
        1 => true,
        _ => return Err("its byte order is neither 0 nor 1"),
    };
    if header[5] != 2 {
        return Err("its format is not version 2");
    }
    if header[7] == 0 {
        return Ok(None);
    }
    let file = Fields { bytes, little };
    let mut at = file.size(24).ok_or("the place of its first entry is not in it")?;
    let count = file.size(28).filter(|n| *n <= MOST_ENTRIES).ok_or("it has more counters than there are")?;
    let mut out = Counters::new();
    for _ in 0..count {
        let (name, value, length) = file.entry(at).ok_or("an entry reaches beyond its end")?;
        if let Some(value) = value {
            out.insert(name, value);
        }
        at = at.checked_add(length).ok_or("an entry reaches beyond its end")?;
    }
    Ok(Some(out))
}

/// The bytes of a file, read as it says that they are ordered.
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
    little: bool,
}

impl Fields<'_> {
    /// The length, place or count at a place: four bytes, never negative.
    fn size(&self, at: usize) -> Option<usize> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        let value = if self.little { i32::from_le_bytes(bytes) } else { i32::from_be_bytes(bytes) };
        usize::try_from(value).ok()
    }

    fn number(&self, at: usize) -> Option<i64> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.little { i64::from_le_bytes(bytes) } else { i64::from_be_bytes(bytes) })
    }

    /// Bytes up to the first zero, or to the end of what is given.
    fn text(bytes: &[u8]) -> String {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// The name, the value and the length of the entry at a place.
    ///
    /// Its head: length, place of the name, elements (0: a single value), type, flags, units, variability,
    /// place of the value; places count from the entry's start.
    fn entry(&self, at: usize) -> Option<(String, Option<Value>, usize)> {
        const HEAD: usize = 20;
        let length = self.size(at).filter(|n| *n >= HEAD)?;
        let end = at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        let within = |place: usize| at.checked_add(place).filter(|place| *place <= end);
        let name = within(self.size(at + 4)?)?;
        let elements = self.size(at + 8)?;
        let value = within(self.size(at + 16)?)?;
        let value = match (self.bytes.get(at + 12)?, elements) {
            (b'J', 0) => Some(Value::Number(self.number(value).filter(|_| value + 8 <= end)?)),
            (b'B', 1..) => {
                let last = value.checked_add(elements).filter(|last| *last <= end)?;
                Some(Value::Text(Self::text(&self.bytes[value..last])))
            }
            _ => None,
        };
        Some((Self::text(&self.bytes[name..end]), value, length))
    }
}

/// What the counters say of the heap; `None`: nothing, as with a collector that counts nothing (Epsilon).
///
/// Most collectors divide the heap among generations, so that their maxima add up. G1's and Z's generations
/// take regions of one heap as they need them: there each one's maximum is the whole.
fn summed_up(counters: &Counters, source: String) -> Option<Heap> {
    let numbers = |prefix: &'static str, suffix: &'static str| {
        let of = move |(name, value): (&String, &Value)| {
            let middle = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            match value {
                Value::Number(n) => Some((middle.to_owned(), u64::try_from(*n).unwrap_or(0))),
                Value::Text(_) => None,
            }
        };
        counters.iter().filter_map(of).collect::<Vec<_>>()
    };
    let sum = |found: &[(String, u64)]| -> Option<u64> {
        found.iter().map(|(_, n)| *n).reduce(u64::saturating_add)
    };
    // Generation 2 was the permanent one, which is no part of the heap.
    let of_heap = |found: Vec<(String, u64)>, parts: bool| -> Vec<(String, u64)> {
        let belongs = |name: &str| match name.split_once('.') {
            Some((generation, _)) => parts && matches!(generation, "0" | "1"),
            None => !parts && matches!(name, "0" | "1"),
        };
        found.into_iter().filter(|(name, _)| belongs(name)).collect()
    };
    // `0.space.1` is a part of generation 0.
    let used = sum(&of_heap(numbers("sun.gc.generation.", ".used"), true))?;
    let largest = of_heap(numbers("sun.gc.generation.", ".maxCapacity"), false);
    let max = match in_regions(counters) {
        // G1 adds 8 bytes for each of its spaces; no heap ends within a kibibyte.
        true => largest.iter().map(|(_, n)| *n).min().map(|n| n - n % 1024),
        false => sum(&largest),
    };
    let frequency = numbers("sun.os.hrt.", "frequency").first().map(|(_, n)| *n).filter(|n| *n > 0);
    let ticks = sum(&numbers("sun.gc.collector.", ".time"));
    Some(Heap {
        source,
        used_bytes: used,
        max_bytes: max.filter(|n| *n > 0),
        collections: sum(&numbers("sun.gc.collector.", ".invocations")),
        collection_seconds: ticks.zip(frequency).map(|(ticks, each)| ticks as f64 / each as f64),
    })
}

/// Whether the collector is one whose generations share all regions of the heap: G1, or Z.
fn in_regions(counters: &Counters) -> bool {
    let text = |name: String| match counters.get(&name) {
        Some(Value::Text(text)) => text.as_str(),
        _ => "",
    };
    let policy = text("sun.gc.policy.name".to_owned());
    let shares = |name: &str| ["G1 ", "Z ", "ZGC "].iter().any(|gc| name.starts_with(gc));
    policy == "GarbageFirst" || (0..4).any(|n| shares(text(format!("sun.gc.collector.{n}.name"))))
}

#[cfg(test)]
mod tests;
