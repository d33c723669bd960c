package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/lib/pq"
)

func pqError(err error) *pq.Error {
	var e *pq.Error
	if !errors.As(err, &e) {
		return &pq.Error{Message: err.Error()}
	}
	return e
}

func withPq() {
	db, err := sql.Open("postgres", "sslmode=disable")
	must(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	var user, database string
	must(db.QueryRow("SELECT current_user, current_database()").Scan(&user, &database))
	say("pq session", user, database)
	pqTypes(db)
	pqTransactions(db)
	pqEvents()
	wrong, _ := sql.Open("postgres", "sslmode=disable password=wrong")
	say("pq wrong password", pqError(wrong.Ping()).Code)
}

func pqTypes(db *sql.DB) {
	statement, err := db.Prepare(`SELECT $1::int2, $2::int8, $3::float8, $4::numeric, $5::text, $6::bool, $7::date::text, $8::timestamptz,
		$9::bytea, $10::uuid, $11::int[], $12::text`)
	must(err)
	defer statement.Close()
	for range 2 {
		var small int16
		var big int64
		var ratio float64
		var price, name, day, id string
		var ok bool
		var at time.Time
		var data []byte
		var list pq.Int64Array
		var nothing sql.NullString
		must(statement.QueryRow(7, int64(9223372036854775807), 1.5, "12.340", "zö🐍 '\"\\", true, "2024-02-29",
			time.Date(2024, 1, 2, 3, 4, 5, 678000000, time.UTC), []byte{0, 255, 92}, "6f9619ff-8b86-d011-b42d-00c04fc964ff",
			pq.Array([]int64{1, 2, 3}), nil,
		).Scan(&small, &big, &ratio, &price, &name, &ok, &day, &at, &data, &id, &list, &nothing))
		say("pq types", small, big, ratio, price, name, ok, day, at.UTC().Format(time.RFC3339Nano), data, id, list, nothing.Valid)
	}
	rows, err := db.Query("SELECT 1 AS a, 'x' AS b; SELECT 2 AS c")
	must(err)
	columns, _ := rows.ColumnTypes()
	say("pq columns", columns[0].Name(), columns[0].DatabaseTypeName(), columns[1].Name(), columns[1].DatabaseTypeName())
	for rows.Next() {
	}
	say("pq another result", rows.NextResultSet())
	rows.Close()
}

func pqTransactions(db *sql.DB) {
	_, err := db.Exec("CREATE TEMPORARY TABLE t (id int CONSTRAINT only_one PRIMARY KEY, name text)")
	must(err)
	tx, err := db.Begin()
	must(err)
	copying, err := tx.Prepare(pq.CopyIn("t", "id", "name"))
	must(err)
	for n := range 100 {
		_, err = copying.Exec(n, "copied")
		must(err)
	}
	_, err = copying.Exec()
	must(err)
	must(copying.Close())
	must(tx.Commit())
	tx, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true})
	must(err)
	_, err = tx.Exec("DELETE FROM pg_class")
	e := pqError(err)
	say("pq read only", e.Code, e.Code.Name())
	_, err = tx.Exec("SELECT 1")
	say("pq failed block", pqError(err).Code)
	must(tx.Rollback())
	_, err = db.Exec("INSERT INTO t VALUES ($1)", 1)
	e = pqError(err)
	say("pq violation", e.Code, e.Constraint, e.Detail, e.Table)
	rows, err := db.Query("SELECT id, name FROM t WHERE id = ANY($1) ORDER BY id", pq.Array([]int{5, 6}))
	must(err)
	defer rows.Close()
	var found []string
	for rows.Next() {
		var id, name string
		must(rows.Scan(&id, &name))
		found = append(found, id+" "+name)
	}
	say("pq rows", strings.Join(found, ", "))
}

func pqEvents() {
	db, err := sql.Open("postgres", "sslmode=disable application_name=pq")
	must(err)
	defer db.Close()
	listener := pq.NewListener("sslmode=disable", time.Second, time.Minute, nil)
	defer listener.Close()
	must(listener.Listen("news"))
	_, err = db.Exec("SELECT pg_notify('news', 'hello')")
	must(err)
	heard := <-listener.Notify
	say("pq notification", heard.Channel, heard.Extra)
	stopped, stop := context.WithCancel(ctx)
	go func() {
		other, err := pgx.Connect(ctx, "")
		must(err)
		defer other.Close(ctx)
		waitUntilAsleep(other)
		stop()
	}()
	_, err = db.ExecContext(stopped, "SELECT pg_sleep(60)")
	say("pq cancelled", err)
}

func oursWithPq() {
	db, err := sql.Open("postgres", "sslmode=disable")
	must(err)
	defer db.Close()
	rows, err := db.Query("LIST STORES")
	must(err)
	columns, err := rows.ColumnTypes()
	must(err)
	say("pq columns of ours", columns[0].Name(), columns[0].DatabaseTypeName())
	rows.Close()
	_, err = db.Exec("DROP STORE nope")
	e := pqError(err)
	say("pq missing", e.Code, e.Message, e.Position)
}
