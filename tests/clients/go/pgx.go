package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var ctx = context.Background()

func code(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return fmt.Sprintf("not PostgreSQL's: %v", err)
	}
	return e.Code
}

// In every way that pgx can run a statement: prepared and cached, described, not described, and simple.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func withPgx() {
	c, err := pgx.Connect(ctx, "")
	must(err)
	defer c.Close(ctx)
	var user, database string
	must(c.QueryRow(ctx, "SELECT current_user::text, current_database()::text").Scan(&user, &database))
	say("pgx session", user, database)
	pgxTypes(c)
	pgxTransactions(c)
	pgxBatches(c)
	pgxEvents(c)
	_, err = pgx.Connect(ctx, "password=wrong")
	say("pgx wrong password", code(err))
}

func pgxTypes(c *pgx.Conn) {
	at := time.Date(2024, 1, 2, 3, 4, 5, 678000000, time.UTC)
	for _, mode := range modes {
		for range 2 {
			var small int16
			var big int64
			var ratio float64
			var price, name, day, id string
			var ok bool
			var then time.Time
			var data []byte
			var list []int32
			var nothing *string
			err := c.QueryRow(ctx, `SELECT $1::int2, $2::int8, $3::float8, $4::text::numeric::text, $5::text, $6::bool, $7::text::date::text,
				$8::timestamptz, $9::bytea, $10::text::uuid::text, $11::int4[], $12::text`, mode,
				int16(7), int64(9223372036854775807), 1.5, "12.340", "zö🐍 '\"\\", true, "2024-02-29", at,
				[]byte{0, 255, 92}, "6f9619ff-8b86-d011-b42d-00c04fc964ff", []int32{1, 2, 3}, nil,
			).Scan(&small, &big, &ratio, &price, &name, &ok, &day, &then, &data, &id, &list, &nothing)
			must(err)
			say("pgx types "+mode.String(), small, big, ratio, price, name, ok, day, then.UTC().Format(time.RFC3339Nano), data, id, list, nothing)
		}
	}
}

func pgxTransactions(c *pgx.Conn) {
	_, err := c.Exec(ctx, "CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)")
	must(err)
	tx, err := c.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, "INSERT INTO t VALUES ($1, $2)", 1, "one")
	must(err)
	inner, err := tx.Begin(ctx)
	must(err)
	_, err = inner.Exec(ctx, "SELECT 1 / $1::int", 0)
	say("pgx error", code(err))
	_, err = inner.Exec(ctx, "SELECT 1")
	say("pgx failed block", code(err))
	must(inner.Rollback(ctx))
	must(tx.Commit(ctx))
	_, err = c.Exec(ctx, "INSERT INTO t VALUES ($1)", 1)
	var e *pgconn.PgError
	errors.As(err, &e)
	say("pgx violation", e.Code, e.ConstraintName, e.Detail, e.TableName, e.Severity)
	_, err = c.Exec(ctx, "SELECT * FORM t")
	errors.As(err, &e)
	say("pgx syntax", e.Code, e.Position, e.Message)
}

func pgxBatches(c *pgx.Conn) {
	batch := &pgx.Batch{}
	sum := 0
	for n := range 50 {
		batch.Queue("INSERT INTO t VALUES ($1, $2) RETURNING id", n+10, fmt.Sprint("n", n)).QueryRow(func(row pgx.Row) error {
			var id int
			err := row.Scan(&id)
			sum += id
			return err
		})
	}
	must(c.SendBatch(ctx, batch).Close())
	say("pgx batch", sum)
	bad := &pgx.Batch{}
	bad.Queue("INSERT INTO t VALUES (500)")
	bad.Queue("SELECT 1 / $1::int", 0)
	bad.Queue("INSERT INTO t VALUES (501)")
	say("pgx bad batch", code(c.SendBatch(ctx, bad).Close()))
	var kept int
	must(c.QueryRow(ctx, "SELECT count(*) FROM t WHERE id >= 500").Scan(&kept))
	say("pgx kept of it", kept)
	pgxPipeline(c)
	n, err := c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id", "name"}, pgx.CopyFromRows([][]any{{1000, "copied"}, {1001, nil}}))
	must(err)
	out := &bytes.Buffer{}
	tag, err := c.PgConn().CopyTo(ctx, out, "COPY (SELECT * FROM t WHERE id >= 1000 ORDER BY id) TO STDOUT")
	must(err)
	say("pgx copy", n, tag, strings.ReplaceAll(out.String(), "\n", "/"))
	_, err = c.PgConn().CopyFrom(ctx, strings.NewReader("x\ty\n"), "COPY t FROM STDIN")
	say("pgx bad copy", code(err))
	rows, err := c.Query(ctx, "SELECT * FROM t WHERE id < 11")
	must(err)
	for _, f := range rows.FieldDescriptions() {
		say("pgx column", f.Name, f.DataTypeOID, f.TypeModifier)
	}
	rows.Close()
}

func pgxPipeline(c *pgx.Conn) {
	p := c.PgConn().StartPipeline(ctx)
	p.SendQueryParams("SELECT $1::int", [][]byte{[]byte("1")}, nil, nil, nil)
	p.SendPipelineSync()
	p.SendQueryParams("SELECT 1/0", nil, nil, nil, nil)
	p.SendQueryParams("SELECT 2", nil, nil, nil, nil)
	p.SendPipelineSync()
	p.SendQueryParams("SELECT 3", nil, nil, nil, nil)
	must(p.Sync())
	var seen []string
	for {
		result, err := p.GetResults()
		if err != nil {
			seen = append(seen, code(err))
			continue
		}
		if result == nil {
			break
		}
		switch r := result.(type) {
		case *pgconn.ResultReader:
			read := r.Read()
			if read.Err != nil {
				seen = append(seen, code(read.Err))
			} else {
				seen = append(seen, string(read.Rows[0][0]))
			}
		case *pgconn.PipelineSync:
			seen = append(seen, "sync")
		}
	}
	say("pgx pipeline", strings.Join(seen, " "))
	must(p.Close())
}

func pgxEvents(c *pgx.Conn) {
	other, err := pgx.Connect(ctx, "")
	must(err)
	defer other.Close(ctx)
	_, err = c.Exec(ctx, "LISTEN news")
	must(err)
	_, err = other.Exec(ctx, "SELECT pg_notify('news', $1)", "hello")
	must(err)
	heard, err := c.WaitForNotification(ctx)
	must(err)
	say("pgx notification", heard.Channel, heard.Payload)
	reader := c.PgConn().Exec(ctx, "SELECT pg_sleep(60)")
	waitUntilAsleep(other)
	must(c.PgConn().CancelRequest(ctx))
	_, err = reader.ReadAll()
	say("pgx cancelled", code(err))
	var one int
	must(c.QueryRow(ctx, "SELECT 1").Scan(&one))
	say("pgx after it", one)
}

func waitUntilAsleep(c *pgx.Conn) {
	for asleep := false; !asleep; {
		must(c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep')").Scan(&asleep))
	}
}

func oursWithPgx() {
	c, err := pgx.Connect(ctx, "")
	must(err)
	defer c.Close(ctx)
	for _, mode := range modes {
		rows, err := c.Query(ctx, "LIST STORES", mode)
		must(err)
		found, err := pgx.CollectRows(rows, pgx.RowToMap)
		must(err)
		for _, row := range found {
			if row["Name"] == "of_languages" {
				say("pgx stores "+mode.String(), row["Name"], row["Type"])
			}
		}
		_, err = c.Exec(ctx, "DROP STORE nope", mode)
		say("pgx missing", code(err))
	}
}
