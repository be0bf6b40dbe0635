//! The properties of the fuzz targets hold for their seeds, and for the files that the project
//! ships.

use std::fs;
use std::path::{Path, PathBuf};

#[path = "../fuzz/properties.rs"]
mod properties;

/// A target's function, with its input.
type Property = fn(&[u8]);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The seeds of a target.
fn seeds(target: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("fuzz/seeds").join(target)).expect("its seeds");
    let paths = entries.map(|entry| entry.expect("a seed").path());
    paths.collect()
}

#[test]
fn every_seed_holds_the_properties_of_its_target() {
    let targets: [(&str, Property); 4] = [
        ("definition", properties::definition),
        ("config", properties::config),
        ("output", properties::output),
        ("words", properties::words),
    ];
    for (target, property) in targets {
        let mut seeds = seeds(target);
        assert!(seeds.len() > 3, "{target} has {} seeds", seeds.len());
        let shipped: &[&str] = match target {
            "definition" => &["examples/airports/pipelines/airports.yml"],
            "config" => &["config/ductwork.yml", "examples/airports/ductwork.yml"],
            _ => &[],
        };
        seeds.extend(shipped.iter().map(|file| root().join(file)));
        for seed in seeds {
            eprintln!("{}", seed.display());
            property(&fs::read(&seed).expect("a seed"));
        }
    }
}
