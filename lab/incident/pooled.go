package incident

import (
	"strings"
	"time"

	"github.com/slowray/slowray/lab/load"
	"github.com/slowray/slowray/lab/server"
)

// What a page of PHP does for a request, with WAIT as its wait outside of the lock and
// HELD as that inside: microseconds.
const (
	phpFlock = `function request() {
	usleep(WAIT);
	$seats = fopen(dirname(__DIR__) . "/seats.lock", "r");
	flock($seats, LOCK_EX);
	usleep(HELD);
	fclose($seats);
}`
	// The handler of sessions in files has the lock of a session's file from
	// session_start() to the end of the page (mod_files.c). All clients have the same.
	phpSession = `function request() {
	session_save_path(dirname(__DIR__) . "/sessions");
	session_id("basket");
	session_start();
	WRITTEN
	usleep(WAIT);
}`
	phpGetLock = `function request() {
	$db = new mysqli("p:{{.BackendAddr}}", "booking", "lab", "lab", {{.BackPort}});
	usleep(WAIT);
	$db->query("SELECT GET_LOCK('seats', 10)");
	usleep(HELD);
	$db->query("SELECT RELEASE_LOCK('seats')");
}`
	phpRowLock = `function request() {
	$db = new mysqli("p:{{.BackendAddr}}", "booking", "lab", "lab", {{.BackPort}});
	usleep(WAIT);
	$db->begin_transaction();
	$db->query("UPDATE booking SET guest = 'guest 7' WHERE id = 7");
	usleep(HELD);
	$db->commit();
}`
	phpAsks = `function request() {
	file_get_contents("http://127.0.0.1:" . ({{.BackPort}} + 1) . "/quota");
}`
	pythonFlock = `
import fcntl

def request():
    time.sleep(WAIT / 1e6)
    with open("seats.lock") as seats:
        fcntl.flock(seats, fcntl.LOCK_EX)
        time.sleep(HELD / 1e6)
`
	pythonRowLock = `
import pymysql

db = None

def request():
    global db
    if db is None:
        db = pymysql.connect(host="{{.BackendAddr}}", port={{.BackPort}}, user="booking", password="lab", database="lab")
    time.sleep(WAIT / 1e6)
    with db.cursor() as cursor:
        cursor.execute("UPDATE booking SET guest = 'guest 7' WHERE id = 7")
        time.sleep(HELD / 1e6)
    db.commit()
`
	pythonAsks = `
import urllib.request

def request():
    with urllib.request.urlopen("http://127.0.0.1:%d/quota" % ({{.BackPort}} + 1), timeout=5) as answer:
        answer.read()
`
)

// waits fills in what a request waits outside and inside of its lock.
func waits(code, outside, inside string) string {
	return strings.NewReplacer("WAIT", outside, "HELD", inside, "WRITTEN", "").Replace(code)
}

// pooled is a healthy server with so many workers whose requests do this.
func pooled(kind server.Kind, workers int, code string) func() server.Setup {
	return func() server.Setup {
		s := server.Healthy(kind)
		s.Children = workers
		s.Workers = server.Workers{Max: workers, Code: code}
		s.Around.Before = "touch seats.lock; mkdir -m 777 sessions"
		return s
	}
}

// inLock is a pool whose workers do their work, of so many microseconds, inside of a
// lock: more of them would only wait with the others.
func inLock(name, summary, cause string, kind server.Kind, workers int, code, micros string) Incident {
	return Incident{
		Name: name, Summary: summary, Setup: pooled(kind, workers, waits(code, micros, "200")),
		Faults: []Fault{{
			Name: "inside", Cause: cause,
			Text:   "a request waits inside of its lock, not outside",
			Inject: func(s *server.Setup) { s.Workers.Code = waits(code, "0", micros) },
		}},
		Load:  load.Load{Conns: 24},
		Quick: true, Light: true,
	}
}

// withDatabase has the workers ask a MariaDB.
func (i Incident) withDatabase() Incident {
	return i.with(func(s *server.Setup) { s.Workers.Database = true })
}

