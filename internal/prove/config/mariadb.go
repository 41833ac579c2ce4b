package config

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/shell"

	"github.com/go-sql-driver/mysql"
)

var mariadbProduct = product{name: "MariaDB", comms: []string{"mariadbd", "mysqld"}, ask: askMariaDB,
	settings: regexp.MustCompile(`^[a-z][a-z0-9_]*$`), same: sameNumber,
	never: []string{"read_only", "offline_mode", "init_connect", "secure_auth", "general_log_file", "slow_query_log_file", "server_id", "gtid_slave_pos"},
	command: func(a *access, name, value string) shell.Command {
		words := []string{"mariadb"}
		if len(a.unix) > 0 {
			words = append(words, "-S", fmt.Sprintf("/proc/%d/root%s", a.pid, a.unix[0]))
		}
		return shell.Args(append(words, "-e", "SET GLOBAL "+name+" = "+literal(value))...)
	}}

// mariadbTalk is one connection, as root by its unix socket, which the server
// takes the user of the process from (unix_socket, auth_socket).
type mariadbTalk struct {
	db   *sql.DB
	conn *sql.Conn
}

// One connection more than max_connections is kept for administrators, but who is
// about to be refused takes it for a moment: where clients come all the time it is
// asked for again and again.
const (
	fullPatience = 4 * time.Second
	fullAgain    = time.Millisecond
)

func askMariaDB(ctx context.Context, a *access) (asker, error) {
	if len(a.unix) == 0 {
		return nil, errors.New("it has no unix socket, by which root is let in without a password")
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr = "root", "unix", a.unix[0]
	c.Timeout, c.ReadTimeout, c.WriteTimeout = time.Second, askTime, askTime
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return a.dialUnix(ctx, a.unix[0]) }
	c.Logger = log.New(io.Discard, "", 0)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	t := &mariadbTalk{db: sql.OpenDB(connector)}
	t.db.SetMaxOpenConns(1)
	var refused *mysql.MySQLError
	for end := time.Now().Add(fullPatience); ; {
		t.conn, err = t.db.Conn(ctx)
		if !errors.As(err, &refused) || refused.Number != 1040 || time.Now().After(end) {
			break
		}
		select {
		case <-ctx.Done():
			end = time.Now()
		case <-time.After(fullAgain):
		}
	}
	if err != nil {
		_ = t.db.Close()
		if errors.As(err, &refused) && refused.Number == 1045 || errors.As(err, &refused) && refused.Number == 1698 {
			return nil, errors.New("root is not let in by its unix socket without a password")
		}
		return nil, plainSQL(err)
	}
	return t, nil
}

// plainSQL keeps an error of the server on one line.
func plainSQL(err error) error {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return errors.New(strings.Join(strings.Fields(refused.Message), " "))
	}
	return err
}

func (t *mariadbTalk) close() {
	_ = t.conn.Close()
	_ = t.db.Close()
}

// get: the name has been looked at, so that it can stand in the statement.
func (t *mariadbTalk) get(ctx context.Context, name string) (string, error) {
	var v sql.NullString
	if err := t.conn.QueryRowContext(ctx, "SELECT CONCAT(@@GLOBAL."+name+", '')").Scan(&v); err != nil {
		return "", plainSQL(err)
	}
	if !v.Valid {
		return "", fmt.Errorf("%s has no value that could be put back", name)
	}
	return v.String, nil
}

func (t *mariadbTalk) set(ctx context.Context, name, value string) error {
	if _, err := t.conn.ExecContext(ctx, "SET GLOBAL "+name+" = "+literal(value)); err != nil {
		return plainSQL(err)
	}
	return nil
}

var number = regexp.MustCompile(`^-?[0-9]{1,20}(\.[0-9]{1,10})?$`)

// literal is a value as it stands in a statement.
func literal(value string) string {
	if number.MatchString(value) {
		return value
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(value) + "'"
}

// sameNumber takes "10" for "10.000000", and "ON" for 1.
func sameNumber(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	x, err1 := strconv.ParseFloat(onOff(a), 64)
	y, err2 := strconv.ParseFloat(onOff(b), 64)
	return err1 == nil && err2 == nil && x == y
}

func onOff(s string) string {
	switch strings.ToUpper(s) {
	case "ON":
		return "1"
	case "OFF":
		return "0"
	}
	return s
}
