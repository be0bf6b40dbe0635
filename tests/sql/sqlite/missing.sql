SELECT f.id, f.width - f.arrived AS missing
  FROM (SELECT c0 AS id FROM ductwork_rows(?1)) AS b JOIN ductwork_fan_outs f ON f.id = b.id
