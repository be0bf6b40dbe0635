SELECT r.id FROM (SELECT UNHEX(j.c0) AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 char(32) PATH '$[0]')) AS j) AS b JOIN ductwork_runs r ON r.id = b.id
 WHERE EXISTS (
        SELECT 1 FROM ductwork_branches br
          JOIN ductwork_steps s ON s.branch_id = br.id AND s.via IN ('on_halt', 'on_complete')
          JOIN ductwork_executions e ON e.step_id = s.id AND e.result IS NULL
         WHERE br.run_id = r.id AND br.fan_out_id IS NULL)
