-- What the ids of marks are: the digest, or whole seconds of the key's own time before 96 bits of
-- the digest, for keys of one kind, such as uuidv7. A table keeps the form that it was made for,
-- and marks from before this version are digests.
ALTER TABLE {{table:_meta}} ADD COLUMN id_form VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NULL;
UPDATE {{table:_meta}} SET id_form =
    CASE WHEN EXISTS (SELECT 1 FROM {{table}}) THEN 'digest' ELSE '{{id_form}}' END
    WHERE id_form IS NULL;

-- How many marks retention has read in its pass. Ids that carry their time do not tell how much of
-- the table that is.
ALTER TABLE {{table:_meta}} ADD COLUMN walk_rows BIGINT NOT NULL DEFAULT 0;
