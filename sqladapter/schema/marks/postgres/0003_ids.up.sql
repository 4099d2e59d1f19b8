-- What the ids of marks are: the digest, or whole seconds of the key's own time before 96 bits of
-- the digest, for keys of one kind, such as uuidv7. A table keeps the form that it was made for,
-- and marks from before this version are digests.
ALTER TABLE {{table:_meta}} ADD COLUMN IF NOT EXISTS id_form text;
UPDATE {{table:_meta}} SET id_form =
    CASE WHEN EXISTS (SELECT 1 FROM {{table}}) THEN 'digest' ELSE '{{id_form}}' END
    WHERE id_form IS NULL;
