package haproxy

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
	"github.com/slowray/slowray/internal/sense/app/logtail/prefork"
	"github.com/slowray/slowray/internal/sense/app/pool"
)

// The statistics are read every so many rounds of the workers, which come 20
// times a second, and an answer is waited for and read so long.
const (
	every     = 10
	patience  = 100 * time.Millisecond
	maxAnswer = 4 << 20
	maxRows   = 8192
	maxState  = 64 // bytes
)

// sums is what the samples of one frontend or server add up to.
type sums struct {
	status observe.PoolStatus
	queue  int
}

func (r *reader) sample(b *budget.Budget, in *pool.Instance) {
	if r.round++; r.round%every != 1 || r.socket == "" || r.silent || in.Silent {
		return
	}
	if b.TimeLeft() < patience {
		r.round-- // somebody else took the time: in the next round
		return
	}
	rows, err := r.ask(b, in)
	if errors.Is(err, fs.ErrNotExist) || budget.IsExceeded(err) {
		return
	}
	if err != nil {
		r.silent = true
		in.Gap(r.socket, true, "the statistics socket of HAProxy (pid %d) does not answer: %s", in.PID, logtail.Printable([]byte(err.Error()), 200))
		return
	}
	if r.sums == nil {
		r.sums = map[string]*sums{}
	}
	for _, row := range rows {
		key := row.proxy + "/" + row.server
		s := r.sums[key]
		if s == nil {
			if len(r.sums) == maxRows {
				continue
			}
			s = &sums{}
			r.sums[key] = s
		}
		s.status.Samples++
		s.status.State, s.status.Current, s.status.Limit, s.status.Queue = row.state, row.current, row.limit, row.queue
		s.status.CurrentPeak = max(s.status.CurrentPeak, row.current)
		s.queue += row.queue
		if strings.HasPrefix(row.state, "DOWN") || strings.HasPrefix(row.state, "NOLB") || row.state == "MAINT" {
			s.status.DownSamples++
		}
	}
}

func (r *reader) end(_ *budget.Budget, in *pool.Instance) {
	status := func(key string) *observe.PoolStatus {
		s := r.sums[key]
		if s == nil {
			return nil
		}
		s.status.QueueMean = float64(s.queue) / float64(s.status.Samples)
		return &s.status
	}
	for i := range in.Out.Pools {
		in.Out.Pools[i].Status = status(in.Out.Pools[i].Name + "/FRONTEND")
	}
	for i := range in.Out.Backends {
		b := &in.Out.Backends[i]
		b.Status = status(b.Backend + "/" + b.Server)
	}
}

type row struct {
	proxy, server, state  string
	current, limit, queue int
}

// ask asks for the statistics, as CSV with a header that begins with "# ". Where it is
// not root who says where the socket is, it must be one of the server's own user.
func (r *reader) ask(b *budget.Budget, in *pool.Instance) ([]row, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	root, _, err := prefork.Root(in.ProcRoot, in.Proc, b)
	if err != nil {
		return nil, err
	}
	conn, uid, err := root.Dial(ctx, r.socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if own, _, ok := prefork.User(in.ProcRoot, in.PID); !r.trusted && (!ok || own != uid) {
		return nil, errOthers
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "show stat\n"); err != nil {
		return nil, err
	}
	return parseStat(b, io.LimitReader(conn, maxAnswer))
}

var errOthers = errors.New("it is another user's, and named by a file that is not root's")

var errNoTable = errors.New("no table of statistics")

func parseStat(b *budget.Budget, r io.Reader) ([]row, error) {
	table := csv.NewReader(r)
	table.FieldsPerRecord, table.LazyQuotes = -1, true
	head, err := table.Read()
	if err != nil || len(head) == 0 {
		return nil, errNoTable
	}
	column := map[string]int{}
	for i, name := range head {
		column[strings.TrimPrefix(name, "# ")] = i
	}
	if _, ok := column["pxname"]; !ok {
		return nil, errNoTable
	}
	var out []row
	for {
		f, err := table.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err == nil {
			err = b.Node()
		}
		if err != nil || len(out) == maxRows {
			return out, err
		}
		text := func(name string) string {
			if i, ok := column[name]; ok && i < len(f) {
				return f[i]
			}
			return ""
		}
		number := func(name string) int {
			n, _ := strconv.Atoi(text(name))
			return n
		}
		out = append(out, row{proxy: strings.Clone(text("pxname")), server: strings.Clone(text("svname")), state: strings.Clone(text("status")[:min(len(text("status")), maxState)]),
			current: number("scur"), limit: number("slim"), queue: number("qcur")})
	}
}
