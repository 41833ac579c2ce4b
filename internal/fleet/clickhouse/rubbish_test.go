package clickhouse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet"
)

// What answers 200 is not always ClickHouse: a proxy with a page of its own, a portal, a
// server that broke off. Nothing it says may count for rows that are there, or for none.
func TestWhatIsNotClickHouseIsBelievedNothing(t *testing.T) {
	h := hostNumber(1)
	list := newTraffic(1).requests(3, noon)
	for name, answer := range map[string]string{
		"nothing": "", "a page": "<!DOCTYPE html>\n<html><body>Welcome</body></html>\n", "a line that is cut off": "12", "words": "twelve\n", "columns": "1\t2\n",
		"rows": "1\n2\n", "negative": "-1\n", "lengths that cannot be": "\x01\x01" + strings.Repeat("\xff", 8) + "\x7f", "much": strings.Repeat("1\n", maxSmall),
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := askedServer(t, func(query string) (int, string) {
				if strings.Contains(query, "system.processes") {
					return 200, "" // nothing runs: that is an answer
				}
				return 200, answer
			})
			for _, dialect := range []string{"plain", "auto"} {
				db, err := Open(fmt.Sprintf("clickhouse://%s/slowray?dialect=%s", address, dialect))
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				for _, s := range []fleet.Stream{fleet.Requests, fleet.Seconds} {
					if p, err := db.Mark(t.Context(), h, s); err == nil {
						t.Errorf("%s, %s: the mark is %d", dialect, s, p)
					}
				}
				if err := db.Send(t.Context(), requestBatch(h, 1, list)); err == nil && (answer != "" || dialect == "auto") {
					t.Errorf("%s: rows were taken", dialect)
				}
				if err := db.Hello(t.Context(), h, noon); err == nil && answer != "" {
					t.Errorf("%s: the host was greeted", dialect)
				}
				if err := db.Points(t.Context(), fleet.Question{From: noon, To: noon.Add(600e9)}, 1e9, func(*fleet.Point) bool { return true }); err == nil {
					t.Errorf("%s: there are no points", dialect)
				}
				if _, err := db.Hosts(t.Context()); err == nil && answer != "" {
					t.Errorf("%s: there are no hosts", dialect)
				}
			}
		})
	}
}

// An agent that finds tables without the views that add them up does not fill them: no
// sum would ever have those rows.
func TestTablesThatAreHalfMadeAreNotFilled(t *testing.T) {
	address, _ := askedServer(t, func(query string) (int, string) {
		if strings.Contains(query, "system.tables") {
			return 200, "1\n"
		}
		if strings.Contains(query, "system.processes") {
			return 200, ""
		}
		return 200, "0\n"
	})
	db, err := Open("clickhouse://" + address + "/slowray?dialect=plain")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Mark(t.Context(), hostNumber(1), fleet.Seconds); err == nil || fleet.Temporary(err) || !strings.Contains(err.Error(), "slowray fleet init") {
		t.Errorf("the mark of seconds: %v", err)
	}
	if p, err := db.Mark(t.Context(), hostNumber(1), fleet.Requests); err != nil || p != 0 {
		t.Errorf("the mark of requests: %d, %v", p, err)
	}
}
