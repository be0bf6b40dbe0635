-- The questions of one run to people, in the order in which they were asked, however wide the run is.
CREATE INDEX ductwork_steps_asked ON ductwork_steps (run_id, via, created_at, id);
