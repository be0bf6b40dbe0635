SELECT r.id FROM unnest($1::uuid[]) AS b(id) JOIN ductwork_runs r ON r.id = ANY (ARRAY[b.id])
 WHERE EXISTS (
        SELECT 1 FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = ANY (ARRAY[br.id]) AND s.via IN ('on_halt', 'on_complete')
          JOIN ductwork_executions e ON e.step_id = ANY (ARRAY[s.id]) AND e.result IS NULL
         WHERE br.run_id = ANY (ARRAY[r.id]) AND br.fan_out_id IS NULL)
