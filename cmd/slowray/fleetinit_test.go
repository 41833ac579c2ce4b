package main

import (
	"strings"
	"testing"

	"github.com/slowray/slowray/internal/fleet/clickhouse/clickhousetest"
)

func TestFleetInitPrintsTheSQLOfBothDialects(t *testing.T) {
	for dialect, want := range map[string][]string{
		"modern": {"LowCardinality(String)", "TTL day + toIntervalDay(30)", "CODEC(", "DateTime64"},
		"plain":  {"ENGINE = Distributed('all', db, requests_local"},
	} {
		var out, errs strings.Builder
		code := run([]string{"fleet", "init", "--print", "--retention", "30d", "clickhouse://h1,h2/db?cluster=all&dialect=" + dialect}, &out, &errs)
		if code != 0 || errs.Len() > 0 {
			t.Fatalf("%d %s", code, errs.String())
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s: no %s", dialect, w)
			}
		}
		if dialect == "plain" && (strings.Contains(out.String(), "CODEC") || strings.Contains(out.String(), "LowCardinality") || strings.Contains(out.String(), "TTL")) {
			t.Error("the plain dialect has what old servers do not understand")
		}
	}
}

func TestFleetInitTellsWhatIsWrongInOneLine(t *testing.T) {
	for _, args := range [][]string{
		{"http://h"}, {"clickhouse://me:SECRET@h/db"}, {"clickhouse://h/db", "--retention", "25h"}, {"clickhouse://127.0.0.1:1/db"},
	} {
		var out, errs strings.Builder
		if code := run(append([]string{"fleet", "init"}, args...), &out, &errs); code != exitFailed {
			t.Errorf("%v: exit status %d", args, code)
		}
		if got := errs.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, "SECRET") {
			t.Errorf("%v: %q", args, got)
		}
	}
}

func TestFleetInitMakesTheTables(t *testing.T) {
	url := clickhousetest.ForTest(t, clickhousetest.Layout{}).URL("slowray")
	for _, want := range []string{"tables made in slowray", "tables of slowray are there (version 2)"} {
		var out, errs strings.Builder
		if code := run([]string{"fleet", "init", url, "--retention", "7d"}, &out, &errs); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%d %q %q", code, out.String(), errs.String())
		}
	}
}
