package sqlmigrate

import (
	"database/sql"
	"fmt"
)

// sqlserverLockWait is how long a migration waits for another one, in milliseconds.
const sqlserverLockWait = 60_000

// sqlserver has transactions that include DDL, and a lock that ends with them (sp_getapplock). By
// itself, SQL Server reports no error for a lock that is not granted, nor for a transaction inside
// of another one, whose COMMIT would commit nothing.
func sqlserver(cfg Config) *engine {
	e := common(cfg)
	table := newNames(cfg).full(Table)
	e.exists = `SELECT 1 WHERE OBJECT_ID(N'` + table + `', N'U') IS NOT NULL`
	e.create = `IF OBJECT_ID(N'` + table + `', N'U') IS NULL CREATE TABLE ` + table +
		` (component varchar(63) COLLATE Latin1_General_100_BIN2 NOT NULL, table_name varchar(63) COLLATE Latin1_General_100_BIN2 NOT NULL,` +
		` version int NOT NULL, PRIMARY KEY (component, table_name));`
	e.save = func(version int) string {
		return fmt.Sprintf(`UPDATE %s SET version = %d WHERE component = '%s' AND table_name = '%s';`+
			` IF @@ROWCOUNT = 0 INSERT INTO %s (component, table_name, version) VALUES ('%s', '%s', %d);`,
			table, version, cfg.Component, cfg.Table, table, cfg.Component, cfg.Table, version)
	}
	e.isolation = sql.LevelReadCommitted
	e.before = []string{
		fmt.Sprintf(`IF @@TRANCOUNT <> 1 THROW 50917, N'onceward migrate: IMPLICIT_TRANSACTIONS must be OFF', 1;`+
			` DECLARE @got int; EXEC @got = sp_getapplock @Resource = N'onceward migrate', @LockMode = 'Exclusive',`+
			` @LockOwner = 'Transaction', @LockTimeout = %d;`+
			` IF @got < 0 THROW 50918, N'onceward migrate: another migration holds the lock', 1;`,
			sqlserverLockWait),
		e.create,
	}
	return e
}
