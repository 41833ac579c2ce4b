package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Swap has the host swap to a file of so many MB in the sandbox's directory until the
// sandbox ends. Only who is short of memory makes use of it.
func (b *Box) Swap(ctx context.Context, mb int) error {
	file := filepath.Join(b.Dir, "swap")
	return b.change(ctx,
		func(j *Journal) { j.Swaps = append(j.Swaps, file) },
		func() error {
			f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return fmt.Errorf("lab: %w", err)
			}
			if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, int64(mb)<<20), f.Close()); err != nil {
				return fmt.Errorf("lab: %s: %w", file, err)
			}
			if said, err := exec.CommandContext(ctx, "mkswap", file).CombinedOutput(); err != nil {
				return fmt.Errorf("lab: mkswap: %w: %.200s", err, said)
			}
			return swap(unix.SYS_SWAPON, file)
		})
}

// swapOff takes a file back from the host; one that it does not swap to is left alone.
func swapOff(file string) error {
	if err := swap(unix.SYS_SWAPOFF, file); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

func swap(call uintptr, file string) error {
	name, err := unix.BytePtrFromString(file)
	if err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(call, uintptr(unsafe.Pointer(name)), 0, 0); errno != 0 {
		return fmt.Errorf("swap file %s: %w", file, errno)
	}
	return nil
}
