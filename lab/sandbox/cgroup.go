package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CgroupName gives the path of a control group, as from the root of any
// hierarchy, for an engine that makes groups by itself. Whatever it makes there
// goes with the sandbox.
func (b *Box) CgroupName(ctx context.Context) (string, error) {
	mounts, err := readMounts()
	if err != nil {
		return "", err
	}
	name := filepath.Base(b.Dir)
	note := func(j *Journal) {
		for _, m := range mounts {
			if m.kind == "cgroup" || m.kind == "cgroup2" {
				j.Cgroups = append(j.Cgroups, filepath.Join(m.at, name))
			}
		}
	}
	return "/" + name, b.change(ctx, note, func() error { return nil })
}

// Limit is one setting of a control group: the controller and its file in
// version 1, and the file in version 2, with the values.
type Limit struct {
	Controller, File1, Value1 string
	File2, Value2             string
}

// Limited makes a control group for each limit and gives their directories.
func (b *Box) Limited(ctx context.Context, limits ...Limit) ([]string, error) {
	var dirs []string
	for _, l := range limits {
		root, file, value := filepath.Join("/sys/fs/cgroup", l.Controller), l.File1, l.Value1
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			if root, file, value = "/sys/fs/cgroup", l.File2, l.Value2; !hasController(root, l.Controller) {
				return nil, fmt.Errorf("lab: no controller %s in a control group hierarchy", l.Controller)
			}
		}
		dir := filepath.Join(root, filepath.Base(b.Dir)+"-"+l.Controller)
		err := b.change(ctx,
			func(j *Journal) { j.Cgroups = append(j.Cgroups, dir) },
			func() error {
				return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(value), 0))
			})
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// SlowDisk makes a control group whose processes have so many writes in a
// second on the disk that the sandbox's directory is on, and gives its
// directory: below the blkio controller of version 1, or version 2.
func (b *Box) SlowDisk(ctx context.Context, writes int) (string, error) {
	return b.slowDisk(ctx, "blkio.throttle.write_iops_device", "wiops", writes)
}

// SlowReads is SlowDisk for the bytes that are read in a second.
func (b *Box) SlowReads(ctx context.Context, bytes int) (string, error) {
	return b.slowDisk(ctx, "blkio.throttle.read_bps_device", "rbps", bytes)
}

func (b *Box) slowDisk(ctx context.Context, file1, key2 string, most int) (string, error) {
	disk, err := diskOf(b.Dir)
	if err != nil {
		return "", err
	}
	root, file, value := "/sys/fs/cgroup/blkio", file1, fmt.Sprintf("%s %d", disk, most)
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		if root, file, value = "/sys/fs/cgroup", "io.max", fmt.Sprintf("%s %s=%d", disk, key2, most); !hasController(root, "io") {
			return "", errors.New("lab: no controller of block devices in a control group hierarchy")
		}
	}
	dir := filepath.Join(root, filepath.Base(b.Dir)+"-disk")
	err = b.change(ctx,
		func(j *Journal) { j.Cgroups = append(j.Cgroups, dir) },
		func() error {
			return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(value), 0))
		})
	return dir, err
}

// diskOf gives the number, "major:minor", of the whole disk that a file is on:
// no limit can be set for a partition.
func diskOf(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", fmt.Errorf("lab: %s: %w", path, err)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	device, err := filepath.EvalSymlinks("/sys/dev/block/" + number)
	if err != nil {
		return "", fmt.Errorf("lab: %s is not on a block device that can be slowed down (TMPDIR says where it is)", path)
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err != nil {
		return number, nil
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(device), "dev"))
	return strings.TrimSpace(string(data)), err
}

// removeCgroup removes a group and those in it. The processes have been
// killed, but may take a moment to leave.
func removeCgroup(dir string) error {
	var err error
	for range 50 {
		if err = removeGroups(dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("undo %s: %w", dir, err)
}

func removeGroups(dir string) error {
	var groups []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		return nil
	})
	for _, g := range slices.Backward(groups) { // the inner ones first
		if err := syscall.Rmdir(g); err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}
