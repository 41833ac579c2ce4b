package heap

import (
	"slices"
	"strconv"
	"strings"

	"github.com/slowray/slowray/internal/observe"
)

// Runtimes.
const (
	JVM  = "jvm"
	Node = "node"
	Go   = "go" // by its environment alone
)

// sizing begins the options that size a heap or choose a collector
// (java(1); node --v8-options).
var sizing = []string{
	"-Xmx", "-XX:MaxHeapSize=", "-XX:MaxRAMPercentage=", "-XX:MaxRAM=", "-XX:+UseContainerSupport", "-XX:-UseContainerSupport",
	"-XX:ActiveProcessorCount=", "-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseG1GC", "-XX:+UseZGC", "-XX:+UseShenandoahGC", "-XX:-UsePerfData",
	"--max-old-space-size=", "--max_old_space_size=", "GOMEMLIMIT=", "GOGC=",
}

const (
	maxOptions   = 16
	maxOptionLen = 64
)

// Options picks, of the words of a command line and of the values of
// environment variables, those that size a heap or choose a collector.
func Options(words []string) []string {
	var out []string
	for _, w := range words {
		for f := range strings.FieldsSeq(w) {
			f = strings.Trim(f, `"'`)
			if len(f) <= maxOptionLen && printable(f) && slices.ContainsFunc(sizing, func(p string) bool { return strings.HasPrefix(f, p) }) && len(out) < maxOptions {
				out = append(out, f)
			}
		}
	}
	return out
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

// Of is the heap that a runtime with these options may have, on a host with so
// much memory, in a control group with that limit (0 = none). MaxBytes is 0
// where it cannot be known: node without an option.
func Of(runtime string, options []string, hostBytes, limitBytes uint64) observe.Heap {
	h := observe.Heap{Runtime: runtime}
	if runtime == Go {
		for _, o := range options {
			switch v, limit := strings.CutPrefix(o, "GOMEMLIMIT="); {
			case limit:
				h.MaxBytes, h.From = goBytes(v), strings.TrimSpace(h.From+" "+o)
			case strings.HasPrefix(o, "GOGC="):
				h.From = strings.TrimSpace(h.From + " " + o)
			}
		}
		return h
	}
	if runtime == Node {
		for _, o := range options {
			if v, ok := cutAny(o, "--max-old-space-size=", "--max_old_space_size="); ok {
				if mb, err := strconv.ParseUint(v, 10, 32); err == nil {
					h.MaxBytes, h.From = mb<<20, o
				}
			}
		}
		return h
	}
	sees := hostBytes // JEP 8146115, on by default since 10 and 8u191
	if limitBytes > 0 && limitBytes < hostBytes && !slices.Contains(options, "-XX:-UseContainerSupport") {
		sees = limitBytes
	}
	percent, from := 25.0, "default"
	if slices.Contains(options, "-XX:-UseContainerSupport") {
		from = "default, a quarter of the host's memory: -XX:-UseContainerSupport"
	}
	for _, o := range options { // the last one counts
		switch v, ok := cutAny(o, "-Xmx", "-XX:MaxHeapSize="); {
		case ok:
			if n := bytes(v); n > 0 {
				h.MaxBytes, h.From = n, o
			}
		case strings.HasPrefix(o, "-XX:MaxRAM="):
			if n := bytes(o[len("-XX:MaxRAM="):]); n > 0 {
				sees = n
			}
		case strings.HasPrefix(o, "-XX:MaxRAMPercentage="):
			if p, err := strconv.ParseFloat(o[len("-XX:MaxRAMPercentage="):], 64); err == nil && p > 0 && p <= 100 {
				percent, from = p, o
			}
		case strings.HasPrefix(o, "-XX:+Use") && strings.HasSuffix(o, "GC"):
			h.Collector, h.Chosen = collectorOption(o), true
		}
	}
	if h.MaxBytes == 0 {
		h.MaxBytes, h.From = uint64(float64(sees)*percent/100), from
	}
	return h
}

func collectorOption(o string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(o, "-XX:+Use"), "GC")
	if name == "Z" {
		return "zgc"
	}
	return strings.ToLower(name)
}

func cutAny(s string, prefixes ...string) (string, bool) {
	for _, p := range prefixes {
		if v, ok := strings.CutPrefix(s, p); ok {
			return v, true
		}
	}
	return "", false
}

// bytes reads a size as java takes it: "512m", "2G", "1048576".
func bytes(s string) uint64 {
	shift := 0
	if len(s) > 0 {
		switch s[len(s)-1] {
		case 'k', 'K':
			shift = 10
		case 'm', 'M':
			shift = 20
		case 'g', 'G':
			shift = 30
		case 't', 'T':
			shift = 40
		}
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n >= 1<<(62-shift) {
		return 0
	}
	return n << shift
}

// goBytes reads a size as Go takes it: "64MiB", "1048576" (runtime/debug, SetMemoryLimit).
func goBytes(s string) uint64 {
	s = strings.TrimSuffix(s, "B")
	return bytes(strings.TrimSuffix(s, "i"))
}
