package change

import (
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/budget"
	"github.com/slowray/slowray/internal/observe"
	"github.com/slowray/slowray/internal/sense/app/logtail/rootfs"
)

// tailBytes is how much of the end of a log is read: some hundred changes.
const tailBytes = 64 << 10

// logs are those of package managers, with what reads a line of them: who
// changed what, and when; false for a line of another kind.
var logs = []struct {
	path  string
	parse func(string) (time.Time, string, bool)
}{
	{"/var/log/dpkg.log", parseDpkg},
	{"/var/log/dnf.rpm.log", parseDnf},
	{"/var/log/yum.log", parseYum},
	{"/var/log/pacman.log", parsePacman},
	{"/var/log/apk.log", parseApk},
}

// packages reads what package managers of the host did since a time. Names and
// versions are untrusted text.
func packages(b *budget.Budget, root string, since time.Time) []observe.Change {
	at := rootfs.At(root, b)
	var out []observe.Change
	for _, l := range logs {
		for _, line := range lastLines(b, at, l.path) {
			at, what, ok := l.parse(line)
			if ok && at.After(since) {
				out = append(out, observe.Change{Kind: observe.ChangePackage, At: at, What: printable(what, 160)})
			}
		}
	}
	// Databases without a log tell only that there was a change.
	for _, name := range []string{"/lib/apk/db/installed", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/usr/lib/sysimage/rpm/rpmdb.sqlite"} {
		st, err := at.Stat(name)
		if when := time.Unix(st.Mtim.Unix()); err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && when.After(since) && len(out) == 0 {
			out = append(out, observe.Change{Kind: observe.ChangePackage, At: when, What: "packages were installed, upgraded or removed", Path: name})
		}
	}
	return out
}

// lastLines is the whole lines at the end of a file, nil where there is none.
func lastLines(b *budget.Budget, at rootfs.Root, name string) []string {
	f, err := at.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Fstat()
	if err != nil {
		return nil
	}
	from := max(st.Size-tailBytes, 0)
	text, err := b.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return nil
	}
	lines := strings.Split(string(text), "\n")
	if from > 0 {
		lines = lines[1:] // it may begin in the middle
	}
	return lines
}

// parseDpkg reads "2026-11-22 00:30:40 upgrade nginx:amd64 1.22.1-9 1.22.1-10",
// in local time (dpkg(1)).
func parseDpkg(line string) (time.Time, string, bool) {
	f := strings.Fields(line)
	if len(f) < 6 {
		return time.Time{}, "", false
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05", f[0]+" "+f[1], time.Local)
	if err != nil {
		return time.Time{}, "", false
	}
	name, _, _ := strings.Cut(f[3], ":")
	switch f[2] {
	case "upgrade":
		return at, fmt.Sprintf("%s %s → %s", name, f[4], f[5]), true
	case "install":
		return at, fmt.Sprintf("%s %s installed", name, f[5]), true
	case "remove", "purge":
		return at, fmt.Sprintf("%s %s removed", name, f[4]), true
	}
	return at, "", false
}

// parseDnf reads "2026-11-22T00:30:40+0000 SUBDEBUG Upgrade: nginx-1:1.24.0-1.fc40.x86_64".
func parseDnf(line string) (time.Time, string, bool) {
	f := strings.Fields(line)
	if len(f) < 4 {
		return time.Time{}, "", false
	}
	at, err := time.Parse("2006-01-02T15:04:05-0700", f[0])
	if err != nil {
		if at, err = time.Parse(time.RFC3339, f[0]); err != nil {
			return time.Time{}, "", false
		}
	}
	switch what := strings.TrimSuffix(f[2], ":"); what {
	case "Upgrade", "Installed", "Install", "Erase", "Removed", "Downgrade", "Reinstall":
		return at, f[3] + " " + map[string]string{
			"Upgrade": "upgraded", "Installed": "installed", "Install": "installed", "Erase": "removed", "Removed": "removed",
			"Downgrade": "downgraded", "Reinstall": "installed again",
		}[what], true
	}
	return at, "", false
}

// parseYum reads "Nov 22 00:30:40 Updated: nginx-1.20.1-1.el7.x86_64", which
// has no year: it is this one, or the last.
func parseYum(line string) (time.Time, string, bool) {
	f := strings.Fields(line)
	if len(f) < 5 {
		return time.Time{}, "", false
	}
	now := time.Now()
	at, err := time.ParseInLocation("2006 Jan 2 15:04:05", fmt.Sprintf("%d %s %s %s", now.Year(), f[0], f[1], f[2]), time.Local)
	if err != nil {
		return time.Time{}, "", false
	}
	if at.After(now.Add(time.Hour)) {
		at = at.AddDate(-1, 0, 0)
	}
	what := strings.ToLower(strings.TrimSuffix(f[3], ":"))
	if what != "updated" && what != "installed" && what != "erased" {
		return at, "", false
	}
	return at, f[4] + " " + what, true
}

// parsePacman reads "[2026-11-22T00:30:40+0000] [ALPM] upgraded nginx (1.26-1 -> 1.28-1)".
func parsePacman(line string) (time.Time, string, bool) {
	stamp, rest, ok := strings.Cut(strings.TrimPrefix(line, "["), "] [ALPM] ")
	at, err := time.Parse("2006-01-02T15:04:05-0700", stamp)
	if !ok || err != nil {
		return time.Time{}, "", false
	}
	verb, _, _ := strings.Cut(rest, " ")
	return at, rest, verb == "upgraded" || verb == "installed" || verb == "removed" || verb == "downgraded"
}

// parseApk reads "2026-11-22 00:30:40 [3] Upgrading nginx (1.26.0-r0 -> 1.26.1-r0)"
// and the like (apk-tools 3).
func parseApk(line string) (time.Time, string, bool) {
	if len(line) < 20 {
		return time.Time{}, "", false
	}
	at, err := time.ParseInLocation("2006-01-02 15:04:05", line[:19], time.Local)
	if err != nil {
		return time.Time{}, "", false
	}
	for _, verb := range []string{"Upgrading ", "Installing ", "Purging ", "Downgrading "} {
		if i := strings.Index(line, verb); i >= 0 {
			return at, line[i:], true
		}
	}
	return at, "", false
}
