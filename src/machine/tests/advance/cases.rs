//! The edges and the outputs of the cells, and the meaning of each, written independently.

use crate::definition::{Definition, Path, Pipeline};
use crate::machine::tests::code;

/// The deepest nesting that `step::output` lets through.
const DEEP: usize = 128;

/// An edge that leaves the node `A`, and, written independently, its meaning.
pub struct EdgeCase {
    pub name: &'static str,
    pub definition: Definition,
    pub meaning: Meaning,
}

/// The meaning of an edge, in the words of the plans below. Knows nothing of `Edge`.
pub enum Meaning {
    /// One plan, whatever the output and the limit.
    Always(&'static str),
    /// This many paths, unless that is more than the limit.
    Paths(u64, &'static str),
    /// A branch at `P` per element; this plan if there is nothing to expand.
    Elements(&'static str),
    /// The output's key chooses among the cases of [`edges`].
    Key,
}

/// The cases of the divert, and where they lead.
pub const CASES: [(&str, &str); 5] = [
    ("a", "B"),
    ("1", "C"),
    ("true", "D"),
    ("null", "N"),
    ("-1.5e3", "F"),
];

pub fn edges() -> Vec<EdgeCase> {
    let edge = |name, pipeline: Pipeline, meaning| EdgeCase {
        name,
        definition: pipeline.build().expect("a legal pipeline"),
        meaning,
    };
    // A divert precedes a converge, and `A` is one of its paths.
    let diverted = |path: Path| {
        let start = Pipeline::named("P").start("S");
        start.divert([("x", path)], "O").converge("C")
    };
    let start = || Pipeline::named("P").start("A");
    use Meaning::*;
    vec![
        edge("end", start(), Always("ends with the output")),
        edge(
            "chain",
            start().chain("B"),
            Always("chain to `B` with the output"),
        ),
        edge(
            "converge",
            diverted(Path::to("A")),
            Always("converge to `C` with the output"),
        ),
        edge(
            "dampen",
            start().dampen("sure?"),
            Always("waits for a person at `dampen`"),
        ),
        edge(
            "divide, then nothing",
            start().divide(["P", "Q"]),
            Paths(2, "branches at `P`, `Q`"),
        ),
        edge(
            "divide, then combine",
            start().divide(["P", "Q", "P"]).combine("B"),
            Paths(3, "branches at `P`, `Q`, `P.2`"),
        ),
        edge(
            "divide, then converge",
            diverted(Path::from("A").divide(["P", "Q"])),
            Paths(2, "branches at `P`, `Q`"),
        ),
        edge(
            "expand, then nothing",
            start().expand("P"),
            Elements("ends with `[]`"),
        ),
        edge(
            "expand, then collapse",
            start().expand("P").collapse("B"),
            Elements("collapse to `B` with `[]`"),
        ),
        edge(
            "expand, then converge",
            diverted(Path::from("A").expand("P")),
            Elements("converge to `C` with `[]`"),
        ),
        edge("divert", start().divert(CASES, "O"), Key),
    ]
}

/// An output, and, written independently, the parts that an expand and a divert read in it.
pub struct Shape {
    /// The label under which it is shown.
    pub label: String,
    pub json: String,
    /// The inputs of the branches of an expand; `None` if it cannot be expanded.
    pub elements: Option<Vec<String>>,
    /// The value that a divert compares with its cases.
    pub key: Option<&'static str>,
}

pub fn shapes() -> Vec<Shape> {
    let shape = |json: &str, elements: Option<&[&str]>, key| Shape {
        label: code(json),
        json: json.to_owned(),
        elements: elements.map(|all| all.iter().map(|one| (*one).to_owned()).collect()),
        key,
    };
    let scalar = |json, key| shape(json, None, key);
    let array = |json, elements| shape(json, Some(elements), None);
    let nested = |open: &str, close: &str, depth| {
        [&open.repeat(depth) as &str, &close.repeat(depth)].concat()
    };
    let mut deep_object = shape(
        &format!("{}0{}", r#"{"k":"#.repeat(DEEP), "}".repeat(DEEP)),
        None,
        None,
    );
    deep_object.elements = Some(vec![format!(
        r#"["k",{}0{}]"#,
        r#"{"k":"#.repeat(DEEP - 1),
        "}".repeat(DEEP - 1)
    )]);
    deep_object.label = format!("objects nested {DEEP} deep");
    let mut deep_array = shape(&nested("[", "]", DEEP), None, None);
    deep_array.elements = Some(vec![nested("[", "]", DEEP - 1)]);
    deep_array.label = format!("arrays nested {DEEP} deep");
    let mut wide = shape(&format!("[{}7]", "7,".repeat(1_000)), None, None);
    wide.elements = Some(vec!["7".to_owned(); 1_001]);
    wide.label = "an array of 1001 elements".to_owned();
    vec![
        scalar("null", None),
        scalar("true", Some("true")),
        scalar("false", Some("false")),
        scalar("1", Some("1")),
        scalar("1.0", Some("1.0")),
        scalar("-1.5e3", Some("-1.5e3")),
        scalar("-1500", Some("-1500")),
        scalar("1e999", Some("1e999")),
        scalar(
            "123456789012345678901234567890",
            Some("123456789012345678901234567890"),
        ),
        scalar(r#""""#, Some("")),
        scalar(r#""a""#, Some("a")),
        scalar(r#""\u0061""#, Some("a")),
        scalar(r#"" a""#, Some(" a")),
        scalar(r#""A""#, Some("A")),
        scalar(r#""1""#, Some("1")),
        scalar(r#""true""#, Some("true")),
        scalar(r#""null""#, Some("null")),
        scalar(r#""\u0000""#, Some("\0")),
        scalar(r#""\ud800""#, None),
        array("[]", &[]),
        array("[ ]", &[]),
        array("[1]", &["1"]),
        array("[null]", &["null"]),
        array(r#"["a"]"#, &[r#""a""#]),
        array(r#"[ 1 , "two" ]"#, &["1", r#""two""#]),
        array(r#"[[],{"k":[0]},-1.50]"#, &["[]", r#"{"k":[0]}"#, "-1.50"]),
        wide,
        deep_array,
        shape("{}", Some(&[]), None),
        shape(r#"{"k":1}"#, Some(&[r#"["k",1]"#]), None),
        shape(r#"{"":null}"#, Some(&[r#"["",null]"#]), None),
        shape(
            r#"{"b":1,"a":{"c":2}}"#,
            Some(&[r#"["b",1]"#, r#"["a",{"c":2}]"#]),
            None,
        ),
        shape(
            r#"{"k":1,"k":2}"#,
            Some(&[r#"["k",1]"#, r#"["k",2]"#]),
            None,
        ),
        shape(r#"{"\u0061":1}"#, Some(&[r#"["\u0061",1]"#]), None),
        shape(r#"{"\ud800":1}"#, Some(&[r#"["\ud800",1]"#]), None),
        shape(r#"{"divert":"a"}"#, Some(&[r#"["divert","a"]"#]), Some("a")),
        shape(
            r#"{"x":0,"divert":1}"#,
            Some(&[r#"["x",0]"#, r#"["divert",1]"#]),
            Some("1"),
        ),
        shape(
            r#"{ "divert" : true }"#,
            Some(&[r#"["divert",true]"#]),
            Some("true"),
        ),
        shape(
            r#"{"\u0064ivert":"a"}"#,
            Some(&[r#"["\u0064ivert","a"]"#]),
            Some("a"),
        ),
        shape(
            r#"{"\ud800":0,"divert":"a"}"#,
            Some(&[r#"["\ud800",0]"#, r#"["divert","a"]"#]),
            Some("a"),
        ),
        shape(
            r#"{"divert":"none"}"#,
            Some(&[r#"["divert","none"]"#]),
            Some("none"),
        ),
        shape(r#"{"divert":null}"#, Some(&[r#"["divert",null]"#]), None),
        shape(r#"{"divert":["a"]}"#, Some(&[r#"["divert",["a"]]"#]), None),
        shape(
            r#"{"divert":{"divert":"a"}}"#,
            Some(&[r#"["divert",{"divert":"a"}]"#]),
            None,
        ),
        shape(
            r#"{"x":{"divert":"a"}}"#,
            Some(&[r#"["x",{"divert":"a"}]"#]),
            None,
        ),
        shape(r#"{"Divert":"a"}"#, Some(&[r#"["Divert","a"]"#]), None),
        shape(
            r#"{"divert":"a","divert":1}"#,
            Some(&[r#"["divert","a"]"#, r#"["divert",1]"#]),
            Some("1"),
        ),
        shape(
            r#"{"divert":"a","divert":null}"#,
            Some(&[r#"["divert","a"]"#, r#"["divert",null]"#]),
            None,
        ),
        deep_object,
    ]
}
