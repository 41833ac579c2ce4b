package config

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// identity is who a process is, and whether it was himself who started it.
type identity struct {
	uid, gid int
	groups   []uint32
	bounding uint64 // capability bounding set, as far as it has those rights itself
	caps     uint64 // effective capabilities
	filtered bool   // by seccomp(2)
	// lent says that the rights of the process are more than those of who started it
	// (a set-user-ID program, file capabilities), whose are its arguments and its
	// environment.
	lent bool
}

// userOf is the user that a process runs as.
func userOf(pid int) (int, error) {
	id, _, err := identityOf("/proc/" + strconv.Itoa(pid))
	return id.uid, err
}

// identityOf reads who a process is from its directory in /proc. The mark is
// another one after it has executed another program or changed its user.
func identityOf(dir string) (id identity, mark string, err error) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return id, "", err
	}
	vector, err := os.ReadFile(dir + "/auxv")
	if err != nil {
		return id, "", err
	}
	// A process may become another user, and root for a moment, by what it executes:
	// all that is read here has to be of one moment.
	again, err := os.ReadFile(dir + "/status")
	if err != nil {
		return id, "", err
	}
	mark, now := rightsIn(string(status)), rightsIn(string(again))
	if mark != now {
		return id, "", errors.New("it becomes another user in this moment")
	}
	if err := id.read(mark); err != nil {
		return id, "", err
	}
	id.lent = lent(vector, id.uid)
	return id, mark + string(vector), nil
}

// rightsIn is the lines of proc_pid_status(5) about users and rights.
func rightsIn(status string) string {
	var out strings.Builder
	for line := range strings.Lines(status) {
		name, _, _ := strings.Cut(line, ":")
		if slices.Contains([]string{"Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "Seccomp"}, name) {
			out.WriteString(line)
		}
	}
	return out.String()
}

func (id *identity) read(rights string) error {
	var permitted uint64
	for line := range strings.Lines(rights) {
		f := strings.Fields(line)
		var err error
		switch f[0] {
		case "Uid:":
			id.uid, err = oneOf(f[1:])
		case "Gid:":
			id.gid, err = oneOf(f[1:])
		case "Groups:":
			for _, g := range f[1:] {
				n, _ := strconv.ParseUint(g, 10, 32)
				id.groups = append(id.groups, uint32(n))
			}
		case "CapPrm:":
			permitted, err = strconv.ParseUint(f[1], 16, 64)
		case "CapEff:":
			id.caps, err = strconv.ParseUint(f[1], 16, 64)
		case "CapBnd:":
			id.bounding, err = strconv.ParseUint(f[1], 16, 64)
		case "Seccomp:":
			id.filtered = f[1] != "0"
		}
		if err != nil {
			return fmt.Errorf("%s %w", strings.ToLower(f[0]), err)
		}
	}
	// What is executed as root gets the whole bounding set (capabilities(7)).
	id.bounding &= permitted
	return nil
}

// oneOf is the real, effective, saved, and file system ID, which are to be the same.
func oneOf(ids []string) (int, error) {
	for _, id := range ids {
		if id != ids[0] {
			return 0, errors.New("its real and its effective one differ: a program that lends rights, or one about to give them up")
		}
	}
	return strconv.Atoi(ids[0])
}

// Types of entries of the auxiliary vector, getauxval(3).
const (
	auxUID    = 11 // real user when the program was executed
	auxEUID   = 12
	auxSecure = 23 // it has got rights by being executed
)

// lent reads the auxiliary vector, whose words are of the size of the program's.
// What cannot be read counts as lent.
func lent(vector []byte, uid int) bool {
	for _, size := range []int{8, 4} {
		found := map[uint64]uint64{}
		for at := 0; at+2*size <= len(vector); at += 2 * size {
			found[number64(vector[at:], size)] = number64(vector[at+size:], size)
		}
		_, ok1 := found[auxUID]
		secure, ok2 := found[auxSecure]
		if ok1 && ok2 && secure <= 1 {
			return secure == 1 || uid == 0 && (found[auxUID] != 0 || found[auxEUID] != 0)
		}
	}
	return true
}

func number64(b []byte, size int) uint64 {
	if size == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}
