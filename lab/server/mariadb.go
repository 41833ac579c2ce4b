package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

const (
	databaseUser = "mysql" // of Debian's package
	defaultPool  = 64
	rows         = 10000
)

// databaseInit is what the database does at its first start.
const databaseInit = `CREATE DATABASE lab;
CREATE TABLE lab.booking (id INT PRIMARY KEY, guest VARCHAR(40) NOT NULL) ENGINE=InnoDB;
INSERT INTO lab.booking SELECT seq, CONCAT('guest ', seq) FROM lab_rows;
CREATE USER 'booking'@'%' IDENTIFIED BY 'lab';
GRANT SELECT ON lab.* TO 'booking'@'%';
`

// webDatabase starts a MariaDB with a table in it, and the web server that
// asks it.
func (s *starter) webDatabase() error {
	if err := s.mariadb(); err != nil {
		return err
	}
	pool := s.v.Query.Pool
	if pool == 0 {
		pool = defaultPool
	}
	return s.web(&behind{SQL: &sqlSpec{
		Addr: net.JoinHostPort(s.v.BackendAddr, strconv.Itoa(s.v.BackPort)), Pool: pool, Sleep: s.v.Query.Sleep,
	}})
}

func (s *starter) mariadb() error {
	dir := filepath.Join(s.box.Dir, "database")
	// The server refuses to serve as root, and init-file has one statement a line.
	series := strings.Replace(databaseInit, "lab_rows", fmt.Sprintf("seq_1_to_%d", rows), 1)
	series = strings.Replace(series, "INSERT", "USE lab;\nINSERT", 1)
	init, err := s.v.write("database.sql", series)
	if err != nil {
		return err
	}
	_, err = s.box.Backend.Output(s.ctx, "mariadb-install-db", "--no-defaults", "--user="+databaseUser, "--datadir="+dir,
		"--auth-root-authentication-method=normal", "--skip-test-db")
	if err != nil {
		return err
	}
	if err := s.runAt(s.box.Backend, s.v.BackPort, "mariadbd", "mariadbd", "--no-defaults", "--user="+databaseUser, "--datadir="+dir,
		"--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"), "--init-file="+init,
		"--bind-address="+s.v.BackendAddr, "--port="+strconv.Itoa(s.v.BackPort), "--skip-name-resolve", "--max-connections=1000",
		"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--skip-log-bin"); err != nil {
		return err
	}
	return nil
}

// sqlSpec is a database and what to ask it.
type sqlSpec struct {
	Addr  string
	Pool  int
	Sleep time.Duration
}

// open fills the pool: a request must not wait for a handshake.
func (q *sqlSpec) open() (caller, error) {
	// With interpolateParams a query is one round trip.
	db, err := sql.Open("mysql", "booking:lab@tcp("+q.Addr+")/lab?interpolateParams=true")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(q.Pool)
	db.SetMaxIdleConns(q.Pool)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for range 50 { // the tables are made while connections are taken already
		if err = db.PingContext(ctx); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	conns, errs := make([]*sql.Conn, q.Pool), make([]error, q.Pool)
	var wg sync.WaitGroup
	for n := range q.Pool { // at once: a handshake may take long on a bad network
		wg.Go(func() { conns[n], errs[n] = db.Conn(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	for _, c := range conns {
		c.Close() // back into the pool
	}
	statement := "SELECT guest FROM booking WHERE id = ?"
	if q.Sleep > 0 {
		statement = fmt.Sprintf("SELECT guest FROM booking WHERE id = ? AND SLEEP(%g) = 0", q.Sleep.Seconds())
	}
	return &sqlCaller{db: db, statement: statement}, nil
}

type sqlCaller struct {
	db        *sql.DB
	statement string
}

func (c *sqlCaller) call(ctx context.Context) error {
	var guest string
	return c.db.QueryRowContext(ctx, c.statement, rand.IntN(rows)+1).Scan(&guest)
}
