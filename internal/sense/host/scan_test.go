package host

import (
	"math"
	"testing"
)

func TestParseNumbers(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint64
		ok   bool
	}{
		{"0", 0, true}, {"18446744073709551615", math.MaxUint64, true}, {"18446744073709551616", 0, false},
		{"99999999999999999999", 0, false}, {"", 0, false}, {"-1", 0, false}, {"1x", 0, false},
	} {
		if got, ok := ParseUint([]byte(c.in)); got != c.want || ok != c.ok {
			t.Errorf("ParseUint(%q) = %d, %v; want %d, %v", c.in, got, ok, c.want, c.ok)
		}
	}
	for _, c := range []struct {
		in   string
		want int64
		ok   bool
	}{{"-20", -20, true}, {"9223372036854775807", math.MaxInt64, true}, {"9223372036854775808", 0, false}, {"-", 0, false}} {
		if got, ok := parseInt([]byte(c.in)); got != c.want || ok != c.ok {
			t.Errorf("parseInt(%q) = %d, %v; want %d, %v", c.in, got, ok, c.want, c.ok)
		}
	}
	for _, c := range []struct {
		in   string
		want uint64
		ok   bool
	}{{"0000153a", 0x153a, true}, {"FFffFFff", math.MaxUint32, true}, {"", 0, false}, {"0x1", 0, false}, {"11112222333344445", 0, false}} {
		if got, ok := ParseHex([]byte(c.in)); got != c.want || ok != c.ok {
			t.Errorf("ParseHex(%q) = %d, %v; want %d, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestGrown(t *testing.T) {
	for _, c := range []struct{ a, b, want, want32 uint64 }{
		{1, 3, 2, 2},
		{3, 1, 0, 0}, // went backwards
		{math.MaxUint32, 4, 0, 5},
		{math.MaxUint32 + 10, 4, 0, 0}, // not a 32-bit counter
	} {
		if got := grown(c.a, c.b); got != c.want {
			t.Errorf("grown(%d, %d) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := grown32(c.a, c.b); got != c.want32 {
			t.Errorf("grown32(%d, %d) = %d, want %d", c.a, c.b, got, c.want32)
		}
	}
}

func TestAppendInt(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 10: "10", 4194304: "4194304", math.MaxInt: "9223372036854775807", -5: "0"} {
		if got := string(appendInt(nil, n)); got != want {
			t.Errorf("appendInt(%d) = %q", n, got)
		}
	}
}
