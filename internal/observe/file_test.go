package observe

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

func sample() *Observation {
	return &Observation{
		Schema: SchemaObservation, Version: "test",
		Window:     Window{Start: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC), Seconds: 10},
		Namespaces: []NetNS{{Inode: 7, Counters: map[string]uint64{"TcpExt.ListenOverflows": 3}}},
		Gaps:       []Gap{{Kind: KindProfile, Because: "no BPF"}},
	}
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o")
	save(t, path, sample())
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Error(diff)
	}
}

// save writes an Observation to a file.
func save(t testing.TB, path string, o *Observation) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(Write(f, o), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, text []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(text, nil)
}

func TestLoadOfWhatIsNotOne(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	save(t, good, sample())
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0x40
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "not a slowray observation"},
		{"truncated", whole[:len(whole)-20], "truncated"},
		{"flipped bit", flipped, ""},
		{"text", []byte("hello"), "not a slowray observation"},
		{"elf", []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00"), "not a slowray observation"},
		{"other json", pack(t, []byte(`{"a":1}`)), "not a slowray observation"},
		{"other types", pack(t, []byte(`{"schema":5}`)), "not a slowray observation"},
		{"not json", pack(t, []byte("\x00\x01\x02")), "not a slowray observation"},
		{"newer", pack(t, []byte(`{"schema":"slowray.observation/9"}`)), "another version"},
		{"many objects", pack(t, []byte(`{"schema":"slowray.observation/2","processes":[{}`+strings.Repeat(",{}", 600_000)+"]}")), "not a slowray observation"},
		{"bomb", pack(t, bytes.Repeat([]byte(" "), maxDecoded+2)), "not a slowray observation"},
		{"half json", pack(t, []byte(`{"schema":"slowray.observation/2","host":{`)), "truncated"},
	} {
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		switch {
		case err == nil:
			t.Errorf("%s: loaded", c.name)
		case !strings.Contains(err.Error(), c.want), strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: error %q, want one line with %q", c.name, err, c.want)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not a regular one") {
		t.Errorf("directory: %v", err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(fifo); err == nil || !strings.Contains(err.Error(), "not a regular one") {
		t.Errorf("fifo: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("missing file: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	path := filepath.Join(f.TempDir(), "o")
	save(f, path, sample())
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := decode(bytes.NewReader(data))
		if (o == nil) == (err == nil) {
			t.Fatal("either an observation or an error")
		}
	})
}

// What the kernel makes up is not read: of /proc/kmsg that has no end, and takes away.
func TestLoadMadeUp(t *testing.T) {
	for _, path := range []string{"/proc/kmsg", "/proc/self/status", "/sys/kernel/uevent_seqnum", "/dev/null"} {
		done := make(chan error, 1)
		go func() {
			_, err := Load(path)
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "is not a saved file") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s is still read", path)
		}
	}
}

// TestFirstFormat: until the second one a request that nobody answered was an error, too,
// but in what was read of captures.
func TestFirstFormat(t *testing.T) {
	for _, c := range []struct {
		more string
		want uint64
	}{{"", 2}, {`,"capture":{"packets":9}`, 5}} {
		path := filepath.Join(t.TempDir(), "first")
		text := `{"schema":"slowray.observation/1"` + c.more + `,"endpoints":[{"requests":9,"errors":5,"unanswered":3}]}`
		if err := os.WriteFile(path, pack(t, []byte(text)), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if e := o.Endpoints[0]; e.Errors != c.want || e.Unanswered != 3 || o.Schema != SchemaObservation {
			t.Errorf("%s: %d errors, %d unanswered, %s; want %d and 3", text, e.Errors, e.Unanswered, o.Schema, c.want)
		}
	}
}
