package server

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"
)

// loop is a server with one thread for everything, as event loops have it. As
// long as it works for one connection, what the others sent stays where it is.
// Each request is taken to be in one piece, and what it says not to matter.
func (w *webSpec) loop(listener int) error {
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("web: epoll: %w", err)
	}
	add := func(fd int) error {
		return syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
	}
	if err := add(listener); err != nil {
		return fmt.Errorf("web: epoll: %w", err)
	}
	events := make([]syscall.EpollEvent, 64)
	buf := make([]byte, 16<<10)
	for {
		n, err := syscall.EpollWait(poll, events, -1)
		if err != nil && err != syscall.EINTR {
			return fmt.Errorf("web: epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			fd := int(e.Fd)
			if fd == listener {
				if conn, _, err := syscall.Accept4(fd, syscall.SOCK_CLOEXEC); err == nil {
					syscall.SetsockoptInt(conn, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
					add(conn)
				}
				continue
			}
			got, err := syscall.Read(fd, buf)
			if err != nil || got <= 0 || !bytes.HasSuffix(buf[:got], []byte("\r\n\r\n")) {
				syscall.Close(fd)
				continue
			}
			time.Sleep(w.Work)
			if err := w.answer(descriptor(fd), http.StatusOK, false); err != nil {
				fmt.Fprintln(os.Stderr, "answer:", err)
				syscall.Close(fd)
			}
		}
	}
}

type descriptor int

func (d descriptor) Write(p []byte) (int, error) { return syscall.Write(int(d), p) }
