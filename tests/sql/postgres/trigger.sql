WITH
made AS (SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[]) AS new_runs(id, input, trigger_key, branch_id, step_id, execution_id)),
runs AS (
    INSERT INTO ductwork_runs (id, pipeline, definition, input, trigger_key, triggered_at, trace_parent,
                               trace_state, baggage)
    SELECT made.id, $7, $8, made.input, made.trigger_key, (extract(epoch from statement_timestamp()) * 1000000)::bigint, $9,
           $10, $11
      FROM made),
roots AS (
    INSERT INTO ductwork_branches (id, run_id, pipeline, ordinal, status, step_id, last_advanced_at)
    SELECT made.branch_id, made.id, $7, 0, 'in_progress', made.step_id, (extract(epoch from statement_timestamp()) * 1000000)::bigint FROM made),
starts AS (
    INSERT INTO ductwork_steps
        (id, run_id, branch_id, ordinal, node, step, via, status, input, created_at)
    SELECT made.step_id, made.id, made.branch_id, 0, $12, $13, 'start', 'in_progress', made.input, (extract(epoch from statement_timestamp()) * 1000000)::bigint
      FROM made),
executions AS (
    INSERT INTO ductwork_executions (id, step_id, pipeline, attempt)
    SELECT made.execution_id, made.step_id, $7, 1 FROM made),
availabilities AS (
    INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
    SELECT made.execution_id, $7, (extract(epoch from statement_timestamp()) * 1000000)::bigint + $14 FROM made)
SELECT made.id FROM made
