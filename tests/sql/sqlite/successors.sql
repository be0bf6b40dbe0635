SELECT n.revived_from AS run_id, n.id AS successor
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b JOIN ductwork_runs n ON n.revived_from = b.id
