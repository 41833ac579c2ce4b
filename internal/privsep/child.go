package privsep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// command is the first argument of a process that acts as another user.
const command = "privsep"

// firstFile is the first of the files that it is handed.
const firstFile = 3

// Task answers one request, in the process that has the rights of the user only.
// files are descriptors.
type Task func(request []byte, files []int) (answer []byte)

var registered = map[string]bool{}

// Register names a task. It is called by init functions: where this process was
// started for the task, it does it there and then and ends. So every program that
// can ask for a task can do it, tests too.
func Register(name string, t Task) {
	registered[name] = true
	if len(os.Args) != 4 || os.Args[1] != command || os.Args[2] != name {
		return
	}
	if err := child(t, os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(0)
}

// order is what the process gets as its last argument.
type order struct {
	User
	Files  int `json:"files"`
	Parent int `json:"parent"` // the process that asks
}

func child(t Task, text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return errors.New("is started by slowray itself, when it acts as another user")
	}
	if err := become(o.User); err != nil {
		return err
	}
	// What nobody waits for any more is not done: another may be at work by then. The
	// kernel forgets this when the user changes, so it comes after.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil || os.Getppid() != o.Parent {
		return errors.New("nobody waits for it")
	}
	request, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var files []int
	for i := range o.Files {
		files = append(files, firstFile+i)
	}
	_, err = os.Stdout.Write(t(request, files))
	return err
}

// become gives up what is left of the rights of root, and makes sure of it.
func become(u User) error {
	if uid := int(u.UID); os.Geteuid() != uid {
		if err := syscall.Setresuid(uid, uid, uid); err != nil {
			return fmt.Errorf("setresuid: %w", err)
		}
	}
	// Its user could otherwise use it to see what he cannot: other namespaces.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not to be traced: %w", err)
	}
	r, e, s := unix.Getresuid()
	rg, eg, sg := unix.Getresgid()
	groups, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	for _, g := range groups {
		if !slices.Contains(u.Groups, uint32(g)) && uint32(g) != u.GID {
			return fmt.Errorf("it is still in group %d", g)
		}
	}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	fixed, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	switch {
	case err != nil || fixed != 1:
		return errors.New("it could still gain rights")
	case r != int(u.UID) || e != r || s != r || rg != int(u.GID) || eg != rg || sg != rg:
		return fmt.Errorf("it is user %d:%d:%d, group %d:%d:%d", r, e, s, rg, eg, sg)
	case caps != [2]unix.CapUserData{}:
		return errors.New("it still has capabilities")
	}
	return nil
}
