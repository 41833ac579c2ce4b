package server

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
)

const databaseUser = "mysql" // of Debian's package

// DatabasePassword is that of all users of the lab's databases that have one.
const DatabasePassword = "lab"

// databaseInit is what the database does at its first start. The server refuses
// to serve as root, and init-file has one statement a line.
func (q Query) databaseInit() string {
	lines := []string{
		"CREATE DATABASE lab;",
		"CREATE TABLE lab.booking (id INT PRIMARY KEY, guest VARCHAR(40) NOT NULL) ENGINE=InnoDB;",
		"USE lab;",
		fmt.Sprintf("INSERT INTO lab.booking SELECT seq, CONCAT('guest ', seq) FROM seq_1_to_%d;", q.rows()),
	}
	if q.Index {
		lines = append(lines, "CREATE INDEX guest ON lab.booking (guest);")
	}
	lines = append(lines,
		"CREATE USER 'booking'@'%' IDENTIFIED BY '"+DatabasePassword+"';",
		"GRANT SELECT, UPDATE ON lab.* TO 'booking'@'%';",
		"CREATE USER 'root'@'%' IDENTIFIED BY '"+DatabasePassword+"';",
		"GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;")
	return strings.Join(lines, "\n") + "\n"
}

// webDatabase starts a MariaDB with a table in it, and the web server that
// asks it.
func (s *starter) webDatabase() error {
	if err := s.mariadb(); err != nil {
		return err
	}
	// With interpolateParams a query is one round trip.
	dsn := "booking:lab@tcp(" + net.JoinHostPort(s.v.BackendAddr, strconv.Itoa(s.v.BackPort)) + ")/lab?interpolateParams=true"
	return s.webSQL("mysql", dsn)
}

func (s *starter) mariadb() error {
	dir := filepath.Join(s.box.Dir, "database")
	init, err := s.v.write("database.sql", s.v.Query.databaseInit())
	if err != nil {
		return err
	}
	// Temporary files are named after the PID, which two sandboxes have alike: not in /tmp.
	_, err = s.box.Backend.Output(s.ctx, "mariadb-install-db", "--no-defaults", "--user="+databaseUser, "--datadir="+dir,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--tmpdir="+dir)
	if err != nil {
		return err
	}
	most := s.v.Query.Max
	if most == 0 {
		most = 1000
	}
	args := []string{"mariadbd", "--no-defaults", "--user=" + databaseUser, "--datadir=" + dir,
		"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"), "--init-file=" + init,
		"--bind-address=" + s.v.BackendAddr, "--port=" + strconv.Itoa(s.v.BackPort), "--skip-name-resolve", "--max-connections=" + strconv.Itoa(most),
		"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"}
	if slow := s.v.Query.Slow; slow > 0 {
		args = append(args, "--slow-query-log=1", "--slow-query-log-file="+filepath.Join(dir, "slow.log"), fmt.Sprintf("--long-query-time=%g", slow.Seconds()))
	}
	return s.runAt(s.box.Backend, s.v.BackPort, "mariadbd", args...)
}

const postgresUser = "postgres" // of Debian's package

// webPostgres starts a PostgreSQL with a table in it, and the web server that
// asks it.
func (s *starter) webPostgres() error {
	if err := s.postgres(); err != nil {
		return err
	}
	port := s.v.BackPort
	if s.v.Query.Bouncer > 0 {
		port++
		if err := s.bouncer(port); err != nil {
			return err
		}
	}
	at := url.URL{Scheme: "postgres", User: url.User("booking"), Host: net.JoinHostPort(s.v.BackendAddr, strconv.Itoa(port)), Path: "lab",
		RawQuery: "sslmode=disable&binary_parameters=yes"} // a query is one round trip
	return s.webSQL("postgres", at.String())
}

