WITH
results AS (SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::uuid[], $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::uuid[], $15::text[], $16::bigint[], $17::uuid[], $18::uuid[], $19::uuid[], $20::bigint[], $21::text[], $22::text[], $23::uuid[], $24::uuid[], $25::bigint[], $26::bigint[], $27::bigint[], $28::bigint[], $29::bigint[], $30::uuid[]) AS results(execution_id, result, error_class, error_message, error_backtrace, log, step_id, run_id, branch_id, step_status, output, ready, ends, transition_id, via, produced, advancement_id, claim_token, next_step_id, next_ordinal, next_node, next_step, attempt_id, attempt_step_id, attempt, retry_count, crash_count, leased, due_in, arrives_at)),
touched AS (
    UPDATE ductwork_processes SET beat_seq = beat_seq + 1, last_heartbeat_at = (extract(epoch from statement_timestamp()) * 1000000)::bigint
     WHERE id = $31 AND epoch <= $32
    RETURNING id, last_heartbeat_at AS moment, paused),
closed AS (
    UPDATE ductwork_executions
       SET completed_at = (SELECT moment FROM touched), result = results.result,
           error_class = results.error_class, error_message = results.error_message,
           error_backtrace = results.error_backtrace, log = results.log
      FROM results
     WHERE ductwork_executions.id = ANY (ARRAY[results.execution_id])
       AND ductwork_executions.process_id = $31
       AND ductwork_executions.result IS NULL
       AND EXISTS (SELECT 1 FROM touched)
    RETURNING results.*, completed_at AS moment),
held AS (
    SELECT barriers.*,
           CASE WHEN missing = row_number() OVER (PARTITION BY arrives_at ORDER BY step_id)
                THEN 1 ELSE 0 END AS last
      FROM (SELECT closed.*, f.missing
              FROM (SELECT * FROM closed ORDER BY arrives_at DESC) closed
              LEFT JOIN LATERAL (SELECT width - arrived AS missing FROM ductwork_fan_outs
                                  WHERE id = closed.arrives_at FOR UPDATE) f ON true) barriers),
arrived AS (
    UPDATE ductwork_fan_outs SET arrived = arrived + a.n
      FROM (SELECT held.arrives_at AS id, count(*) AS n FROM held
             WHERE held.arrives_at IS NOT NULL AND held.last = 0 GROUP BY held.arrives_at) a
     WHERE ductwork_fan_outs.id = ANY (ARRAY[a.id])),
ended_steps AS (
    UPDATE ductwork_steps
       SET status = CASE WHEN held.last = 1 THEN 'advancing' ELSE held.step_status END,
           output = held.output, completed_at = held.moment
      FROM held
     WHERE ductwork_steps.id = ANY (ARRAY[held.step_id])
       AND held.step_status IS NOT NULL
       AND ductwork_steps.status = 'in_progress'),
moved AS (
    UPDATE ductwork_branches
       SET status = CASE WHEN held.ends = 1 AND held.last = 0 THEN 'completed' ELSE 'in_progress' END,
           step_id = coalesce(held.next_step_id, held.step_id),
           ready_at = CASE WHEN held.ready = 1 OR held.last = 1 THEN held.moment END,
           last_advanced_at = CASE WHEN held.ready = 1 OR held.last = 1
                                   THEN last_advanced_at ELSE held.moment END
      FROM held
     WHERE ductwork_branches.id = ANY (ARRAY[held.branch_id])
       AND (held.ready = 1 OR held.transition_id IS NOT NULL)
       AND ductwork_branches.step_id = held.step_id
       AND ductwork_branches.status = 'in_progress'
    RETURNING ductwork_branches.id AS id),
next_steps AS (
    INSERT INTO ductwork_steps
        (id, run_id, branch_id, ordinal, node, step, via, transition_id, status, input, created_at)
    SELECT held.next_step_id, held.run_id, held.branch_id, held.next_ordinal, held.next_node,
           held.next_step, held.via, held.transition_id, 'in_progress', held.output, held.moment
      FROM held WHERE held.next_step_id IS NOT NULL),
attempts AS (
    INSERT INTO ductwork_executions
        (id, step_id, pipeline, attempt, retry_count, crash_count, process_id, claimed_at, lease_until)
    SELECT held.attempt_id, held.attempt_step_id, $33, held.attempt, held.retry_count,
           held.crash_count,
           CASE WHEN held.leased = 1 THEN $31 END,
           CASE WHEN held.leased = 1 THEN held.moment END,
           CASE WHEN held.leased = 1 THEN held.moment + $34 END
      FROM held WHERE held.attempt_id IS NOT NULL),
head AS MATERIALIZED (
    SELECT min(a.due_at) AS due_at FROM ductwork_availabilities a WHERE a.pipeline = $33),
queued AS (
    INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
    SELECT held.attempt_id, $33,
           coalesce(held.moment + held.due_in,
                    (SELECT CASE WHEN head.due_at < held.moment THEN head.due_at - 1 END FROM head),
                    held.moment)
      FROM held WHERE held.attempt_id IS NOT NULL AND held.leased = 0),
transitions AS (
    INSERT INTO ductwork_transitions
        (id, run_id, branch_id, from_step_id, via, produced, opened_at, completed_at)
    SELECT held.transition_id, held.run_id, held.branch_id, held.step_id, held.via,
           held.produced, held.moment, held.moment
      FROM held WHERE held.transition_id IS NOT NULL AND held.last = 0),
advancements AS (
    INSERT INTO ductwork_advancements
        (id, transition_id, branch_id, process_id, claim_token, claimed_at, lease_until, completed_at, result)
    SELECT held.advancement_id, held.transition_id, held.branch_id, $31, held.claim_token,
           held.moment, held.moment, held.moment, 'success'
      FROM held WHERE held.transition_id IS NOT NULL AND held.last = 0),
ended_runs AS (
    UPDATE ductwork_runs SET status = 'completed', completed_at = held.moment, output = held.output
      FROM held
     WHERE ductwork_runs.id = ANY (ARRAY[held.run_id])
       AND held.ends = 1
       AND held.arrives_at IS NULL
       AND coalesce(ductwork_runs.status, '') IN ('in_progress', 'dampened'))
SELECT held.execution_id, held.last, touched.paused,
       1 / (CASE WHEN (SELECT count(*) FROM moved)
                    = (SELECT count(*) FROM held WHERE ready = 1 OR transition_id IS NOT NULL)
                 THEN 1 ELSE 0 END) AS whole
  FROM touched LEFT JOIN held ON true
