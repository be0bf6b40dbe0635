SELECT b.pipeline, (SELECT r.id FROM ductwork_runs r 
                     WHERE r.status = 'completed' AND r.pipeline = ANY (ARRAY[b.pipeline])
                       AND r.revived_from IS NULL AND r.pruning_at IS NULL
                     ORDER BY r.pipeline DESC, r.id DESC LIMIT 1) AS id
  FROM unnest($1::text[]) AS b(pipeline)
