//! Loads an object: creates the maps of its programs, patches in the values that depend on the running kernel,
//! loads the programs and attaches them to their tracepoints and interfaces.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use aya::maps::MapData;
use aya_obj::Object;
use aya_obj::generated::bpf_insn;

use crate::causes::with_causes;
use crate::memory::Memory;
use crate::sys::{self, KernelTypes};
use crate::types::Types;

/// The kernel's types.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The placeholder for the value of a line of the list of fields, next to the line's number. The programs are
/// compiled with the same number as `MARK`.
const MARK: i32 = 0x5c09_05f1;

/// The mark of a map with an entry for each processor: the object cannot know their number.
const FOR_EACH_PROCESSOR: u32 = 0;

/// The opcode that loads a 64-bit constant. It takes two instructions.
const LOAD_CONSTANT: u8 = 0x18;

/// A program of an object.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The name of its function.
    pub name: &'a str,
    /// The place in the kernel that calls it.
    pub at: At<'a>,
}

/// A place in the kernel that calls programs.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// A tracepoint, with the kernel's own values as arguments, by name.
    Raw(&'a str),
    /// A tracepoint, with the kernel's own values as arguments whose types the kernel knows, by name. Its program reads
    /// their fields without a helper. An argument that can be null needs [`At::Raw`]: the kernel takes it to be valid.
    Typed(&'a str),
    /// A tracepoint, with a record whose fields the `format` file describes, by the number in the `id` file
    /// beside it.
    Event(u64),
    /// An interface, with each packet in one direction, by the interface's number in the network namespace of
    /// this thread. Programs run in the order in which they were attached. Needs Linux 6.6.
    Interface {
        /// Number of the interface.
        index: u32,
        /// The direction of its packets.
        direction: Direction,
    },
}

/// A direction of packets at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets that arrive, before the network stack gets them.
    Ingress,
    /// Packets that leave, before the queue of the interface gets them.
    Egress,
}

/// Loaded programs, which run until this value is dropped.
#[derive(Debug)]
pub struct Loaded {
    _links: Vec<OwnedFd>,
    maps: HashMap<String, MapData>,
}

impl Loaded {
    /// Takes one of the maps.
    ///
    /// # Errors
    /// The object has no map of this name, or it was taken before.
    pub fn map(&mut self, name: &str) -> io::Result<MapData> {
        self.maps.remove(name).ok_or_else(|| missing("map", name))
    }

    /// Takes one of the maps as memory that this process shares with the programs. It is an array with the flag
    /// `BPF_F_MMAPABLE`.
    ///
    /// # Errors
    /// The errors of [`Loaded::map`], or the map cannot be shared.
    pub fn memory(&mut self, name: &str) -> io::Result<Memory> {
        Memory::of(&self.map(name)?)
    }
}

