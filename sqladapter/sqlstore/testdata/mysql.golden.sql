-- One row per key: a claim while an owner works on it, then the record that it is done.
-- id is the first 128 bits of SHA-256 over (namespace, scope, key), so that the key itself
-- is never stored. Instants are microseconds since 1970 by this database's clock.
-- state: 0 absent (forgotten: only floor counts), 1 in progress, 2 succeeded, 3 failed,
-- 4 released, 5 uncertain. flags: 1 danger, 2 ended late, 4 result not kept,
-- 8 result of no bytes.
-- since: when it ended, or when danger was declared. origin: source digest, partition,
-- offset, generation, big-endian. label is bytes, because a collation makes texts equal.
CREATE TABLE IF NOT EXISTS `Shop`.`claims` (
    id          binary(16)    NOT NULL PRIMARY KEY,
    token       binary(16)    NOT NULL DEFAULT '',
    fence       bigint        NOT NULL DEFAULT 0,
    floor       bigint        NOT NULL DEFAULT 0,
    lease_end   bigint        NOT NULL DEFAULT 0,
    since       bigint        NOT NULL DEFAULT 0,
    expires     bigint        NOT NULL DEFAULT 0,
    attempt     integer       NOT NULL DEFAULT 0,
    state       smallint      NOT NULL DEFAULT 0,
    flags       smallint      NOT NULL DEFAULT 0,
    asked       smallint      NOT NULL DEFAULT 0,
    fingerprint varbinary(64),
    origin      varbinary(64),
    label       varbinary(64),
    steps       mediumblob,
    result      mediumblob,
    KEY `claims_expires` (expires),
    KEY `claims_open` (state, lease_end)
) ENGINE = InnoDB;

-- How often something was forgotten, for caches of finished keys.
CREATE TABLE IF NOT EXISTS `Shop`.`claims_forgets` (
    one smallint NOT NULL PRIMARY KEY,
    n   bigint   NOT NULL
) ENGINE = InnoDB;

INSERT INTO `Shop`.`claims_forgets` (one, n) VALUES (1, 0) ON DUPLICATE KEY UPDATE one = one;

CREATE TABLE IF NOT EXISTS `Shop`.`onceward_migrations` (component VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, table_name VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, version INT NOT NULL, PRIMARY KEY (component, table_name)) ENGINE=InnoDB;

INSERT INTO `Shop`.`onceward_migrations` (component, table_name, version) VALUES ('store', 'claims', 1) ON DUPLICATE KEY UPDATE version = 1;


INSERT INTO `Shop`.`claims` (id) VALUES (?), (?) ON DUPLICATE KEY UPDATE id = id

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, result, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`claims` FORCE INDEX (PRIMARY) WHERE id IN (?, ?) ORDER BY id

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, result, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`claims` FORCE INDEX (PRIMARY) WHERE id IN (?, ?) ORDER BY id FOR UPDATE

INSERT INTO `Shop`.`claims` (id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE token = VALUES(token), state = VALUES(state), flags = VALUES(flags), asked = VALUES(asked), attempt = VALUES(attempt), fence = VALUES(fence), floor = VALUES(floor), lease_end = VALUES(lease_end), since = VALUES(since), expires = VALUES(expires), fingerprint = VALUES(fingerprint), origin = VALUES(origin), label = VALUES(label), steps = VALUES(steps), result = VALUES(result)

DELETE FROM `Shop`.`claims` WHERE id IN (?, ?)

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`claims` WHERE expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) ORDER BY expires LIMIT ? FOR UPDATE SKIP LOCKED

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`claims` WHERE state = 1 AND lease_end <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) ORDER BY lease_end LIMIT ? FOR UPDATE SKIP LOCKED

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`claims` WHERE state IN (1, 5) AND id > ? ORDER BY id LIMIT ?

SELECT id, token, state, flags, asked, attempt, fence, floor, lease_end, since, expires, fingerprint, origin, label, steps, NULL, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`claims` WHERE state IN (1) AND id > ? ORDER BY id LIMIT ?

SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

SELECT id, state, since, expires, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM `Shop`.`claims` WHERE state NOT IN (0, 4) AND expires >= ? ORDER BY expires LIMIT ?

UPDATE `Shop`.`claims_forgets` SET n = n + 1

SELECT n FROM `Shop`.`claims_forgets`
