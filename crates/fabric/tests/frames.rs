//! The corpus of the fuzzer (`cargo fuzz run frames` in `fuzz/`), replayed, and changed at random.

use farside_fabric::runtime::Random;
use farside_fabric::tcp::decode_for_fuzzing;

#[test]
fn no_bytes_make_the_decoder_panic() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/frames");
    let files: Vec<_> = std::fs::read_dir(corpus)
        .expect("the corpus is part of the repository")
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(files.len() >= 10, "{} files", files.len());
    let decoded: usize = files.iter().map(|bytes| decode_for_fuzzing(bytes)).sum();
    assert!(decoded >= 10, "{decoded} frames");
    let mut random = Random::new(1);
    for _ in 0..200_000 {
        let mut bytes = files[random.below(files.len() as u64) as usize].clone();
        for _ in 0..=random.below(4) {
            if bytes.is_empty() {
                break;
            }
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = random.draw() as u8,
                2 => bytes[at] ^= 1 << random.below(8),
                _ => bytes.extend_from_within(at..),
            }
        }
        decode_for_fuzzing(&bytes);
    }
}
