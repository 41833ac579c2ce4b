package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

// The real hosts, by the names that slowray is given for them.
const (
	hostApp = "app-1"
	hostDB  = "db-1"
)

// The programs that this one is besides itself.
const (
	roleApp    = "shop"
	roleUsers  = "users"
	roleReport = "report"
)

// items is how many rows the application changes.
const items = 100

// source is how the database is reached.
func source() string {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", fmt.Sprintf("%s:%d", dbAddr, dbPort), "shop"
	return c.FormatDSN()
}

// realHosts makes two namespaces with a wire between them, starts the application and
// its database in them, and a recorder in each.
func (s *stage) realHosts(ctx context.Context, slowray string, cluster *clickhousetest.Cluster) error {
	if err := s.wire(); err != nil {
		return err
	}
	for _, host := range []string{hostApp, hostDB} {
		for _, shard := range cluster.Servers {
			if err := s.forward(host, shard[0].HTTP); err != nil {
				return err
			}
		}
		if err := s.start("record-"+host, host, slowray, "record", "--own-namespace", "--host", host, "--window", "15s", "--listen", "off",
			"--dir", filepath.Join(s.dir, "history-"+host), "--to", cluster.URL("slowray")); err != nil {
			return err
		}
	}
	if err := s.database(ctx); err != nil {
		return err
	}
	if err := s.play(roleApp, hostApp, fmt.Sprintf("%s:%d", appAddr, appPort)); err != nil {
		return err
	}
	return s.play(roleUsers, hostApp, fmt.Sprintf("http://%s:%d/", appAddr, appPort))
}

// database starts MariaDB, with the rows that the application changes.
func (s *stage) database(ctx context.Context) error {
	dir := filepath.Join(s.dir, "mariadb")
	account, err := user.Lookup("mysql")
	if err != nil {
		return fmt.Errorf("MariaDB is not installed (script/setup.sh test lab): %w", err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return err
	}
	if err := s.run(ctx, "mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir="+dir, "--auth-root-authentication-method=normal", "--skip-test-db"); err != nil {
		return err
	}
	server, err := exec.LookPath("mariadbd")
	if err != nil {
		server = "/usr/sbin/mariadbd"
	}
	socket := filepath.Join(dir, "socket")
	// A program that changes its user by itself is no longer ended with the one that started it.
	cmd := exec.Command(server, "--no-defaults", "--datadir="+dir, "--socket="+socket,
		"--bind-address="+dbAddr, "--port="+strconv.Itoa(dbPort), "--pid-file="+filepath.Join(dir, "pid"), "--innodb-lock-wait-timeout=5")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := s.begin("mariadbd", hostDB, cmd); err != nil {
		return err
	}
	script := "create database shop; use shop; create table stock (id int primary key, n int); insert into stock select seq, 1000 from seq_1_to_" + strconv.Itoa(items) +
		"; create user root@'10.213.7.%'; grant all on *.* to root@'10.213.7.%';"
	for deadline := time.Now().Add(30 * time.Second); ; {
		client := exec.CommandContext(ctx, "mariadb", "--no-defaults", "--socket="+socket, "-uroot")
		client.Stdin = strings.NewReader(script)
		out, err := client.CombinedOutput()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("MariaDB does not answer: %s", out)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// serve is the application: each request changes one row.
func serve(addr string) error {
	db, err := sql.Open("mysql", source())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := db.ExecContext(r.Context(), "update stock set n = n + 1 where id = ?", 1+rand.IntN(items)); err != nil {
			http.Error(w, "the stock cannot be changed", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "sold\n")
	}))
}

// use asks for a page some forty times a second, whether or not the one before came.
func use(ctx context.Context, url string) error {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	for every := time.NewTicker(25 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		go func() {
			if r, err := client.Get(url); err == nil {
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}()
	}
}

// lockRows is a report that locks all rows again and again, most of the time.
func lockRows(ctx context.Context, source string) error {
	db, err := sql.Open("mysql", source)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "select id from stock for update"); err != nil {
			return err
		}
		time.Sleep(800 * time.Millisecond) // it computes, and the rows stay locked
		if err := tx.Commit(); err != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}
