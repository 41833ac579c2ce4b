package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/budget/budgettest"
	"github.com/slowray/slowray/internal/commandline"
	"github.com/slowray/slowray/internal/flame"
	"github.com/slowray/slowray/internal/observe"
)

// FuzzAt reads moments as people give them: never one that is still to come, and one
// that is written out is read as the same.
func FuzzAt(f *testing.F) {
	for _, text := range []string{"12:03", "12:03:20", "2026-11-22 12:03", "2026-11-22T12:03:00Z", "-10m", "-2h", "-7d", "-9999d", "--1h", "2026-10-25 02:30", "02:30", "9999-12-31T23:59:59+23:59", "-1e9h"} {
		f.Add(text, int64(1_800_000_000), uint8(0))
		f.Add(text, int64(1_792_890_000), uint8(1)) // the night in which clocks are put back
	}
	zones := []*time.Location{time.UTC}
	for _, name := range []string{"Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"} {
		if zone, err := time.LoadLocation(name); err == nil {
			zones = append(zones, zone)
		}
	}
	f.Fuzz(func(t *testing.T, text string, now int64, zone uint8) {
		budgettest.Within(t, len(text), budgettest.Usual, func() {
			at := time.Unix(now%(1<<33), 0).In(zones[int(zone)%len(zones)])
			got, err := parseAt(text, at)
			if err != nil {
				return
			}
			if got.After(at) {
				t.Fatalf("%q at %s is %s", text, at, got)
			}
			if got.Year() < 1 || got.Year() > 9999 {
				return // as -1000000h
			}
			if again, err := parseAt(got.Format(time.RFC3339Nano), at); err != nil || !again.Equal(got) {
				// Of an offset with seconds the form has no place.
				if _, offset := got.Zone(); offset%60 == 0 {
					t.Errorf("%q is %s, and then %s: %v", text, got, again, err)
				}
			}
		})
	})
}

// FuzzFlags gives the command line any values: each is taken, or refused with one line,
// and what is joined of a command line says the same.
func FuzzFlags(f *testing.F) {
	for _, text := range []string{"10s", "1.5", "7d", "1e300", "-5", "NaN", "500M", "2G", "9223372036854775807T", "host=a", "a\nb", "8080", "70000", "0", "--", "-10m", "unix:/x", "[::1]:1", ""} {
		for i := range uint8(12) {
			f.Add(i, text)
		}
	}
	lines := [][]string{
		{"why", "--for"}, {"why", "--port"}, {"why", "--pid"}, {"why", "--at"}, {"record", "--max-size"}, {"record", "--max-age"}, {"record", "--label"}, {"record", "--listen"},
		{"requests", "--slow"}, {"requests", "--limit"}, {"fleet", "gateway", "--to", "clickhouse://h", "--wait"}, {"top", "--every"},
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		args := append(slices.Clone(lines[int(which)%len(lines)]), text)
		if slices.Contains([]string{"--help", "-h", "--version"}, text) {
			return
		}
		// The model of all commands is made for each line.
		budgettest.Within(t, len(text), budgettest.Cost{PerByte: 1024, Fixed: 64 << 20, CPU: 2 * time.Second}, func() {
			joined := joinNegative(args)
			if strings.Join(joined, "") != strings.Join(args, "") && strings.Join(joined, "") != strings.Replace(strings.Join(args, ""), "--at", "--at=", 1) {
				t.Fatalf("%q became %q", args, joined)
			}
			parser := newParser(new(cli), io.Discard, io.Discard)
			_, _ = commandline.Parse(parser, joined, "")
			if n, err := byteSize(text); err == nil && n < leastHistory {
				t.Errorf("%q is %d bytes", text, n)
			}
			_, _ = (&fleetInitCmd{Retention: text}).keep()
			if shown := withoutPassword("http://me:" + url.QueryEscape(text+"hunter2") + "@h/"); strings.Contains(shown, "hunter2") {
				t.Error(shown)
			}
		})
	})
}

// aProfile is a recording as slowray flame writes it.
func aProfile(t testing.TB) []byte {
	var b bytes.Buffer
	s := &observe.Stacks{StartNS: 1e18, WindowNS: 1e9, Hz: 97, Types: []observe.StackValue{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Frames:  []observe.Frame{{Name: "main", Module: "/bin/app", Kind: observe.FrameNative}, {Name: "do_syscall_64", Kind: observe.FrameKernel}},
		Samples: []observe.StackSample{{PID: 7, TID: 8, Comm: "app", Thread: "worker", Frames: []int32{0, 1, 1, 0}, Values: []int64{3, 30}, State: "blocked", Slow: true}}}
	if err := flame.Pprof(&b, s, flame.Options{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpacked(t testing.TB, data []byte) []byte {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzProfile reads recordings that were made elsewhere: each sample's frames are there.
func FuzzProfile(f *testing.F) {
	whole := aProfile(f)
	f.Add(whole)
	f.Add(unpacked(f, whole))
	f.Add(whole[:len(whole)/2])
	limits := profileLimits
	limits.Nodes = 1 << 16
	f.Fuzz(func(t *testing.T, data []byte) {
		// What is compressed may be a thousand times as much.
		budgettest.Within(t, len(data), budgettest.Cost{PerByte: 1 << 17, Fixed: 64 << 20, CPU: 2 * time.Second}, func() {
			s, err := parseStacks(bytes.NewReader(data), budget.New(context.Background(), limits))
			if err != nil {
				return
			}
			for i := range s.Samples {
				for _, frame := range s.Samples[i].Frames {
					if int(frame) >= len(s.Frames) || frame < 0 {
						t.Fatalf("frame %d of %d", frame, len(s.Frames))
					}
				}
			}
		})
	})
}

// A recording of some hundred kilobytes that becomes gigabytes is refused before it does.
func TestRecordingsThatBecomeLarge(t *testing.T) {
	pack := func(data []byte) []byte {
		var b bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		zip.Write(data)
		zip.Close()
		return b.Bytes()
	}
	field := func(b []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
	}
	base := unpacked(t, aProfile(t))
	// A location of many frames that many samples have many times.
	location := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 99)
	for range 10_000 {
		location = field(location, 4, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1))
	}
	sample := field(field(nil, 1, bytes.Repeat([]byte{99}, 1000)), 2, []byte{1, 1})
	many := field(bytes.Clone(base), 4, location)
	for range 100 {
		many = field(many, 2, sample)
	}
	for name, data := range map[string][]byte{
		"zeros":          pack(make([]byte, 300<<20)),
		"empty samples":  pack(append(bytes.Clone(base), bytes.Repeat([]byte{0x12, 0}, 10<<20)...)),
		"packed numbers": pack(field(bytes.Clone(base), 2, field(nil, 1, make([]byte, 40<<20)))),
		"frames":         pack(many),
	} {
		path := filepath.Join(t.TempDir(), "a.pb.gz")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		budgettest.Within(t, 0, budgettest.Cost{Fixed: 500 << 20, CPU: 5 * time.Second}, func() {
			if _, err := readStacks(t.Context(), path); err == nil || !budget.IsExceeded(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	if _, err := readStacks(t.Context(), "/dev/zero.pb.gz"); err == nil {
		t.Error("what is not there is read")
	}
}
