//! Whatever bytes come in, the decoder of frames takes them or refuses them, and never panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    farside_fabric::tcp::decode_for_fuzzing(bytes);
});
