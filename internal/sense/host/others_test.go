package host

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/slowray/slowray/internal/budget"
)

// What a user lays over a file system of her own in her own namespaces is not taken for
// one of the host's, whose every file answers.
func TestOverlayOfOthers(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "mount -t tmpfs t /mnt && mkdir /mnt/a /mnt/b /mnt/over && "+
		"mount -t overlay -o lowerdir=/mnt/a:/mnt/b o /mnt/over && cd /mnt/over && echo ready && read x")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Skipf("SKIP: no user namespaces: %v", err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Skipf("SKIP: no overlay in a user namespace: %s", said.String())
	}
	table, err := Default().MountTableOf(budget.New(context.Background(), budget.Limits{}), cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := table.Of("/mnt/over/x"); !ok || m.Type != "overlay" || !m.MayHang() || table.Answers("/mnt/over/x") || table.AllAnswer() {
		t.Errorf("%+v %v", m, ok)
	}
	if m, ok := table.Of("/mnt/a"); !ok || m.MayHang() {
		t.Errorf("%+v %v", m, ok)
	}
	if err := Default().LinkAnswers(cmd.Process.Pid, "cwd"); err == nil {
		t.Error("its working directory is taken for one that answers")
	}
	for _, link := range []string{"root", "exe"} {
		if err := Default().LinkAnswers(os.Getpid(), link); err != nil {
			t.Error(err)
		}
	}
	if othersMounts(fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid())) {
		t.Error("its own mount namespace is taken for another's")
	}
}