// bouncer starts a PgBouncer before the PostgreSQL, on the same machine.
func (s *starter) bouncer(port int) error {
	own, size := "", s.v.Query.Bouncer
	if s.v.Query.BouncerOwn {
		own, size = fmt.Sprintf(" pool_size=%d", size), 80
	}
	conf, err := s.v.write("pgbouncer.ini", fmt.Sprintf(`[databases]
lab = host=%s port=%d dbname=lab user=booking%s

[pgbouncer]
listen_addr = %s
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = %d
ignore_startup_parameters = extra_float_digits
`, s.v.BackendAddr, s.v.BackPort, own, s.v.BackendAddr, port, size))
	if err != nil {
		return err
	}
	return s.runAt(s.box.Backend, port, "pgbouncer", "setpriv", "--reuid="+postgresUser, "--regid="+postgresUser, "--clear-groups", "pgbouncer", conf)
}

// postgresInit makes the table and its user.
func (q Query) postgresInit() string {
	text := "CREATE USER booking;\nCREATE DATABASE lab;\n\\c lab\nCREATE TABLE booking (id INT PRIMARY KEY, guest VARCHAR(40) NOT NULL);\n" +
		fmt.Sprintf("INSERT INTO booking SELECT n, 'guest ' || n FROM generate_series(1, %d) n;\n", q.rows())
	if q.Index {
		text += "CREATE INDEX guest ON booking (guest);\n"
	}
	return text + "GRANT SELECT, UPDATE ON booking TO booking;\nANALYZE booking;\n"
}

func (s *starter) postgres() error {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		return fmt.Errorf("postgresql: not installed")
	}
	bin := found[len(found)-1]
	dir := filepath.Join(s.box.Dir, "database")
	init, err := s.v.write("database.sql", s.v.Query.postgresInit())
	if err != nil {
		return err
	}
	if _, err := s.box.Backend.Output(s.ctx, "install", "-d", "-m", "700", "-o", postgresUser, dir); err != nil {
		return err
	}
	// It refuses to run as root.
	as := []string{"setpriv", "--reuid=" + postgresUser, "--regid=" + postgresUser, "--clear-groups"}
	if _, err := s.box.Backend.Output(s.ctx, append(as, filepath.Join(bin, "initdb"), "-D", dir, "-A", "trust", "--no-sync", "-U", postgresUser, "--locale=C", "-E", "UTF8")...); err != nil {
		return err
	}
	hba, err := s.v.write("pg_hba.conf", "local all all trust\nhost all all 0.0.0.0/0 trust\n")
	if err != nil {
		return err
	}
	most := s.v.Query.Max
	if most == 0 {
		most = 200
	}
	args := append(as, filepath.Join(bin, "postgres"), "-D", dir, "-p", strconv.Itoa(s.v.BackPort), "-h", s.v.BackendAddr, "-k", dir,
		"-c", "max_connections="+strconv.Itoa(most), "-c", "shared_buffers=64MB", "-c", "synchronous_commit=off", "-c", "hba_file="+hba,
		"-c", "max_parallel_workers_per_gather="+strconv.Itoa(s.v.Query.Parallel), "-c", "autovacuum=off")
	if slow := s.v.Query.Slow; slow > 0 {
		args = append(args, "-c", fmt.Sprintf("log_min_duration_statement=%d", slow.Milliseconds()), "-c", "log_lock_waits=on")
	}
	if err := s.runAt(s.box.Backend, s.v.BackPort, "postgres", args...); err != nil {
		return err
	}
	// It listens before it is ready.
	ready := fmt.Sprintf("for n in $(seq 100); do %s -q -h %s -p %d && exit; sleep 0.1; done; exit 1", filepath.Join(bin, "pg_isready"), dir, s.v.BackPort)
	if _, err := s.box.Backend.Output(s.ctx, "sh", "-c", ready); err != nil {
		return fmt.Errorf("postgres: not ready within 10 s: %w", err)
	}
	_, err = s.box.Backend.Output(s.ctx, append(as, "psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", dir, "-p", strconv.Itoa(s.v.BackPort), "-d", "postgres", "-f", init)...)
	return err
}
