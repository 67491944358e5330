//! Apache Kafka: its jars and their dependencies, from Maven.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{debian, into_cache, progress, run, works};
use crate::cache;

/// The folder with the jars. Java runs them from there; nothing else of Kafka's distribution is needed.
pub(super) fn kafka() -> Result<PathBuf> {
    if !works("java", &["-version"]) {
        debian::install("Java", &["openjdk-17-jre-headless"])?;
    }
    let jars = cache::kafka();
    if jars.is_dir() {
        return Ok(jars);
    }
    if !works("mvn", &["--version"]) {
        debian::install("Maven", &["maven"])?;
    }
    let version = cache::KAFKA;
    progress(&format!("Kafka {version} (Maven: org.apache.kafka:kafka_2.13)"));
    into_cache(&jars, |folder| {
        let made = folder.join("jars");
        fs::write(folder.join("pom.xml"), POM.replace("KAFKA", version))?;
        run(Command::new("mvn")
            .args(["--quiet", "--batch-mode", "dependency:copy-dependencies"])
            .arg("-DincludeScope=runtime")
            .arg(format!("-DoutputDirectory={}", made.display()))
            .current_dir(folder))?;
        ensure!(
            made.join(format!("kafka_2.13-{version}.jar")).is_file(),
            "Maven left no kafka_2.13-{version}.jar"
        );
        Ok(made)
    })?;
    Ok(jars)
}

/// slf4j-simple, so that a broker that fails to start logs why.
const POM: &str = r#"<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>pillarbox</groupId>
  <artifactId>servers</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>KAFKA</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"#;
