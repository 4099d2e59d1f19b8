package http_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/sqladapter"
)

// rawRedis reads every key below the prefix. DUMP would compress what is read here.
func (p *fixture) rawRedis(ctx context.Context) (map[string]string, error) {
	names, err := p.names(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, name := range names {
		kind, err := p.redis.Type(ctx, name).Result()
		if err != nil {
			return nil, err
		}
		var value any
		switch kind {
		case "string":
			value, err = p.redis.Get(ctx, name).Result()
		case "hash":
			value, err = p.redis.HGetAll(ctx, name).Result()
		case "set":
			value, err = p.redis.SMembers(ctx, name).Result()
		case "none": // it has expired
			err = redis.Nil
		default:
			return nil, fmt.Errorf("%s is a %s, which this test cannot read", name, kind)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		all[name] = name + fmt.Sprint(value)
	}
	return all, nil
}

// rawSQL reads every column of every table that begins with the prefix, but of the ledger.
func (p *fixture) rawSQL(ctx context.Context) (map[string]string, error) {
	tables, err := p.tables(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, table := range tables {
		if table == p.Prefix+"_ledger" {
			continue
		}
		if all[table], err = p.rows(ctx, table); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p *fixture) tables(ctx context.Context) (names []string, err error) {
	query := `SELECT table_name FROM information_schema.tables WHERE table_name LIKE '` +
		p.Prefix + `%'`
	if p.Dialect == sqladapter.SQLite {
		query = `SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '` +
			p.Prefix + `%'`
	}
	rows, err := p.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

func (p *fixture) rows(ctx context.Context, table string) (string, error) {
	rows, err := p.db.QueryContext(ctx, `SELECT * FROM `+table)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return "", err
		}
		for i, v := range values {
			value := *v.(*any)
			if text, ok := value.([]byte); ok {
				value = string(text)
			}
			fmt.Fprintf(&all, "%s=%v\n", columns[i], value)
		}
	}
	return all.String(), rows.Err()
}
