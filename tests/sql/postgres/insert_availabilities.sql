INSERT INTO ductwork_availabilities (execution_id, pipeline, due_at)
WITH b AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS b(execution_id, pipeline, due_in)),
heads AS MATERIALIZED (
    SELECT b.pipeline,
           (SELECT min(a.due_at) FROM ductwork_availabilities a
             WHERE a.pipeline = b.pipeline) AS due_at
      FROM b WHERE b.due_in IS NULL GROUP BY b.pipeline)
SELECT b.execution_id, b.pipeline,
       coalesce((extract(epoch from statement_timestamp()) * 1000000)::bigint + b.due_in,
                CASE WHEN heads.due_at < (extract(epoch from statement_timestamp()) * 1000000)::bigint THEN heads.due_at - 1 END,
                (extract(epoch from statement_timestamp()) * 1000000)::bigint)
  FROM b LEFT JOIN heads ON heads.pipeline = b.pipeline
