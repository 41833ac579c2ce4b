package load

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseWrk reads the text that wrk --latency prints (wrk 4.1, wrk.c and
// units.c).
func ParseWrk(output []byte) (Outcome, error) {
	var o Outcome
	found := false
	sc := bufio.NewScanner(bytes.NewReader(output))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		var err error
		switch {
		case len(f) >= 6 && f[1] == "requests" && f[2] == "in": // 12345 requests in 6.00s, 1.50MB read
			found = true
			o.Requests, err = strconv.ParseInt(f[0], 10, 64)
			if err == nil {
				o.Duration, err = wrkTime(strings.TrimSuffix(f[3], ","))
			}
		case len(f) == 5 && f[0] == "Non-2xx": // Non-2xx or 3xx responses: 12
			o.Non2xx, err = strconv.ParseInt(f[4], 10, 64)
		case len(f) == 10 && f[0] == "Socket": // Socket errors: connect 0, read 1, write 2, timeout 3
			for i, into := range []*int64{&o.Connect, &o.Read, &o.Write, &o.Timeout} {
				*into, err = strconv.ParseInt(strings.TrimSuffix(f[3+2*i], ","), 10, 64)
				if err != nil {
					break
				}
			}
		case len(f) == 5 && f[0] == "Latency" && f[1] != "Distribution": // Latency avg stdev max ±stdev
			if o.Mean, err = wrkTime(f[1]); err == nil {
				o.Max, err = wrkTime(f[3])
			}
		case len(f) == 2 && strings.HasSuffix(f[0], "%"):
			if into := map[string]*time.Duration{"50%": &o.P50, "90%": &o.P90, "99%": &o.P99}[f[0]]; into != nil {
				*into, err = wrkTime(f[1])
			}
		}
		if err != nil {
			return Outcome{}, fmt.Errorf("%w: %q: %w", errNotWrk, sc.Text(), err)
		}
	}
	if !found {
		return Outcome{}, fmt.Errorf("%w: %.300q", errNotWrk, output)
	}
	return o, nil
}

// wrkTime reads "0.00us", "1.18s", "2.00m"; without answers wrk prints
// "-nan", which is no time at all.
func wrkTime(s string) (time.Duration, error) {
	if strings.Contains(s, "nan") {
		return 0, nil
	}
	return time.ParseDuration(s)
}
