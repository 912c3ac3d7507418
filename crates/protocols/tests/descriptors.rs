//! Are the descriptors that the node shows those of the `.proto` files beside them?

use std::path::Path;

use protox::prost::Message as _;

const FILES: [&str; 4] = [
    "plimsoll/v1/messaging.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
];

#[test]
fn the_descriptors_are_those_of_the_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    for name in FILES {
        let mut compiled = protox::compile([name], [&root]).expect("the file compiles");
        assert_eq!(compiled.file.len(), 1, "{name} imports nothing");
        let mut file = compiled.file.remove(0);
        file.source_code_info = None;
        let bytes = file.encode_to_vec();
        let path = root.join(name).with_extension("bin");
        if std::env::var_os("UPDATE_DESCRIPTORS").is_some() {
            std::fs::write(&path, &bytes).expect("proto/ can be written");
        }
        assert!(
            std::fs::read(&path).unwrap_or_default() == bytes,
            "{} is not up to date: UPDATE_DESCRIPTORS=1 cargo test -p plimsoll-protocols --test descriptors",
            path.display()
        );
    }
}
