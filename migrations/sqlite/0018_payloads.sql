-- 1 if its bearer may see the inputs, outputs and logs of runs, 0 if they are withheld.
ALTER TABLE ductwork_tokens ADD COLUMN payloads integer NOT NULL DEFAULT 1 CHECK (payloads IN (0, 1));
