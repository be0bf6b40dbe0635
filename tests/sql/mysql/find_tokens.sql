SELECT t.id, t.kind, t.name, t.digest, t.scope, t.pipelines, t.created_at, t.created_by, t.expires_at,
       t.ended_at, t.parent, t.payloads, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS seen_at, p.kind AS parent_kind, p.ended_at AS parent_ended_at,
       p.expires_at AS parent_expires_at
  FROM (SELECT j.c0 AS id FROM JSON_TABLE(?, '$[*]' COLUMNS(c0 longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]')) AS j) AS b
  JOIN ductwork_tokens t ON t.id = b.id
  LEFT JOIN ductwork_tokens p ON p.id = t.parent
