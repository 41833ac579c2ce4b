package load

import (
	"testing"
	"time"
)

func TestParseWrk(t *testing.T) {
	tests := []struct {
		name, in string
		want     Outcome
	}{
		{"errors of every kind", `Running 6s test @ http://10.77.0.1/
  2 threads and 1000 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   101.32ms  210.11ms   1.98s    92.04%
    Req/Sec     6.01k     1.11k    8.66k    68.33%
  Latency Distribution
     50%   38.10ms
     75%   77.52ms
     90%  300.00us
     99%    1.04s 
  71826 requests in 6.10s, 14.45MB read
  Socket errors: connect 1, read 92780, write 2, timeout 136
  Non-2xx or 3xx responses: 327911
Requests/sec:  11774.75
Transfer/sec:      2.37MB
`, Outcome{Duration: 6100 * time.Millisecond, Requests: 71826, Non2xx: 327911, Connect: 1, Read: 92780, Write: 2, Timeout: 136,
			Mean: 101320 * time.Microsecond, P50: 38100 * time.Microsecond, P90: 300 * time.Microsecond, P99: 1040 * time.Millisecond, Max: 1980 * time.Millisecond}},
		{"no answer at all", `Running 6s test @ http://10.77.0.1/
  2 threads and 1000 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.00us    0.00us   0.00us    -nan%
    Req/Sec     0.00      0.00     0.00      -nan%
  Latency Distribution
     50%    0.00us
     75%    0.00us
     90%    0.00us
     99%    0.00us
  0 requests in 6.01s, 0.00B read
Requests/sec:      0.00
Transfer/sec:       0.00B
`, Outcome{Duration: 6010 * time.Millisecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseWrk([]byte(tt.in))
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
	for _, bad := range []string{"", "unable to connect to 10.77.0.1:80 Connection refused\n", "x requests in 6.01s, 0.00B read\n"} {
		if o, err := ParseWrk([]byte(bad)); err == nil {
			t.Errorf("ParseWrk(%q) = %+v, want an error", bad, o)
		}
	}
}

func FuzzParseWrk(f *testing.F) {
	f.Add([]byte("  Socket errors: connect 0, read 1, write 2, timeout 3\n 5 requests in 6.01s, 0.00B read\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ParseWrk(data); err != nil {
			t.Skip()
		}
	})
}