// workersInLock is pools of workers that are all busy, and mostly with waiting for the
// same lock or for a slow call.
func workersInLock() []Incident {
	session := inLock("fpm-children-in-session", "8 children of php-fpm hold the file of one session from the beginning of a page to its end",
		"blocked-on-file-lock", server.NginxFPM, 8, phpSession, "20000")
	written := strings.NewReplacer("WAIT", "20000", "WRITTEN", "session_write_close();").Replace(phpSession)
	session.Setup = pooled(server.NginxFPM, 8, written)
	session.Faults[0].Name, session.Faults[0].Text = "open", "a page keeps its session open while it waits"
	session.Faults[0].Inject = func(s *server.Setup) { s.Workers.Code = waits(phpSession, "20000", "") }
	list := []Incident{
		inLock("fpm-children-in-lock", "8 children of php-fpm take the lock of a file one after the other, and each waits 20 ms while it has it",
			"blocked-on-file-lock", server.NginxFPM, 8, phpFlock, "20000"),
		session,
		inLock("fpm-children-in-get-lock", "8 children of php-fpm take the same GET_LOCK() of a MariaDB, and each waits 20 ms while it has it",
			"mariadb-lock-wait", server.NginxFPM, 8, phpGetLock, "20000").withDatabase(),
		inLock("fpm-children-in-row-lock", "8 children of php-fpm change the same row, and each waits 20 ms until it ends its transaction",
			"mariadb-lock-wait", server.NginxFPM, 8, phpRowLock, "20000").withDatabase(),
		inLock("fpm-boxed-children-in-lock", "php-fpm in a container: 6 children take the lock of a file one after the other, and each waits 25 ms while it has it",
			"blocked-on-file-lock", server.NginxFPM, 6, phpFlock, "25000").with(func(s *server.Setup) { s.Workers.Boxed = true }),
		inLock("gunicorn-workers-in-lock", "6 sync workers of gunicorn take the lock of a file one after the other, and each waits 20 ms while it has it",
			"blocked-on-file-lock", server.NginxGunicorn, 6, pythonFlock, "20000"),
		inLock("gunicorn-workers-in-row-lock", "6 sync workers of gunicorn change the same row, and each waits 20 ms until it ends its transaction",
			"mariadb-lock-wait", server.NginxGunicorn, 6, pythonRowLock, "20000").withDatabase(),
	}
	for _, i := range []struct {
		name, summary, code string
		kind                server.Kind
	}{
		{"fpm-children-in-call", "5 children of php-fpm ask another service, all of whose requests take the same lock", phpAsks, server.NginxFPM},
		{"gunicorn-workers-in-call", "5 sync workers of gunicorn ask another service, all of whose requests take the same lock", pythonAsks, server.NginxGunicorn},
	} {
		const held = 20 * time.Millisecond
		list = append(list, Incident{
			Name: i.name, Summary: i.summary,
			Setup: on(pooled(i.kind, 5, i.code), func(s *server.Setup) { s.Workers.Asks, s.Asked = true, server.Python{Work: held} }),
			Faults: []Fault{{
				Name: "inside", Cause: "lock-convoy", Says: "book booking.py",
				Text:   "a request of the other service waits inside of its lock, not outside",
				Inject: func(s *server.Setup) { s.Asked = server.Python{Lock: held} },
			}},
			Load:  load.Load{Conns: 24},
			Quick: true, Light: true,
		})
	}
	// Here both help: the call, and more children.
	return append(list, Incident{
		Name:    "fpm-slow-call-few-children",
		Summary: "4 children of php-fpm, and they ask another service that takes 160 ms instead of 20",
		Setup:   on(pooled(server.NginxFPM, 40, phpAsks), func(s *server.Setup) { s.Workers.Asks, s.Asked = true, server.Python{Work: 20 * time.Millisecond} }),
		Faults: []Fault{{
			Name: "slow", Cause: "application-sleep", Or: []string{"slow-dependency"},
			Text:   "the other service sleeps for 160 ms",
			Inject: func(s *server.Setup) { s.Asked.Work = 160 * time.Millisecond },
		}, children(4)},
		Load:  load.Load{Conns: 24},
		Quick: true, Light: true,
	}, Incident{
		Name:    "fpm-few-children-short-lock",
		Summary: "4 children of php-fpm for pages that wait 40 ms, and have the lock of a file for 1 ms",
		Setup:   pooled(server.NginxFPM, 40, waits(phpFlock, "40000", "1000")),
		Faults:  []Fault{children(4)},
		Load:    load.Load{Conns: 24},
		Quick:   true, Light: true,
	})
}

// workersInLockControls take locks and make calls with most of their workers, and
// nobody waits for long.
func workersInLockControls() []Incident {
	list := []Incident{{
		Name:    "fpm-children-pass-lock",
		Summary: "all children of php-fpm are busy, and each takes the lock of a file for a moment",
		Setup:   pooled(server.NginxFPM, 8, waits(phpFlock, "10000", "100")),
		Load:    load.Load{Conns: 8, Think: 2 * time.Millisecond},
	}, {
		Name:    "gunicorn-workers-pass-row-lock",
		Summary: "all sync workers of gunicorn are busy, and each changes the same row for a moment",
		Setup:   on(pooled(server.NginxGunicorn, 6, waits(pythonRowLock, "10000", "100")), func(s *server.Setup) { s.Workers.Database = true }),
		Load:    load.Load{Conns: 6, Think: 2 * time.Millisecond},
	}}
	for n := range list {
		list[n].Control, list[n].Quick = true, true
	}
	return list
}
