package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/slowray/slowray/lab/sandbox"
)

// Roles under which the executable must call [Main].
const (
	AppRole  = "app"
	BurnRole = "burn"
	WebRole  = "web"
	appEnv   = "LAB_APP"
)

// Main runs the lab's own program of that role, until it is killed.
func Main(role string) error {
	if role == BurnRole {
		burn()
	}
	var spec interface{ serve() error } = &appSpec{}
	switch role {
	case GoRole:
		spec = &bookings{}
	case HopRole:
		spec = &hopSpec{}
	case WebRole:
		spec = &webSpec{}
	case AlongsideRole:
		spec = &alongsideSpec{}
	}
	if err := json.Unmarshal([]byte(os.Getenv(appEnv)), spec); err != nil {
		return fmt.Errorf("%s: %w", role, err)
	}
	return spec.serve()
}

func burn() {
	for n := uint64(1); ; n = n*6364136223846793005 + 1 {
		if n == 0 {
			return
		}
	}
}

// start runs a program of the lab's own under a name of its own, which the
// kernel takes from the file that is executed.
func (s *starter) start(name, role string, spec sandbox.Spec) error {
	return s.startAt(s.box.Server, name, role, spec)
}

func (s *starter) startAt(side *sandbox.Side, name, role string, spec sandbox.Spec) error {
	link := filepath.Join(s.box.Dir, name)
	if err := os.Symlink(s.exe, link); err != nil && !os.IsExist(err) {
		return err
	}
	spec.Args = []string{link}
	spec.Env = append(spec.Env, sandbox.RoleEnv+"="+role, "GOMAXPROCS=1")
	spec.Stderr = filepath.Join(s.box.Dir, name+".out")
	_, err := side.Start(s.ctx, spec)
	return err
}

func (s *starter) burners() error {
	for range s.v.Burners {
		if err := s.start("report-batch", BurnRole, sandbox.Spec{Nice: s.v.BurnerNice}); err != nil {
			return err
		}
	}
	return s.jobs()
}

// storm starts shells that run a program again and again.
func (s *starter) storm() error {
	for range s.v.Storm {
		if _, err := s.box.Server.Start(s.ctx, sandbox.Spec{Args: []string{"sh", "-c", "while :; do gzip -c /usr/share/common-licenses/GPL-3 > /dev/null; done"}, Nice: s.v.BurnerNice}); err != nil {
			return err
		}
	}
	return nil
}

// exportScript makes an image of a disk in memory, and mounts it.
const exportScript = `set -e
mkdir -p image disk
mount -t tmpfs -o size=200m export image
truncate -s 160M image/disk
mkfs.ext4 -q -m 0 image/disk
mount -o loop image/disk disk`

// exports starts programs that write to an image of a disk.
func (s *starter) exports() error {
	if s.v.Exports == 0 {
		return nil
	}
	if _, err := s.box.Server.Output(s.ctx, "sh", "-c", "cd "+s.box.Dir+"\n"+exportScript); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	for n := range s.v.Exports {
		if err := s.alongside(s.box.Server, fmt.Sprintf("export-%d", n), alongsideSpec{Export: filepath.Join(s.box.Dir, fmt.Sprintf("disk/export%d", n))}); err != nil {
			return err
		}
	}
	return nil
}

// export writes a file past the cache again and again. On a loop device a thread
// of the kernel copies what it hands over (loop_process_work); it takes next to
// no CPU itself.
func (b *alongsideSpec) export() error {
	const size, parts = 8 << 20, 6
	data, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	for at := range data {
		data[at] = 'x'
	}
	f, err := os.OpenFile(b.Export, os.O_CREATE|os.O_WRONLY|syscall.O_DIRECT, 0o644)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	for n := int64(0); ; n++ {
		if _, err := f.WriteAt(data, n%parts*size); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
}

// jobs starts the busy loops that cron started.
func (s *starter) jobs() error {
	if s.v.CronJobs == 0 {
		return nil
	}
	job := filepath.Join(s.box.Dir, "report-batch")
	if err := os.Symlink(s.exe, job); err != nil && !os.IsExist(err) {
		return err
	}
	return s.alongside(s.box.Server, "cron", alongsideSpec{Jobs: s.v.CronJobs, Job: job})
}

func (s *starter) app() error {
	data, err := json.Marshal(appSpec{
		Addr: s.v.ServerAddr, Port: s.v.FrontPort, Backlog: s.v.AppBacklog, Work: s.v.AppWork, Serial: s.v.AppSerial,
	})
	if err != nil {
		return err
	}
	spec := sandbox.Spec{Env: []string{appEnv + "=" + string(data)}, NoFile: s.v.NoFile, Cgroup: s.cgroup}
	if err := s.start("booking-app", AppRole, spec); err != nil {
		return err
	}
	return s.box.Server.Listening(s.ctx, s.v.FrontPort)
}

// appSpec is a server that answers one request for each connection after some
// work. A serial one accepts the next connection only when it is done with the
// last, as many a small service does when its worker blocks.
type appSpec struct {
	Addr    string
	Port    int
	Backlog int
	Work    time.Duration
	Serial  bool
}

func (a appSpec) serve() error {
	fd, err := listen(a.Addr, a.Port, a.Backlog)
	if err != nil {
		return fmt.Errorf("app: %w", err)
	}
	for {
		conn, _, err := syscall.Accept4(fd, syscall.SOCK_CLOEXEC)
		if err != nil {
			continue
		}
		if a.Serial {
			a.answer(conn)
		} else {
			go a.answer(conn)
		}
	}
}

// listen uses plain system calls: package net takes its backlog from somaxconn.
func listen(addr string, port, backlog int) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: ip.As4()}); err != nil {
		return 0, fmt.Errorf("bind: %w", err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		return 0, fmt.Errorf("listen: %w", err)
	}
	return fd, nil
}

func (a appSpec) answer(fd int) {
	conn := os.NewFile(uintptr(fd), "connection")
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		return
	}
	time.Sleep(a.Work)
	fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\nHello World\n")
}
