//! The guide as text: its chapters and their blocks.
//!
//! Owns: the definition of a block, and the file that it belongs to. Never: runs anything.

use std::path::{Path, PathBuf};

/// A document whose blocks are executed.
pub struct Chapter {
    /// From the project's root.
    pub path: String,
    pub text: String,
}

/// A fenced block.
#[derive(Debug)]
pub struct Block {
    /// The line of its fence, from 1.
    pub at: usize,
    pub language: String,
    /// The comment in the line before it.
    pub mark: Option<String>,
    pub lines: Vec<String>,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn source() -> PathBuf {
    root().join("docs/guide/src")
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files that SUMMARY.md names, in its order.
pub fn summary() -> Vec<String> {
    let text = read(&source().join("SUMMARY.md"));
    let links = text.lines().filter_map(|line| line.split_once("]("));
    let file = |(_, rest): (&str, &str)| rest.split(')').next().unwrap_or(rest).to_owned();
    links.map(file).collect()
}

/// The README, and every chapter that SUMMARY.md names.
pub fn chapters() -> Vec<Chapter> {
    let guide = summary()
        .into_iter()
        .map(|name| format!("docs/guide/src/{name}"));
    std::iter::once("README.md".to_owned())
        .chain(guide)
        .map(|path| Chapter {
            text: read(&root().join(&path)),
            path,
        })
        .collect()
}

impl Chapter {
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        let mut before = "";
        for (at, line) in self.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.lines.push(line.to_owned()),
                (None, Some(language)) => {
                    let mark = before.strip_prefix("<!-- ");
                    open = Some(Block {
                        at: at + 1,
                        language: language.to_owned(),
                        mark: mark
                            .and_then(|mark| mark.strip_suffix(" -->"))
                            .map(str::to_owned),
                        lines: Vec::new(),
                    });
                }
                (None, None) => {}
            }
            before = line;
        }
        assert!(open.is_none(), "{}: a block is not closed", self.path);
        blocks
    }

    pub fn place(&self, block: &Block) -> String {
        format!("{}:{}", self.path, block.at)
    }
}

impl Block {
    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// The file that the block contains, according to its first comment: `# steps/a.py`.
    pub fn file(&self) -> Option<&str> {
        let first = self.lines.iter().find(|line| !line.starts_with("#!"))?;
        let name = first.strip_prefix("# ")?.split([' ', ':']).next()?;
        (name.contains(['.', '/']) && !name.ends_with('.')).then_some(name)
    }

    pub fn is(&self, mark: &str) -> bool {
        self.mark.as_deref() == Some(mark)
    }
}
