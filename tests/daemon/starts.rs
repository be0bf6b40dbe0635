//! Warnings of a daemon at its start about things that it will not find later.

use crate::fixture::*;
use crate::support::{self, Db};

const WORK: &str = "
pipeline: Work
steps:
  A: { command: [cat] }
  B: { command: [./nowhere] }
flow: [{ start: A }]
on_halt: B
";

#[tokio::test]
async fn names_and_programs_that_are_not_there_are_told_once_and_keep_nothing_from_working() {
    support::with(Db::sqlite(), |db| async move {
        let mut fixture = DaemonFixture::new(&db, Settings::default(), &[WORK]).await;
        fixture.configure("  pipelines: [Work, Wrok]\n");
        let mut daemon = fixture.start();
        daemon.ready().await;
        fixture.trigger("Work", "1", 3).await;
        fixture.completed(PATIENCE).await;
        let warned = |part: &str| {
            let told = daemon.logged(part);
            assert_eq!(told.len(), 1, "{told:#?}");
            assert_eq!(told[0]["level"], "warn");
            told[0].clone()
        };
        let name = warned("`pipelines` names `Wrok`");
        assert_eq!(name["help"], "did you mean `Work`?");
        let program = warned("step `B` of pipeline `Work`: there is no program `./nowhere`");
        let file = program["file"].as_str().unwrap();
        assert!(file.ends_with(".yml:5"), "{file}");
        daemon.stop().await;
    })
    .await;
}
