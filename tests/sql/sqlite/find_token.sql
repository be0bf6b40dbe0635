SELECT t.id, t.kind, t.name, t.digest, t.scope, t.pipelines, t.created_at, t.created_by, t.expires_at,
       t.ended_at, t.parent, t.payloads, CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS seen_at, p.kind AS parent_kind, p.ended_at AS parent_ended_at,
       p.expires_at AS parent_expires_at
  FROM ductwork_tokens t LEFT JOIN ductwork_tokens p ON p.id = t.parent
 WHERE t.id = ?1