/// Loads an object and attaches the given ones of its programs. `fields` is the list of values that the programs
/// need, the text of the header that they are compiled with; `settings` has those that are not of the kernel. A map
/// without entries gets an entry for each possible processor.
///
/// # Errors
/// The kernel's types lack a field, or the kernel refuses a program.
pub fn load(
    object: &[u8],
    programs: &[Program<'_>],
    fields: &str,
    settings: &[(&str, u64)],
) -> io::Result<Loaded> {
    let mut object = Object::parse(object).map_err(with_causes)?;
    let lines = lines(fields);
    let kernel = resolve(&lines, settings, programs)?;
    for function in object.functions.values_mut() {
        patch(&mut function.instructions, &lines, &kernel.numbers)?;
    }
    let mut maps = HashMap::new();
    let mut places = Vec::new();
    let processors = aya::util::nr_cpus().map_err(|(_, e)| e)?;
    for (name, mut map) in object.maps.drain() {
        if map.max_entries() == FOR_EACH_PROCESSOR {
            map.set_max_entries(u32::try_from(processors).map_err(io::Error::other)?);
        }
        let made = MapData::create(map.clone(), &name, None).map_err(with_causes)?;
        places.push((name.clone(), made.fd().as_fd().as_raw_fd(), map));
        maps.insert(name, made);
    }
    let code: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let places = places.iter().map(|(name, descriptor, map)| (name.as_str(), *descriptor, map));
    object.relocate_maps(places, &code).map_err(with_causes)?;
    object.relocate_calls(&code).map_err(with_causes)?;
    let attached = |(program, tracepoint)| attach(&object, program, tracepoint);
    let links = programs.iter().zip(kernel.tracepoints).map(attached);
    Ok(Loaded { _links: links.collect::<io::Result<Vec<_>>>()?, maps })
}

/// Loads one program and attaches it. `tracepoint` is the type of a typed one. The program runs until the returned
/// descriptor is closed.
fn attach(
    object: &Object,
    Program { name, at }: &Program<'_>,
    tracepoint: Option<u32>,
) -> io::Result<OwnedFd> {
    let program = object.programs.get(*name).ok_or_else(|| missing("program", name))?;
    let function =
        object.functions.get(&program.function_key()).ok_or_else(|| missing("program", name))?;
    let kind = match at {
        At::Raw(_) => sys::Kind::RawTracepoint,
        At::Typed(wanted) => {
            let of = tracepoint.ok_or_else(|| {
                io::Error::other(format!("this kernel has no tracepoint {wanted}"))
            })?;
            sys::Kind::TypedTracepoint { of }
        }
        At::Event(_) => sys::Kind::Tracepoint,
        At::Interface { .. } => sys::Kind::Classifier,
    };
    let loaded = sys::load(name, kind, &function.instructions, &program.license);
    let loaded = loaded.map_err(|(e, why)| {
        io::Error::new(e.kind(), format!("the kernel refused the program {name}: {e}: {why}"))
    })?;
    let failed = |e: io::Error, what: String| io::Error::new(e.kind(), format!("{what}: {e}"));
    match at {
        At::Raw(tracepoint) => sys::attach(loaded.as_fd(), Some(&CString::new(*tracepoint)?))
            .map_err(|e| failed(e, format!("tracepoint {tracepoint}"))),
        // The program has the name of its tracepoint.
        At::Typed(tracepoint) => sys::attach(loaded.as_fd(), None)
            .map_err(|e| failed(e, format!("tracepoint {tracepoint}"))),
        At::Event(id) => sys::attach_event(loaded.as_fd(), *id)
            .map_err(|e| failed(e, format!("tracepoint {id}"))),
        At::Interface { index, direction } => {
            let ingress = *direction == Direction::Ingress;
            sys::attach_interface(loaded.as_fd(), *index, ingress)
                .map_err(|e| failed(e, format!("interface {index}")))
        }
    }
}

/// A line of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    /// The offset of a member in a structure.
    Field {
        structure: &'a str,
        members: &'a str,
    },
    Bytes(&'a str),
    /// The value of a constant of an enumeration.
    Constant {
        enumeration: &'a str,
        name: &'a str,
    },
    Setting(&'a str),
}

fn lines(text: &str) -> Vec<Line<'_>> {
    text.lines().filter_map(line_of).collect()
}

fn line_of(text: &str) -> Option<Line<'_>> {
    let (kind, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')')?;
    let last = || inner.split_once(", ").map(|(_, last)| last);
    match kind {
        "FIELD" => {
            let (structure, members) = last()?.split_once('.')?;
            Some(Line::Field { structure, members })
        }
        "BYTES" => last().map(Line::Bytes),
        "CONSTANT" => {
            let (enumeration, name) = last()?.split_once('.')?;
            Some(Line::Constant { enumeration, name })
        }
        "SETTING" => Some(Line::Setting(inner)),
        _ => None,
    }
}

/// The values of a running kernel that programs need.
struct Kernel {
    /// The value of each line; `None` if the kernel lacks it, which is an error only if a program uses it.
    numbers: Vec<Option<u64>>,
    /// The type of the tracepoint of each program; `None` if it is not a typed one, or the kernel lacks it.
    tracepoints: Vec<Option<u32>>,
}

