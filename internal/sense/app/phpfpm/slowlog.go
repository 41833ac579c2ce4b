package phpfpm

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail"
)

// What is kept of slow logs: texts are foreign and of any length.
const (
	maxSlowBytes = 4 << 20
	maxSlow      = 512 // distinct entries that are counted
	keptSlow     = 20  // that are reported
	slowText     = 200 // bytes of each text
	whatSlow     = "slow"
)

// openSlow follows the slow log of a pool that has one.
func (in *Instance) openSlow(s *poolState, c *poolConf, prefix string) {
	name := c.keys["slowlog"].text
	s.pool.SlowTimeout = c.keys["request_slowlog_timeout"].setting("0")
	if t := strings.TrimRight(s.pool.SlowTimeout.Value, "smhd"); name == "" || t == "0" || strings.Contains(name, "${") {
		return
	}
	if !strings.HasPrefix(name, "/") {
		name = prefix + "/" + name
	}
	s.slowPath = name
	if tail, err := logtail.Open(in.root, name); err == nil {
		s.slow = tail
	} else {
		in.gap(name, true, "the slow log of pool %s cannot be followed: %s", s.pool.Name, logtail.Reason(err))
	}
}

// slowEntries reads what a slow log grew by: blank lines between entries of
//
//	[21-Nov-2026 23:59:52]  [pool www] pid 12
//	script_filename = /srv/index.php
//	[0x00007f0a] usleep() /srv/lib.php:3
//	[0x00007f0b] price_of_route() /srv/index.php:7
func (in *Instance) slowEntries(b *budget.Budget, s *poolState) observe.LogFile {
	counts := map[observe.SlowScript]int64{}
	var now observe.SlowScript
	depth, shed := 0, int64(0)
	flush := func() {
		if now.Script != "" {
			if _, ok := counts[now]; ok || len(counts) < maxSlow {
				counts[now]++
			} else {
				shed++
			}
		}
		now, depth = observe.SlowScript{}, 0
	}
	stats, err := s.slow.Read(b, maxSlowBytes, func(line []byte) {
		switch {
		case len(bytes.TrimSpace(line)) == 0, bytes.Contains(line[:min(len(line), 128)], []byte("[pool ")):
			flush()
		case bytes.HasPrefix(line, []byte("script_filename = ")):
			now.Script = logtail.Printable(line[len("script_filename = "):], slowText)
		case bytes.HasPrefix(line, []byte("[0x")):
			_, frame, _ := bytes.Cut(line, []byte("] "))
			function, place, _ := strings.Cut(logtail.Printable(frame, slowText), " ")
			switch depth++; depth {
			case 1:
				now.Function, now.Place = function, place
			case 2:
				now.Caller = function
			}
		}
	})
	flush()
	for e, n := range counts {
		e.Count = n
		if stats.Scale > 1 {
			e.Count = int64(float64(n) * stats.Scale)
		}
		s.pool.Slow = append(s.pool.Slow, e)
	}
	slices.SortFunc(s.pool.Slow, func(a, b observe.SlowScript) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Script, b.Script), cmp.Compare(a.Place, b.Place), cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Function, b.Function))
	})
	if len(s.pool.Slow) > keptSlow {
		s.pool.Slow = s.pool.Slow[:keptSlow]
	}
	in.loss("entries of php-fpm slow logs of too many kinds", shed)
	in.loss("bytes of "+s.slowPath+" not read", max(0, stats.GrownBytes-stats.ReadBytes))
	if err != nil {
		stats.Notes = append(stats.Notes, logtail.Reason(err))
	}
	return stats.LogFile(s.slowPath, whatSlow)
}
