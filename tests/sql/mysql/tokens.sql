SELECT t.id, t.kind, t.name, t.digest, t.scope, t.pipelines, t.created_at, t.created_by, t.expires_at,
       t.ended_at, t.parent, t.payloads, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS seen_at, p.kind AS parent_kind, p.ended_at AS parent_ended_at,
       p.expires_at AS parent_expires_at
  FROM ductwork_tokens t LEFT JOIN ductwork_tokens p ON p.id = t.parent
 WHERE t.id > ? ORDER BY t.id LIMIT ?
