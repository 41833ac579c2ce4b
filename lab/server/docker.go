package server

import (
	"archive/tar"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// Collector is where the engine sends what a container logs: a machine of its
// own that takes fluentd's protocol.
type Collector struct {
	Every time.Duration // once in this time it stops reading; 0 = it never does
	Reads time.Duration // … after so long
}

const (
	collectorPort = 24224
	// sendBufferMax is the largest send buffer in the namespace of the engine,
	// bytes. The kernel's default would take 4 MB of logs, which is a longer
	// wait for the same thing.
	sendBufferMax = 64 << 10
)

// docker starts a collector, a Docker engine with the service in Python in a
// container that logs to it, and nginx.
func (s *starter) docker() error {
	collect := alongsideSpec{Collect: fmt.Sprintf("%s:%d", s.v.BackendAddr, collectorPort), Every: s.v.Collector.Every, Reads: s.v.Collector.Reads}
	if err := s.alongside(s.box.Backend, "log-collector", collect); err != nil {
		return err
	}
	if err := s.box.Backend.Listening(s.ctx, collectorPort); err != nil {
		return err
	}
	if err := s.box.Server.Set(s.ctx, "net.ipv4.tcp_wmem", fmt.Sprintf("4096 16384 %d", sendBufferMax)); err != nil {
		return err
	}
	if err := s.alongside(s.box.Server, "warm-up", alongsideSpec{TimeWait: s.v.TWBuckets}); err != nil {
		return err
	}
	if err := s.engine(); err != nil {
		return err
	}
	if err := s.container(); err != nil {
		return err
	}
	return s.front()
}

func (s *starter) dockerDir() string    { return filepath.Join(s.box.Dir, "docker") }
func (s *starter) dockerSocket() string { return filepath.Join(s.dockerDir(), "sock") }

// engineScript starts the engine among mounts of its own: containerd has its
// sockets below /run and makes a directory in /opt, and older engines write a
// key to /etc/docker, wherever else they are asked to keep their files.
const engineScript = `set -e
for dir in /run /opt /etc/docker; do
	[ ! -d $dir ] || mount -t tmpfs tmpfs $dir
done
exec dockerd --config-file "$1/none.json" --data-root "$1/data" --exec-root "$1/exec" --pidfile "$1/pid" --host "unix://$1/sock" \
	--storage-driver vfs --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "$2" \
	--bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --log-level warn
`

func (s *starter) engine() error {
	group, err := s.box.CgroupName(s.ctx)
	if err != nil {
		return err
	}
	if err := os.Mkdir(s.dockerDir(), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dockerDir(), "none.json"), []byte("{}\n"), 0o600); err != nil {
		return err
	}
	out := filepath.Join(s.box.Dir, "dockerd.out")
	_, err = s.box.Server.Start(s.ctx, sandbox.Spec{
		Args: []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", engineScript, "dockerd", s.dockerDir(), group},
		Env:  []string{"HOME=" + s.dockerDir()}, Stdout: out, Stderr: out,
	})
	if err != nil {
		return err
	}
	ready := "until " + s.dockerCommand("version") + "; do sleep 0.05; done"
	if _, err := s.box.Server.Output(s.ctx, "timeout", "15", "sh", "-c", ready); err != nil {
		said, _ := os.ReadFile(out)
		return fmt.Errorf("docker engine: not up after 15 s: %s", tail(said, 400))
	}
	return nil
}

// dockerCommand is the client's command line for a shell. The client of
// Debian's package fits its engine; another one may come first on PATH.
func (s *starter) dockerCommand(args ...string) string {
	client := "docker"
	if _, err := os.Stat("/usr/bin/docker"); err == nil {
		client = "/usr/bin/docker"
	}
	return "HOME=" + s.dockerDir() + " " + client + " --host unix://" + s.dockerSocket() + " " + strings.Join(args, " ")
}

func tail(text []byte, size int) []byte { return text[max(0, len(text)-size):] }

// container makes an image of little more than the program, and runs it. The
// interpreter is the host's.
func (s *starter) container() error {
	image := filepath.Join(s.dockerDir(), "image.tar")
	program, err := programs.ReadFile("programs/booking.py")
	if err != nil {
		return err
	}
	if err := writeImage(image, map[string]string{"app/booking.py": string(program)}); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	run := []string{"run", "--detach", "--network", "host", "--volume", "/usr:/usr:ro",
		"--log-driver", "fluentd", "--log-opt", fmt.Sprintf("fluentd-address=%s:%d", s.v.BackendAddr, collectorPort),
		"booking:1", python, "/app/booking.py", s.v.ProxyAddr, strconv.Itoa(s.v.BackPort)}
	run = append(run, s.v.Python.options()...)
	script := s.dockerCommand("import", image, "booking:1") + " && " + s.dockerCommand(run...)
	if _, err := s.box.Server.Output(s.ctx, "sh", "-c", script); err != nil {
		return err
	}
	if err := s.box.Server.Listening(s.ctx, s.v.BackPort); err != nil {
		said, _ := os.ReadFile(filepath.Join(s.box.Dir, "dockerd.out"))
		return fmt.Errorf("container: %w: %s", err, tail(said, 400))
	}
	return nil
}

// writeImage writes a root file system with Debian's links into /usr, which is
// to be mounted, and some files.
func writeImage(path string, files map[string]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, dir := range imageDirs(files) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "usr/" + link, Mode: 0o777}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			return err
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			return err
		}
	}
	return w.Close()
}

// imageDirs is the directories of an image, outer ones first.
func imageDirs(files map[string]string) []string {
	dirs := []string{"usr", "etc", "proc", "sys", "dev", "tmp", "app"}
	for name := range files {
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
