SELECT f.id FROM ductwork_fan_outs f
  JOIN ductwork_branches p ON p.id = ANY (ARRAY[f.branch_id])
 WHERE f.id = ANY ($1::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