/// Looks up the values of all lines and the types of all tracepoints.
fn resolve(
    lines: &[Line<'_>],
    settings: &[(&str, u64)],
    programs: &[Program<'_>],
) -> io::Result<Kernel> {
    let typed = |program: &Program<'_>| match program.at {
        At::Typed(name) => Some(format!("btf_trace_{name}")),
        _ => None,
    };
    let tracepoints: Vec<_> = programs.iter().map(typed).collect();
    if lines.is_empty() && tracepoints.iter().all(Option::is_none) {
        return Ok(Kernel { numbers: Vec::new(), tracepoints: vec![None; programs.len()] });
    }
    let bytes = KernelTypes::open(Path::new(KERNEL_TYPES)).map_err(|e| {
        io::Error::new(e.kind(), format!("the kernel's types, {KERNEL_TYPES}: {e}"))
    })?;
    let mut names: Vec<&str> = tracepoints.iter().flatten().map(String::as_str).collect();
    for line in lines {
        if let Line::Field { structure: name, .. }
        | Line::Bytes(name)
        | Line::Constant { enumeration: name, .. } = line
            && !names.contains(name)
        {
            names.push(name);
        }
    }
    let types = Types::read(&bytes, &names)
        .ok_or_else(|| io::Error::other(format!("{KERNEL_TYPES} has an unknown format")))?;
    let which = |name: &str| names.iter().position(|n| *n == name);
    let number = |line: &Line<'_>| match line {
        Line::Field { structure, members } => {
            types.offset(which(structure)?, members).map(u64::from)
        }
        Line::Bytes(structure) => types.size(which(structure)?).map(u64::from),
        Line::Constant { enumeration, name } => {
            types.constant(which(enumeration)?, name).map(u64::from)
        }
        Line::Setting(name) => settings.iter().find(|(n, _)| n == name).map(|(_, value)| *value),
    };
    let tracepoint = |name: &Option<String>| types.alias(which(name.as_deref()?)?);
    Ok(Kernel {
        numbers: lines.iter().map(number).collect(),
        tracepoints: tracepoints.iter().map(tracepoint).collect(),
    })
}

/// Writes the values in place of the marks.
fn patch(
    instructions: &mut [bpf_insn],
    lines: &[Line<'_>],
    numbers: &[Option<u64>],
) -> io::Result<()> {
    for at in 1..instructions.len() {
        let (first, second) = (instructions[at - 1], instructions[at]);
        if first.code != LOAD_CONSTANT || first.src_reg() != 0 || second.imm != MARK {
            continue;
        }
        let line = first.imm as usize;
        let number = numbers.get(line).copied().flatten().ok_or_else(|| match lines.get(line) {
            Some(Line::Field { structure, members }) => {
                io::Error::other(format!("this kernel has no {structure}.{members}"))
            }
            Some(Line::Constant { enumeration, name }) => {
                io::Error::other(format!("this kernel has no {enumeration}.{name}"))
            }
            other => io::Error::other(format!("the programs use an unknown value {other:?}")),
        })?;
        instructions[at - 1].imm = number as i32;
        instructions[at].imm = (number >> 32) as i32;
    }
    Ok(())
}

fn missing(what: &str, name: &str) -> io::Error {
    io::Error::other(format!("the object has no {what} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_list_is_parsed() {
        let text = "// FIELD(none)\nFIELD(TGID, task_struct.tgid)\nBYTES(COUNTER, percpu_counter)\n\
                    SETTING(processors)\n#undef FIELD\nCONSTANT(HEAD, pageflags.PG_head)\n";
        let expected = [
            Line::Field { structure: "task_struct", members: "tgid" },
            Line::Bytes("percpu_counter"),
            Line::Setting("processors"),
            Line::Constant { enumeration: "pageflags", name: "PG_head" },
        ];
        assert_eq!(lines(text), expected);
        assert!(resolve(&[], &[], &[]).expect("nothing is read").numbers.is_empty());
    }

    #[test]
    fn values_are_written_in_place_of_marks_only() {
        let constant = |low, high| {
            [(LOAD_CONSTANT, low), (0, high)].map(|(code, imm)| bpf_insn {
                code,
                _bitfield_align_1: [],
                _bitfield_1: bpf_insn::new_bitfield_1(0, 0),
                off: 0,
                imm,
            })
        };
        let lines = [Line::Bytes("a"), Line::Field { structure: "b", members: "c" }];
        let mut program = [constant(0, MARK), constant(0, 5)].concat();
        patch(&mut program, &lines, &[Some(7 << 32 | 9), None]).expect("all is known");
        assert_eq!([0, 1, 2, 3].map(|at| program[at].imm), [9, 7, 0, 5]);
        let why = patch(&mut constant(1, MARK), &lines, &[Some(1), None]).unwrap_err();
        assert_eq!(why.to_string(), "this kernel has no b.c");
    }
}
