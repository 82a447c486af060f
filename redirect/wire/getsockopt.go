package wire

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Getsockopt asks with what is in the buffer, which golang.org/x/sys does not do, and fills it.
func Getsockopt(fd, level, option int, buffer []byte) error {
	length := uint32(len(buffer))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
