//! The list of what is in the image.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use groundcrew_testkit::Scratch;
use serde_json::Value;

use crate::helm::REPOSITORY;

#[test]
fn the_sbom_names_every_part_once_with_its_version_and_its_licence() {
    let root = Scratch::new("sbom").unwrap();
    let packages = root.join("var/lib/dpkg/status.d");
    fs::create_dir_all(&packages).unwrap();
    fs::write(packages.join("nftables"), "Package: nftables\nArchitecture: amd64\nVersion: 1.0.6-2+deb12u2\n").unwrap();
    let sbom = Command::new(Path::new(REPOSITORY).join("hack/image")).arg("sbom").arg(root.path()).output().unwrap();
    assert!(sbom.status.success(), "{}", String::from_utf8_lossy(&sbom.stderr));
    let sbom: Value = serde_json::from_slice(&sbom.stdout).unwrap();
    assert_eq!(
        (&sbom["bomFormat"], &sbom["specVersion"], &sbom["version"]),
        (&"CycloneDX".into(), &"1.5".into(), &1.into())
    );
    assert_eq!(sbom["metadata"]["component"]["version"], env!("CARGO_PKG_VERSION"));
    let components = sbom["components"].as_array().unwrap();
    assert!(components.len() > 100, "{} components", components.len());
    let mut seen = BTreeSet::new();
    for part in components {
        let text =
            |field: &str| part[field].as_str().filter(|text| !text.is_empty()).unwrap_or_else(|| panic!("{part}"));
        assert!(seen.insert(text("bom-ref")), "twice: {part}");
        assert!(["pkg:cargo/", "pkg:deb/debian/"].iter().any(|kind| text("purl").starts_with(kind)), "{part}");
        assert!(!text("name").is_empty() && !text("version").is_empty());
        if text("purl").starts_with("pkg:cargo/") {
            // SPDX has no slash between two licences; crates of old do.
            let licence = part["licenses"][0]["expression"].as_str().unwrap_or_default();
            assert!(!licence.is_empty() && !licence.contains('/'), "{part}");
        }
    }
    for part in ["pkg:cargo/groundcrew@", "pkg:cargo/rustls@", "pkg:deb/debian/nftables@1.0.6-2%2Bdeb12u2"] {
        assert!(seen.iter().any(|seen| seen.starts_with(part)), "no {part}");
    }
    // What only tests link is not in the image.
    assert!(!seen.iter().any(|seen| seen.starts_with("pkg:cargo/groundcrew-testkit@")));
}
