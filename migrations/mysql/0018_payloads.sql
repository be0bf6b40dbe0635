-- 1 where its bearer may see the inputs, outputs and logs of runs, 0 where they are withheld.
ALTER TABLE ductwork_tokens ADD COLUMN payloads bigint NOT NULL DEFAULT 1 CHECK (payloads IN (0, 1));
