package main

import (
	"strings"
	"testing"
)

func TestFleetGatewayTellsWhatIsWrongInOneLine(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--to", "http://h"}, {"--to", "clickhouse://h?secure=1"}, {"--to", "clickhouse://h?gateway=g"}, {"--to", "clickhouse://me:SECRET@h"},
		{"--to", "clickhouse://h", "--wait", "1h"}, {"--to", "clickhouse://h", "--listen", "8124"}, {"--to", "clickhouse://h", "--listen", "192.0.2.1:8124"},
	} {
		var out, errs strings.Builder
		if code := run(append([]string{"fleet", "gateway"}, args...), &out, &errs); code != exitFailed {
			t.Errorf("%v: exit status %d", args, code)
		}
		if got := errs.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, "SECRET") || out.Len() > 0 {
			t.Errorf("%v: %q %q", args, got, out.String())
		}
	}
}
