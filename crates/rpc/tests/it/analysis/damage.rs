use proptest::prelude::*;
use skopos_rpc::analysis::finding::judge;
use skopos_rpc::analysis::loader::{Loader as _, MemoryLoader};
use skopos_rpc::analysis::profile::profile;
use skopos_rpc::analysis::request::list::requests;
use skopos_rpc::analysis::system::system;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::synthetic::Service;

/// Runs every analysis; a trace without a process is an error, all else works.
fn analyse(loader: &MemoryLoader) -> Option<u64> {
    let trace = Trace::open(loader).ok()?;
    profile(&trace).unwrap();
    system(&trace, 10).unwrap();
    let found = requests(&trace, &Default::default()).unwrap();
    for request in &found.requests {
        skopos_rpc::analysis::request::show::show(&trace, &request.id).unwrap();
    }
    skopos_rpc::analysis::critical::critical_paths(&trace, &Default::default()).unwrap();
    judge(&trace, &Default::default()).unwrap();
    skopos_rpc::export::zipkin::zipkin(&trace, &mut std::io::sink()).unwrap();
    Some(trace.counts().records)
}

fn with(loader: &MemoryLoader, index: usize, change: impl FnOnce(&mut Vec<u8>)) -> MemoryLoader {
    let mut files: Vec<(String, Vec<u8>)> =
        loader.names().iter().cloned().zip(loader.files().iter().cloned()).collect();
    change(&mut files[index].1);
    MemoryLoader::new(files)
}

#[test]
fn a_file_is_read_up_to_its_tear_and_the_tear_is_counted() {
    let service = Service { requests: 20_000, has_details: false, ..Service::default() };
    let whole = service.trace();
    let length = whole.files()[2].len();
    let torn = with(&whole, 2, |bytes| bytes.truncate(length / 2));
    let trace = Trace::open(&torn).unwrap();
    assert_eq!(trace.counts().torn_files, 1);
    let all = Trace::open(&whole).unwrap().counts().records;
    assert!(trace.counts().records < all && trace.counts().records > all / 2);
    assert!(trace.counts().defects().iter().any(|(text, _)| text.contains("torn")));
}

#[test]
fn a_copy_of_a_file_counts_once_and_a_longer_one_adds_its_rest() {
    let service = Service { requests: 20_000, has_details: false, ..Service::default() };
    let whole = service.trace();
    let expected = Trace::open(&whole).unwrap();
    // Copies before and behind their file: of all of it, and of its first half.
    for (copied, cut, at) in [(2, 1, 0), (2, 1, 5), (2, 2, 0), (2, 2, 5)] {
        let mut files: Vec<(String, Vec<u8>)> =
            whole.names().iter().cloned().zip(whole.files().iter().cloned()).collect();
        let bytes = &whole.files()[copied];
        files.insert(at, ("copy".to_owned(), bytes[..bytes.len() / cut].to_vec()));
        let loader = MemoryLoader::new(files);
        let trace = Trace::open(&loader).unwrap();
        let (counts, wanted) = (trace.counts(), expected.counts());
        assert_eq!((counts.records, counts.targets), (wanted.records, wanted.targets), "{at}");
        assert_eq!((counts.copied_files, wanted.copied_files), (1, 0));
        let calls = |trace| profile(trace).unwrap().paths.iter().map(|p| p.calls).sum::<u64>();
        assert_eq!(calls(&trace), calls(&expected));
    }
}

#[test]
fn a_folder_without_traces_is_an_error_with_a_hint() {
    let error = Trace::open(&MemoryLoader::default()).unwrap_err().to_string();
    assert!(error.contains("NAME-PID-START.sktrace"), "{error}");
    let empty = MemoryLoader::new(vec![("a".to_owned(), Vec::new())]);
    assert!(Trace::open(&empty).unwrap_err().to_string().contains("its file does not describe"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_anywhere_is_survived(at in 0.0f64..1.0, byte: u8, file in 0usize..5, cut: bool) {
        let whole = Service { requests: 20, ..Service::default() }.trace();
        let damaged = with(&whole, file, |bytes| {
            let at = (bytes.len() as f64 * at) as usize;
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
        });
        analyse(&damaged);
    }

    #[test]
    fn records_of_any_bytes_are_survived(
        records in proptest::collection::vec(any::<[u8; 64]>(), 1..40),
        kinds in proptest::collection::vec(1u8..6, 40),
    ) {
        let whole = Service { requests: 3, ..Service::default() }.trace();
        let bytes: Vec<u8> = records
            .iter()
            .zip(&kinds)
            .flat_map(|(record, kind)| {
                let mut record = *record;
                record[58] = *kind;
                // Few requests and calls, so that records meet.
                for (at, most) in [(0, 3), (16, 8), (24, 8)] {
                    let word = u64::from(record[at] % most).to_le_bytes();
                    record[at..at + 8].copy_from_slice(&word);
                }
                record[60] %= 3;
                record[61] = 0;
                record
            })
            .collect();
        let extended = with(&whole, 0, |file| append(file, &bytes));
        prop_assert!(analyse(&extended).is_some());
    }
}

fn append(file: &mut Vec<u8>, records: &[u8]) {
    let payload = [&[0_u8; 12], records].concat();
    let (kind, length) = (6_u32.to_le_bytes(), (payload.len() as u32).to_le_bytes());
    let sum = crc32fast::hash(&[&kind[..], &length, &payload].concat());
    file.extend_from_slice(b"SKTF");
    [&kind[..], &length, &sum.to_le_bytes(), &payload].iter().for_each(|p| file.extend(*p));
}
