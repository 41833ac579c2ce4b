package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	_ "github.com/lib/pq" // the driver "postgres"
)

// Further kinds of servers.
const (
	WebPostgres  Kind = iota + 1000 // Web, and a PostgreSQL on a machine of its own that it asks
	WebMemcached                    // Web, and a memcached on a machine of its own that it asks
)

// Query is what the web server of a WebDatabase or WebPostgres asks its
// database in each call, and how that is set up.
type Query struct {
	Sleep      time.Duration // that the database takes, besides finding a row
	Pool       int           // connections it keeps; 0 = 64
	Lazy       bool          // it opens a connection when it first needs one; else all before anybody can ask
	ByName     bool          // it asks for a row by the guest's name, not by its number
	Index      bool          // names are in an index
	Update     bool          // it changes the row
	Rows       int           // of the table; 0 = 10,000
	Max        int           // connections the database takes; 0 = enough
	Parallel   int           // processes that PostgreSQL starts for one statement, besides its own
	Bouncer    int           // connections to PostgreSQL that a PgBouncer before it keeps; 0 = there is none
	BouncerOwn bool          // it says so for this database by itself
	Slow       time.Duration // the database logs what takes longer; 0 = it has no slow log
}

const (
	defaultPool = 64
	defaultRows = 10_000
)

func (q Query) rows() int {
	if q.Rows == 0 {
		return defaultRows
	}
	return q.Rows
}

// Report is another program that asks the database of the web server.
type Report struct {
	Every time.Duration // 0 = there is none
	Holds time.Duration // it changes all rows, and ends its transaction after so long
	After time.Duration // before the first time
	Scans bool          // it looks at all rows
	Keys  bool          // Redis: KEYS
}

// sqlSpec is a database and what to ask it.
type sqlSpec struct {
	Query
	Driver, DSN string
}

// webSQL starts the web server that asks a database, and the other program.
func (s *starter) webSQL(driver, dsn string) error {
	spec := sqlSpec{Query: s.v.Query, Driver: driver, DSN: dsn}
	if spec.Pool == 0 {
		spec.Pool = defaultPool
	}
	if err := s.web(&behind{SQL: &spec}); err != nil {
		return err
	}
	if s.v.Report.Every == 0 {
		return nil
	}
	return s.alongside(s.box.Server, "night-report", alongsideSpec{Report: &reportSpec{Report: s.v.Report, SQL: &spec}})
}

// open connects, and fills the pool unless it is lazy: a request must not wait
// for a handshake.
func (q *sqlSpec) open() (caller, error) {
	db, err := sql.Open(q.Driver, q.DSN)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(q.Pool)
	db.SetMaxIdleConns(q.Pool)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 100 { // the tables are made while connections are taken already
		if err = db.PingContext(ctx); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if !q.Lazy {
		if err := q.fill(ctx, db); err != nil {
			return nil, fmt.Errorf("database: %w", err)
		}
	}
	return &sqlCaller{db: db, q: q, statement: q.statement()}, nil
}

// fill opens all connections of the pool at once: a handshake may take long on
// a bad network.
func (q *sqlSpec) fill(ctx context.Context, db *sql.DB) error {
	conns, errs := make([]*sql.Conn, q.Pool), make([]error, q.Pool)
	var wg sync.WaitGroup
	for n := range q.Pool {
		wg.Go(func() { conns[n], errs[n] = db.Conn(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, c := range conns {
		c.Close() // back into the pool
	}
	return nil
}

// statement is what is asked, with one value to give.
func (q *sqlSpec) statement() string {
	value, sleep := "?", "SLEEP(%g) = 0"
	if q.Driver == "postgres" {
		value, sleep = "$1", "pg_sleep(%g) IS NOT NULL"
	}
	column := "id"
	if q.ByName {
		column = "guest"
	}
	if q.Update {
		return "UPDATE booking SET guest = CONCAT('guest ', id) WHERE " + column + " = " + value
	}
	statement := "SELECT guest FROM booking WHERE " + column + " = " + value
	if q.Sleep > 0 {
		statement += " AND " + fmt.Sprintf(sleep, q.Sleep.Seconds())
	}
	return statement
}

type sqlCaller struct {
	db        *sql.DB
	q         *sqlSpec
	statement string
}

func (c *sqlCaller) call(ctx context.Context) error {
	n := rand.IntN(c.q.rows()) + 1
	var value any = n
	if c.q.ByName {
		value = fmt.Sprintf("guest %d", n)
	}
	if c.q.Update {
		_, err := c.db.ExecContext(ctx, c.statement, value)
		return err
	}
	var guest string
	return c.db.QueryRowContext(ctx, c.statement, value).Scan(&guest)
}

// reportSpec is what another program asks, over and over.
type reportSpec struct {
	Report
	SQL   *sqlSpec
	Redis string // host:port
}

func (r *reportSpec) serve() error {
	if r.Redis != "" {
		c := newRedisCaller(r.Redis)
		for {
			if err := c.keys(context.Background()); err != nil {
				return fmt.Errorf("report: %w", err)
			}
			time.Sleep(r.Every)
		}
	}
	db, err := sql.Open(r.SQL.Driver, r.SQL.DSN)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	time.Sleep(r.After)
	for {
		if err := r.once(db); err != nil {
			return fmt.Errorf("report: %w", err)
		}
		time.Sleep(r.Every)
	}
}

func (r *reportSpec) once(db *sql.DB) error {
	if r.Scans {
		var n int
		return db.QueryRow("SELECT COUNT(*) FROM booking WHERE guest LIKE '%7%8%'").Scan(&n)
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec("UPDATE booking SET guest = CONCAT('guest ', id)"); err != nil {
		return err
	}
	time.Sleep(r.Holds)
	return tx.Commit()
}
