SELECT br.id, br.fan_out_id FROM ductwork_branches br
  JOIN ductwork_steps s ON s.id = ANY (ARRAY[br.step_id])
  JOIN ductwork_runs r ON r.id = ANY (ARRAY[br.run_id])
 WHERE br.id = ANY ($1::uuid[])
