-- Messages of one endpoint in one state, newest first, however long the history of the others is,
CREATE INDEX ductwork_deliveries_endpoint ON ductwork_deliveries (endpoint, state, id);
-- and those about runs of one pipeline.
CREATE INDEX ductwork_deliveries_pipeline ON ductwork_deliveries (pipeline, endpoint, state, id);
