// The two drivers of Go: pgx v5 with its own interface, and lib/pq under database/sql.
package main

import (
	"fmt"
	"os"
	"strings"
)

func say(name string, values ...any) {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	fmt.Println(name + ": " + strings.Join(texts, " | "))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	pgstream := os.Getenv("TARGET") == "pgstream"
	withPgx()
	withPq()
	if pgstream {
		fmt.Println("== pgstream")
		oursWithPgx()
		oursWithPq()
	}
}
