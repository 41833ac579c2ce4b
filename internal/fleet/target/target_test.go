package target

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range [][3]string{
		{"victorialogs://logs-1:9428", "victorialogs://logs-1:9428", "victorialogs-logs-1_9428"},
		{"victorialogs://me@logs-1:9428,logs-2:9428/vl?secure=1", "victorialogs://logs-1:9428,logs-2:9428/vl", "victorialogs-logs-1_9428-vl"},
		{"clickhouse://[::1]:8123|b:8123,c:8123/slowray", "clickhouse://[::1]:8123|b:8123,c:8123/slowray", "clickhouse-___1__8123-slowray"},
		{"victorialogs://u:secret@/../../x", "victorialogs:///../../x", "victorialogs--.._.._x"},
	} {
		if got := titleOf(c[0]); got != c[1] {
			t.Errorf("%s: title %q, want %q", c[0], got, c[1])
		}
		if got := nameOf(c[0]); got != c[2] {
			t.Errorf("%s: name %q, want %q", c[0], got, c[2])
		}
	}
}

func TestOpen(t *testing.T) {
	for _, url := range []string{"", "x", "ftp://a", "victorialogs://", "victorialogs://a:secret@h", "victorialogs://h:x", "victorialogs://h?what=1", "victorialogs://h?password-file=/nonexistent", "otlp+", "otlp+ftp://h", "otlp+http://u:secret@h?x=1", "clickhouse://u:secret@h"} {
		d, err := Open(url)
		if err == nil {
			t.Errorf("%q: opened as %+v", url, d)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error is %q", url, err)
		}
	}
	for _, url := range []string{"victorialogs://a:9428,b:9428/x?account=1&project=2", "otlp+grpc://a:4317", "otlp+https://a/x", "clickhouse://a:8123/slowray"} {
		if d, err := Open(url); err != nil || d.Target == nil {
			t.Errorf("%s: %+v, %v", url, d, err)
		}
	}
}
