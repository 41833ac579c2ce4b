package server

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Chores is what goes on on every healthy machine next to its service.
type Chores struct {
	Reloads  bool // nginx is asked to read its configuration again
	Restarts bool // another server is stopped and started
	Cron     bool // small programs start, do a little, and end
	Packages bool // dpkg installs a package, in a root of its own
}

// Each chore is done again after so long.
const (
	reloadEvery  = 1500 * time.Millisecond
	restartEvery = 1200 * time.Millisecond
	cronEvery    = time.Second
)

// cronJob is as scripts in cron.hourly are: it looks around and cleans up.
const cronJob = `for n in 1 2 3 4 5; do
	find /usr/share/doc -maxdepth 1 -name 'lib*' | sort | wc -l
	gzip -c /usr/share/common-licenses/GPL-3 | wc -c
	test -x /bin/true && /bin/true
done`

// packageFiles is how many files the package has, packageBytes each of them.
const (
	packageFiles = 60
	packageBytes = 40_000
)

// chores does in the background what is to be done, until the sandbox ends. A
// chore that fails is not done again: it would be no chore then.
func (s *starter) chores() error {
	c := s.v.Chores
	if c.Reloads && s.v.Kind.HasNginx() {
		s.often(reloadEvery, "sh", "-c", "kill -HUP $(cat "+filepath.Join(s.box.Dir, "nginx.pid")+")")
	}
	if c.Restarts {
		s.often(restartEvery, "timeout", "--kill-after=1", "1", "/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", "0")
	}
	if c.Cron {
		s.often(cronEvery, "sh", "-c", cronJob)
	}
	if !c.Packages {
		return nil
	}
	install, err := s.makePackage()
	if err != nil {
		return fmt.Errorf("package: %w", err)
	}
	s.often(cronEvery, install...)
	return nil
}

// often runs a program again and again, each time after the last has ended.
func (s *starter) often(every time.Duration, args ...string) {
	go func() {
		for s.ctx.Err() == nil {
			// Whatever it says: dpkg complains of much, timeout always ends it.
			_, _ = s.box.Server.Output(s.ctx, args...)
			select {
			case <-s.ctx.Done():
			case <-s.box.Gone():
				return
			case <-time.After(every):
			}
		}
	}()
}

// makePackage builds a package and an empty root for it, and gives the command
// that installs it there.
func (s *starter) makePackage() ([]string, error) {
	tree, root := filepath.Join(s.box.Dir, "package"), filepath.Join(s.box.Dir, "root")
	files := map[string]string{
		filepath.Join(tree, "DEBIAN/control"):      "Package: lab-chore\nVersion: 1\nArchitecture: all\nMaintainer: Lab <lab@example.com>\nDescription: files to install\n",
		filepath.Join(root, "var/lib/dpkg/status"): "",
		filepath.Join(root, "var/lib/dpkg/info/x"): "",
	}
	for n := range packageFiles {
		files[filepath.Join(tree, fmt.Sprintf("usr/share/lab/file%d", n))] = string(make([]byte, packageBytes))
	}
	for path, text := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755); err != nil {
		return nil, err
	}
	deb := filepath.Join(s.box.Dir, "lab-chore.deb")
	if _, err := s.box.Server.Output(s.ctx, "dpkg-deb", "--build", "--root-owner-group", tree, deb); err != nil {
		return nil, err
	}
	return []string{"dpkg", "--root=" + root, "--log=" + filepath.Join(s.box.Dir, "dpkg.log"), "--install", deb}, nil
}
