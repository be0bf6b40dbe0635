-- Messages of one endpoint in one state, newest first, however long the history of the others is,
CREATE INDEX ductwork_deliveries_endpoint ON ductwork_deliveries (endpoint, state, id);
-- and those about runs of one pipeline.
CREATE INDEX ductwork_deliveries_pipeline ON ductwork_deliveries (pipeline, endpoint, state, id);
-- Beside the caller's span: what its `tracestate` and its `baggage` say; null where it gave none.
ALTER TABLE ductwork_runs ADD COLUMN trace_state longtext;
ALTER TABLE ductwork_runs ADD COLUMN baggage longtext;
